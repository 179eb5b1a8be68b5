/* Running one decoder block. Its weights: block_weights.c. */
#include "eval/linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One pass of a block over a batch: what its two halves share. */
struct block_pass {
    struct espl_forward *forward;
    struct espl_block *block;
    size_t windows;
    size_t past;                            /* positions of each window before these */
    size_t tokens;                          /* of each window */
    size_t rows;                            /* windows * tokens */
    const struct espl_forward_cache *cache; /* NULL: whole windows, nothing is kept */
    float *hidden;
    espl_linear_input_fn observe;
    void *user;
};

/* Starts the input of the linears at `site` and shows it to the observer. */
static enum espl_status begin_input(const struct block_pass *pass, enum espl_quant_site site,
                                    const float *x, size_t in, struct espl_linear_input *input,
                                    struct espl_error *err)
{
    const enum espl_role *roles = espl_quant_site_roles(&pass->forward->config, site);
    size_t role_count = 0;
    enum espl_status status =
        espl_linear_begin(pass->forward, pass->block, site, x, pass->rows, in, input, err);
    if (status != ESPL_OK || pass->observe == NULL) {
        return status;
    }
    while (roles[role_count] != ESPL_ROLE_NONE) {
        role_count++;
    }
    status = pass->observe(pass->user, roles, role_count,
                           input->simulated != NULL ? input->simulated : x, pass->rows, in, err);
    espl_forward_start_clock(pass->forward); /* the observer's time is not ours */
    return status;
}

static enum espl_status run_linear(const struct block_pass *pass, enum espl_role role,
                                   struct espl_linear_input *input, float *y,
                                   struct espl_error *err)
{
    return espl_linear_run(pass->forward, pass->block, role, input, y, err);
}

/* *input: the residual stream, normalised first in pre-norm models. */
static enum espl_status branch_input(const struct block_pass *pass, enum espl_role norm,
                                     const float **input, struct espl_error *err)
{
    struct espl_forward *forward = pass->forward;
    if (!forward->config.pre_norm) {
        *input = pass->hidden;
        return ESPL_OK;
    }
    *input = forward->branch;
    return espl_forward_norm(forward, &pass->block->parts[norm], pass->rows, pass->hidden,
                             forward->branch, err);
}

/* hidden += branch, and the norm of post-norm models. */
static enum espl_status join_branch(const struct block_pass *pass, enum espl_role norm,
                                    struct espl_error *err)
{
    struct espl_forward *forward = pass->forward;
    enum espl_status status = forward->ops->add(
        forward->backend, pass->rows * forward->widths.hidden, forward->branch, pass->hidden, err);
    espl_forward_lap(forward, &forward->times.elementwise);
    if (status == ESPL_OK && !forward->config.pre_norm) {
        status = espl_forward_norm(forward, &pass->block->parts[norm], pass->rows, pass->hidden,
                                   pass->hidden, err);
    }
    return status;
}

static enum espl_status rotate(const struct block_pass *pass, uint64_t heads, float *x,
                               struct espl_error *err)
{
    const struct espl_forward *forward = pass->forward;
    if (forward->inv_freq == NULL) {
        return ESPL_OK;
    }
    return forward->ops->rope(forward->backend, pass->windows, pass->tokens, pass->past,
                              (size_t)heads, (size_t)forward->config.head_dim, forward->inv_freq,
                              forward->rope_magnitude, x, err);
}

/* What a quantised cache would give back: keys before the rotary embedding [Atom, section 4.4]. */
static enum espl_status simulate_cache(const struct block_pass *pass, float *x,
                                       struct espl_error *err)
{
    const struct espl_forward *forward = pass->forward;
    if (pass->block->kv_bits == 0) {
        return ESPL_OK;
    }
    return forward->ops->quantize_kv(forward->backend, pass->rows, (size_t)forward->config.kv_heads,
                                     (size_t)forward->config.head_dim, pass->block->kv_bits,
                                     pass->block->kv_clip, x, err);
}

