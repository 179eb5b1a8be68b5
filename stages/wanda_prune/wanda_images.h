/* wanda-prune on image models: statistics of pictures instead of windows of text. */
#ifndef ESPL_STAGES_WANDA_IMAGES_H
#define ESPL_STAGES_WANDA_IMAGES_H

#include "model/model.h"
#include "stages/wanda_prune/wanda_setup.h"

/** Checks the pictures against the model, estimates, predicts the output. model: its description.
 *  Blames the port. */
enum espl_status espl_wanda_plan_images(struct espl_plan_ctx *ctx, const json_t *model,
                                        const struct espl_model_config *config,
                                        const struct espl_wanda_params *params,
                                        const struct espl_prune_selection *selection,
                                        struct espl_estimate *est, struct espl_error *err);
/** The stage's run(). One unit a block; activations of all pictures are kept between blocks, so
 *  memory grows with their number. Errors: KIND, NUMERIC, CANCELLED, NOMEM, IO. */
enum espl_status espl_wanda_run_images(struct espl_stage_ctx *ctx,
                                       const struct espl_wanda_params *params,
                                       struct espl_error *err);

#endif
