/* The object that holds an image model, its embedding and its head. Blocks: vision_block.c. */
#include "eval/vision.h"

#include "core/log.h"
#include "eval/vision_internal.h"
#include "eval/vision_packed.h"

#include <stdlib.h>
#include <string.h>

void espl_vision_start_clock(struct espl_vision *vision)
{
    vision->last_clock = espl_clock_monotonic();
}

void espl_vision_lap(struct espl_vision *vision, double *account)
{
    const double now = espl_clock_monotonic();
    *account += now - vision->last_clock;
    vision->last_clock = now;
}

enum espl_status espl_vision_check_images(const struct espl_vision *vision, size_t images,
                                          struct espl_error *err)
{
    return images <= vision->max_images
               ? ESPL_OK
               : espl_fail(err, ESPL_E_INTERNAL, "%zu images given to a work space for %zu", images,
                           vision->max_images);
}

enum espl_status espl_vision_norm(struct espl_vision *vision, const struct espl_layer_weights *norm,
                                  size_t rows, const float *x, float *y, struct espl_error *err)
{
    return vision->ops->layernorm(vision->backend, rows, norm->shape.rows, x, norm->weight,
                                  norm->bias, (float)vision->config.norm_eps, y, err);
}

/* ---- loading ---- */

static const enum espl_role outside_roles[] = {
    ESPL_ROLE_EMBEDDING,      ESPL_ROLE_POSITION,   ESPL_ROLE_CLASS_TOKEN, ESPL_ROLE_DISTILL_TOKEN,
    ESPL_ROLE_EMBEDDING_NORM, ESPL_ROLE_FINAL_NORM, ESPL_ROLE_HEAD,        ESPL_ROLE_DISTILL_HEAD,
};
static const enum espl_role block_roles[] = {
    ESPL_ROLE_MERGE_NORM,     ESPL_ROLE_MERGE, ESPL_ROLE_ATTENTION_NORM,
    ESPL_ROLE_ATTENTION_BIAS, ESPL_ROLE_QKV,   ESPL_ROLE_O,
    ESPL_ROLE_MLP_NORM,       ESPL_ROLE_FC1,   ESPL_ROLE_FC2,
};

/* The architecture's table says which roles there are; the view has checked that the artifact has
 * them all. */
static enum espl_status load_outside(struct espl_vision *vision, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof outside_roles / sizeof outside_roles[0];
         i++) {
        const enum espl_role role = outside_roles[i];
        status =
            espl_layer_weights_load(&vision->outside[role], vision->model, -1, role, true, err);
    }
    return status;
}

static enum espl_status load_block(struct espl_vision *vision, uint64_t number,
                                   struct espl_error *err)
{
    struct espl_vision_block_weights *block = &vision->blocks[number];
    enum espl_status status = ESPL_OK;
    espl_vision_get_place(&vision->config, number, &block->place);
    for (size_t i = 0; status == ESPL_OK && i < sizeof block_roles / sizeof block_roles[0]; i++) {
        const enum espl_role role = block_roles[i];
        bool packed = false;
        status = espl_vision_load_packed(vision, number, role, &packed, err);
        if (status == ESPL_OK && !packed) {
            status = espl_layer_weights_load(&block->parts[role], vision->model, (int64_t)number,
                                             role, true, err);
        }
    }
    if (status == ESPL_OK) {
        status = espl_vision_make_tables(&vision->config, block, err);
    }
    return status == ESPL_OK ? status
                             : espl_context(err, "loading block %llu", (unsigned long long)number);
}

/* In double and rounded once: the difference to float32 arithmetic is below a unit in the last
 * place of the result. */
void espl_vision_fill_pixels(const struct espl_model_config *config,
                             const struct espl_pixel_scale *scale, float (*table)[256])
{
    const double *mean = scale != NULL ? scale->mean : config->vision.mean;
    const double *std = scale != NULL ? scale->std : config->vision.std;
    for (size_t c = 0; c < config->vision.channels; c++) {
        for (int value = 0; value < 256; value++) {
            table[c][value] = (float)(((double)value / 255.0 - mean[c]) / std[c]);
        }
    }
}

