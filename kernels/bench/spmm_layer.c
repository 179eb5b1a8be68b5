#include "kernels/bench/spmm_layer.h"

#include "core/checked.h"
#include "core/codes.h"
#include "espalier/cuda_memory.h"
#include "kernels/bench/spmm_weights.h"
#include "kernels/quant_internal.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS_PER_SCALE = 2, BITS = 4, SEED = 5 };

/* ---- random layers ---- */

static struct espl_quant_shape shape_of(size_t rows, size_t cols, size_t group, size_t outliers)
{
    return (struct espl_quant_shape){.tokens = 1,
                                     .in = cols,
                                     .out = rows,
                                     .group_size = group,
                                     .outliers = outliers,
                                     .rows_per_scale = ROWS_PER_SCALE,
                                     .weight_bits = BITS,
                                     .activation_bits = BITS};
}

enum espl_status espl_spmm_layer_check(size_t rows, size_t cols, size_t group, size_t outliers,
                                       struct espl_error *err)
{
    const struct espl_quant_shape shape = shape_of(rows, cols, group, outliers);
    return espl_quant_shape_check(&shape, err);
}

/* The arrays of a random layer, in one piece of memory. */
struct arrays {
    float *scales, *outlier_scales, *bias;
    int32_t *order;
    int8_t *outlier_codes;
};

static enum espl_status take_memory(struct espl_spmm_layer *layer, struct arrays *a,
                                    struct espl_error *err)
{
    const struct espl_quant_shape *shape = &layer->shape;
    const size_t scales = espl_ceil_div(shape->out, ROWS_PER_SCALE) * espl_quant_groups(shape);
    const size_t words = scales + 2 * shape->out + shape->in;
    layer->memory = malloc(words * sizeof(float) + shape->out * shape->outliers);
    if (layer->memory == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a layer of %zu x %zu", shape->out,
                         shape->in);
    }
    a->scales = layer->memory;
    a->outlier_scales = a->scales + scales;
    a->bias = a->outlier_scales + shape->out;
    a->order = (int32_t *)(a->bias + shape->out);
    a->outlier_codes = (int8_t *)(a->order + shape->in);
    layer->weights = (struct espl_quant_weights){.scales = a->scales, .bias = a->bias};
    if (shape->outliers > 0) {
        layer->weights.outlier_codes = a->outlier_codes;
        layer->weights.outlier_scales = a->outlier_scales;
    }
    layer->order = a->order;
    return ESPL_OK;
}

/* Uniform in [0, 1). */
static double random_unit(uint64_t *state)
{
    return ldexp((double)(espl_spmm_random_word(state) >> 11), -53);
}

static void fill(const struct espl_spmm_layer *layer, const struct arrays *a)
{
    const struct espl_quant_shape *shape = &layer->shape;
    uint64_t state = SEED;
    const size_t scales = espl_ceil_div(shape->out, ROWS_PER_SCALE) * espl_quant_groups(shape);
    for (size_t i = 0; i < scales; i++) {
        a->scales[i] = (float)(1e-3 * (1.0 + random_unit(&state)));
    }
    for (size_t i = 0; i < shape->out; i++) {
        a->outlier_scales[i] = (float)(1e-4 * (1.0 + random_unit(&state)));
        a->bias[i] = (float)(random_unit(&state) - 0.5);
    }
    for (size_t i = 0; i < shape->out * shape->outliers; i++) {
        a->outlier_codes[i] = (int8_t)((int)(espl_spmm_random_word(&state) % 255) - 127);
    }
    for (size_t i = 0; i < shape->in; i++) { /* inside-out shuffle */
        const size_t at = (size_t)(espl_spmm_random_word(&state) % (i + 1));
        a->order[i] = a->order[at];
        a->order[at] = (int32_t)i;
    }
}

enum espl_status espl_spmm_layer_make(size_t rows, size_t cols, size_t group, size_t outliers,
                                      struct espl_spmm_layer *layer, struct espl_error *err)
{
    struct arrays arrays = {.scales = NULL};
    *layer = (struct espl_spmm_layer){.shape = shape_of(rows, cols, group, outliers)};
    enum espl_status status = espl_quant_shape_check(&layer->shape, err);
    if (status == ESPL_OK) {
        status = take_memory(layer, &arrays, err);
    }
    if (status == ESPL_OK) {
        fill(layer, &arrays);
    }
    return status;
}

void espl_spmm_layer_free(struct espl_spmm_layer *layer)
{
    free(layer->memory);
    layer->memory = NULL;
}

