/* One block of an image model: patch merging (Swin), attention, MLP. */
#include "eval/vision_internal.h"
#include "eval/vision_packed.h"

#include <math.h>
#include <string.h>

/* What the steps of one call share. */
struct block_call {
    struct espl_vision *vision;
    const struct espl_vision_block_weights *block;
    const struct espl_vision_replacement *replace;
    uint64_t number;
    size_t images;
    size_t rows; /* images * tokens */
    espl_vision_input_fn on_input;
    void *user;
};

/* y = linear(x), added to y or through GELU; the observer sees x first. */
static enum espl_status run_linear(const struct block_call *call, enum espl_role role,
                                   enum espl_epilogue epilogue, float *x, float *y,
                                   struct espl_error *err)
{
    struct espl_vision *vision = call->vision;
    const struct espl_layer_weights *linear = &call->block->parts[role];
    const struct espl_quant_linear *packed = &call->block->packed[role];
    const float *weight = linear->weight;
    const size_t in = packed->nm != NULL ? packed->in : linear->shape.cols;
    const struct espl_gemm_shape shape = {
        .tokens = call->rows, .in = in, .out = linear->shape.rows};
    enum espl_status status = ESPL_OK;
    if (call->replace != NULL && call->replace->weight[role] != NULL) {
        weight = call->replace->weight[role];
    }
    if (call->on_input != NULL) {
        status = call->on_input(call->user, call->number, role, x, call->rows, in, err);
        espl_vision_start_clock(vision); /* the caller's time is not ours */
    }
    if (status == ESPL_OK && packed->nm != NULL) {
        status = espl_vision_run_packed(vision, packed, epilogue, call->rows, x, y, err);
    } else if (status == ESPL_OK) {
        status = vision->ops->fused_linear(vision->backend, &shape, epilogue, x, weight,
                                           linear->bias, y, err);
    }
    espl_vision_lap(vision, &vision->times.gemm);
    return status;
}

static enum espl_status run_norm(const struct block_call *call, enum espl_role role, const float *x,
                                 float *y, struct espl_error *err)
{
    const enum espl_status status =
        espl_vision_norm(call->vision, &call->block->parts[role], call->rows, x, y, err);
    espl_vision_lap(call->vision, &call->vision->times.norm);
    return status;
}

/* merged (images, cells, 4 * width) <- input (images, 4 * cells, width). The four cells of a square
 * stand in the order (row, column) = (0,0), (1,0), (0,1), (1,1). */
static void gather_cells(const struct block_call *call, const float *input, float *merged)
{
    const size_t side = (size_t)call->block->place.side;
    const size_t width = (size_t)call->block->place.width / 2; /* before merging */
    const size_t cells = side * side;
    for (size_t i = 0; i < call->images * cells; i++) {
        const size_t row = i % cells / side * 2;
        const size_t column = i % side * 2;
        const float *image = input + i / cells * 4 * cells * width;
        for (size_t part = 0; part < 4; part++) {
            const size_t cell = (row + part % 2) * 2 * side + column + part / 2;
            memcpy(merged + (i * 4 + part) * width, image + cell * width, width * sizeof *merged);
        }
    }
}

static enum espl_status merge(const struct block_call *call, const float *input, float *output,
                              struct espl_error *err)
{
    struct espl_vision *vision = call->vision;
    float *merged = vision->inner;
    gather_cells(call, input, merged);
    espl_vision_lap(vision, &vision->times.elementwise);
    const enum espl_status status = run_norm(call, ESPL_ROLE_MERGE_NORM, merged, merged, err);
    return status == ESPL_OK
               ? run_linear(call, ESPL_ROLE_MERGE, ESPL_EPILOGUE_NONE, merged, output, err)
               : status;
}

/* x += proj(attention(qkv(norm1(x)))) */
static enum espl_status attention_half(const struct block_call *call, float *x,
                                       struct espl_error *err)
{
    struct espl_vision *vision = call->vision;
    const struct espl_vision_place *place = &call->block->place;
    const size_t head_dim = (size_t)(place->width / place->heads);
    struct espl_full_attention_shape shape = {
        .images = call->images,
        .heads = (size_t)place->heads,
        .head_dim = head_dim,
        .scale = 1.0F / sqrtf((float)head_dim),
    };
    const struct espl_full_attention_tables tables = {call->block->rows, call->block->bias,
                                                      call->block->mask};
    espl_vision_get_windows(&vision->config, place, &shape.windows, &shape.tokens);

    enum espl_status status = run_norm(call, ESPL_ROLE_ATTENTION_NORM, x, vision->normed, err);
    if (status == ESPL_OK) {
        status =
            run_linear(call, ESPL_ROLE_QKV, ESPL_EPILOGUE_NONE, vision->normed, vision->inner, err);
    }
    if (status == ESPL_OK) {
        status = vision->ops->full_attention(vision->backend, &shape, &tables, vision->inner,
                                             vision->normed, err);
        espl_vision_lap(vision, &vision->times.attention);
    }
    return status == ESPL_OK
               ? run_linear(call, ESPL_ROLE_O, ESPL_EPILOGUE_ADD, vision->normed, x, err)
               : status;
}

/* x += fc2(gelu(fc1(norm2(x)))) */
static enum espl_status mlp_half(const struct block_call *call, float *x, struct espl_error *err)
{
    struct espl_vision *vision = call->vision;
    enum espl_status status = run_norm(call, ESPL_ROLE_MLP_NORM, x, vision->normed, err);
    if (status == ESPL_OK) {
        status =
            run_linear(call, ESPL_ROLE_FC1, ESPL_EPILOGUE_GELU, vision->normed, vision->inner, err);
    }
    return status == ESPL_OK
               ? run_linear(call, ESPL_ROLE_FC2, ESPL_EPILOGUE_ADD, vision->inner, x, err)
               : status;
}

enum espl_status espl_vision_block(struct espl_vision *vision, uint64_t block,
                                   const struct espl_vision_replacement *replace, size_t images,
                                   const float *input, float *output, espl_vision_input_fn on_input,
                                   void *user, struct espl_error *err)
{
    if (block >= vision->config.layers) {
        return espl_fail(err, ESPL_E_INTERNAL, "block %llu asked of a model with %llu blocks",
                         (unsigned long long)block, (unsigned long long)vision->config.layers);
    }
    const struct espl_vision_block_weights *weights = &vision->blocks[block];
    const struct block_call call = {
        .vision = vision,
        .block = weights,
        .replace = replace,
        .number = block,
        .images = images,
        .rows = images * (size_t)espl_vision_place_tokens(&vision->config, &weights->place),
        .on_input = on_input,
        .user = user,
    };
    enum espl_status status = espl_vision_check_images(vision, images, err);
    espl_vision_start_clock(vision);
    if (status == ESPL_OK && weights->place.merges) {
        status = merge(&call, input, output, err);
    } else if (status == ESPL_OK && output != input) {
        memcpy(output, input, images * espl_vision_values(vision, block) * sizeof *output);
        espl_vision_lap(vision, &vision->times.elementwise);
    }
    if (status == ESPL_OK) {
        status = attention_half(&call, output, err);
    }
    if (status == ESPL_OK) {
        status = mlp_half(&call, output, err);
    }
    if (status != ESPL_OK) {
        espl_context(err, "running block %llu", (unsigned long long)block);
    }
    return status;
}
