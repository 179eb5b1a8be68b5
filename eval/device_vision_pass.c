/* A pass of an image model: which kernels in which order.
 *
 * What a linear adds to the stream of activations is not added at once: it waits in `branch`, and
 * the norm that comes next adds it while it reads. */
#include "eval/device_vision_internal.h"

#include <math.h>

struct pass {
    const struct espl_device_vision *vision;
    void *stream;
    bool pending;       /* branch is to be added to x */
    const float *extra; /* so is this row, to every row; NULL = nothing */
};

static bool wants(const struct pass *pass, enum espl_device_vision_part part)
{
    return (pass->vision->parts & (unsigned)part) != 0;
}

static struct espl_cuda_vision_codes codes_of(const struct pass *pass, size_t width)
{
    const struct espl_device_vision *vision = pass->vision;
    return (struct espl_cuda_vision_codes){.codes = vision->buffers.codes,
                                           .stride = espl_device_vision_code_stride(width),
                                           .scales = vision->buffers.scales,
                                           .clip = vision->clip};
}

/* Norm of x and what waits for it; results are to be named by the caller. */
static struct espl_cuda_vision_norm norm_of(const struct pass *pass,
                                            const struct espl_device_vision_norm *norm, size_t rows)
{
    const struct espl_device_vision_buffers *buffers = &pass->vision->buffers;
    return (struct espl_cuda_vision_norm){.rows = rows,
                                          .width = norm->width,
                                          .x = buffers->x,
                                          .add = pass->pending ? buffers->branch : NULL,
                                          .add_row = pass->extra,
                                          .gain = norm->gain,
                                          .bias = norm->bias,
                                          .eps = (float)pass->vision->config.norm_eps};
}

static void settle(struct pass *pass)
{
    pass->pending = false;
    pass->extra = NULL;
}

/* ---- linears ---- */

/* y = linear(codes, or x in FP16); FC1 in FP16 with GELU. What is left of an FP16 linear's bias
 * waits when it may. */
static enum espl_status run_linear(struct pass *pass, const struct espl_device_vision_block *block,
                                   enum espl_role role, const uint16_t *x, uint16_t *y,
                                   struct espl_error *err)
{
    const struct espl_device_vision *vision = pass->vision;
    const struct espl_device_vision_linear *linear = &block->linears[role];
    const bool gelu = role == ESPL_ROLE_FC1;
    const bool waits = role == ESPL_ROLE_O || role == ESPL_ROLE_FC2;
    if (waits) {
        pass->pending = true;
        pass->extra = linear->matrix == NULL ? linear->bias : NULL;
    }
    if (!wants(pass, ESPL_DEVICE_VISION_LINEARS)) {
        return ESPL_OK;
    }
    if (linear->matrix != NULL) {
        return espl_device_vision_linear_run(linear, vision->buffers.codes, vision->buffers.scales,
                                             block->rows, y, pass->stream, err);
    }
    const enum espl_status status = espl_device_vision_linear_multiply(
        linear, vision->blas, x, linear->in, block->rows, false, y, pass->stream, err);
    return status == ESPL_OK && !waits && (gelu || linear->bias != NULL)
               ? espl_cuda_vision_finish(y, block->rows, linear->out, linear->bias, gelu,
                                         pass->stream, err)
               : status;
}

/* The input of a block's linear by a norm, which first adds what waits. */
static enum espl_status norm_input(struct pass *pass, const struct espl_device_vision_block *block,
                                   enum espl_role norm_role, enum espl_role role,
                                   struct espl_error *err)
{
    struct espl_cuda_vision_norm norm = norm_of(pass, &block->norms[norm_role], block->rows);
    norm.keep = pass->pending || pass->extra != NULL;
    if (block->linears[role].matrix != NULL) {
        norm.codes = codes_of(pass, norm.width);
    } else {
        norm.halves = pass->vision->buffers.values;
    }
    settle(pass);
    return wants(pass, ESPL_DEVICE_VISION_ROWS)
               ? espl_cuda_vision_normalise(&norm, pass->stream, err)
               : ESPL_OK;
}

/* The input of a block's packed linear from FP16 values; that of FC2 through GELU, which costs less
 * here than at the end of FC1's product. */
