/* config.json of HF transformers, old key names (torch_dtype, rope_theta, rope_scaling) and new
 * ones (dtype, rope_parameters); image models have readers of their own. Defaults of absent keys
 * are those of transformers' own configuration classes; a key that would change the forward pass in
 * a way espalier cannot follow is refused by name. */
#include "model/arch_internal.h"
#include "model/config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const json_t *espl_hf_value(const json_t *hf, const char *key)
{
    const json_t *value = json_object_get(hf, key);
    return json_is_null(value) ? NULL : value;
}

enum espl_status espl_hf_read_size(const json_t *hf, const char *key, bool required, uint64_t min,
                                   uint64_t max, uint64_t *out, struct espl_error *err)
{
    const json_t *value = espl_hf_value(hf, key);
    if (value == NULL && !required) {
        return ESPL_OK;
    }
    if (value == NULL) {
        return espl_fail(err, ESPL_E_KIND, "config.json has no '%s'", key);
    }
    if (!json_is_integer(value)) {
        return espl_fail(err, ESPL_E_KIND, "'%s' of config.json must be a whole number", key);
    }
    const json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number < min || (uint64_t)number > max) {
        return espl_fail(err, ESPL_E_KIND,
                         "'%s' of config.json must be from %" PRIu64 " to %" PRIu64
                         ", got %" JSON_INTEGER_FORMAT,
                         key, min, max, number);
    }
    *out = (uint64_t)number;
    return ESPL_OK;
}

enum espl_status espl_hf_read_real(const json_t *hf, const char *key, double min, double max,
                                   double *out, struct espl_error *err)
{
    const json_t *value = espl_hf_value(hf, key);
    if (value == NULL) {
        return ESPL_OK;
    }
    const double number = json_number_value(value);
    if (!json_is_number(value) || !(number >= min && number <= max)) {
        return espl_fail(err, ESPL_E_KIND, "'%s' of config.json must be a number from %g to %g",
                         key, min, max);
    }
    *out = number;
    return ESPL_OK;
}

enum espl_status espl_hf_read_bool(const json_t *hf, const char *key, bool *out,
                                   struct espl_error *err)
{
    const json_t *value = espl_hf_value(hf, key);
    if (value == NULL) {
        return ESPL_OK;
    }
    if (!json_is_boolean(value)) {
        return espl_fail(err, ESPL_E_KIND, "'%s' of config.json must be true or false", key);
    }
    *out = json_is_true(value);
    return ESPL_OK;
}

enum espl_status espl_hf_read_text(const json_t *hf, const char *key, const char *otherwise,
                                   const char **out, struct espl_error *err)
{
    const json_t *value = espl_hf_value(hf, key);
    if (value == NULL) {
        *out = otherwise;
        return ESPL_OK;
    }
    *out = json_string_value(value);
    if (*out == NULL) {
        return espl_fail(err, ESPL_E_KIND, "'%s' of config.json must be a text", key);
    }
    return ESPL_OK;
}

/* ---- what LLaMA and Qwen2 share ---- */

enum espl_status espl_hf_read_decoder(const json_t *hf, struct espl_model_config *config,
                                      struct espl_error *err)
{
    const char *activation = NULL;

    config->norm = ESPL_NORM_RMS;
    config->norm_eps = 1e-6;
    config->norm_affine = true;
    config->activation = ESPL_ACT_SILU;
    config->pre_norm = true;
    config->final_norm = true;
    config->kv_heads = config->heads;
    config->head_dim = 0;
    config->embed_dim = config->hidden;

    enum espl_status status = espl_hf_read_text(hf, "hidden_act", "silu", &activation, err);
    if (status == ESPL_OK && strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED,
                           "hidden_act '%s' of config.json is not supported", activation);
        (void)espl_hint(err, "models with silu can be read");
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "intermediate_size", true, 1, ESPL_CONFIG_MAX_SIZE,
                                   &config->ffn, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "num_key_value_heads", false, 1, ESPL_CONFIG_MAX_HEADS,
                                   &config->kv_heads, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "head_dim", false, 1, ESPL_CONFIG_MAX_HEADS,
                                   &config->head_dim, err);
    }
    if (status == ESPL_OK && config->head_dim == 0) {
        if (config->hidden % config->heads != 0) {
            return espl_fail(err, ESPL_E_KIND,
                             "hidden_size %" PRIu64 " of config.json is not a multiple of "
                             "num_attention_heads %" PRIu64 " and there is no head_dim",
                             config->hidden, config->heads);
        }
        config->head_dim = config->hidden / config->heads;
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_real(hf, "rms_norm_eps", 0.0, 1.0, &config->norm_eps, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "tie_word_embeddings", &config->tied_embeddings, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_rope(hf, config, err);
    }
    return status;
}

