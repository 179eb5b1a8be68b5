/* LLaMA 1, 2, 3 and what is built like them (model_type "llama"). */
#include "model/arch_internal.h"

static const struct espl_tensor_row outside[] = {
    {"embed_tokens", false, ESPL_ROLE_EMBEDDING, ESPL_WHEN_ALWAYS, ESPL_DIM_VOCAB, ESPL_DIM_HIDDEN},
    {"norm", false, ESPL_ROLE_FINAL_NORM, ESPL_WHEN_ALWAYS, ESPL_DIM_HIDDEN, ESPL_DIM_NONE},
    {"lm_head", false, ESPL_ROLE_HEAD, ESPL_WHEN_UNTIED, ESPL_DIM_VOCAB, ESPL_DIM_HIDDEN},
    {NULL, false, ESPL_ROLE_NONE, ESPL_WHEN_ALWAYS, ESPL_DIM_NONE, ESPL_DIM_NONE},
};

static const struct espl_tensor_row block[] = {
    {"input_layernorm", false, ESPL_ROLE_ATTENTION_NORM, ESPL_WHEN_ALWAYS, ESPL_DIM_HIDDEN,
     ESPL_DIM_NONE},
    {"self_attn.q_proj", false, ESPL_ROLE_Q, ESPL_WHEN_ALWAYS, ESPL_DIM_QUERY, ESPL_DIM_HIDDEN},
    {"self_attn.q_proj", true, ESPL_ROLE_Q, ESPL_WHEN_ATTENTION_BIAS, ESPL_DIM_QUERY,
     ESPL_DIM_NONE},
    {"self_attn.k_proj", false, ESPL_ROLE_K, ESPL_WHEN_ALWAYS, ESPL_DIM_KEY_VALUE, ESPL_DIM_HIDDEN},
    {"self_attn.k_proj", true, ESPL_ROLE_K, ESPL_WHEN_ATTENTION_BIAS, ESPL_DIM_KEY_VALUE,
     ESPL_DIM_NONE},
    {"self_attn.v_proj", false, ESPL_ROLE_V, ESPL_WHEN_ALWAYS, ESPL_DIM_KEY_VALUE, ESPL_DIM_HIDDEN},
    {"self_attn.v_proj", true, ESPL_ROLE_V, ESPL_WHEN_ATTENTION_BIAS, ESPL_DIM_KEY_VALUE,
     ESPL_DIM_NONE},
    {"self_attn.o_proj", false, ESPL_ROLE_O, ESPL_WHEN_ALWAYS, ESPL_DIM_HIDDEN, ESPL_DIM_QUERY},
    {"self_attn.o_proj", true, ESPL_ROLE_O, ESPL_WHEN_OUTPUT_BIAS, ESPL_DIM_HIDDEN, ESPL_DIM_NONE},
    {"post_attention_layernorm", false, ESPL_ROLE_MLP_NORM, ESPL_WHEN_ALWAYS, ESPL_DIM_HIDDEN,
     ESPL_DIM_NONE},
    {"mlp.gate_proj", false, ESPL_ROLE_GATE, ESPL_WHEN_ALWAYS, ESPL_DIM_FFN, ESPL_DIM_HIDDEN},
    {"mlp.gate_proj", true, ESPL_ROLE_GATE, ESPL_WHEN_MLP_BIAS, ESPL_DIM_FFN, ESPL_DIM_NONE},
    {"mlp.up_proj", false, ESPL_ROLE_UP, ESPL_WHEN_ALWAYS, ESPL_DIM_FFN, ESPL_DIM_HIDDEN},
    {"mlp.up_proj", true, ESPL_ROLE_UP, ESPL_WHEN_MLP_BIAS, ESPL_DIM_FFN, ESPL_DIM_NONE},
    {"mlp.down_proj", false, ESPL_ROLE_DOWN, ESPL_WHEN_ALWAYS, ESPL_DIM_HIDDEN, ESPL_DIM_FFN},
    {"mlp.down_proj", true, ESPL_ROLE_DOWN, ESPL_WHEN_MLP_BIAS, ESPL_DIM_HIDDEN, ESPL_DIM_NONE},
    {NULL, false, ESPL_ROLE_NONE, ESPL_WHEN_ALWAYS, ESPL_DIM_NONE, ESPL_DIM_NONE},
};

/* Qwen2 has the same tensors; its file uses this table too. */
const struct espl_tensor_table espl_arch_decoder_table = {"model.", outside, block};

static bool tensor(const struct espl_model_config *config, uint64_t index,
                   struct espl_tensor_spec *spec)
{
    return espl_arch_table_tensor(&espl_arch_decoder_table, config, index, spec);
}

static enum espl_status read_hf(const json_t *hf, struct espl_model_config *config,
                                struct espl_error *err)
{
    enum espl_status status = espl_hf_read_decoder(hf, config, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "attention_bias", &config->attention_bias, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "mlp_bias", &config->mlp_bias, err);
    }
    const json_t *window = json_object_get(hf, "sliding_window");
    if (status == ESPL_OK && window != NULL && !json_is_null(window)) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED,
                           "config.json asks for sliding-window attention (sliding_window)");
        (void)espl_hint(err, "only full attention is supported");
    }
    config->output_bias = config->attention_bias;
    return status;
}

static void write_hf(const struct espl_model_config *config, json_t *hf)
{
    espl_hf_write_class(hf, "LlamaForCausalLM");
    espl_hf_write_decoder(config, hf);
    (void)json_object_set_new(hf, "attention_bias", json_boolean(config->attention_bias));
    (void)json_object_set_new(hf, "mlp_bias", json_boolean(config->mlp_bias));
    (void)json_object_set_new(hf, "head_dim", json_integer((json_int_t)config->head_dim));
    (void)json_object_set_new(hf, "pretraining_tp", json_integer(1));
}

static const char *const hf_types[] = {"llama", NULL};
static const char *const prefixes[] = {"model.", NULL};
static const char *const ignored[] = {"*.rotary_emb.inv_freq", NULL};

const struct espl_arch espl_arch_llama = {
    .name = "llama",
    .summary = "LLaMA 1, 2, 3: RMSNorm, rope, SwiGLU, grouped-query attention",
    .hf_types = hf_types,
    .read_hf = read_hf,
    .write_hf = write_hf,
    .tensor = tensor,
    .name_prefixes = prefixes,
    .ignored = ignored,
};