static enum espl_status round_input(const struct pass *pass,
                                    const struct espl_device_vision_block *block,
                                    enum espl_role role, const uint16_t *x, struct espl_error *err)
{
    const struct espl_device_vision_linear *linear = &block->linears[role];
    const struct espl_cuda_vision_codes codes = codes_of(pass, linear->in);
    return linear->matrix != NULL && wants(pass, ESPL_DEVICE_VISION_ROWS)
               ? espl_cuda_vision_quantise(x, block->rows, linear->in, role == ESPL_ROLE_FC2,
                                           &codes, pass->stream, err)
               : ESPL_OK;
}

/* ---- a block ---- */

/* x <- linear(norm(2 x 2 cells of x)) */
static enum espl_status merge(struct pass *pass, const struct espl_device_vision_block *block,
                              struct espl_error *err)
{
    const struct espl_device_vision *vision = pass->vision;
    const struct espl_device_vision_linear *linear = &block->linears[ESPL_ROLE_MERGE];
    struct espl_cuda_vision_norm norm =
        norm_of(pass, &block->norms[ESPL_ROLE_MERGE_NORM], block->rows);
    norm.side = (size_t)block->place.side;
    norm.halves = vision->buffers.values;
    settle(pass);
    pass->extra = linear->bias;
    if (!wants(pass, ESPL_DEVICE_VISION_REST)) {
        return ESPL_OK;
    }
    const enum espl_status status = espl_cuda_vision_normalise(&norm, pass->stream, err);
    return status == ESPL_OK
               ? espl_device_vision_linear_multiply(linear, vision->blas, vision->buffers.values,
                                                    linear->in, block->rows, true,
                                                    vision->buffers.x, pass->stream, err)
               : status;
}

static enum espl_status attend(const struct pass *pass,
                               const struct espl_device_vision_block *block, struct espl_error *err)
{
    const struct espl_device_vision_buffers *buffers = &pass->vision->buffers;
    const size_t head_dim = (size_t)(block->place.width / block->place.heads);
    const struct espl_cuda_vision_attention attention = {
        .images = pass->vision->images,
        .windows = block->windows,
        .tokens = block->window_tokens,
        .heads = (size_t)block->place.heads,
        .head_dim = head_dim,
        .scale = 1.0F / sqrtf((float)head_dim),
        .qkv = buffers->inner,
        .rows = block->order,
        .bias = block->bias,
        .mask = block->mask,
        .y = buffers->values,
    };
    return wants(pass, ESPL_DEVICE_VISION_ATTENTION)
               ? espl_cuda_vision_attend(&attention, pass->stream, err)
               : ESPL_OK;
}

static enum espl_status run_block(struct pass *pass, const struct espl_device_vision_block *block,
                                  struct espl_error *err)
{
    const struct espl_device_vision_buffers *buffers = &pass->vision->buffers;
    enum espl_status status = block->place.merges ? merge(pass, block, err) : ESPL_OK;
    if (status == ESPL_OK) {
        status = norm_input(pass, block, ESPL_ROLE_ATTENTION_NORM, ESPL_ROLE_QKV, err);
    }
    if (status == ESPL_OK) {
        status = run_linear(pass, block, ESPL_ROLE_QKV, buffers->values, buffers->inner, err);
    }
    if (status == ESPL_OK) {
        status = attend(pass, block, err);
    }
    if (status == ESPL_OK) {
        status = round_input(pass, block, ESPL_ROLE_O, buffers->values, err);
    }
    if (status == ESPL_OK) {
        status = run_linear(pass, block, ESPL_ROLE_O, buffers->values, buffers->branch, err);
    }
    if (status == ESPL_OK) {
        status = norm_input(pass, block, ESPL_ROLE_MLP_NORM, ESPL_ROLE_FC1, err);
    }
    if (status == ESPL_OK) {
        status = run_linear(pass, block, ESPL_ROLE_FC1, buffers->values, buffers->inner, err);
    }
    if (status == ESPL_OK) {
        status = round_input(pass, block, ESPL_ROLE_FC2, buffers->inner, err);
    }
    return status == ESPL_OK
               ? run_linear(pass, block, ESPL_ROLE_FC2, buffers->inner, buffers->branch, err)
               : status;
}

/* ---- before and after the blocks ---- */

