/* atom-quantize against an independent implementation on the sample model: GPTQ by perplexity,
 * round to nearest code by code. The other models: test_atom_golden_full. */
#include "support/cmocka_all.h"

#include "atom_golden.h"

static void test_golden__llama_6m_gptq(void **state)
{
    (void)state;
    atom_golden_check("llama-6m", "dense", "w4a16");
}

static void test_golden__llama_6m_pruned_w4a4(void **state)
{
    (void)state;
    atom_golden_check("llama-6m", "pruned", "w4a4-rtn");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden__llama_6m_gptq),
        cmocka_unit_test(test_golden__llama_6m_pruned_w4a4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
