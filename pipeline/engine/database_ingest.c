/* Run records into tables. */
#include "engine/database_internal.h"
#include "engine/run_record.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One value to bind: a text, an integer or a real, or null. */
enum cell_type { CELL_NULL, CELL_TEXT, CELL_INTEGER, CELL_REAL };

struct cell {
    enum cell_type type;
    const char *text;
    sqlite3_int64 integer;
    double real;
};

static struct cell text_cell(const char *text)
{
    return (struct cell){.type = text != NULL ? CELL_TEXT : CELL_NULL, .text = text};
}

static struct cell text_of(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text_cell(text != NULL ? text : "");
}

static struct cell nullable_text_of(const json_t *object, const char *name)
{
    return text_cell(json_string_value(json_object_get(object, name)));
}

static struct cell integer_cell(json_int_t value)
{
    return (struct cell){.type = CELL_INTEGER, .integer = (sqlite3_int64)value};
}

static struct cell integer_of(const json_t *object, const char *name)
{
    return integer_cell(json_integer_value(json_object_get(object, name)));
}

static struct cell real_of(const json_t *object, const char *name)
{
    return (struct cell){.type = CELL_REAL,
                         .real = json_number_value(json_object_get(object, name))};
}

static struct cell nullable_real_of(const json_t *object, const char *name)
{
    struct cell cell = real_of(object, name);
    cell.type = json_is_number(json_object_get(object, name)) ? CELL_REAL : CELL_NULL;
    return cell;
}

static int bind(sqlite3_stmt *statement, int position, const struct cell *cell)
{
    switch (cell->type) {
    case CELL_TEXT:
        return sqlite3_bind_text(statement, position, cell->text, -1, SQLITE_STATIC);
    case CELL_INTEGER:
        return sqlite3_bind_int64(statement, position, cell->integer);
    case CELL_REAL:
        return sqlite3_bind_double(statement, position, cell->real);
    case CELL_NULL:
        break;
    }
    return sqlite3_bind_null(statement, position);
}

/* Runs one statement with its values. */
static enum espl_status insert(struct espl_database *db, const char *sql, const struct cell *cells,
                               size_t count, struct espl_error *err)
{
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db->handle, sql, -1, &statement, NULL);
    for (size_t i = 0; i < count && code == SQLITE_OK; i++) {
        code = bind(statement, (int)i + 1, &cells[i]);
    }
    if (code == SQLITE_OK) {
        code = sqlite3_step(statement);
    }
    enum espl_status status = ESPL_OK;
    if (code != SQLITE_DONE && code != SQLITE_ROW) {
        status = espl_database_fail(db, "write the database", err);
    }
    (void)sqlite3_finalize(statement); /* repeats the error above */
    return status;
}

static enum espl_status insert_run(struct espl_database *db, const json_t *record,
                                   struct espl_error *err)
{
    char *environment =
        json_dumps(json_object_get(record, "environment"), JSON_COMPACT | JSON_SORT_KEYS);
    const struct cell cells[] = {
        text_of(record, "run_id"),       text_of(record, "job"),
        text_of(record, "job_file"),     text_of(record, "job_sha256"),
        integer_of(record, "seed"),      text_of(record, "device"),
        text_of(record, "started_utc"),  nullable_text_of(record, "ended_utc"),
        real_of(record, "seconds"),      text_of(record, "status"),
        integer_of(record, "exit_code"), text_of(record, "host"),
        text_of(record, "command_line"), text_cell(environment != NULL ? environment : "{}"),
    };
    const enum espl_status status =
        insert(db, "INSERT INTO runs VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)", cells,
               sizeof cells / sizeof cells[0], err);
    free(environment);
    return status;
}

