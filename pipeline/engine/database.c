#include "engine/database.h"

#include "engine/database_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUSY_MS = 10000 };

/* Entry i brings a database from version i to i + 1 (PRAGMA user_version). Add, never change. */
static const char *const migrations[] = {
    "CREATE TABLE runs ("
    "  run_id TEXT PRIMARY KEY, job TEXT NOT NULL, job_file TEXT NOT NULL,"
    "  job_sha256 TEXT NOT NULL, seed INTEGER NOT NULL, device TEXT NOT NULL,"
    "  started_utc TEXT NOT NULL, ended_utc TEXT, seconds REAL NOT NULL, status TEXT NOT NULL,"
    "  exit_code INTEGER NOT NULL, host TEXT NOT NULL, command_line TEXT NOT NULL,"
    "  environment TEXT NOT NULL);"
    "CREATE INDEX runs_by_job ON runs (job, started_utc);"
    "CREATE TABLE stages ("
    "  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE, position INTEGER NOT NULL,"
    "  id TEXT NOT NULL, use TEXT NOT NULL, key TEXT NOT NULL, state TEXT NOT NULL,"
    "  why TEXT NOT NULL, seconds REAL NOT NULL, peak_rss_bytes INTEGER NOT NULL,"
    "  output_bytes INTEGER NOT NULL, resumed_units INTEGER NOT NULL, flop REAL NOT NULL,"
    "  units INTEGER NOT NULL, error_code TEXT, error_message TEXT, params TEXT NOT NULL,"
    "  artifact TEXT NOT NULL, PRIMARY KEY (run_id, id));"
    "CREATE INDEX stages_by_use ON stages (use, state);"
    "CREATE INDEX stages_by_key ON stages (key);"
    "CREATE TABLE metrics ("
    "  run_id TEXT NOT NULL, stage_id TEXT NOT NULL, name TEXT NOT NULL, value REAL NOT NULL,"
    "  volatile INTEGER NOT NULL, PRIMARY KEY (run_id, stage_id, name, volatile),"
    "  FOREIGN KEY (run_id, stage_id) REFERENCES stages (run_id, id) ON DELETE CASCADE);"
    "CREATE INDEX metrics_by_name ON metrics (name);"
    "CREATE TABLE layer_metrics ("
    "  run_id TEXT NOT NULL, stage_id TEXT NOT NULL, series TEXT NOT NULL, layer INTEGER NOT NULL,"
    "  module TEXT NOT NULL, value REAL NOT NULL,"
    "  PRIMARY KEY (run_id, stage_id, series, layer, module),"
    "  FOREIGN KEY (run_id, stage_id) REFERENCES stages (run_id, id) ON DELETE CASCADE);"
    "CREATE TABLE expectations ("
    "  run_id TEXT NOT NULL, stage_id TEXT NOT NULL, position INTEGER NOT NULL,"
    "  metric TEXT NOT NULL, low REAL, high REAL, value REAL, ok INTEGER NOT NULL,"
    "  PRIMARY KEY (run_id, position),"
    "  FOREIGN KEY (run_id, stage_id) REFERENCES stages (run_id, id) ON DELETE CASCADE);",
};

enum { SCHEMA_VERSION = (int)(sizeof migrations / sizeof migrations[0]) };

static enum espl_status database_path(const struct espl_store *store, char out[ESPL_PATH_MAX],
                                      struct espl_error *err)
{
    return espl_fs_join(out, store->root, "espalier.db", err);
}

