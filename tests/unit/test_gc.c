/* What may go from the results folder: never what a link, a recent run, a running run or an
 * artifact in use refers to. */
#include "exec_fakes.h"

#include "cli/gc_scan.h"
#include "core/lock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHAIN(VALUE)                                         \
    "version: 1\n"                                           \
    "name: chain\n"                                          \
    "stages:\n"                                              \
    "  - {id: first, use: work, with: {value: " VALUE "}}\n" \
    "  - {id: second, use: work, in: {a: first}, with: {steps: 2}}\n"

static void scan(const struct exec_fixture *fixture, size_t keep_runs, struct espl_gc_list *list)
{
    struct espl_error err;
    if (espl_gc_scan(&fixture->store, keep_runs, NULL, list, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
}

static void expect_counts(const struct exec_fixture *fixture, size_t keep_runs, size_t items,
                          size_t kept)
{
    struct espl_gc_list list;
    scan(fixture, keep_runs, &list);
    assert_int_equal(list.count, items);
    assert_int_equal(list.kept_artifacts, kept);
    espl_gc_list_free(&list);
}

static void test_gc__links_and_runs_keep(void **state)
{
    struct exec_fixture *fixture = *state;
    assert_int_equal(exec_fixture_run(fixture, CHAIN("1")), ESPL_OK);
    assert_int_equal(exec_fixture_run(fixture, CHAIN("2")), ESPL_OK);
    expect_counts(fixture, 2, 0, 4); /* two runs */
    expect_counts(fixture, 1, 2, 2); /* the links name the newest results only */
    expect_counts(fixture, 0, 2, 2);
}

static void test_gc__inputs_of_what_is_kept_are_kept(void **state)
{
    struct exec_fixture *fixture = *state;
    char path[ESPL_PATH_MAX];
    assert_int_equal(exec_fixture_run(fixture, CHAIN("1")), ESPL_OK);
    (void)espl_fs_join(path, fixture->store.root, "by-name/chain/first.h5", NULL);
    assert_int_equal(unlink(path), 0);
    expect_counts(fixture, 0, 0, 2); /* second was made from first */
    (void)espl_fs_join(path, fixture->store.root, "by-name/chain/second.h5", NULL);
    assert_int_equal(unlink(path), 0);
    expect_counts(fixture, 0, 2, 0);
    expect_counts(fixture, 1, 0, 2);
}

static void test_gc__deletes_but_not_what_is_locked(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_gc_list list;
    struct espl_lock lock = {.held = false};
    char path[ESPL_PATH_MAX];
    bool taken = false;
    bool deleted = true;
    assert_int_equal(exec_fixture_run(fixture, CHAIN("1")), ESPL_OK);
    assert_int_equal(exec_fixture_run(fixture, CHAIN("2")), ESPL_OK);
    scan(fixture, 1, &list);
    assert_int_equal(list.count, 2);
    assert_string_equal(list.items[0].kind, "model.dense/1");
    assert_string_equal(list.items[0].stage, "work");
    assert_int_equal(strlen(list.items[0].created_utc), 20);
    assert_true(list.items[0].bytes > 1000);
    assert_int_equal(espl_store_lock_path(&fixture->store, list.items[0].key, path, NULL), ESPL_OK);
    assert_int_equal(espl_lock_try(&lock, path, &taken, NULL, NULL), ESPL_OK);
    assert_true(taken);
    assert_int_equal(espl_gc_delete(&fixture->store, &list.items[0], &deleted, NULL), ESPL_OK);
    assert_false(deleted);
    assert_true(espl_fs_exists(list.items[0].path));
    expect_counts(fixture, 1, 1, 2); /* a locked one is not even listed */
    espl_lock_release(&lock);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(espl_gc_delete(&fixture->store, &list.items[i], &deleted, NULL), ESPL_OK);
        assert_true(deleted);
        assert_false(espl_fs_exists(list.items[i].path));
    }
    espl_gc_list_free(&list);
    expect_counts(fixture, 1, 0, 2);
    assert_int_equal(exec_fixture_names(fixture, "partial", ""), 0);
    assert_int_equal(exec_fixture_run(fixture, CHAIN("2")), ESPL_OK);
    assert_int_equal(fixture->result.cached, 2);
}

static void test_gc__units_stay_while_a_run_can_use_them(void **state)
{
    struct exec_fixture *fixture = *state;
    static const char job[] = "version: 1\n"
                              "name: long\n"
                              "stages:\n"
                              "  - id: long\n"
                              "    use: work\n"
                              "    with: {units: true, action: fail, at: 2}\n";
    struct espl_gc_list list;
    bool deleted = false;
    assert_int_equal(exec_fixture_run(fixture, job), ESPL_E_NUMERIC);
    expect_counts(fixture, 1, 0, 0);
    scan(fixture, 0, &list);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.items[0].type, ESPL_GC_UNITS);
    assert_int_equal(espl_gc_delete(&fixture->store, &list.items[0], &deleted, NULL), ESPL_OK);
    assert_true(deleted);
    espl_gc_list_free(&list);
    assert_int_equal(exec_fixture_names(fixture, "partial", ""), 0);
}

