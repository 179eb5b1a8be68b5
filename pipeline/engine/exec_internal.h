/* Shared by the exec_*.c files only. exec.c walks the plan; exec_stage.c is the driver's side of
 * one stage, exec_child.c the side of its process; exec_record.c keeps the run record, by-name/ and
 * events; exec_result.c knows what a finished stage left in the store. */
#ifndef ESPL_ENGINE_EXEC_INTERNAL_H
#define ESPL_ENGINE_EXEC_INTERNAL_H

#include "engine/events.h"
#include "engine/exec.h"
#include "engine/run_record.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { ESPL_EXEC_STALE = 512 }; /* at least the 160 that stages fill */

enum espl_exec_state {
    ESPL_EXEC_WAITING,
    ESPL_EXEC_RUNNING,
    ESPL_EXEC_CACHED,
    ESPL_EXEC_DONE,
    ESPL_EXEC_FAILED,
    ESPL_EXEC_SKIPPED
};

/** What is known of one stage during the run. The JSON values are owned. */
struct espl_exec_stage {
    enum espl_exec_state state;
    char why[200];
    double seconds;
    uint64_t peak_rss_bytes;
    uint64_t output_bytes;
    uint64_t resumed_units;
    uint64_t done, total; /* last progress */
    char what[32];
    json_t *metrics;          /* {name: number} */
    json_t *volatile_metrics; /* {name: number} */
    json_t *layers;           /* [{series, layer, module, value}] */
    json_t *warnings;         /* [text] */
    struct espl_error error;  /* code ESPL_OK = none */
};

struct espl_exec {
    const struct espl_plan *plan;
    const struct espl_store *store;
    const struct espl_exec_options *options;
    struct espl_exec_result *result;
    struct espl_event_files files;
    struct espl_exec_stage *stages; /* as plan->stages */
    json_t *record;                 /* run.json without what changes */
    json_t *expectations;
    double started; /* monotonic */
    char started_utc[ESPL_UNIT_TEXT];
    int stop_signal;                /* the run was asked to stop */
    bool halted;                    /* a stage failed, and no --keep-going */
    struct espl_error failure;      /* of the first stage that failed */
    struct espl_error expectation;  /* the first that did not hold */
    struct espl_error record_error; /* first failure to write the record */
};

/* ---- exec_result.c: what a stage leaves in the store ---- */

/** Port of output `index` as the store wants it: "" for the only output of a stage. */
const char *espl_exec_output_port(const struct espl_stage *stage, size_t index);
size_t espl_exec_port_count(const struct espl_port *ports);
/** Are all outputs of the stage in the store, readable and, when the stage can tell, still valid?
 *  *stale: why a result that is there does not count; "" otherwise. err must not be NULL. */
enum espl_status espl_exec_is_ready(const struct espl_store *store,
                                    const struct espl_plan_stage *stage, bool *ready,
                                    char stale[ESPL_EXEC_STALE], struct espl_error *err);
/** Reads metrics, layer metrics and sizes of a result in the store into `out` (replacing). */
enum espl_status espl_exec_load_result(const struct espl_store *store,
                                       const struct espl_plan_stage *stage,
                                       struct espl_exec_stage *out, struct espl_error *err);
/** Path of the artifact behind input `index` of a plan stage. */
enum espl_status espl_exec_input_path(const struct espl_store *store, const struct espl_plan *plan,
                                      const struct espl_plan_stage *stage, size_t index,
                                      char out[ESPL_PATH_MAX], struct espl_error *err);
/** Path of the side file of a result. */
enum espl_status espl_exec_side_path(const struct espl_store *store, const char *key,
                                     const char *port, char out[ESPL_PATH_MAX],
                                     struct espl_error *err);

/* ---- exec_child.c ---- */

/** The stage process after the fork: runs the stage, publishes its outputs, reports through
 *  message_fd. Returns the exit code for _exit(). */
int espl_exec_child(const struct espl_exec *exec, size_t index, int message_fd);

/* ---- exec_provenance.c ---- */

/** Attributes and /provenance of one output. inputs: open artifacts in the order of the job's
 *  connections. metrics: borrowed. */
enum espl_status espl_exec_set_provenance(const struct espl_exec *exec, size_t index,
                                          const char *port, struct espl_artifact *const *inputs,
                                          const json_t *metrics, const json_t *layers,
                                          struct espl_artifact *output, struct espl_error *err);

/* ---- exec_stage.c ---- */

/** Brings one stage to an end: waits for its lock, runs it or finds it cached. The outcome is in
 *  exec->stages[index]; the returned status is that of the stage. */
enum espl_status espl_exec_stage_run(struct espl_exec *exec, size_t index);
/** The signal that asks to stop, 0 = none. */
int espl_exec_stop_signal(const struct espl_exec *exec);

/* ---- exec_pump.c: the driver's side of a running stage process ---- */

/** Forks the stage process and stays with it to its end. The outcome is in exec->stages[index]. */
enum espl_status espl_exec_process_run(struct espl_exec *exec, size_t index,
                                       struct espl_error *err);

/* ---- exec_record.c ---- */

/** Makes the run folder with plan.json, job.yaml and empty logs, and the first run.json. */
enum espl_status espl_exec_record_open(struct espl_exec *exec, struct espl_error *err);
/** Rewrites run.json. status: "running", "ok", ... A failure is kept in exec->record_error. */
void espl_exec_record_save(struct espl_exec *exec, const char *status, int exit_code);
/** Refreshes by-name/<job>/: the links of stage `index` and metrics.json. Failures as above. */
void espl_exec_record_publish(struct espl_exec *exec, size_t index);
void espl_exec_record_close(struct espl_exec *exec);
/** Fills time and stage fields of the event and hands it to the files and the caller. stage index:
 *  SIZE_MAX = none. */
void espl_exec_emit(struct espl_exec *exec, size_t index, struct espl_event *event);
/** Evaluates the expectations of a stage that has its metrics. */
void espl_exec_check_expectations(struct espl_exec *exec, size_t index);

#endif
