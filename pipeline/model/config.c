/* Configurations: limits, and the canonical JSON that artifacts carry. config_hf.c reads and writes
 * config.json of HF transformers. */
#include "model/config.h"

#include "model/arch_internal.h"
#include "model/arch_vision.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const char *const norm_names[] = {"rms", "layer", NULL};
static const char *const activation_names[] = {"silu", "relu", "gelu", NULL};
static const char *const rope_names[] = {"none", "default", "linear", "dynamic",
                                         "yarn", "llama3",  NULL};

/* Tables of the struct's fields: the canonical JSON is written and read from them. */
struct size_field {
    const char *name;
    size_t offset;
    uint64_t min, max;
};

static const struct size_field sizes[] = {
    {"layers", offsetof(struct espl_model_config, layers), 1, ESPL_CONFIG_MAX_LAYERS},
    {"hidden", offsetof(struct espl_model_config, hidden), 1, ESPL_CONFIG_MAX_SIZE},
    {"heads", offsetof(struct espl_model_config, heads), 1, ESPL_CONFIG_MAX_HEADS},
    {"kv_heads", offsetof(struct espl_model_config, kv_heads), 1, ESPL_CONFIG_MAX_HEADS},
    {"head_dim", offsetof(struct espl_model_config, head_dim), 1, ESPL_CONFIG_MAX_HEADS},
    {"ffn", offsetof(struct espl_model_config, ffn), 1, ESPL_CONFIG_MAX_SIZE},
    {"vocab", offsetof(struct espl_model_config, vocab), 1, ESPL_CONFIG_MAX_VOCAB},
    {"max_positions", offsetof(struct espl_model_config, max_positions), 1, ESPL_CONFIG_MAX_VOCAB},
    {"embed_dim", offsetof(struct espl_model_config, embed_dim), 1, ESPL_CONFIG_MAX_SIZE},
    {"position_offset", offsetof(struct espl_model_config, position_offset), 0, 1024},
};

struct flag_field {
    const char *name;
    size_t offset;
};

static const struct flag_field flags[] = {
    {"norm_affine", offsetof(struct espl_model_config, norm_affine)},
    {"pre_norm", offsetof(struct espl_model_config, pre_norm)},
    {"final_norm", offsetof(struct espl_model_config, final_norm)},
    {"tied_embeddings", offsetof(struct espl_model_config, tied_embeddings)},
    {"attention_bias", offsetof(struct espl_model_config, attention_bias)},
    {"output_bias", offsetof(struct espl_model_config, output_bias)},
    {"mlp_bias", offsetof(struct espl_model_config, mlp_bias)},
};

static const struct flag_field rope_reals[] = {
    {"theta", offsetof(struct espl_rope, theta)},
    {"factor", offsetof(struct espl_rope, factor)},
    {"low_freq_factor", offsetof(struct espl_rope, low_freq_factor)},
    {"high_freq_factor", offsetof(struct espl_rope, high_freq_factor)},
    {"beta_fast", offsetof(struct espl_rope, beta_fast)},
    {"beta_slow", offsetof(struct espl_rope, beta_slow)},
    {"attention_factor", offsetof(struct espl_rope, attention_factor)},
};

enum { COUNT_SIZES = sizeof sizes / sizeof sizes[0] };
enum { COUNT_FLAGS = sizeof flags / sizeof flags[0] };
enum { COUNT_ROPE_REALS = sizeof rope_reals / sizeof rope_reals[0] };

static enum espl_status check_rope(const struct espl_model_config *config, struct espl_error *err)
{
    const struct espl_rope *rope = &config->rope;
    if (rope->type == ESPL_ROPE_NONE) {
        return ESPL_OK;
    }
    if (config->head_dim % 2 != 0) {
        return espl_fail(err, ESPL_E_KIND, "head dimension %" PRIu64 " is odd: rope needs pairs",
                         config->head_dim);
    }
    if (!(rope->theta > 0.0) || !isfinite(rope->theta)) {
        return espl_fail(err, ESPL_E_KIND, "rope_theta must be above 0, got %g", rope->theta);
    }
    if (rope->type != ESPL_ROPE_DEFAULT && !(rope->factor > 0.0 && isfinite(rope->factor))) {
        return espl_fail(err, ESPL_E_KIND, "factor of the rope scaling must be above 0, got %g",
                         rope->factor);
    }
    if (rope->type == ESPL_ROPE_LLAMA3 &&
        !(rope->low_freq_factor > 0.0 && rope->high_freq_factor > rope->low_freq_factor)) {
        return espl_fail(err, ESPL_E_KIND,
                         "rope scaling llama3 needs 0 < low_freq_factor < high_freq_factor, got "
                         "%g and %g",
                         rope->low_freq_factor, rope->high_freq_factor);
    }
    if (rope->type == ESPL_ROPE_YARN &&
        !(rope->beta_slow > 0.0 && rope->beta_fast >= rope->beta_slow)) {
        return espl_fail(err, ESPL_E_KIND,
                         "rope scaling yarn needs 0 < beta_slow <= beta_fast, got %g and %g",
                         rope->beta_slow, rope->beta_fast);
    }
    if (rope->type != ESPL_ROPE_DEFAULT && rope->type != ESPL_ROPE_LINEAR &&
        (rope->original_max_positions == 0 ||
         rope->original_max_positions > ESPL_CONFIG_MAX_VOCAB)) {
        return espl_fail(err, ESPL_E_KIND,
                         "original_max_position_embeddings must be from 1 to %" PRIu64
                         ", got %" PRIu64,
                         ESPL_CONFIG_MAX_VOCAB, rope->original_max_positions);
    }
    return ESPL_OK;
}

