/* Our forms of a weight matrix, or of a quantised layer, on the CUDA device, in as many copies as
 * make cold caches. */
#ifndef ESPL_BENCH_SPMM_FORMS_H
#define ESPL_BENCH_SPMM_FORMS_H

#include "espalier/cuda_spmm.h"
#include "kernels/bench/spmm_layer.h"

#include "kernels/bench/spmm_peer.h"

#include <stdbool.h>

enum { ESPL_SPMM_MAX_COPIES = 4096 };

/** A matrix to multiply by. */
struct espl_spmm_weights {
    size_t rows;
    size_t cols;
    unsigned bits;                       /* of a code: 2, 3 or 4 */
    double sparsity;                     /* share of codes that are 0 */
    const int8_t *codes;                 /* (rows, cols), host, borrowed */
    const struct espl_spmm_layer *layer; /* what the layer has besides codes, borrowed; NULL: codes
                                            are all that is measured */
};

struct espl_spmm_form {
    const char *name; /* dense, int3, int2, 1x1, 1x2, 2x1, 2x2, mixed */
    bool layer;       /* with the scales, outliers and bias of the weights' layer */
    bool sparse;      /* bytes depend on the codes */
    bool lossless;    /* holds these codes; int3 and int2 hold random ones of their own */
    size_t count;     /* of copies; 0 = not made */
    bool cold;        /* the copies are worth what was asked for */
    char why[ESPL_SPMM_PEER_TEXT]; /* a layer that the kernels do not take: why */
    struct espl_cuda_matrix *copies[ESPL_SPMM_MAX_COPIES];
};

/** Makes an empty form; copies worth cold_bytes, at least one. layer: of weights->layer, not of the
 *  codes alone. Errors: USAGE for a name that no form has, UNSUPPORTED, NOMEM, MACHINE. */
enum espl_status espl_spmm_form_make(struct espl_spmm_form *form, const char *name, bool layer,
                                     const struct espl_spmm_weights *weights, size_t cold_bytes,
                                     struct espl_error *err);
/** Frees the copies; the form is empty again. */
void espl_spmm_form_free(struct espl_spmm_form *form);

#endif
