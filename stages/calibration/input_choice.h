/* Stages that take tokens for a language model and images for an image model: which of the two
 * optional ports must be connected. */
#ifndef ESPL_STAGES_INPUT_CHOICE_H
#define ESPL_STAGES_INPUT_CHOICE_H

#include "engine/stage.h"
#include "model/config.h"

/** At plan time: one of ports "tokens" and "images" is connected, and it is the one that the model
 *  reads (config: NULL while the model is not known). stage: for messages. Errors: JOB; KIND,
 * blamed on the port. */
enum espl_status espl_input_choice_plan(const struct espl_plan_ctx *ctx, const char *stage,
                                        const struct espl_model_config *config,
                                        struct espl_error *err);
/** At run time, when the model is known for certain: JOB when its port is not connected. */
enum espl_status espl_input_choice_run(struct espl_stage_ctx *ctx,
                                       const struct espl_model_config *config,
                                       struct espl_error *err);

#endif
