/* The executor with one driver: what runs, what is recorded, how failures and stops end. */
#include "exec_fakes.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static json_t *read_json(const struct exec_fixture *fixture, const char *name)
{
    char *text = exec_fixture_read(fixture, name, NULL);
    json_t *value = json_loads(text, 0, NULL);
    free(text);
    assert_non_null(value);
    return value;
}

static void test_run__chain_records_everything(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_OK);
    assert_int_equal(fixture->result.ran, 2);
    assert_string_equal(espl_buf_text(&fixture->events), "run_start\n"
                                                         "stage_start first\n"
                                                         "stage_end first\n"
                                                         "stage_start second\n"
                                                         "stage_end second\n"
                                                         "run_end\n");
    json_t *record = exec_fixture_record(fixture);
    assert_string_equal(exec_text_at(record, "status"), "ok");
    assert_string_equal(exec_text_at(record, "job"), "chain");
    assert_string_equal(exec_text_at(record, "job_file"), "jobs/test.yaml");
    assert_int_equal(exec_number_at(record, "exit_code"), 0);
    assert_int_equal(exec_number_at(record, "seed"), 7);
    assert_true(json_is_string(json_object_get(record, "ended_utc")));
    json_t *second = espl_run_stage(record, "second");
    assert_string_equal(exec_text_at(second, "state"), "done");
    assert_true(exec_number_at(second, "peak_rss_bytes") > 100000);
    assert_true(exec_number_at(second, "output_bytes") > 0);
    assert_true(json_is_null(json_object_get(second, "error")));
    assert_int_equal(exec_number_at(json_object_get(second, "metrics"), "total"), 36);
    assert_int_equal(json_array_size(json_object_get(second, "layer_metrics")), 3);
    const json_t *input = json_array_get(json_object_get(second, "inputs"), 0);
    assert_string_equal(exec_text_at(input, "stage"), "first");
    assert_string_equal(exec_text_at(input, "key"),
                        exec_text_at(espl_run_stage(record, "first"), "key"));
    assert_int_equal(exec_number_at(json_object_get(second, "estimate"), "units"), 3);
    json_decref(record);
    json_t *metrics = read_json(fixture, "by-name/chain/metrics.json");
    assert_int_equal(exec_number_at(metrics, "first.total"), 6);
    assert_int_equal(exec_number_at(metrics, "second.total"), 36);
    assert_true(exec_number_at(metrics, "second.pid") > 1);
    assert_int_equal(json_object_size(metrics), 4);
    json_decref(metrics);
    assert_int_equal(exec_fixture_names(fixture, "partial", ""), 0);
}

static void test_run__artifact_tells_where_it_comes_from(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_OK);
    (void)espl_fs_join(path, fixture->store.root, "by-name/chain/second.h5", NULL);
    assert_int_equal(espl_artifact_open(path, &artifact, NULL), ESPL_OK);
    assert_string_equal(espl_artifact_attribute(artifact, "stage"), "work");
    assert_string_equal(espl_artifact_attribute(artifact, "port"), "sum");
    assert_string_equal(espl_artifact_attribute(artifact, "job_name"), "chain");
    assert_string_equal(espl_artifact_attribute(artifact, "seed"), "7");
    assert_string_equal(espl_artifact_attribute(artifact, "cache_version"), "1");
    assert_string_equal(espl_artifact_attribute(artifact, "tool_version"), "1.2.3");
    assert_int_equal(strlen(espl_artifact_attribute(artifact, "key")), 64);
    assert_int_equal(espl_artifact_provenance(artifact, "environment", &text, NULL), ESPL_OK);
    assert_string_equal(text, "{\"tool_version\":\"1.2.3\"}"); /* no thread count */
    free(text);
    assert_int_equal(espl_artifact_provenance(artifact, "metrics", &text, NULL), ESPL_OK);
    json_t *metrics = json_loads(text, 0, NULL);
    free(text);
    assert_int_equal(exec_number_at(json_object_get(metrics, "metrics"), "total"), 36);
    assert_int_equal(json_object_size(json_object_get(metrics, "metrics")), 1); /* not the pid */
    json_decref(metrics);
    assert_int_equal(espl_artifact_provenance(artifact, "inputs", &text, NULL), ESPL_OK);
    json_t *inputs = json_loads(text, 0, NULL);
    free(text);
    assert_string_equal(exec_text_at(json_array_get(inputs, 0), "port"), "a");
    assert_string_equal(exec_text_at(json_array_get(inputs, 0), "kind"), "model.dense/1");
    assert_int_equal(strlen(exec_text_at(json_array_get(inputs, 0), "content_sha256")), 64);
    json_decref(inputs);
    assert_int_equal(espl_artifact_provenance(artifact, "hash_fields", &text, NULL), ESPL_OK);
    assert_non_null(strstr(text, "\"parameter value\",\"10\""));
    free(text);
    espl_artifact_close(artifact);
}

