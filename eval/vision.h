/* Forward pass of image classifiers (ViT, DeiT, distilled DeiT, Swin) in float32 through a kernels
 * table, many images at a time, in three steps: embed, blocks one by one, head. The caller owns the
 * activations between blocks, so it can keep the input of any block and start again there.
 *
 * All weights of the model are resident: as float32, or packed codes of bytes (model.nm/1), whose
 * inputs become bytes, too, with a scale a token. Float linears of blocks can be replaced for one
 * call by matrices of the caller, so that many masks of one model are tried without copying it.
 * Activations of an image are (tokens, width) float32 row-major; images follow one another. A ViT's
 * tokens are class, distillation (when there is one), patches row by row; a Swin's are the cells of
 * the map row by row, and the first block of a later stage merges cells 2 x 2 before it runs.
 * Nothing is allocated per call. One caller at a time. Results do not depend on the number of
 * threads, nor on how images are grouped into calls as far as the backend's products do not. */
#ifndef ESPL_EVAL_VISION_H
#define ESPL_EVAL_VISION_H

#include "espalier/kernels.h"
#include "model/model.h"

/** Where the time went since the object was created, in seconds of the calling thread. */
struct espl_vision_times {
    double load; /* reading weights and converting them to float32 */
    double embed;
    double gemm; /* linears of blocks and of patch merging */
    double attention;
    double norm;
    double elementwise; /* GELU, gathering of merged cells */
    double head;
};

/** Weights of the model and work space for max_images. */
struct espl_vision;

/** How pixels become numbers: (value / 255 - mean) / std, per channel. */
struct espl_pixel_scale {
    double mean[ESPL_VISION_MAX_CHANNELS];
    double std[ESPL_VISION_MAX_CHANNELS];
};

/** Matrices that stand in for a block's own; by role, NULL = the model's. Each (out, in) as the
 *  spec of that role says; borrowed during a call. Roles: QKV, O, FC1, FC2 and, in the first block
 * of a later Swin stage, MERGE. */
struct espl_vision_replacement {
    const float *weight[ESPL_ROLE_COUNT];
};

/** Sees, and may change, the input x (rows, in) of a linear before it is multiplied: calibration
 * reads it, simulated quantisation rounds it. Nothing else reads x. Anything but ESPL_OK stops the
 * pass. */
typedef enum espl_status (*espl_vision_input_fn)(void *user, uint64_t block, enum espl_role role,
                                                 float *x, size_t rows, size_t in,
                                                 struct espl_error *err);

/** Reads all weights. model, backend: borrowed, must outlive the object. scale: copied; NULL = what
 *  the model's configuration says. Errors: KIND (not an image model), NOMEM, and what reading the
 * model gives. */
enum espl_status espl_vision_create(struct espl_model *model, struct espl_backend *backend,
                                    size_t max_images, const struct espl_pixel_scale *scale,
                                    struct espl_vision **out, struct espl_error *err);
void espl_vision_destroy(struct espl_vision *vision);
const struct espl_vision_times *espl_vision_get_times(const struct espl_vision *vision);
/** Host bytes that espl_vision_create() takes with weights in float32. */
uint64_t espl_vision_bytes(const struct espl_model_config *config, size_t max_images);
/** Floating-point operations of one image through everything (multiply-add = 2). */
double espl_vision_flop(const struct espl_model_config *config);
/** The same of block `block` alone, its merging included. */
double espl_vision_block_flop(const struct espl_model_config *config, uint64_t block);

/** Blocks of all stages; numbered 0 to this - 1 in forward order, as espl_tensor_spec.layer. */
uint64_t espl_vision_blocks(const struct espl_vision *vision);
/** float32 values of one image that enter block `block`; block == espl_vision_blocks(): that leave
 *  the last one. Never grows from one block to the next. */
size_t espl_vision_values(const struct espl_vision *vision, uint64_t block);
size_t espl_vision_classes(const struct espl_vision *vision);
/** The model's own weight (out, in) of a linear, masks applied; NULL when the block has no such
 *  linear or has it packed. Borrowed until destroy. */
const float *espl_vision_weight(const struct espl_vision *vision, uint64_t block,
                                enum espl_role role, struct espl_matrix_shape *shape);

/** activations <- embedding of `images` pictures, u8 (images, height, width, channels) of the size
 *  that the configuration says. images <= max_images in this and all calls below. */
enum espl_status espl_vision_embed(struct espl_vision *vision, const uint8_t *pixels, size_t images,
                                   float *activations, struct espl_error *err);
/** output <- block(input). output may be input. replace, on_input: NULL allowed. */
enum espl_status espl_vision_block(struct espl_vision *vision, uint64_t block,
                                   const struct espl_vision_replacement *replace, size_t images,
                                   const float *input, float *output, espl_vision_input_fn on_input,
                                   void *user, struct espl_error *err);
/** logits (images, classes) from the activations that left the last block. A distilled model's two
 *  heads are averaged. */
enum espl_status espl_vision_head(struct espl_vision *vision, size_t images,
                                  const float *activations, float *logits, struct espl_error *err);
/** Embed, all blocks, head. replace: NULL, or one for each block. Activations are kept inside. */
enum espl_status espl_vision_logits(struct espl_vision *vision,
                                    const struct espl_vision_replacement *replace,
                                    const uint8_t *pixels, size_t images, float *logits,
                                    struct espl_error *err);

#endif
