/* Shared by the job files: the state of one reading. */
#ifndef ESPL_ENGINE_JOB_INTERNAL_H
#define ESPL_ENGINE_JOB_INTERNAL_H

#include "engine/job.h"

struct espl_job_reader {
    struct espl_job *job;
    struct espl_diagnostics *diags;
    const struct espl_node **items; /* stage nodes, one per job->stages */
    const char **ids;               /* stage ids, for suggestions; "" where missing */
    bool no_memory;
};

/** Arena memory; sets no_memory on failure. */
void *espl_job_reader_alloc(struct espl_job_reader *reader, size_t count, size_t size);
/** Reads id, use and with of every stage. */
void espl_job_read_stages(struct espl_job_reader *reader, const struct espl_node *stages);
/** Reads `in` of one stage. All ids must be known. */
void espl_job_read_inputs(struct espl_job_reader *reader, struct espl_job_stage *stage,
                          const struct espl_node *in);
/** "nothing", "a list", "a mapping", "a text". */
const char *espl_job_describe_node(const struct espl_node *node);
/** Reports keys of the mapping that are not in `known` (NULL-terminated). where: "the job". */
void espl_job_check_keys(struct espl_job_reader *reader, const struct espl_node *mapping,
                         const char *const *known, const char *where);
/** [a-z][a-z0-9_-]*, at most ESPL_JOB_NAME_MAX characters. Reports `what` otherwise. */
bool espl_job_check_name(struct espl_job_reader *reader, const struct espl_node *node,
                         const char *what);

/** job_suggest.c: the advice for a job file that is not there: a near name, or what job files there
 * are beside it and in jobs/. file: as the user named it; "DIR/" asks for those in a folder. */
void espl_job_suggest_file(const char *file, struct espl_error *err);

#endif
