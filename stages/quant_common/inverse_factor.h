/* The factor that GPTQ and SparseGPT share: U upper triangular, U^T U = (H + damping)^-1. Linears
 * with the same input (q, k, v; gate, up) share one factor. */
#ifndef ESPL_STAGES_INVERSE_FACTOR_H
#define ESPL_STAGES_INVERSE_FACTOR_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_inverse_factor {
    size_t cols;
    double *upper; /* (cols, cols) row-major; lower triangle 0 */
    bool *dead;    /* (cols): H_cc was 0; the weights of the column become 0 */
    size_t dead_count;
    double damp;       /* fraction of the mean diagonal that was added in the end */
    unsigned attempts; /* 1 = as asked */
    bool identity;     /* nothing worked: U = I, so GPTQ is round to nearest */
};

/** Default damping and the largest one that escalation tries. */
extern const double ESPL_DAMP_DEFAULT; /* 0.01 */
extern const double ESPL_DAMP_LIMIT;   /* 10 */

/** hessian (cols, cols) symmetric, undamped, in column order; unchanged. Dead channels get H_cc =
 * 1; then damp * mean(diagonal) is added to the diagonal. While the factorisation fails, damp is
 *  multiplied by 10 up to ESPL_DAMP_LIMIT; after that the factor is the identity: the caller notes
 *  it, naming the layer. damp > 0. *factor: freed with espl_inverse_factor_free(), also after an
 *  error. Errors: NUMERIC (an entry is not finite or a diagonal entry is negative, naming the
 *  channel), NOMEM, UNSUPPORTED. */
enum espl_status espl_inverse_factor_create(const double *hessian, size_t cols, double damp,
                                            struct espl_inverse_factor *factor,
                                            struct espl_error *err);
/** U = I, no dead channel: what round to nearest corresponds to. */
enum espl_status espl_inverse_factor_identity(size_t cols, struct espl_inverse_factor *factor,
                                              struct espl_error *err);
void espl_inverse_factor_free(struct espl_inverse_factor *factor);

/** Output error of replacing w by approximation, both (rows, cols) float32: absolute = sum of
 *  d H d^T, relative = that over the sum of w H w^T (0 when both are 0). */
enum espl_status espl_output_error(size_t rows, size_t cols, const float *w,
                                   const float *approximation, const double *hessian,
                                   unsigned threads, double *absolute, double *relative,
                                   struct espl_error *err);

#endif
