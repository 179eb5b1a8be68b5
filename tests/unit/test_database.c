/* The index of runs: ingest, rebuild, migrations, history, damage; and the run records it reads. */
#include "exec_fakes.h"

#include "engine/database.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char job[] = "version: 1\n"
                          "name: indexed\n"
                          "stages:\n"
                          "  - id: one\n"
                          "    use: work\n"
                          "    expect:\n"
                          "      total: {max: 2.5}\n"
                          "  - {id: two, use: work, in: {a: one}, with: {value: 4}}\n";

static void database_path(const struct exec_fixture *fixture, char out[ESPL_PATH_MAX])
{
    (void)espl_fs_join(out, fixture->store.root, "espalier.db", NULL);
}

static int add_row(void *user, int count, char **values, char **names)
{
    struct espl_buf *out = user;
    (void)names;
    for (int i = 0; i < count; i++) {
        (void)espl_buf_printf(out, "%s|", values[i] != NULL ? values[i] : "NULL");
    }
    (void)espl_buf_puts(out, "\n");
    return 0;
}

static void query(const struct exec_fixture *fixture, const char *sql, struct espl_buf *out)
{
    char path[ESPL_PATH_MAX];
    sqlite3 *handle = NULL;
    database_path(fixture, path);
    assert_int_equal(sqlite3_open(path, &handle), SQLITE_OK);
    if (sqlite3_exec(handle, sql, add_row, out, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(handle));
    }
    assert_int_equal(sqlite3_close(handle), SQLITE_OK);
}

/* All rows of all tables as text. */
static void dump(const struct exec_fixture *fixture, struct espl_buf *out)
{
    query(fixture, "SELECT * FROM runs ORDER BY run_id", out);
    query(fixture, "SELECT * FROM stages ORDER BY run_id, position", out);
    query(fixture, "SELECT * FROM metrics ORDER BY run_id, stage_id, name, volatile", out);
    query(fixture, "SELECT * FROM layer_metrics ORDER BY run_id, stage_id, layer, module", out);
    query(fixture, "SELECT * FROM expectations ORDER BY run_id, position", out);
}

