/* Swin transformers [Liu et al. 2021]: names of timm (before and after patch merging moved to the
 * start of a stage) and of HF transformers. */
#include "model/arch_internal.h"
#include "model/arch_vision.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define ALWAYS ESPL_VISION_ALWAYS
#define WEIGHT ESPL_VISION_WEIGHT
#define BIAS   ESPL_VISION_BIAS

static const struct espl_vision_row outside[] = {
    {"patch_embed.proj", WEIGHT, ESPL_ROLE_EMBEDDING, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_PATCH},
    {"patch_embed.proj", BIAS, ESPL_ROLE_EMBEDDING, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {"patch_embed.norm", WEIGHT, ESPL_ROLE_EMBEDDING_NORM, ALWAYS, ESPL_VISION_WIDTH,
     ESPL_VISION_ONE},
    {"patch_embed.norm", BIAS, ESPL_ROLE_EMBEDDING_NORM, ALWAYS, ESPL_VISION_WIDTH,
     ESPL_VISION_ONE},
    {"norm", WEIGHT, ESPL_ROLE_FINAL_NORM, ALWAYS, ESPL_VISION_LAST, ESPL_VISION_ONE},
    {"norm", BIAS, ESPL_ROLE_FINAL_NORM, ALWAYS, ESPL_VISION_LAST, ESPL_VISION_ONE},
    {"head.fc", WEIGHT, ESPL_ROLE_HEAD, ALWAYS, ESPL_VISION_CLASSES, ESPL_VISION_LAST},
    {"head.fc", BIAS, ESPL_ROLE_HEAD, ALWAYS, ESPL_VISION_CLASSES, ESPL_VISION_ONE},
    {NULL, WEIGHT, ESPL_ROLE_NONE, ALWAYS, ESPL_VISION_ONE, ESPL_VISION_ONE},
};

static bool tensor(const struct espl_model_config *config, uint64_t index,
                   struct espl_tensor_spec *spec)
{
    return espl_vision_table_tensor(outside, config, index, spec);
}

/* ---- config.json ---- */

static const struct espl_vision_preset presets[] = {
    {"swin_tiny", 96, {2, 2, 6, 2}, {3, 6, 12, 24}},
    {"swin_small", 96, {2, 2, 18, 2}, {3, 6, 12, 24}},
    {"swin_base", 128, {2, 2, 18, 2}, {4, 8, 16, 32}},
    {"swin_large", 192, {2, 2, 18, 2}, {6, 12, 24, 48}},
    {NULL, 0, {0}, {0}},
};

static const struct espl_timm_key fixed_keys[] = {
    {"global_pool", "avg"}, {"patch_norm", NULL}, {NULL, NULL}};
static const char *const known_keys[] = {"depths", "num_heads", "window_size", NULL};

/* depths, num_heads and window_size: the same words in timm's model_args and HF's config.json. */
static enum espl_status read_stages(const json_t *json, struct espl_vision_config *vision,
                                    struct espl_error *err)
{
    uint64_t with_heads = vision->stages;
    enum espl_status status =
        espl_hf_read_sizes(json, "depths", ESPL_CONFIG_MAX_LAYERS, vision->depths,
                           ESPL_VISION_MAX_STAGES, &vision->stages, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_sizes(json, "num_heads", ESPL_CONFIG_MAX_HEADS, vision->stage_heads,
                                    ESPL_VISION_MAX_STAGES, &with_heads, err);
    }
    if (status == ESPL_OK && (vision->stages == 0 || vision->stages != with_heads)) {
        status = espl_fail(err, ESPL_E_KIND,
                           "config.json has %" PRIu64 " depths and %" PRIu64 " num_heads",
                           vision->stages, with_heads);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(json, "window_size", vision->window_size == 0, 1,
                                   ESPL_CONFIG_MAX_SIZE, &vision->window_size, err);
    }
    return status;
}

/* Later stages are twice as wide: with a fraction left over, twice the inner width of the first
 * would not be what they have. */
static enum espl_status check_ratio(const json_t *json, const struct espl_model_config *config,
                                    struct espl_error *err)
{
    double ratio = 4.0;
    const enum espl_status status = espl_hf_read_real(json, "mlp_ratio", 1e-7, 1e7, &ratio, err);
    if (status == ESPL_OK && fabs((double)config->hidden * ratio - (double)config->ffn) > 1e-6) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "mlp_ratio %g of config.json gives no whole inner width for %" PRIu64
                         " channels",
                         ratio, config->hidden);
    }
    return status;
}