enum espl_status espl_model_config_check(const struct espl_model_config *config,
                                         struct espl_error *err)
{
    const struct espl_arch *arch = espl_arch_find(config->architecture);
    if (arch == NULL) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "unknown architecture '%s'",
                         config->architecture);
    }
    for (size_t i = 0; i < COUNT_SIZES; i++) {
        uint64_t value = 0;
        memcpy(&value, (const char *)config + sizes[i].offset, sizeof value);
        if (value < sizes[i].min || value > sizes[i].max) {
            return espl_fail(err, ESPL_E_KIND,
                             "model size '%s' must be from %" PRIu64 " to %" PRIu64
                             ", got %" PRIu64,
                             sizes[i].name, sizes[i].min, sizes[i].max, value);
        }
    }
    if (config->heads % config->kv_heads != 0) {
        return espl_fail(err, ESPL_E_KIND,
                         "num_attention_heads %" PRIu64
                         " is not a multiple of num_key_value_heads %" PRIu64,
                         config->heads, config->kv_heads);
    }
    if (config->heads * config->head_dim > ESPL_CONFIG_MAX_SIZE) {
        return espl_fail(err, ESPL_E_KIND,
                         "%" PRIu64 " heads of dimension %" PRIu64 " are more than %" PRIu64
                         " channels",
                         config->heads, config->head_dim, ESPL_CONFIG_MAX_SIZE);
    }
    if (!(config->norm_eps >= 0.0 && config->norm_eps <= 1.0)) {
        return espl_fail(err, ESPL_E_KIND, "epsilon of the norms must be from 0 to 1, got %g",
                         config->norm_eps);
    }
    return arch->vision ? espl_vision_check_config(config, err) : check_rope(config, err);
}

json_t *espl_model_config_to_json(const struct espl_model_config *config)
{
    json_t *out = json_object();
    json_t *rope = json_object();

    (void)json_object_set_new(out, "architecture", json_string(config->architecture));
    for (size_t i = 0; i < COUNT_SIZES; i++) {
        uint64_t value = 0;
        memcpy(&value, (const char *)config + sizes[i].offset, sizeof value);
        (void)json_object_set_new(out, sizes[i].name, json_integer((json_int_t)value));
    }
    for (size_t i = 0; i < COUNT_FLAGS; i++) {
        bool value = false;
        memcpy(&value, (const char *)config + flags[i].offset, sizeof value);
        (void)json_object_set_new(out, flags[i].name, json_boolean(value));
    }
    (void)json_object_set_new(out, "norm", json_string(norm_names[config->norm]));
    (void)json_object_set_new(out, "norm_eps", json_real(config->norm_eps));
    (void)json_object_set_new(out, "activation", json_string(activation_names[config->activation]));
    (void)json_object_set_new(out, "bos_id", json_integer(config->bos_id));
    (void)json_object_set_new(out, "eos_id", json_integer(config->eos_id));
    (void)json_object_set_new(out, "dtype", json_string(config->dtype));

    (void)json_object_set_new(rope, "type", json_string(rope_names[config->rope.type]));
    for (size_t i = 0; i < COUNT_ROPE_REALS; i++) {
        double value = 0.0;
        memcpy(&value, (const char *)&config->rope + rope_reals[i].offset, sizeof value);
        (void)json_object_set_new(rope, rope_reals[i].name, json_real(value));
    }
    (void)json_object_set_new(rope, "original_max_positions",
                              json_integer((json_int_t)config->rope.original_max_positions));
    (void)json_object_set_new(out, "rope", rope);
    if (espl_model_config_is_vision(config)) {
        (void)json_object_set_new(out, "vision", espl_vision_config_to_json(&config->vision));
    }
    return out;
}

