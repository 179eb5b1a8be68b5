/* Plain C interface of the kernels: one table of functions per backend with identical signatures.
 *
 * `ref` is complete, obvious and slow: the oracle of the tests. `cpu` uses OpenBLAS and OpenMP. On
 * both, memory is host memory. Matrices are row-major; "(a, b)" is rows x columns. W is (out, in)
 * and a linear layer computes y = x W^T + bias. Results do not depend on the number of threads:
 * work is cut into pieces whose borders depend on shapes alone, and every reduction has a fixed
 * order. Subset of C11 that is also C++: no flexible arrays, no restrict, no compound literals. */
#ifndef ESPALIER_KERNELS_H
#define ESPALIER_KERNELS_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct espl_backend;
struct espl_iebme_weights; /* espalier/iebme.h */
struct espl_nm_matrix;     /* espalier/nm_pack.h */
struct espl_nm_epilogue;

/** y (tokens, out) = x (tokens, in) * W (out, in)^T + bias (out). */
struct espl_gemm_shape {
    size_t tokens;
    size_t in;
    size_t out;
};

/** Causal self-attention over `windows` independent sequences, of each the positions `past` to
 *  past + tokens - 1: query t sees the keys 0 to past + t.
 *  q: (windows*tokens, heads*head_dim); k, v: (windows*key_rows, kv_heads*head_dim), of which a
 *  window's first past + tokens rows are read; query head h reads key/value head
 *  h / (heads / kv_heads). */
struct espl_attention_shape {
    size_t windows;
    size_t tokens;
    size_t past;     /* positions before the first query; 0 when whole windows are given */
    size_t key_rows; /* from one window to the next in k and v, at least past + tokens */
    size_t heads;
    size_t kv_heads;
    size_t head_dim;
    float scale; /* multiplies q.k */
};

/** Self-attention as image models have it: not causal, query, key and value side by side in a row
 * of qkv (rows, 3 * heads * head_dim: all of q, all of k, all of v). One image is windows * tokens
 * rows; a window attends to itself alone. */
struct espl_full_attention_shape {
    size_t images;
    size_t windows; /* of one image */
    size_t tokens;  /* of one window */
    size_t heads;
    size_t head_dim;
    float scale; /* multiplies q.k */
};

/** What belongs to the architecture, the same for all images. Every pointer may be NULL. */
struct espl_full_attention_tables {
    const int32_t
        *rows;         /* (windows, tokens): row of the image that stands there; NULL = in order */
    const float *bias; /* (heads, tokens, tokens), added to the scaled scores */
    const float *mask; /* (windows, tokens, tokens), added too */
};

/** What a linear layer does with its result x W^T + bias. */
enum espl_epilogue {
    ESPL_EPILOGUE_NONE, /* y = result */
    ESPL_EPILOGUE_GELU, /* y = gelu(result), exact (erf) */
    ESPL_EPILOGUE_ADD   /* y = y + result */
};

/** Weights (rows, cols); a bit mask has espl_mask_stride(cols) bytes a row, bit 0 of a byte first,
 * 1 = kept; unused bits of the last byte are 0. */
struct espl_matrix_shape {
    size_t rows;
    size_t cols;
};

static inline size_t espl_mask_stride(size_t cols)
{
    return (cols + 7u) / 8u;
}

/** A quantised linear layer (Atom). All codes are signed, zero means 0, value = scale * code.
 *  Columns stand in the layer's own (reordered) order; the last `outliers` of them are INT8 with
 * one scale a row, the others have one scale a group of `group_size` columns. */
struct espl_quant_shape {
    size_t tokens;
    size_t in;
    size_t out;
    size_t group_size;     /* divides in - outliers; 0 = one group of all in - outliers columns */
    size_t outliers;       /* < in */
    size_t rows_per_scale; /* adjacent output rows that share weight scales: 1 or 2 */
    unsigned weight_bits;  /* 2..8 */
    unsigned activation_bits; /* 4..8 */
};

