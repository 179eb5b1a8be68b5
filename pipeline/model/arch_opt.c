/* OPT, 125m to 66b, with the post-norm, projected 350m; also Galactica (model_type "opt", GELU). */
#include "model/arch_internal.h"

#include <string.h>

static const struct espl_tensor_row outside[] = {
    {"embed_tokens", false, ESPL_ROLE_EMBEDDING, ESPL_WHEN_ALWAYS, ESPL_DIM_VOCAB, ESPL_DIM_EMBED},
    {"embed_positions", false, ESPL_ROLE_POSITION, ESPL_WHEN_ALWAYS, ESPL_DIM_POSITIONS,
     ESPL_DIM_HIDDEN},
    {"project_in", false, ESPL_ROLE_PROJECT_IN, ESPL_WHEN_PROJECTED, ESPL_DIM_HIDDEN,
     ESPL_DIM_EMBED},
    {"project_out", false, ESPL_ROLE_PROJECT_OUT, ESPL_WHEN_PROJECTED, ESPL_DIM_EMBED,
     ESPL_DIM_HIDDEN},
    {"final_layer_norm", false, ESPL_ROLE_FINAL_NORM, ESPL_WHEN_FINAL_NORM_AFFINE, ESPL_DIM_HIDDEN,
     ESPL_DIM_NONE},
    {"final_layer_norm", true, ESPL_ROLE_FINAL_NORM, ESPL_WHEN_FINAL_NORM_AFFINE, ESPL_DIM_HIDDEN,
     ESPL_DIM_NONE},
    {"lm_head", false, ESPL_ROLE_HEAD, ESPL_WHEN_UNTIED, ESPL_DIM_VOCAB, ESPL_DIM_EMBED},
    {NULL, false, ESPL_ROLE_NONE, ESPL_WHEN_ALWAYS, ESPL_DIM_NONE, ESPL_DIM_NONE},
};