static enum espl_status insert_metrics(struct espl_database *db, const char *run_id,
                                       const json_t *stage, bool volatile_values,
                                       struct espl_error *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_t *metrics = json_object_get(stage, volatile_values ? "volatile_metrics" : "metrics");
    json_object_foreach(metrics, name, value)
    {
        const struct cell cells[] = {
            text_cell(run_id),
            text_of(stage, "id"),
            text_cell(name),
            {.type = CELL_REAL, .real = json_number_value(value)},
            integer_cell(volatile_values ? 1 : 0),
        };
        const enum espl_status status =
            insert(db, "INSERT INTO metrics VALUES (?,?,?,?,?)", cells, 5, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

static enum espl_status insert_layers(struct espl_database *db, const char *run_id,
                                      const json_t *stage, struct espl_error *err)
{
    size_t index = 0;
    json_t *entry = NULL;
    json_array_foreach(json_object_get(stage, "layer_metrics"), index, entry)
    {
        const struct cell cells[] = {
            text_cell(run_id),          text_of(stage, "id"),     text_of(entry, "series"),
            integer_of(entry, "layer"), text_of(entry, "module"), real_of(entry, "value"),
        };
        const enum espl_status status =
            insert(db, "INSERT OR REPLACE INTO layer_metrics VALUES (?,?,?,?,?,?)", cells, 6, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

static enum espl_status insert_stage(struct espl_database *db, const char *run_id, size_t position,
                                     const json_t *stage, struct espl_error *err)
{
    const json_t *error = json_object_get(stage, "error");
    const json_t *estimate = json_object_get(stage, "estimate");
    char *params = json_dumps(json_object_get(stage, "params"), JSON_COMPACT);
    const struct cell cells[] = {
        text_cell(run_id),
        integer_cell((json_int_t)position),
        text_of(stage, "id"),
        text_of(stage, "use"),
        text_of(stage, "key"),
        text_of(stage, "state"),
        text_of(stage, "why"),
        real_of(stage, "seconds"),
        integer_of(stage, "peak_rss_bytes"),
        integer_of(stage, "output_bytes"),
        integer_of(stage, "resumed_units"),
        real_of(estimate, "flop"),
        integer_of(estimate, "units"),
        nullable_text_of(error, "code"),
        nullable_text_of(error, "message"),
        text_cell(params != NULL ? params : "{}"),
        text_of(stage, "artifact"),
    };
    enum espl_status status =
        insert(db, "INSERT INTO stages VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)", cells,
               sizeof cells / sizeof cells[0], err);
    free(params);
    if (status == ESPL_OK) {
        status = insert_metrics(db, run_id, stage, false, err);
    }
    if (status == ESPL_OK) {
        status = insert_metrics(db, run_id, stage, true, err);
    }
    return status == ESPL_OK ? insert_layers(db, run_id, stage, err) : status;
}

static enum espl_status insert_expectations(struct espl_database *db, const char *run_id,
                                            const json_t *record, struct espl_error *err)
{
    size_t index = 0;
    json_t *entry = NULL;
    json_array_foreach(json_object_get(record, "expectations"), index, entry)
    {
        const struct cell cells[] = {
            text_cell(run_id),
            text_of(entry, "stage"),
            integer_cell((json_int_t)index),
            text_of(entry, "metric"),
            nullable_real_of(entry, "min"),
            nullable_real_of(entry, "max"),
            nullable_real_of(entry, "value"),
            integer_cell(json_is_true(json_object_get(entry, "ok")) ? 1 : 0),
        };
        const enum espl_status status =
            insert(db, "INSERT INTO expectations VALUES (?,?,?,?,?,?,?,?)", cells, 8, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

/* Replaces what is known of one run; the transaction is the caller's. */
static enum espl_status ingest_record(struct espl_database *db, const char *run_id,
                                      const json_t *record, struct espl_error *err)
{
    size_t index = 0;
    json_t *stage = NULL;
    const struct cell id = text_cell(run_id);
    enum espl_status status = insert(db, "DELETE FROM runs WHERE run_id = ?", &id, 1, err);
    if (status == ESPL_OK) {
        status = insert_run(db, record, err);
    }
    json_array_foreach(json_object_get(record, "stages"), index, stage)
    {
        if (status == ESPL_OK) {
            status = insert_stage(db, run_id, index, stage, err);
        }
    }
    return status == ESPL_OK ? insert_expectations(db, run_id, record, err) : status;
}

static enum espl_status end_transaction(struct espl_database *db, enum espl_status status,
                                        struct espl_error *err)
{
    if (status == ESPL_OK) {
        status = espl_database_exec(db, "COMMIT", "write the database", err);
    }
    if (status != ESPL_OK) {
        (void)espl_database_exec(db, "ROLLBACK", "undo", NULL); /* the first error is told */
    }
    return status;
}

enum espl_status espl_database_ingest(struct espl_database *db, const struct espl_store *store,
                                      const char *run_id, struct espl_error *err)
{
    json_t *record = NULL;
    enum espl_status status = espl_run_load(store, run_id, &record, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_database_exec(db, "BEGIN IMMEDIATE", "write the database", err);
    if (status == ESPL_OK) {
        status = end_transaction(db, ingest_record(db, run_id, record, err), err);
    }
    json_decref(record);
    if (status != ESPL_OK) {
        (void)espl_context(err, "while recording run '%s' in the database", run_id);
    }
    return status;
}

static enum espl_status ingest_all(struct espl_database *db, const struct espl_store *store,
                                   const struct espl_log *log, const struct espl_run_list *list,
                                   size_t *runs, size_t *damaged, struct espl_error *err)
{
    enum espl_status status = espl_database_exec(db, "DELETE FROM runs", "empty the database", err);
    for (size_t i = list->count; i > 0 && status == ESPL_OK; i--) { /* oldest first */
        struct espl_error problem;
        json_t *record = NULL;
        if (espl_run_load(store, list->ids[i - 1], &record, &problem) != ESPL_OK) {
            espl_log(log, ESPL_LOG_WARN, "left out run '%s': %s", list->ids[i - 1],
                     problem.message);
            (*damaged)++;
            continue;
        }
        status = ingest_record(db, list->ids[i - 1], record, err);
        json_decref(record);
        (*runs)++;
    }
    return status;
}

enum espl_status espl_database_rebuild(struct espl_database *db, const struct espl_store *store,
                                       const struct espl_log *log, size_t *runs, size_t *damaged,
                                       struct espl_error *err)
{
    struct espl_run_list list = {NULL, 0};
    *runs = 0;
    *damaged = 0;
    enum espl_status status = espl_run_list_read(store, NULL, 0, &list, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_database_exec(db, "BEGIN IMMEDIATE", "write the database", err);
    if (status == ESPL_OK) {
        status = end_transaction(db, ingest_all(db, store, log, &list, runs, damaged, err), err);
    }
    espl_run_list_free(&list);
    return status;
}
