/* The linears that a search decides about, in the order that every array of levels has. */
#ifndef ESPL_STAGES_NM_LAYERS_H
#define ESPL_STAGES_NM_LAYERS_H

#include "engine/param.h"
#include "model/arch.h"
#include "search/latency_table.h"

struct espl_nm_layer {
    struct espl_tensor_spec spec; /* of its weight (out, in); spec.layer is its block */
    size_t tokens;                /* rows of one image that it multiplies */
};

/** By block, within a block in canonical order. */
struct espl_nm_layers {
    struct espl_nm_layer *items;
    size_t count;
};

/** Block linears of an image model that fit `targets` and nothing of `ignore` (lists of patterns).
 *  Embedding, patch merging and heads are never among them. Free with espl_nm_layers_free(), also
 *  after a failure. Errors: KIND for a language model; JOB, blamed on the parameter, for a pattern
 *  that fits nothing and for inputs that m does not divide (naming the layers). */
enum espl_status espl_nm_layers_select(const struct espl_model_config *config, unsigned m,
                                       const struct espl_list *targets,
                                       const struct espl_list *ignore,
                                       struct espl_nm_layers *layers, struct espl_error *err);
/** The same, all of them. */
enum espl_status espl_nm_layers_all(const struct espl_model_config *config, unsigned m,
                                    struct espl_nm_layers *layers, struct espl_error *err);
void espl_nm_layers_free(struct espl_nm_layers *layers);
/** M of a supernet and of the costs of its layers: 4, 8 or 16, else JOB, blamed on param:m. */
enum espl_status espl_nm_check_m(int64_t m, struct espl_error *err);

/** The product of a layer for a batch of images. */
struct espl_latency_shape espl_nm_layer_shape(const struct espl_nm_layer *layer, size_t batch);

#endif