void espl_hf_write_decoder(const struct espl_model_config *config, json_t *hf)
{
    (void)json_object_set_new(hf, "hidden_act", json_string("silu"));
    (void)json_object_set_new(hf, "intermediate_size", json_integer((json_int_t)config->ffn));
    (void)json_object_set_new(hf, "num_key_value_heads",
                              json_integer((json_int_t)config->kv_heads));
    (void)json_object_set_new(hf, "rms_norm_eps", json_real(config->norm_eps));
    (void)json_object_set_new(hf, "attention_dropout", json_real(0.0));
    espl_hf_write_rope(&config->rope, hf);
}

/* ---- the whole file ---- */

/* A token id, the first of a list of them, or -1. */
static enum espl_status read_token(const json_t *hf, const char *key, int64_t *out,
                                   struct espl_error *err)
{
    const json_t *value = espl_hf_value(hf, key);
    *out = -1;
    if (json_is_array(value)) {
        value = json_array_get(value, 0);
    }
    if (value == NULL) {
        return ESPL_OK;
    }
    if (!json_is_integer(value) || json_integer_value(value) < -1 ||
        json_integer_value(value) >= (json_int_t)ESPL_CONFIG_MAX_VOCAB) {
        return espl_fail(err, ESPL_E_KIND, "'%s' of config.json is not a token id", key);
    }
    *out = json_integer_value(value);
    return ESPL_OK;
}

struct dtype_word {
    const char *hf;
    const char *ours;
};

static const struct dtype_word dtype_words[] = {
    {"float16", "f16"},
    {"bfloat16", "bf16"},
    {"float32", "f32"},
    {NULL, NULL},
};

/* What config.json says; the weights themselves decide at import. Other types stay empty. */
static enum espl_status read_dtype(const json_t *hf, struct espl_model_config *config,
                                   struct espl_error *err)
{
    const char *name = NULL;
    enum espl_status status = espl_hf_read_text(hf, "torch_dtype", "", &name, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_text(hf, "dtype", name, &name, err);
    }
    for (size_t i = 0; status == ESPL_OK && dtype_words[i].hf != NULL; i++) {
        if (strcmp(dtype_words[i].hf, name) == 0) {
            (void)snprintf(config->dtype, sizeof config->dtype, "%s", dtype_words[i].ours);
        }
    }
    return status;
}

