/* config.json of timm: a registered name, model_args over what the name stands for, and
 * pretrained_cfg with the pictures the model wants. Also what image models of HF transformers have
 * in common. */
#include "model/arch_internal.h"
#include "model/arch_vision.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names ---- */

/* "_patch16" or "_window7" at *at: the number, and *at behind it. */
static bool take_number(const char **at, const char *word, uint64_t *number)
{
    const size_t len = strlen(word);
    const char *digits = *at + len;
    char *end = NULL;
    if (strncmp(*at, word, len) != 0 || *digits < '0' || *digits > '9') {
        return false;
    }
    *number = strtoul(digits, &end, 10);
    *at = end;
    return *number > 0;
}

bool espl_timm_parse_name(const char *name, const struct espl_vision_preset *presets,
                          struct espl_timm_name *parsed)
{
    static const char distilled[] = "_distilled";
    memset(parsed, 0, sizeof *parsed);
    for (size_t i = 0; presets[i].name != NULL; i++) {
        const size_t len = strlen(presets[i].name);
        if (strncmp(name, presets[i].name, len) == 0 && name[len] == '_') {
            parsed->preset = &presets[i];
            name += len;
            break;
        }
    }
    if (parsed->preset == NULL) {
        return false;
    }
    if (strncmp(name, distilled, sizeof distilled - 1) == 0) {
        parsed->distilled = true;
        name += sizeof distilled - 1;
    }
    if (!take_number(&name, "_patch", &parsed->patch_size)) {
        return false;
    }
    (void)take_number(&name, "_window", &parsed->window_size);
    if (!take_number(&name, "_", &parsed->image_size)) {
        return false;
    }
    return *name == '\0' || *name == '.'; /* ".augreg_in21k": which weights */
}

/* ---- model_args ---- */

const json_t *espl_timm_args(const json_t *timm)
{
    return json_object_get(timm, "model_args");
}

/* Read here for every architecture. */
static const char *const common_keys[] = {"img_size",  "patch_size", "in_chans", "num_classes",
                                          "embed_dim", "mlp_ratio",  "qkv_bias", NULL};
/* Switched off when a model is used. */
static const char *const training_keys[] = {
    "drop_rate",      "pos_drop_rate",  "patch_drop_rate", "proj_drop_rate",
    "attn_drop_rate", "drop_path_rate", "weight_init",     NULL};

static bool is_listed(const char *const *names, const char *name)
{
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_fixed(const struct espl_timm_key *fixed, const char *name, const json_t *value)
{
    for (size_t i = 0; fixed[i].name != NULL; i++) {
        if (strcmp(fixed[i].name, name) == 0) {
            const char *text = json_string_value(value);
            return fixed[i].value == NULL ? json_is_true(value)
                                          : text != NULL && strcmp(text, fixed[i].value) == 0;
        }
    }
    return false;
}

/* A key that nobody reads could change the forward pass. */
static enum espl_status check_keys(const json_t *args, const struct espl_timm_key *fixed,
                                   const char *const *known, struct espl_error *err)
{
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)args, name, value)
    {
        if (json_is_null(value) || json_is_false(value) || is_listed(common_keys, name) ||
            is_listed(training_keys, name) || is_listed(known, name) ||
            is_fixed(fixed, name, value)) {
            continue;
        }
        char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        (void)espl_fail(err, ESPL_E_UNSUPPORTED,
                        "'%s' of model_args in config.json is %.60s, which is not supported", name,
                        text != NULL ? text : "?");
        free(text);
        return espl_hint(err, "plain ViT, DeiT (distilled too) and Swin models can be read");
    }
    return ESPL_OK;
}

/* One number, or two equal ones ([224, 224]). */
static enum espl_status read_square(const json_t *json, const char *key, uint64_t *out,
                                    struct espl_error *err)
{
    const json_t *value = espl_hf_value(json, key);
    uint64_t sides[2] = {0, 0};
    uint64_t count = 0;
    if (!json_is_array(value)) {
        return espl_hf_read_size(json, key, false, 1, ESPL_CONFIG_MAX_SIZE, out, err);
    }
    enum espl_status status =
        espl_hf_read_sizes(json, key, ESPL_CONFIG_MAX_SIZE, sides, 2, &count, err);
    if (status == ESPL_OK && (count != 2 || sides[0] != sides[1])) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED, "'%s' of config.json is not a square", key);
    }
    *out = sides[0];
    return status;
}