static enum espl_status embed(struct pass *pass, struct espl_error *err)
{
    const struct espl_device_vision *vision = pass->vision;
    const struct espl_device_vision_buffers *buffers = &vision->buffers;
    const struct espl_device_vision_linear *linear = &vision->embedding;
    const struct espl_vision_config *sizes = &vision->config.vision;
    const size_t across = (size_t)(sizes->image_size / sizes->patch_size);
    const size_t rows = vision->images * across * across;
    const struct espl_cuda_vision_patches patches = {
        .pixels = buffers->pixels,
        .table = vision->pixel_table,
        .images = vision->images,
        .size = (size_t)sizes->image_size,
        .patch = (size_t)sizes->patch_size,
        .channels = (size_t)sizes->channels,
        .patches = buffers->patches,
        .stride = linear->half_stride,
    };
    const struct espl_cuda_vision_tokens tokens = {
        .embedded = buffers->floats,
        .bias = linear->bias,
        .special = vision->special,
        .position = vision->position,
        .images = vision->images,
        .tokens = (size_t)vision->config.max_positions,
        .specials = sizes->distilled ? 2 : 1,
        .width = linear->out,
        .x = buffers->x,
    };
    struct espl_cuda_vision_norm norm = norm_of(pass, &vision->embedding_norm, rows);
    norm.x = buffers->floats;
    norm.add_row = linear->bias;
    norm.floats = buffers->x;
    enum espl_status status = espl_cuda_vision_cut(&patches, pass->stream, err);
    if (status == ESPL_OK) {
        status = espl_device_vision_linear_multiply(linear, vision->blas, buffers->patches,
                                                    linear->half_stride, rows, true,
                                                    buffers->floats, pass->stream, err);
    }
    if (status == ESPL_OK) {
        status = sizes->window_size != 0 ? espl_cuda_vision_normalise(&norm, pass->stream, err)
                                         : espl_cuda_vision_join(&tokens, pass->stream, err);
    }
    return status;
}

/* Normed special tokens of a ViT, or the mean of a Swin's normed cells, behind each other. */
static enum espl_status gather_heads(const struct pass *pass, size_t heads, struct espl_error *err)
{
    const struct espl_device_vision *vision = pass->vision;
    const struct espl_device_vision_buffers *buffers = &vision->buffers;
    const struct espl_device_vision_block *last = &vision->blocks[vision->config.layers - 1];
    const size_t cells = last->rows / vision->images;
    const size_t width = vision->final_norm.width;
    enum espl_status status = ESPL_OK;
    if (vision->config.vision.window_size != 0) {
        struct espl_cuda_vision_norm norm = norm_of(pass, &vision->final_norm, last->rows);
        norm.floats = buffers->floats;
        status = espl_cuda_vision_normalise(&norm, pass->stream, err);
        return status == ESPL_OK ? espl_cuda_vision_pool(buffers->floats, vision->images, cells,
                                                         width, buffers->pooled, pass->stream, err)
                                 : status;
    }
    for (size_t h = 0; status == ESPL_OK && h < heads; h++) {
        struct espl_cuda_vision_norm norm = norm_of(pass, &vision->final_norm, vision->images);
        norm.x += h * width;
        norm.add = norm.add != NULL ? norm.add + h * width : NULL;
        norm.step = cells * width;
        norm.floats = buffers->pooled + h * vision->images * width;
        status = espl_cuda_vision_normalise(&norm, pass->stream, err);
    }
    return status;
}

static enum espl_status classify(const struct pass *pass, struct espl_error *err)
{
    const struct espl_device_vision *vision = pass->vision;
    const struct espl_cuda_vision_heads heads = {
        .images = vision->images,
        .width = vision->final_norm.width,
        .classes = (size_t)vision->config.vocab,
        .heads = vision->config.vision.distilled ? 2 : 1,
        .x = vision->buffers.pooled,
        .weight = {vision->head_weight[0], vision->head_weight[1]},
        .bias = {vision->head_bias[0], vision->head_bias[1]},
        .logits = vision->buffers.logits,
    };
    const enum espl_status status = gather_heads(pass, heads.heads, err);
    return status == ESPL_OK ? espl_cuda_vision_classify(&heads, pass->stream, err) : status;
}

enum espl_status espl_device_vision_enqueue(void *self, void *stream, struct espl_error *err)
{
    const struct espl_device_vision *vision = self;
    struct pass pass = {.vision = vision, .stream = stream};
    enum espl_status status = wants(&pass, ESPL_DEVICE_VISION_REST) ? embed(&pass, err) : ESPL_OK;
    for (uint64_t b = 0; status == ESPL_OK && b < vision->config.layers; b++) {
        status = run_block(&pass, &vision->blocks[b], err);
    }
    return status == ESPL_OK && wants(&pass, ESPL_DEVICE_VISION_REST) ? classify(&pass, err)
                                                                      : status;
}
