/* What forward.c, block.c, linear.c and forward_size.c share. */
#ifndef ESPL_EVAL_FORWARD_INTERNAL_H
#define ESPL_EVAL_FORWARD_INTERNAL_H

#include "eval/forward.h"

/** A linear layer or a norm in float32; NULL parts are absent. */
struct espl_layer_weights {
    struct espl_matrix_shape shape; /* (out, in); a norm: (width, 1) */
    float *weight;
    float *bias;
};

/** A linear as integer codes, packed or encoded; absent without either. */
struct espl_coded_linear {
    struct espl_quant_linear linear;
    unsigned activation_bits;
    float activation_clip;
};

static inline bool espl_coded_is_present(const struct espl_coded_linear *coded)
{
    return coded->linear.codes != NULL || coded->linear.encoded != NULL || coded->linear.nm != NULL;
}

struct espl_block {
    uint64_t layer;
    struct espl_layer_weights parts[ESPL_ROLE_COUNT]; /* by role; roles outside blocks stay empty */
    struct espl_coded_linear coded[ESPL_ROLE_COUNT];  /* instead of the part of the same role */
    struct espl_input_quantiser simulate[ESPL_QUANT_SITES];
    bool simulated[ESPL_ROLE_COUNT]; /* linears that read the simulated input of their site */
    unsigned kv_bits;                /* 0 = keys and values stay float */
    float kv_clip;
};

/** Activation codes of one input, and its simulated values. Widths are those there is room for. */
struct espl_linear_scratch {
    struct espl_quant_activations codes;
    float *simulated;
    size_t code_width, scale_width, outlier_width, simulated_width;
};

/** Columns of the activations of one block. */
struct espl_forward_widths {
    size_t hidden;
    size_t embed;
    size_t query; /* heads * head_dim */
    size_t value; /* kv_heads * head_dim */
    size_t ffn;
    size_t work; /* of the work buffer: attention and MLP use it in turn */
};

struct espl_forward {
    struct espl_model *model;
    struct espl_backend *backend;
    const struct espl_ops *ops;
    struct espl_model_config config;
    struct espl_forward_widths widths;
    size_t tokens;
    size_t max_windows;
    struct espl_layer_weights embedding; /* (vocab, embed) */
    struct espl_layer_weights positions;
    struct espl_layer_weights project_in;
    struct espl_layer_weights project_out;
    struct espl_layer_weights final_norm;
    struct espl_layer_weights head; /* empty until first use, and for ever when tied */
    float *inv_freq;                /* (head_dim / 2); NULL without rotary embedding */
    float rope_magnitude;
    float *branch; /* (max_windows * tokens, hidden): what is added to the residual stream */
    float *work;   /* (max_windows * tokens, work) */
    struct espl_linear_scratch scratch;
    struct espl_forward_times times;
    double last_clock;
};

/** Is there a gate? LLaMA and Qwen2: down(silu(gate) * up); OPT: fc2(act(fc1)). */
static inline bool espl_forward_is_gated(const struct espl_model_config *config)
{
    return config->activation == ESPL_ACT_SILU;
}

/** malloc of rows x width items, never of 0 bytes; NULL when out of memory or too large. */
void *espl_eval_allocate(size_t rows, size_t width, size_t item_bytes);
void espl_forward_get_widths(const struct espl_model_config *config,
                             struct espl_forward_widths *widths);
/** Reads weight and bias of a module into *weights, reusing its memory when it is large enough by
 * shape. A module without any tensor leaves *weights empty when `optional`, else CORRUPT. */
enum espl_status espl_layer_weights_load(struct espl_layer_weights *weights,
                                         struct espl_model *model, int64_t layer,
                                         enum espl_role role, bool optional,
                                         struct espl_error *err);
void espl_layer_weights_free(struct espl_layer_weights *weights);
/** Books the time since the last call. */
void espl_forward_lap(struct espl_forward *forward, double *account);
/** Weights of all linears of one block. */
uint64_t espl_forward_linear_weights(const struct espl_model_config *config);
/** INTERNAL when the object was not made for so many windows of so many positions. */
enum espl_status espl_forward_check_rows(const struct espl_forward *forward, size_t windows,
                                         size_t positions, struct espl_error *err);
/** Starts the clock that espl_forward_lap() reads. */
void espl_forward_start_clock(struct espl_forward *forward);
enum espl_status espl_forward_linear(struct espl_forward *forward,
                                     const struct espl_layer_weights *linear, size_t rows,
                                     const float *x, float *y, struct espl_error *err);
/** RMSNorm or LayerNorm as the model has it; y may be x. */
enum espl_status espl_forward_norm(struct espl_forward *forward,
                                   const struct espl_layer_weights *norm, size_t rows,
                                   const float *x, float *y, struct espl_error *err);

#endif
