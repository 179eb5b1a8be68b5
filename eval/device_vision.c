/* Image models on the device: weights and buffers, and what callers do with a pass. The pass:
 * device_vision_pass.c. */
#include "eval/device_vision.h"

#include "core/checked.h"
#include "espalier/cuda_memory.h"
#include "eval/device_memory.h"
#include "eval/device_vision_internal.h"

#include <stdlib.h>
#include <string.h>

enum { BYTE_VALUES = 256 };

/* ---- sizes ---- */

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t patch_columns(const struct espl_model_config *config)
{
    return (size_t)(config->vision.channels * config->vision.patch_size *
                    config->vision.patch_size);
}

static size_t patch_count(const struct espl_model_config *config)
{
    const size_t across = (size_t)(config->vision.image_size / config->vision.patch_size);
    return across * across;
}

/* Bytes of every buffer, in the order of struct espl_device_vision_buffers; more than any device
 * has when there are no numbers for them. */
static void measure_buffers(const struct espl_model_config *config, size_t images, bool sums,
                            size_t bytes[ESPL_DEVICE_VISION_BUFFERS])
{
    struct espl_vision_widths widths;
    struct espl_vision_place place;
    size_t codes = 0;
    size_t tokens = 0;
    espl_vision_get_widths(config, &widths);
    for (uint64_t b = 0; b < config->layers; b++) {
        espl_vision_get_place(config, b, &place);
        const size_t here = (size_t)espl_vision_place_tokens(config, &place);
        const size_t widest = larger((size_t)place.width, (size_t)place.ffn);
        codes = larger(codes, here * espl_device_vision_code_stride(widest));
        tokens = larger(tokens, here);
    }
    const size_t sizes[ESPL_DEVICE_VISION_BUFFERS] = {
        (size_t)(config->vision.image_size * config->vision.image_size * config->vision.channels),
        sizeof(uint16_t) * patch_count(config) *
            espl_device_vision_half_stride(patch_columns(config)),
        sizeof(float) * widths.values,
        sizeof(float) * widths.values,
        sizeof(uint16_t) * widths.values,
        sizeof(uint16_t) * widths.inner,
        sizeof(uint16_t) * widths.values,
        codes,
        sizeof(float) * tokens,
        sums ? sizeof(int32_t) * widths.inner : 1,
        sizeof(float) * ESPL_DEVICE_VISION_HEADS * (size_t)place.width,
        sizeof(float) * (size_t)config->vocab,
    };
    for (size_t i = 0; i < ESPL_DEVICE_VISION_BUFFERS; i++) {
        if (!espl_mul_size(images, sizes[i], &bytes[i])) {
            bytes[i] = SIZE_MAX / (2 * ESPL_DEVICE_VISION_BUFFERS); /* nobody has so much */
        }
    }
}

uint64_t espl_device_vision_bytes(const struct espl_model_config *config, size_t images)
{
    size_t bytes[ESPL_DEVICE_VISION_BUFFERS];
    uint64_t sum = sizeof(float) * espl_arch_parameters(config); /* more than any form takes */
    measure_buffers(config, images, true, bytes);
    for (size_t i = 0; i < ESPL_DEVICE_VISION_BUFFERS; i++) {
        sum += bytes[i];
    }
    return sum;
}

/* The addresses of all buffers' pointers. */
static void list_buffers(struct espl_device_vision *vision,
                         void **pointers[ESPL_DEVICE_VISION_BUFFERS])
{
    struct espl_device_vision_buffers *b = &vision->buffers;
    void *const all[ESPL_DEVICE_VISION_BUFFERS] = {
        &b->pixels, &b->patches, &b->x,      &b->floats, &b->branch, &b->inner,
        &b->values, &b->codes,   &b->scales, &b->sums,   &b->pooled, &b->logits,
    };
    memcpy(pointers, all, sizeof all);
}