/* q, k, v from the input of the block's first half. */
static enum espl_status project_attention(const struct block_pass *pass, float *q, float *k,
                                          float *v, struct espl_error *err)
{
    const struct espl_model_config *config = &pass->forward->config;
    struct espl_linear_input input;
    const float *x = NULL;
    enum espl_status status = branch_input(pass, ESPL_ROLE_ATTENTION_NORM, &x, err);
    if (status == ESPL_OK) {
        status = begin_input(pass, ESPL_QUANT_ATTENTION_IN, x, pass->forward->widths.hidden, &input,
                             err);
    }
    if (status == ESPL_OK) {
        status = run_linear(pass, ESPL_ROLE_Q, &input, q, err);
    }
    if (status == ESPL_OK) {
        status = run_linear(pass, ESPL_ROLE_K, &input, k, err);
    }
    if (status == ESPL_OK) {
        status = run_linear(pass, ESPL_ROLE_V, &input, v, err);
    }
    if (status == ESPL_OK) {
        status = simulate_cache(pass, k, err);
    }
    if (status == ESPL_OK) {
        status = simulate_cache(pass, v, err);
    }
    if (status == ESPL_OK) {
        status = rotate(pass, config->heads, q, err);
    }
    if (status == ESPL_OK) {
        status = rotate(pass, config->kv_heads, k, err);
        espl_forward_lap(pass->forward, &pass->forward->times.elementwise);
    }
    return status;
}

/* Puts the new rows of every window behind those that the cache has. */
static void keep(const struct block_pass *pass, const float *k, const float *v)
{
    const size_t width = pass->forward->widths.value;
    for (size_t w = 0; w < pass->windows; w++) {
        const size_t from = w * pass->tokens * width;
        const size_t to = (w * pass->cache->rows + pass->past) * width;
        memcpy(pass->cache->keys + to, k + from, pass->tokens * width * sizeof *k);
        memcpy(pass->cache->values + to, v + from, pass->tokens * width * sizeof *v);
    }
}

static enum espl_status attention_half(const struct block_pass *pass, struct espl_error *err)
{
    struct espl_forward *forward = pass->forward;
    const struct espl_model_config *config = &forward->config;
    const struct espl_forward_widths *widths = &forward->widths;
    const struct espl_attention_shape shape = {
        .windows = pass->windows,
        .tokens = pass->tokens,
        .past = pass->past,
        .key_rows = pass->cache != NULL ? pass->cache->rows : pass->tokens,
        .heads = (size_t)config->heads,
        .kv_heads = (size_t)config->kv_heads,
        .head_dim = (size_t)config->head_dim,
        .scale = (float)(1.0 / sqrt((double)config->head_dim)),
    };
    float *q = forward->work;
    float *k = q + pass->rows * widths->query;
    float *v = k + pass->rows * widths->value;
    float *context = v + pass->rows * widths->value;
    struct espl_linear_input input;
    enum espl_status status = project_attention(pass, q, k, v, err);
    if (status == ESPL_OK && pass->cache != NULL) {
        keep(pass, k, v);
        k = pass->cache->keys;
        v = pass->cache->values;
    }
    if (status == ESPL_OK) {
        status = forward->ops->attention(forward->backend, &shape, q, k, v, context, err);
        espl_forward_lap(forward, &forward->times.attention);
    }
    if (status == ESPL_OK) {
        status = begin_input(pass, ESPL_QUANT_ATTENTION_OUT, context, widths->query, &input, err);
    }
    if (status == ESPL_OK) {
        status = run_linear(pass, ESPL_ROLE_O, &input, forward->branch, err);
    }
    if (status == ESPL_OK) {
        status = join_branch(pass, ESPL_ROLE_ATTENTION_NORM, err);
    }
    return status;
}

