/* deploy-bench: what it measures and in what order. */
#ifndef ESPL_STAGES_DEPLOY_RUN_H
#define ESPL_STAGES_DEPLOY_RUN_H

#include "engine/stage.h"
#include "stages/deploy_bench/bench_record.h"

/** Values of the enum parameters. */
extern const char *const espl_deploy_modes[]; /* kernel, encoder, decode */
enum espl_deploy_mode { ESPL_DEPLOY_KERNEL, ESPL_DEPLOY_ENCODER, ESPL_DEPLOY_DECODE };
extern const char *const espl_deploy_forms[];     /* dense, 1x1, 1x2, 2x1, 2x2 */
extern const char *const espl_deploy_baselines[]; /* auto, none, then names of baselines */
enum { ESPL_DEPLOY_AUTO = 0, ESPL_DEPLOY_NONE = 1 };

struct espl_deploy_params {
    int mode;
    struct espl_list tokens;    /* int64_t */
    struct espl_list forms;     /* int, of espl_deploy_forms */
    struct espl_list baselines; /* int, of espl_deploy_baselines */
    const char *tuning;         /* NULL: the rule decides */
    bool atom;
    bool sweep;
    int64_t repeats;
    int64_t threads;
    struct espl_list batches;  /* int64_t, of encoder mode */
    struct espl_list runtimes; /* int, of espl_encoder_runtimes */
    int64_t pictures;          /* to judge accuracy on; 0 = all */
    /* Mode decode. */
    struct espl_list sequences, prompt_tokens, output_tokens; /* int64_t */
    struct espl_list against;                                 /* int, of espl_decode_against */
    int areas;                                                /* of espl_decode_areas */
    int energy;                                               /* enum espl_energy_choice */
    double energy_seconds, energy_idle_seconds;
};

/** Does the job's device mean the CPU? */
bool espl_deploy_is_cpu(const char *device);
/** Is this a baseline of the CPU? */
bool espl_deploy_is_cpu_baseline(int baseline);

enum espl_status espl_deploy_run(struct espl_stage_ctx *ctx,
                                 const struct espl_deploy_params *params, struct espl_error *err);
/** A metric that is a measured time or comes from one: in its name '-' of runtimes and '+' of
 * layers become '_'; what is no finite number was not measured and is left out. Errors: the
 * context's. */
enum espl_status espl_deploy_metric(struct espl_stage_ctx *ctx, const char *name, double value,
                                    struct espl_error *err);
/** Reports the figures of a record: metrics and what the report draws. Errors: those of the
 *  context. */
enum espl_status espl_deploy_report(struct espl_stage_ctx *ctx,
                                    const struct espl_bench_record *record, struct espl_error *err);

#endif
