/* The output of an encoding stage, put together from the units of its blocks. */
#ifndef ESPL_STAGES_ENCODED_OUTPUT_H
#define ESPL_STAGES_ENCODED_OUTPUT_H

#include "engine/stage.h"
#include "model/model.h"

/** Output "model" <- the datasets of all blocks' units and the tensors of `model` outside blocks;
 *  totals (count) += the counts of the units (encode_common/unit_counts.h). The output was begun.
 *  Errors: CORRUPT, NOMEM, NOSPACE, IO. */
enum espl_status espl_encoded_assemble(struct espl_stage_ctx *ctx, struct espl_model *model,
                                       const char *const *names, uint64_t *totals, size_t count,
                                       struct espl_error *err);

#endif