static struct espl_database *open_database(const struct exec_fixture *fixture)
{
    struct espl_database *db = NULL;
    struct espl_error err;
    if (espl_database_open(&fixture->store, &db, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return db;
}

static void run_and_ingest(struct exec_fixture *fixture)
{
    struct espl_error err;
    assert_int_equal(exec_fixture_run(fixture, job), ESPL_E_EXPECT);
    struct espl_database *db = open_database(fixture);
    if (espl_database_ingest(db, &fixture->store, fixture->result.run_id, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    espl_database_close(db);
}

static void test_ingest__fills_all_tables(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_buf text;
    espl_buf_init(&text, 1 << 20);
    run_and_ingest(fixture);
    query(fixture, "SELECT job, status, exit_code, seed FROM runs", &text);
    query(fixture, "SELECT id, use, state, units, flop FROM stages ORDER BY position", &text);
    query(fixture, "SELECT stage_id, name, value FROM metrics WHERE volatile = 0 ORDER BY 1",
          &text);
    query(fixture, "SELECT count(*) FROM layer_metrics", &text);
    query(fixture, "SELECT stage_id, metric, low, high, value, ok FROM expectations", &text);
    query(fixture, "PRAGMA journal_mode", &text);
    query(fixture, "PRAGMA user_version", &text);
    assert_string_equal(espl_buf_text(&text), "indexed|expectation|7|0|\n"
                                              "one|work|done|3|300.0|\n"
                                              "two|work|done|3|300.0|\n"
                                              "one|total|3.0|\n"
                                              "two|total|15.0|\n"
                                              "6|\n"
                                              "one|total|NULL|2.5|3.0|0|\n"
                                              "wal|\n"
                                              "1|\n");
    espl_buf_free(&text);
}

static void test_ingest__twice_is_once(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_buf before;
    struct espl_buf after;
    espl_buf_init(&before, 1 << 20);
    espl_buf_init(&after, 1 << 20);
    run_and_ingest(fixture);
    dump(fixture, &before);
    struct espl_database *db = open_database(fixture);
    assert_int_equal(espl_database_ingest(db, &fixture->store, fixture->result.run_id, NULL),
                     ESPL_OK);
    espl_database_close(db);
    dump(fixture, &after);
    assert_string_equal(espl_buf_text(&before), espl_buf_text(&after));
    espl_buf_free(&before);
    espl_buf_free(&after);
}

static void count_warning(void *user, enum espl_log_level level, const char *line)
{
    (void)level;
    assert_non_null(strstr(line, "left out run"));
    (*(size_t *)user)++;
}

/* A run record in the folder of run `folder` that says it is of run `run_id`. */
static void write_record(const struct exec_fixture *fixture, const char *folder, const char *run_id,
                         const char *stages)
{
    char runs[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char text[512];
    (void)espl_fs_join(runs, fixture->store.root, "runs", NULL);
    (void)espl_fs_join(path, runs, folder, NULL);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)espl_fs_join(runs, path, "run.json", NULL);
    (void)snprintf(text, sizeof text,
                   "{\"schema\": \"espalier.run/1\", \"run_id\": \"%s\", \"stages\": %s}", run_id,
                   stages);
    assert_int_equal(espl_fs_write_file(runs, text, strlen(text), NULL), ESPL_OK);
}

static void test_rebuild__equals_the_incremental_state(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_buf before;
    struct espl_buf after;
    size_t runs = 0;
    size_t damaged = 0;
    size_t warnings = 0;
    char path[ESPL_PATH_MAX];
    const struct espl_log log = {count_warning, &warnings, ESPL_LOG_WARN};
    espl_buf_init(&before, 1 << 20);
    espl_buf_init(&after, 1 << 20);
    run_and_ingest(fixture);
    run_and_ingest(fixture);
    run_and_ingest(fixture);
    dump(fixture, &before);
    /* A folder with a damaged record is left out and told. */
    (void)espl_fs_join(path, fixture->store.root, "runs/20200101-000000-x-0000", NULL);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)espl_fs_join(path, fixture->store.root, "runs/20200101-000000-x-0000/run.json", NULL);
    assert_int_equal(espl_fs_write_file(path, "{", 1, NULL), ESPL_OK);
    write_record(fixture, "20200101-000000-y-0000", "20200101-000000-other-0000", "[]");
    write_record(fixture, "20200101-000000-z-0000", "20200101-000000-z-0000", "[{\"id\": 3}]");
    write_record(fixture, "20200101-000000-z-0001", "20200101-000000-z-0001",
                 "[{\"id\": \"a\"}, {\"id\": \"a\"}]");
    assert_int_equal(espl_database_delete(&fixture->store, NULL), ESPL_OK);
    struct espl_database *db = open_database(fixture);
    assert_int_equal(espl_database_rebuild(db, &fixture->store, &log, &runs, &damaged, NULL),
                     ESPL_OK);
    espl_database_close(db);
    assert_int_equal(runs, 3);
    assert_int_equal(damaged, 4);
    assert_int_equal(warnings, 4);
    dump(fixture, &after);
    assert_string_equal(espl_buf_text(&before), espl_buf_text(&after));
    espl_buf_free(&before);
    espl_buf_free(&after);
}

static void test_open__newer_version_is_refused(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_database *db = NULL;
    struct espl_error err;
    run_and_ingest(fixture);
    query(fixture, "PRAGMA user_version = 99", NULL);
    assert_int_equal(espl_database_open(&fixture->store, &db, &err), ESPL_E_VERSION);
    assert_non_null(strstr(err.message, "version 99"));
    assert_null(db);
}

static void test_open__damaged_file_is_told(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_database *db = NULL;
    struct espl_error err;
    char path[ESPL_PATH_MAX];
    char junk[8192];
    memset(junk, 'x', sizeof junk);
    database_path(fixture, path);
    assert_int_equal(espl_fs_write_file(path, junk, sizeof junk, NULL), ESPL_OK);
    assert_int_equal(espl_database_open(&fixture->store, &db, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.hint, "espalier database rebuild"));
    assert_int_equal(espl_database_delete(&fixture->store, NULL), ESPL_OK);
    espl_database_close(open_database(fixture));
}

/* Such a database counts as damaged, so that rebuilding replaces it. */
static void test_open__a_missing_table_is_damage(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_database *db = NULL;
    struct espl_error err;
    run_and_ingest(fixture);
    query(fixture, "DROP TABLE metrics", NULL);
    assert_int_equal(espl_database_open(&fixture->store, &db, &err), ESPL_E_CORRUPT);
    assert_int_equal(err.code, ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "no such table: metrics"));
    assert_null(db);
}

static void test_open_existing__makes_no_file(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_database *db = NULL;
    char path[ESPL_PATH_MAX];
    assert_int_equal(espl_database_open_existing(&fixture->store, &db, NULL), ESPL_E_NOTFOUND);
    database_path(fixture, path);
    assert_false(espl_fs_exists(path));
}

static void test_ingest__unknown_run(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_database *db = open_database(fixture);
    assert_int_equal(espl_database_ingest(db, &fixture->store, "20200101-000000-x-0000", NULL),
                     ESPL_E_NOTFOUND);
    espl_database_close(db);
}

/* ---- history ---- */

static void set_history(const struct exec_fixture *fixture, size_t index, double seconds,
                        double flop, double units)
{
    char sql[256];
    (void)snprintf(sql, sizeof sql,
                   "UPDATE stages SET seconds = %f, flop = %f, units = %f WHERE id = 'one' AND "
                   "run_id = (SELECT run_id FROM runs ORDER BY run_id LIMIT 1 OFFSET %zu)",
                   seconds, flop, units, index);
    query(fixture, sql, NULL);
}

static double history(const struct exec_fixture *fixture, double flop, uint64_t units)
{
    struct espl_database *db = open_database(fixture);
    const struct espl_estimate est = {.flop = flop, .units = units};
    const double seconds = espl_database_history(db, "work", &est);
    espl_database_close(db);
    return seconds;
}

static void test_history__scales_by_flop_then_units_then_not(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_database *db = open_database(fixture);
    assert_true(espl_database_history(db, "work", NULL) < 0.0);
    espl_database_close(db);
    for (int i = 0; i < 3; i++) {
        fixture->force = "one";
        run_and_ingest(fixture);
    }
    query(fixture, "DELETE FROM stages WHERE id = 'two'", NULL);
    /* seconds per flop: 0.1, 0.3, 0.2; per unit: 1, 6, 5 */
    set_history(fixture, 0, 10.0, 100.0, 10.0);
    set_history(fixture, 1, 30.0, 100.0, 5.0);
    set_history(fixture, 2, 10.0, 50.0, 2.0);
    assert_float_equal(history(fixture, 1000.0, 7), 200.0, 1e-9);
    assert_float_equal(history(fixture, 0.0, 7), 35.0, 1e-9);
    assert_float_equal(history(fixture, 0.0, 0), 10.0, 1e-9);
    /* A resumed run tells nothing, nor one of another machine. */
    query(fixture, "UPDATE stages SET resumed_units = 1 WHERE seconds = 30", NULL);
    assert_float_equal(history(fixture, 1000.0, 0), 150.0, 1e-9); /* median of 0.1 and 0.2 */
    query(fixture, "UPDATE runs SET host = 'elsewhere'", NULL);
    assert_true(history(fixture, 1000.0, 0) < 0.0);
}

/* ---- run records ---- */

static void make_run(const struct exec_fixture *fixture, const char *id)
{
    write_record(fixture, id, id, "[]");
}

static void test_runs__newest_first_and_names(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_run_list list;
    struct espl_error err;
    char id[ESPL_RUN_ID_MAX];
    make_run(fixture, "20260512-120411-my-job-4e91");
    make_run(fixture, "20260512-120411-my-job-9000");
    make_run(fixture, "20260512-120412-job-0001");
    make_run(fixture, "20250101-000000-my-job-ffff");
    make_run(fixture, "not-a-run");
    assert_int_equal(espl_run_list_read(&fixture->store, NULL, 0, &list, NULL), ESPL_OK);
    assert_int_equal(list.count, 4);
    assert_string_equal(list.ids[0], "20260512-120412-job-0001");
    assert_string_equal(list.ids[1], "20260512-120411-my-job-9000");
    assert_string_equal(list.ids[3], "20250101-000000-my-job-ffff");
    espl_run_list_free(&list);
    assert_int_equal(espl_run_list_read(&fixture->store, "my-job", 2, &list, NULL), ESPL_OK);
    assert_int_equal(list.count, 2);
    espl_run_list_free(&list);
    assert_int_equal(espl_run_latest(&fixture->store, "job", NULL, id, NULL), ESPL_OK);
    assert_string_equal(id, "20260512-120412-job-0001");
    assert_int_equal(espl_run_latest(&fixture->store, "none", NULL, id, &err), ESPL_E_NOTFOUND);
    assert_int_equal(espl_run_resolve(&fixture->store, "my-job", NULL, id, NULL), ESPL_OK);
    assert_string_equal(id, "20260512-120411-my-job-9000");
    assert_int_equal(espl_run_resolve(&fixture->store, "4e91", NULL, id, NULL), ESPL_OK);
    assert_string_equal(id, "20260512-120411-my-job-4e91");
    assert_int_equal(espl_run_resolve(&fixture->store, "results/runs/20250101-000000-my-job-ffff/",
                                      NULL, id, NULL),
                     ESPL_OK);
    assert_string_equal(id, "20250101-000000-my-job-ffff");
    assert_int_equal(espl_run_resolve(&fixture->store, "20260512", NULL, id, &err), ESPL_E_KIND);
    assert_int_equal(espl_run_resolve(&fixture->store, "nothing", NULL, id, &err), ESPL_E_NOTFOUND);
}

struct warnings {
    size_t count;
    char last[1024];
};

static void keep_warning(void *user, enum espl_log_level level, const char *line)
{
    struct warnings *warnings = user;
    assert_int_equal(level, ESPL_LOG_WARN);
    warnings->count++;
    (void)snprintf(warnings->last, sizeof warnings->last, "%s", line);
}

static void test_runs__damaged_records_are_passed_over(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_error err;
    struct warnings warnings = {.count = 0};
    const struct espl_log log = {keep_warning, &warnings, ESPL_LOG_WARN};
    char id[ESPL_RUN_ID_MAX];
    make_run(fixture, "20260512-120411-job-0001");
    write_record(fixture, "20260512-120412-job-0002", "20260512-120412-other-0002", "[]");
    assert_int_equal(espl_run_latest(&fixture->store, NULL, &log, id, &err), ESPL_OK);
    assert_string_equal(id, "20260512-120411-job-0001");
    assert_int_equal(warnings.count, 1);
    assert_non_null(strstr(warnings.last, "run '20260512-120412-job-0002' is passed over: "));
    assert_int_equal(espl_run_resolve(&fixture->store, "job", &log, id, &err), ESPL_OK);
    assert_string_equal(id, "20260512-120411-job-0001");
    assert_int_equal(warnings.count, 2);
    /* Who names a run means that run. */
    assert_int_equal(espl_run_resolve(&fixture->store, "0002", &log, id, &err), ESPL_OK);
    assert_string_equal(id, "20260512-120412-job-0002");
    /* Nothing left to show: the newest one's own error. */
    write_record(fixture, "20260512-120413-bad-0003", "20260512-120413-other-0003", "[]");
    assert_int_equal(espl_run_latest(&fixture->store, "bad", &log, id, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "20260512-120413-bad-0003"));
    assert_int_equal(warnings.count, 2);
}

static void test_database__folder_in_its_place(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_database *db = NULL;
    struct espl_error err;
    char path[ESPL_PATH_MAX];
    (void)espl_fs_join(path, fixture->store.root, "espalier.db", NULL);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(espl_database_open(&fixture->store, &db, &err), ESPL_E_KIND);
    assert_non_null(strstr(err.message, "espalier.db' is a folder, not a database"));
    assert_string_equal(err.hint,
                        "move it away; `espalier database rebuild` then makes the database");
    assert_null(db);
}

static void test_runs__new_ids_are_unique_and_in_order(void **state)
{
    struct exec_fixture *fixture = *state;
    enum { COUNT = 50 };
    char ids[COUNT][ESPL_RUN_ID_MAX];
    struct espl_run_list list;
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(espl_run_create(&fixture->store, "job", ids[i], NULL), ESPL_OK);
    }
    assert_int_equal(espl_run_list_read(&fixture->store, "job", 0, &list, NULL), ESPL_OK);
    assert_int_equal(list.count, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
        assert_string_equal(list.ids[i], ids[COUNT - 1 - i]);
    }
    espl_run_list_free(&list);
}

static void test_runs__folder_that_cannot_be_written(void **state)
{
    struct exec_fixture *fixture = *state;
    struct espl_error err;
    char path[ESPL_PATH_MAX];
    char id[ESPL_RUN_ID_MAX];
    (void)espl_fs_join(path, fixture->store.root, "runs", NULL);
    assert_int_equal(chmod(fixture->folder, 0755), 0);
    assert_int_equal(chmod(path, 0555), 0);
    /* Root may write everywhere. */
    const bool root = geteuid() == 0;
    assert_int_equal(root ? seteuid(65534) : 0, 0);
    const enum espl_status status = espl_run_create(&fixture->store, "job", id, &err);
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(status, ESPL_E_IO);
    assert_non_null(strstr(err.message, "cannot make the run folder '"));
    assert_string_equal(err.hint, espl_store_write_hint);
}

static void test_runs__newer_schema_is_refused(void **state)
{
    struct exec_fixture *fixture = *state;
    static const char id[] = "20260512-120411-my-job-4e91";
    char path[ESPL_PATH_MAX];
    json_t *record = NULL;
    make_run(fixture, id);
    assert_int_equal(espl_run_path(&fixture->store, id, "run.json", path, NULL), ESPL_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(espl_run_load(&fixture->store, id, &record, NULL), ESPL_E_NOTFOUND);
    static const char newer[] = "{\"schema\":\"espalier.run/2\",\"stages\":[]}";
    assert_int_equal(espl_fs_write_file(path, newer, sizeof newer - 1, NULL), ESPL_OK);
    assert_int_equal(espl_run_load(&fixture->store, id, &record, NULL), ESPL_E_VERSION);
    static const char other[] = "{\"schema\":\"other\"}";
    assert_int_equal(espl_fs_write_file(path, other, sizeof other - 1, NULL), ESPL_OK);
    assert_int_equal(espl_run_load(&fixture->store, id, &record, NULL), ESPL_E_CORRUPT);
    assert_null(record);
}

#define ONE(NAME) cmocka_unit_test_setup_teardown(NAME, exec_fixture_setup, exec_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(test_ingest__fills_all_tables),
        ONE(test_ingest__twice_is_once),
        ONE(test_rebuild__equals_the_incremental_state),
        ONE(test_open__newer_version_is_refused),
        ONE(test_open__damaged_file_is_told),
        ONE(test_open__a_missing_table_is_damage),
        ONE(test_open_existing__makes_no_file),
        ONE(test_ingest__unknown_run),
        ONE(test_history__scales_by_flop_then_units_then_not),
        ONE(test_runs__newest_first_and_names),
        ONE(test_runs__damaged_records_are_passed_over),
        ONE(test_database__folder_in_its_place),
        ONE(test_runs__new_ids_are_unique_and_in_order),
        ONE(test_runs__folder_that_cannot_be_written),
        ONE(test_runs__newer_schema_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
