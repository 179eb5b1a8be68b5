/* The model view's inside, shared by model.c and model_read.c. */
#ifndef ESPL_MODEL_MODEL_INTERNAL_H
#define ESPL_MODEL_MODEL_INTERNAL_H

#include "model/model.h"

enum {
    /* Masked models over masked models over ... a dense one: a bit each in a 16-bit word. */
    ESPL_MODEL_MAX_CHAIN = 16,
    /* Largest piece of raw data in memory at once. */
    ESPL_MODEL_PIECE_BYTES = 4 << 20
};

/** What is known of one tensor beside its spec. */
struct espl_model_slot {
    enum espl_dtype dtype;
    uint16_t masks; /* bit i: chain[i] has a mask for it */
};

struct espl_model {
    /* chain[0] is the artifact given to open (borrowed); the last one is dense, all between are
     * masks over the next one. */
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
};

/** Path of a weight's mask: "/layers/003/self_attn.q_proj/mask". */
void espl_model_mask_path(const struct espl_tensor_spec *weight, char out[ESPL_TENSOR_PATH]);
/** Info of a mask dataset for this weight. */
struct espl_tensor_info espl_model_mask_info(const struct espl_tensor_spec *weight);

#endif
