/* Linear algebra of second-order compression (GPTQ, SparseGPT), in double on OpenBLAS.
 *
 * All results are the same for any number of threads: BLAS runs with one thread a call on pieces
 * whose borders depend on shapes alone. Matrices are row-major. Opening the cpu backend first is
 * not needed. */
#ifndef ESPALIER_LINALG_H
#define ESPALIER_LINALG_H

#include "espalier/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Every BLAS call of ours is one piece of a loop that already has a thread per core: one thread a
 *  call for the rest of the process. For callers that use espl_subtract_*() in their own loops. */
void espl_blas_use_one_thread(void);

/** Sum of x x^T over the inputs x of a linear layer, H = (2 / windows) * sum: the Hessian of the
 *  layer's squared output error [SparseGPT, GPTQ]. One window is one calibration sequence. */
struct espl_hessian;

/** Host bytes of a Hessian of `width` channels. */
uint64_t espl_hessian_bytes(size_t width);
/** Errors: NOMEM; UNSUPPORTED when BLAS cannot count that far. */
enum espl_status espl_hessian_create(size_t width, struct espl_hessian **out,
                                     struct espl_error *err);
void espl_hessian_destroy(struct espl_hessian *hessian);
/** Adds x (windows * tokens, width). Products of up to 512 tokens of one window are float32 sgemm,
 *  their sums double; so the result depends neither on threads nor on how windows are batched.
 *  Errors: NUMERIC for a value that is not finite or whose square is not, naming window (counted
 *  since creation), token and channel; NOMEM. After an error the object can only be destroyed. */
enum espl_status espl_hessian_add(struct espl_hessian *hessian, struct espl_backend *backend,
                                  size_t windows, size_t tokens, const float *x,
                                  struct espl_error *err);
size_t espl_hessian_width(const struct espl_hessian *hessian);
uint64_t espl_hessian_windows(const struct espl_hessian *hessian);
/** diagonal (width) of H: what channels are ordered by. All zero before the first window. */
void espl_hessian_diagonal(const struct espl_hessian *hessian, double *diagonal);
/** full (width, width) <- H, both triangles, rows and columns in `order` (width: original channel
 * at each place; NULL = as they are). */
void espl_hessian_matrix(const struct espl_hessian *hessian, const int32_t *order, double *full);

/** Replaces the symmetric matrix a (n, n) by the upper triangular U with U^T U = a^-1; the lower
 *  triangle becomes zero. Only the upper triangle of a is read. *info = 0; or > 0 when a is not
 *  positive definite (LAPACK's number), then a holds nothing useful and the status is still OK, so
 *  that the caller can damp more. Errors: UNSUPPORTED (n too large for LAPACK), INTERNAL. */
enum espl_status espl_cholesky_of_inverse(size_t n, double *a, int *info, struct espl_error *err);

/** A (rows, cols; row stride lda) -= column (rows) * row (cols)^T. For use inside a parallel loop.
 *  Sizes must fit int. */
void espl_subtract_outer(size_t rows, size_t cols, const double *column, size_t column_stride,
                         const double *row, double *a, size_t lda);
/** C (rows, cols; stride ldc) -= A (rows, inner; stride lda) * B (inner, cols; stride ldb). */
void espl_subtract_product(size_t rows, size_t cols, size_t inner, const double *a, size_t lda,
                           const double *b, size_t ldb, double *c, size_t ldc);
/** sum over rows r of d_r H d_r^T for d (rows, n) and symmetric H (n, n, both triangles): the
 * output error that a weight change d makes, when H is the Hessian (times 2 / windows). */
enum espl_status espl_quadratic_error(size_t rows, size_t n, const double *d, const double *h,
                                      unsigned threads, double *sum, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
