/* What the files of the device runtime share. */
#ifndef ESPL_EVAL_DEVICE_DECODE_INTERNAL_H
#define ESPL_EVAL_DEVICE_DECODE_INTERNAL_H

#include "espalier/cuda_atom.h"
#include "espalier/cuda_blas.h"
#include "espalier/cuda_blaslt.h"
#include "espalier/cuda_decode.h"
#include "eval/device_decode.h"
#include "eval/forward_internal.h"

enum {
    ESPL_DEVICE_MOST_PARTS = 3, /* matrices that read one input: q, k, v */
    ESPL_DEVICE_PIECE = 64      /* tokens of a product of codes */
};

/** The linears at one site of a block, their results side by side. */
struct espl_device_linear {
    size_t in, out;
    /* codes: one matrix when they can be put together, else one a linear */
    struct espl_cuda_matrix *matrices[ESPL_DEVICE_MOST_PARTS];
    size_t first_row[ESPL_DEVICE_MOST_PARTS];
    size_t matrix_count;
    struct espl_quant_shape shape; /* of the input */
    int32_t *order;                /* device; NULL: columns as they are */
    /* dense */
    void *dense;       /* device, (out, in) of FP16 or INT8 */
    float *row_scales; /* device, INT8 */
    float *bias;       /* device; of codes: NULL, it is in the matrices */
};

struct espl_device_block {
    size_t like; /* the first block of equal content: this one, or one before it */
    struct espl_device_linear linears[ESPL_QUANT_SITES];
    float *attention_gain, *attention_bias, *mlp_gain, *mlp_bias; /* device; NULL: none */
};

struct espl_device_weights {
    struct espl_model_config config;
    struct espl_forward_widths widths;
    enum espl_device_form form;
    enum espl_iebme_areas areas; /* of codes */
    bool alike; /* all of several blocks hold the same bytes: a model made for its sizes */
    float activation_clip, kv_clip;
    unsigned kv_bits; /* 4 or 16 */
    struct espl_device_block *blocks;
    size_t block_count;
    uint16_t *embedding; /* device, FP16 */
    uint16_t *positions; /* NULL: rotary */
    uint16_t *head;      /* may be the embedding */
    float *final_gain, *final_bias;
};

/** A linear's product for one number of tokens. */
struct espl_device_product {
    struct espl_cuda_spmm *spmm[ESPL_DEVICE_MOST_PARTS]; /* codes */
    struct espl_cuda_blaslt_product *bytes;              /* INT8 */
    size_t algorithm;
};

/** All of a decoder's products for one number of tokens. Blocks of equal content share them. */
struct espl_device_products {
    size_t tokens;
    struct espl_device_product (*blocks)[ESPL_QUANT_SITES];
};

struct espl_device_decoder {
    const struct espl_device_weights *weights;
    struct espl_device_decoder_options options;
    struct espl_cuda_blas *blas;
    struct espl_cuda_blaslt *blaslt; /* INT8 */
    void *stream;
    struct espl_cuda_graph *step;
    struct espl_device_products of_step, of_prompt;
    size_t rows;     /* sequences * prompt */
    size_t position; /* tokens in the cache of every sequence */
    size_t made;     /* tokens chosen so far */
    /* Device memory. */
    struct espl_cuda_cache *caches; /* host array, one a block */
    float *rotation;                /* NULL: learned positions */
    int32_t *prompt;                /* (rows) */
    int32_t *next;                  /* (sequences) */
    int32_t *starts;                /* (sequences) */
    int32_t *history;               /* (sequences, tokens + 1) by position */
    float *hidden[2];               /* (rows, hidden) in turns */
    float *branch;                  /* (rows, hidden), FP32 or INT32 */
    float *qkv;                     /* (rows, query + 2 value), FP32 or INT32 */
    float *context;                 /* (rows, query) */
    float *inner;                   /* (rows, ffn or 2 ffn), FP32 or INT32 */
    void *input;                    /* of the next linears */
    size_t input_bytes;
    float *input_scales; /* (ESPL_QUANT_SITES, rows) INT8 */
    float *logits;       /* (2 * head rows, vocabulary) */
    uint64_t *best;      /* (sequences) */
    unsigned *arrived;   /* (sequences) */
    unsigned *bad_logit; /* 1 when one is no finite number */
    uint64_t *nonfinite; /* (ESPL_QUANT_SITES) of quantised inputs */
    void *parts;         /* of long caches */
};