static inline size_t espl_quant_normal(const struct espl_quant_shape *shape)
{
    return shape->in - shape->outliers;
}

static inline size_t espl_quant_groups(const struct espl_quant_shape *shape)
{
    return shape->group_size == 0 ? 1 : espl_quant_normal(shape) / shape->group_size;
}

/** normal = in - outliers. Without outliers the two outlier pointers are NULL. */
struct espl_quant_activations {
    int8_t *codes;         /* (tokens, normal) */
    float *scales;         /* (tokens, groups) */
    int8_t *outlier_codes; /* (tokens, outliers) */
    float *outlier_scales; /* (tokens) */
};

struct espl_quant_weights {
    const uint8_t *codes; /* (out, stride) packed weight_bits wide: core/codes.h, (out, normal) */
    const float *scales;  /* (ceil(out / rows_per_scale), groups) */
    const int8_t *outlier_codes; /* (out, outliers) */
    const float *outlier_scales; /* (out) */
    const float *bias;           /* (out) or NULL */
};

/** Every pointer is borrowed and non-NULL unless the comment says otherwise. All functions return
 *  ESPL_OK, or ESPL_E_UNSUPPORTED for shapes the backend cannot do, or ESPL_E_NOMEM. */
struct espl_ops {
    const char *name;

    /* bias: NULL allowed. y must not overlap x. */
    enum espl_status (*gemm_f32)(struct espl_backend *backend, const struct espl_gemm_shape *shape,
                                 const float *x, const float *w, const float *bias, float *y,
                                 struct espl_error *err);
    /* gemm_f32 with an epilogue, while the result is still in cache. */
    enum espl_status (*fused_linear)(struct espl_backend *backend,
                                     const struct espl_gemm_shape *shape,
                                     enum espl_epilogue epilogue, const float *x, const float *w,
                                     const float *bias, float *y, struct espl_error *err);
    /* RMSNorm: y = x / sqrt(mean(x^2) + eps) * gain, per row of x (tokens, width). y may be x. */
    enum espl_status (*rmsnorm)(struct espl_backend *backend, size_t tokens, size_t width,
                                const float *x, const float *gain, float eps, float *y,
                                struct espl_error *err);
    /* LayerNorm with biased variance. gain, bias: NULL allowed (1 and 0). y may be x. */
    enum espl_status (*layernorm)(struct espl_backend *backend, size_t tokens, size_t width,
                                  const float *x, const float *gain, const float *bias, float eps,
                                  float *y, struct espl_error *err);
    /* Rotary embedding in place, half-split form (rotate_half): x (windows*tokens, heads*head_dim),
     * position = past + row index within its window; inv_freq (head_dim/2); cos and sin times
     * `magnitude`. */
    enum espl_status (*rope)(struct espl_backend *backend, size_t windows, size_t tokens,
                             size_t past, size_t heads, size_t head_dim, const float *inv_freq,
                             float magnitude, float *x, struct espl_error *err);
    /* y (windows*tokens, heads*head_dim) */
    enum espl_status (*attention)(struct espl_backend *backend,
                                  const struct espl_attention_shape *shape, const float *q,
                                  const float *k, const float *v, float *y, struct espl_error *err);
    /* y (images*windows*tokens, heads*head_dim), in the order of the rows of qkv. */
    enum espl_status (*full_attention)(struct espl_backend *backend,
                                       const struct espl_full_attention_shape *shape,
                                       const struct espl_full_attention_tables *tables,
                                       const float *qkv, float *y, struct espl_error *err);
    /* gate <- silu(gate) * up, elementwise over count values. */
    enum espl_status (*silu_mul)(struct espl_backend *backend, size_t count, float *gate,
                                 const float *up, struct espl_error *err);
    /* x <- max(x, 0) */
    enum espl_status (*relu)(struct espl_backend *backend, size_t count, float *x,
                             struct espl_error *err);
    /* x <- gelu(x): exact (erf), as timm and OPT's "gelu" use it. */
    enum espl_status (*gelu)(struct espl_backend *backend, size_t count, float *x,
                             struct espl_error *err);
    /* y <- y + x */
    enum espl_status (*add)(struct espl_backend *backend, size_t count, const float *x, float *y,
                            struct espl_error *err);
    /* Negative log-likelihood of targets (tokens) under logits (tokens, vocab); target < 0 = skip
     * (0). nll (tokens), natural logarithm. */
    enum espl_status (*cross_entropy)(struct espl_backend *backend, size_t tokens, size_t vocab,
                                      const float *logits, const int32_t *targets, double *nll,
                                      struct espl_error *err);
    /* KL(p || q) per token from two logit rows, natural logarithm. kl (tokens). */
    enum espl_status (*kl_divergence)(struct espl_backend *backend, size_t tokens, size_t vocab,
                                      const float *logits_p, const float *logits_q, double *kl,
                                      struct espl_error *err);
    /* sums (width) += per-column sums of squares of x (tokens, width), accumulated in double in row
     * order so that the result does not depend on the thread count. */
    enum espl_status (*column_sumsq)(struct espl_backend *backend, size_t tokens, size_t width,
                                     const float *x, double *sums, struct espl_error *err);
    /* Wanda score (rows, cols) = |W| * norm (cols), float32. [Sun et al. 2023, eq. 1] */
    enum espl_status (*wanda_score)(struct espl_backend *backend,
                                    const struct espl_matrix_shape *shape, const float *w,
                                    const float *norm, float *score, struct espl_error *err);
    /* Mask that removes, in every row, the `prune` smallest scores; ties: lower column removed
     * first. */
    enum espl_status (*row_mask)(struct espl_backend *backend,
                                 const struct espl_matrix_shape *shape, const float *score,
                                 size_t prune, uint8_t *mask, struct espl_error *err);
    /* Mask that keeps the n largest scores of every m consecutive columns; ties: lower column
     * removed first. cols % m must be 0 unless keep_tail: then a short last window stays dense. */
    enum espl_status (*nm_mask)(struct espl_backend *backend, const struct espl_matrix_shape *shape,
                                const float *score, size_t n, size_t m, bool keep_tail,
                                uint8_t *mask, struct espl_error *err);
    /* w <- 0 where the mask bit is 0 */
    enum espl_status (*apply_mask)(struct espl_backend *backend,
                                   const struct espl_matrix_shape *shape, const uint8_t *mask,
                                   float *w, struct espl_error *err);
    /* float32 from IEEE half and bfloat16 words; exact */
    enum espl_status (*f16_to_f32)(struct espl_backend *backend, size_t count, const uint16_t *x,
                                   float *y, struct espl_error *err);
    enum espl_status (*bf16_to_f32)(struct espl_backend *backend, size_t count, const uint16_t *x,
                                    float *y, struct espl_error *err);
    /* *index = position of the first NaN or infinity in x, or count when all values are finite. */
    enum espl_status (*find_nonfinite)(struct espl_backend *backend, size_t count, const float *x,
                                       size_t *index, struct espl_error *err);
    /* Dynamic quantisation of x (tokens, in) [Atom, section 4]. order (in): original column at each
     * reordered place, NULL = as it is. Group: s = (clip * max(amax, 1e-5)) / qmax with
     * qmax = 2^(activation_bits-1) - 1, code = clamp(rint(x / s), -qmax-1, qmax); outliers: the
     * same with 8 bits, one scale a token and no clip. float32, halves to even. 0 < clip <= 1.
     * NUMERIC for a value that is not finite, naming token and (original) column. */
    enum espl_status (*quantize_act)(struct espl_backend *backend,
                                     const struct espl_quant_shape *shape, const float *x,
                                     const int32_t *order, float clip,
                                     const struct espl_quant_activations *a,
                                     struct espl_error *err);
    /* y (tokens, out). Exact in int32 inside a group; then, each operation rounded to float32:
     * sum = 0; for groups in ascending order: sum = sum + (float)acc * (w_scale * a_scale); for
     * outliers likewise, last; sum = sum + bias. All backends give the same bits. */
    enum espl_status (*gemm_w4a4)(struct espl_backend *backend,
                                  const struct espl_quant_shape *shape,
                                  const struct espl_quant_activations *a,
                                  const struct espl_quant_weights *w, float *y,
                                  struct espl_error *err);
    /* Asymmetric fake quantisation in place of keys or values x (tokens, heads * head_dim), a scale
     * and a zero point per token and head. lo = min(x, 0), hi = max(x, 0), q = 2^bits - 1,
     * s = max(clip * (hi - lo), 1e-5) / q, z = clamp(rint(-(clip * lo) / s), 0, q),
     * x = (clamp(rint(x / s) + z, 0, q) - z) * s; float32. bits 2..8, 0 < clip <= 1. NUMERIC for a
     * value that is not finite. */
    enum espl_status (*quantize_kv)(struct espl_backend *backend, size_t tokens, size_t heads,
                                    size_t head_dim, unsigned bits, float clip, float *x,
                                    struct espl_error *err);
    /* gemm_w4a4 with the weight codes in the canonical IE-BME form: the same bits as gemm_w4a4 on
     * the decoded codes. weight_bits are those of the encoded matrix, whose layout must be (out,
     * in - outliers) and which must have passed espl_iebme_check(). */
    enum espl_status (*spmm_iebme)(struct espl_backend *backend,
                                   const struct espl_quant_shape *shape,
                                   const struct espl_quant_activations *a,
                                   const struct espl_iebme_weights *w, float *y,
                                   struct espl_error *err);
    /* y (tokens, rows) = x (tokens, cols) W^T of bytes, int32 exact, W packed N:M; y holds int32,
     * IEEE half or int8 as the epilogue says. w must have passed espl_nm_check(). */
    enum espl_status (*spmm_nm_int8)(struct espl_backend *backend, const struct espl_nm_matrix *w,
                                     const int8_t *x, size_t tokens,
                                     const struct espl_nm_epilogue *epilogue, void *y,
                                     struct espl_error *err);
};

