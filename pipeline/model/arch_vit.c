/* ViT and DeiT, plain and distilled [Dosovitskiy et al. 2021; Touvron et al. 2021]: names of timm
 * and of HF transformers. */
#include "model/arch_internal.h"
#include "model/arch_vision.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ALWAYS ESPL_VISION_ALWAYS
#define WEIGHT ESPL_VISION_WEIGHT
#define BIAS   ESPL_VISION_BIAS

static const struct espl_vision_row outside[] = {
    {"cls_token", ESPL_VISION_PARAMETER, ESPL_ROLE_CLASS_TOKEN, ALWAYS, ESPL_VISION_ONE,
     ESPL_VISION_WIDTH},
    {"dist_token", ESPL_VISION_PARAMETER, ESPL_ROLE_DISTILL_TOKEN, ESPL_VISION_DISTILLED,
     ESPL_VISION_ONE, ESPL_VISION_WIDTH},
    {"pos_embed", ESPL_VISION_PARAMETER, ESPL_ROLE_POSITION, ALWAYS, ESPL_VISION_TOKENS,
     ESPL_VISION_WIDTH},
    {"patch_embed.proj", WEIGHT, ESPL_ROLE_EMBEDDING, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_PATCH},
    {"patch_embed.proj", BIAS, ESPL_ROLE_EMBEDDING, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {"norm", WEIGHT, ESPL_ROLE_FINAL_NORM, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {"norm", BIAS, ESPL_ROLE_FINAL_NORM, ALWAYS, ESPL_VISION_WIDTH, ESPL_VISION_ONE},
    {"head", WEIGHT, ESPL_ROLE_HEAD, ALWAYS, ESPL_VISION_CLASSES, ESPL_VISION_WIDTH},
    {"head", BIAS, ESPL_ROLE_HEAD, ALWAYS, ESPL_VISION_CLASSES, ESPL_VISION_ONE},
    {"head_dist", WEIGHT, ESPL_ROLE_DISTILL_HEAD, ESPL_VISION_DISTILLED, ESPL_VISION_CLASSES,
     ESPL_VISION_WIDTH},
    {"head_dist", BIAS, ESPL_ROLE_DISTILL_HEAD, ESPL_VISION_DISTILLED, ESPL_VISION_CLASSES,
     ESPL_VISION_ONE},
    {NULL, WEIGHT, ESPL_ROLE_NONE, ALWAYS, ESPL_VISION_ONE, ESPL_VISION_ONE},
};

static bool tensor(const struct espl_model_config *config, uint64_t index,
                   struct espl_tensor_spec *spec)
{
    return espl_vision_table_tensor(outside, config, index, spec);
}

/* ---- config.json ---- */

static const struct espl_vision_preset presets[] = {
    {"vit_tiny", 192, {12}, {3}},    {"vit_small", 384, {12}, {6}}, {"vit_base", 768, {12}, {12}},
    {"vit_large", 1024, {24}, {16}}, {"deit_tiny", 192, {12}, {3}}, {"deit_small", 384, {12}, {6}},
    {"deit_base", 768, {12}, {12}},  {NULL, 0, {0}, {0}},
};

static const struct espl_timm_key fixed_keys[] = {
    {"global_pool", "token"}, {"class_token", NULL}, {"final_norm", NULL}, {NULL, NULL}};
static const char *const known_keys[] = {"depth", "num_heads", "distilled", NULL};

static enum espl_status read_timm(const json_t *timm, struct espl_model_config *config,
                                  struct espl_error *err)
{
    struct espl_vision_config *vision = &config->vision;
    const char *architecture = json_string_value(json_object_get(timm, "architecture"));
    const json_t *args = espl_timm_args(timm);
    struct espl_timm_name name;
    const bool parsed = espl_timm_parse_name(architecture, presets, &name);
    if (!parsed && strcmp(architecture, "vit") != 0) {
        (void)espl_fail(err, ESPL_E_UNSUPPORTED,
                        "architecture '%s' of config.json is not a ViT that can be read",
                        architecture);
        return espl_hint(err,
                         "names like vit_base_patch16_224 and deit_small_distilled_patch16_224 "
                         "are known, and 'vit' with all sizes in model_args");
    }
    memset(vision, 0, sizeof *vision);
    vision->stages = 1;
    vision->distilled = parsed && name.distilled;
    if (parsed) {
        config->hidden = name.preset->width;
        vision->depths[0] = name.preset->depths[0];
        vision->stage_heads[0] = name.preset->heads[0];
    }
    config->norm_eps = 1e-6;
    enum espl_status status = espl_timm_read(timm, &name, fixed_keys, known_keys, config, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_size(args, "depth", !parsed, 1, ESPL_CONFIG_MAX_LAYERS,
                                   &vision->depths[0], err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(args, "num_heads", !parsed, 1, ESPL_CONFIG_MAX_HEADS,
                                   &vision->stage_heads[0], err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(args, "distilled", &vision->distilled, err);
    }
    return status == ESPL_OK ? espl_vision_complete_config(config, err) : status;
}

/* The classifier with the distillation token averages two heads; the other one has neither. */
static bool hf_is_distilled(const json_t *hf)
{
    const char *name = json_string_value(json_array_get(json_object_get(hf, "architectures"), 0));
    return name != NULL && strcmp(name, "DeiTForImageClassificationWithTeacher") == 0;
}

static enum espl_status read_transformers(const json_t *hf, struct espl_model_config *config,
                                          struct espl_error *err)
{
    struct espl_vision_config *vision = &config->vision;
    const bool deit = strcmp(json_string_value(json_object_get(hf, "model_type")), "deit") == 0;
    memset(vision, 0, sizeof *vision);
    vision->stages = 1;
    vision->image_size = 224;
    vision->patch_size = 16;
    vision->distilled = hf_is_distilled(hf);
    config->norm_eps = 1e-12;
    enum espl_status status = espl_hf_read_vision(hf, config, err);
    const struct {
        const char *key;
        uint64_t max;
        uint64_t *out;
    } sizes[] = {
        {"hidden_size", ESPL_CONFIG_MAX_SIZE, &config->hidden},
        {"num_hidden_layers", ESPL_CONFIG_MAX_LAYERS, &vision->depths[0]},
        {"num_attention_heads", ESPL_CONFIG_MAX_HEADS, &vision->stage_heads[0]},
        {"intermediate_size", ESPL_CONFIG_MAX_SIZE, &config->ffn},
    };
    for (size_t i = 0; status == ESPL_OK && i < sizeof sizes / sizeof sizes[0]; i++) {
        status = espl_hf_read_size(hf, sizes[i].key, true, 1, sizes[i].max, sizes[i].out, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_real(hf, "layer_norm_eps", 0.0, 1.0, &config->norm_eps, err);
    }
    if (!deit) { /* google's ViTs: a plain resize to the square, values in [-1, 1] */
        for (size_t c = 0; c < ESPL_VISION_MAX_CHANNELS; c++) {
            vision->mean[c] = 0.5;
            vision->std[c] = 0.5;
        }
        (void)snprintf(vision->interpolation, sizeof vision->interpolation, "bilinear");
    } else {
        vision->crop_pct = 0.875;
    }
    return status == ESPL_OK ? espl_vision_complete_config(config, err) : status;
}

static enum espl_status read_hf(const json_t *hf, struct espl_model_config *config,
                                struct espl_error *err)
{
    return json_is_string(json_object_get(hf, "architecture")) ? read_timm(hf, config, err)
                                                               : read_transformers(hf, config, err);
}

static void write_hf(const struct espl_model_config *config, json_t *hf)
{
    const struct espl_vision_config *vision = &config->vision;
    json_t *args = json_pack("{s:I, s:I}", "depth", (json_int_t)config->layers, "num_heads",
                             (json_int_t)config->heads);
    espl_timm_write(config,
                    vision->distilled ? "deit_base_distilled_patch16_224" : "vit_base_patch16_224",
                    args, hf);
}

/* ---- names of HF transformers ---- */

static const struct espl_vision_renamed outside_names[] = {
    {"cls_token", {"embeddings.cls_token"}},
    {"dist_token", {"embeddings.distillation_token"}},
    {"pos_embed", {"embeddings.position_embeddings"}},
    {"patch_embed.proj", {"embeddings.patch_embeddings.projection"}},
    {"norm", {"layernorm"}},
    {NULL, {NULL}},
};

static const struct espl_vision_renamed block_names[] = {
    {"norm1", {"layernorm_before"}},
    {"attn.qkv",
     {"attention.attention.query", "attention.attention.key", "attention.attention.value"}},
    {"attn.proj", {"attention.output.dense"}},
    {"norm2", {"layernorm_after"}},
    {"mlp.fc1", {"intermediate.dense"}},
    {"mlp.fc2", {"output.dense"}},
    {NULL, {NULL}},
};

static bool head_name(const struct espl_model_config *config, const struct espl_tensor_spec *spec,
                      unsigned part, char out[128])
{
    const char *name = "classifier";
    if (config->vision.distilled) {
        name = spec->role == ESPL_ROLE_HEAD ? "cls_classifier" : "distillation_classifier";
    }
    (void)snprintf(out, 128, "%s.%s", name, spec->is_bias ? "bias" : "weight");
    return part == 0;
}

/* Schemes 0 and 1: ViTForImageClassification and DeiTForImageClassification. */
static bool scheme_name(const struct espl_model_config *config, const struct espl_tensor_spec *spec,
                        unsigned scheme, unsigned part, char out[128])
{
    const char *model = scheme == 0 ? "vit" : "deit";
    const char *ending = strchr(spec->name, '.') == NULL ? "" : spec->is_bias ? ".bias" : ".weight";
    if (scheme > 1) {
        return false;
    }
    if (spec->role == ESPL_ROLE_HEAD || spec->role == ESPL_ROLE_DISTILL_HEAD) {
        return head_name(config, spec, part, out);
    }
    const char *name = espl_vision_find_renamed(spec->layer < 0 ? outside_names : block_names,
                                                espl_vision_local_module(spec), part);
    if (name == NULL) {
        return false;
    }
    if (spec->layer < 0) {
        (void)snprintf(out, 128, "%s.%s%s", model, name, ending);
    } else {
        (void)snprintf(out, 128, "%s.encoder.layer.%" PRId64 ".%s%s", model, spec->layer, name,
                       ending);
    }
    return true;
}

static const char *const hf_types[] = {"vit", "deit", NULL};
static const char *const prefixes[] = {"module.", NULL};
static const char *const ignored[] = {NULL};

const struct espl_arch espl_arch_vit = {
    .name = "vit",
    .summary = "ViT and DeiT image classifiers, distilled ones too (timm, HF)",
    .hf_types = hf_types,
    .vision = true,
    .read_hf = read_hf,
    .write_hf = write_hf,
    .tensor = tensor,
    .scheme_name = scheme_name,
    .name_prefixes = prefixes,
    .ignored = ignored,
};