static enum espl_status allocate(struct espl_vision *vision, struct espl_error *err)
{
    const size_t images = vision->max_images;
    espl_vision_get_widths(&vision->config, &vision->widths);
    vision->blocks = calloc((size_t)vision->config.layers, sizeof *vision->blocks);
    vision->pixel_table =
        calloc((size_t)vision->config.vision.channels, sizeof *vision->pixel_table);
    vision->activations = espl_eval_allocate(images, vision->widths.values, sizeof(float));
    vision->normed = espl_eval_allocate(images, vision->widths.values, sizeof(float));
    vision->inner = espl_eval_allocate(images, vision->widths.inner, sizeof(float));
    if (vision->blocks == NULL || vision->pixel_table == NULL || vision->activations == NULL ||
        vision->normed == NULL || vision->inner == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the work space of %zu images",
                         images);
    }
    return ESPL_OK;
}

enum espl_status espl_vision_create(struct espl_model *model, struct espl_backend *backend,
                                    size_t max_images, const struct espl_pixel_scale *scale,
                                    struct espl_vision **out, struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    if (!espl_model_config_is_vision(config)) {
        return espl_fail(err, ESPL_E_KIND, "architecture '%s' is not an image model",
                         config->architecture);
    }
    struct espl_vision *vision = calloc(1, sizeof *vision);
    if (vision == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for an image model");
    }
    vision->model = model;
    vision->backend = backend;
    vision->ops = espl_backend_ops(backend);
    vision->config = *config;
    vision->max_images = max_images;
    espl_vision_start_clock(vision);
    enum espl_status status = allocate(vision, err);
    if (status == ESPL_OK) {
        espl_vision_fill_pixels(config, scale, vision->pixel_table);
        status = load_outside(vision, err);
    }
    for (uint64_t b = 0; status == ESPL_OK && b < config->layers; b++) {
        status = load_block(vision, b, err);
    }
    espl_vision_lap(vision, &vision->times.load);
    if (status != ESPL_OK) {
        espl_vision_destroy(vision);
        return status;
    }
    *out = vision;
    return ESPL_OK;
}

void espl_vision_destroy(struct espl_vision *vision)
{
    if (vision == NULL) {
        return;
    }
    for (uint64_t b = 0; vision->blocks != NULL && b < vision->config.layers; b++) {
        for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
            espl_layer_weights_free(&vision->blocks[b].parts[role]);
            espl_quant_linear_free(&vision->blocks[b].packed[role]);
        }
        free(vision->blocks[b].rows);
        free(vision->blocks[b].bias);
        free(vision->blocks[b].mask);
    }
    for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
        espl_layer_weights_free(&vision->outside[role]);
    }
    free(vision->blocks);
    free(vision->pixel_table);
    free(vision->activations);
    free(vision->normed);
    free(vision->inner);
    free(vision->codes.codes);
    free(vision->codes.scales);
    free(vision);
}

const struct espl_vision_times *espl_vision_get_times(const struct espl_vision *vision)
{
    return &vision->times;
}

uint64_t espl_vision_blocks(const struct espl_vision *vision)
{
    return vision->config.layers;
}

size_t espl_vision_classes(const struct espl_vision *vision)
{
    return (size_t)vision->config.vocab;
}

const float *espl_vision_weight(const struct espl_vision *vision, uint64_t block,
                                enum espl_role role, struct espl_matrix_shape *shape)
{
    if (block >= vision->config.layers || (unsigned)role >= ESPL_ROLE_COUNT) {
        return NULL;
    }
    *shape = vision->blocks[block].parts[role].shape;
    return vision->blocks[block].parts[role].weight;
}

/* ---- embedding ---- */

