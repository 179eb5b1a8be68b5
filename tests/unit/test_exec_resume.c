/* The executor: a stage that was interrupted continues after its last unit. */
#include "exec_fakes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char resumable[] = "version: 1\n"
                                "name: resumable\n"
                                "stages:\n"
                                "  - id: long\n"
                                "    use: work\n"
                                "    with: {value: 2, steps: 6, units: true, counter: \"%s\"}\n";
static const char resumable_fails[] =
    "version: 1\n"
    "name: resumable\n"
    "stages:\n"
    "  - id: long\n"
    "    use: work\n"
    "    with: {value: 2, steps: 6, units: true, counter: \"%s\", action: fail, at: 4}\n";

static void test_run__finished_units_are_not_made_again(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, resumable_fails), ESPL_E_NUMERIC);
    assert_int_equal(exec_fixture_names(fixture, "partial", ".units"), 1);
    assert_int_equal(exec_fixture_run(fixture, resumable), ESPL_OK);
    assert_int_equal(exec_fixture_count(fixture, "unit long 3"), 1);
    assert_int_equal(exec_fixture_count(fixture, "unit long 4"), 1);
    json_t *record = exec_fixture_record(fixture);
    json_t *stage = espl_run_stage(record, "long");
    assert_int_equal(exec_number_at(stage, "resumed_units"), 4);
    assert_int_equal(exec_number_at(json_object_get(stage, "metrics"), "total"), 12);
    assert_int_equal(json_array_size(json_object_get(stage, "layer_metrics")), 6);
    json_decref(record);
    assert_int_equal(exec_fixture_names(fixture, "partial", ""), 0);
}

/* The path of the only unit folder. */
static void find_unit(const struct exec_fixture *fixture, const char *name, char out[ESPL_PATH_MAX])
{
    char partial[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    out[0] = '\0';
    (void)espl_fs_join(partial, fixture->store.root, "partial", NULL);
    assert_int_equal(espl_fs_list(partial, 100, &names, &count, NULL), ESPL_OK);
    for (size_t i = 0; i < count; i++) {
        if (strstr(names[i], ".units") != NULL) {
            (void)espl_fs_join(folder, partial, names[i], NULL);
            (void)espl_fs_join(out, folder, name, NULL);
        }
    }
    espl_fs_free_names(names, count);
    assert_true(espl_fs_exists(out));
}

static void test_run__damaged_unit_is_made_again(void **state)
{
    struct exec_fixture *fixture = *state;
    char path[ESPL_PATH_MAX];
    uint64_t size = 0;
    assert_int_equal(exec_fixture_run(fixture, resumable_fails), ESPL_E_NUMERIC);
    find_unit(fixture, "unit-000001.h5", path);
    assert_int_equal(espl_fs_file_size(path, &size, NULL), ESPL_OK);
    assert_int_equal(truncate(path, (off_t)(size / 2)), 0);
    assert_int_equal(exec_fixture_run(fixture, resumable), ESPL_OK);
    assert_int_equal(exec_fixture_count(fixture, "unit long 0"), 1);
    assert_int_equal(exec_fixture_count(fixture, "unit long 1"), 2);
    json_t *record = exec_fixture_record(fixture);
    json_t *stage = espl_run_stage(record, "long");
    assert_int_equal(exec_number_at(stage, "resumed_units"), 3);
    const char *warning = json_string_value(json_array_get(json_object_get(stage, "warnings"), 0));
    assert_non_null(warning);
    assert_non_null(strstr(warning, "dropped the kept result of unit 1"));
    json_decref(record);
}

static char *read_artifact(const struct exec_fixture *fixture, const char *stage, size_t *len)
{
    char name[256];
    json_t *record = exec_fixture_record(fixture);
    (void)snprintf(name, sizeof name, "%s",
                   exec_text_at(espl_run_stage(record, stage), "artifact"));
    json_decref(record);
    return exec_fixture_read(fixture, name, len);
}

static void test_run__resumed_and_fresh_results_have_equal_bytes(void **state)
{
    struct exec_fixture *fixture = *state;
    size_t resumed_len = 0;
    size_t fresh_len = 0;
    char results[ESPL_PATH_MAX];
    /* The failing run differs in a parameter that stands in the provenance: fail by stopping. */
    assert_int_equal(exec_fixture_run(fixture, resumable), ESPL_OK);
    char *fresh = read_artifact(fixture, "long", &fresh_len);
    (void)espl_fs_join(results, fixture->folder, "other", NULL);
    assert_int_equal(espl_store_open(results, &fixture->store, NULL), ESPL_OK);
    assert_int_equal(exec_fixture_run(fixture, resumable_fails), ESPL_E_NUMERIC);
    assert_int_equal(exec_fixture_run(fixture, resumable), ESPL_OK);
    char *resumed = read_artifact(fixture, "long", &resumed_len);
    assert_int_equal(fresh_len, resumed_len);
    assert_memory_equal(fresh, resumed, fresh_len);
    free(fresh);
    free(resumed);
}

#define ONE(NAME) cmocka_unit_test_setup_teardown(NAME, exec_fixture_setup, exec_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(test_run__finished_units_are_not_made_again),
        ONE(test_run__damaged_unit_is_made_again),
        ONE(test_run__resumed_and_fresh_results_have_equal_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
