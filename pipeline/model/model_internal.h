/* The model view's inside, shared by model.c and model_read.c. */
#ifndef ESPL_MODEL_MODEL_INTERNAL_H
#define ESPL_MODEL_MODEL_INTERNAL_H

#include "model/model.h"
#include "model/quantised.h"

enum {
    /* Masked models over masked models over ... a dense one: a bit each in a 16-bit word. */
    ESPL_MODEL_MAX_CHAIN = 16,
    /* Largest piece of raw data in memory at once. */
    ESPL_MODEL_PIECE_BYTES = 4 << 20
};

/** What is known of one tensor beside its spec. */
struct espl_model_slot {
    enum espl_dtype dtype;
    uint16_t masks; /* bit i: chain[i] has a mask that applies to it */
    uint8_t owner;  /* chain[owner] holds the values */
    bool quantised; /* as integer codes */
};

struct espl_model {
    /* chain[0] is the artifact given to open (borrowed); the last one is dense or encoded; every
     * other one holds masks, changed weights or, only the first, codes over the next one. An
     * encoded model stands alone. */
    struct espl_artifact *chain[ESPL_MODEL_MAX_CHAIN];
    size_t chain_count;
    struct espl_model_config config;
    struct espl_tensor_spec *specs;
    struct espl_model_slot *slots;
    size_t count;
    void *raw; /* grown on demand, at most a piece or one row */
    size_t raw_bytes;
    uint8_t *mask;
    size_t mask_bytes;
    bool is_quantised; /* chain[0] is, packed or encoded */
    bool is_encoded;   /* chain[0] is */
    struct espl_quant_scheme scheme;
    json_int_t linears;              /* that chain[0] says it holds as codes; 0 = it does not say */
    struct espl_quant_linear cached; /* with its mask; read last */
    const struct espl_tensor_spec *cached_spec;
};

/** Description of a model made from `base`, with `members` (borrowed; NULL = out of memory) beside
 * what every model has and the base's content hash. */
enum espl_status espl_model_describe_over(struct espl_artifact *output,
                                          const struct espl_model *base, const json_t *members,
                                          struct espl_error *err);
/** Path of a weight's mask: "/layers/003/self_attn.q_proj/mask". */
void espl_model_mask_path(const struct espl_tensor_spec *weight, char out[ESPL_TENSOR_PATH]);
/** Info of a mask dataset for this weight. */
struct espl_tensor_info espl_model_mask_info(const struct espl_tensor_spec *weight);
/** Does the artifact hold codes of this weight, packed or encoded? */
bool espl_quant_is_stored(const struct espl_artifact *artifact,
                          const struct espl_tensor_spec *weight);

#endif
