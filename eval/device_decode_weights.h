/* Weights of a decoder language model on a CUDA device, with its linears in one of several forms:
 * as the artifact's codes say, or dense in FP16, INT8 or INT4 to compare with.
 * docs/kernels/decode.md. */
#ifndef ESPL_EVAL_DEVICE_DECODE_WEIGHTS_H
#define ESPL_EVAL_DEVICE_DECODE_WEIGHTS_H

#include "espalier/iebme.h"
#include "model/model.h"

enum espl_device_form {
    ESPL_DEVICE_ENCODED,    /* the model's codes, in the areas that are asked for */
    ESPL_DEVICE_DENSE_INT4, /* the same codes, dense */
    ESPL_DEVICE_DENSE_INT8, /* dequantised, a scale a row; activations with a scale a token */
    ESPL_DEVICE_DENSE_FP16, /* dequantised */
    ESPL_DEVICE_FORMS
};
/** "encoded", "dense-int4", "dense-int8", "dense-fp16". */
const char *espl_device_form_name(enum espl_device_form form);

struct espl_device_weights_options {
    enum espl_device_form form;
    bool automatic;              /* ENCODED: dense or 1x1, whichever is expected to be faster */
    enum espl_iebme_areas areas; /* ENCODED, not automatic: dense, 1x1, 1x2, 2x1 or 2x2 */
    size_t tokens;               /* for which the automatic choice is made */
};

struct espl_device_weights;

/** Can the model be run? Quantised or encoded, all linears of blocks with 2 to 4 bits, activations
 *  of 4, keys and values of 4 or 16 bits, norms before the branches. Errors: UNSUPPORTED naming
 *  what is not. */
enum espl_status espl_device_check_model(const struct espl_model_config *config,
                                         unsigned weight_bits, unsigned activation_bits,
                                         unsigned kv_bits, struct espl_error *err);
/** model: borrowed while this runs. Blocks with equal content (espl_model_blocks_equal) are
 *  converted once and copied on the device. Of a model whose blocks are all equal, made for its
 *  sizes, dense INT8 and FP16 weights are random: only their speed means something. Errors: those
 * of espl_device_check_model(), KIND for a model without codes, NOMEM, MACHINE, IO, and what
 * reading gives. */
enum espl_status espl_device_weights_create(struct espl_model *model,
                                            const struct espl_device_weights_options *options,
                                            struct espl_device_weights **out,
                                            struct espl_error *err);
/** NULL is allowed. */
void espl_device_weights_destroy(struct espl_device_weights *weights);
/** Are the weights random ones of the model's sizes? */
bool espl_device_weights_are_random(const struct espl_device_weights *weights);
/** Areas of the linears: what was asked for, or chosen. */
enum espl_iebme_areas espl_device_weights_areas(const struct espl_device_weights *weights);
/** Bytes that the linears of all blocks are read as once: one decode step. */
uint64_t espl_device_weights_bytes(const struct espl_device_weights *weights);

#endif
