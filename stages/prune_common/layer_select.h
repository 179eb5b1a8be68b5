/* Which linear layers of a model's blocks a stage works on. Everything here follows from the
 * parameters and the model's sizes alone, so `plan` and `run` share it. */
#ifndef ESPL_STAGES_LAYER_SELECT_H
#define ESPL_STAGES_LAYER_SELECT_H

#include "engine/param.h"
#include "model/arch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_artifact;

/** Parameters that say which layers. */
struct espl_layer_choice {
    struct espl_list targets, ignore; /* items: const char * */
    int64_t first_layer, last_layer;  /* -1 = last block */
};

/** One linear layer inside a block. */
struct espl_prune_linear {
    struct espl_tensor_spec spec; /* of its weight */
    bool selected;
};

/** The linear layers of all blocks in canonical order. */
struct espl_prune_selection {
    struct espl_prune_linear *linears;
    size_t count;
    size_t selected;
    size_t all_linears; /* with the head and the embedding projections */
    uint64_t layers;
    uint64_t selected_layers; /* blocks with at least one selected linear */
    uint64_t selected_elements;
    uint64_t block_elements;      /* weights of all linears of blocks */
    uint64_t parameters;          /* of the whole model; tied matrices count once */
    uint64_t selected_mask_bytes; /* bits of the selected linears, rows padded to bytes */
};

/** Selects linears whose module name fits `targets`, fits nothing of `ignore`, and whose block lies
 * in [first_layer, last_layer]. Embeddings, head, norms and project_in/out are never selected.
 * *selection: freed with espl_prune_selection_free(), also after a failure.
 * Errors: JOB (blamed on the parameter) for a pattern that fits nothing, an empty block range, or
 * nothing selected. */
enum espl_status espl_layers_select(const struct espl_model_config *config,
                                    const struct espl_layer_choice *choice,
                                    struct espl_prune_selection *selection, struct espl_error *err);
void espl_prune_selection_free(struct espl_prune_selection *selection);

/** The selected linear of `layer` with `role`; NULL when it is not selected. */
const struct espl_prune_linear *
espl_prune_selection_find(const struct espl_prune_selection *selection, uint64_t layer,
                          enum espl_role role);
/** Has block `layer` a selected linear? */
bool espl_prune_selection_has_layer(const struct espl_prune_selection *selection, uint64_t layer);

/** What a stage does with one selected linear; unit: the block's unit file. */
typedef enum espl_status (*espl_prune_linear_fn)(void *user, const struct espl_prune_linear *linear,
                                                 struct espl_artifact *unit,
                                                 struct espl_error *err);
/** Does it for every selected linear of a block, in canonical order; stops at the first error. */
enum espl_status espl_prune_for_block(const struct espl_prune_selection *selection, uint64_t layer,
                                      espl_prune_linear_fn work, void *user,
                                      struct espl_artifact *unit, struct espl_error *err);

#endif