static void test_run__second_time_all_is_cached(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_OK);
    json_t *before = read_json(fixture, "by-name/chain/metrics.json");
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_OK);
    assert_int_equal(fixture->result.cached, 2);
    assert_int_equal(exec_fixture_count(fixture, "start first 0"), 1);
    assert_int_equal(exec_fixture_count(fixture, "start second 0"), 1);
    json_t *record = exec_fixture_record(fixture);
    json_t *second = espl_run_stage(record, "second");
    assert_string_equal(exec_text_at(second, "state"), "cached");
    assert_int_equal(exec_number_at(json_object_get(second, "metrics"), "total"), 36);
    assert_int_equal(json_array_size(json_object_get(second, "layer_metrics")), 3);
    json_decref(record);
    json_t *after = read_json(fixture, "by-name/chain/metrics.json");
    assert_true(json_equal(before, after)); /* the volatile figures come back too */
    json_decref(before);
    json_decref(after);
}

static void test_run__force_makes_it_again(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_OK);
    fixture->force = "second";
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_OK);
    assert_int_equal(fixture->result.ran, 1);
    assert_int_equal(exec_fixture_count(fixture, "start first 0"), 1);
    assert_int_equal(exec_fixture_count(fixture, "start second 0"), 2);
}

static void test_run__until_leaves_out_but_keeps_figures(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_OK);
    fixture->until = "first";
    assert_int_equal(exec_fixture_run(fixture, exec_chain), ESPL_OK);
    assert_int_equal(fixture->result.skipped, 1);
    json_t *metrics = read_json(fixture, "by-name/chain/metrics.json");
    assert_int_equal(exec_number_at(metrics, "second.total"), 36);
    json_decref(metrics);
}

static void test_run__two_outputs(void **state)
{
    struct exec_fixture *fixture = *state;
    static const char job[] = "version: 1\n"
                              "name: two\n"
                              "stages:\n"
                              "  - id: both\n"
                              "    use: split\n"
                              "    with: {value: 5}\n"
                              "  - id: use\n"
                              "    use: work\n"
                              "    in: {a: both.left, b: both.right}\n"
                              "    with: {value: 0}\n";
    assert_int_equal(exec_fixture_run(fixture, job), ESPL_OK);
    json_t *metrics = read_json(fixture, "by-name/two/metrics.json");
    assert_int_equal(exec_number_at(metrics, "use.total"), 11);
    json_decref(metrics);
    assert_int_equal(exec_fixture_names(fixture, "by-name/two", "both.left.h5"), 1);
    assert_int_equal(exec_fixture_names(fixture, "by-name/two", "both.right.h5"), 1);
    assert_int_equal(exec_fixture_run(fixture, job), ESPL_OK);
    assert_int_equal(fixture->result.cached, 2);
}

/* ---- failures ---- */

#define BROKEN(ACTION)           \
    "version: 1\n"               \
    "name: broken\n"             \
    "stages:\n"                  \
    "  - id: bad\n"              \
    "    use: work\n"            \
    "    with:\n"                \
    "      value: 3\n"           \
    "      action: " ACTION "\n" \
    "      at: 1\n"

static void test_run__failure_keeps_its_error_and_place(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, BROKEN("fail")), ESPL_E_NUMERIC);
    assert_string_equal(fixture->err.message, "the value 3 is bad");
    assert_int_equal(fixture->err.at.line, 7);
    assert_string_equal(fixture->err.context, "while running stage 'bad' (work)");
    json_t *record = exec_fixture_record(fixture);
    assert_string_equal(exec_text_at(record, "status"), "failed");
    assert_int_equal(exec_number_at(record, "exit_code"), 1);
    const json_t *error = json_object_get(espl_run_stage(record, "bad"), "error");
    assert_string_equal(exec_text_at(error, "code"), "numeric");
    json_decref(record);
    assert_int_equal(exec_fixture_names(fixture, "partial", ""), 0);
}

static void test_run__crash_names_the_signal(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, BROKEN("crash")), ESPL_E_STAGE);
    assert_string_equal(fixture->err.message,
                        "the process of stage 'bad' died from signal 11 (SIGSEGV)");
    assert_non_null(strstr(fixture->err.hint, "log.txt"));
}

static void test_run__exit_without_status(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, BROKEN("exit")), ESPL_E_STAGE);
    assert_string_equal(fixture->err.message,
                        "the process of stage 'bad' ended with code 3 and no status");
}

static void test_run__not_a_number_is_refused(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, BROKEN("nan")), ESPL_E_NUMERIC);
    assert_string_equal(fixture->err.message, "metric 'broken' is nan");
}

static void test_run__full_disk_says_how_to_go_on(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, BROKEN("no-space")), ESPL_E_NOSPACE);
    assert_string_equal(fixture->err.hint,
                        "the unfinished result was removed, 0 finished layers are kept; free some "
                        "space and run the same command again");
}

