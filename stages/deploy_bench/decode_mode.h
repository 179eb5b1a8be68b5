/* deploy-bench, mode decode: whole language models, token by token. */
#ifndef ESPL_STAGES_DECODE_MODE_H
#define ESPL_STAGES_DECODE_MODE_H

#include "engine/stage.h"
#include "stages/deploy_bench/decode_record.h"
#include "stages/deploy_bench/deploy_run.h"

/** Values of the enum parameters. */
extern const char *const espl_decode_against[]; /* dense-int4, dense-int8, dense-fp16, none */
extern const char *const espl_decode_areas[];   /* auto, dense, 1x1, 1x2, 2x1, 2x2 */

/** Checks the parameters and the model, and estimates. Errors: JOB, KIND, UNSUPPORTED, blamed. */
enum espl_status espl_decode_plan(struct espl_plan_ctx *ctx,
                                  const struct espl_deploy_params *params,
                                  struct espl_estimate *est, struct espl_error *err);
/** Measures, writes the artifact and reports. */
enum espl_status espl_decode_run(struct espl_stage_ctx *ctx,
                                 const struct espl_deploy_params *params, struct espl_error *err);

#endif