/** Do the linears of blocks multiply codes? Else they are dense FP16 or INT8. */
static inline bool espl_device_form_has_codes(enum espl_device_form form)
{
    return form == ESPL_DEVICE_ENCODED || form == ESPL_DEVICE_DENSE_INT4;
}

/** Rows that the head takes at a time: of a step all sequences, else at least a piece. */
size_t espl_device_head_rows(const struct espl_device_decoder_options *options);

/* device_decode_linear.c */
/** Makes the linears of all sites of a block; they are freed by the caller, also after an error.
 *  Errors: those of reading, NUMERIC (too large for FP16), NOMEM, MACHINE. */
enum espl_status espl_device_linears_load(struct espl_model *model,
                                          const struct espl_device_weights *weights, size_t block,
                                          struct espl_device_linear linears[ESPL_QUANT_SITES],
                                          struct espl_error *err);
/** Copies one of a block of equal content; freed by the caller, also after an error. Errors: NOMEM,
 *  MACHINE. */
enum espl_status espl_device_linear_clone(const struct espl_device_linear *from,
                                          enum espl_device_form form, struct espl_device_linear *to,
                                          struct espl_error *err);
/** Leaves it empty. */
void espl_device_linear_free(struct espl_device_linear *linear);
/* device_decode_product.c */
/** Makes the products of all blocks ready for a number of tokens. *products is freed by the caller,
 *  also after an error. Errors: UNSUPPORTED, NOMEM, MACHINE. */
enum espl_status espl_device_products_create(struct espl_device_decoder *decoder, size_t tokens,
                                             struct espl_device_products *products,
                                             struct espl_error *err);
void espl_device_products_free(const struct espl_device_weights *weights,
                               struct espl_device_products *products);
/** results (tokens, linear->out) <- the linears of a site of a block, from decoder->input. */
enum espl_status espl_device_multiply(struct espl_device_decoder *decoder,
                                      const struct espl_device_products *products, size_t block,
                                      enum espl_quant_site site, float *results,
                                      struct espl_error *err);
/** What a consumer reads: results as espl_device_multiply() left them. */
struct espl_cuda_results espl_device_results(const struct espl_device_decoder *decoder,
                                             size_t block, enum espl_quant_site site,
                                             const float *results);

/* device_decode_step.c */
/** What of a pass is put into the stream. */
enum espl_device_piece {
    ESPL_DEVICE_PRODUCTS = 1,
    ESPL_DEVICE_ATTENTION = 2,
    ESPL_DEVICE_NORMS = 4,
    ESPL_DEVICE_HEAD = 8,
    ESPL_DEVICE_ALL = 15
};

/** One pass: a step over decoder->next, or over decoder->prompt. */
struct espl_device_pass {
    struct espl_device_decoder *decoder;
    bool step;
    bool frozen; /* nothing moves on: for timing */
    bool choose; /* the head reads the last token of every sequence and chooses the next */
    unsigned pieces;
};

/** Puts the pass into the decoder's stream. */
enum espl_status espl_device_put_pass(const struct espl_device_pass *pass, struct espl_error *err);
/** Logits of rows [first, first + rows) of the pass just put, into decoder->logits. */
enum espl_status espl_device_put_logits(const struct espl_device_pass *pass, size_t first,
                                        size_t rows, struct espl_error *err);
/** Waits; NUMERIC when an input or a logit was not finite. */
enum espl_status espl_device_wait(struct espl_device_decoder *decoder, struct espl_error *err);

#endif
