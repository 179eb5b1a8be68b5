/* The forward object, embedding and head. Blocks: block.c. */
#include "eval/forward.h"

#include "core/checked.h"
#include "core/log.h"
#include "eval/linear.h"
#include "eval/rope_frequencies.h"

#include <stdlib.h>
#include <string.h>

void espl_forward_start_clock(struct espl_forward *forward)
{
    forward->last_clock = espl_clock_monotonic();
}

void espl_forward_lap(struct espl_forward *forward, double *account)
{
    const double now = espl_clock_monotonic();
    *account += now - forward->last_clock;
    forward->last_clock = now;
}

enum espl_status espl_forward_linear(struct espl_forward *forward,
                                     const struct espl_layer_weights *linear, size_t rows,
                                     const float *x, float *y, struct espl_error *err)
{
    const struct espl_gemm_shape shape = {
        .tokens = rows, .in = linear->shape.cols, .out = linear->shape.rows};
    const enum espl_status status =
        forward->ops->gemm_f32(forward->backend, &shape, x, linear->weight, linear->bias, y, err);
    espl_forward_lap(forward, &forward->times.gemm);
    return status;
}

enum espl_status espl_forward_norm(struct espl_forward *forward,
                                   const struct espl_layer_weights *norm, size_t rows,
                                   const float *x, float *y, struct espl_error *err)
{
    const size_t width = forward->widths.hidden;
    const float eps = (float)forward->config.norm_eps;
    enum espl_status status = ESPL_OK;
    if (forward->config.norm == ESPL_NORM_RMS) {
        status = forward->ops->rmsnorm(forward->backend, rows, width, x, norm->weight, eps, y, err);
    } else {
        status = forward->ops->layernorm(forward->backend, rows, width, x, norm->weight, norm->bias,
                                         eps, y, err);
    }
    espl_forward_lap(forward, &forward->times.norm);
    return status;
}

static enum espl_status check_config(const struct espl_model_config *config, size_t max_windows,
                                     size_t tokens, struct espl_error *err)
{
    if (tokens == 0 || max_windows == 0) {
        return espl_fail(err, ESPL_E_INTERNAL, "a forward pass needs at least one token");
    }
    if (espl_model_config_is_vision(config)) {
        return espl_fail(err, ESPL_E_KIND, "architecture '%s' is not a language model",
                         config->architecture);
    }
    if (config->heads == 0 || config->kv_heads == 0 || config->heads % config->kv_heads != 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "%llu attention heads cannot share %llu key/value heads",
                         (unsigned long long)config->heads, (unsigned long long)config->kv_heads);
    }
    if (config->rope.type != ESPL_ROPE_NONE && config->head_dim % 2 != 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "rotary embeddings need an even head size, found %llu",
                         (unsigned long long)config->head_dim);
    }
    if (config->norm == ESPL_NORM_RMS && !config->norm_affine) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "RMSNorm without a gain is not supported");
    }
    if (config->rope.type == ESPL_ROPE_NONE && tokens > config->max_positions) {
        espl_fail(err, ESPL_E_UNSUPPORTED,
                  "windows of %zu tokens are longer than the model's %llu learned positions",
                  tokens, (unsigned long long)config->max_positions);
        return espl_hint(err, "use a sequence length of at most %llu",
                         (unsigned long long)config->max_positions);
    }
    return ESPL_OK;
}

static enum espl_status allocate_work(struct espl_forward *forward, struct espl_error *err)
{
    size_t rows = 0;
    if (!espl_mul_size(forward->max_windows, forward->tokens, &rows)) {
        return espl_fail(err, ESPL_E_NOMEM, "%zu windows of %zu tokens are too many at a time",
                         forward->max_windows, forward->tokens);
    }
    forward->branch = espl_eval_allocate(rows, forward->widths.hidden, sizeof(float));
    forward->work = espl_eval_allocate(rows, forward->widths.work, sizeof(float));
    if (forward->branch == NULL || forward->work == NULL) {
        return espl_fail(err, ESPL_E_NOMEM,
                         "out of memory for the work space of %zu windows of %zu tokens",
                         forward->max_windows, forward->tokens);
    }
    return ESPL_OK;
}

