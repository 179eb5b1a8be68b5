/* limits.host_memory holds while a stage runs, too: one that runs away fails by itself. */
#include "exec_fakes.h"

#define HOARD(LIMITS)                  \
    "version: 1\n"                     \
    "name: hoard\n" LIMITS "stages:\n" \
    "  - id: bad\n"                    \
    "    use: work\n"                  \
    "    with: {value: 3, action: hoard, counter: %s}\n"

static void test_run__a_stage_that_hoards_fails_by_itself(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, HOARD("limits: {host_memory: 64MiB}\n")),
                     ESPL_E_NOMEM);
    assert_string_equal(fixture->err.message, "out of memory for 2 GiB");
}

static void test_run__no_limit_no_refusal(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, HOARD("")), ESPL_OK);
    assert_int_equal(exec_fixture_run(fixture, HOARD("limits: {host_memory: 64GiB}\n")), ESPL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_run__a_stage_that_hoards_fails_by_itself,
                                        exec_fixture_setup, exec_fixture_teardown),
        cmocka_unit_test_setup_teardown(test_run__no_limit_no_refusal, exec_fixture_setup,
                                        exec_fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
