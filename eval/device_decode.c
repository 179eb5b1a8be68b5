/* A decoder on the device: its memory, prompts, steps. */
#include "eval/device_decode.h"

#include "core/checked.h"
#include "espalier/cuda_graph.h"
#include "espalier/cuda_memory.h"
#include "eval/device_decode_internal.h"
#include "eval/device_memory.h"
#include "eval/rope_frequencies.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t espl_device_head_rows(const struct espl_device_decoder_options *options)
{
    const size_t rows = options->sequences * options->prompt;
    const size_t piece = rows < ESPL_DEVICE_PIECE ? rows : ESPL_DEVICE_PIECE;
    return options->sequences > piece ? options->sequences : piece;
}

/* ---- memory ---- */

/* Zeroed device memory. */
static enum espl_status take(size_t count, size_t item_bytes, void *pointer, struct espl_error *err)
{
    size_t bytes = 0;
    void *memory = NULL;
    if (!espl_mul_size(count, item_bytes, &bytes)) {
        return espl_fail(err, ESPL_E_NOMEM, "a decoder's work space is too large");
    }
    enum espl_status status = espl_cuda_alloc(bytes > 0 ? bytes : 1, &memory, err);
    if (status == ESPL_OK) {
        memcpy(pointer, &memory, sizeof memory); /* any type of pointer */
        status = espl_cuda_fill(memory, 0, bytes, err);
    }
    return status;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Bytes of the largest input of a linear, the head's included. */
static size_t input_bytes(const struct espl_device_decoder *decoder)
{
    const struct espl_device_weights *weights = decoder->weights;
    size_t most =
        2 * espl_device_head_rows(&decoder->options) * weights->widths.hidden * sizeof(uint16_t);
    for (int site = 0; site < ESPL_QUANT_SITES; site++) {
        const struct espl_device_linear *linear = &weights->blocks[0].linears[site];
        const size_t bytes = linear->matrix_count > 0
                                 ? espl_cuda_atom_activation_bytes(&linear->shape, decoder->rows)
                                 : decoder->rows * linear->in * sizeof(uint16_t);
        most = larger(most, bytes);
    }
    return most;
}

static enum espl_status take_buffers(struct espl_device_decoder *decoder, struct espl_error *err)
{
    const struct espl_device_weights *weights = decoder->weights;
    const struct espl_device_decoder_options *options = &decoder->options;
    const struct espl_device_linear *linears = weights->blocks[0].linears;
    const size_t rows = decoder->rows;
    const size_t hidden = rows * weights->widths.hidden;
    decoder->input_bytes = input_bytes(decoder);
    const struct {
        void *pointer;
        size_t count, item_bytes;
    } wanted[] = {
        {&decoder->prompt, rows, sizeof(int32_t)},
        {&decoder->next, options->sequences, sizeof(int32_t)},
        {&decoder->starts, options->sequences, sizeof(int32_t)},
        {&decoder->history, options->sequences * (options->tokens + 1), sizeof(int32_t)},
        {&decoder->hidden[0], hidden, sizeof(float)},
        {&decoder->hidden[1], hidden, sizeof(float)},
        {&decoder->branch, hidden, sizeof(float)},
        {&decoder->qkv, rows * linears[ESPL_QUANT_ATTENTION_IN].out, sizeof(float)},
        {&decoder->context, rows * weights->widths.query, sizeof(float)},
        {&decoder->inner, rows * linears[ESPL_QUANT_MLP_IN].out, sizeof(float)},
        {&decoder->input, decoder->input_bytes, 1},
        {&decoder->input_scales, ESPL_QUANT_SITES * rows, sizeof(float)},
        {&decoder->logits, 2 * espl_device_head_rows(options) * (size_t)weights->config.vocab,
         sizeof(float)},
        {&decoder->best, options->sequences, sizeof(uint64_t)},
        {&decoder->arrived, options->sequences, sizeof(unsigned)},
        {&decoder->bad_logit, 1, sizeof(unsigned)},
        {&decoder->nonfinite, ESPL_QUANT_SITES, sizeof(uint64_t)},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof wanted / sizeof wanted[0]; i++) {
        status = take(wanted[i].count, wanted[i].item_bytes, wanted[i].pointer, err);
    }
    return status == ESPL_OK
               ? espl_cuda_fill(decoder->nonfinite, 0xFF, ESPL_QUANT_SITES * sizeof(uint64_t), err)
               : status;
}

/* Keys and values of all blocks, each in one piece of memory. */
static enum espl_status take_caches(struct espl_device_decoder *decoder, struct espl_error *err)
{
    enum { ALIGN = 256 }; /* bytes, as espl_cuda_alloc() gives */
    const struct espl_device_weights *weights = decoder->weights;
    const bool codes = weights->kv_bits != ESPL_QUANT_FLOAT_BITS;
    const size_t heads =
        decoder->options.sequences * (size_t)weights->config.kv_heads * decoder->options.tokens;
    const size_t head_dim = (size_t)weights->config.head_dim;
    const size_t values = heads * (codes ? head_dim / 2 : head_dim * sizeof(uint16_t));
    const size_t aligned = espl_ceil_div(values, ALIGN) * ALIGN;
    const size_t scales = codes ? heads * 2 * sizeof(float) : 0;
    enum espl_status status = ESPL_OK;
    decoder->caches = calloc(weights->block_count, sizeof *decoder->caches);
    if (decoder->caches == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a decoder");
    }
    for (size_t b = 0; status == ESPL_OK && b < weights->block_count; b++) {
        struct espl_cuda_cache *cache = &decoder->caches[b];
        status = take(1, 2 * (aligned + scales), &cache->keys, err);
        if (status == ESPL_OK) {
            char *memory = cache->keys;
            cache->values = memory + aligned;
            cache->key_scales = codes ? (float *)(void *)(memory + 2 * aligned) : NULL;
            cache->value_scales = codes ? (float *)(void *)(memory + 2 * aligned + scales) : NULL;
            cache->max_tokens = decoder->options.tokens;
            cache->clip = weights->kv_clip;
        }
    }
    return status;
}

/* Cosines and sines of every position, as the CPU's rotary embedding rounds them. */
static enum espl_status make_rotation(struct espl_device_decoder *decoder, struct espl_error *err)
{
    const struct espl_model_config *config = &decoder->weights->config;
    const size_t half = (size_t)config->head_dim / 2;
    const size_t tokens = decoder->options.tokens;
    float magnitude = 1.0F;
    if (config->rope.type == ESPL_ROPE_NONE) {
        return ESPL_OK;
    }
    float *frequencies = espl_eval_allocate(half, 1, sizeof(float));
    float *table = espl_eval_allocate(tokens, 2 * half, sizeof(float));
    enum espl_status status = frequencies != NULL && table != NULL
                                  ? ESPL_OK
                                  : espl_fail(err, ESPL_E_NOMEM, "out of memory for a decoder");
    if (status == ESPL_OK) {
        espl_rope_frequencies(config, tokens, frequencies, &magnitude);
        for (size_t t = 0; t < tokens; t++) {
            for (size_t i = 0; i < half; i++) {
                const float angle = (float)t * frequencies[i];
                table[2 * t * half + i] = (float)(cos((double)angle) * (double)magnitude);
                table[(2 * t + 1) * half + i] = (float)(sin((double)angle) * (double)magnitude);
            }
        }
        status = espl_device_upload_floats(table, 2 * tokens * half, &decoder->rotation, err);
    }
    free(frequencies);
    free(table);
    return status;
}

/* Work space of attention, for a step and for prompts. */
static enum espl_status take_parts(struct espl_device_decoder *decoder, struct espl_error *err)
{
    const struct espl_model_config *config = &decoder->weights->config;
    struct espl_cuda_attention attention = {
        .sequences = decoder->options.sequences,
        .row_tokens = 1,
        .heads = (size_t)config->heads,
        .kv_heads = (size_t)config->kv_heads,
        .head_dim = (size_t)config->head_dim,
        .cache = decoder->caches[0],
    };
    const size_t step = espl_cuda_attention_bytes(&attention);
    attention.row_tokens = decoder->options.prompt;
    const size_t bytes = larger(step, espl_cuda_attention_bytes(&attention));
    return bytes > 0 ? take(bytes, 1, &decoder->parts, err) : ESPL_OK;
}

/* ---- the decoder ---- */

static enum espl_status put_step(void *self, void *stream, struct espl_error *err)
{
    const struct espl_device_pass pass = {
        .decoder = self, .step = true, .choose = true, .pieces = ESPL_DEVICE_ALL};
    (void)stream; /* the decoder's */
    return espl_device_put_pass(&pass, err);
}

static enum espl_status prepare(struct espl_device_decoder *decoder, struct espl_error *err)
{
    enum espl_status status = espl_cuda_stream_create(&decoder->stream, err);
    if (status == ESPL_OK) {
        status = espl_cuda_blas_create(&decoder->blas, err);
    }
    if (status == ESPL_OK && decoder->weights->form == ESPL_DEVICE_DENSE_INT8) {
        status = espl_cuda_blaslt_create(&decoder->blaslt, err);
    }
    if (status == ESPL_OK) {
        status = take_buffers(decoder, err);
    }
    if (status == ESPL_OK) {
        status = take_caches(decoder, err);
    }
    if (status == ESPL_OK) {
        status = make_rotation(decoder, err);
    }
    if (status == ESPL_OK) {
        status = take_parts(decoder, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_products_create(decoder, decoder->options.sequences, &decoder->of_step,
                                             err);
    }
    if (status == ESPL_OK) {
        status = espl_device_products_create(decoder, decoder->rows, &decoder->of_prompt, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_synchronize(err); /* fills used another stream */
    }
    return status == ESPL_OK
               ? espl_cuda_graph_create(put_step, decoder, decoder->stream, &decoder->step, err)
               : status;
}

enum espl_status espl_device_check_positions(const struct espl_model_config *config, size_t tokens,
                                             struct espl_error *err)
{
    if (config->rope.type == ESPL_ROPE_NONE && tokens > config->max_positions) {
        espl_fail(err, ESPL_E_UNSUPPORTED,
                  "%zu tokens of prompt and output are more than the model's %llu learned "
                  "positions",
                  tokens, (unsigned long long)config->max_positions);
        return espl_hint(err, "shorten the longest prompt or the longest output");
    }
    return ESPL_OK;
}

/* Do the decoder's largest arrays have sizes? */
static bool sizes_fit(const struct espl_device_weights *weights,
                      const struct espl_device_decoder_options *options)
{
    enum { MOST_BYTES = 16 }; /* of a value, the parts of an array included */
    const struct espl_model_config *config = &weights->config;
    const struct espl_device_linear *linears = weights->blocks[0].linears;
    const size_t widest = larger(
        larger(linears[ESPL_QUANT_ATTENTION_IN].out, linears[ESPL_QUANT_MLP_IN].out),
        larger(linears[ESPL_QUANT_MLP_MID].in, larger(weights->widths.hidden, config->vocab)));
    size_t rows = 0;
    size_t places = 0;
    size_t values = 0;
    size_t bytes = 0;
    return espl_mul_size(options->sequences, options->prompt, &rows) &&
           espl_mul_size(rows, widest, &values) && espl_mul_size(values, MOST_BYTES, &bytes) &&
           espl_mul_size(options->sequences, options->tokens + 1, &places) &&
           espl_mul_size(places, (size_t)(config->kv_heads * config->head_dim), &values) &&
           espl_mul_size(values, MOST_BYTES, &bytes);
}

static enum espl_status check_options(const struct espl_device_weights *weights,
                                      const struct espl_device_decoder_options *options,
                                      struct espl_error *err)
{
    if (options->sequences == 0 || options->prompt == 0 || options->tokens < options->prompt) {
        return espl_fail(err, ESPL_E_INTERNAL, "a decoder needs prompts that fit its positions");
    }
    if (!sizes_fit(weights, options)) {
        return espl_fail(err, ESPL_E_NOMEM, "a decoder's work space is too large");
    }
    return espl_device_check_positions(&weights->config, options->tokens, err);
}

enum espl_status espl_device_decoder_create(struct espl_device_weights *weights,
                                            const struct espl_device_decoder_options *options,
                                            struct espl_device_decoder **out,
                                            struct espl_error *err)
{
    enum espl_status status = check_options(weights, options, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct espl_device_decoder *decoder = calloc(1, sizeof *decoder);
    if (decoder == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a decoder");
    }
    decoder->weights = weights;
    decoder->options = *options;
    decoder->rows = options->sequences * options->prompt;
    status = prepare(decoder, err);
    if (status != ESPL_OK) {
        espl_device_decoder_destroy(decoder);
        return status;
    }
    *out = decoder;
    return ESPL_OK;
}

void espl_device_decoder_destroy(struct espl_device_decoder *decoder)
{
    if (decoder == NULL) {
        return;
    }
    void *const memory[] = {
        decoder->rotation,  decoder->prompt,       decoder->next,      decoder->starts,
        decoder->history,   decoder->hidden[0],    decoder->hidden[1], decoder->branch,
        decoder->qkv,       decoder->context,      decoder->inner,     decoder->input,
        decoder->logits,    decoder->input_scales, decoder->best,      decoder->arrived,
        decoder->bad_logit, decoder->nonfinite,    decoder->parts};
    espl_cuda_graph_destroy(decoder->step);
    espl_device_products_free(decoder->weights, &decoder->of_step);
    espl_device_products_free(decoder->weights, &decoder->of_prompt);
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        espl_cuda_free(memory[i]);
    }
    for (size_t b = 0; decoder->caches != NULL && b < decoder->weights->block_count; b++) {
        espl_cuda_free(decoder->caches[b].keys);
    }
    free(decoder->caches);
    espl_cuda_blaslt_destroy(decoder->blaslt);
    espl_cuda_blas_destroy(decoder->blas);
    espl_cuda_stream_destroy(decoder->stream);
    free(decoder);
}

/* ---- prompts and steps ---- */

static enum espl_status take_prompt(struct espl_device_decoder *decoder, const int32_t *ids,
                                    struct espl_error *err)
{
    const uint64_t vocabulary = decoder->weights->config.vocab;
    const size_t prompt = decoder->options.prompt;
    for (size_t i = 0; i < decoder->rows; i++) {
        if (ids[i] < 0 || (uint64_t)ids[i] >= vocabulary) {
            espl_fail(err, ESPL_E_CORRUPT,
                      "token id %ld at position %zu of prompt %zu is outside the model's "
                      "vocabulary of %llu",
                      (long)ids[i], i % prompt, i / prompt, (unsigned long long)vocabulary);
            return espl_hint(err, "the tokens must come from this model's own tokenizer");
        }
    }
    enum espl_status status =
        espl_cuda_upload(decoder->prompt, ids, decoder->rows * sizeof *ids, err);
    if (status == ESPL_OK) {
        status =
            espl_cuda_fill(decoder->starts, 0, decoder->options.sequences * sizeof(int32_t), err);
    }
    return status == ESPL_OK ? espl_cuda_synchronize(err) : status;
}

enum espl_status espl_device_read_prompt(struct espl_device_decoder *decoder, const int32_t *ids,
                                         struct espl_error *err)
{
    const struct espl_device_pass pass = {
        .decoder = decoder, .choose = true, .pieces = ESPL_DEVICE_ALL};
    enum espl_status status = take_prompt(decoder, ids, err);
    if (status == ESPL_OK) {
        status = espl_device_put_pass(&pass, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_wait(decoder, err);
    }
    decoder->position = status == ESPL_OK ? decoder->options.prompt : 0;
    decoder->made = status == ESPL_OK ? 1 : 0;
    return status;
}

enum espl_status espl_device_decode(struct espl_device_decoder *decoder, size_t count,
                                    double *seconds, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (decoder->made == 0 || count > decoder->options.tokens - decoder->position) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "no room for %zu tokens after %zu: the decoder was made for %zu", count,
                         decoder->position, decoder->options.tokens);
    }
    if (seconds != NULL) {
        status = espl_cuda_graph_time(decoder->step, decoder->stream, count, seconds, err);
    }
    for (size_t i = 0; seconds == NULL && status == ESPL_OK && i < count; i++) {
        status = espl_cuda_graph_replay(decoder->step, decoder->stream, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_wait(decoder, err);
    }
    decoder->position += count;
    decoder->made += count;
    return status;
}

enum espl_status espl_device_get_tokens(const struct espl_device_decoder *decoder, int32_t *ids,
                                        size_t count, struct espl_error *err)
{
    const size_t stride = decoder->options.tokens + 1;
    const size_t sequences = decoder->options.sequences;
    if (count > decoder->made) {
        return espl_fail(err, ESPL_E_INTERNAL, "%zu tokens asked of a decoder that made %zu", count,
                         decoder->made);
    }
    int32_t *history = espl_eval_allocate(sequences, stride, sizeof *history);
    enum espl_status status =
        history != NULL ? espl_cuda_download(history, decoder->history,
                                             sequences * stride * sizeof *history, err)
                        : espl_fail(err, ESPL_E_NOMEM, "out of memory for a decoder's tokens");
    for (size_t s = 0; status == ESPL_OK && s < sequences; s++) {
        memcpy(ids + s * count, history + s * stride + decoder->options.prompt,
               count * sizeof *ids);
    }
    free(history);
    return status;
}

enum espl_status espl_device_logits(struct espl_device_decoder *decoder, const int32_t *ids,
                                    float *logits, struct espl_error *err)
{
    const struct espl_device_pass pass = {.decoder = decoder, .pieces = ESPL_DEVICE_ALL};
    const size_t vocabulary = (size_t)decoder->weights->config.vocab;
    const size_t piece = espl_device_head_rows(&decoder->options);
    enum espl_status status = take_prompt(decoder, ids, err);
    if (status == ESPL_OK) {
        status = espl_device_put_pass(&pass, err);
    }
    for (size_t first = 0; status == ESPL_OK && first < decoder->rows; first += piece) {
        const size_t left = decoder->rows - first;
        const size_t rows = left < piece ? left : piece;
        status = espl_device_put_logits(&pass, first, rows, err);
        if (status == ESPL_OK) {
            status = espl_device_wait(decoder, err);
        }
        if (status == ESPL_OK) {
            status = espl_cuda_download(logits + first * vocabulary, decoder->logits,
                                        rows * vocabulary * sizeof *logits, err);
        }
    }
    decoder->position = 0;
    decoder->made = 0;
    return status;
}
