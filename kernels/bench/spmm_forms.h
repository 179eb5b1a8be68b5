/* Our forms of a weight matrix on the CUDA device, in as many copies as make cold caches. */
#ifndef ESPL_BENCH_SPMM_FORMS_H
#define ESPL_BENCH_SPMM_FORMS_H

#include "espalier/cuda_spmm.h"

#include <stdbool.h>

enum { ESPL_SPMM_MAX_COPIES = 4096 };

/** A matrix to multiply by. */
struct espl_spmm_weights {
    size_t rows;
    size_t cols;
    unsigned bits;       /* of a code: 2, 3 or 4 */
    double sparsity;     /* share of codes that are 0 */
    const int8_t *codes; /* (rows, cols), host, borrowed */
};

struct espl_spmm_form {
    const char *name; /* dense, int3, int2, 1x1, 1x2, 2x1, 2x2 */
    bool sparse;      /* bytes depend on the codes */
    bool lossless;    /* holds these codes; int3 and int2 hold random ones of their own */
    size_t count;     /* of copies; 0 = not made yet */
    bool cold;        /* the copies are worth what was asked for */
    struct espl_cuda_matrix *copies[ESPL_SPMM_MAX_COPIES];
};

/** Makes an empty form; copies worth cold_bytes, at least one. Errors: USAGE for a name that no
 *  form has, UNSUPPORTED, NOMEM, MACHINE. */
enum espl_status espl_spmm_form_make(struct espl_spmm_form *form, const char *name,
                                     const struct espl_spmm_weights *weights, size_t cold_bytes,
                                     struct espl_error *err);
/** Frees the copies; the form is empty again. */
void espl_spmm_form_free(struct espl_spmm_form *form);

#endif
