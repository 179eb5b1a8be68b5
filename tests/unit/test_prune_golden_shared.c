/* Masks of both reference models with the whole calibration text, which does not ship. */
#include "prune_golden.h"

int main(void)
{
    return prune_golden_run_all("16");
}
