/* The run of row-reorder, block by block: codes in, permutations into a unit file. */
#ifndef ESPL_STAGES_REORDER_RUN_H
#define ESPL_STAGES_REORDER_RUN_H

#include "engine/stage.h"

enum espl_reorder_scope_choice { ESPL_REORDER_STRIPE, ESPL_REORDER_TILE };
/** YAML words; ends with NULL. */
extern const char *const espl_reorder_scope_choices[];

struct espl_reorder_params {
    int64_t rows; /* R_A: 1, 2 or 4 */
    int64_t cols; /* C_A: 1, 2 or 4 */
    int scope;    /* enum espl_reorder_scope_choice */
};

/** Description of the output; base: content hash of the model, NULL when it is not known yet. NULL
 *  when out of memory. New reference. */
json_t *espl_reorder_describe(const struct espl_reorder_params *params, const char *base);
/** Makes the output "order" from the input "model". Blocks whose unit exists are not solved again.
 *  Errors: CORRUPT, CANCELLED, NOMEM, NOSPACE, IO. */
enum espl_status espl_reorder_run(struct espl_stage_ctx *ctx,
                                  const struct espl_reorder_params *params, struct espl_error *err);

#endif
