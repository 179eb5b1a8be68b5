/* What the pruning stages do with artifacts: masks go into one unit file a block, and at the end
 * into the output, where the sparsity is counted from what is stored. */
#ifndef ESPL_STAGES_PRUNE_STORE_H
#define ESPL_STAGES_PRUNE_STORE_H

#include "engine/stage.h"
#include "espalier/kernels.h"
#include "model/model.h"
#include "stages/prune_common/prune_select.h"

/** Opens the CPU backend for a stage. A job whose device is a GPU gets a logged warning: these
 * stages have no GPU path. Errors: as espl_backend_open(). */
enum espl_status espl_prune_open_backend(const struct espl_stage_ctx *ctx,
                                         struct espl_backend **backend, struct espl_error *err);

/** Mask bytes of a linear. Errors: NOMEM on overflow. */
enum espl_status espl_prune_mask_bytes(const struct espl_tensor_spec *weight, size_t *bytes,
                                       struct espl_error *err);

/** Adds to `mask` (whole linear) what the input model has already removed, writes it to `unit` and
 * reports the layer metric "sparsity". */
enum espl_status espl_prune_store_mask(struct espl_stage_ctx *ctx, struct espl_model *model,
                                       const struct espl_prune_linear *linear,
                                       struct espl_artifact *unit, uint8_t *mask,
                                       struct espl_error *err);

/** Reads the mask of a linear (selected when the unit was made) out of a unit file. *mask:
 * malloc'ed, owned by the caller, rows x stride. Errors: NOTFOUND, CORRUPT, NOMEM. */
enum espl_status espl_prune_read_unit_mask(struct espl_artifact *unit,
                                           const struct espl_tensor_spec *weight, uint8_t **mask,
                                           struct espl_error *err);

/** Makes the output: description with `pruning` (its reference is taken; NULL = there was no memory
 * for it), the masks of all units, and the masks
 * that the input model has on linears that were not selected. Counts the stored masks and reports
 * sparsity_targeted, sparsity_block_linears and sparsity_all. */
enum espl_status espl_prune_finish(struct espl_stage_ctx *ctx, struct espl_model *model,
                                   const struct espl_prune_selection *selection, json_t *pruning,
                                   struct espl_error *err);

/** Members that every pruning stage records: pattern, sparsity, tail, targets, ignore, block range,
 * counts. NULL when out of memory. New reference. */
json_t *espl_prune_describe(const char *method, const struct espl_prune_params *params,
                            const struct espl_prune_selection *selection);

#endif
