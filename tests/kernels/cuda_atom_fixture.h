/* A random quantised layer, its product by the reference backend, and its activations on a CUDA
 * device: for the tests of Atom's contract there. */
#ifndef ESPL_TESTS_CUDA_ATOM_FIXTURE_H
#define ESPL_TESTS_CUDA_ATOM_FIXTURE_H

#include "core/rng.h"
#include "espalier/cuda_atom.h"
#include "espalier/iebme.h"
#include "espalier/kernels.h"
#include "kernels/cuda_device.h"

struct atom_layer {
    struct espl_quant_shape shape;
    uint16_t *halves; /* (tokens, in) FP16, finite */
    float *x;         /* the same */
    int32_t *order;   /* (in) */
    float clip;
    struct espl_quant_activations a; /* as ref quantises them */
    int8_t *codes;                   /* (out, normal) */
    uint8_t *packed;
    float *scales, *outlier_scales, *bias;
    int8_t *outlier_codes;
    int32_t *row_of; /* (out) a permutation */
    uint64_t *orders;
    struct espl_iebme_matrix matrix;
    struct espl_quant_weights plain;
    struct espl_iebme_weights encoded;
    float *y;          /* (tokens, out) by ref */
    double *tolerance; /* (tokens, out): how far a product in other order and FP16 may be away */
    void *device_halves, *device_order, *device_x, *device_nonfinite;
};

/** n floats of n FP16 values, and back for values that FP16 has. */
void fixture_floats_of_halves(const uint16_t *halves, size_t count, float *floats);
uint16_t fixture_half(float value);
/** Codes are each 0 with probability `sparsity`. Quantises on the device too. */
void fixture_make_layer(struct espl_rng *rng, const struct espl_quant_shape *shape,
                        enum espl_iebme_scope scope, double sparsity, float clip,
                        struct atom_layer *layer);
/** Launches the quantiser again, for as many tokens as the shape has. */
void fixture_quantize(struct atom_layer *layer);
void fixture_free_layer(struct atom_layer *layer);

#endif