enum espl_status espl_database_fail(const struct espl_database *db, const char *what,
                                    struct espl_error *err)
{
    const int code = db->handle != NULL ? sqlite3_errcode(db->handle) : SQLITE_NOMEM;
    const char *text = db->handle != NULL ? sqlite3_errmsg(db->handle) : "out of memory";
    enum espl_status status = ESPL_E_IO;
    if (code == SQLITE_FULL) {
        status = ESPL_E_NOSPACE;
    } else if (code == SQLITE_NOMEM) {
        status = ESPL_E_NOMEM;
    } else if (code == SQLITE_CORRUPT || code == SQLITE_NOTADB) {
        status = ESPL_E_CORRUPT;
    }
    (void)espl_fail(err, status, "cannot %s: %s", what, text);
    if (code == SQLITE_BUSY) {
        (void)espl_hint(err, "another espalier writes it right now: try again");
    } else {
        (void)espl_hint(err,
                        "the run records are whole: `espalier database rebuild` makes it anew");
    }
    return status;
}

enum espl_status espl_database_exec(struct espl_database *db, const char *sql, const char *what,
                                    struct espl_error *err)
{
    return sqlite3_exec(db->handle, sql, NULL, NULL, NULL) == SQLITE_OK
               ? ESPL_OK
               : espl_database_fail(db, what, err);
}

static enum espl_status read_version(struct espl_database *db, int *version, struct espl_error *err)
{
    sqlite3_stmt *statement = NULL;
    if (sqlite3_prepare_v2(db->handle, "PRAGMA user_version", -1, &statement, NULL) != SQLITE_OK ||
        sqlite3_step(statement) != SQLITE_ROW) {
        const enum espl_status status = espl_database_fail(db, "read the database", err);
        (void)sqlite3_finalize(statement); /* repeats the error above */
        return status;
    }
    *version = sqlite3_column_int(statement, 0);
    (void)sqlite3_finalize(statement); /* a read that succeeded */
    return ESPL_OK;
}

static enum espl_status check_version(int version, struct espl_error *err)
{
    if (version <= SCHEMA_VERSION) {
        return ESPL_OK;
    }
    (void)espl_fail(err, ESPL_E_VERSION, "the database has version %d, this espalier knows %d",
                    version, SCHEMA_VERSION);
    (void)espl_hint(err, "a newer espalier made it: use that one, or delete espalier.db in the "
                         "results folder and run `espalier database rebuild`");
    return ESPL_E_VERSION;
}

/* A database that says it is current must have the tables. */
static enum espl_status check_tables(struct espl_database *db, struct espl_error *err)
{
    static const char probe[] =
        "SELECT 1 FROM runs, stages, metrics, layer_metrics, expectations LIMIT 0";
    if (sqlite3_exec(db->handle, probe, NULL, NULL, NULL) == SQLITE_OK) {
        return ESPL_OK;
    }
    const bool damaged = sqlite3_errcode(db->handle) == SQLITE_ERROR;
    const enum espl_status status = espl_database_fail(db, "open the database", err);
    if (damaged && err != NULL) {
        err->code = ESPL_E_CORRUPT;
    }
    return damaged ? ESPL_E_CORRUPT : status;
}

/* One transaction: two programs that migrate at once end with one migrated database. */
static enum espl_status migrate(struct espl_database *db, struct espl_error *err)
{
    int version = 0;
    enum espl_status status = read_version(db, &version, err);
    if (status == ESPL_OK) {
        status = check_version(version, err);
    }
    if (status != ESPL_OK || version == SCHEMA_VERSION) {
        return status == ESPL_OK ? check_tables(db, err) : status;
    }
    status = espl_database_exec(db, "BEGIN IMMEDIATE", "migrate the database", err);
    if (status != ESPL_OK) {
        return status;
    }
    status = read_version(db, &version, err);
    for (; status == ESPL_OK && version < SCHEMA_VERSION; version++) {
        char set_version[64];
        (void)snprintf(set_version, sizeof set_version, "PRAGMA user_version = %d", version + 1);
        status = espl_database_exec(db, migrations[version], "migrate the database", err);
        if (status == ESPL_OK) {
            status = espl_database_exec(db, set_version, "migrate the database", err);
        }
    }
    if (status == ESPL_OK) {
        return espl_database_exec(db, "COMMIT", "migrate the database", err);
    }
    (void)espl_database_exec(db, "ROLLBACK", "undo", NULL); /* the first error is the one to tell */
    return status;
}

