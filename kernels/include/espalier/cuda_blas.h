/* Dense products on a CUDA device by NVIDIA's cuBLAS, which is looked for at run time: what our own
 * kernels are compared with, and what multiplies where weights are neither sparse nor of few bits
 * (a model's head, attention). FP16 operands, sums in FP32. Pointers called `device` are device
 * memory; streams are cudaStream_t, NULL = default. */
#ifndef ESPALIER_CUDA_BLAS_H
#define ESPALIER_CUDA_BLAS_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The library and work space on the device. Use it in one stream at a time. */
struct espl_cuda_blas;

/** Errors: UNSUPPORTED (no cuBLAS on this machine, or built without CUDA), NOMEM, MACHINE. */
enum espl_status espl_cuda_blas_create(struct espl_cuda_blas **out, struct espl_error *err);
/** NULL is allowed. */
void espl_cuda_blas_destroy(struct espl_cuda_blas *blas);

/** y = scale * x W^T, for `batch` products whose operands lie `*_step` values apart. All arrays are
 *  row-major and in device memory, strides in values. A step of 0 uses an operand again. */
struct espl_cuda_blas_product {
    const uint16_t *x; /* (tokens, in) FP16 */
    const uint16_t *w; /* (out, in) FP16; transposed: (in, out) */
    void *y;           /* (tokens, out) FP16, or FP32 when float_result */
    size_t tokens, in, out;
    size_t x_stride, w_stride, y_stride;
    size_t batch; /* 1 or more */
    size_t x_step, w_step, y_step;
    float scale;
    bool add; /* y = y + scale * x W^T */
    bool transposed;
    bool float_result;
};

/** Launches the product; may be captured in a CUDA graph. Errors: UNSUPPORTED for sizes beyond an
 *  int, MACHINE. */
enum espl_status espl_cuda_blas_run(struct espl_cuda_blas *blas,
                                    const struct espl_cuda_blas_product *product, void *stream,
                                    struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