static const struct espl_tensor_row block[] = {
    {"self_attn_layer_norm", false, ESPL_ROLE_ATTENTION_NORM, ESPL_WHEN_NORM_AFFINE,
     ESPL_DIM_HIDDEN, ESPL_DIM_NONE},
    {"self_attn_layer_norm", true, ESPL_ROLE_ATTENTION_NORM, ESPL_WHEN_NORM_AFFINE, ESPL_DIM_HIDDEN,
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
    {"self_attn.out_proj", false, ESPL_ROLE_O, ESPL_WHEN_ALWAYS, ESPL_DIM_HIDDEN, ESPL_DIM_QUERY},
    {"self_attn.out_proj", true, ESPL_ROLE_O, ESPL_WHEN_OUTPUT_BIAS, ESPL_DIM_HIDDEN,
     ESPL_DIM_NONE},
    {"final_layer_norm", false, ESPL_ROLE_MLP_NORM, ESPL_WHEN_NORM_AFFINE, ESPL_DIM_HIDDEN,
     ESPL_DIM_NONE},
    {"final_layer_norm", true, ESPL_ROLE_MLP_NORM, ESPL_WHEN_NORM_AFFINE, ESPL_DIM_HIDDEN,
     ESPL_DIM_NONE},
    {"fc1", false, ESPL_ROLE_FC1, ESPL_WHEN_ALWAYS, ESPL_DIM_FFN, ESPL_DIM_HIDDEN},
    {"fc1", true, ESPL_ROLE_FC1, ESPL_WHEN_MLP_BIAS, ESPL_DIM_FFN, ESPL_DIM_NONE},
    {"fc2", false, ESPL_ROLE_FC2, ESPL_WHEN_ALWAYS, ESPL_DIM_HIDDEN, ESPL_DIM_FFN},
    {"fc2", true, ESPL_ROLE_FC2, ESPL_WHEN_MLP_BIAS, ESPL_DIM_HIDDEN, ESPL_DIM_NONE},
    {NULL, false, ESPL_ROLE_NONE, ESPL_WHEN_ALWAYS, ESPL_DIM_NONE, ESPL_DIM_NONE},
};

static const struct espl_tensor_table table = {"model.decoder.", outside, block};

static bool tensor(const struct espl_model_config *config, uint64_t index,
                   struct espl_tensor_spec *spec)
{
    return espl_arch_table_tensor(&table, config, index, spec);
}

static enum espl_status read_activation(const json_t *hf, struct espl_model_config *config,
                                        struct espl_error *err)
{
    const char *name = NULL;
    const enum espl_status status =
        espl_hf_read_text(hf, "activation_function", "relu", &name, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (strcmp(name, "relu") == 0) {
        config->activation = ESPL_ACT_RELU;
        return ESPL_OK;
    }
    if (strcmp(name, "gelu") == 0) {
        config->activation = ESPL_ACT_GELU;
        return ESPL_OK;
    }
    (void)espl_fail(err, ESPL_E_UNSUPPORTED,
                    "activation_function '%s' of config.json is not supported", name);
    return espl_hint(err, "OPT models with relu or (exact) gelu can be read");
}

static enum espl_status read_hf(const json_t *hf, struct espl_model_config *config,
                                struct espl_error *err)
{
    bool removed_norm = false;
    bool biases = true;

    config->norm = ESPL_NORM_LAYER;
    config->norm_eps = 1e-5; /* not a key: HF's OPT takes LayerNorm's default */
    config->norm_affine = true;
    config->pre_norm = true;
    config->kv_heads = config->heads;
    config->head_dim = config->hidden / config->heads;
    config->position_offset = 2;
    config->rope.type = ESPL_ROPE_NONE;
    config->tied_embeddings = true;
    config->embed_dim = config->hidden;

    if (config->hidden % config->heads != 0) {
        return espl_fail(err, ESPL_E_KIND,
                         "hidden_size %llu of config.json is not a multiple of "
                         "num_attention_heads %llu",
                         (unsigned long long)config->hidden, (unsigned long long)config->heads);
    }
    enum espl_status status = read_activation(hf, config, err);
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "ffn_dim", true, 1, ESPL_CONFIG_MAX_SIZE, &config->ffn, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_size(hf, "word_embed_proj_dim", false, 1, ESPL_CONFIG_MAX_SIZE,
                                   &config->embed_dim, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "do_layer_norm_before", &config->pre_norm, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "_remove_final_layer_norm", &removed_norm, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "enable_bias", &biases, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "layer_norm_elementwise_affine", &config->norm_affine, err);
    }
    if (status == ESPL_OK) {
        status = espl_hf_read_bool(hf, "tie_word_embeddings", &config->tied_embeddings, err);
    }
    config->final_norm = config->pre_norm && !removed_norm;
    config->attention_bias = biases;
    config->output_bias = biases;
    config->mlp_bias = biases;
    return status;
}

static void write_hf(const struct espl_model_config *config, json_t *hf)
{
    espl_hf_write_class(hf, "OPTForCausalLM");
    (void)json_object_set_new(hf, "activation_function",
                              json_string(config->activation == ESPL_ACT_GELU ? "gelu" : "relu"));
    (void)json_object_set_new(hf, "ffn_dim", json_integer((json_int_t)config->ffn));
    (void)json_object_set_new(hf, "word_embed_proj_dim",
                              json_integer((json_int_t)config->embed_dim));
    (void)json_object_set_new(hf, "do_layer_norm_before", json_boolean(config->pre_norm));
    (void)json_object_set_new(hf, "_remove_final_layer_norm",
                              json_boolean(config->pre_norm && !config->final_norm));
    (void)json_object_set_new(hf, "enable_bias", json_boolean(config->mlp_bias));
    (void)json_object_set_new(hf, "layer_norm_elementwise_affine",
                              json_boolean(config->norm_affine));
    (void)json_object_set_new(hf, "dropout", json_real(0.0));
    (void)json_object_set_new(hf, "attention_dropout", json_real(0.0));
    (void)json_object_set_new(hf, "layerdrop", json_real(0.0));
}

static const char *const hf_types[] = {"opt", NULL};
static const char *const prefixes[] = {"model.", "model.decoder.", NULL};
static const char *const ignored[] = {"decoder.version", NULL};

const struct espl_arch espl_arch_opt = {
    .name = "opt",
    .summary = "OPT 125m to 66b: LayerNorm, learned positions, ReLU, post-norm 350m",
    .hf_types = hf_types,
    .read_hf = read_hf,
    .write_hf = write_hf,
    .tensor = tensor,
    .name_prefixes = prefixes,
    .ignored = ignored,
};