static enum espl_status take_buffers(struct espl_device_vision *vision, struct espl_error *err)
{
    void **pointers[ESPL_DEVICE_VISION_BUFFERS];
    enum espl_status status = ESPL_OK;
    list_buffers(vision, pointers);
    measure_buffers(&vision->config, vision->images, vision->by != ESPL_DEVICE_VISION_OWN,
                    vision->buffer_bytes);
    for (size_t i = 0; status == ESPL_OK && i < ESPL_DEVICE_VISION_BUFFERS; i++) {
        status = espl_cuda_alloc(vision->buffer_bytes[i], pointers[i], err);
    }
    return status == ESPL_OK ? espl_device_vision_fill(vision, 0, err) : status;
}

/* ---- weights ---- */

/* *values, *bias <- a part's tensors on the device; NULL where the model has none. */
static enum espl_status load_floats(const struct espl_device_vision_source *source, int64_t layer,
                                    enum espl_role role, struct espl_matrix_shape *shape,
                                    float **values, float **bias, struct espl_error *err)
{
    struct espl_layer_weights part = {0};
    enum espl_status status = source->floats(source->user, layer, role, &part, err);
    if (status == ESPL_OK) {
        *shape = part.shape;
        status =
            espl_device_upload_floats(part.weight, part.shape.rows * part.shape.cols, values, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(part.bias, part.shape.rows, bias, err);
    }
    espl_layer_weights_free(&part);
    return status;
}

static enum espl_status load_norm(const struct espl_device_vision_source *source, int64_t layer,
                                  enum espl_role role, struct espl_device_vision_norm *norm,
                                  struct espl_error *err)
{
    struct espl_matrix_shape shape = {0};
    const enum espl_status status =
        load_floats(source, layer, role, &shape, &norm->gain, &norm->bias, err);
    norm->width = shape.rows;
    return status;
}

static enum espl_status load_halves(const struct espl_device_vision_source *source, int64_t layer,
                                    enum espl_role role, struct espl_device_vision_linear *linear,
                                    struct espl_error *err)
{
    struct espl_layer_weights part = {0};
    enum espl_status status = source->floats(source->user, layer, role, &part, err);
    if (status == ESPL_OK && part.weight != NULL) {
        status = espl_device_vision_linear_halve(part.weight, part.bias, part.shape.rows,
                                                 part.shape.cols, linear, err);
    }
    espl_layer_weights_free(&part);
    return status;
}

/* Class and distillation token behind each other. */
static enum espl_status load_special(struct espl_device_vision *vision,
                                     const struct espl_device_vision_source *source,
                                     struct espl_error *err)
{
    const enum espl_role roles[] = {ESPL_ROLE_CLASS_TOKEN, ESPL_ROLE_DISTILL_TOKEN};
    const size_t count = vision->config.vision.distilled ? 2 : 1;
    const size_t width = (size_t)vision->config.hidden;
    float *both = espl_eval_allocate(count, width, sizeof *both);
    enum espl_status status =
        both != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for tokens");
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        struct espl_layer_weights part = {0};
        status = source->floats(source->user, -1, roles[i], &part, err);
        if (status == ESPL_OK) {
            memcpy(both + i * width, part.weight, width * sizeof *both);
        }
        espl_layer_weights_free(&part);
    }
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(both, count * width, &vision->special, err);
    }
    free(both);
    return status;
}

