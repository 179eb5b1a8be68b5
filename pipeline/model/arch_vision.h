/* What ViT and Swin have in common: where a block stands, tables of tensors, config.json of timm.
 */
#ifndef ESPL_MODEL_ARCH_VISION_H
#define ESPL_MODEL_ARCH_VISION_H

#include "model/arch.h"

/** A block of an image model, numbered through all stages. */
struct espl_vision_place {
    uint64_t stage, index; /* index: within the stage */
    uint64_t width, ffn, heads;
    uint64_t side;   /* cells or patches a side of the map that the block works on */
    uint64_t window; /* cells a side of an attention window; 0 = all tokens at once */
    uint64_t shift;  /* cells by which the map is rolled before it is cut into windows */
    bool merges;     /* 2 x 2 cells of the map before are merged first */
};

/** block < config->layers. Window and shift as timm has them: a map that is not larger than the
 *  window is one window without shift; every second block shifts by half a window. */
void espl_vision_get_place(const struct espl_model_config *config, uint64_t block,
                           struct espl_vision_place *place);
/** Tokens that a block computes on: the cells of its map, or a ViT's patches and special tokens. */
uint64_t espl_vision_place_tokens(const struct espl_model_config *config,
                                  const struct espl_vision_place *place);

/* ---- tables ---- */

enum espl_vision_dim {
    ESPL_VISION_ONE,
    ESPL_VISION_WIDTH, /* of the block; outside blocks: of the embedding */
    ESPL_VISION_LAST,  /* of the last stage */
    ESPL_VISION_QKV,   /* 3 x width */
    ESPL_VISION_FFN,
    ESPL_VISION_PATCH, /* channels x patch x patch */
    ESPL_VISION_CLASSES,
    ESPL_VISION_TOKENS,
    ESPL_VISION_OFFSETS, /* (2 window - 1)^2 */
    ESPL_VISION_HEADS,
    ESPL_VISION_MERGED /* 4 x width of the stage before */
};

enum espl_vision_when {
    ESPL_VISION_ALWAYS,
    ESPL_VISION_DISTILLED,
    ESPL_VISION_QKV_BIAS,
    ESPL_VISION_MERGES,
    ESPL_VISION_WINDOWS
};

enum espl_vision_part { ESPL_VISION_WEIGHT, ESPL_VISION_BIAS, ESPL_VISION_PARAMETER };

/** One tensor. PARAMETER: its name has no ".weight" behind the module. */
struct espl_vision_row {
    const char *module; /* in a block: "attn.qkv"; of the stage: "downsample.reduction" */
    enum espl_vision_part part;
    enum espl_role role;
    enum espl_vision_when when;
    enum espl_vision_dim rows, cols; /* cols ONE: a vector */
};

/** espl_arch.tensor for an architecture with these rows outside its blocks (ends with .module ==
 *  NULL); those of a block are the same for all. Module names are "blocks.3.attn.qkv", of a model
 *  with windows "layers.1.blocks.0.attn.qkv" and "layers.1.downsample.norm". */
bool espl_vision_table_tensor(const struct espl_vision_row *outside,
                              const struct espl_model_config *config, uint64_t index,
                              struct espl_tensor_spec *spec);
/** Name of the row's tensor within its module ("attn.qkv" of "blocks.3.attn.qkv.weight"). */
const char *espl_vision_local_module(const struct espl_tensor_spec *spec);

/** What HF transformers call a module of timm: one name, or that of each part that it splits into.
 */
struct espl_vision_renamed {
    const char *timm;
    const char *hf[ESPL_ARCH_MAX_PARTS];
};

/** HF's name of part `part` of a module; names end with .timm == NULL. NULL when there is none. */
const char *espl_vision_find_renamed(const struct espl_vision_renamed *names, const char *module,
                                     unsigned part);

/* ---- configuration ---- */

/** Sets what all image models share, and the derived sizes; then checks them. widths, depths and
 * heads must be set. Errors: KIND, UNSUPPORTED. */
enum espl_status espl_vision_complete_config(struct espl_model_config *config,
                                             struct espl_error *err);
/** Limits of the vision part, whatever file it came from. Errors: KIND, UNSUPPORTED. */
enum espl_status espl_vision_check_config(const struct espl_model_config *config,
                                          struct espl_error *err);
/** Member "vision" of a description, and back (CORRUPT). */
json_t *espl_vision_config_to_json(const struct espl_vision_config *vision);
enum espl_status espl_vision_config_from_json(const json_t *json, struct espl_vision_config *vision,
                                              struct espl_error *err);

/** A published size: what a timm name stands for. */
struct espl_vision_preset {
    const char *name; /* "deit_small" */
    uint64_t width, depths[ESPL_VISION_MAX_STAGES], heads[ESPL_VISION_MAX_STAGES];
};

/** What a timm name says beside its preset: "deit_small_distilled_patch16_224.fb_in1k". */
struct espl_timm_name {
    const struct espl_vision_preset *preset;
    bool distilled;
    uint64_t patch_size, window_size, image_size; /* 0 = not said */
};

/** Takes a timm name apart; false when it is not one that these presets cover. */
bool espl_timm_parse_name(const char *name, const struct espl_vision_preset *presets,
                          struct espl_timm_name *parsed);

/** A key of model_args that changes nothing when it has this value (text, or NULL for true). */
struct espl_timm_key {
    const char *name;
    const char *value;
};

/** Reads from a timm config.json: image, patch and window size, channels, classes, widths
 * (embed_dim, mlp_ratio, qkv_bias) and the picture's mean, std, crop. fixed: keys that may only
 * have one value; known: keys that the caller reads itself; both end with NULL names. Any other key
 * of model_args that is not null or false is UNSUPPORTED. */
enum espl_status espl_timm_read(const json_t *timm, const struct espl_timm_name *name,
                                const struct espl_timm_key *fixed, const char *const *known,
                                struct espl_model_config *config, struct espl_error *err);
/** The object model_args (may be NULL). */
const json_t *espl_timm_args(const json_t *timm);
/** config.json as timm saves it, under a registered name of timm. args: what this architecture has
 * beside the common keys; taken over. */
void espl_timm_write(const struct espl_model_config *config, const char *architecture, json_t *args,
                     json_t *out);
/** Image size, channels and classes out of a config.json of HF transformers; gelu only. */
enum espl_status espl_hf_read_vision(const json_t *hf, struct espl_model_config *config,
                                     struct espl_error *err);
/** A list of `count` sizes. Errors: KIND naming the key. */
enum espl_status espl_hf_read_sizes(const json_t *json, const char *key, uint64_t max,
                                    uint64_t *out, size_t limit, uint64_t *count,
                                    struct espl_error *err);
/** Mean and std of ImageNet (three channels); one channel gets 0.5. */
void espl_vision_default_scale(struct espl_vision_config *vision);

#endif
