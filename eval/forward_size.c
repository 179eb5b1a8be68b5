/* What a forward pass needs: buffer widths, bytes, arithmetic. */
#include "core/checked.h"
#include "eval/forward_internal.h"

#include <stdlib.h>

void *espl_eval_allocate(size_t rows, size_t width, size_t item_bytes)
{
    size_t count = 0;
    size_t bytes = 0;
    if (!espl_mul_size(rows, width, &count) || !espl_mul_size(count, item_bytes, &bytes)) {
        return NULL;
    }
    return malloc(bytes != 0 ? bytes : 1);
}

void espl_forward_get_widths(const struct espl_model_config *config,
                             struct espl_forward_widths *widths)
{
    widths->hidden = (size_t)config->hidden;
    widths->embed = (size_t)config->embed_dim;
    widths->query = (size_t)(config->heads * config->head_dim);
    widths->value = (size_t)(config->kv_heads * config->head_dim);
    widths->ffn = (size_t)config->ffn;
    const size_t attention = 2 * widths->query + 2 * widths->value;
    const size_t mlp = espl_forward_is_gated(config) ? 2 * widths->ffn : widths->ffn;
    widths->work = attention > mlp ? attention : mlp;
    if (widths->work < widths->embed) {
        widths->work = widths->embed;
    }
}

uint64_t espl_forward_linear_weights(const struct espl_model_config *config)
{
    struct espl_forward_widths widths;
    espl_forward_get_widths(config, &widths);
    const uint64_t attention = (uint64_t)widths.hidden * (2 * widths.query + 2 * widths.value);
    const uint64_t mlp = (uint64_t)widths.hidden * widths.ffn;
    return attention + mlp * (espl_forward_is_gated(config) ? 3u : 2u);
}

uint64_t espl_forward_bytes(const struct espl_model_config *config, size_t max_windows,
                            size_t tokens)
{
    struct espl_forward_widths widths;
    espl_forward_get_widths(config, &widths);
    const uint64_t tables = config->tied_embeddings ? 1u : 2u;
    const uint64_t learned_positions =
        config->rope.type == ESPL_ROPE_NONE ? config->max_positions + config->position_offset : 0;
    uint64_t values = tables * config->vocab * config->embed_dim;
    values += learned_positions * config->hidden;
    if (config->embed_dim != config->hidden) {
        values += 2 * config->embed_dim * config->hidden;
    }
    values += espl_forward_linear_weights(config);
    values += (uint64_t)max_windows * tokens * (widths.hidden + widths.work);
    return values * sizeof(float);
}

double espl_forward_flop(const struct espl_model_config *config, size_t tokens)
{
    const double rows = (double)tokens;
    double weights = (double)espl_forward_linear_weights(config) * (double)config->layers;
    weights += (double)config->vocab * (double)config->embed_dim;
    if (config->embed_dim != config->hidden) {
        weights += 2.0 * (double)config->embed_dim * (double)config->hidden;
    }
    /* Causal: position t looks at t + 1 keys, for scores and for values. */
    const double pairs = rows * (rows + 1.0) / 2.0;
    const double attention = 4.0 * pairs * (double)(config->heads * config->head_dim);
    return 2.0 * rows * weights + attention * (double)config->layers;
}