struct warnings {
    size_t count;
    char last[1024];
};

static void count_warning(void *user, enum espl_log_level level, const char *line)
{
    struct warnings *warnings = user;
    assert_int_equal(level, ESPL_LOG_WARN);
    warnings->count++;
    (void)snprintf(warnings->last, sizeof warnings->last, "%s", line);
}

/* The links of the job are gone, so that only the run's own files say what it made. */
static void test_gc__damaged_record_is_named_and_its_plan_counts(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_gc_list list;
    struct espl_error err;
    char path[ESPL_PATH_MAX];
    struct warnings warnings = {.count = 0};
    const struct espl_log log = {count_warning, &warnings, ESPL_LOG_WARN};
    assert_int_equal(exec_fixture_run(fixture, CHAIN("1")), ESPL_OK);
    (void)espl_fs_join(path, fixture->store.root, "by-name", NULL);
    assert_int_equal(espl_fs_remove_tree(path, NULL), ESPL_OK);
    assert_int_equal(espl_run_path(&fixture->store, fixture->result.run_id, "run.json", path, NULL),
                     ESPL_OK);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(espl_gc_scan(&fixture->store, 10, &log, &list, &err), ESPL_OK);
    assert_int_equal(list.count, 0);
    assert_int_equal(list.kept_artifacts, 2);
    espl_gc_list_free(&list);
    assert_int_equal(warnings.count, 1);
    assert_non_null(strstr(warnings.last, fixture->result.run_id));
    assert_non_null(strstr(warnings.last, "the results that its plan names are kept"));

    assert_int_equal(
        espl_run_path(&fixture->store, fixture->result.run_id, "plan.json", path, NULL), ESPL_OK);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(espl_gc_scan(&fixture->store, 10, &log, &list, &err), ESPL_OK);
    assert_int_equal(list.count, 2);
    espl_gc_list_free(&list);
    assert_int_equal(warnings.count, 2);
    assert_non_null(strstr(warnings.last, "results that only this run refers to can go"));
}

static void test_gc__side_file_without_artifact(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_gc_list list;
    char path[ESPL_PATH_MAX];
    static const char key[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    char rest[128];
    (void)snprintf(rest, sizeof rest, "store/00/%s.json", key);
    (void)espl_fs_join(path, fixture->store.root, "store/00", NULL);
    assert_int_equal(espl_fs_make_dirs(path, NULL), ESPL_OK);
    (void)espl_fs_join(path, fixture->store.root, rest, NULL);
    assert_int_equal(espl_fs_write_file(path, "{}", 2, NULL), ESPL_OK);
    scan(fixture, 10, &list);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.items[0].type, ESPL_GC_SIDE);
    espl_gc_list_free(&list);
}

/* A lock of an owner that is gone and a guard that nobody holds. */
static void test_gc__locks_that_nobody_holds(void **state)
{
    struct exec_fixture *fixture = *state;
    static const char key[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    struct espl_gc_list list;
    char lock[ESPL_PATH_MAX];
    char guard[ESPL_PATH_MAX + 8];
    bool deleted = false;
    assert_int_equal(espl_store_lock_path(&fixture->store, key, lock, NULL), ESPL_OK);
    (void)snprintf(guard, sizeof guard, "%s.guard", lock);
    assert_int_equal(espl_fs_write_file(lock, "nonsense", 8, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(guard, "", 0, NULL), ESPL_OK);
    scan(fixture, 10, &list);
    assert_int_equal(list.count, 2);
    assert_true(espl_fs_exists(lock)); /* the scan only looks */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(list.items[i].type, ESPL_GC_LOCK);
        assert_int_equal(espl_gc_delete(&fixture->store, &list.items[i], &deleted, NULL), ESPL_OK);
        assert_true(deleted);
    }
    espl_gc_list_free(&list);
    assert_int_equal(exec_fixture_names(fixture, "partial", ""), 0);
}

#define ONE(NAME) cmocka_unit_test_setup_teardown(NAME, exec_fixture_setup, exec_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(test_gc__links_and_runs_keep),
        ONE(test_gc__inputs_of_what_is_kept_are_kept),
        ONE(test_gc__deletes_but_not_what_is_locked),
        ONE(test_gc__units_stay_while_a_run_can_use_them),
        ONE(test_gc__damaged_record_is_named_and_its_plan_counts),
        ONE(test_gc__side_file_without_artifact),
        ONE(test_gc__locks_that_nobody_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