enum espl_status espl_hf_read_sizes(const json_t *json, const char *key, uint64_t max,
                                    uint64_t *out, size_t limit, uint64_t *count,
                                    struct espl_error *err)
{
    const json_t *list = espl_hf_value(json, key);
    if (list == NULL) {
        return ESPL_OK;
    }
    const size_t size = json_array_size(list);
    if (size < 1 || size > limit) {
        return espl_fail(err, ESPL_E_KIND, "'%s' of config.json must be a list of 1 to %zu numbers",
                         key, limit);
    }
    for (size_t i = 0; i < size; i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t number = json_integer_value(value);
        if (!json_is_integer(value) || number < 1 || (uint64_t)number > max) {
            return espl_fail(err, ESPL_E_KIND,
                             "'%s' of config.json must hold whole numbers from 1 to %" PRIu64, key,
                             max);
        }
        out[i] = (uint64_t)number;
    }
    *count = size;
    return ESPL_OK;
}

/* ---- pretrained_cfg ---- */

static enum espl_status read_scale(const json_t *json, const char *key, uint64_t channels,
                                   double *out, struct espl_error *err)
{
    const json_t *list = espl_hf_value(json, key);
    if (list == NULL) {
        return ESPL_OK;
    }
    if (json_array_size(list) != channels) {
        return espl_fail(err, ESPL_E_KIND,
                         "'%s' of pretrained_cfg in config.json must be a list of %" PRIu64
                         " numbers, one a channel",
                         key, channels);
    }
    for (size_t c = 0; c < channels; c++) {
        if (!json_is_number(json_array_get(list, c))) {
            return espl_fail(err, ESPL_E_KIND,
                             "'%s' of pretrained_cfg in config.json holds something that is not a "
                             "number",
                             key);
        }
        out[c] = json_number_value(json_array_get(list, c));
    }
    return ESPL_OK;
}

static enum espl_status read_pictures(const json_t *cfg, struct espl_vision_config *vision,
                                      struct espl_error *err)
{
    const char *word = NULL;
    espl_vision_default_scale(vision);
    vision->crop_pct = 0.875; /* timm's default */
    enum espl_status status = read_scale(cfg, "mean", vision->channels, vision->mean, err);
    if (status == ESPL_OK) {
        status = read_scale(cfg, "std", vision->channels, vision->std, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_real(cfg, "crop_pct", 0.0, 1.0, &vision->crop_pct, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_text(cfg, "interpolation", "bicubic", &word, err);
    }
    if (status == ESPL_OK) {
        (void)snprintf(vision->interpolation, sizeof vision->interpolation, "%s", word);
    }
    return status;
}

/* [channels, height, width] of pretrained_cfg: what holds when model_args says nothing. */
static enum espl_status read_input_size(const json_t *cfg, struct espl_vision_config *vision,
                                        struct espl_error *err)
{
    uint64_t size[3] = {0, 0, 0};
    uint64_t count = 0;
    const enum espl_status status =
        espl_hf_read_sizes(cfg, "input_size", ESPL_CONFIG_MAX_SIZE, size, 3, &count, err);
    if (status != ESPL_OK || count == 0) {
        return status;
    }
    if (count != 3 || size[1] != size[2]) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "input_size of pretrained_cfg in config.json is not a square picture "
                         "(channels, height, width)");
    }
    vision->channels = size[0];
    vision->image_size = size[1];
    return ESPL_OK;
}

/* ---- the common keys ---- */

