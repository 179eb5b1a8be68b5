/* What verbs that take a JOB share: load it with its overrides, build its plan, find its run. */
#ifndef ESPL_CLI_JOB_SETUP_H
#define ESPL_CLI_JOB_SETUP_H

#include "artifact/store.h"
#include "cli/command.h"
#include "engine/plan.h"
#include "engine/run_record.h"

/** Options of verbs that plan a job: --set --from --until --force --remeasure --rehash --device. To
 *  be the start of a verb's table: ESPL_PLAN_OPTIONS, more rows, {0}. */
#define ESPL_PLAN_OPTIONS                                                                        \
    {.name = "set",                                                                              \
     .argument = "STAGE.PARAM=VALUE",                                                            \
     .repeatable = true,                                                                         \
     .complete = ESPL_COMPLETE_PARAM,                                                            \
     .help = "override a parameter, seed, device or limit of the job"},                          \
        {.name = "from",                                                                         \
         .argument = "STAGE",                                                                    \
         .complete = ESPL_COMPLETE_STAGE,                                                        \
         .help = "only this stage and those that need it"},                                      \
        {.name = "until",                                                                        \
         .argument = "STAGE",                                                                    \
         .complete = ESPL_COMPLETE_STAGE,                                                        \
         .help = "only this stage and those it needs"},                                          \
        {.name = "force",                                                                        \
         .argument = "STAGE",                                                                    \
         .repeatable = true,                                                                     \
         .complete = ESPL_COMPLETE_STAGE,                                                        \
         .help = "run this stage although its result is in the store"},                          \
        {.name = "remeasure", .help = "run measuring stages again"},                             \
        {.name = "rehash", .help = "read input files again to check their hashes"},              \
    {                                                                                            \
        .name = "device", .argument = "DEVICE", .help = "device of the job: cpu, auto or cuda:N" \
    }

/** A job with its plan. Zero-initialise; free with espl_job_setup_free(), also after a failure. */
struct espl_job_setup {
    struct espl_store store;
    struct espl_job *job;
    struct espl_plan *plan;
    const char **force;
    size_t force_count;
    bool remeasure;
    bool reported; /* the problems of the job were printed: only the status is left to return */
};

/** Opens the store (read-only unless `writes`), loads the job (first positional) with --set and
 *  --device, and builds the plan with estimates from the database. Prints all problems of the job
 *  file; then the returned error has an empty message, so that it is not printed twice. */
enum espl_status espl_job_setup_load(const struct espl_cli *cli, bool writes,
                                     struct espl_job_setup *setup, struct espl_error *err);
void espl_job_setup_free(struct espl_job_setup *setup);

/** The run that `text` names: what espl_run_resolve() takes, or a job file (the newest run of the
 *  job with its name). text: NULL = the newest run of all. Damaged records that are passed over on
 *  the way get a warning each. */
enum espl_status espl_cli_find_run(struct espl_cli *cli, const struct espl_store *store,
                                   const char *text, char run_id[ESPL_RUN_ID_MAX],
                                   struct espl_error *err);

#endif
