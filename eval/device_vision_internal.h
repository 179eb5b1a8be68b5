/* What the files of eval/device_vision.h share. */
#ifndef ESPL_EVAL_DEVICE_VISION_INTERNAL_H
#define ESPL_EVAL_DEVICE_VISION_INTERNAL_H

#include "espalier/cuda_graph.h"
#include "espalier/cuda_vision.h"
#include "eval/device_vision.h"
#include "eval/device_vision_library.h"
#include "eval/vision_internal.h"

enum { ESPL_DEVICE_VISION_HEADS = 2 };

/** Gain and bias on the device; NULL where the model has none. */
struct espl_device_vision_norm {
    size_t width;
    float *gain, *bias;
};

struct espl_device_vision_block {
    struct espl_vision_place place;
    size_t windows, window_tokens; /* of an image */
    size_t rows;                   /* tokens of all pictures */
    struct espl_device_vision_norm norms[ESPL_ROLE_COUNT];
    struct espl_device_vision_linear linears[ESPL_ROLE_COUNT];
    int32_t *order; /* attention tables, as in struct espl_vision_block_weights */
    float *bias, *mask;
};

/** Buffers, device memory. */
struct espl_device_vision_buffers {
    uint8_t *pixels;   /* (images, picture) */
    uint16_t *patches; /* FP16 (images, patches, stride) */
    float *x;          /* (images, values): activations between blocks */
    float *floats;     /* (images, values): embedded patches, normed cells */
    uint16_t *branch;  /* FP16 (images, values): what is to be added to x */
    uint16_t *inner;   /* FP16 (images, inner): q, k, v; MLP */
    uint16_t *values;  /* FP16 (images, inner): attention's result; normed input of FP16 linears */
    int8_t *codes;     /* (images, inner), rows as the products want them */
    float *scales;     /* (images, tokens) */
    int32_t *sums;     /* (images, inner), where a library multiplies, else nothing */
    float *pooled;     /* (heads, images, width) */
    float *logits;     /* (images, classes) */
};
enum { ESPL_DEVICE_VISION_BUFFERS = 12 };

struct espl_device_vision_masters; /* random matrices by size and level: device_vision_random.c */

struct espl_device_vision {
    struct espl_model_config config;
    size_t images;
    float clip; /* of activations, before they become bytes */
    struct espl_cuda_blas *blas;
    enum espl_device_vision_by by;
    struct espl_device_vision_library *library; /* NULL with ESPL_DEVICE_VISION_OWN */
    void *stream;
    struct espl_cuda_graph *graph; /* NULL until a pass is asked for */
    struct espl_device_vision_block *blocks;
    struct espl_device_vision_linear embedding;
    struct espl_device_vision_norm embedding_norm, final_norm;
    float *pixel_table;        /* (channels, 256) */
    float *special, *position; /* of a ViT */
    float *head_weight[ESPL_DEVICE_VISION_HEADS], *head_bias[ESPL_DEVICE_VISION_HEADS];
    struct espl_device_vision_buffers buffers;
    size_t buffer_bytes[ESPL_DEVICE_VISION_BUFFERS]; /* in the order of the structure */
    unsigned parts;                                  /* that a pass enqueues */
    struct espl_device_vision_masters *masters;      /* NULL: weights of a model */
};

/** Where weights come from: floats of a part, or the packed linear of a block. */
struct espl_device_vision_source {
    void *user;
    /** Empty when the model has no such part. */
    enum espl_status (*floats)(void *user, int64_t layer, enum espl_role role,
                               struct espl_layer_weights *weights, struct espl_error *err);
    /** Makes a linear of a block. *made <- false: it is of floats. */
    enum espl_status (*linear)(void *user, struct espl_device_vision *vision, uint64_t block,
                               enum espl_role role, bool *made, struct espl_error *err);
};

/** Loads everything from a source and takes buffers. masters: NULL, or taken over, also after an
 * error. */
enum espl_status espl_device_vision_build(const struct espl_model_config *config, size_t images,
                                          const struct espl_pixel_scale *scale, float clip,
                                          enum espl_device_vision_by by,
                                          struct espl_device_vision_masters *masters,
                                          const struct espl_device_vision_source *source,
                                          struct espl_device_vision **out, struct espl_error *err);
/** Finds out who multiplies a packed linear of a block. layout, codes (out, in): what it holds. */
enum espl_status espl_device_vision_choose(struct espl_device_vision *vision,
                                           const struct espl_device_vision_block *block,
                                           const struct espl_nm_layout *layout, const int8_t *codes,
                                           struct espl_device_vision_linear *linear,
                                           struct espl_error *err);
/** Puts the parts of a pass that vision->parts names into a stream. self: the vision. */
enum espl_status espl_device_vision_enqueue(void *self, void *stream, struct espl_error *err);
/** Frees what device_vision_random.c keeps. NULL is allowed. */
void espl_device_vision_masters_free(struct espl_device_vision_masters *masters);

#endif
