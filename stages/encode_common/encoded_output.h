/* The output of an encoding stage, put together from the units of its blocks. */
#ifndef ESPL_STAGES_ENCODED_OUTPUT_H
#define ESPL_STAGES_ENCODED_OUTPUT_H

#include "engine/stage.h"
#include "model/model.h"

/** Makes the unit of one block. Errors: those of the method. */
typedef enum espl_status (*espl_encoded_block_fn)(void *user, uint64_t layer,
                                                  struct espl_error *err);
/** Calls `block` for every block of `model` whose unit no earlier run has left, with progress. */
enum espl_status espl_encoded_blocks(struct espl_stage_ctx *ctx, const struct espl_model *model,
                                     espl_encoded_block_fn block, void *user,
                                     struct espl_error *err);
/** Output "model" <- the datasets of all blocks' units and the tensors of `model` outside blocks;
 *  totals (count) += the counts of the units (encode_common/unit_counts.h). The output was begun.
 *  Errors: CORRUPT, NOMEM, NOSPACE, IO. */
enum espl_status espl_encoded_assemble(struct espl_stage_ctx *ctx, struct espl_model *model,
                                       const char *const *names, uint64_t *totals, size_t count,
                                       struct espl_error *err);

#endif
