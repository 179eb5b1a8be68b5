/* The plan: which stages are cached, must run, can resume or are blocked, and why; exact, because
 * keys are hashes of recipes and need no execution. Writes nothing. */
#ifndef ESPL_ENGINE_PLAN_H
#define ESPL_ENGINE_PLAN_H

#include "engine/job.h"

enum espl_plan_state {
    ESPL_PLAN_CACHED,  /* result is in the store */
    ESPL_PLAN_RESUME,  /* must run; some units are kept */
    ESPL_PLAN_RUN,     /* must run */
    ESPL_PLAN_BLOCKED, /* cannot run with these inputs; why says so, diags has the error */
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
    /** BLOCKED with an error of its own in the diagnostics: what it is about ("checkpoint", "input
     * 'model'", "its checks"); why repeats that error. "" otherwise. */
    char blocked_by[64];
    struct espl_estimate estimate;
    double seconds;        /* expected, from history or flop; < 0 = unknown */
    uint64_t units_done;   /* kept units when RESUME */
    size_t *input_stage;   /* index into plan->stages per job input, SIZE_MAX for files */
    json_t **descriptions; /* per output port, NULL = unknown */
    char warnings[512];    /* lines */
    bool has_result;       /* every output is in the store (also when SKIPPED or forced) */
    /** Per job input: what the key takes for it, and for files the recorded content hash too. */
    struct espl_plan_input *inputs;
};

/** A connected input as the plan knows it. "" = unknown. */
struct espl_plan_input {
    char kind[ESPL_KIND_TEXT];
    char key[ESPL_SHA256_HEX];            /* of the producing stage; "" for files */
    char content_sha256[ESPL_SHA256_HEX]; /* of a file */
    json_t *description;                  /* of a file */
};

enum { ESPL_MAX_RESOURCE_ERRORS = 8 };

struct espl_plan {
    const struct espl_job *job;
    struct espl_arena *arena;
    const char *device_fingerprint; /* as the options had it; NULL = none known */
    struct espl_plan_stage *stages; /* in execution order */
    size_t stage_count;
    uint64_t host_bytes_needed, host_bytes_free;
    uint64_t disk_bytes_needed, disk_bytes_free;
    uint64_t device_bytes_needed;
    /** False when a check of memory, disk or device failed: a run must not start. The failures are
     * complete errors, with place and hint (render with espl_diagnostics_render_error()). */
    bool resources_ok;
    struct espl_error *resource_errors;
    size_t resource_error_count;
};

/** How long did this stage take before? Returned seconds < 0 = no history. May be NULL. */
typedef double (*espl_history_fn)(void *user, const char *stage_name,
                                  const struct espl_estimate *est);

/** Can this machine give the job's device? stage: id of the first stage that runs on it
 * (ESPL_STAGE_ON_DEVICE), of those that cannot use the CPU instead when there are any, NULL when
 * none does. device_only: it cannot. Fails with MACHINE or UNSUPPORTED and a hint. The engine does
 * not know backends, so the caller brings this. */
typedef enum espl_status (*espl_device_check_fn)(void *user, const char *device, const char *stage,
                                                 bool device_only, struct espl_error *err);

struct espl_plan_options {
    const char *from;         /* stage id: this one and all that need it; NULL = all */
    const char *until;        /* stage id: this one and all it needs */
    const char *const *force; /* stage ids whose cached result is not used */
    size_t force_count;
    bool remeasure; /* measuring stages run again */
    bool rehash;
    const char *device_fingerprint;    /* enters the keys of measuring stages; NULL = none known */
    uint64_t host_bytes_free;          /* 0 = ask the machine (MemAvailable) */
    uint64_t disk_bytes_free;          /* 0 = ask the file system of the store */
    espl_device_check_fn check_device; /* NULL = every device is fine */
    void *check_device_user;
    espl_history_fn history;
    void *history_user;
};

/** Builds the plan: connects inputs, checks kinds, orders, reports cycles, calls every stage's
 * plan(), computes keys, looks up the store, checks resources. Problems of the job go to diags,
 * sorted; then *err says how many and the status is that of the first.
 * *out: NULL when the graph itself is wrong. When only stages failed their own checks or an input
 * file is bad, the plan comes with these BLOCKED, so that it can be shown, beside the error status.
 * Missing resources are no error here: see resources_ok. Writes nothing, except that hashes of
 * input files are remembered in the store's index/ when that folder is there. */
enum espl_status espl_plan_build(const struct espl_job *job, const struct espl_store *store,
                                 const struct espl_plan_options *options,
                                 struct espl_diagnostics *diags, struct espl_plan **out,
                                 struct espl_error *err);
void espl_plan_free(struct espl_plan *plan);
/** Gives an error of a stage without a place one: that of the parameter or input it blames, else of
 * the stage's name in the job. */
void espl_plan_place_error(const struct espl_job_stage *stage, struct espl_error *err);
/** Machine-readable form, schema "espalier.plan/1" (docs/job-files.md). New reference. */
json_t *espl_plan_json(const struct espl_plan *plan);

#endif