/* inner (rows, ffn) <- silu(gate x) * (up x), or act(fc1 x). */
static enum espl_status inner_activations(const struct block_pass *pass, const float *x,
                                          float *inner, struct espl_error *err)
{
    struct espl_forward *forward = pass->forward;
    const struct espl_ops *ops = forward->ops;
    const size_t count = pass->rows * forward->widths.ffn;
    const bool gated = espl_forward_is_gated(&forward->config);
    float *up = inner + count;
    struct espl_linear_input input;
    enum espl_status status =
        begin_input(pass, ESPL_QUANT_MLP_IN, x, forward->widths.hidden, &input, err);

    if (status == ESPL_OK) {
        status = run_linear(pass, gated ? ESPL_ROLE_GATE : ESPL_ROLE_FC1, &input, inner, err);
    }
    if (status == ESPL_OK && gated) {
        status = run_linear(pass, ESPL_ROLE_UP, &input, up, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (gated) {
        status = ops->silu_mul(forward->backend, count, inner, up, err);
    } else if (forward->config.activation == ESPL_ACT_GELU) {
        status = ops->gelu(forward->backend, count, inner, err);
    } else {
        status = ops->relu(forward->backend, count, inner, err);
    }
    espl_forward_lap(forward, &forward->times.elementwise);
    return status;
}

static enum espl_status mlp_half(const struct block_pass *pass, struct espl_error *err)
{
    struct espl_forward *forward = pass->forward;
    const bool gated = espl_forward_is_gated(&forward->config);
    float *inner = forward->work;
    struct espl_linear_input input;
    const float *x = NULL;
    enum espl_status status = branch_input(pass, ESPL_ROLE_MLP_NORM, &x, err);

    if (status == ESPL_OK) {
        status = inner_activations(pass, x, inner, err);
    }
    if (status == ESPL_OK) {
        status = begin_input(pass, ESPL_QUANT_MLP_MID, inner, forward->widths.ffn, &input, err);
    }
    if (status == ESPL_OK) {
        status =
            run_linear(pass, gated ? ESPL_ROLE_DOWN : ESPL_ROLE_FC2, &input, forward->branch, err);
    }
    if (status == ESPL_OK) {
        status = join_branch(pass, ESPL_ROLE_MLP_NORM, err);
    }
    return status;
}

static enum espl_status run_block(const struct block_pass *pass, struct espl_error *err)
{
    enum espl_status status =
        espl_forward_check_rows(pass->forward, pass->windows, pass->past + pass->tokens, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_forward_start_clock(pass->forward);
    status = attention_half(pass, err);
    if (status == ESPL_OK) {
        status = mlp_half(pass, err);
    }
    if (status != ESPL_OK) {
        espl_context(err, "running layer %llu", (unsigned long long)pass->block->layer);
    }
    return status;
}

enum espl_status espl_forward_block(struct espl_forward *forward, struct espl_block *block,
                                    size_t windows, float *hidden, espl_linear_input_fn observe,
                                    void *user, struct espl_error *err)
{
    const struct block_pass pass = {
        .forward = forward,
        .block = block,
        .windows = windows,
        .tokens = forward->tokens,
        .rows = windows * forward->tokens,
        .hidden = hidden,
        .observe = observe,
        .user = user,
    };
    return run_block(&pass, err);
}

enum espl_status espl_forward_block_more(struct espl_forward *forward, struct espl_block *block,
                                         size_t windows, size_t past, size_t tokens,
                                         const struct espl_forward_cache *cache, float *hidden,
                                         struct espl_error *err)
{
    const struct block_pass pass = {
        .forward = forward,
        .block = block,
        .windows = windows,
        .past = past,
        .tokens = tokens,
        .rows = windows * tokens,
        .cache = cache,
        .hidden = hidden,
    };
    if (past + tokens > cache->rows) {
        return espl_fail(err, ESPL_E_INTERNAL, "%zu positions in a cache for %zu", past + tokens,
                         cache->rows);
    }
    return run_block(&pass, err);
}
