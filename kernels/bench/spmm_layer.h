/* Quantised layers as Atom has them, for the SpMM bench: what a layer has besides the codes of its
 * weights, its activations on the device, and the kernel that quantises them. */
#ifndef ESPL_BENCH_SPMM_LAYER_H
#define ESPL_BENCH_SPMM_LAYER_H

#include "espalier/cuda_atom.h"

/** Arrays of random layers belong to `memory`, those of a model's are borrowed. */
struct espl_spmm_layer {
    struct espl_quant_shape shape;     /* tokens and weight_bits do not matter */
    struct espl_quant_weights weights; /* without codes */
    const int32_t *order;  /* (in) as in espl_cuda_quantize; NULL: columns as they are */
    const int32_t *row_of; /* (out) as in espl_cuda_atom_form; NULL: rows as they are */
    void *memory;
};

/** Are these the sizes of a layer? Errors: UNSUPPORTED saying why not. */
enum espl_status espl_spmm_layer_check(size_t rows, size_t cols, size_t group, size_t outliers,
                                       struct espl_error *err);
/** A random layer: the last `outliers` of the columns are INT8, the others have scales for groups
 * of `group` columns and two rows; a bias; columns in random order. The same for the same sizes.
 *  *layer: espl_spmm_layer_free() also after an error. Errors: UNSUPPORTED for sizes that no layer
 *  has, NOMEM. */
enum espl_status espl_spmm_layer_make(size_t rows, size_t cols, size_t group, size_t outliers,
                                      struct espl_spmm_layer *layer, struct espl_error *err);
void espl_spmm_layer_free(struct espl_spmm_layer *layer);

/** The layer in a form. codes: (rows, cols) of `bits` bits, of which the first columns, as many as
 *  are not outliers, count. Errors: those of espl_cuda_matrix_create_atom(). */
enum espl_status espl_spmm_layer_upload(const struct espl_spmm_layer *layer, const int8_t *codes,
                                        size_t cols, unsigned bits, enum espl_iebme_areas unit,
                                        struct espl_cuda_matrix **out, struct espl_error *err);

/** Activations of a layer on the device. */
struct espl_spmm_activations {
    const struct espl_spmm_layer *layer;
    size_t tokens; /* of the next launch of the quantiser */
    void *halves;  /* (most tokens, in) FP16 */
    void *order, *nonfinite;
    void *codes; /* what the quantiser makes of them */
};

/** Random ones for up to most_tokens tokens. *x: freed by the caller also after an error. Errors:
 *  NOMEM, MACHINE. */
enum espl_status espl_spmm_activations_make(const struct espl_spmm_layer *layer, size_t most_tokens,
                                            struct espl_spmm_activations *x,
                                            struct espl_error *err);
void espl_spmm_activations_free(struct espl_spmm_activations *x);
/** launch() of struct espl_cuda_subject; self: a struct espl_spmm_activations. All launches read
 *  the same activations. */
enum espl_status espl_spmm_activations_launch(void *self, size_t copy, bool overlap, void *stream,
                                              struct espl_error *err);
/** Quantises them once and waits. Errors: those of the quantiser. */
enum espl_status espl_spmm_activations_quantise(struct espl_spmm_activations *x, size_t tokens,
                                                struct espl_error *err);

#endif
