/* results/espalier.db: an index of runs, stages and metrics for queries. The truth is in the run
 * records and artifacts; the database can be rebuilt from them at any time. */
#ifndef ESPL_ENGINE_DATABASE_H
#define ESPL_ENGINE_DATABASE_H

#include "artifact/store.h"
#include "core/error.h"
#include "engine/stage.h"

struct espl_database;

/** Opens (creating and migrating) <store>/espalier.db: WAL, foreign keys, busy time-out. VERSION
 * when a newer espalier wrote it. */
enum espl_status espl_database_open(const struct espl_store *store, struct espl_database **out,
                                    struct espl_error *err);
/** As above for an existing database only, so that a verb that writes nothing makes no file.
 *  NOTFOUND when there is none. */
enum espl_status espl_database_open_existing(const struct espl_store *store,
                                             struct espl_database **out, struct espl_error *err);
void espl_database_close(struct espl_database *db);
/** What a user should know of the open database ("write-ahead log is not available, ..."); "" when
 *  there is nothing. Borrowed. */
const char *espl_database_remark(const struct espl_database *db);
/** Reads runs/<run_id>/ into the tables, replacing what was known of that run. One transaction. */
enum espl_status espl_database_ingest(struct espl_database *db, const struct espl_store *store,
                                      const char *run_id, struct espl_error *err);
/** Empties the tables and ingests every run record, in one transaction. *runs: how many; *damaged:
 *  records that could not be read and were left out. log: gets a line for each of those. */
enum espl_status espl_database_rebuild(struct espl_database *db, const struct espl_store *store,
                                       const struct espl_log *log, size_t *runs, size_t *damaged,
                                       struct espl_error *err);
/** Deletes the database files, for a damaged one that is to be rebuilt. */
enum espl_status espl_database_delete(const struct espl_store *store, struct espl_error *err);
/** Seconds the stage would take on this host judged by its earlier runs here (scaled by flop, then
 * by units, else plain median); < 0 = no history. Fits espl_history_fn with the database as user.
 */
double espl_database_history(void *db, const char *stage_name, const struct espl_estimate *est);

#endif