static enum espl_status read_sides(const json_t *timm, const struct espl_timm_name *name,
                                   struct espl_vision_config *vision, struct espl_error *err)
{
    const json_t *args = espl_timm_args(timm);
    vision->patch_size = name->patch_size;
    vision->image_size = name->image_size;
    vision->channels = 3;
    enum espl_status status = read_input_size(json_object_get(timm, "pretrained_cfg"), vision, err);
    if (status == ESPL_OK) {
        status = read_square(args, "img_size", &vision->image_size, err);
    }
    if (status == ESPL_OK) {
        status = read_square(args, "patch_size", &vision->patch_size, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(args, "in_chans", false, 1, ESPL_VISION_MAX_CHANNELS,
                                   &vision->channels, err);
    }
    if (status == ESPL_OK && (vision->image_size == 0 || vision->patch_size == 0)) {
        (void)espl_fail(err, ESPL_E_KIND, "config.json does not say '%s'",
                        vision->image_size == 0 ? "img_size" : "patch_size");
        status = espl_hint(err, "model_args of a timm checkpoint, or its name "
                                "(deit_small_patch16_224), hold it");
    }
    return status;
}

static enum espl_status read_widths(const json_t *args, struct espl_model_config *config,
                                    struct espl_error *err)
{
    double ratio = 4.0;
    config->attention_bias = true;
    enum espl_status status = espl_hf_read_size(args, "embed_dim", config->hidden == 0, 1,
                                                ESPL_CONFIG_MAX_SIZE, &config->hidden, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_real(args, "mlp_ratio", 1e-7, 1e7, &ratio, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(args, "qkv_bias", &config->attention_bias, err);
    }
    config->ffn = (uint64_t)((double)config->hidden * ratio); /* truncated, as timm does */
    return status;
}

enum espl_status espl_timm_read(const json_t *timm, const struct espl_timm_name *name,
                                const struct espl_timm_key *fixed, const char *const *known,
                                struct espl_model_config *config, struct espl_error *err)
{
    const json_t *args = espl_timm_args(timm);
    const json_t *cfg = json_object_get(timm, "pretrained_cfg");
    config->vocab = 1000; /* timm's default */
    enum espl_status status = check_keys(args, fixed, known, err);
    if (status == ESPL_OK) {
        status = read_sides(timm, name, &config->vision, err);
    }
    if (status == ESPL_OK) {
        status = read_widths(args, config, err);
    }
    for (int i = 0; status == ESPL_OK && i < 3; i++) {
        const json_t *from = i == 0 ? cfg : i == 1 ? args : timm;
        status = espl_hf_read_size(from, "num_classes", false, 1, ESPL_CONFIG_MAX_VOCAB,
                                   &config->vocab, err);
    }
    if (status == ESPL_OK) { /* not timm's: what a model of another eps is exported with */
        status = espl_hf_read_real(timm, "norm_eps", 0.0, 1.0, &config->norm_eps, err);
    }
    return status == ESPL_OK ? read_pictures(cfg, &config->vision, err) : status;
}

static json_t *reals(const double *values, uint64_t count)
{
    json_t *list = json_array();
    for (uint64_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_real(values[i]));
    }
    return list;
}

/* mlp_ratio whose product with the width, truncated, is the inner width: the quotient, or the next
 * number above it where the product falls short by a rounding. */
static double ratio_of(const struct espl_model_config *config)
{
    const double ratio = (double)config->ffn / (double)config->hidden;
    return (uint64_t)((double)config->hidden * ratio) == config->ffn ? ratio
                                                                     : nextafter(ratio, INFINITY);
}

void espl_timm_write(const struct espl_model_config *config, const char *architecture, json_t *args,
                     json_t *out)
{
    const struct espl_vision_config *vision = &config->vision;
    json_t *common = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:f, s:b}", "img_size", (json_int_t)vision->image_size,
        "patch_size", (json_int_t)vision->patch_size, "in_chans", (json_int_t)vision->channels,
        "num_classes", (json_int_t)config->vocab, "embed_dim", (json_int_t)config->hidden,
        "mlp_ratio", ratio_of(config), "qkv_bias", config->attention_bias ? 1 : 0);
    json_t *size = json_pack("[I, I, I]", (json_int_t)vision->channels,
                             (json_int_t)vision->image_size, (json_int_t)vision->image_size);
    json_t *cfg = json_pack("{s:o, s:o, s:o, s:f, s:s, s:s, s:I}", "input_size", size, "mean",
                            reals(vision->mean, vision->channels), "std",
                            reals(vision->std, vision->channels), "crop_pct", vision->crop_pct,
                            "crop_mode", "center", "interpolation", vision->interpolation,
                            "num_classes", (json_int_t)config->vocab);
    (void)json_object_update(args, common);
    json_decref(common);
    (void)json_object_set_new(out, "architecture", json_string(architecture));
    (void)json_object_set_new(out, "num_classes", json_integer((json_int_t)config->vocab));
    (void)json_object_set_new(out, "model_args", args);
    (void)json_object_set_new(out, "pretrained_cfg", cfg);
    (void)json_object_set_new(out, "norm_eps", json_real(config->norm_eps));
}

/* ---- image models of HF transformers ---- */

enum espl_status espl_hf_read_vision(const json_t *hf, struct espl_model_config *config,
                                     struct espl_error *err)
{
    struct espl_vision_config *vision = &config->vision;
    const char *activation = NULL;
    const size_t named = json_object_size(json_object_get(hf, "id2label"));
    config->vocab = named != 0 ? named : 2; /* transformers' default */
    config->attention_bias = true;
    vision->channels = 3;
    enum espl_status status = espl_hf_read_text(hf, "hidden_act", "gelu", &activation, err);
    if (status == ESPL_OK && strcmp(activation, "gelu") != 0) {
        (void)espl_fail(err, ESPL_E_UNSUPPORTED, "hidden_act '%s' of config.json is not supported",
                        activation);
        status = espl_hint(err, "image models with (exact) gelu can be read");
    }
    if (status == ESPL_OK) {
        status = read_square(hf, "image_size", &vision->image_size, err);
    }
    if (status == ESPL_OK) {
        status = read_square(hf, "patch_size", &vision->patch_size, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "num_channels", false, 1, ESPL_VISION_MAX_CHANNELS,
                                   &vision->channels, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "num_labels", false, 1, ESPL_CONFIG_MAX_VOCAB,
                                   &config->vocab, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "qkv_bias", &config->attention_bias, err);
    }
    espl_vision_default_scale(vision);
    vision->crop_pct = 1.0;
    (void)snprintf(vision->interpolation, sizeof vision->interpolation, "bicubic");
    return status;
}
