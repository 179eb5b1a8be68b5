/* wanda-prune and magnitude-prune: the same bytes after a resume and for any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_cases.h"

static void test_wanda__resume_gives_the_bytes_of_an_uninterrupted_run(void **state)
{
    (void)state;
    const struct espl_model_config config = prune_llama_config();
    struct espl_wanda_params params = prune_wanda_params();
    prune_check_resume(&config, ESPL_DTYPE_BF16, &espl_stage_wanda_prune, &params, 'b');
    params.propagate = ESPL_WANDA_PROPAGATE_DENSE;
    prune_check_resume(&config, ESPL_DTYPE_BF16, &espl_stage_wanda_prune, &params, 'b');
}

static void test_magnitude__resume_gives_the_bytes_of_an_uninterrupted_run(void **state)
{
    (void)state;
    const struct espl_model_config config = prune_llama_config();
    const struct prune_magnitude_params params = prune_magnitude_params();
    prune_check_resume(&config, ESPL_DTYPE_BF16, &espl_stage_magnitude_prune, &params, 0);
}

static void test_wanda__threads_do_not_change_a_byte(void **state)
{
    (void)state;
    static const char *const mlp[] = {"*.mlp.*", "o_proj"};
    const struct espl_model_config config = prune_llama_config();
    struct espl_wanda_params params = prune_wanda_params();
    params.common.layers.targets = (struct espl_list){2, mlp};
    prune_check_threads(&config, ESPL_DTYPE_F32, &espl_stage_wanda_prune, &params, 'b');
}

static void test_prune__stops_when_asked(void **state)
{
    (void)state;
    const volatile int stopped = 1;
    struct prune_fixture fixture;
    struct espl_error err;
    const struct espl_wanda_params params = prune_wanda_params();
    const struct prune_magnitude_params magnitude = prune_magnitude_params();
    prune_open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    assert_int_equal(
        prune_run(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &stopped, NULL, &err),
        ESPL_E_CANCELLED);
    assert_int_equal(prune_run(&fixture, &espl_stage_magnitude_prune, &magnitude, 'c', 'a', 0,
                               &stopped, NULL, &err),
                     ESPL_E_CANCELLED);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wanda__resume_gives_the_bytes_of_an_uninterrupted_run),
        cmocka_unit_test(test_magnitude__resume_gives_the_bytes_of_an_uninterrupted_run),
        cmocka_unit_test(test_wanda__threads_do_not_change_a_byte),
        cmocka_unit_test(test_prune__stops_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