static void test_run__output_of_stages_goes_to_the_log(void **state)
{
    struct exec_fixture *fixture = *state;
    char name[ESPL_PATH_MAX];
    assert_int_equal(exec_fixture_run(fixture, BROKEN("print")), ESPL_OK);
    (void)snprintf(name, sizeof name, "runs/%s/log.txt", fixture->result.run_id);
    char *log = exec_fixture_read(fixture, name, NULL);
    assert_non_null(strstr(log, "words on stdout\n"));
    assert_non_null(strstr(log, "words on stderr\n"));
    assert_non_null(strstr(log, " warn  [1/1] bad: words in the log\n"));
    free(log);
    json_t *record = exec_fixture_record(fixture);
    const json_t *warnings = json_object_get(espl_run_stage(record, "bad"), "warnings");
    assert_string_equal(json_string_value(json_array_get(warnings, 0)), "words in the log");
    json_decref(record);
}

static const char diamond[] = "version: 1\n"
                              "name: diamond\n"
                              "stages:\n"
                              "  - {id: root, use: work}\n"
                              "  - {id: bad, use: work, in: {a: root},\n"
                              "     with: {value: 3, action: fail}}\n"
                              "  - {id: good, use: work, in: {a: root}, with: {value: 4}}\n"
                              "  - {id: below, use: work, in: {a: bad}, with: {value: 5}}\n"
                              "  - {id: last, use: work, in: {a: good, b: below}}\n";

static void test_run__first_failure_ends_the_run(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, diamond), ESPL_E_NUMERIC);
    exec_fixture_check_states(fixture,
                              "root done\nbad failed\ngood waiting\nbelow waiting\nlast waiting\n");
}

static void test_run__keep_going_skips_only_what_depends(void **state)
{
    struct exec_fixture *fixture = *state;
    fixture->keep_going = true;
    assert_int_equal(exec_fixture_run(fixture, diamond), ESPL_E_NUMERIC);
    exec_fixture_check_states(fixture,
                              "root done\nbad failed\ngood done\nbelow skipped\nlast skipped\n");
    assert_int_equal(fixture->result.failed, 1);
    assert_int_equal(fixture->result.skipped, 2);
}

static void test_run__after_a_failure_cached_results_are_recorded(void **state)
{
    struct exec_fixture *fixture = *state;
    fixture->keep_going = true;
    assert_int_equal(exec_fixture_run(fixture, diamond), ESPL_E_NUMERIC);
    fixture->keep_going = false;
    assert_int_equal(exec_fixture_run(fixture, diamond), ESPL_E_NUMERIC);
    exec_fixture_check_states(
        fixture, "root cached\nbad failed\ngood cached\nbelow waiting\nlast waiting\n");
}

/* ---- expectations ---- */

static const char expecting[] = "version: 1\n"
                                "name: expecting\n"
                                "stages:\n"
                                "  - id: one\n"
                                "    use: work\n"
                                "    expect:\n"
                                "      total: {min: 3, max: 3}\n"
                                "  - id: two\n"
                                "    use: work\n"
                                "    in: {a: one}\n"
                                "    expect:\n"
                                "      total: {max: 5.5}\n"
                                "      speed: {min: 1}\n";

static void test_run__expectations(void **state)
{
    struct exec_fixture *fixture = *state;
    for (int time = 0; time < 2; time++) { /* the second time from stored figures */
        assert_int_equal(exec_fixture_run(fixture, expecting), ESPL_E_EXPECT);
        assert_int_equal(fixture->result.expect_failed, 2);
        assert_string_equal(fixture->err.message,
                            "expectation of stage 'two' failed: total 6 > 5.5");
        assert_int_equal(fixture->err.at.line, 12);
        assert_non_null(strstr(espl_buf_text(&fixture->events),
                               "expect_failed two: the stage reports no metric 'speed'\n"));
        json_t *record = exec_fixture_record(fixture);
        assert_string_equal(exec_text_at(record, "status"), "expectation");
        assert_int_equal(exec_number_at(record, "exit_code"), 7);
        const json_t *list = json_object_get(record, "expectations");
        assert_int_equal(json_array_size(list), 3);
        assert_true(json_is_true(json_object_get(json_array_get(list, 0), "ok")));
        assert_int_equal(exec_number_at(json_array_get(list, 1), "value"), 6);
        assert_true(json_is_null(json_object_get(json_array_get(list, 1), "min")));
        assert_true(json_is_null(json_object_get(json_array_get(list, 2), "value")));
        json_decref(record);
    }
}

#define ONE(NAME) cmocka_unit_test_setup_teardown(NAME, exec_fixture_setup, exec_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(test_run__chain_records_everything),
        ONE(test_run__artifact_tells_where_it_comes_from),
        ONE(test_run__second_time_all_is_cached),
        ONE(test_run__force_makes_it_again),
        ONE(test_run__until_leaves_out_but_keeps_figures),
        ONE(test_run__two_outputs),
        ONE(test_run__failure_keeps_its_error_and_place),
        ONE(test_run__crash_names_the_signal),
        ONE(test_run__exit_without_status),
        ONE(test_run__not_a_number_is_refused),
        ONE(test_run__full_disk_says_how_to_go_on),
        ONE(test_run__output_of_stages_goes_to_the_log),
        ONE(test_run__first_failure_ends_the_run),
        ONE(test_run__keep_going_skips_only_what_depends),
        ONE(test_run__after_a_failure_cached_results_are_recorded),
        ONE(test_run__expectations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
