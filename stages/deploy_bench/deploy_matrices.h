/* The distinct matrices of a quantised or encoded model. */
#ifndef ESPL_STAGES_DEPLOY_MATRICES_H
#define ESPL_STAGES_DEPLOY_MATRICES_H

#include "kernels/bench/spmm_forms.h"
#include "model/quantised.h"
#include "stages/deploy_bench/bench_record.h"

enum { ESPL_DEPLOY_MAX_MATRICES = 256 };

/** Matrices with the same shape and stored form, by the first of them. */
struct espl_deploy_matrix {
    const struct espl_tensor_spec *spec; /* of that one, borrowed from the model */
    size_t rows;
    size_t cols; /* codes: without outlier columns */
    struct espl_bench_matrix note;
};

struct espl_deploy_matrices {
    struct espl_deploy_matrix items[ESPL_DEPLOY_MAX_MATRICES];
    size_t count;
};

/** Finds them, in the order of the model; stored forms that differ by layer count one by one.
 *  Errors: KIND when no linear is quantised, UNSUPPORTED for more than ESPL_DEPLOY_MAX_MATRICES,
 *  those of reading. */
enum espl_status espl_deploy_find(struct espl_model *model, struct espl_deploy_matrices *matrices,
                                  struct espl_error *err);

/** One of them, read: what a bench is given, and what that borrows. */
struct espl_deploy_layer {
    struct espl_spmm_weights weights;
    struct espl_spmm_layer layer;
    struct espl_quant_linear linear;
    int8_t *codes; /* (rows, cols) */
};

/** Reads a matrix; with_layer: with the linear's scales, outliers, bias and orders, which
 *  layer->weights then points to. *layer must stay where it is; espl_deploy_layer_free() also after
 *  an error. Errors: those of reading, NOMEM. */
enum espl_status espl_deploy_read(struct espl_model *model, const struct espl_deploy_matrix *matrix,
                                  bool with_layer, struct espl_deploy_layer *layer,
                                  struct espl_error *err);
void espl_deploy_layer_free(struct espl_deploy_layer *layer);

#endif
