/* evaluate for image models: top-1, top-5 and loss on labelled pictures, KL divergence from a base
 * model. */
#ifndef ESPL_STAGES_EVALUATE_IMAGES_H
#define ESPL_STAGES_EVALUATE_IMAGES_H

#include "engine/stage.h"
#include "eval/vision_quality.h"

/** Checks the pictures against the models and estimates. base: NULL when unknown or not connected;
 *  asked: pictures to take, 0 = all. Blames the port or the parameter. */
enum espl_status espl_evaluate_plan_images(struct espl_plan_ctx *ctx,
                                           const struct espl_model_config *config,
                                           const struct espl_model_config *base, uint64_t asked,
                                           struct espl_estimate *est, struct espl_error *err);
/** Measures, writes the metrics artifact and reports. base: NULL allowed. */
enum espl_status espl_evaluate_run_images(struct espl_stage_ctx *ctx, struct espl_model *model,
                                          struct espl_model *base, struct espl_backend *backend,
                                          uint64_t asked, struct espl_error *err);

#endif
