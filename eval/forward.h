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

/** Weights of one decoder block, float32, masks applied. */
struct espl_block;
/** Work space for up to max_windows x tokens. */
struct espl_forward;

/** tokens: window length, must not be above the model's max_positions (rope models: allowed, with
 * the rope type's own rule). Errors: NOMEM, UNSUPPORTED. */
enum espl_status espl_forward_create(struct espl_model *model, struct espl_backend *backend,
                                     size_t max_windows, size_t tokens, struct espl_forward **out,
                                     struct espl_error *err);
void espl_forward_destroy(struct espl_forward *forward);
/** Host bytes that espl_forward_create() and one resident block take. */
uint64_t espl_forward_bytes(const struct espl_model_config *config, size_t max_windows,
                            size_t tokens);
/** Floating-point operations of one window through all blocks and the head (multiply-add = 2). */
double espl_forward_flop(const struct espl_model_config *config, size_t tokens);

/** Loads block `layer` (replacing *block when not NULL, memory reused). */
enum espl_status espl_block_load(struct espl_forward *forward, uint64_t layer,
                                 struct espl_block **block, struct espl_error *err);
void espl_block_destroy(struct espl_block *block);
/** Weight of a linear of the resident block, (out, in), writable: pruning zeroes entries here.
 *  NULL when the architecture has no such linear. */
float *espl_block_weight(struct espl_block *block, enum espl_role role,
                         struct espl_matrix_shape *shape);
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
 * project_in. An id outside the vocabulary is CORRUPT, naming the place. */
enum espl_status espl_forward_embed(struct espl_forward *forward, const int32_t *ids,
                                    size_t windows, float *hidden, struct espl_error *err);
/** Runs a block in place on hidden. observe: NULL allowed. windows <= max_windows. */
enum espl_status espl_forward_block(struct espl_forward *forward, struct espl_block *block,
                                    size_t windows, float *hidden, espl_linear_input_fn observe,
                                    void *user, struct espl_error *err);
/** Final norm, project_out, head: logits (rows, vocab) of `rows` rows of hidden. hidden is
 * unchanged. */
enum espl_status espl_forward_logits(struct espl_forward *forward, const float *hidden, size_t rows,
                                     float *logits, struct espl_error *err);

#endif