/* patches (images, patches, channels * patch * patch) in the order of a convolution's kernel:
 * channel, row, column. */
static void gather_patches(const struct espl_vision *vision, const uint8_t *pixels, size_t images,
                           float *patches)
{
    const size_t channels = (size_t)vision->config.vision.channels;
    const size_t size = (size_t)vision->config.vision.image_size;
    const size_t patch = (size_t)vision->config.vision.patch_size;
    const size_t across = size / patch;
    for (size_t i = 0; i < images * across * across; i++) {
        const uint8_t *corner = pixels + i / (across * across) * size * size * channels +
                                (i / across % across * size + i % across) * patch * channels;
        for (size_t c = 0; c < channels; c++) {
            const float *table = vision->pixel_table[c];
            for (size_t r = 0; r < patch; r++) {
                const uint8_t *line = corner + r * size * channels + c;
                for (size_t k = 0; k < patch; k++) {
                    *patches++ = table[line[k * channels]];
                }
            }
        }
    }
}

/* A ViT's tokens: class, distillation, patches, each plus its position. */
static void join_tokens(const struct espl_vision *vision, const float *embedded, size_t images,
                        float *activations)
{
    const struct espl_layer_weights *outside = vision->outside;
    const float *special[] = {outside[ESPL_ROLE_CLASS_TOKEN].weight,
                              outside[ESPL_ROLE_DISTILL_TOKEN].weight};
    const size_t specials = vision->config.vision.distilled ? 2 : 1;
    const size_t width = (size_t)vision->config.hidden;
    const size_t tokens = (size_t)vision->config.max_positions;
    for (size_t i = 0; i < images * tokens; i++) {
        const size_t token = i % tokens;
        const size_t patch = i / tokens * (tokens - specials) + token - specials;
        const float *from = token < specials ? special[token] : embedded + patch * width;
        const float *position = outside[ESPL_ROLE_POSITION].weight + token * width;
        for (size_t c = 0; c < width; c++) {
            activations[i * width + c] = from[c] + position[c];
        }
    }
}

