/* As test_prune_golden_shared, with the perplexity of the whole test text: minutes. */
#include "prune_golden.h"

int main(void)
{
    return prune_golden_run_all("all");
}
