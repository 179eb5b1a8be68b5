/* Where the blocks of an image model stand, and its tensors from tables. */
#include "model/arch_vision.h"

#include "model/arch_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void espl_vision_get_place(const struct espl_model_config *config, uint64_t block,
                           struct espl_vision_place *place)
{
    const struct espl_vision_config *vision = &config->vision;
    uint64_t stage = 0;
    while (stage + 1 < vision->stages && block >= vision->depths[stage]) {
        block -= vision->depths[stage++];
    }
    place->stage = stage;
    place->index = block;
    place->width = config->hidden << stage;
    place->ffn = config->ffn << stage;
    place->heads = vision->stage_heads[stage];
    place->side = (vision->image_size / vision->patch_size) >> stage;
    place->merges = stage > 0 && block == 0;
    place->window = vision->window_size;
    place->shift = block % 2 == 1 ? vision->window_size / 2 : 0;
    if (place->side <= place->window) {
        place->window = place->side;
        place->shift = 0;
    }
}

uint64_t espl_vision_place_tokens(const struct espl_model_config *config,
                                  const struct espl_vision_place *place)
{
    return place->window == 0 ? config->max_positions : place->side * place->side;
}

#define ALWAYS  ESPL_VISION_ALWAYS
#define MERGES  ESPL_VISION_MERGES
#define WINDOWS ESPL_VISION_WINDOWS
#define WEIGHT  ESPL_VISION_WEIGHT
#define BIAS    ESPL_VISION_BIAS

