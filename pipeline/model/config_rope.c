/* Rotary embeddings in config.json: rope_parameters (new), or rope_theta and rope_scaling (old). */
#include "model/arch_internal.h"
#include "model/config.h"

#include <math.h>
#include <string.h>

struct rope_word {
    const char *name;
    enum espl_rope_type type;
};

static const struct rope_word rope_words[] = {
    {"default", ESPL_ROPE_DEFAULT}, {"linear", ESPL_ROPE_LINEAR}, {"dynamic", ESPL_ROPE_DYNAMIC},
    {"yarn", ESPL_ROPE_YARN},       {"llama3", ESPL_ROPE_LLAMA3}, {NULL, ESPL_ROPE_NONE},
};

static enum espl_status refuse_rope(const char *what, const char *value, struct espl_error *err)
{
    (void)espl_fail(err, ESPL_E_UNSUPPORTED, "%s '%s' of config.json is not supported", what,
                    value);
    return espl_hint(err, "known rope types: default, linear, dynamic, yarn, llama3");
}

static enum espl_status read_rope_type(const json_t *rope, struct espl_rope *out,
                                       struct espl_error *err)
{
    const char *name = NULL;
    enum espl_status status = espl_hf_read_text(rope, "type", "default", &name, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_text(rope, "rope_type", name, &name, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; rope_words[i].name != NULL; i++) {
        if (strcmp(rope_words[i].name, name) == 0) {
            out->type = rope_words[i].type;
            return ESPL_OK;
        }
    }
    return refuse_rope("rope type", name, err);
}

/* DeepSeek-style yarn gives the attention factor as a quotient of two logarithmic scales. */
static double yarn_scale(double factor, double mscale)
{
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

static enum espl_status read_yarn(const json_t *rope, struct espl_rope *out, struct espl_error *err)
{
    bool truncate = true;
    double mscale = 0.0;
    double mscale_all = 0.0;

    out->beta_fast = 32.0;
    out->beta_slow = 1.0;
    enum espl_status status = espl_hf_read_real(rope, "beta_fast", 0.0, 1e6, &out->beta_fast, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_real(rope, "beta_slow", 0.0, 1e6, &out->beta_slow, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_real(rope, "mscale", 0.0, 1e6, &mscale, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_real(rope, "mscale_all_dim", 0.0, 1e6, &mscale_all, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(rope, "truncate", &truncate, err);
    }
    if (status == ESPL_OK && !truncate) {
        status = refuse_rope("truncate of the rope scaling", "false", err);
    }
    if (status == ESPL_OK) {
        if (mscale > 0.0 && mscale_all > 0.0) {
            out->attention_factor =
                yarn_scale(out->factor, mscale) / yarn_scale(out->factor, mscale_all);
        }
        status = espl_hf_read_real(rope, "attention_factor", 0.0, 1e6, &out->attention_factor, err);
    }
    return status;
}

/* The members beside theta of rope_scaling or rope_parameters. */
static enum espl_status read_rope_scaling(const json_t *rope, const json_t *hf,
                                          struct espl_model_config *config, struct espl_error *err)
{
    struct espl_rope *out = &config->rope;
    enum espl_status status = read_rope_type(rope, out, err);
    if (status != ESPL_OK || out->type == ESPL_ROPE_DEFAULT) {
        return status;
    }
    if (!json_is_number(json_object_get(rope, "factor"))) {
        return espl_fail(err, ESPL_E_KIND, "the rope scaling of config.json has no 'factor'");
    }
    status = espl_hf_read_real(rope, "factor", 1e-6, 1e6, &out->factor, err);
    if (status != ESPL_OK || out->type == ESPL_ROPE_LINEAR) {
        return status;
    }
    out->original_max_positions = config->max_positions;
    if (out->type == ESPL_ROPE_DYNAMIC) {
        return ESPL_OK;
    }
    status = espl_hf_read_size(hf, "original_max_position_embeddings", false, 1,
                               ESPL_CONFIG_MAX_VOCAB, &out->original_max_positions, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_size(rope, "original_max_position_embeddings", false, 1,
                                   ESPL_CONFIG_MAX_VOCAB, &out->original_max_positions, err);
    }
    if (status == ESPL_OK && out->type == ESPL_ROPE_YARN) {
        status = read_yarn(rope, out, err);
    }
    if (status == ESPL_OK && out->type == ESPL_ROPE_LLAMA3) {
        status = espl_hf_read_real(rope, "low_freq_factor", 0.0, 1e6, &out->low_freq_factor, err);
    }
    if (status == ESPL_OK && out->type == ESPL_ROPE_LLAMA3) {
        status = espl_hf_read_real(rope, "high_freq_factor", 0.0, 1e6, &out->high_freq_factor, err);
    }
    return status;
}

enum espl_status espl_hf_read_rope(const json_t *hf, struct espl_model_config *config,
                                   struct espl_error *err)
{
    const json_t *parameters = espl_hf_value(hf, "rope_parameters");
    const json_t *scaling = espl_hf_value(hf, "rope_scaling");
    const json_t *rope = parameters != NULL ? parameters : scaling;
    double partial = 1.0;

    config->rope.type = ESPL_ROPE_DEFAULT;
    config->rope.factor = 1.0;
    config->rope.theta = 10000.0;
    if (rope != NULL && !json_is_object(rope)) {
        return espl_fail(err, ESPL_E_KIND, "'%s' of config.json must be an object",
                         parameters != NULL ? "rope_parameters" : "rope_scaling");
    }
    const char *key = NULL;
    json_t *member = NULL;
    json_object_foreach((json_t *)rope, key, member)
    {
        if (json_is_object(member)) { /* one rope for each kind of layer */
            return refuse_rope("rope_parameters for the layer type", key, err);
        }
    }
    enum espl_status status =
        espl_hf_read_real(hf, "rope_theta", 1e-3, 1e12, &config->rope.theta, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_real(rope, "rope_theta", 1e-3, 1e12, &config->rope.theta, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_real(hf, "partial_rotary_factor", 0.0, 1.0, &partial, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_real(rope, "partial_rotary_factor", 0.0, 1.0, &partial, err);
    }
    if (status == ESPL_OK && partial != 1.0) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED,
                           "partial_rotary_factor %g of config.json is not supported", partial);
    }
    if (status == ESPL_OK && rope != NULL) {
        status = read_rope_scaling(rope, hf, config, err);
    }
    return status;
}

void espl_hf_write_rope(const struct espl_rope *rope, json_t *hf)
{
    (void)json_object_set_new(hf, "rope_theta", json_real(rope->theta));
    if (rope->type == ESPL_ROPE_DEFAULT) {
        (void)json_object_set_new(hf, "rope_scaling", json_null());
        return;
    }
    json_t *scaling = json_object();
    for (size_t i = 0; rope_words[i].name != NULL; i++) {
        if (rope_words[i].type == rope->type) {
            (void)json_object_set_new(scaling, "rope_type", json_string(rope_words[i].name));
        }
    }
    (void)json_object_set_new(scaling, "factor", json_real(rope->factor));
    if (rope->type == ESPL_ROPE_LLAMA3) {
        (void)json_object_set_new(scaling, "low_freq_factor", json_real(rope->low_freq_factor));
        (void)json_object_set_new(scaling, "high_freq_factor", json_real(rope->high_freq_factor));
    }
    if (rope->type == ESPL_ROPE_YARN) {
        (void)json_object_set_new(scaling, "beta_fast", json_real(rope->beta_fast));
        (void)json_object_set_new(scaling, "beta_slow", json_real(rope->beta_slow));
        if (rope->attention_factor > 0.0) {
            (void)json_object_set_new(scaling, "attention_factor",
                                      json_real(rope->attention_factor));
        }
    }
    if (rope->type == ESPL_ROPE_LLAMA3 || rope->type == ESPL_ROPE_YARN) {
        (void)json_object_set_new(scaling, "original_max_position_embeddings",
                                  json_integer((json_int_t)rope->original_max_positions));
    }
    (void)json_object_set_new(hf, "rope_scaling", scaling);
}
