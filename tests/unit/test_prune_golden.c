/* Masks of the shipped model and text, element for element: always there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_golden.h"

#include <omp.h>

static void test_wanda__llama_half(void **state)
{
    (void)state;
    prune_golden_check("llama-6m", "novels-calib-sample.txt.xz", "50", "16");
}

/* The same bytes for one, two and three threads. */
static void test_wanda__llama_half_with_other_thread_counts(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    for (int threads = 1; threads <= 3; threads++) {
        if (threads != before) {
            omp_set_num_threads(threads);
            prune_golden_check("llama-6m", "novels-calib-sample.txt.xz", "50", "16");
        }
    }
    omp_set_num_threads(before);
}

static void test_wanda__llama_2_of_4(void **state)
{
    (void)state;
    prune_golden_check("llama-6m", "novels-calib-sample.txt.xz", "2:4", "16");
}

static void test_wanda__llama_4_of_8(void **state)
{
    (void)state;
    prune_golden_check("llama-6m", "novels-calib-sample.txt.xz", "4:8", "16");
}

static void test_wanda__llama_1_of_4(void **state)
{
    (void)state;
    prune_golden_check("llama-6m", "novels-calib-sample.txt.xz", "1:4", "16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wanda__llama_half),
        cmocka_unit_test(test_wanda__llama_half_with_other_thread_counts),
        cmocka_unit_test(test_wanda__llama_2_of_4),
        cmocka_unit_test(test_wanda__llama_4_of_8),
        cmocka_unit_test(test_wanda__llama_1_of_4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