enum { ESPL_BACKEND_MAX_THREADS = 64 }; /* OpenBLAS serves no more callers at a time */

/** Opens a backend: "ref", "cpu" (or "auto", which is cpu until a CUDA backend is built in).
 *  threads: 0 = all the process may use, at most ESPL_BACKEND_MAX_THREADS; ref uses one. Opening
 *  cpu sets OpenBLAS to one thread a call, and OpenMP's default to one, for the rest of the
 * process. One caller at a time per backend. Errors: ESPL_E_UNSUPPORTED for a name this build
 * lacks, NOMEM. */
enum espl_status espl_backend_open(const char *name, unsigned threads, struct espl_backend **out,
                                   struct espl_error *err);
void espl_backend_close(struct espl_backend *backend);
const struct espl_ops *espl_backend_ops(const struct espl_backend *backend);
unsigned espl_backend_threads(const struct espl_backend *backend);
/** Seconds of the clock that times this backend's work: with one thread its CPU time, which a busy
 *  machine hardly changes; else time on the wall. */
double espl_backend_seconds(const struct espl_backend *backend);

/** What the linked BLAS says of itself. */
struct espl_blas_info {
    char core[32];            /* "SkylakeX" */
    char config[160];         /* openblas_get_config() */
    char parallel[16];        /* "serial", "pthreads", "openmp" */
    bool old_core_on_new_cpu; /* 1999-class kernels on a CPU with AVX2: see espl_blas_better_core()
                               */
};
void espl_blas_get_info(struct espl_blas_info *info);
/** OPENBLAS_CORETYPE to set before a restart of the process, or NULL when the choice is fine.
 *  core: as OpenBLAS reports it; OpenBLAS 0.3.21 picks Prescott on CPUs newer than itself (#4267).
 */
const char *espl_blas_better_core(const char *core, bool has_avx2_fma, bool has_avx512);
/** espl_blas_better_core() of the linked OpenBLAS on this CPU. */
const char *espl_blas_better_core_here(void);

#ifdef __cplusplus
}
#endif

#endif