enum espl_status espl_spmm_layer_upload(const struct espl_spmm_layer *layer, const int8_t *codes,
                                        size_t cols, unsigned bits, enum espl_iebme_areas unit,
                                        struct espl_cuda_matrix **out, struct espl_error *err)
{
    struct espl_quant_shape shape = layer->shape;
    struct espl_quant_weights weights = layer->weights;
    const struct espl_cuda_atom_form form = {unit, layer->row_of};
    const size_t normal = espl_quant_normal(&shape);
    const size_t stride = espl_codes_stride(normal, bits);
    uint8_t *packed = malloc(shape.out * stride);
    if (packed == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a layer of %zu x %zu", shape.out,
                         shape.in);
    }
    for (size_t row = 0; row < shape.out; row++) {
        espl_codes_pack(codes + row * cols, 1, normal, bits, packed + row * stride);
    }
    shape.weight_bits = bits;
    weights.codes = packed;
    const enum espl_status status = espl_cuda_matrix_create_atom(&shape, &weights, &form, out, err);
    free(packed);
    return status;
}

/* ---- activations ---- */

/* halves <- finite numbers of both signs, from 2^-5 to 2. */
static void random_halves(uint16_t *halves, size_t count)
{
    enum {
        SIGN = 0x8000,
        FRACTION = 0x03FF,
        LEAST_EXPONENT = 10,
        EXPONENTS = 6,
        FRACTION_BITS = 10
    };
    uint64_t state = SEED;
    for (size_t i = 0; i < count; i++) {
        const uint64_t word = espl_spmm_random_word(&state);
        const unsigned exponent = LEAST_EXPONENT + (unsigned)((word >> 32) % EXPONENTS);
        halves[i] = (uint16_t)((word & (SIGN | FRACTION)) | exponent << FRACTION_BITS);
    }
}

enum espl_status espl_spmm_activations_make(const struct espl_spmm_layer *layer, size_t most_tokens,
                                            struct espl_spmm_activations *x, struct espl_error *err)
{
    const size_t in = layer->shape.in;
    const size_t bytes = most_tokens * in * sizeof(uint16_t);
    uint16_t *halves = malloc(bytes);
    *x = (struct espl_spmm_activations){.layer = layer, .tokens = most_tokens};
    if (halves == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for activations");
    }
    random_halves(halves, most_tokens * in);
    enum espl_status status = espl_cuda_alloc(bytes, &x->halves, err);
    if (status == ESPL_OK) {
        status = espl_cuda_upload(x->halves, halves, bytes, err);
    }
    if (status == ESPL_OK && layer->order != NULL) {
        status = espl_cuda_alloc(in * sizeof *layer->order, &x->order, err);
    }
    if (status == ESPL_OK && layer->order != NULL) {
        status = espl_cuda_upload(x->order, layer->order, in * sizeof *layer->order, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(sizeof(uint64_t), &x->nonfinite, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_fill(x->nonfinite, UINT8_MAX, sizeof(uint64_t), err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_alloc(espl_cuda_atom_activation_bytes(&layer->shape, most_tokens),
                                 &x->codes, err);
    }
    free(halves);
    return status;
}

void espl_spmm_activations_free(struct espl_spmm_activations *x)
{
    espl_cuda_free(x->halves);
    espl_cuda_free(x->order);
    espl_cuda_free(x->nonfinite);
    espl_cuda_free(x->codes);
    *x = (struct espl_spmm_activations){.layer = NULL};
}

enum espl_status espl_spmm_activations_launch(void *self, size_t copy, bool overlap, void *stream,
                                              struct espl_error *err)
{
    const struct espl_spmm_activations *x = self;
    struct espl_quant_shape shape = x->layer->shape;
    const struct espl_cuda_quantize quantize = {.x = x->halves,
                                                .x_stride = shape.in,
                                                .order = x->order,
                                                .clip = 0.9F,
                                                .codes = x->codes,
                                                .nonfinite = x->nonfinite};
    (void)copy;
    (void)overlap;
    shape.tokens = x->tokens;
    return espl_cuda_quantize_activations(&shape, &quantize, stream, err);
}

enum espl_status espl_spmm_activations_quantise(struct espl_spmm_activations *x, size_t tokens,
                                                struct espl_error *err)
{
    struct espl_quant_shape shape = x->layer->shape;
    x->tokens = tokens;
    shape.tokens = tokens;
    const enum espl_status status = espl_spmm_activations_launch(x, 0, false, NULL, err);
    return status == ESPL_OK ? espl_cuda_quantize_check(&shape, x->nonfinite, err) : status;
}
