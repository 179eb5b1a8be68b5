/* evaluate for language models: perplexity over a text, and the divergence from a base model. */
#ifndef ESPL_STAGES_EVALUATE_TEXT_H
#define ESPL_STAGES_EVALUATE_TEXT_H

#include "engine/stage.h"
#include "espalier/kernels.h"
#include "model/model.h"
#include "stages/evaluate/evaluate_windows.h"

/** Checks the tokens against the models and estimates. base: NULL when unknown or not connected.
 *  Blames the port or the parameter. */
enum espl_status espl_evaluate_plan_text(struct espl_plan_ctx *ctx,
                                         const struct espl_model_config *config,
                                         const struct espl_model_config *base,
                                         const struct espl_evaluate_params *asked,
                                         struct espl_estimate *est, struct espl_error *err);
/** Measures, writes the metrics artifact and reports. base: NULL allowed. */
enum espl_status espl_evaluate_run_text(struct espl_stage_ctx *ctx, struct espl_model *model,
                                        struct espl_model *base, struct espl_backend *backend,
                                        const struct espl_evaluate_params *asked,
                                        struct espl_error *err);

#endif
