/* Executes a plan: each stage in a child process, one after the other in plan order; progress,
 * cancel, resume, locks between concurrent runs, expectations. */
#ifndef ESPL_ENGINE_EXEC_H
#define ESPL_ENGINE_EXEC_H

#include "engine/plan.h"

enum espl_event_type {
    ESPL_EVENT_RUN_START,
    ESPL_EVENT_STAGE_CACHED,
    ESPL_EVENT_STAGE_WAIT, /* another run holds the key; text says who */
    ESPL_EVENT_STAGE_START,
    ESPL_EVENT_PROGRESS,
    ESPL_EVENT_LOG,
    ESPL_EVENT_METRIC,
    ESPL_EVENT_LAYER_METRIC,
    ESPL_EVENT_STAGE_END,
    ESPL_EVENT_STAGE_FAILED,
    ESPL_EVENT_STAGE_SKIPPED, /* an input failed, with --keep-going */
    ESPL_EVENT_EXPECT_FAILED,
    ESPL_EVENT_RUN_END
};

/** Stable word of an event type, as it stands in events.jsonl ("stage_start"). */
const char *espl_event_name(enum espl_event_type type);

/** Only the fields that belong to the type are set; the rest is zero. Texts are borrowed. */
struct espl_event {
    enum espl_event_type type;
    double time;        /* UNIX seconds with fraction */
    size_t stage_index; /* in the plan */
    const char *stage_id;
    uint64_t done, total;    /* PROGRESS; RUN_START: cached and all stages; START: total units;
    LAYER_METRIC: done = layer */
    const char *what;        /* PROGRESS: unit; METRIC: name; LAYER_METRIC: series */
    const char *module;      /* LAYER_METRIC */
    double value;            /* METRIC; STAGE_END: seconds */
    uint64_t peak_rss_bytes; /* STAGE_END: VmHWM of the stage process */
    uint64_t resumed_units;  /* STAGE_START */
    bool volatile_value;     /* METRIC */
    enum espl_log_level level;
    const char *text;               /* LOG, WAIT, EXPECT_FAILED, RUN_END */
    const char *key;                /* CACHED, START, END */
    const struct espl_error *error; /* STAGE_FAILED, EXPECT_FAILED */
};

typedef void (*espl_event_fn)(void *user, const struct espl_event *event);

struct espl_exec_options {
    bool keep_going;
    espl_event_fn on_event; /* in the parent process; may be NULL */
    void *on_event_user;
    /** Set by signal handlers of main.c: 0, or the signal number. May be NULL. */
    const volatile int *stop_signal;
    /** How many such signals came; two or more = the stage is killed at once. May be NULL. */
    const volatile int *stop_count;
    const char *command_line;  /* for the run record */
    const json_t *environment; /* facts of BLAS, CPU, GPU for record and provenance; NULL allowed */
    const char *const *force;  /* as in espl_plan_options: results that are made again */
    size_t force_count;
    bool remeasure;
    double stop_seconds; /* time a stage gets to finish its unit after a signal; 0 = 10 s */
};

struct espl_exec_result {
    char run_id[96];
    char run_dir[ESPL_PATH_MAX];
    size_t cached, ran, failed, skipped, expect_failed;
    struct espl_error first_error; /* of the first failed stage or expectation */
};

/** Runs the plan. Returns ESPL_OK when every stage is done and every expectation held. Writes the
 * run record (runs/<id>/: plan.json, run.json, events.jsonl, log.txt, job.yaml), refreshes
 * by-name/<job>/ (links, metrics.json). The caller ingests the run into the database and renders
 * the report. */
enum espl_status espl_exec_run(const struct espl_plan *plan, const struct espl_store *store,
                               const struct espl_exec_options *options,
                               struct espl_exec_result *result, struct espl_error *err);

#endif