enum espl_status espl_vision_embed(struct espl_vision *vision, const uint8_t *pixels, size_t images,
                                   float *activations, struct espl_error *err)
{
    const struct espl_layer_weights *embedding = &vision->outside[ESPL_ROLE_EMBEDDING];
    const bool windowed = vision->config.vision.window_size != 0;
    const size_t across =
        (size_t)(vision->config.vision.image_size / vision->config.vision.patch_size);
    const struct espl_gemm_shape shape = {.tokens = images * across * across,
                                          .in = embedding->shape.cols,
                                          .out = embedding->shape.rows};
    float *embedded = windowed ? activations : vision->normed;
    enum espl_status status = espl_vision_check_images(vision, images, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_vision_start_clock(vision);
    gather_patches(vision, pixels, images, vision->inner);
    status = vision->ops->gemm_f32(vision->backend, &shape, vision->inner, embedding->weight,
                                   embedding->bias, embedded, err);
    if (status == ESPL_OK && windowed) {
        status = espl_vision_norm(vision, &vision->outside[ESPL_ROLE_EMBEDDING_NORM], shape.tokens,
                                  activations, activations, err);
    } else if (status == ESPL_OK) {
        join_tokens(vision, embedded, images, activations);
    }
    espl_vision_lap(vision, &vision->times.embed);
    return status;
}

/* ---- head ---- */

static enum espl_status run_head(struct espl_vision *vision, enum espl_role role,
                                 enum espl_epilogue epilogue, size_t images, const float *x,
                                 float *logits, struct espl_error *err)
{
    const struct espl_layer_weights *head = &vision->outside[role];
    const struct espl_gemm_shape shape = {
        .tokens = images, .in = head->shape.cols, .out = head->shape.rows};
    return vision->ops->fused_linear(vision->backend, &shape, epilogue, x, head->weight, head->bias,
                                     logits, err);
}

/* Token `token` of every image. */
static void pick_tokens(const struct espl_vision *vision, size_t token, size_t images,
                        const float *activations, float *picked)
{
    const size_t width = (size_t)vision->config.hidden;
    const size_t stride = espl_vision_values(vision, vision->config.layers);
    for (size_t i = 0; i < images; i++) {
        memcpy(picked + i * width, activations + i * stride + token * width,
               width * sizeof *picked);
    }
}

static enum espl_status vit_head(struct espl_vision *vision, size_t images,
                                 const float *activations, float *logits, struct espl_error *err)
{
    const enum espl_role heads[] = {ESPL_ROLE_HEAD, ESPL_ROLE_DISTILL_HEAD};
    const size_t count = vision->config.vision.distilled ? 2 : 1;
    const size_t classes = (size_t)vision->config.vocab;
    enum espl_status status = ESPL_OK;
    for (size_t h = 0; status == ESPL_OK && h < count; h++) {
        pick_tokens(vision, h, images, activations, vision->normed);
        status = espl_vision_norm(vision, &vision->outside[ESPL_ROLE_FINAL_NORM], images,
                                  vision->normed, vision->normed, err);
        if (status == ESPL_OK) {
            status = run_head(vision, heads[h], h == 0 ? ESPL_EPILOGUE_NONE : ESPL_EPILOGUE_ADD,
                              images, vision->normed, logits, err);
        }
    }
    for (size_t i = 0; status == ESPL_OK && count == 2 && i < images * classes; i++) {
        logits[i] *= 0.5F;
    }
    return status;
}

/* Mean over the cells, after the norm. */
static void pool(size_t images, size_t cells, size_t width, const float *x, float *pooled)
{
    for (size_t i = 0; i < images; i++) {
        for (size_t c = 0; c < width; c++) {
            double sum = 0.0;
            for (size_t cell = 0; cell < cells; cell++) {
                sum += (double)x[(i * cells + cell) * width + c];
            }
            pooled[i * width + c] = (float)(sum / (double)cells);
        }
    }
}

static enum espl_status swin_head(struct espl_vision *vision, size_t images,
                                  const float *activations, float *logits, struct espl_error *err)
{
    const struct espl_layer_weights *norm = &vision->outside[ESPL_ROLE_FINAL_NORM];
    const size_t width = norm->shape.rows;
    const size_t cells = espl_vision_values(vision, vision->config.layers) / width;
    enum espl_status status =
        espl_vision_norm(vision, norm, images * cells, activations, vision->normed, err);
    if (status != ESPL_OK) {
        return status;
    }
    pool(images, cells, width, vision->normed, vision->inner);
    return run_head(vision, ESPL_ROLE_HEAD, ESPL_EPILOGUE_NONE, images, vision->inner, logits, err);
}

enum espl_status espl_vision_head(struct espl_vision *vision, size_t images,
                                  const float *activations, float *logits, struct espl_error *err)
{
    enum espl_status status = espl_vision_check_images(vision, images, err);
    espl_vision_start_clock(vision);
    if (status == ESPL_OK) {
        status = vision->config.vision.window_size == 0
                     ? vit_head(vision, images, activations, logits, err)
                     : swin_head(vision, images, activations, logits, err);
    }
    espl_vision_lap(vision, &vision->times.head);
    return status;
}

enum espl_status espl_vision_logits(struct espl_vision *vision,
                                    const struct espl_vision_replacement *replace,
                                    const uint8_t *pixels, size_t images, float *logits,
                                    struct espl_error *err)
{
    enum espl_status status = espl_vision_embed(vision, pixels, images, vision->activations, err);
    for (uint64_t b = 0; status == ESPL_OK && b < vision->config.layers; b++) {
        status = espl_vision_block(vision, b, replace != NULL ? &replace[b] : NULL, images,
                                   vision->activations, vision->activations, NULL, NULL, err);
    }
    return status == ESPL_OK ? espl_vision_head(vision, images, vision->activations, logits, err)
                             : status;
}