/* A block of any image model; `when` leaves out what a ViT's blocks do not have. */
static const struct espl_vision_row block_rows[] = {
    {"downsample.norm", WEIGHT, ESPL_ROLE_MERGE_NORM, MERGES, ESPL_VISION_MERGED, ESPL_VISION_ONE},
    {"downsample.norm", BIAS, ESPL_ROLE_MERGE_NORM, MERGES, ESPL_VISION_MERGED, ESPL_VISION_ONE},
    {"downsample.reduction", WEIGHT, ESPL_ROLE_MERGE, MERGES, ESPL_VISION_WIDTH,
     ESPL_VISION_MERGED},
    {"norm1", WEIGHT, ESPL_ROLE_ATTENTION_NORM, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {"norm1", BIAS, ESPL_ROLE_ATTENTION_NORM, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {"attn.relative_position_bias_table", ESPL_VISION_PARAMETER, ESPL_ROLE_ATTENTION_BIAS, WINDOWS,
     ESPL_VISION_OFFSETS, ESPL_VISION_HEADS},
    {"attn.qkv", WEIGHT, ESPL_ROLE_QKV, ALWAYS, ESPL_VISION_QKV, ESPL_VISION_WIDTH},
    {"attn.qkv", BIAS, ESPL_ROLE_QKV, ESPL_VISION_QKV_BIAS, ESPL_VISION_QKV, ESPL_VISION_ONE},
    {"attn.proj", WEIGHT, ESPL_ROLE_O, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_WIDTH},
    {"attn.proj", BIAS, ESPL_ROLE_O, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {"norm2", WEIGHT, ESPL_ROLE_MLP_NORM, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {"norm2", BIAS, ESPL_ROLE_MLP_NORM, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {"mlp.fc1", WEIGHT, ESPL_ROLE_FC1, ALWAYS, ESPL_VISION_FFN, ESPL_VISION_WIDTH},
    {"mlp.fc1", BIAS, ESPL_ROLE_FC1, ALWAYS, ESPL_VISION_FFN, ESPL_VISION_ONE},
    {"mlp.fc2", WEIGHT, ESPL_ROLE_FC2, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_FFN},
    {"mlp.fc2", BIAS, ESPL_ROLE_FC2, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {NULL, WEIGHT, ESPL_ROLE_NONE, ALWAYS, ESPL_VISION_ONE, ESPL_VISION_ONE},
};

static uint64_t dim_size(enum espl_vision_dim dim, const struct espl_model_config *config,
                         const struct espl_vision_place *place)
{
    const struct espl_vision_config *vision = &config->vision;
    switch (dim) {
    case ESPL_VISION_WIDTH:
        return place->width;
    case ESPL_VISION_LAST:
        return config->hidden << (vision->stages - 1);
    case ESPL_VISION_QKV:
        return 3 * place->width;
    case ESPL_VISION_FFN:
        return place->ffn;
    case ESPL_VISION_PATCH:
        return vision->channels * vision->patch_size * vision->patch_size;
    case ESPL_VISION_CLASSES:
        return config->vocab;
    case ESPL_VISION_TOKENS:
        return config->max_positions;
    case ESPL_VISION_OFFSETS:
        return (2 * place->window - 1) * (2 * place->window - 1);
    case ESPL_VISION_HEADS:
        return place->heads;
    case ESPL_VISION_MERGED:
        return 2 * place->width;
    case ESPL_VISION_ONE:
        break;
    }
    return 1;
}

static bool row_applies(const struct espl_vision_row *row, const struct espl_model_config *config,
                        const struct espl_vision_place *place)
{
    switch (row->when) {
    case ESPL_VISION_DISTILLED:
        return config->vision.distilled;
    case ESPL_VISION_QKV_BIAS:
        return config->attention_bias;
    case ESPL_VISION_MERGES:
        return place->merges;
    case ESPL_VISION_WINDOWS:
        return place->window != 0;
    case ESPL_VISION_ALWAYS:
        break;
    }
    return true;
}

/* The row number *index among those that apply; counts *index down when there are not so many. */
static const struct espl_vision_row *find_row(const struct espl_vision_row *rows,
                                              const struct espl_model_config *config,
                                              const struct espl_vision_place *place,
                                              uint64_t *index)
{
    for (size_t i = 0; rows[i].module != NULL; i++) {
        if (!row_applies(&rows[i], config, place)) {
            continue;
        }
        if (*index == 0) {
            return &rows[i];
        }
        (*index)--;
    }
    return NULL;
}

/* A patch embedding is a convolution's kernel, tokens have a dimension for the batch. */
static void fill_file_shape(const struct espl_model_config *config, struct espl_tensor_spec *spec)
{
    spec->file_rank = spec->rank;
    memcpy(spec->file_shape, spec->shape, sizeof spec->shape);
    if (spec->role == ESPL_ROLE_EMBEDDING && !spec->is_bias) {
        spec->file_rank = 4;
        spec->file_shape[1] = config->vision.channels;
        spec->file_shape[2] = config->vision.patch_size;
        spec->file_shape[3] = config->vision.patch_size;
    } else if (spec->role == ESPL_ROLE_CLASS_TOKEN || spec->role == ESPL_ROLE_DISTILL_TOKEN ||
               spec->role == ESPL_ROLE_POSITION) {
        spec->file_rank = 3;
        spec->file_shape[0] = 1;
        spec->file_shape[1] = spec->shape[0];
        spec->file_shape[2] = spec->shape[1];
    }
}

static void fill_names(const struct espl_vision_row *row, const struct espl_model_config *config,
                       const struct espl_vision_place *place, int64_t layer,
                       struct espl_tensor_spec *spec)
{
    static const char *const endings[] = {".weight", ".bias", ""};
    const char *part = row->part == ESPL_VISION_BIAS ? "bias" : "weight";
    if (layer < 0) {
        (void)snprintf(spec->module, sizeof spec->module, "%s", row->module);
        (void)snprintf(spec->path, sizeof spec->path, "/%s/%s", row->module, part);
    } else {
        if (config->vision.window_size == 0) {
            (void)snprintf(spec->module, sizeof spec->module, "blocks.%" PRId64 ".%s", layer,
                           row->module);
        } else if (row->when == ESPL_VISION_MERGES) {
            (void)snprintf(spec->module, sizeof spec->module, "layers.%" PRIu64 ".%s", place->stage,
                           row->module);
        } else {
            (void)snprintf(spec->module, sizeof spec->module,
                           "layers.%" PRIu64 ".blocks.%" PRIu64 ".%s", place->stage, place->index,
                           row->module);
        }
        (void)snprintf(spec->path, sizeof spec->path, "/layers/%03" PRId64 "/%s/%s", layer,
                       row->module, part);
    }
    (void)snprintf(spec->name, sizeof spec->name, "%s%s", spec->module, endings[row->part]);
}

static void fill_spec(const struct espl_vision_row *row, const struct espl_model_config *config,
                      const struct espl_vision_place *place, int64_t layer,
                      struct espl_tensor_spec *spec)
{
    memset(spec, 0, sizeof *spec);
    fill_names(row, config, place, layer, spec);
    spec->role = row->role;
    spec->is_bias = row->part == ESPL_VISION_BIAS;
    spec->layer = layer;
    spec->rank = row->cols == ESPL_VISION_ONE ? 1 : 2;
    spec->shape[0] = dim_size(row->rows, config, place);
    spec->shape[1] = dim_size(row->cols, config, place);
    fill_file_shape(config, spec);
}

bool espl_vision_table_tensor(const struct espl_vision_row *outside,
                              const struct espl_model_config *config, uint64_t index,
                              struct espl_tensor_spec *spec)
{
    struct espl_vision_place place;
    espl_vision_get_place(config, 0, &place);
    const struct espl_vision_row *row = find_row(outside, config, &place, &index);
    if (row != NULL) {
        fill_spec(row, config, &place, -1, spec);
        return true;
    }
    for (uint64_t block = 0; block < config->layers; block++) {
        espl_vision_get_place(config, block, &place);
        row = find_row(block_rows, config, &place, &index);
        if (row != NULL) {
            fill_spec(row, config, &place, (int64_t)block, spec);
            return true;
        }
    }
    return false;
}

const char *espl_vision_local_module(const struct espl_tensor_spec *spec)
{
    const char *at = strstr(spec->module, "blocks.");
    if (spec->layer < 0) {
        return spec->module;
    }
    if (at == NULL) { /* "layers.1.downsample.norm" */
        at = spec->module;
    }
    at = strchr(at, '.');
    return strchr(at + 1, '.') + 1;
}

const char *espl_vision_find_renamed(const struct espl_vision_renamed *names, const char *module,
                                     unsigned part)
{
    for (size_t i = 0; names[i].timm != NULL; i++) {
        if (strcmp(names[i].timm, module) == 0) {
            return part < ESPL_ARCH_MAX_PARTS ? names[i].hf[part] : NULL;
        }
    }
    return NULL;
}
