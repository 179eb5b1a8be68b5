/* The run of nm-pack, block by block: masked weights in, packed codes and all that is not packed
 * out. */
#ifndef ESPL_STAGES_PACK_RUN_H
#define ESPL_STAGES_PACK_RUN_H

#include "engine/stage.h"
#include "stages/nm_pack/pack_setup.h"

/** Makes the output "model" from the input "model". Blocks whose unit exists are not packed again.
 *  Errors: those of espl_pack_setup_make() and espl_pack_linear(), CANCELLED, NOSPACE, IO. */
enum espl_status espl_pack_run(struct espl_stage_ctx *ctx, const struct espl_pack_params *params,
                               struct espl_error *err);

#endif
