/* Quantised linear layers as Atom has them on a CUDA device: y = x W^T + bias in FP16 or FP32, for
 * few tokens. The same mathematics as gemm_w4a4 and spmm_iebme of espalier/kernels.h: codes are
 * multiplied exactly in int32, groups of columns have scales of weights and of tokens, the last
 * channels are INT8. Design and measurements: docs/kernels/spmm.md.
 *
 * Order of use: espl_cuda_matrix_create_atom*() puts a layer on the device,
 * espl_cuda_spmm_create() of cuda_spmm.h prepares it for a number of tokens,
 * espl_cuda_quantize_activations() turns FP16 activations into codes and scales, and
 * espl_cuda_atom_run() launches the product. In a build without CUDA all of it answers UNSUPPORTED.
 */
#ifndef ESPALIER_CUDA_ATOM_H
#define ESPALIER_CUDA_ATOM_H

#include "espalier/cuda_spmm.h"
#include "espalier/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What a layer needs besides shape and weights. */
struct espl_cuda_atom_form {
    enum espl_iebme_areas unit; /* dense (2, 3 or 4 bits), 1x1, 1x2, 2x1, 2x2 (4-bit values) */
    const int32_t *row_of;      /* (out) place of each row's result in y; NULL = as rows stand. A
                                   permutation: a quantised layer's row_order, say */
};

/** From packed codes. shape: tokens does not matter; weight_bits 2 to 4, activation_bits 4, any
 *  groups and outliers. All memory is the host's and borrowed for the call. Errors: UNSUPPORTED for
 *  other shapes or no CUDA, CORRUPT for row_of that is no permutation; NOMEM, MACHINE. */
enum espl_status espl_cuda_matrix_create_atom(const struct espl_quant_shape *shape,
                                              const struct espl_quant_weights *w,
                                              const struct espl_cuda_atom_form *form,
                                              struct espl_cuda_matrix **out,
                                              struct espl_error *err);
/** From encoded codes. Permutations of tiles are undone here; rows permuted by stripe stay so on
 *  the device, where union masks are the smaller for it, and the kernel writes their results where
 *  they belong. Errors: as above, and those of espl_iebme_check(). */
enum espl_status espl_cuda_matrix_create_atom_iebme(const struct espl_quant_shape *shape,
                                                    const struct espl_iebme_weights *w,
                                                    const struct espl_cuda_atom_form *form,
                                                    struct espl_cuda_matrix **out,
                                                    struct espl_error *err);

/** Bytes of quantised x for up to `tokens` tokens. */
size_t espl_cuda_atom_activation_bytes(const struct espl_quant_shape *shape, size_t tokens);

/** What activations are quantised from and to; device memory. */
struct espl_cuda_quantize {
    const uint16_t *x;    /* (tokens, x_stride) FP16 */
    size_t x_stride;      /* values; at least in */
    const int32_t *order; /* (in) original column at each reordered place; NULL = as it is */
    float clip;           /* of groups, not of outliers; 0 < clip <= 1 */
    uint8_t *codes;       /* espl_cuda_atom_activation_bytes(), 16-byte aligned */
    uint64_t *nonfinite;  /* least token * in + original column of a value that is not finite so
                             far; the caller fills it with bytes 0xFF before */
};

/** Launches the quantiser: the codes and scales of quantize_act (espalier/kernels.h), bit for bit,
 *  in the order in which the kernels read them (docs/kernels/spmm.md). One kernel. Values that are
 *  not finite are reported by espl_cuda_quantize_check(). Errors: UNSUPPORTED, MACHINE. */
enum espl_status espl_cuda_quantize_activations(const struct espl_quant_shape *shape,
                                                const struct espl_cuda_quantize *operands,
                                                void *stream, struct espl_error *err);
/** Waits for the device. Errors: NUMERIC naming token and column as quantize_act does; MACHINE. */
enum espl_status espl_cuda_quantize_check(const struct espl_quant_shape *shape,
                                          const uint64_t *nonfinite, struct espl_error *err);

/** x as quantised for the layer's shape, 16-byte aligned; device. */
struct espl_cuda_atom_operands {
    const uint8_t *x;
    uint16_t *y;     /* (tokens, y_stride) FP16 */
    size_t y_stride; /* values; at least out */
    size_t tokens;   /* 1 to the number given at creation; x was quantised for as many or more */
    float *floats;   /* instead of y: FP32, without the last rounding; or NULL */
};

/** Launches y[t][o] = fp16(f * S), f an exact power of two and S, in FP32, the sum of
 *  - a start: fma((float)acc, w_scale * a_scale, bias) of the INT8 channels, acc exact, then
 *  - pieces: runs of columns that one warp multiplies; a piece is fma((float)acc, w_scale *
 * a_scale, piece) for its steps of 128 columns (32 when groups are not multiples of 128) in
 * ascending order, acc exact. Dense weights: pieces are added to the start in ascending order; the
 * runs depend on the cut of the work alone. Sparse weights: pieces are slices of 512 columns, added
 * exactly as numbers of fixed point, so in any order, and the sum is added to the start. Sums of
 * splits are added in their order. The same product of the same choice gives the same bits always.
 *  Before it is rounded to FP16, S differs from the exact sum of its terms t by at most
 *  2^-23 * (steps + pieces + 3) * sum |t|, for sparse weights plus 2^-40 * pieces * the bound
 *  max a_scale * sum (8 |code| w_scale) of the row. Beyond the range of FP16 y is infinite.
 *  weights, overlap: as espl_cuda_spmm_run(). Errors: UNSUPPORTED for operands that do not fit, or
 *  a matrix without scales; MACHINE. */
enum espl_status espl_cuda_atom_run(const struct espl_cuda_spmm *spmm,
                                    const struct espl_cuda_matrix *weights,
                                    const struct espl_cuda_atom_operands *operands, bool overlap,
                                    void *stream, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