static enum espl_status load_ends(struct espl_device_vision *vision,
                                  const struct espl_device_vision_source *source,
                                  const struct espl_pixel_scale *scale, struct espl_error *err)
{
    const enum espl_role heads[ESPL_DEVICE_VISION_HEADS] = {ESPL_ROLE_HEAD, ESPL_ROLE_DISTILL_HEAD};
    const bool windowed = vision->config.vision.window_size != 0;
    struct espl_matrix_shape shape;
    float *no_bias = NULL;
    float table[ESPL_VISION_MAX_CHANNELS][BYTE_VALUES];
    espl_vision_fill_pixels(&vision->config, scale, table);
    enum espl_status status = espl_device_upload_floats(
        table[0], (size_t)vision->config.vision.channels * BYTE_VALUES, &vision->pixel_table, err);
    if (status == ESPL_OK) {
        status = load_halves(source, -1, ESPL_ROLE_EMBEDDING, &vision->embedding, err);
    }
    if (status == ESPL_OK && windowed) {
        status = load_norm(source, -1, ESPL_ROLE_EMBEDDING_NORM, &vision->embedding_norm, err);
    } else if (status == ESPL_OK) {
        status = load_special(vision, source, err);
        if (status == ESPL_OK) {
            status = load_floats(source, -1, ESPL_ROLE_POSITION, &shape, &vision->position,
                                 &no_bias, err);
        }
    }
    if (status == ESPL_OK) {
        status = load_norm(source, -1, ESPL_ROLE_FINAL_NORM, &vision->final_norm, err);
    }
    for (size_t h = 0; status == ESPL_OK && h < (vision->config.vision.distilled ? 2 : 1); h++) {
        status = load_floats(source, -1, heads[h], &shape, &vision->head_weight[h],
                             &vision->head_bias[h], err);
    }
    return status;
}

