/* A linear on a CUDA device: bytes packed N:M with scales of rows and tokens, or FP16 weights by
 * cuBLAS. Packed ones may be multiplied as dense bytes by cuBLASLt (device_vision_library.h).
 * Internal to eval and to stages that measure. */
#ifndef ESPL_EVAL_DEVICE_VISION_LINEAR_H
#define ESPL_EVAL_DEVICE_VISION_LINEAR_H

#include "espalier/cuda_blas.h"
#include "espalier/cuda_blaslt.h"
#include "espalier/cuda_nm.h"
#include "model/quantised.h"

/** Arrays are in device memory. Either matrix and product are there, or halves, or, where a library
 *  is only measured, bytes alone. */
struct espl_device_vision_linear {
    size_t out, in;
    struct espl_cuda_nm_matrix *matrix; /* owned */
    struct espl_cuda_nm *product;
    float *scales;                                  /* (out), of rows */
    float *bias;                                    /* (out); NULL = 0 */
    uint16_t *halves;                               /* (out, half_stride) FP16 */
    size_t half_stride;                             /* in, rounded up to whole 16 bytes */
    const struct espl_cuda_blaslt_product *library; /* NULL: the product above runs; borrowed */
    size_t algorithm;                               /* of the library */
    int8_t *bytes; /* (out, in), all of them, for the library; owned */
    int32_t *sums; /* (tokens, out): room for its result, borrowed */
};

/** FP16 values of a row of `cols` that begins at whole 16 bytes. */
size_t espl_device_vision_half_stride(size_t cols);
/** Bytes of a row of codes that the packed products read. */
size_t espl_device_vision_code_stride(size_t cols);

/** From a packed linear of a model, for `tokens` tokens. n: to pack it at, at least what it keeps:
 *  its M = dense; 0 = as it is. *linear is freed by the caller, also after an error. */
enum espl_status espl_device_vision_linear_pack(const struct espl_quant_linear *packed, unsigned n,
                                                size_t tokens,
                                                struct espl_device_vision_linear *linear,
                                                struct espl_error *err);
/** From float weights (out, in); bias (out), NULL = 0. */
enum espl_status espl_device_vision_linear_halve(const float *weights, const float *bias,
                                                 size_t out, size_t in,
                                                 struct espl_device_vision_linear *linear,
                                                 struct espl_error *err);
/** Takes over another matrix of the same size. Errors: those of espl_cuda_nm_create(); then the
 *  matrix is still the caller's. */
enum espl_status espl_device_vision_linear_replace(struct espl_device_vision_linear *linear,
                                                   struct espl_cuda_nm_matrix *matrix,
                                                   size_t tokens, struct espl_error *err);
void espl_device_vision_linear_free(struct espl_device_vision_linear *linear);
/** Bytes of weights that a product reads. */
uint64_t espl_device_vision_linear_bytes(const struct espl_device_vision_linear *linear);

/** Launches y (tokens, out) FP16 = linear(x) of a packed linear, by whoever multiplies; the bits
 * are the same. codes: rows of espl_device_vision_code_stride(in) bytes; scales (tokens). */
enum espl_status espl_device_vision_linear_run(const struct espl_device_vision_linear *linear,
                                               const int8_t *codes, const float *scales,
                                               size_t tokens, uint16_t *y, void *stream,
                                               struct espl_error *err);
/** Launches y (tokens, out) = x W^T of an FP16 linear, without its bias. x: rows of x_stride
 *  values; y: FP16, or FP32 with float_result. */
enum espl_status espl_device_vision_linear_multiply(const struct espl_device_vision_linear *linear,
                                                    struct espl_cuda_blas *blas, const uint16_t *x,
                                                    size_t x_stride, size_t tokens,
                                                    bool float_result, void *y, void *stream,
                                                    struct espl_error *err);

#endif