/* ---- back from the canonical form: every member must be there, of its type ---- */

static enum espl_status missing(const char *name, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT,
                     "model configuration: member '%s' is missing or of the wrong type", name);
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

static enum espl_status read_name(const json_t *json, const char *name, const char *const *names,
                                  unsigned *out, struct espl_error *err)
{
    const char *text = json_string_value(json_object_get(json, name));
    for (unsigned i = 0; text != NULL && names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = i;
            return ESPL_OK;
        }
    }
    return missing(name, err);
}

static enum espl_status read_token(const json_t *json, const char *name, int64_t *out,
                                   struct espl_error *err)
{
    const json_t *value = json_object_get(json, name);
    if (!json_is_integer(value)) {
        return missing(name, err);
    }
    *out = json_integer_value(value);
    return ESPL_OK;
}

static enum espl_status read_rope(const json_t *json, struct espl_rope *rope,
                                  struct espl_error *err)
{
    unsigned type = 0;
    enum espl_status status = read_name(json, "type", rope_names, &type, err);
    rope->type = (enum espl_rope_type)type;
    for (size_t i = 0; status == ESPL_OK && i < COUNT_ROPE_REALS; i++) {
        const json_t *value = json_object_get(json, rope_reals[i].name);
        if (!json_is_number(value)) {
            status = missing(rope_reals[i].name, err);
        } else {
            const double real = json_number_value(value);
            memcpy((char *)rope + rope_reals[i].offset, &real, sizeof real);
        }
    }
    if (status == ESPL_OK) {
        status = read_size(json, "original_max_positions", &rope->original_max_positions, err);
    }
    return status;
}

static enum espl_status read_members(const json_t *json, struct espl_model_config *config,
                                     struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < COUNT_SIZES; i++) {
        uint64_t value = 0;
        status = read_size(json, sizes[i].name, &value, err);
        memcpy((char *)config + sizes[i].offset, &value, sizeof value);
    }
    for (size_t i = 0; status == ESPL_OK && i < COUNT_FLAGS; i++) {
        const json_t *value = json_object_get(json, flags[i].name);
        if (!json_is_boolean(value)) {
            return missing(flags[i].name, err);
        }
        const bool flag = json_is_true(value);
        memcpy((char *)config + flags[i].offset, &flag, sizeof flag);
    }
    unsigned norm = 0;
    unsigned activation = 0;
    if (status == ESPL_OK) {
        status = read_name(json, "norm", norm_names, &norm, err);
    }
    if (status == ESPL_OK) {
        status = read_name(json, "activation", activation_names, &activation, err);
    }
    config->norm = (enum espl_norm)norm;
    config->activation = (enum espl_activation)activation;
    const json_t *eps = json_object_get(json, "norm_eps");
    if (status == ESPL_OK && !json_is_number(eps)) {
        status = missing("norm_eps", err);
    }
    config->norm_eps = json_number_value(eps);
    if (status == ESPL_OK) {
        status = read_token(json, "bos_id", &config->bos_id, err);
    }
    if (status == ESPL_OK) {
        status = read_token(json, "eos_id", &config->eos_id, err);
    }
    if (status == ESPL_OK) {
        status = read_rope(json_object_get(json, "rope"), &config->rope, err);
    }
    const json_t *vision = json_object_get(json, "vision");
    if (status == ESPL_OK && vision != NULL) {
        status = espl_vision_config_from_json(vision, &config->vision, err);
    }
    return status;
}

/* Copies a short text member; too long is as wrong as absent. */
static enum espl_status read_word(const json_t *json, const char *name, char *out, size_t size,
                                  struct espl_error *err)
{
    const char *text = json_string_value(json_object_get(json, name));
    if (text == NULL || strlen(text) >= size) {
        return missing(name, err);
    }
    memcpy(out, text, strlen(text) + 1);
    return ESPL_OK;
}

enum espl_status espl_model_config_from_json(const json_t *json, struct espl_model_config *config,
                                             struct espl_error *err)
{
    struct espl_model_config read;
    memset(&read, 0, sizeof read);

    enum espl_status status =
        read_word(json, "architecture", read.architecture, sizeof read.architecture, err);
    if (status == ESPL_OK) {
        status = read_word(json, "dtype", read.dtype, sizeof read.dtype, err);
    }
    if (status == ESPL_OK) {
        status = read_members(json, &read, err);
    }
    if (status == ESPL_OK) {
        status = espl_model_config_check(&read, err);
    }
    if (status == ESPL_OK) {
        *config = read;
    }
    return status;
}