/* Readers and a writer do not block each other with a write-ahead log. Some network file systems
 * cannot do it; the default journal works there too. */
static enum espl_status set_journal(struct espl_database *db, struct espl_error *err)
{
    sqlite3_stmt *statement = NULL;
    const int prepared =
        sqlite3_prepare_v2(db->handle, "PRAGMA journal_mode = WAL", -1, &statement, NULL);
    const int step = prepared == SQLITE_OK ? sqlite3_step(statement) : prepared;
    const char *mode = step == SQLITE_ROW ? (const char *)sqlite3_column_text(statement, 0) : NULL;
    if (mode == NULL) {
        const int code = sqlite3_errcode(db->handle);
        if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT) {
            const enum espl_status status = espl_database_fail(db, "open the database", err);
            (void)sqlite3_finalize(statement); /* repeats the error above */
            return status;
        }
    }
    if (mode == NULL || strcmp(mode, "wal") != 0) {
        (void)snprintf(db->remark, sizeof db->remark,
                       "the database uses journal '%s': a write-ahead log is not available there",
                       mode != NULL ? mode : "default");
    }
    (void)sqlite3_finalize(statement); /* repeats an error that the remark tells */
    return ESPL_OK;
}

static enum espl_status open_with(const struct espl_store *store, int flags,
                                  struct espl_database **out, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    struct espl_database *db = NULL;
    enum espl_status status = database_path(store, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (espl_fs_is_dir(path)) {
        (void)espl_fail(err, ESPL_E_KIND, "'%s' is a folder, not a database", path);
        return espl_hint(err, "move it away; `espalier database rebuild` then makes the database");
    }
    db = calloc(1, sizeof *db);
    if (db == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the database");
    }
    if (sqlite3_open_v2(path, &db->handle, flags | SQLITE_OPEN_READWRITE, NULL) != SQLITE_OK) {
        status = espl_database_fail(db, "open the database", err);
        goto cleanup;
    }
    (void)sqlite3_extended_result_codes(db->handle, 0); /* cannot fail for an open handle */
    (void)sqlite3_busy_timeout(db->handle, BUSY_MS);
    status = set_journal(db, err);
    if (status == ESPL_OK) {
        status = espl_database_exec(db, "PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL",
                                    "open the database", err);
    }
    if (status == ESPL_OK) {
        status = migrate(db, err);
    }

cleanup:
    if (status != ESPL_OK) {
        (void)espl_context(err, "while opening '%s'", path);
        espl_database_close(db);
        return status;
    }
    *out = db;
    return ESPL_OK;
}

enum espl_status espl_database_open(const struct espl_store *store, struct espl_database **out,
                                    struct espl_error *err)
{
    return open_with(store, SQLITE_OPEN_CREATE, out, err);
}

enum espl_status espl_database_open_existing(const struct espl_store *store,
                                             struct espl_database **out, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    const enum espl_status status = database_path(store, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (!espl_fs_exists(path)) {
        return espl_fail(err, ESPL_E_NOTFOUND, "there is no database in '%s'", store->root);
    }
    return open_with(store, 0, out, err);
}

void espl_database_close(struct espl_database *db)
{
    if (db != NULL) {
        (void)sqlite3_close(db->handle); /* fails only with statements open: there are none */
        free(db);
    }
}

const char *espl_database_remark(const struct espl_database *db)
{
    return db->remark;
}

enum espl_status espl_database_delete(const struct espl_store *store, struct espl_error *err)
{
    static const char *const names[] = {"espalier.db-wal", "espalier.db-shm", "espalier.db-journal",
                                        "espalier.db"};
    char path[ESPL_PATH_MAX];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const enum espl_status status = espl_fs_join(path, store->root, names[i], err);
        if (status != ESPL_OK) {
            return status;
        }
        if (unlink(path) != 0 && errno != ENOENT) {
            return espl_fail_errno(err, errno, "cannot delete '%s'", path);
        }
    }
    return ESPL_OK;
}