static enum espl_status read_timm(const json_t *timm, struct espl_model_config *config,
                                  struct espl_error *err)
{
    struct espl_vision_config *vision = &config->vision;
    const char *architecture = json_string_value(json_object_get(timm, "architecture"));
    struct espl_timm_name name;
    const bool parsed = espl_timm_parse_name(architecture, presets, &name) && name.window_size != 0;
    if (!parsed && strcmp(architecture, "swin") != 0) {
        (void)espl_fail(err, ESPL_E_UNSUPPORTED,
                        "architecture '%s' of config.json is not a Swin that can be read",
                        architecture);
        return espl_hint(err, "names like swin_tiny_patch4_window7_224 are known, and 'swin' with "
                              "all sizes in model_args");
    }
    memset(vision, 0, sizeof *vision);
    if (parsed) {
        config->hidden = name.preset->width;
        vision->stages = ESPL_VISION_MAX_STAGES;
        vision->window_size = name.window_size;
        memcpy(vision->depths, name.preset->depths, sizeof vision->depths);
        memcpy(vision->stage_heads, name.preset->heads, sizeof vision->stage_heads);
    }
    config->norm_eps = 1e-5;
    enum espl_status status = espl_timm_read(timm, &name, fixed_keys, known_keys, config, err);
    if (status == ESPL_OK) {
        status = read_stages(espl_timm_args(timm), vision, err);
    }
    if (status == ESPL_OK) {
        status = check_ratio(espl_timm_args(timm), config, err);
    }
    return status == ESPL_OK ? espl_vision_complete_config(config, err) : status;
}

static enum espl_status read_transformers(const json_t *hf, struct espl_model_config *config,
                                          struct espl_error *err)
{
    struct espl_vision_config *vision = &config->vision;
    bool absolute = false;
    double ratio = 4.0;
    memset(vision, 0, sizeof *vision);
    vision->image_size = 224;
    vision->patch_size = 4;
    config->norm_eps = 1e-5;
    enum espl_status status = espl_hf_read_vision(hf, config, err);
    if (status == ESPL_OK) {
        status = read_stages(hf, vision, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_hf_read_size(hf, "embed_dim", true, 1, ESPL_CONFIG_MAX_SIZE, &config->hidden, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_real(hf, "mlp_ratio", 1e-7, 1e7, &ratio, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_real(hf, "layer_norm_eps", 0.0, 1.0, &config->norm_eps, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "use_absolute_embeddings", &absolute, err);
    }
    if (status == ESPL_OK && absolute) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED,
                           "config.json asks for absolute positions (use_absolute_embeddings)");
    }
    config->ffn = (uint64_t)((double)config->hidden * ratio);
    if (status == ESPL_OK) {
        status = check_ratio(hf, config, err);
    }
    return status == ESPL_OK ? espl_vision_complete_config(config, err) : status;
}

static enum espl_status read_hf(const json_t *hf, struct espl_model_config *config,
                                struct espl_error *err)
{
    return json_is_string(json_object_get(hf, "architecture")) ? read_timm(hf, config, err)
                                                               : read_transformers(hf, config, err);
}

static json_t *sizes(const uint64_t *values, uint64_t count)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_integer((json_int_t)values[i]));
    }
    return list;
}

static void write_hf(const struct espl_model_config *config, json_t *hf)
{
    const struct espl_vision_config *vision = &config->vision;
    json_t *args = json_pack("{s:o, s:o, s:I}", "depths", sizes(vision->depths, vision->stages),
                             "num_heads", sizes(vision->stage_heads, vision->stages), "window_size",
                             (json_int_t)vision->window_size);
    espl_timm_write(config, "swin_base_patch4_window7_224", args, hf);
}

