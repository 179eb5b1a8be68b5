/* The plan: which stages are cached, must run, can resume or are blocked, and why; exact, because
 * keys are hashes of recipes and need no execution. Writes nothing. */
#ifndef ESPL_ENGINE_PLAN_H
#define ESPL_ENGINE_PLAN_H

#include "engine/job.h"

enum espl_plan_state {
    ESPL_PLAN_CACHED,  /* result is in the store */
    ESPL_PLAN_RESUME,  /* must run; some units are kept */
    ESPL_PLAN_RUN,     /* must run */
    ESPL_PLAN_BLOCKED, /* cannot run on this machine or with these inputs; why says so */
    ESPL_PLAN_SKIPPED  /* left out by --from / --until */
};

const char *espl_plan_state_name(enum espl_plan_state state);

/** One labelled field of the key, in hashing order; stored in /provenance/hash_fields and compared
 * by `why`. */
struct espl_hash_field {
    const char *
        label; /* "stage", "cache_version", "parameter sparsity", "input model", "file weights 0" */
    const char *value;
};

struct espl_plan_stage {
    const struct espl_job_stage *job_stage;
    char key[ESPL_SHA256_HEX];
    bool key_known; /* false when an input is unknown (missing file upstream) */
    struct espl_hash_field *fields;
    size_t field_count;
    enum espl_plan_state state;
    char why[200];
    struct espl_estimate estimate;
    double seconds;        /* expected, from history or flop; < 0 = unknown */
    uint64_t units_done;   /* kept units when RESUME */
    size_t *input_stage;   /* index into plan->stages per job input, SIZE_MAX for files */
    json_t **descriptions; /* per output port, NULL = unknown */
    char warnings[512];    /* lines */
};

struct espl_plan {
    const struct espl_job *job;
    struct espl_arena *arena;
    struct espl_plan_stage *stages; /* in execution order */
    size_t stage_count;
    uint64_t host_bytes_needed, host_bytes_free;
    uint64_t disk_bytes_needed, disk_bytes_free;
    bool resources_ok;
};

/** How long did this stage take before? Returned seconds < 0 = no history. May be NULL. */
typedef double (*espl_history_fn)(void *user, const char *stage_name,
                                  const struct espl_estimate *est);

/** Can this machine give the job's device? Fails with MACHINE or UNSUPPORTED and a hint. The engine
 * does not know backends, so the caller brings this. */
typedef enum espl_status (*espl_device_check_fn)(void *user, const char *device,
                                                 struct espl_error *err);

struct espl_plan_options {
    const char *from;         /* stage id: this one and all that need it; NULL = all */
    const char *until;        /* stage id: this one and all it needs */
    const char *const *force; /* stage ids whose cached result is not used */
    size_t force_count;
    bool remeasure; /* measuring stages run again */
    bool rehash;
    espl_device_check_fn check_device; /* NULL = every device is fine */
    void *check_device_user;
    espl_history_fn history;
    void *history_user;
};

/** Builds the plan: connects inputs, checks kinds, orders, reports cycles, calls every stage's
 * plan(), computes keys, looks up the store, checks legal orders and resources. Problems of the job
 * go to diags. *out: NULL when there are errors. */
enum espl_status espl_plan_build(const struct espl_job *job, const struct espl_store *store,
                                 const struct espl_plan_options *options,
                                 struct espl_diagnostics *diags, struct espl_plan **out,
                                 struct espl_error *err);
void espl_plan_free(struct espl_plan *plan);
/** Machine-readable form, schema "espalier.plan/1". New reference. */
json_t *espl_plan_json(const struct espl_plan *plan);

#endif
