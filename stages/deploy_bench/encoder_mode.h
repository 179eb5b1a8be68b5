/* deploy-bench, mode encoder: whole passes of an image model on the CUDA device. */
#ifndef ESPL_STAGES_ENCODER_MODE_H
#define ESPL_STAGES_ENCODER_MODE_H

#include "engine/stage.h"
#include "stages/deploy_bench/deploy_run.h"
#include "stages/deploy_bench/encoder_record.h"

/** Is this the description of a model that is packed N:M? */
bool espl_encoder_is_packed(const json_t *description);
/** Checks the parameters and the inputs, and estimates. Errors: JOB, KIND, UNSUPPORTED, blamed. */
enum espl_status espl_encoder_plan(struct espl_plan_ctx *ctx,
                                   const struct espl_deploy_params *params,
                                   struct espl_estimate *est, struct espl_error *err);
/** Measures, writes the artifact and reports. */
enum espl_status espl_encoder_run(struct espl_stage_ctx *ctx,
                                  const struct espl_deploy_params *params, struct espl_error *err);
/** Metrics and what the report draws. Errors: those of the context. */
enum espl_status espl_encoder_report(struct espl_stage_ctx *ctx,
                                     const struct espl_encoder_record *record,
                                     struct espl_error *err);

#endif
