/* What stages that change a model do at plan time, and the JSON of their descriptions. */
#ifndef ESPL_STAGES_MODEL_PLAN_H
#define ESPL_STAGES_MODEL_PLAN_H

#include "engine/stage.h"

/** Predicts output "model": architecture and config of the input model's description (borrowed),
 * its "pruning" unless that is what is added, and `name` = value (its reference is taken; NULL =
 * there was no memory for it). Errors: NOMEM. */
enum espl_status espl_model_plan_output(struct espl_plan_ctx *ctx, const json_t *model,
                                        const char *name, json_t *value, struct espl_error *err);

/** object with the members of `more` appended; takes both references. NULL when one of them is
 * NULL or memory is short. New reference. */
json_t *espl_json_join(json_t *object, json_t *more);

#endif
