#include "eval/host_decode.h"

#include "core/checked.h"
#include "core/log.h"
#include "eval/forward_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct espl_host_decoder {
    struct espl_forward *forward;
    struct espl_host_decoder_options most;
    size_t sequences, prompt; /* of the prompts read last */
    size_t layers, hidden_width, vocabulary;
    struct espl_block **blocks;        /* (layers) */
    struct espl_forward_cache *caches; /* (layers) */
    float *hidden;                     /* (sequences * prompt, hidden) */
    float *logits;                     /* (sequences, vocabulary) */
    int32_t *made;                     /* (tokens, sequences): one step after the other */
    size_t made_count;                 /* steps; 0 before a prompt */
};

static enum espl_status out_of_memory(struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NOMEM, "out of memory for a decoder");
}

static enum espl_status check_options(const struct espl_host_decoder_options *options,
                                      struct espl_error *err)
{
    if (options->sequences == 0 || options->prompt == 0 || options->tokens <= options->prompt) {
        return espl_fail(err, ESPL_E_INTERNAL, "%zu sequences of %zu tokens, %zu of them prompt",
                         options->sequences, options->tokens, options->prompt);
    }
    return ESPL_OK;
}

static enum espl_status make_caches(struct espl_host_decoder *decoder, struct espl_error *err)
{
    const struct espl_host_decoder_options *most = &decoder->most;
    const size_t width = decoder->forward->widths.value;
    size_t rows = 0;
    if (!espl_mul_size(most->sequences, most->tokens, &rows)) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < decoder->layers; i++) {
        decoder->caches[i] =
            (struct espl_forward_cache){.keys = espl_eval_allocate(rows, width, sizeof(float)),
                                        .values = espl_eval_allocate(rows, width, sizeof(float)),
                                        .rows = most->tokens};
        if (decoder->caches[i].keys == NULL || decoder->caches[i].values == NULL) {
            return out_of_memory(err);
        }
    }
    return ESPL_OK;
}

static enum espl_status make_arrays(struct espl_host_decoder *decoder, struct espl_error *err)
{
    const struct espl_host_decoder_options *most = &decoder->most;
    size_t rows = 0;
    if (!espl_mul_size(most->sequences, most->prompt, &rows)) {
        return out_of_memory(err);
    }
    decoder->blocks = calloc(decoder->layers, sizeof *decoder->blocks);
    decoder->caches = calloc(decoder->layers, sizeof *decoder->caches);
    decoder->hidden = espl_eval_allocate(rows, decoder->hidden_width, sizeof(float));
    decoder->logits = espl_eval_allocate(most->sequences, decoder->vocabulary, sizeof(float));
    decoder->made = espl_eval_allocate(most->sequences, most->tokens, sizeof(int32_t));
    if (decoder->blocks == NULL || decoder->caches == NULL || decoder->hidden == NULL ||
        decoder->logits == NULL || decoder->made == NULL) {
        return out_of_memory(err);
    }
    return make_caches(decoder, err);
}

