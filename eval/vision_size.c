/* What the forward pass of an image model needs: buffer widths, bytes, arithmetic. */
#include "eval/vision_internal.h"

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t patches_of(const struct espl_model_config *config)
{
    const uint64_t side = config->vision.image_size / config->vision.patch_size;
    return (size_t)(side * side);
}

static size_t patch_values(const struct espl_model_config *config)
{
    const struct espl_vision_config *vision = &config->vision;
    return (size_t)(vision->channels * vision->patch_size * vision->patch_size);
}

void espl_vision_get_windows(const struct espl_model_config *config,
                             const struct espl_vision_place *place, size_t *windows, size_t *tokens)
{
    const uint64_t all = espl_vision_place_tokens(config, place);
    *tokens = (size_t)(place->window == 0 ? all : place->window * place->window);
    *windows = (size_t)all / *tokens;
}

void espl_vision_get_widths(const struct espl_model_config *config,
                            struct espl_vision_widths *widths)
{
    widths->values = (size_t)(config->max_positions * config->hidden);
    widths->inner = patches_of(config) * patch_values(config);
    for (uint64_t b = 0; b < config->layers; b++) {
        struct espl_vision_place place;
        espl_vision_get_place(config, b, &place);
        const size_t tokens = (size_t)espl_vision_place_tokens(config, &place);
        widths->values = larger(widths->values, tokens * (size_t)place.width);
        widths->inner = larger(widths->inner, tokens * 3 * (size_t)place.width);
        widths->inner = larger(widths->inner, tokens * (size_t)place.ffn);
    }
}

size_t espl_vision_values(const struct espl_vision *vision, uint64_t block)
{
    const struct espl_model_config *config = &vision->config;
    struct espl_vision_place place;
    espl_vision_get_place(config, block > 0 ? block - 1 : 0, &place);
    return (size_t)(espl_vision_place_tokens(config, &place) * place.width);
}

double espl_vision_block_flop(const struct espl_model_config *config, uint64_t block)
{
    struct espl_vision_place place;
    size_t windows = 0;
    size_t window_tokens = 0;
    espl_vision_get_place(config, block, &place);
    espl_vision_get_windows(config, &place, &windows, &window_tokens);
    const double tokens = (double)espl_vision_place_tokens(config, &place);
    const double width = (double)place.width;
    double weights = 4.0 * width * width + 2.0 * width * (double)place.ffn;
    if (place.merges) {
        weights += 2.0 * width * width; /* 4 x the width before = 2 x this one */
    }
    return 2.0 * tokens * weights + 4.0 * tokens * (double)window_tokens * width;
}

double espl_vision_flop(const struct espl_model_config *config)
{
    struct espl_vision_place last;
    espl_vision_get_place(config, config->layers - 1, &last);
    const double heads = config->vision.distilled ? 2.0 : 1.0;
    double flop =
        2.0 * (double)patches_of(config) * (double)patch_values(config) * (double)config->hidden +
        2.0 * heads * (double)config->vocab * (double)last.width;
    for (uint64_t b = 0; b < config->layers; b++) {
        flop += espl_vision_block_flop(config, b);
    }
    return flop;
}

/* Attention tables of a block, in values. */
static uint64_t table_values(const struct espl_model_config *config,
                             const struct espl_vision_place *place)
{
    size_t windows = 0;
    size_t tokens = 0;
    if (place->window == 0) {
        return 0;
    }
    espl_vision_get_windows(config, place, &windows, &tokens);
    const uint64_t pairs = (uint64_t)tokens * tokens;
    return pairs * place->heads + windows * tokens + (place->shift != 0 ? windows * pairs : 0);
}

uint64_t espl_vision_bytes(const struct espl_model_config *config, size_t max_images)
{
    struct espl_vision_widths widths;
    espl_vision_get_widths(config, &widths);
    uint64_t values = espl_arch_parameters(config);
    for (uint64_t b = 0; b < config->layers; b++) {
        struct espl_vision_place place;
        espl_vision_get_place(config, b, &place);
        values += table_values(config, &place);
    }
    values += (uint64_t)max_images * (2 * widths.values + widths.inner);
    return values * sizeof(float);
}
