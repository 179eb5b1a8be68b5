/* Run records: results/runs/<run id>/run.json ("espalier.run/1", docs/cli.md), written by exec.c
 * and read by status, report, diff, gc and the database.
 *
 * A run id is YYYYMMDD-HHMMSS-<job>-<4 hex>: UTC, and the fraction of the second in 1/65536, so
 * that the runs of one job sort by time also within a second. */
#ifndef ESPL_ENGINE_RUN_RECORD_H
#define ESPL_ENGINE_RUN_RECORD_H

#include "artifact/store.h"
#include "core/error.h"
#include "core/log.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ESPL_RUN_ID_MAX = 96, ESPL_RUN_RECORD_MAX_BYTES = 64 << 20 };

/** Run ids, newest first. */
struct espl_run_list {
    char (*ids)[ESPL_RUN_ID_MAX];
    size_t count;
};

/** Lists the runs in the store, newest first. job_name: only runs of this job, NULL = all. limit:
 * at most so many, 0 = all. A store without runs gives an empty list. Free with
 * espl_run_list_free().
 */
enum espl_status espl_run_list_read(const struct espl_store *store, const char *job_name,
                                    size_t limit, struct espl_run_list *out,
                                    struct espl_error *err);
void espl_run_list_free(struct espl_run_list *list);
/** Newest run of a job (NULL = of any job) whose record can be read; log (NULL allowed) gets a
 * warning for each newer one that is passed over. Errors: NOTFOUND when there is none; what the
 * newest run's record says when none can be read. */
enum espl_status espl_run_latest(const struct espl_store *store, const char *job_name,
                                 const struct espl_log *log, char run_id[ESPL_RUN_ID_MAX],
                                 struct espl_error *err);
/** Which run does a user mean: a run id, a part of one that only one run has, the path of a run
 *  folder, or a job name (as espl_run_latest()). NOTFOUND, or KIND when several match. */
enum espl_status espl_run_resolve(const struct espl_store *store, const char *text,
                                  const struct espl_log *log, char run_id[ESPL_RUN_ID_MAX],
                                  struct espl_error *err);
/** runs/<run id>, or a file in it when `file` is not NULL. */
enum espl_status espl_run_path(const struct espl_store *store, const char *run_id, const char *file,
                               char out[ESPL_PATH_MAX], struct espl_error *err);
/** Loads run.json and checks its schema. *out: new reference. Safe while the run goes on.
 *  Errors: NOTFOUND, CORRUPT, VERSION (a later schema). */
enum espl_status espl_run_load(const struct espl_store *store, const char *run_id, json_t **out,
                               struct espl_error *err);
/** The run's status as people should see it: its "status", but "died" when it says "running" and
 *  its driver is gone (judged on the host of the run only). Borrowed. */
const char *espl_run_status(const json_t *record);
/** Entry of a stage in the record, NULL when absent. Borrowed. */
json_t *espl_run_stage(const json_t *record, const char *stage_id);

/** Field 22 of /proc/<pid>/stat, 0 when there is no such process. */
uint64_t espl_process_start_ticks(int64_t pid);
/** Is the process `pid` that started at start_ticks still there? Zombies count as gone. */
bool espl_process_is_alive(int64_t pid, uint64_t start_ticks);

/** Makes a new run folder for a job. Errors: IO, NOSPACE. */
enum espl_status espl_run_create(const struct espl_store *store, const char *job_name,
                                 char run_id[ESPL_RUN_ID_MAX], struct espl_error *err);
/** Writes run.json atomically. */
enum espl_status espl_run_save(const struct espl_store *store, const char *run_id,
                               const json_t *record, struct espl_error *err);

#endif
