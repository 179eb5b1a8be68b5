/* What a decoder language model needs on a CUDA device beside its linear layers: embedding, norms
 * and activations that leave the input of the next linears, attention with a cache of keys and
 * values, greedy choice of the next token. Design and measurements: docs/kernels/decode.md.
 *
 * Rows are tokens: `sequences` times `row_tokens`, sequence by sequence, all in FP32. Positions are
 * read from device memory, so that one CUDA graph serves every token. All pointers are device
 * memory unless a comment says otherwise; streams are cudaStream_t. `overlap`: the kernel may start
 * while the one before it in the stream ends (programmatic dependent launch, 9.0 and later). The
 * same call gives the same bits. Widths and strides of norms are multiples of 4. In a build without
 * CUDA all of it answers UNSUPPORTED.
 */
#ifndef ESPALIER_CUDA_DECODE_H
#define ESPALIER_CUDA_DECODE_H

#include "core/error.h"
#include "espalier/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What linears left: value (t, c) of (tokens, stride). FP32, or exact sums of products of bytes,
 *  which stand for sum * (row_scales[c] * token_scales[t]). bias[c] is added. */
struct espl_cuda_results {
    const void *values; /* float, or int32_t with row_scales */
    size_t stride;
    const float *bias;         /* NULL: none */
    const float *row_scales;   /* NULL: values are FP32 */
    const float *token_scales; /* with row_scales: that of token t at t * token_step */
    size_t token_step;
};

/** How the next linears want their input. */
enum espl_cuda_input_form {
    ESPL_CUDA_INPUT_ATOM,  /* codes and scales of espalier/cuda_atom.h */
    ESPL_CUDA_INPUT_HALF,  /* FP16 */
    ESPL_CUDA_INPUT_SPLIT, /* FP16 twice: (tokens, width), then what rounding left of it */
    ESPL_CUDA_INPUT_BYTES  /* INT8 codes with a scale a token: largest magnitude / 127 */
};

/** Where that input is written to. */
struct espl_cuda_input {
    enum espl_cuda_input_form form;
    void
        *values; /* 16-byte aligned; rows of `width` values, or espl_cuda_atom_activation_bytes() */
    float *scales; /* BYTES: (tokens) */
    /* ATOM: */
    const struct espl_quant_shape *shape; /* host; .tokens does not matter */
    const int32_t *order;                 /* (width) column at each place; NULL = as they are */
    float clip;
    uint64_t *nonfinite; /* as in struct espl_cuda_quantize */
};

/** residual + branch, a norm of that, and the next input. */
struct espl_cuda_norm {
    size_t tokens;
    size_t width;
    const float *residual;                  /* row t at t * stride */
    size_t stride;                          /* of residual, in values; at least width */
    const struct espl_cuda_results *branch; /* host; NULL: nothing is added */
    float *sum;                             /* residual + branch, not in place; NULL without one */
    const float *gain;                      /* NULL: 1 */
    const float *bias;                      /* NULL: 0 */
    float eps;
    bool rms; /* RMSNorm; else LayerNorm */
};

/** Errors: UNSUPPORTED (sizes, groups), MACHINE. */
enum espl_status espl_cuda_norm_input(const struct espl_cuda_norm *norm,
                                      const struct espl_cuda_input *input, bool overlap,
                                      void *stream, struct espl_error *err);

enum espl_cuda_activation_kind {
    ESPL_CUDA_IDENTITY,
    ESPL_CUDA_RELU,
    ESPL_CUDA_GELU,    /* exact (erf) */
    ESPL_CUDA_SILU_MUL /* silu(column c) * column width + c */
};

/** An activation function and the next input. */
struct espl_cuda_activation {
    enum espl_cuda_activation_kind kind;
    size_t tokens;
    size_t width; /* of the input */
    struct espl_cuda_results x;
};

