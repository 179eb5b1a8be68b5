/* The run of atom-quantize, block by block: order from the inputs of the model as it came, Hessians
 * with quantised activations flowing in, codes into a unit file, hidden states onward through the
 * quantised block. */
#ifndef ESPL_STAGES_ATOM_RUN_H
#define ESPL_STAGES_ATOM_RUN_H

#include "stages/atom_quantize/atom_setup.h"

/** Makes the output "model" from the inputs "model" and "tokens". Blocks whose unit exists are
 * replayed from their codes, so a resumed run gives the bytes of an uninterrupted one.
 * Errors: NUMERIC (activation or weight not finite, a removed weight that is not 0, quality check),
 * JOB and KIND as at plan time, CANCELLED, NOMEM, NOSPACE, IO. */
enum espl_status espl_atom_run(struct espl_stage_ctx *ctx, const struct espl_atom_params *params,
                               struct espl_error *err);

#endif
