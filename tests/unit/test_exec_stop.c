/* The executor: signals, stages that do not listen to them, and records that cannot be written. */
#include "exec_fakes.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char slow[] = "version: 1\n"
                           "name: slow\n"
                           "stages:\n"
                           "  - id: first\n"
                           "    use: work\n"
                           "    with: {steps: 40, step_ms: 50, units: true, counter: \"%s\"}\n"
                           "  - {id: second, use: work, in: {a: first}}\n";

static void stop_at_third(struct exec_fixture *fixture, const struct espl_event *event)
{
    if (event->type == ESPL_EVENT_PROGRESS && event->done == 3 && fixture->stop_signal == 0) {
        fixture->stop_signal = SIGINT;
        fixture->stop_count = 1;
    }
}

static double now(void)
{
    return espl_clock_monotonic();
}

static void test_run__stop_keeps_finished_layers(void **state)
{
    struct exec_fixture *fixture = *state;
    fixture->hook = stop_at_third;
    const double before = now();
    assert_int_equal(exec_fixture_run(fixture, slow), ESPL_E_CANCELLED);
    assert_true(now() - before < 1.5); /* a step is 50 ms, the whole stage 2 s */
    unsigned layer = 0;
    char tail[64] = "";
    assert_int_equal(sscanf(fixture->err.message, "'first' stopped after layer %u of 40; %60[^\n]",
                            &layer, tail),
                     2);
    assert_in_range(layer, 3, 5);
    assert_string_equal(tail, "finished layers are kept");
    assert_string_equal(fixture->err.hint, "continue with: espalier run jobs/test.yaml");
    json_t *record = exec_fixture_record(fixture);
    assert_string_equal(exec_text_at(record, "status"), "interrupted");
    assert_int_equal(exec_number_at(record, "exit_code"), 130);
    json_decref(record);
    exec_fixture_check_states(fixture, "first failed\nsecond waiting\n");
    assert_int_equal(exec_fixture_names(fixture, "partial", ".lock"), 0);
    fixture->hook = NULL;
    assert_int_equal(exec_fixture_run(fixture, slow), ESPL_OK);
    assert_int_equal(exec_fixture_count(fixture, "unit first 2"), 1);
}

static void terminate_at_third(struct exec_fixture *fixture, const struct espl_event *event)
{
    stop_at_third(fixture, event);
    if (fixture->stop_signal == SIGINT) {
        fixture->stop_signal = SIGTERM;
    }
}

static void test_run__sigterm_has_its_own_code(void **state)
{
    struct exec_fixture *fixture = *state;
    fixture->hook = terminate_at_third;
    assert_int_equal(exec_fixture_run(fixture, slow), ESPL_E_TERMINATED);
    json_t *record = exec_fixture_record(fixture);
    assert_int_equal(exec_number_at(record, "exit_code"), 143);
    json_decref(record);
}

static const char deaf[] = "version: 1\n"
                           "name: deaf\n"
                           "stages:\n"
                           "  - id: first\n"
                           "    use: work\n"
                           "    with: {steps: 100, step_ms: 100, action: ignore, at: 0}\n";

static void test_run__deaf_stage_is_killed_after_a_while(void **state)
{
    struct exec_fixture *fixture = *state;
    fixture->hook = stop_at_third;
    fixture->stop_seconds = 0.4;
    const double before = now();
    assert_int_equal(exec_fixture_run(fixture, deaf), ESPL_E_CANCELLED);
    assert_in_range((uintmax_t)(1000.0 * (now() - before)), 600, 3000);
    assert_int_equal(exec_fixture_names(fixture, "partial", ".lock"), 0);
}

static void insist_at_third(struct exec_fixture *fixture, const struct espl_event *event)
{
    stop_at_third(fixture, event);
    if (event->type == ESPL_EVENT_PROGRESS && event->done == 5) {
        fixture->stop_count = 2;
    }
}

static void test_run__second_signal_kills_at_once(void **state)
{
    struct exec_fixture *fixture = *state;
    fixture->hook = insist_at_third;
    fixture->stop_seconds = 60.0;
    const double before = now();
    assert_int_equal(exec_fixture_run(fixture, deaf), ESPL_E_CANCELLED);
    assert_true(now() - before < 3.0);
}

static void stop_at_start(struct exec_fixture *fixture, const struct espl_event *event)
{
    if (event->type == ESPL_EVENT_STAGE_END) {
        fixture->stop_signal = SIGINT;
    }
}

static void test_run__stop_between_stages(void **state)
{
    struct exec_fixture *fixture = *state;
    fixture->hook = stop_at_start;
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_E_CANCELLED);
    assert_string_equal(fixture->err.message, "stopped before 'second'; finished stages are kept");
    assert_int_equal(exec_fixture_count(fixture, "start second 0"), 0);
}

/* ---- the record cannot be written ---- */

static void lose_run_folder(struct exec_fixture *fixture, const struct espl_event *event)
{
    if (event->type == ESPL_EVENT_STAGE_END && strcmp(event->stage_id, "first") == 0) {
        char away[ESPL_PATH_MAX];
        (void)espl_fs_join(away, fixture->folder, "away", NULL);
        assert_int_equal(rename(fixture->result.run_dir, away), 0);
    }
}

static void test_run__record_that_cannot_be_written_fails_the_run(void **state)
{
    struct exec_fixture *fixture = *state;
    fixture->hook = lose_run_folder;
    const enum espl_status status = exec_fixture_run(fixture, exec_chain);
    assert_int_equal(status, ESPL_E_NOTFOUND);
    assert_non_null(strstr(fixture->err.hint, "finished results are kept"));
    fixture->hook = NULL;
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_OK);
    assert_int_equal(exec_fixture_count(fixture, "start first 0"), 1);
}

#define ONE(NAME) cmocka_unit_test_setup_teardown(NAME, exec_fixture_setup, exec_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(test_run__stop_keeps_finished_layers),
        ONE(test_run__sigterm_has_its_own_code),
        ONE(test_run__deaf_stage_is_killed_after_a_while),
        ONE(test_run__second_signal_kills_at_once),
        ONE(test_run__stop_between_stages),
        ONE(test_run__record_that_cannot_be_written_fails_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
