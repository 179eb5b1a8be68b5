/* How the architecture files describe themselves: rows of tensors with sizes named, not numbered,
 * and readers of HF config.json keys. Private to pipeline/model. */
#ifndef ESPL_MODEL_ARCH_INTERNAL_H
#define ESPL_MODEL_ARCH_INTERNAL_H

#include "model/arch.h"

/** A size of the model that a tensor dimension is made of. */
enum espl_dim {
    ESPL_DIM_NONE,
    ESPL_DIM_HIDDEN,
    ESPL_DIM_EMBED,
    ESPL_DIM_VOCAB,
    ESPL_DIM_POSITIONS, /* max_positions + position_offset */
    ESPL_DIM_QUERY,     /* heads * head_dim */
    ESPL_DIM_KEY_VALUE, /* kv_heads * head_dim */
    ESPL_DIM_FFN
};

/** When a model has the tensor of a row. */
enum espl_when {
    ESPL_WHEN_ALWAYS,
    ESPL_WHEN_UNTIED,
    ESPL_WHEN_PROJECTED, /* embed_dim differs from hidden */
    ESPL_WHEN_NORM_AFFINE,
    ESPL_WHEN_FINAL_NORM_AFFINE,
    ESPL_WHEN_ATTENTION_BIAS,
    ESPL_WHEN_OUTPUT_BIAS,
    ESPL_WHEN_MLP_BIAS
};

/** One tensor, outside blocks or in each block. rank is 1 when cols is NONE. */
struct espl_tensor_row {
    const char *module; /* "self_attn.q_proj" */
    bool is_bias;
    enum espl_role role;
    enum espl_when when;
    enum espl_dim rows;
    enum espl_dim cols;
};

/** Two tables (each ends with .module == NULL) and the checkpoint's name prefixes. */
struct espl_tensor_table {
    const char *prefix; /* of all names but the head's: "model." */
    const struct espl_tensor_row *outside;
    const struct espl_tensor_row *block;
};

/** espl_arch.tensor for an architecture that is a table. */
bool espl_arch_table_tensor(const struct espl_tensor_table *table,
                            const struct espl_model_config *config, uint64_t index,
                            struct espl_tensor_spec *spec);

/** The tensors of LLaMA and Qwen2. */
extern const struct espl_tensor_table espl_arch_decoder_table;

extern const struct espl_arch espl_arch_llama;
extern const struct espl_arch espl_arch_opt;
extern const struct espl_arch espl_arch_qwen2;
extern const struct espl_arch espl_arch_vit;
extern const struct espl_arch espl_arch_swin;

/* ---- keys of config.json ---- */

/** Largest value a size may have: far above any model, far below any overflow. */
#define ESPL_CONFIG_MAX_SIZE   ((uint64_t)1 << 21)
#define ESPL_CONFIG_MAX_VOCAB  ((uint64_t)1 << 26) /* also of positions */
#define ESPL_CONFIG_MAX_LAYERS ((uint64_t)4096)
#define ESPL_CONFIG_MAX_HEADS  ((uint64_t)1 << 14)

/** The value of a key; NULL when it is absent or null. */
const json_t *espl_hf_value(const json_t *hf, const char *key);
/** A whole number in [min, max]. Absent or null: *out keeps its value when `required` is false,
 * else an error. Errors: KIND naming the key. */
enum espl_status espl_hf_read_size(const json_t *hf, const char *key, bool required, uint64_t min,
                                   uint64_t max, uint64_t *out, struct espl_error *err);
/** A finite number in [min, max]; absent or null keeps *out. */
enum espl_status espl_hf_read_real(const json_t *hf, const char *key, double min, double max,
                                   double *out, struct espl_error *err);
/** true or false; absent or null keeps *out. */
enum espl_status espl_hf_read_bool(const json_t *hf, const char *key, bool *out,
                                   struct espl_error *err);
/** Text of a key or `otherwise`; NULL and an error when the value is not a text. */
enum espl_status espl_hf_read_text(const json_t *hf, const char *key, const char *otherwise,
                                   const char **out, struct espl_error *err);
/** rope_parameters, or rope_theta and rope_scaling. config->max_positions must be set. */
enum espl_status espl_hf_read_rope(const json_t *hf, struct espl_model_config *config,
                                   struct espl_error *err);
/** rope_theta and rope_scaling: what every version of HF transformers reads. */
void espl_hf_write_rope(const struct espl_rope *rope, json_t *hf);
/** "architectures": the class that transformers builds. */
void espl_hf_write_class(json_t *hf, const char *class_name);
/** What LLaMA and Qwen2 have in common: RMSNorm, SiLU, grouped-query heads, rope. */
enum espl_status espl_hf_read_decoder(const json_t *hf, struct espl_model_config *config,
                                      struct espl_error *err);
void espl_hf_write_decoder(const struct espl_model_config *config, json_t *hf);
/** The limits every configuration must keep, whatever file it came from. Errors: KIND. */
enum espl_status espl_model_config_check(const struct espl_model_config *config,
                                         struct espl_error *err);

#endif
