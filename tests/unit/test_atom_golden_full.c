/* atom-quantize against an independent implementation: all models, dense and with half of their
 * weights removed, in every scheme. Minutes. */
#include "support/cmocka_all.h"

#include "atom_golden.h"

#define GOLDEN(name, model, kind)             \
    static void name(void **state)            \
    {                                         \
        (void)state;                          \
        atom_golden_check(model, kind, NULL); \
    }

GOLDEN(test_golden__opt_6m, "opt-6m", "dense")
GOLDEN(test_golden__opt_6m_pruned, "opt-6m", "pruned")
GOLDEN(test_golden__llama_18m, "llama-18m", "dense")
GOLDEN(test_golden__llama_18m_pruned, "llama-18m", "pruned")
GOLDEN(test_golden__llama_6m, "llama-6m", "dense")
GOLDEN(test_golden__llama_6m_pruned, "llama-6m", "pruned")

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden__opt_6m),    cmocka_unit_test(test_golden__opt_6m_pruned),
        cmocka_unit_test(test_golden__llama_18m), cmocka_unit_test(test_golden__llama_18m_pruned),
        cmocka_unit_test(test_golden__llama_6m),  cmocka_unit_test(test_golden__llama_6m_pruned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
