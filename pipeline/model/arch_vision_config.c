/* Configurations of image models: derived sizes, limits, the "vision" member of descriptions. */
#include "model/arch_internal.h"
#include "model/arch_vision.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_IMAGE = 4096, MAX_PATCH = 256 };

static const double imagenet_mean[] = {0.485, 0.456, 0.406};
static const double imagenet_std[] = {0.229, 0.224, 0.225};

void espl_vision_default_scale(struct espl_vision_config *vision)
{
    for (size_t c = 0; c < ESPL_VISION_MAX_CHANNELS; c++) {
        const bool colour = vision->channels == 3 && c < 3;
        vision->mean[c] = colour ? imagenet_mean[c] : 0.5;
        vision->std[c] = colour ? imagenet_std[c] : 0.5;
    }
}

/* 0 while the patch size is not known. */
static uint64_t patches_across(const struct espl_vision_config *vision)
{
    return vision->patch_size != 0 ? vision->image_size / vision->patch_size : 0;
}

enum espl_status espl_vision_complete_config(struct espl_model_config *config,
                                             struct espl_error *err)
{
    struct espl_vision_config *vision = &config->vision;
    config->layers = 0;
    for (size_t s = 0; s < vision->stages && s < ESPL_VISION_MAX_STAGES; s++) {
        config->layers += vision->depths[s];
    }
    config->heads = vision->stage_heads[0];
    config->kv_heads = config->heads;
    config->head_dim = config->heads != 0 ? config->hidden / config->heads : 0;
    config->embed_dim = config->hidden;
    config->norm = ESPL_NORM_LAYER;
    config->norm_affine = true;
    config->activation = ESPL_ACT_GELU;
    config->pre_norm = true;
    config->final_norm = true;
    config->output_bias = true;
    config->mlp_bias = true;
    config->rope.type = ESPL_ROPE_NONE;
    config->bos_id = -1;
    config->eos_id = -1;
    const uint64_t side = patches_across(vision);
    config->max_positions = side * side + (vision->window_size != 0 ? 0
                                           : vision->distilled      ? 2
                                                                    : 1);
    return espl_vision_check_config(config, err);
}

static enum espl_status check_sizes(const struct espl_vision_config *vision, struct espl_error *err)
{
    const struct {
        const char *name;
        uint64_t value, max;
    } sizes[] = {
        {"image_size", vision->image_size, MAX_IMAGE},
        {"patch_size", vision->patch_size, MAX_PATCH},
        {"channels", vision->channels, ESPL_VISION_MAX_CHANNELS},
        {"stages", vision->stages, ESPL_VISION_MAX_STAGES},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].max) {
            return espl_fail(err, ESPL_E_KIND,
                             "model size '%s' must be from 1 to %" PRIu64 ", got %" PRIu64,
                             sizes[i].name, sizes[i].max, sizes[i].value);
        }
    }
    if (vision->image_size % vision->patch_size != 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "pictures of %" PRIu64
                         " pixels a side cannot be cut into patches of %" PRIu64,
                         vision->image_size, vision->patch_size);
    }
    return ESPL_OK;
}

/* The map of each stage must halve exactly and be cut into whole windows. */
static enum espl_status check_stages(const struct espl_model_config *config, struct espl_error *err)
{
    const struct espl_vision_config *vision = &config->vision;
    uint64_t side = patches_across(vision);
    for (uint64_t s = 0; s < vision->stages; s++) {
        const uint64_t width = config->hidden << s;
        const uint64_t heads = vision->stage_heads[s];
        if (vision->depths[s] < 1 || vision->depths[s] > ESPL_CONFIG_MAX_LAYERS) {
            return espl_fail(err, ESPL_E_KIND,
                             "stage %" PRIu64 " must have from 1 to %" PRIu64
                             " blocks, got %" PRIu64,
                             s, ESPL_CONFIG_MAX_LAYERS, vision->depths[s]);
        }
        if (heads < 1 || width % heads != 0) {
            return espl_fail(err, ESPL_E_KIND,
                             "width %" PRIu64 " of stage %" PRIu64
                             " is not a multiple of its %" PRIu64 " heads",
                             width, s, heads);
        }
        if (side == 0 || (s + 1 < vision->stages && side % 2 != 0) ||
            (vision->window_size != 0 && side > vision->window_size &&
             side % vision->window_size != 0)) {
            (void)espl_fail(err, ESPL_E_UNSUPPORTED,
                            "the %" PRIu64 " x %" PRIu64 " map of stage %" PRIu64
                            " cannot be cut into windows of %" PRIu64 " and halved",
                            side, side, s, vision->window_size);
            return espl_hint(err, "maps that need padding are not supported");
        }
        side /= 2;
    }
    return ESPL_OK;
}

