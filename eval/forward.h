/* Forward pass of decoder language models in float32 through a kernels table, one block at a time,
 * so that pruning and quantisation can look at and change each block, and only one block's weights
 * are in memory. Used by evaluation (all blocks in a row) and by calibration (block by block).
 *
 * Hidden states are (windows * tokens, hidden) float32, row-major, owned by the caller. No
 * allocation happens per token or per call once a forward object exists. */
#ifndef ESPL_EVAL_FORWARD_H
#define ESPL_EVAL_FORWARD_H

#include "espalier/kernels.h"
#include "model/model.h"
#include "model/quantised.h"

/** Where the time went since the forward object was created, in seconds of the calling thread. */
struct espl_forward_times {
    double load; /* reading weights and converting them to float32 */
    double embed;
    double gemm; /* linears of blocks, project_in and project_out */
    double attention;
    double norm;
    double elementwise; /* rotary embedding, activations, residual adds, codes of inputs */
    double head;        /* final norm and output embedding */
};

/** Weights of one decoder block: float32 with masks applied, or the integer codes, packed or
 * encoded, of a quantised model with quantised activations. Codes whose model keeps activations in
 * float (16 bits) are loaded as float32. */
struct espl_block;
/** Work space for up to max_windows x tokens. */
struct espl_forward;

/** Reads embeddings and final norm; an untied head is read at the first espl_forward_logits().
 * model, backend: borrowed, must outlive the object. tokens: window length, must not be above the
 * model's max_positions (rope models: allowed, with the rope type's own rule). Errors: NOMEM,
 * UNSUPPORTED, and what reading the model gives. */
enum espl_status espl_forward_create(struct espl_model *model, struct espl_backend *backend,
                                     size_t max_windows, size_t tokens, struct espl_forward **out,
                                     struct espl_error *err);
const struct espl_forward_times *espl_forward_get_times(const struct espl_forward *forward);
/** Rows of the logits that espl_forward_logits() makes. */
size_t espl_forward_vocabulary(const struct espl_forward *forward);
void espl_forward_destroy(struct espl_forward *forward);
/** Host bytes that espl_forward_create() and one resident block take; a quantised block takes less,
 * together with its activation codes. */
uint64_t espl_forward_bytes(const struct espl_model_config *config, size_t max_windows,
                            size_t tokens);
/** Floating-point operations of one window through all blocks and the head (multiply-add = 2). */
double espl_forward_flop(const struct espl_model_config *config, size_t tokens);

/** Loads block `layer` (replacing *block when not NULL, memory reused). */
enum espl_status espl_block_load(struct espl_forward *forward, uint64_t layer,
                                 struct espl_block **block, struct espl_error *err);
void espl_block_destroy(struct espl_block *block);
/** Weight of a linear of the resident block, (out, in), writable: pruning zeroes entries here.
 *  NULL when the architecture has no such linear, or when it is there as integer codes. */
float *espl_block_weight(struct espl_block *block, enum espl_role role,
                         struct espl_matrix_shape *shape);
/** Fake quantisation of a linear's input while its weight is still float32: codes are made as
 * quantize_act makes them and turned back into float32 in the original order. */
struct espl_input_quantiser {
    unsigned bits; /* 4..8; 0 = none */
    size_t outliers;
    size_t group_size;
    float clip;
    const int32_t *order; /* (in), borrowed while the block runs; NULL = as they are */
};

/** From now on the linear `role` of the resident block reads a fake-quantised input, and observers
 *  see that one. Linears of one site share the quantiser that was set last. Errors: NOMEM. */
enum espl_status espl_block_simulate_input(struct espl_forward *forward, struct espl_block *block,
                                           enum espl_role role,
                                           const struct espl_input_quantiser *quantiser,
                                           struct espl_error *err);
/** Keys (before the rotary embedding) and values are fake-quantised to `bits`; 0 = not. */
void espl_block_simulate_kv(struct espl_block *block, unsigned bits, float clip);
/** Replaces a linear of the resident block by codes, as loading it from a model of `scheme` would;
 *  takes the arrays of *linear over and leaves it empty. A simulated input of this linear ends.
 * With float activations the float32 weight is replaced by the dequantised one. Errors: NOMEM. */
enum espl_status espl_block_set_quantised(struct espl_forward *forward, struct espl_block *block,
                                          enum espl_role role,
                                          const struct espl_quant_scheme *scheme,
                                          struct espl_quant_linear *linear, struct espl_error *err);
/** The linears of this architecture's blocks in forward order; ends with ESPL_ROLE_NONE. */
const enum espl_role *espl_forward_block_roles(const struct espl_model_config *config);

/** Sees the input of each linear: x (tokens_total, in), tokens_total = windows * tokens. Called
 * once per distinct input (q, k, v share one; gate and up share one), with the roles that read it.
 *  Anything but ESPL_OK stops the pass. */
typedef enum espl_status (*espl_linear_input_fn)(void *user, const enum espl_role *roles,
                                                 size_t role_count, const float *x,
                                                 size_t tokens_total, size_t in,
                                                 struct espl_error *err);

/** hidden (windows*tokens, hidden) <- embedding of ids (windows, tokens), with positions and
 * project_in. windows <= max_windows. An id outside the vocabulary is CORRUPT, naming the place. */
enum espl_status espl_forward_embed(struct espl_forward *forward, const int32_t *ids,
                                    size_t windows, float *hidden, struct espl_error *err);
/** Keys and values of one block for windows that go on: (windows, rows, kv_heads * head_dim),
 * turned and fake-quantised as attention reads them. */
struct espl_forward_cache {
    float *keys;
    float *values;
    size_t rows; /* positions of a window that there is room for */
};

/** As espl_forward_embed() for the positions past to past + tokens - 1 of each window; ids
 * (windows, tokens). past + tokens at most the length that the object was made for. */
enum espl_status espl_forward_embed_more(struct espl_forward *forward, const int32_t *ids,
                                         size_t windows, size_t past, size_t tokens, float *hidden,
                                         struct espl_error *err);
/** Runs a block in place on hidden (windows * tokens, hidden), the positions after `past` others,
 * whose keys and values are in *cache; those of these positions are put there, too. */
enum espl_status espl_forward_block_more(struct espl_forward *forward, struct espl_block *block,
                                         size_t windows, size_t past, size_t tokens,
                                         const struct espl_forward_cache *cache, float *hidden,
                                         struct espl_error *err);
/** Runs a block in place on hidden. observe: NULL allowed. windows <= max_windows. */
enum espl_status espl_forward_block(struct espl_forward *forward, struct espl_block *block,
                                    size_t windows, float *hidden, espl_linear_input_fn observe,
                                    void *user, struct espl_error *err);
/** Final norm, project_out, head: logits (rows, vocab) of `rows` rows of hidden. hidden is
 * unchanged. */
enum espl_status espl_forward_logits(struct espl_forward *forward, const float *hidden, size_t rows,
                                     float *logits, struct espl_error *err);

#endif