static enum espl_status load_tables(const struct espl_device_vision *vision,
                                    const struct espl_device_vision_source *source, uint64_t number,
                                    struct espl_device_vision_block *block, struct espl_error *err)
{
    struct espl_vision_block_weights host = {.place = block->place};
    struct espl_layer_weights *table = &host.parts[ESPL_ROLE_ATTENTION_BIAS];
    const size_t heads = (size_t)block->place.heads;
    const size_t pairs = block->window_tokens * block->window_tokens;
    const size_t cells = block->windows * block->window_tokens;
    void *order = NULL;
    if (block->place.window == 0) {
        return ESPL_OK;
    }
    enum espl_status status =
        source->floats(source->user, (int64_t)number, ESPL_ROLE_ATTENTION_BIAS, table, err);
    if (status == ESPL_OK) {
        status = espl_vision_make_tables(&vision->config, &host, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(host.bias, heads * pairs, &block->bias, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(host.mask, block->windows * pairs, &block->mask, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_upload(host.rows, cells, sizeof *host.rows, &order, err);
        block->order = order;
    }
    espl_layer_weights_free(table);
    free(host.rows);
    free(host.bias);
    free(host.mask);
    return status;
}

static enum espl_status load_linear(struct espl_device_vision *vision,
                                    const struct espl_device_vision_source *source, uint64_t number,
                                    enum espl_role role, struct espl_error *err)
{
    bool made = false;
    const enum espl_status status = source->linear(source->user, vision, number, role, &made, err);
    return status == ESPL_OK && !made ? load_halves(source, (int64_t)number, role,
                                                    &vision->blocks[number].linears[role], err)
                                      : status;
}

static enum espl_status load_block(struct espl_device_vision *vision,
                                   const struct espl_device_vision_source *source, uint64_t number,
                                   struct espl_error *err)
{
    static const enum espl_role norms[] = {ESPL_ROLE_MERGE_NORM, ESPL_ROLE_ATTENTION_NORM,
                                           ESPL_ROLE_MLP_NORM};
    static const enum espl_role linears[] = {ESPL_ROLE_MERGE, ESPL_ROLE_QKV, ESPL_ROLE_O,
                                             ESPL_ROLE_FC1, ESPL_ROLE_FC2};
    struct espl_device_vision_block *block = &vision->blocks[number];
    espl_vision_get_place(&vision->config, number, &block->place);
    espl_vision_get_windows(&vision->config, &block->place, &block->windows, &block->window_tokens);
    block->rows = vision->images * (size_t)espl_vision_place_tokens(&vision->config, &block->place);
    enum espl_status status = load_tables(vision, source, number, block, err);
    for (size_t i = 0; status == ESPL_OK && i < sizeof norms / sizeof norms[0]; i++) {
        if (norms[i] != ESPL_ROLE_MERGE_NORM || block->place.merges) {
            status = load_norm(source, (int64_t)number, norms[i], &block->norms[norms[i]], err);
        }
    }
    for (size_t i = 0; status == ESPL_OK && i < sizeof linears / sizeof linears[0]; i++) {
        if (linears[i] != ESPL_ROLE_MERGE || block->place.merges) {
            status = load_linear(vision, source, number, linears[i], err);
        }
    }
    return status == ESPL_OK ? status
                             : espl_context(err, "loading block %llu", (unsigned long long)number);
}

enum espl_status espl_device_vision_choose(struct espl_device_vision *vision,
                                           const struct espl_device_vision_block *block,
                                           const struct espl_nm_layout *layout, const int8_t *codes,
                                           struct espl_device_vision_linear *linear,
                                           struct espl_error *err)
{
    const struct espl_device_vision_buffers *buffers = &vision->buffers;
    const struct espl_device_vision_operands operands = {buffers->codes, buffers->scales,
                                                         buffers->sums, buffers->inner};
    return vision->by == ESPL_DEVICE_VISION_OWN
               ? ESPL_OK
               : espl_device_vision_library_take(vision->library, &operands,
                                                 vision->by == ESPL_DEVICE_VISION_LIBRARY,
                                                 block->rows, layout, codes, linear, err);
}

enum espl_status espl_device_vision_build(const struct espl_model_config *config, size_t images,
                                          const struct espl_pixel_scale *scale, float clip,
                                          enum espl_device_vision_by by,
                                          struct espl_device_vision_masters *masters,
                                          const struct espl_device_vision_source *source,
                                          struct espl_device_vision **out, struct espl_error *err)
{
    struct espl_device_vision *vision = calloc(1, sizeof *vision);
    if (vision != NULL) {
        vision->blocks = calloc((size_t)config->layers + 1, sizeof *vision->blocks);
    }
    if (vision == NULL || vision->blocks == NULL) {
        free(vision);
        espl_device_vision_masters_free(masters);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for an image model");
    }
    vision->masters = masters;
    vision->config = *config;
    vision->images = images;
    vision->clip = clip;
    vision->by = by;
    vision->parts = ESPL_DEVICE_VISION_ALL;
    enum espl_status status =
        espl_model_config_is_vision(config)
            ? espl_cuda_blas_create(&vision->blas, err)
            : espl_fail(err, ESPL_E_KIND, "architecture '%s' is not an image model",
                        config->architecture);
    if (status == ESPL_OK) {
        status = espl_cuda_stream_create(&vision->stream, err);
    }
    if (status == ESPL_OK) {
        status = load_ends(vision, source, scale, err);
    }
    if (status == ESPL_OK && by != ESPL_DEVICE_VISION_OWN) {
        status = espl_device_vision_library_create(&vision->library, err);
    }
    if (status == ESPL_OK) {
        status = take_buffers(vision, err);
    }
    for (uint64_t b = 0; status == ESPL_OK && b < config->layers; b++) {
        status = load_block(vision, source, b, err); /* may time products in the buffers */
    }
    if (status != ESPL_OK) {
        espl_device_vision_destroy(vision);
        return status;
    }
    *out = vision;
    return ESPL_OK;
}

static void free_norm(const struct espl_device_vision_norm *norm)
{
    espl_cuda_free(norm->gain);
    espl_cuda_free(norm->bias);
}

static void free_block(struct espl_device_vision_block *block)
{
    for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
        free_norm(&block->norms[role]);
        espl_device_vision_linear_free(&block->linears[role]);
    }
    espl_cuda_free(block->order);
    espl_cuda_free(block->bias);
    espl_cuda_free(block->mask);
}

void espl_device_vision_destroy(struct espl_device_vision *vision)
{
    void **pointers[ESPL_DEVICE_VISION_BUFFERS];
    if (vision == NULL) {
        return;
    }
    espl_cuda_graph_destroy(vision->graph);
    espl_cuda_stream_destroy(vision->stream);
    espl_cuda_blas_destroy(vision->blas);
    for (uint64_t b = 0; b < vision->config.layers; b++) {
        free_block(&vision->blocks[b]);
    }
    list_buffers(vision, pointers);
    for (size_t i = 0; i < ESPL_DEVICE_VISION_BUFFERS; i++) {
        espl_cuda_free(*pointers[i]);
    }
    for (size_t h = 0; h < ESPL_DEVICE_VISION_HEADS; h++) {
        espl_cuda_free(vision->head_weight[h]);
        espl_cuda_free(vision->head_bias[h]);
    }
    espl_device_vision_linear_free(&vision->embedding);
    free_norm(&vision->embedding_norm);
    free_norm(&vision->final_norm);
    espl_cuda_free(vision->pixel_table);
    espl_cuda_free(vision->special);
    espl_cuda_free(vision->position);
    espl_device_vision_masters_free(vision->masters);
    espl_device_vision_library_destroy(vision->library);
    free(vision->blocks);
    free(vision);
}

/* ---- use ---- */

enum espl_status espl_device_vision_fill(struct espl_device_vision *vision, int value,
                                         struct espl_error *err)
{
    void **pointers[ESPL_DEVICE_VISION_BUFFERS];
    enum espl_status status = ESPL_OK;
    list_buffers(vision, pointers);
    for (size_t i = 0; status == ESPL_OK && i < ESPL_DEVICE_VISION_BUFFERS; i++) {
        status = espl_cuda_fill(*pointers[i], value, vision->buffer_bytes[i], err);
    }
    return status;
}

enum espl_status espl_device_vision_logits(struct espl_device_vision *vision, const uint8_t *pixels,
                                           size_t images, float *logits, struct espl_error *err)
{
    const size_t picture = vision->buffer_bytes[0] / vision->images;
    enum espl_status status = ESPL_OK;
    if (images > vision->images) {
        return espl_fail(err, ESPL_E_INTERNAL, "%zu images given to a pass for %zu", images,
                         vision->images);
    }
    if (vision->graph == NULL) {
        status = espl_cuda_graph_create(espl_device_vision_enqueue, vision, vision->stream,
                                        &vision->graph, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_upload(vision->buffers.pixels, pixels, images * picture, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_synchronize(err); /* the stream does not wait for uploads */
    }
    if (status == ESPL_OK) {
        status = espl_cuda_graph_replay(vision->graph, vision->stream, err);
    }
    return status == ESPL_OK
               ? espl_cuda_download(logits, vision->buffers.logits,
                                    images * (size_t)vision->config.vocab * sizeof *logits, err)
               : status;
}

static enum espl_status launch_pass(void *self, size_t copy, bool overlap, void *stream,
                                    struct espl_error *err)
{
    (void)copy;
    (void)overlap;
    return espl_device_vision_enqueue(self, stream, err);
}

enum espl_status espl_device_vision_time(struct espl_device_vision *vision, unsigned parts,
                                         size_t passes, size_t repeats, struct espl_cuda_time *time,
                                         struct espl_error *err)
{
    const struct espl_cuda_subject subject = {vision, launch_pass};
    const struct espl_cuda_timing_options options = {
        .graph = true, .warm = true, .launches = passes, .repeats = repeats};
    vision->parts = parts;
    const enum espl_status status = espl_cuda_time_launches(&subject, &options, time, err);
    vision->parts = ESPL_DEVICE_VISION_ALL;
    return status;
}

uint64_t espl_device_vision_weight_bytes(const struct espl_device_vision *vision)
{
    uint64_t bytes = 0;
    for (uint64_t b = 0; b < vision->config.layers; b++) {
        for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
            if (espl_role_is_block_linear((enum espl_role)role) &&
                vision->blocks[b].linears[role].out > 0) {
                bytes += espl_device_vision_linear_bytes(&vision->blocks[b].linears[role]);
            }
        }
    }
    return bytes;
}

size_t espl_device_vision_by_library(const struct espl_device_vision *vision)
{
    size_t count = 0;
    for (uint64_t b = 0; b < vision->config.layers; b++) {
        for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
            count += vision->blocks[b].linears[role].library != NULL;
        }
    }
    return count;
}