/* ---- other names ---- */

static bool is_merge(const struct espl_tensor_spec *spec)
{
    return spec->role == ESPL_ROLE_MERGE || spec->role == ESPL_ROLE_MERGE_NORM;
}

/* timm before patch merging moved, and the original files: merging at the end of the stage before,
 * the head without ".fc". */
static void old_name(const struct espl_model_config *config, const struct espl_tensor_spec *spec,
                     char out[128])
{
    struct espl_vision_place place;
    if (is_merge(spec)) {
        espl_vision_get_place(config, (uint64_t)spec->layer, &place);
        (void)snprintf(out, 128, "layers.%" PRIu64 ".%s.%s", place.stage - 1,
                       espl_vision_local_module(spec), spec->is_bias ? "bias" : "weight");
    } else if (spec->role == ESPL_ROLE_HEAD) {
        (void)snprintf(out, 128, "head.%s", spec->is_bias ? "bias" : "weight");
    } else {
        (void)snprintf(out, 128, "%s", spec->name);
    }
}

static const struct espl_vision_renamed hf_names[] = {
    {"patch_embed.proj", {"swin.embeddings.patch_embeddings.projection"}},
    {"patch_embed.norm", {"swin.embeddings.norm"}},
    {"norm", {"swin.layernorm"}},
    {"head.fc", {"classifier"}},
    {"downsample.norm", {"downsample.norm"}},
    {"downsample.reduction", {"downsample.reduction"}},
    {"norm1", {"layernorm_before"}},
    {"attn.relative_position_bias_table", {"attention.self.relative_position_bias_table"}},
    {"attn.qkv", {"attention.self.query", "attention.self.key", "attention.self.value"}},
    {"attn.proj", {"attention.output.dense"}},
    {"norm2", {"layernorm_after"}},
    {"mlp.fc1", {"intermediate.dense"}},
    {"mlp.fc2", {"output.dense"}},
    {NULL, {NULL}},
};

static bool hf_name(const struct espl_model_config *config, const struct espl_tensor_spec *spec,
                    unsigned part, char out[128])
{
    const char *name = espl_vision_find_renamed(hf_names, espl_vision_local_module(spec), part);
    const char *ending = spec->role == ESPL_ROLE_ATTENTION_BIAS ? ""
                         : spec->is_bias                        ? ".bias"
                                                                : ".weight";
    struct espl_vision_place place;
    if (name == NULL) {
        return false;
    }
    if (spec->layer < 0) {
        (void)snprintf(out, 128, "%s%s", name, ending);
        return true;
    }
    espl_vision_get_place(config, (uint64_t)spec->layer, &place);
    if (is_merge(spec)) {
        (void)snprintf(out, 128, "swin.encoder.layers.%" PRIu64 ".%s%s", place.stage - 1, name,
                       ending);
    } else {
        (void)snprintf(out, 128, "swin.encoder.layers.%" PRIu64 ".blocks.%" PRIu64 ".%s%s",
                       place.stage, place.index, name, ending);
    }
    return true;
}

static bool scheme_name(const struct espl_model_config *config, const struct espl_tensor_spec *spec,
                        unsigned scheme, unsigned part, char out[128])
{
    if (scheme == 0 && part == 0) {
        old_name(config, spec, out);
        return true;
    }
    return scheme == 1 && hf_name(config, spec, part, out);
}

static const char *const hf_types[] = {"swin", NULL};
static const char *const prefixes[] = {"module.", NULL};
/* Computed from the sizes. */
static const char *const ignored[] = {"*relative_position_index", "*attn_mask", NULL};

const struct espl_arch espl_arch_swin = {
    .name = "swin",
    .summary = "Swin image classifiers (timm, HF)",
    .hf_types = hf_types,
    .vision = true,
    .read_hf = read_hf,
    .write_hf = write_hf,
    .tensor = tensor,
    .scheme_name = scheme_name,
    .name_prefixes = prefixes,
    .ignored = ignored,
};
