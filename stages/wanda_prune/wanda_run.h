/* The run of wanda-prune: block by block, statistics from the dense block, masks into a unit file,
 * hidden states onward. */
#ifndef ESPL_STAGES_WANDA_RUN_H
#define ESPL_STAGES_WANDA_RUN_H

#include "stages/wanda_prune/wanda_setup.h"

/** Makes the output "model" from the inputs "model" and "tokens". Blocks whose unit exists are
 * replayed from their masks, so a resumed run gives the bytes of an uninterrupted one.
 * Errors: NUMERIC (activation or weight not finite, quality check), JOB and KIND as at plan time,
 * CANCELLED, NOMEM, NOSPACE, IO. */
enum espl_status espl_wanda_run(struct espl_stage_ctx *ctx, const struct espl_wanda_params *params,
                                struct espl_error *err);

#endif
