/* Which linear layers a pruning stage works on, and whether its pattern fits them. Everything here
 * follows from the parameters and the model's sizes alone, so `plan` and `run` share it. */
#ifndef ESPL_STAGES_PRUNE_SELECT_H
#define ESPL_STAGES_PRUNE_SELECT_H

#include "engine/param.h"
#include "model/arch.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum espl_prune_tail { ESPL_PRUNE_TAIL_REFUSE, ESPL_PRUNE_TAIL_DENSE };
/** YAML words of enum espl_prune_tail; ends with NULL. */
extern const char *const espl_prune_tail_choices[];

/** Parameters that every pruning stage has. */
struct espl_prune_params {
    double sparsity;                  /* fraction to remove, without a pattern */
    struct espl_nm pattern;           /* keep n of m; {0, 0} = unstructured */
    int tail;                         /* enum espl_prune_tail */
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
 * Errors: JOB (blamed on the parameter) for a pattern that fits nothing, an empty block range,
 * nothing selected, a sparsity that contradicts the pattern, or columns that the pattern does not
 * divide (naming layers and sizes). */
enum espl_status espl_prune_select(const struct espl_model_config *config,
                                   const struct espl_prune_params *params,
                                   struct espl_prune_selection *selection, struct espl_error *err);
void espl_prune_selection_free(struct espl_prune_selection *selection);

/** The selected linear of `layer` with `role`; NULL when it is not selected. */
const struct espl_prune_linear *
espl_prune_selection_find(const struct espl_prune_selection *selection, uint64_t layer,
                          enum espl_role role);
/** Has block `layer` a selected linear? */
bool espl_prune_selection_has_layer(const struct espl_prune_selection *selection, uint64_t layer);

#endif