/** Errors: as above. */
enum espl_status espl_cuda_activation_input(const struct espl_cuda_activation *activation,
                                            const struct espl_cuda_input *input, bool overlap,
                                            void *stream, struct espl_error *err);

/** hidden (rows, width) <- table[ids[row]], plus positions[starts[sequence] + token]. */
struct espl_cuda_embed {
    size_t sequences;
    size_t row_tokens;
    size_t width;
    const uint16_t *table;     /* (vocabulary, width) FP16 */
    const uint16_t *positions; /* FP16, (positions, width), row 0 is position 0; NULL without */
    const int32_t *ids;        /* (rows), in the vocabulary */
    const int32_t *starts;     /* (sequences) position of the first token of each */
    float *hidden;
};

enum espl_status espl_cuda_embed(const struct espl_cuda_embed *embed, bool overlap, void *stream,
                                 struct espl_error *err);

/** Keys and values of one block: (sequences, kv_heads, max_tokens, head_dim), FP16 with rotated
 *  keys, or 4-bit codes of keys before the rotation and values as quantize_kv (espalier/kernels.h)
 *  makes them: two a byte, the even one in the low half, with scale and zero point each. */
struct espl_cuda_cache {
    void *keys;
    void *values;
    float *key_scales; /* 4 bits: (sequences, kv_heads, max_tokens, 2); NULL: FP16 */
    float *value_scales;
    size_t max_tokens;
    float clip; /* 4 bits: 0 < clip <= 1 */
};

enum {
    ESPL_CUDA_ATTENTION_KEYS = 512, /* of a part: longer caches are worked on in parts */
    ESPL_CUDA_ATTENTION_MOST_DIM = 256,
    ESPL_CUDA_ATTENTION_MOST_SHARE = 8 /* query heads of a key head */
};

/** Causal attention of new tokens over the cache, which they join. With `overlap` and one token a
 *  sequence, starts and the keys and values in the cache must not come from the kernel before: they
 *  are read while it ends. */
struct espl_cuda_attention {
    size_t sequences;
    size_t row_tokens;
    size_t heads;
    size_t kv_heads;
    size_t head_dim; /* a multiple of 8 */
    float scale;
    struct espl_cuda_results qkv; /* columns: all of q, all of k, all of v; for a 4-bit cache FP32
                                     without bias */
    const int32_t *starts;        /* (sequences) position of the first new token of each */
    const float *rotation; /* (max_tokens, head_dim): cosines, then sines; NULL: no rotation */
    struct espl_cuda_cache cache;
    float *out;  /* (rows, heads * head_dim) */
    void *parts; /* espl_cuda_attention_bytes(), filled with 0 once; NULL when that is 0 */
};

/** Bytes of work space for as many tokens and positions. */
size_t espl_cuda_attention_bytes(const struct espl_cuda_attention *attention);
/** One kernel for one token a sequence, two otherwise. Errors: UNSUPPORTED, MACHINE. */
enum espl_status espl_cuda_attend(const struct espl_cuda_attention *attention, bool overlap,
                                  void *stream, struct espl_error *err);

/** The next token of every sequence: the largest logit, of equal ones the first. */
struct espl_cuda_greedy {
    size_t sequences;
    size_t vocabulary;
    float *logits; /* (sequences, vocabulary); split: as many rows behind them are added first */
    bool split;
    uint64_t *best;    /* (sequences), filled with 0 once: work space */
    unsigned *arrived; /* (sequences), filled with 0 once: work space */
    int32_t *next;     /* (sequences) <- token; NULL: logits are only added up */
    int32_t *starts;   /* (sequences) += advance with `next` */
    size_t advance;    /* tokens that were read */
    int32_t *history;  /* (sequences, max_tokens): [starts] <- token, when starts has grown */
    size_t max_tokens;
    unsigned *nonfinite; /* <- 1 when a logit is no finite number */
};

enum espl_status espl_cuda_greedy(const struct espl_cuda_greedy *greedy, bool overlap, void *stream,
                                  struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
