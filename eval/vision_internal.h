/* What the files of the forward pass of image models share. */
#ifndef ESPL_EVAL_VISION_INTERNAL_H
#define ESPL_EVAL_VISION_INTERNAL_H

#include "eval/forward_internal.h"
#include "eval/vision.h"
#include "model/arch_vision.h"
#include "model/quantised.h"

/** One block, resident. Tables are NULL where attention needs none. */
struct espl_vision_block_weights {
    struct espl_vision_place place;
    struct espl_layer_weights parts[ESPL_ROLE_COUNT];
    struct espl_quant_linear packed[ESPL_ROLE_COUNT]; /* .nm set: instead of the part's weight */
    int32_t *rows; /* (windows, window tokens): where a shifted, cut map's cells stand */
    float *bias;   /* (heads, window tokens, window tokens) */
    float *mask;   /* (windows, window tokens, window tokens) */
};

/** float32 values of one image that the buffers must hold. */
struct espl_vision_widths {
    size_t values; /* entering or leaving any block */
    size_t inner;  /* the widest intermediate: q, k, v; MLP; merged cells; patches */
};

struct espl_vision {
    struct espl_model *model;
    struct espl_backend *backend;
    const struct espl_ops *ops;
    struct espl_model_config config;
    struct espl_vision_widths widths;
    size_t max_images;
    struct espl_layer_weights outside[ESPL_ROLE_COUNT]; /* by role */
    struct espl_vision_block_weights *blocks;           /* config.layers */
    float (*pixel_table)[256];                          /* (channels): scaled value of a byte */
    float *activations; /* (max_images, values): of espl_vision_logits() */
    float *normed;      /* (max_images, values): a norm's result, attention's result */
    float *inner;       /* (max_images, inner) */
    struct espl_quant_activations codes; /* of one input; NULL without packed linears */
    struct espl_vision_times times;
    double last_clock;
};

void espl_vision_get_widths(const struct espl_model_config *config,
                            struct espl_vision_widths *widths);
/** table (channels): scaled value of every byte. scale: NULL = what the configuration says. */
void espl_vision_fill_pixels(const struct espl_model_config *config,
                             const struct espl_pixel_scale *scale, float (*table)[256]);
/** Tokens that attend to each other in a block, and how many such groups one image has. */
void espl_vision_get_windows(const struct espl_model_config *config,
                             const struct espl_vision_place *place, size_t *windows,
                             size_t *tokens);
/** Makes rows, bias and mask of a block with windows; its table of relative positions must be
 * loaded. Errors: NOMEM. */
enum espl_status espl_vision_make_tables(const struct espl_model_config *config,
                                         struct espl_vision_block_weights *block,
                                         struct espl_error *err);
/** Books the time since the last call. */
void espl_vision_lap(struct espl_vision *vision, double *account);
/** Starts the clock that espl_vision_lap() reads. */
void espl_vision_start_clock(struct espl_vision *vision);
/** INTERNAL when images is above max_images. */
enum espl_status espl_vision_check_images(const struct espl_vision *vision, size_t images,
                                          struct espl_error *err);
/** LayerNorm with the weights of a norm. */
enum espl_status espl_vision_norm(struct espl_vision *vision, const struct espl_layer_weights *norm,
                                  size_t rows, const float *x, float *y, struct espl_error *err);

#endif
