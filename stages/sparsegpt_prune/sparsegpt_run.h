/* The run of sparsegpt-prune, block by block: Hessians of what the pruned blocks before let
 * through, changed weights and masks into a unit file, hidden states onward through the pruned
 * block. */
#ifndef ESPL_STAGES_SPARSEGPT_RUN_H
#define ESPL_STAGES_SPARSEGPT_RUN_H

#include "stages/sparsegpt_prune/sparsegpt_setup.h"

/** Makes the output "model" from the inputs "model" and "tokens". Blocks whose unit exists are
 * replayed from their weights, so a resumed run gives the bytes of an uninterrupted one.
 * Errors: NUMERIC (activation or weight not finite, quality check), JOB and KIND as at plan time,
 * CANCELLED, NOMEM, NOSPACE, IO. */
enum espl_status espl_sparsegpt_run(struct espl_stage_ctx *ctx,
                                    const struct espl_sparsegpt_params *params,
                                    struct espl_error *err);

#endif