enum espl_status espl_host_decoder_create(struct espl_model *model, struct espl_backend *backend,
                                          const struct espl_host_decoder_options *options,
                                          struct espl_host_decoder **out, struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    enum espl_status status = check_options(options, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct espl_host_decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder == NULL) {
        return out_of_memory(err);
    }
    decoder->most = *options;
    decoder->layers = (size_t)config->layers;
    decoder->hidden_width = (size_t)config->hidden;
    status = espl_forward_create(model, backend, options->sequences, options->tokens,
                                 &decoder->forward, err);
    if (status == ESPL_OK) {
        decoder->vocabulary = espl_forward_vocabulary(decoder->forward);
        status = make_arrays(decoder, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < decoder->layers; i++) {
        status = espl_block_load(decoder->forward, i, &decoder->blocks[i], err);
    }
    if (status != ESPL_OK) {
        espl_host_decoder_destroy(decoder);
        return status;
    }
    *out = decoder;
    return ESPL_OK;
}

void espl_host_decoder_destroy(struct espl_host_decoder *decoder)
{
    if (decoder == NULL) {
        return;
    }
    for (size_t i = 0; decoder->blocks != NULL && i < decoder->layers; i++) {
        espl_block_destroy(decoder->blocks[i]);
    }
    for (size_t i = 0; decoder->caches != NULL && i < decoder->layers; i++) {
        free(decoder->caches[i].keys);
        free(decoder->caches[i].values);
    }
    espl_forward_destroy(decoder->forward);
    free(decoder->blocks);
    free(decoder->caches);
    free(decoder->hidden);
    free(decoder->logits);
    free(decoder->made);
    free(decoder);
}

/* The first of the largest. */
static enum espl_status choose(const float *logits, size_t count, int32_t *id,
                               struct espl_error *err)
{
    size_t best = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(logits[i])) {
            espl_fail(err, ESPL_E_NUMERIC, "the logit of token %zu is not finite", i);
            return espl_hint(err, "numbers of the model are damaged, or too large for float32");
        }
        best = logits[i] > logits[best] ? i : best;
    }
    *id = (int32_t)best;
    return ESPL_OK;
}

/* `tokens` ids of each sequence after `past` others; chooses the next of each. */
static enum espl_status run(struct espl_host_decoder *decoder, const int32_t *ids, size_t past,
                            size_t tokens, struct espl_error *err)
{
    struct espl_forward *forward = decoder->forward;
    const size_t sequences = decoder->sequences;
    const size_t width = decoder->hidden_width;
    float *hidden = decoder->hidden;
    int32_t *chosen = decoder->made + decoder->made_count * sequences;
    enum espl_status status =
        espl_forward_embed_more(forward, ids, sequences, past, tokens, hidden, err);
    for (size_t i = 0; status == ESPL_OK && i < decoder->layers; i++) {
        status = espl_forward_block_more(forward, decoder->blocks[i], sequences, past, tokens,
                                         &decoder->caches[i], hidden, err);
    }
    for (size_t s = 0; status == ESPL_OK && s < sequences; s++) { /* the last of each */
        memmove(hidden + s * width, hidden + (s * tokens + tokens - 1) * width,
                width * sizeof *hidden);
    }
    if (status == ESPL_OK) {
        status = espl_forward_logits(forward, hidden, sequences, decoder->logits, err);
    }
    for (size_t s = 0; status == ESPL_OK && s < sequences; s++) {
        status =
            choose(decoder->logits + s * decoder->vocabulary, decoder->vocabulary, chosen + s, err);
        if (status != ESPL_OK) {
            espl_context(err, "after %zu tokens of sequence %zu", past + tokens, s);
        }
    }
    decoder->made_count += status == ESPL_OK;
    return status;
}

enum espl_status espl_host_read_prompt(struct espl_host_decoder *decoder, const int32_t *ids,
                                       size_t sequences, size_t prompt, struct espl_error *err)
{
    const struct espl_host_decoder_options *most = &decoder->most;
    decoder->made_count = 0;
    if (sequences == 0 || sequences > most->sequences || prompt == 0 || prompt > most->prompt) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "%zu prompts of %zu tokens in a decoder for %zu of %zu", sequences, prompt,
                         most->sequences, most->prompt);
    }
    decoder->sequences = sequences;
    decoder->prompt = prompt;
    return run(decoder, ids, 0, prompt, err);
}

enum espl_status espl_host_decode(struct espl_host_decoder *decoder, size_t count, double *seconds,
                                  struct espl_error *err)
{
    const size_t room = decoder->most.tokens - decoder->prompt;
    enum espl_status status = ESPL_OK;
    if (decoder->made_count == 0) {
        return espl_fail(err, ESPL_E_INTERNAL, "no prompt was read");
    }
    /* A sequence is prompt and what is made: the last token has a place, though no step reads it.
     */
    if (count > room - decoder->made_count) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "%zu more tokens after %zu do not fit into sequences of %zu", count,
                         decoder->prompt + decoder->made_count, decoder->most.tokens);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        const double start = espl_clock_monotonic();
        const int32_t *last = decoder->made + (decoder->made_count - 1) * decoder->sequences;
        status = run(decoder, last, decoder->prompt + decoder->made_count - 1, 1, err);
        if (seconds != NULL) {
            seconds[i] = espl_clock_monotonic() - start;
        }
    }
    return status;
}

