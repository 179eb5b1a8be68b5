/* Architectures: which tensors a model has, their names in checkpoints, shapes and roles. */
#ifndef ESPL_MODEL_ARCH_H
#define ESPL_MODEL_ARCH_H

#include "artifact/artifact.h"
#include "model/config.h"

enum espl_role {
    ESPL_ROLE_NONE = 0,
    ESPL_ROLE_EMBEDDING,
    ESPL_ROLE_POSITION,
    ESPL_ROLE_CLASS_TOKEN,
    ESPL_ROLE_DISTILL_TOKEN,
    ESPL_ROLE_EMBEDDING_NORM, /* Swin: of the patch embedding */
    ESPL_ROLE_PROJECT_IN,
    ESPL_ROLE_PROJECT_OUT,
    ESPL_ROLE_FINAL_NORM,
    ESPL_ROLE_HEAD,
    ESPL_ROLE_DISTILL_HEAD,
    ESPL_ROLE_ATTENTION_NORM,
    ESPL_ROLE_MLP_NORM,
    ESPL_ROLE_ATTENTION_BIAS, /* Swin: table of relative positions (offsets, heads) */
    ESPL_ROLE_MERGE_NORM,     /* Swin: of 2 x 2 merged cells, before the first block of a stage */
    ESPL_ROLE_MERGE,          /* ... and the linear that halves them */
    ESPL_ROLE_Q,
    ESPL_ROLE_K,
    ESPL_ROLE_V,
    ESPL_ROLE_QKV, /* timm: query, key and value rows in one matrix */
    ESPL_ROLE_O,
    ESPL_ROLE_GATE,
    ESPL_ROLE_UP,
    ESPL_ROLE_DOWN, /* LLaMA down_proj */
    ESPL_ROLE_FC1,
    ESPL_ROLE_FC2,
    ESPL_ROLE_COUNT
};

const char *espl_role_name(enum espl_role role);
/** Linears inside a block are what pruning and quantisation work on. */
static inline bool espl_role_is_block_linear(enum espl_role role)
{
    return role >= ESPL_ROLE_Q && role <= ESPL_ROLE_FC2;
}

/** One tensor of a model. */
struct espl_tensor_spec {
    char name[128]; /* in the checkpoint: "model.layers.0.self_attn.q_proj.weight" */
    char
        module[112]; /* without prefix and part: "layers.0.self_attn.q_proj"; what targets: match */
    char path[ESPL_TENSOR_PATH]; /* in an artifact: "/layers/000/self_attn.q_proj/weight" */
    enum espl_role role;
    bool is_bias;  /* of the role's module; false = its weight */
    int64_t layer; /* -1 outside blocks */
    unsigned rank; /* 1 or 2 */
    uint64_t shape[2];
    /* As checkpoint files have it: rank and shape but for a patch embedding (out, channels, height,
     * width) and tokens (1, tokens, width). */
    unsigned file_rank;
    uint64_t file_shape[ESPL_MAX_RANK];
};

enum { ESPL_ARCH_MAX_PARTS = 3 };

struct espl_arch {
    const char *name;            /* "llama" */
    const char *summary;         /* one line for `espalier doctor` and docs */
    const char *const *hf_types; /* model_type values of config.json; ends with NULL */
    bool vision; /* read_hf reads the whole of config.json, timm's as well as HF's */
    /** Fills the architecture's part of config from HF json (sizes were read by the caller). */
    enum espl_status (*read_hf)(const json_t *hf, struct espl_model_config *config,
                                struct espl_error *err);
    /** Adds HF keys that only this architecture has. */
    void (*write_hf)(const struct espl_model_config *config, json_t *hf);
    /** Tensor number `index` (0-based) in canonical order: outside-block tensors first, then block
     * by block. Returns false when index is past the end. */
    bool (*tensor)(const struct espl_model_config *config, uint64_t index,
                   struct espl_tensor_spec *spec);
    /** Name of a tensor in naming scheme 0, 1, ...: schemes that files follow as a whole beside
     * that of spec.name (timm before a renaming, HF). A tensor may be stored as up to
     * ESPL_ARCH_MAX_PARTS parts of equally many rows (query, key, value): part 0, 1, ... False when
     * there is no such scheme or part. NULL: there is no other scheme. */
    bool (*scheme_name)(const struct espl_model_config *config, const struct espl_tensor_spec *spec,
                        unsigned scheme, unsigned part, char out[128]);
    /** Prefixes that checkpoints in the wild put before or leave out of names ("model.",
     * "decoder."); ends with NULL. Tried in order when a name is not found as it is. */
    const char *const *name_prefixes;
    /** Tensors that files carry and nobody needs ("*.rotary_emb.inv_freq"); ends with NULL. */
    const char *const *ignored;
};

/** The table; ends with NULL. */
extern const struct espl_arch *const espl_archs[];
/** By name or by HF model_type; NULL when unknown. */
const struct espl_arch *espl_arch_find(const char *name);
/** By model_type of a config.json of HF transformers, else by architecture of timm's, which begins
 * with a model_type ("swin_tiny_patch4_window7_224"). NULL when unknown. */
const struct espl_arch *espl_arch_of_config(const json_t *config);

/** All tensors of a model in canonical order. *specs: malloc'ed, owned by the caller. */
enum espl_status espl_arch_tensors(const struct espl_model_config *config,
                                   struct espl_tensor_spec **specs, size_t *count,
                                   struct espl_error *err);
/** Parameters in all tensors. */
uint64_t espl_arch_parameters(const struct espl_model_config *config);

#endif
