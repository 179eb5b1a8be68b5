/* Qwen2 and Qwen2.5: LLaMA's tensors with biases on q, k and v. */
#include "model/arch_internal.h"

#include <string.h>

static bool tensor(const struct espl_model_config *config, uint64_t index,
                   struct espl_tensor_spec *spec)
{
    return espl_arch_table_tensor(&espl_arch_decoder_table, config, index, spec);
}

/* Full attention in every layer, or a refusal that names the key. */
static enum espl_status check_windows(const json_t *hf, struct espl_error *err)
{
    bool sliding = false;
    enum espl_status status = espl_hf_read_bool(hf, "use_sliding_window", &sliding, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (sliding) {
        (void)espl_fail(err, ESPL_E_UNSUPPORTED,
                        "config.json asks for sliding-window attention (use_sliding_window)");
        return espl_hint(err, "only full attention is supported");
    }
    const json_t *types = json_object_get(hf, "layer_types");
    for (size_t i = 0; i < json_array_size(types); i++) {
        const char *type = json_string_value(json_array_get(types, i));
        if (type == NULL || strcmp(type, "full_attention") != 0) {
            (void)espl_fail(err, ESPL_E_UNSUPPORTED,
                            "layer_types of config.json asks for '%s' in layer %zu",
                            type != NULL ? type : "(not a text)", i);
            return espl_hint(err, "only full_attention is supported");
        }
    }
    return ESPL_OK;
}

static enum espl_status read_hf(const json_t *hf, struct espl_model_config *config,
                                struct espl_error *err)
{
    enum espl_status status = espl_hf_read_decoder(hf, config, err);
    if (status == ESPL_OK) {
        status = check_windows(hf, err);
    }
    config->attention_bias = true;
    return status;
}

static void write_hf(const struct espl_model_config *config, json_t *hf)
{
    espl_hf_write_class(hf, "Qwen2ForCausalLM");
    espl_hf_write_decoder(config, hf);
    (void)json_object_set_new(hf, "use_sliding_window", json_false());
    if (config->head_dim * config->heads != config->hidden) {
        (void)json_object_set_new(hf, "head_dim", json_integer((json_int_t)config->head_dim));
    }
}

static const char *const hf_types[] = {"qwen2", NULL};
static const char *const prefixes[] = {"model.", NULL};
static const char *const ignored[] = {"*.rotary_emb.inv_freq", NULL};

const struct espl_arch espl_arch_qwen2 = {
    .name = "qwen2",
    .summary = "Qwen2 and Qwen2.5: as LLaMA, with biases on q, k and v",
    .hf_types = hf_types,
    .read_hf = read_hf,
    .write_hf = write_hf,
    .tensor = tensor,
    .name_prefixes = prefixes,
    .ignored = ignored,
};
