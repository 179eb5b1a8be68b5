/* Forward pass of image classifiers (ViT, DeiT, distilled DeiT, Swin) on a CUDA device, for a fixed
 * number of pictures at a time, recorded as one CUDA graph. Linears of blocks are packed N:M and
 * multiply bytes, with a scale a token, as eval/vision.h simulates it on the CPU; or they are FP16
 * by cuBLAS, as patch embedding and patch merging always are. The stream of activations between
 * blocks is FP32, norms and softmax have FP32 statistics, heads are FP32.
 *
 * Results are the same for every call, and differ from the CPU's by roundings: inputs of attention
 * and of GELU's linear are FP16 here. In a build without CUDA: UNSUPPORTED. One caller at a time.
 */
#ifndef ESPL_EVAL_DEVICE_VISION_H
#define ESPL_EVAL_DEVICE_VISION_H

#include "espalier/cuda_timing.h"
#include "espalier/nm_pack.h"
#include "eval/vision.h"

struct espl_device_vision;

/** Who multiplies the bytes of packed linears. The bits are the same. */
enum espl_device_vision_by {
    ESPL_DEVICE_VISION_OWN,     /* the kernels of cuda_nm.h */
    ESPL_DEVICE_VISION_FASTEST, /* those, or cuBLASLt with dense weights where that takes less time:
                                   both are timed, once a size and level */
    ESPL_DEVICE_VISION_LIBRARY /* cuBLASLt wherever it can: inputs in sixteens, outputs in eights */
};

/** N at which to pack a block's linear again, from what it keeps to M (dense); 0 = as it is. */
typedef unsigned (*espl_device_vision_level_fn)(void *user, uint64_t block, enum espl_role role,
                                                const struct espl_nm_layout *layout);

/** Weights of a model: linears that it has packed (model.nm/1) run packed, others in FP16. model:
 *  read, not kept. images: pictures of a pass. scale: NULL = what the model says. level: NULL = as
 *  packed. Errors: KIND (not an image model); UNSUPPORTED for sizes without kernels, a machine
 * without cuBLAS, codes that are not N:M of 8 bits; NUMERIC for weights that FP16 does not hold;
 *  NOMEM, MACHINE, those of reading. */
enum espl_status espl_device_vision_create(struct espl_model *model, size_t images,
                                           const struct espl_pixel_scale *scale,
                                           espl_device_vision_level_fn level, void *user,
                                           enum espl_device_vision_by by,
                                           struct espl_device_vision **out, struct espl_error *err);

/** Linears of random bytes. */
struct espl_device_vision_random {
    unsigned m;      /* 4, 8 or 16 */
    unsigned vector; /* rows that share a pattern: 1, 8, 16, 32 or 64 */
    bool halves;     /* FP16 linears instead */
    enum espl_device_vision_by by;
};
/** Random weights, for speed. Until espl_device_vision_set() says otherwise all linears are dense.
 *  Errors: as above. */
enum espl_status espl_device_vision_create_random(const struct espl_model_config *config,
                                                  const struct espl_device_vision_random *random,
                                                  size_t images, struct espl_device_vision **out,
                                                  struct espl_error *err);
/** With random bytes: from now on a block's linear keeps n of m. Errors: INTERNAL for another
 * model or a linear that is not there; UNSUPPORTED, NOMEM, MACHINE. */
enum espl_status espl_device_vision_set(struct espl_device_vision *vision, uint64_t block,
                                        enum espl_role role, unsigned n, struct espl_error *err);
/** NULL is allowed. */
void espl_device_vision_destroy(struct espl_device_vision *vision);

/** Every byte of the buffers between weights and logits <- value, for tests. */
enum espl_status espl_device_vision_fill(struct espl_device_vision *vision, int value,
                                         struct espl_error *err);
/** logits (images, classes) of u8 pictures (images, height, width, channels); images <= those of a
 *  pass, which always does all of them. Errors: MACHINE, INTERNAL. */
enum espl_status espl_device_vision_logits(struct espl_device_vision *vision, const uint8_t *pixels,
                                           size_t images, float *logits, struct espl_error *err);

/** Kernels by what they are for. */
enum espl_device_vision_part {
    ESPL_DEVICE_VISION_LINEARS = 1,   /* of blocks */
    ESPL_DEVICE_VISION_ATTENTION = 2, /* scores, softmax, values */
    ESPL_DEVICE_VISION_ROWS = 4,      /* norms, residual adds, rounding to bytes */
    ESPL_DEVICE_VISION_REST = 8,      /* embedding, patch merging, pooling, heads */
    ESPL_DEVICE_VISION_ALL = 15
};
/** Seconds of a pass, or of these parts of it alone (a sum of enum espl_device_vision_part), as one
 *  CUDA graph. warm-up: as many passes as are timed together. Errors: MACHINE. */
enum espl_status espl_device_vision_time(struct espl_device_vision *vision, unsigned parts,
                                         size_t passes, size_t repeats, struct espl_cuda_time *time,
                                         struct espl_error *err);
/** How many packed linears cuBLASLt multiplies. */
size_t espl_device_vision_by_library(const struct espl_device_vision *vision);
/** Bytes of the weights of all linears of blocks, as products read them. */
uint64_t espl_device_vision_weight_bytes(const struct espl_device_vision *vision);
/** Device bytes that weights (dense) and buffers take. */
uint64_t espl_device_vision_bytes(const struct espl_model_config *config, size_t images);

#endif