enum espl_status espl_host_get_tokens(const struct espl_host_decoder *decoder, int32_t *ids,
                                      size_t count, struct espl_error *err)
{
    const size_t sequences = decoder->sequences;
    if (count > decoder->made_count) {
        return espl_fail(err, ESPL_E_INTERNAL, "%zu tokens asked of %zu made", count,
                         decoder->made_count);
    }
    for (size_t i = 0; i < count * sequences; i++) {
        ids[i % sequences * count + i / sequences] = decoder->made[i];
    }
    return ESPL_OK;
}

const float *espl_host_last_logits(const struct espl_host_decoder *decoder)
{
    return decoder->logits;
}

const struct espl_forward_times *espl_host_decoder_times(const struct espl_host_decoder *decoder)
{
    return espl_forward_get_times(decoder->forward);
}

uint64_t espl_host_decoder_weight_bytes(const struct espl_host_decoder *decoder)
{
    uint64_t bytes = 0;
    for (size_t b = 0; b < decoder->layers; b++) {
        const struct espl_block *block = decoder->blocks[b];
        for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
            const struct espl_layer_weights *part = &block->parts[role];
            if (part->weight != NULL && espl_role_is_block_linear((enum espl_role)role)) {
                bytes += (uint64_t)part->shape.rows * part->shape.cols * sizeof *part->weight;
            }
            if (espl_coded_is_present(&block->coded[role])) {
                bytes += espl_quant_linear_bytes(&block->coded[role].linear);
            }
        }
    }
    return bytes;
}

enum espl_iebme_areas espl_host_decoder_areas(const struct espl_host_decoder *decoder)
{
    const struct espl_block *block = decoder->blocks[0];
    for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
        if (block->coded[role].linear.encoded != NULL) {
            return block->coded[role].linear.encoded->layout.areas;
        }
    }
    return ESPL_IEBME_DENSE;
}

/* Most bytes of an input in codes: as it is quantised, and as a product packs it. */
static uint64_t coded_row_bytes(const struct espl_quant_scheme *scheme)
{
    uint64_t most = 0;
    if (scheme == NULL || scheme->activation_bits == ESPL_QUANT_FLOAT_BITS) {
        return 0;
    }
    for (size_t i = 0; i < scheme->width_count; i++) {
        const struct espl_quant_width *width = &scheme->widths[i];
        const uint64_t normal = width->columns - width->outliers;
        const uint64_t groups = width->group_size == 0 ? 1 : normal / width->group_size;
        const uint64_t bytes =
            2 * width->columns + (groups + 1) * (sizeof(float) + sizeof(int32_t));
        most = bytes > most ? bytes : most;
    }
    return most;
}

uint64_t espl_host_decoder_bytes(const struct espl_model_config *config,
                                 const struct espl_quant_scheme *scheme,
                                 const struct espl_host_decoder_options *options,
                                 uint64_t weight_bytes)
{
    enum { LIBRARY_BYTES = 4 << 20 }; /* work space of the BLAS and what the heap leaves between */
    struct espl_forward_widths widths;
    espl_forward_get_widths(config, &widths);
    const uint64_t rows = (uint64_t)options->sequences * options->tokens;
    const uint64_t cache = 2 * config->layers * rows * widths.value * sizeof(float);
    const uint64_t prompt = (uint64_t)options->sequences * options->prompt * widths.hidden;
    const uint64_t logits = (uint64_t)options->sequences * config->vocab;
    const uint64_t coded = (uint64_t)options->sequences * options->tokens * coded_row_bytes(scheme);
    return espl_forward_bytes(config, options->sequences, options->tokens) -
           espl_forward_linear_weights(config) * sizeof(float) + weight_bytes + cache +
           (prompt + logits) * sizeof(float) + coded + LIBRARY_BYTES;
}