static enum espl_status load_outside(struct espl_forward *forward, struct espl_error *err)
{
    const struct espl_model_config *config = &forward->config;
    const bool learned = config->rope.type == ESPL_ROPE_NONE;
    const bool projected = config->embed_dim != config->hidden;
    const struct {
        struct espl_layer_weights *weights;
        enum espl_role role;
        bool wanted;
        bool optional;
    } parts[] = {
        {&forward->embedding, ESPL_ROLE_EMBEDDING, true, false},
        {&forward->positions, ESPL_ROLE_POSITION, learned, false},
        {&forward->project_in, ESPL_ROLE_PROJECT_IN, projected, false},
        {&forward->project_out, ESPL_ROLE_PROJECT_OUT, projected, false},
        {&forward->final_norm, ESPL_ROLE_FINAL_NORM, config->final_norm, !config->norm_affine},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!parts[i].wanted) {
            continue;
        }
        const enum espl_status status = espl_layer_weights_load(
            parts[i].weights, forward->model, -1, parts[i].role, parts[i].optional, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

static enum espl_status prepare_rope(struct espl_forward *forward, struct espl_error *err)
{
    if (forward->config.rope.type == ESPL_ROPE_NONE) {
        return ESPL_OK;
    }
    forward->inv_freq = calloc((size_t)forward->config.head_dim / 2 + 1, sizeof(float));
    if (forward->inv_freq == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for rotary frequencies");
    }
    espl_rope_frequencies(&forward->config, forward->tokens, forward->inv_freq,
                          &forward->rope_magnitude);
    return ESPL_OK;
}

enum espl_status espl_forward_create(struct espl_model *model, struct espl_backend *backend,
                                     size_t max_windows, size_t tokens, struct espl_forward **out,
                                     struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    enum espl_status status = check_config(config, max_windows, tokens, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct espl_forward *forward = calloc(1, sizeof *forward);
    if (forward == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while preparing a forward pass");
    }
    forward->model = model;
    forward->backend = backend;
    forward->ops = espl_backend_ops(backend);
    forward->config = *config;
    forward->tokens = tokens;
    forward->max_windows = max_windows;
    espl_forward_get_widths(config, &forward->widths);
    espl_forward_start_clock(forward);
    status = allocate_work(forward, err);
    if (status == ESPL_OK) {
        status = prepare_rope(forward, err);
    }
    if (status == ESPL_OK) {
        status = load_outside(forward, err);
    }
    if (status != ESPL_OK) {
        espl_forward_destroy(forward);
        return status;
    }
    espl_forward_lap(forward, &forward->times.load);
    *out = forward;
    return ESPL_OK;
}

const struct espl_forward_times *espl_forward_get_times(const struct espl_forward *forward)
{
    return &forward->times;
}

size_t espl_forward_vocabulary(const struct espl_forward *forward)
{
    return (size_t)forward->config.vocab;
}

void espl_forward_destroy(struct espl_forward *forward)
{
    if (forward == NULL) {
        return;
    }
    espl_layer_weights_free(&forward->embedding);
    espl_layer_weights_free(&forward->positions);
    espl_layer_weights_free(&forward->project_in);
    espl_layer_weights_free(&forward->project_out);
    espl_layer_weights_free(&forward->final_norm);
    espl_layer_weights_free(&forward->head);
    espl_linear_scratch_free(forward);
    free(forward->inv_freq);
    free(forward->branch);
    free(forward->work);
    free(forward);
}

enum espl_status espl_forward_check_rows(const struct espl_forward *forward, size_t windows,
                                         size_t positions, struct espl_error *err)
{
    if (windows > forward->max_windows || positions > forward->tokens) {
        return espl_fail(err, ESPL_E_INTERNAL,
                         "%zu windows of %zu positions given to a work space for %zu of %zu",
                         windows, positions, forward->max_windows, forward->tokens);
    }
    return ESPL_OK;
}

static enum espl_status check_ids(const struct espl_forward *forward, const int32_t *ids,
                                  size_t count, size_t tokens, struct espl_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (uint64_t)ids[i] >= forward->config.vocab) {
            espl_fail(err, ESPL_E_CORRUPT,
                      "token id %ld at position %zu of window %zu is outside the model's "
                      "vocabulary of %llu",
                      (long)ids[i], i % tokens, i / tokens,
                      (unsigned long long)forward->config.vocab);
            return espl_hint(err, "the tokens must come from this model's own tokenizer");
        }
    }
    return ESPL_OK;
}

enum espl_status espl_forward_embed(struct espl_forward *forward, const int32_t *ids,
                                    size_t windows, float *hidden, struct espl_error *err)
{
    return espl_forward_embed_more(forward, ids, windows, 0, forward->tokens, hidden, err);
}

enum espl_status espl_forward_embed_more(struct espl_forward *forward, const int32_t *ids,
                                         size_t windows, size_t past, size_t tokens, float *hidden,
                                         struct espl_error *err)
{
    const struct espl_forward_widths *widths = &forward->widths;
    const size_t rows = windows * tokens;
    const bool projected = forward->project_in.weight != NULL;
    float *embedded = projected ? forward->work : hidden;
    enum espl_status status = espl_forward_check_rows(forward, windows, past + tokens, err);
    if (status == ESPL_OK) {
        status = check_ids(forward, ids, rows, tokens, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    espl_forward_start_clock(forward);
    for (size_t r = 0; r < rows; r++) {
        memcpy(embedded + r * widths->embed,
               forward->embedding.weight + (size_t)ids[r] * widths->embed,
               widths->embed * sizeof(float));
    }
    espl_forward_lap(forward, &forward->times.embed);
    if (projected) {
        status = espl_forward_linear(forward, &forward->project_in, rows, embedded, hidden, err);
    }
    if (forward->positions.weight != NULL) {
        const float *first = forward->positions.weight +
                             ((size_t)forward->config.position_offset + past) * widths->hidden;
        for (size_t w = 0; status == ESPL_OK && w < windows; w++) {
            status = forward->ops->add(forward->backend, tokens * widths->hidden, first,
                                       hidden + w * tokens * widths->hidden, err);
        }
        espl_forward_lap(forward, &forward->times.embed);
    }
    return status;
}

/* The output embedding: the model's own, or the input embedding when they are tied. */
static enum espl_status output_embedding(struct espl_forward *forward,
                                         const struct espl_layer_weights **head,
                                         struct espl_error *err)
{
    *head = &forward->embedding;
    if (forward->config.tied_embeddings) {
        return ESPL_OK;
    }
    if (forward->head.weight == NULL) {
        const enum espl_status status =
            espl_layer_weights_load(&forward->head, forward->model, -1, ESPL_ROLE_HEAD, false, err);
        if (status != ESPL_OK) {
            return status;
        }
        espl_forward_lap(forward, &forward->times.load);
    }
    *head = &forward->head;
    return ESPL_OK;
}

enum espl_status espl_forward_logits(struct espl_forward *forward, const float *hidden, size_t rows,
                                     float *logits, struct espl_error *err)
{
    const size_t vocab = (size_t)forward->config.vocab;
    const size_t capacity = forward->max_windows * forward->tokens;
    const struct espl_layer_weights *head = NULL;
    espl_forward_start_clock(forward);
    enum espl_status status = output_embedding(forward, &head, err);

    for (size_t first = 0; status == ESPL_OK && first < rows; first += capacity) {
        const size_t count = rows - first < capacity ? rows - first : capacity;
        const float *x = hidden + first * forward->widths.hidden;
        if (forward->config.final_norm) {
            status =
                espl_forward_norm(forward, &forward->final_norm, count, x, forward->branch, err);
            x = forward->branch;
        }
        if (status == ESPL_OK && forward->project_out.weight != NULL) {
            status =
                espl_forward_linear(forward, &forward->project_out, count, x, forward->work, err);
            x = forward->work;
        }
        if (status == ESPL_OK) {
            const struct espl_gemm_shape shape = {
                .tokens = count, .in = forward->widths.embed, .out = vocab};
            status = forward->ops->gemm_f32(forward->backend, &shape, x, head->weight, NULL,
                                            logits + first * vocab, err);
            espl_forward_lap(forward, &forward->times.head);
        }
    }
    if (status != ESPL_OK) {
        espl_context(err, "computing logits");
    }
    return status;
}
