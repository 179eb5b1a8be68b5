/* What image models (ViT, DeiT, Swin) do beside their linears, on a CUDA device: patches, norms,
 * rounding of activations to bytes, attention, heads. Linears are in cuda_nm.h and cuda_blas.h;
 * eval/device_vision.h makes whole passes of all of them.
 *
 * Every call launches one kernel into the stream (a cudaStream_t, NULL = default), over the end of
 * the kernel before it where the device can, and may be captured in a graph. All pointers are
 * device memory; FP16 values are IEEE halves. Arrays are row-major. Sums and statistics are in
 * FP32, in an order that does not depend on anything but the sizes: equal inputs give equal bits.
 * Errors: UNSUPPORTED for sizes that there is no kernel for and in a build without CUDA; MACHINE.
 */
#ifndef ESPALIER_CUDA_VISION_H
#define ESPALIER_CUDA_VISION_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ESPL_CUDA_VISION_STEP = 4,          /* widths of rows are multiples of this */
    ESPL_CUDA_VISION_MOST_WIDTH = 4096, /* of a row */
    ESPL_CUDA_VISION_HEAD_STEP = 8,     /* head dimensions are multiples of this */
    ESPL_CUDA_VISION_MOST_HEAD = 128
};

/** Pictures to patches. */
struct espl_cuda_vision_patches {
    const uint8_t *pixels; /* (images, size, size, channels) */
    const float *table;    /* (channels, 256): value of a byte */
    size_t images, size, patch, channels;
    uint16_t *patches; /* (images * (size / patch)^2, stride) FP16: channel, row, column; then zeros
                        */
    size_t stride;     /* at least channels * patch^2 */
};
enum espl_status espl_cuda_vision_cut(const struct espl_cuda_vision_patches *patches, void *stream,
                                      struct espl_error *err);

/** x of a ViT: special tokens, then patches, each with its position. */
struct espl_cuda_vision_tokens {
    const float *embedded; /* (images, tokens - specials, width), without bias */
    const float *bias;     /* (width), NULL = 0 */
    const float *special;  /* (specials, width) */
    const float *position; /* (tokens, width) */
    size_t images, tokens, specials, width;
    float *x; /* (images, tokens, width) */
};
enum espl_status espl_cuda_vision_join(const struct espl_cuda_vision_tokens *tokens, void *stream,
                                       struct espl_error *err);

/** Codes of a row: scale = clip * max(largest magnitude, 1e-5) / 127, code = rint(value / scale)
 *  within -128..127, as kernels.h' quantize_act has it. A value that is not a number makes the
 * scale of its row not a number. codes NULL: not wanted. */
struct espl_cuda_vision_codes {
    int8_t *codes; /* (rows, stride), a multiple of 4 bytes; nothing beyond the row is written */
    size_t stride; /* a multiple of 4 */
    float *scales; /* (rows) */
    float clip;
};

/** LayerNorm of x + add, for what the next linear reads. */
struct espl_cuda_vision_norm {
    size_t rows, width;   /* of the result */
    float *x;             /* rows of `width`, `step` values apart */
    size_t step;          /* 0 = width */
    const uint16_t *add;  /* FP16, at the places of x; NULL = nothing */
    const float *add_row; /* (width of x) added to every row, NULL = nothing */
    bool keep;            /* x <- what was normalised */
    size_t side; /* not 0: a row is 2 x 2 cells of x (images, 2 side, 2 side, width / 4), in the
                    order (row, column) = (0,0), (1,0), (0,1), (1,1); without keep and step */
    const float *gain, *bias; /* (width), NULL = 1, 0 */
    float eps;
    float *floats;    /* (rows, width), NULL = not wanted; may be x */
    uint16_t *halves; /* (rows, width) FP16, NULL = not wanted */
    struct espl_cuda_vision_codes codes;
};
enum espl_status espl_cuda_vision_normalise(const struct espl_cuda_vision_norm *norm, void *stream,
                                            struct espl_error *err);

/** Codes of FP16 rows (rows, width), of their GELU when asked. */
enum espl_status espl_cuda_vision_quantise(const uint16_t *x, size_t rows, size_t width, bool gelu,
                                           const struct espl_cuda_vision_codes *codes, void *stream,
                                           struct espl_error *err);

/** y (rows, width) FP16 <- sums of a dense product of codes, as a product of cuda_nm.h with scales
 *  of rows and tokens and a bias stores them: with the same roundings, so equal bits. */
struct espl_cuda_vision_sums {
    const int32_t *sums;        /* (rows, width) */
    size_t rows, width;         /* width: a multiple of 8 */
    const float *column_scales; /* (width) */
    const float *row_scales;    /* (rows) */
    const float *bias;          /* (width), NULL = 0 */
    uint16_t *y;
};
enum espl_status espl_cuda_vision_scale(const struct espl_cuda_vision_sums *sums, void *stream,
                                        struct espl_error *err);

/** x (rows, width) FP16 <- x + bias, through GELU when asked. bias (width), NULL = 0. */
enum espl_status espl_cuda_vision_finish(uint16_t *x, size_t rows, size_t width, const float *bias,
                                         bool gelu, void *stream, struct espl_error *err);

/** Attention in windows; every window of `tokens` tokens sees itself alone. Products of FP16, sums
 *  and softmax in FP32. */
struct espl_cuda_vision_attention {
    size_t images, windows, tokens, heads, head_dim; /* windows of an image, tokens of a window */
    float scale;                                     /* of q k */
    const uint16_t *qkv; /* (images * windows * tokens, 3 * heads * head_dim) FP16 */
    const int32_t *rows; /* (windows, tokens): row of the image that stands there; NULL: in order */
    const float *bias;   /* (heads, tokens, tokens) added to scores, NULL = 0 */
    const float *mask;   /* (windows, tokens, tokens) added, too, NULL = 0 */
    uint16_t *y; /* (images * windows * tokens, heads * head_dim) FP16, in the order of qkv */
};
enum espl_status espl_cuda_vision_attend(const struct espl_cuda_vision_attention *attention,
                                         void *stream, struct espl_error *err);

/** pooled (images, width) <- means of x (images, cells, width). */
enum espl_status espl_cuda_vision_pool(const float *x, size_t images, size_t cells, size_t width,
                                       float *pooled, void *stream, struct espl_error *err);

/** logits (images, classes) <- mean over the heads of x W^T + bias, in FP32. */
struct espl_cuda_vision_heads {
    size_t images, width, classes, heads; /* 1 or 2 heads */
    const float *x;                       /* (heads, images, width) */
    const float *weight[2];               /* (classes, width) */
    const float *bias[2];                 /* (classes), NULL = 0 */
    float *logits;
};
enum espl_status espl_cuda_vision_classify(const struct espl_cuda_vision_heads *heads, void *stream,
                                           struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