enum espl_status espl_vision_check_config(const struct espl_model_config *config,
                                          struct espl_error *err)
{
    const struct espl_vision_config *vision = &config->vision;
    enum espl_status status = check_sizes(vision, err);
    if (status == ESPL_OK && (config->hidden > ESPL_CONFIG_MAX_SIZE >> ESPL_VISION_MAX_STAGES ||
                              config->ffn > ESPL_CONFIG_MAX_SIZE >> ESPL_VISION_MAX_STAGES ||
                              vision->window_size > MAX_IMAGE)) {
        status = espl_fail(err, ESPL_E_KIND,
                           "a model %" PRIu64 " wide with %" PRIu64 " inner channels is too large",
                           config->hidden, config->ffn);
    }
    if (status == ESPL_OK) {
        status = check_stages(config, err);
    }
    for (size_t c = 0; status == ESPL_OK && c < vision->channels; c++) {
        if (!isfinite(vision->mean[c]) || !(vision->std[c] > 0.0) || !isfinite(vision->std[c])) {
            status =
                espl_fail(err, ESPL_E_KIND, "channel %zu cannot be scaled with mean %g and std %g",
                          c, vision->mean[c], vision->std[c]);
        }
    }
    if (status == ESPL_OK && !(vision->crop_pct > 0.0 && vision->crop_pct <= 1.0)) {
        status = espl_fail(err, ESPL_E_KIND, "crop_pct must be above 0 and at most 1, got %g",
                           vision->crop_pct);
    }
    if (status == ESPL_OK && strcmp(vision->interpolation, "bicubic") != 0 &&
        strcmp(vision->interpolation, "bilinear") != 0) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED, "interpolation '%s' is not supported",
                           vision->interpolation);
        (void)espl_hint(err, "supported: bicubic, bilinear");
    }
    return status;
}

/* ---- JSON ---- */

static json_t *sizes_to_json(const uint64_t *values, uint64_t count)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_integer((json_int_t)values[i]));
    }
    return list;
}

static json_t *reals_to_json(const double *values, uint64_t count)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_real(values[i]));
    }
    return list;
}

json_t *espl_vision_config_to_json(const struct espl_vision_config *vision)
{
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:o, s:o, s:b, s:o, s:o, s:f, s:s}", "image_size",
        (json_int_t)vision->image_size, "patch_size", (json_int_t)vision->patch_size, "channels",
        (json_int_t)vision->channels, "window_size", (json_int_t)vision->window_size, "depths",
        sizes_to_json(vision->depths, vision->stages), "heads",
        sizes_to_json(vision->stage_heads, vision->stages), "distilled", vision->distilled ? 1 : 0,
        "mean", reals_to_json(vision->mean, vision->channels), "std",
        reals_to_json(vision->std, vision->channels), "crop_pct", vision->crop_pct, "interpolation",
        vision->interpolation);
}

static enum espl_status missing(const char *name, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT,
                     "model configuration: member 'vision.%s' is missing or of the wrong type",
                     name);
}

static enum espl_status read_size(const json_t *json, const char *name, uint64_t *out,
                                  struct espl_error *err)
{
    const json_t *value = json_object_get(json, name);
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return missing(name, err);
    }
    *out = (uint64_t)json_integer_value(value);
    return ESPL_OK;
}

static enum espl_status read_sizes(const json_t *json, const char *name, uint64_t *out,
                                   uint64_t *count, struct espl_error *err)
{
    const json_t *list = json_object_get(json, name);
    const size_t size = json_array_size(list);
    if (size < 1 || size > ESPL_VISION_MAX_STAGES || (*count != 0 && size != *count)) {
        return missing(name, err);
    }
    for (size_t i = 0; i < size; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_integer(value) || json_integer_value(value) < 0) {
            return missing(name, err);
        }
        out[i] = (uint64_t)json_integer_value(value);
    }
    *count = size;
    return ESPL_OK;
}

static enum espl_status read_reals(const json_t *json, const char *name, uint64_t count,
                                   double *out, struct espl_error *err)
{
    const json_t *list = json_object_get(json, name);
    if (count > ESPL_VISION_MAX_CHANNELS || json_array_size(list) != count) {
        return missing(name, err);
    }
    for (size_t i = 0; i < count; i++) {
        if (!json_is_number(json_array_get(list, i))) {
            return missing(name, err);
        }
        out[i] = json_number_value(json_array_get(list, i));
    }
    return ESPL_OK;
}

/* The members that are not sizes. */
static enum espl_status read_rest(const json_t *json, struct espl_vision_config *vision,
                                  struct espl_error *err)
{
    const json_t *distilled = json_object_get(json, "distilled");
    const json_t *crop = json_object_get(json, "crop_pct");
    const char *word = json_string_value(json_object_get(json, "interpolation"));
    if (!json_is_boolean(distilled)) {
        return missing("distilled", err);
    }
    if (!json_is_number(crop)) {
        return missing("crop_pct", err);
    }
    if (word == NULL || strlen(word) >= sizeof vision->interpolation) {
        return missing("interpolation", err);
    }
    vision->distilled = json_is_true(distilled);
    vision->crop_pct = json_number_value(crop);
    (void)snprintf(vision->interpolation, sizeof vision->interpolation, "%s", word);
    return ESPL_OK;
}

enum espl_status espl_vision_config_from_json(const json_t *json, struct espl_vision_config *vision,
                                              struct espl_error *err)
{
    const struct {
        const char *name;
        uint64_t *out;
    } sizes[] = {
        {"image_size", &vision->image_size},
        {"patch_size", &vision->patch_size},
        {"channels", &vision->channels},
        {"window_size", &vision->window_size},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof sizes / sizeof sizes[0]; i++) {
        status = read_size(json, sizes[i].name, sizes[i].out, err);
    }
    vision->stages = 0;
    if (status == ESPL_OK) {
        status = read_sizes(json, "depths", vision->depths, &vision->stages, err);
    }
    if (status == ESPL_OK) {
        status = read_sizes(json, "heads", vision->stage_heads, &vision->stages, err);
    }
    if (status == ESPL_OK) {
        status = read_reals(json, "mean", vision->channels, vision->mean, err);
    }
    if (status == ESPL_OK) {
        status = read_reals(json, "std", vision->channels, vision->std, err);
    }
    return status == ESPL_OK ? read_rest(json, vision, err) : status;
}
