/* The typed job: what the YAML says after defaults, overrides and checks that need no other file.
 */
#ifndef ESPL_ENGINE_JOB_H
#define ESPL_ENGINE_JOB_H

#include "engine/schema.h"
#include "engine/stage.h"

/** One connection of an input port. Exactly one of stage_id and file is set. */
struct espl_job_input {
    const char *port;
    const char *stage_id;    /* producing stage */
    const char *output_port; /* "" = its only output, also when the job names that one */
    const char *file;        /* artifact made elsewhere */
    struct espl_srcpos at;
};

/** expect: metric: {min: x, max: y} */
struct espl_job_expect {
    const char *metric;
    bool has_min, has_max;
    double min, max;
    struct espl_srcpos at;
};

struct espl_job_stage {
    const char *id;
    const struct espl_stage *stage;
    void *params;                    /* the stage's parameter struct */
    struct espl_param_value *values; /* one per table row */
    struct espl_job_input *inputs;   /* in the order of the stage's port table */
    size_t input_count;
    struct espl_job_expect *expects;
    size_t expect_count;
    struct espl_srcpos at;     /* of the item */
    struct espl_srcpos use_at; /* of the stage name */
};

struct espl_job {
    struct espl_arena *arena;
    const char *file; /* "-" for standard input */
    const char *text; /* as read */
    size_t text_len;
    char sha256[ESPL_SHA256_HEX];
    const char *name;
    uint64_t seed;
    const char *device; /* "cpu", "cuda:N", "auto" */
    struct espl_srcpos device_at;
    uint64_t limit_host_memory; /* bytes, 0 = none */
    uint64_t limit_scratch;
    struct espl_srcpos limit_host_memory_at;
    struct espl_srcpos limit_scratch_at;
    const struct espl_stage *const *registry; /* as given to espl_job_load() */
    struct espl_job_stage *stages;            /* in file order */
    size_t stage_count;
};

/** `--set path=value`: path is "<stage>.<param>", "seed", "device", "name" or "limits.<x>". */
struct espl_override {
    const char *path;
    const char *value;
    const char *option; /* the option that said so, for messages; NULL = "--set <path>" */
};

enum { ESPL_JOB_NAME_MAX = 64 };

/** Reads, checks and types a job file ("-" = standard input). All problems of the file go to diags,
 * sorted, with a copy of the text. When there are problems *out is NULL, *err says how many, and
 * the status is that of the first. registry ends with NULL and must outlive the job. Free with
 * espl_job_free().
 * Errors without a diagnostic: NOTFOUND, IO (the file), NOMEM. */
enum espl_status espl_job_load(const char *file, const struct espl_stage *const *registry,
                               const struct espl_override *overrides, size_t override_count,
                               struct espl_diagnostics *diags, struct espl_job **out,
                               struct espl_error *err);
/** The same for a text in memory; file: its name, for messages. */
enum espl_status espl_job_parse(const char *file, const char *text, size_t len,
                                const struct espl_stage *const *registry,
                                const struct espl_override *overrides, size_t override_count,
                                struct espl_diagnostics *diags, struct espl_job **out,
                                struct espl_error *err);
void espl_job_free(struct espl_job *job);
/** NULL when there is none. */
const struct espl_job_stage *espl_job_find(const struct espl_job *job, const char *id);
/** The job with all defaults and overrides written out, as YAML. For provenance and reports; reads
 * back to a job with the same values. */
void espl_job_resolved_yaml(const struct espl_job *job, struct espl_buf *out);

#endif
