/* Sizes and options of a language model, whatever file they came from. (Vision models: their own
 * issue.) */
#ifndef ESPL_MODEL_CONFIG_H
#define ESPL_MODEL_CONFIG_H

#include "core/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum espl_norm { ESPL_NORM_RMS, ESPL_NORM_LAYER };
enum espl_activation { ESPL_ACT_SILU, ESPL_ACT_RELU, ESPL_ACT_GELU };
enum espl_rope_type {
    ESPL_ROPE_NONE,
    ESPL_ROPE_DEFAULT,
    ESPL_ROPE_LINEAR,
    ESPL_ROPE_DYNAMIC,
    ESPL_ROPE_YARN,
    ESPL_ROPE_LLAMA3
};

struct espl_rope {
    enum espl_rope_type type;
    double theta;
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    double attention_factor;                  /* yarn; 0 = computed */
    uint64_t original_max_positions;
};

struct espl_model_config {
    char architecture[16]; /* "llama", "opt", "qwen2": a name of the registry */
    uint64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    uint64_t embed_dim; /* OPT word_embed_proj_dim; hidden otherwise */
    enum espl_norm norm;
    double norm_eps;
    bool norm_affine;
    enum espl_activation activation;
    bool pre_norm; /* false: OPT-350m, norms after the residual adds */
    bool final_norm;
    bool tied_embeddings;
    bool attention_bias; /* q, k, v have biases */
    bool output_bias;    /* o has a bias */
    bool mlp_bias;
    uint64_t position_offset; /* OPT: 2 */
    struct espl_rope rope;
    int64_t bos_id, eos_id; /* as config.json says; -1 = not said */
    char dtype[8];          /* "bf16": of the stored weights */
};

/** From a parsed config.json of HF transformers (old and new key names). Refuses what the forward
 * pass could not do (unknown rope type, sliding window on): UNSUPPORTED naming the key. */
enum espl_status espl_model_config_from_hf(const json_t *hf, struct espl_model_config *config,
                                           struct espl_error *err);
/** Canonical JSON object and back: the "config" member of a model artifact's description. */
json_t *espl_model_config_to_json(const struct espl_model_config *config);
enum espl_status espl_model_config_from_json(const json_t *json, struct espl_model_config *config,
                                             struct espl_error *err);
/** config.json that HF transformers loads. New reference. */
json_t *espl_model_config_to_hf(const struct espl_model_config *config);

#endif