static enum espl_status find_arch(const json_t *hf, const struct espl_arch **arch,
                                  struct espl_error *err)
{
    const char *type = NULL;
    enum espl_status status = espl_hf_read_text(hf, "model_type", NULL, &type, err);
    const char *key = type != NULL ? "model_type" : "architecture";
    if (status == ESPL_OK && type == NULL) {
        status = espl_hf_read_text(hf, "architecture", NULL, &type, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (type == NULL) {
        (void)espl_fail(err, ESPL_E_KIND, "config.json has no 'model_type'");
        (void)espl_hint(err, "models of HF transformers have one (llama, opt, qwen2, vit, swin), "
                             "those of timm have 'architecture'");
        return ESPL_E_KIND;
    }
    *arch = espl_arch_of_config(hf);
    if (*arch == NULL) {
        (void)espl_fail(err, ESPL_E_UNSUPPORTED, "%s '%s' of config.json is not supported", key,
                        type);
        (void)espl_hint(err, "supported: llama, opt, qwen2, vit, swin; a model that is built like "
                             "one of them can be read with arch: <name>");
        return ESPL_E_UNSUPPORTED;
    }
    return ESPL_OK;
}

static enum espl_status read_common(const json_t *hf, struct espl_model_config *config,
                                    struct espl_error *err)
{
    if (espl_hf_value(hf, "quantization_config") != NULL) {
        (void)espl_fail(err, ESPL_E_UNSUPPORTED,
                        "config.json says the checkpoint is quantised (quantization_config)");
        return espl_hint(err, "import the unquantised checkpoint (f16, bf16 or f32)");
    }
    config->max_positions = 2048; /* LLaMA 1 checkpoints in the wild lack the key */
    enum espl_status status =
        espl_hf_read_size(hf, "hidden_size", true, 1, ESPL_CONFIG_MAX_SIZE, &config->hidden, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "num_hidden_layers", true, 1, ESPL_CONFIG_MAX_LAYERS,
                                   &config->layers, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "num_attention_heads", true, 1, ESPL_CONFIG_MAX_HEADS,
                                   &config->heads, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "vocab_size", true, 1, ESPL_CONFIG_MAX_VOCAB, &config->vocab,
                                   err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "max_position_embeddings", false, 1, ESPL_CONFIG_MAX_VOCAB,
                                   &config->max_positions, err);
    }
    if (status == ESPL_OK) {
        status = read_token(hf, "bos_token_id", &config->bos_id, err);
    }
    if (status == ESPL_OK) {
        status = read_token(hf, "eos_token_id", &config->eos_id, err);
    }
    if (status == ESPL_OK) {
        status = read_dtype(hf, config, err);
    }
    return status;
}

enum espl_status espl_model_config_from_hf(const json_t *hf, struct espl_model_config *config,
                                           struct espl_error *err)
{
    struct espl_model_config read;
    const struct espl_arch *arch = NULL;

    memset(&read, 0, sizeof read);
    if (!json_is_object(hf)) {
        return espl_fail(err, ESPL_E_KIND, "config.json must hold one JSON object");
    }
    enum espl_status status = find_arch(hf, &arch, err);
    if (status == ESPL_OK) {
        (void)snprintf(read.architecture, sizeof read.architecture, "%s", arch->name);
        status = arch->vision ? ESPL_OK : read_common(hf, &read, err);
    }
    if (status == ESPL_OK) {
        status = arch->read_hf(hf, &read, err);
    }
    if (status == ESPL_OK) {
        status = espl_model_config_check(&read, err);
    }
    if (status == ESPL_OK) {
        *config = read;
    }
    return status;
}

void espl_hf_write_class(json_t *hf, const char *class_name)
{
    json_t *classes = json_array();
    (void)json_array_append_new(classes, json_string(class_name));
    (void)json_object_set_new(hf, "architectures", classes);
}

json_t *espl_model_config_to_hf(const struct espl_model_config *config)
{
    json_t *hf = json_object();
    const struct espl_arch *arch = espl_arch_find(config->architecture);

    if (arch->vision) {
        arch->write_hf(config, hf);
        return hf;
    }
    (void)json_object_set_new(hf, "model_type", json_string(arch->hf_types[0]));
    for (size_t i = 0; dtype_words[i].hf != NULL; i++) {
        if (strcmp(dtype_words[i].ours, config->dtype) == 0) {
            (void)json_object_set_new(hf, "torch_dtype", json_string(dtype_words[i].hf));
        }
    }
    (void)json_object_set_new(hf, "hidden_size", json_integer((json_int_t)config->hidden));
    (void)json_object_set_new(hf, "num_hidden_layers", json_integer((json_int_t)config->layers));
    (void)json_object_set_new(hf, "num_attention_heads", json_integer((json_int_t)config->heads));
    (void)json_object_set_new(hf, "vocab_size", json_integer((json_int_t)config->vocab));
    (void)json_object_set_new(hf, "max_position_embeddings",
                              json_integer((json_int_t)config->max_positions));
    (void)json_object_set_new(hf, "tie_word_embeddings", json_boolean(config->tied_embeddings));
    (void)json_object_set_new(hf, "bos_token_id",
                              config->bos_id < 0 ? json_null() : json_integer(config->bos_id));
    (void)json_object_set_new(hf, "eos_token_id",
                              config->eos_id < 0 ? json_null() : json_integer(config->eos_id));
    (void)json_object_set_new(hf, "use_cache", json_true());
    arch->write_hf(config, hf);
    return hf;
}
