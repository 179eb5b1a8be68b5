/* Sizes and options of a model, whatever file it came from. Image classifiers fill the same fields
 * (a block is a block) and add what only they have. */
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

enum { ESPL_VISION_MAX_STAGES = 4, ESPL_VISION_MAX_CHANNELS = 4 };

/** What image classifiers have beside the common sizes. Those mean: layers = blocks of all stages,
 *  hidden = width of the patch embedding (a Swin doubles it and ffn at each later stage), heads =
 * of the first stage, vocab = classes, max_positions = tokens that enter the first block. */
struct espl_vision_config {
    uint64_t image_size; /* pixels a side; 0: not an image model, and nothing below counts */
    uint64_t patch_size, channels;
    uint64_t stages;                              /* 1: one width all the way (ViT) */
    uint64_t window_size;                         /* cells a side; 0 without windows */
    uint64_t depths[ESPL_VISION_MAX_STAGES];      /* blocks of each stage */
    uint64_t stage_heads[ESPL_VISION_MAX_STAGES]; /* attention heads of its blocks */
    bool distilled;                               /* a distillation token and a second head */
    /* How the model wants its pictures; the images stage takes these as defaults. */
    double mean[ESPL_VISION_MAX_CHANNELS], std[ESPL_VISION_MAX_CHANNELS];
    double crop_pct;        /* side of the crop over the short side of the resized picture */
    char interpolation[16]; /* "bicubic", "bilinear" */
};

struct espl_model_config {
    char architecture[16]; /* "llama", "opt", "vit": a name of the registry */
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
    struct espl_vision_config vision;
    int64_t bos_id, eos_id; /* as config.json says; -1 = not said */
    char dtype[8];          /* "bf16": of the stored weights */
};

/** Does the model read pictures instead of tokens? */
static inline bool espl_model_config_is_vision(const struct espl_model_config *config)
{
    return config->vision.image_size != 0;
}

/** From a parsed config.json of HF transformers (old and new key names), or of timm. Refuses what
 * the forward pass could not do (unknown rope type, sliding window on): UNSUPPORTED naming the key.
 */
enum espl_status espl_model_config_from_hf(const json_t *hf, struct espl_model_config *config,
                                           struct espl_error *err);
/** Canonical JSON object and back: the "config" member of a model artifact's description. */
json_t *espl_model_config_to_json(const struct espl_model_config *config);
enum espl_status espl_model_config_from_json(const json_t *json, struct espl_model_config *config,
                                             struct espl_error *err);
/** config.json that HF transformers loads; of an image model, that timm loads. New reference. */
json_t *espl_model_config_to_hf(const struct espl_model_config *config);

#endif
