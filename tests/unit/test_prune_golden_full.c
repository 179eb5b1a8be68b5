/* As test_prune_golden_shared, with the perplexity of the whole test text: minutes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_golden.h"

static void test_wanda__llama_half(void **state)
{
    (void)state;
    prune_golden_check("llama-6m", "novels-calib.txt.xz", "50", "all");
}

static void test_wanda__llama_2_of_4(void **state)
{
    (void)state;
    prune_golden_check("llama-6m", "novels-calib.txt.xz", "2:4", "all");
}

static void test_wanda__llama_4_of_8(void **state)
{
    (void)state;
    prune_golden_check("llama-6m", "novels-calib.txt.xz", "4:8", "all");
}

static void test_wanda__llama_1_of_4(void **state)
{
    (void)state;
    prune_golden_check("llama-6m", "novels-calib.txt.xz", "1:4", "all");
}

static void test_wanda__opt_half(void **state)
{
    (void)state;
    prune_golden_check("opt-6m", "novels-calib.txt.xz", "50", "all");
}

static void test_wanda__opt_2_of_4(void **state)
{
    (void)state;
    prune_golden_check("opt-6m", "novels-calib.txt.xz", "2:4", "all");
}

static void test_wanda__opt_4_of_8(void **state)
{
    (void)state;
    prune_golden_check("opt-6m", "novels-calib.txt.xz", "4:8", "all");
}

static void test_wanda__opt_1_of_4(void **state)
{
    (void)state;
    prune_golden_check("opt-6m", "novels-calib.txt.xz", "1:4", "all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wanda__llama_half),   cmocka_unit_test(test_wanda__llama_2_of_4),
        cmocka_unit_test(test_wanda__llama_4_of_8), cmocka_unit_test(test_wanda__llama_1_of_4),
        cmocka_unit_test(test_wanda__opt_half),     cmocka_unit_test(test_wanda__opt_2_of_4),
        cmocka_unit_test(test_wanda__opt_4_of_8),   cmocka_unit_test(test_wanda__opt_1_of_4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
