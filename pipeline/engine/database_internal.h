/* Shared by database.c, database_ingest.c and database_history.c only. */
#ifndef ESPL_ENGINE_DATABASE_INTERNAL_H
#define ESPL_ENGINE_DATABASE_INTERNAL_H

#include "engine/database.h"

#include <sqlite3.h>

struct espl_database {
    sqlite3 *handle;
    char remark[256];
};

/** Fills err from the last error of the handle: "<what>: <sqlite's text>". Full disk is NOSPACE,
 *  a damaged file CORRUPT with advice, all else IO. */
enum espl_status espl_database_fail(const struct espl_database *db, const char *what,
                                    struct espl_error *err);
/** Runs one or more statements without results. */
enum espl_status espl_database_exec(struct espl_database *db, const char *sql, const char *what,
                                    struct espl_error *err);

#endif
