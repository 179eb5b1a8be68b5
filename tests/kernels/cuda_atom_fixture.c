#include "kernels/cuda_atom_fixture.h"

#include "core/codes.h"
#include "espalier/cuda_memory.h"
#include "kernels/cuda_arrays.h"
#include "kernels/iebme_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 128, FINE_STEP = 32 };

static void *take(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    assert_non_null(memory);
    return memory;
}

static struct espl_backend *open_ref(void)
{
    struct espl_error err;
    struct espl_backend *ref = NULL;
    cuda_check(espl_backend_open("ref", 1, &ref, &err), &err);
    return ref;
}

void fixture_floats_of_halves(const uint16_t *halves, size_t count, float *floats)
{
    struct espl_error err;
    struct espl_backend *ref = open_ref();
    cuda_check(espl_backend_ops(ref)->f16_to_f32(ref, count, halves, floats, &err), &err);
    espl_backend_close(ref);
}

/* Cuts what FP16 has no bits for; below its normal numbers 0. */
uint16_t fixture_half(float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    const int exponent = (int)(bits >> 23 & 255u) - 127 + 15;
    const uint32_t sign = bits >> 16 & 0x8000u;
    if (exponent < 1) {
        return (uint16_t)sign;
    }
    assert_true(exponent < 31);
    return (uint16_t)(sign | (uint32_t)exponent << 10 | (bits >> 13 & 0x3FFu));
}

static float *random_scales(struct espl_rng *rng, size_t count)
{
    float *scales = take(count, sizeof *scales);
    for (size_t i = 0; i < count; i++) {
        scales[i] = (float)(0.001 + 0.02 * espl_rng_unit(rng));
    }
    return scales;
}

static int32_t *random_permutation(struct espl_rng *rng, size_t count)
{
    int32_t *order = take(count, sizeof *order);
    for (size_t i = 0; i < count; i++) {
        const size_t j = (size_t)espl_rng_below(rng, i + 1);
        order[i] = order[j];
        order[j] = (int32_t)i;
    }
    return order;
}

/* The last channels in the layer's order are the large ones, as outliers are. */
static void make_activations(struct espl_rng *rng, struct atom_layer *layer)
{
    const struct espl_quant_shape *shape = &layer->shape;
    const size_t normal = espl_quant_normal(shape);
    const size_t groups = espl_quant_groups(shape);
    layer->halves = take(shape->tokens * shape->in, sizeof *layer->halves);
    layer->x = take(shape->tokens * shape->in, sizeof *layer->x);
    layer->order = random_permutation(rng, shape->in);
    for (size_t t = 0; t < shape->tokens; t++) {
        for (size_t i = 0; i < shape->in; i++) {
            const double size = i >= normal ? 20.0 : 0.5 + (double)(i % 7);
            layer->halves[t * shape->in + (size_t)layer->order[i]] =
                fixture_half((float)(size * espl_rng_normal(rng)));
        }
    }
    fixture_floats_of_halves(layer->halves, shape->tokens * shape->in, layer->x);
    layer->a.codes = take(shape->tokens * normal, 1);
    layer->a.scales = take(shape->tokens * groups, sizeof(float));
    layer->a.outlier_codes = take(shape->tokens * shape->outliers, 1);
    layer->a.outlier_scales = take(shape->tokens, sizeof(float));
}

static void make_weights(struct espl_rng *rng, enum espl_iebme_scope scope, double sparsity,
                         struct atom_layer *layer)
{
    const struct espl_quant_shape *shape = &layer->shape;
    const size_t normal = espl_quant_normal(shape);
    const struct espl_iebme_layout layout = {shape->out, normal, shape->weight_bits, ESPL_IEBME_2X2,
                                             scope};
    struct espl_iebme_plan plan;
    layer->codes = fixture_codes(rng, shape->out, normal, shape->weight_bits, sparsity);
    layer->packed = take(shape->out * espl_codes_stride(normal, shape->weight_bits), 1);
    espl_codes_pack(layer->codes, shape->out, normal, shape->weight_bits, layer->packed);
    layer->scales = random_scales(rng, shape->out * espl_quant_groups(shape));
    layer->outlier_scales = random_scales(rng, shape->out);
    layer->bias = random_scales(rng, shape->out);
    layer->outlier_codes = fixture_codes(rng, shape->out, shape->outliers + 1, 8, 0.0);
    layer->row_of = random_permutation(rng, shape->out);
    layer->plain = (struct espl_quant_weights){layer->packed, layer->scales, layer->outlier_codes,
                                               layer->outlier_scales, layer->bias};
    if (shape->weight_bits != 3) { /* which the format does not have */
        layer->orders = fixture_orders(rng, &layout);
        fixture_encode(layer->codes, &layout, layer->orders, &plan, &layer->matrix);
        layer->encoded =
            (struct espl_iebme_weights){&layer->matrix, layer->scales, layer->outlier_codes,
                                        layer->outlier_scales, layer->bias};
    }
}

/* Sum of the magnitudes of all terms of an output. */
static double magnitudes(const struct atom_layer *layer, size_t t, size_t o)
{
    const struct espl_quant_shape *shape = &layer->shape;
    const size_t normal = espl_quant_normal(shape);
    const size_t groups = espl_quant_groups(shape);
    const size_t width = normal / groups;
    double sum = fabs((double)layer->bias[o]);
    for (size_t c = 0; c < normal; c++) {
        sum += fabs((double)layer->codes[o * normal + c] * layer->a.codes[t * normal + c]) *
               (double)layer->scales[o / shape->rows_per_scale * groups + c / width] *
               (double)layer->a.scales[t * groups + c / width];
    }
    for (size_t c = 0; c < shape->outliers; c++) {
        sum += fabs((double)layer->outlier_codes[o * shape->outliers + c] *
                    layer->a.outlier_codes[t * shape->outliers + c]) *
               (double)layer->outlier_scales[o] * (double)layer->a.outlier_scales[t];
    }
    return sum;
}

/* What all terms of a row could be for codes of 8 and the token's largest scale: the fixed point of
 * sparse weights is a fraction of it. */
static double bound(const struct atom_layer *layer, size_t t, size_t o)
{
    const struct espl_quant_shape *shape = &layer->shape;
    const size_t normal = espl_quant_normal(shape);
    const size_t groups = espl_quant_groups(shape);
    double largest = 0.0;
    double sum = 0.0;
    for (size_t g = 0; g < groups; g++) {
        largest = fmax(largest, (double)layer->a.scales[t * groups + g]);
    }
    for (size_t c = 0; c < normal; c++) {
        sum += 8.0 * abs(layer->codes[o * normal + c]) *
               (double)layer->scales[o / shape->rows_per_scale * groups + c / (normal / groups)];
    }
    return largest * sum;
}

/* y by ref. Tolerance: what cuda_atom.h says of the device's sums (no more pieces than steps), the
 * same for the float sums of ref, and half a unit of FP16. */
static void compute_expected(struct atom_layer *layer)
{
    const struct espl_quant_shape *shape = &layer->shape;
    struct espl_error err;
    struct espl_backend *ref = open_ref();
    const struct espl_ops *ops = espl_backend_ops(ref);
    const size_t step = shape->group_size % STEP == 0 ? STEP : FINE_STEP;
    const size_t filled = espl_quant_groups(shape) * step + espl_quant_normal(shape);
    const double steps = (double)(filled / step + 1);
    layer->y = take(shape->tokens * shape->out, sizeof *layer->y);
    layer->tolerance = take(shape->tokens * shape->out, sizeof *layer->tolerance);
    cuda_check(ops->quantize_act(ref, shape, layer->x, layer->order, layer->clip, &layer->a, &err),
               &err);
    cuda_check(ops->gemm_w4a4(ref, shape, &layer->a, &layer->plain, layer->y, &err), &err);
    espl_backend_close(ref);
    for (size_t i = 0; i < shape->tokens * shape->out; i++) {
        const double sums =
            magnitudes(layer, i / shape->out, i % shape->out) * (2.0 * steps + 3.0) * 0x1p-22 +
            bound(layer, i / shape->out, i % shape->out) * steps * 0x1p-40;
        const double size = fmax(fabs((double)layer->y[i]) + sums, 0x1p-14);
        layer->tolerance[i] = sums + 0.5 * exp2(floor(log2(size)) - 10.0);
    }
}

void fixture_quantize(struct atom_layer *layer)
{
    struct espl_error err;
    const struct espl_cuda_quantize operands = {layer->device_halves, layer->shape.in,
                                                layer->device_order,  layer->clip,
                                                layer->device_x,      layer->device_nonfinite};
    cuda_check(espl_cuda_quantize_activations(&layer->shape, &operands, NULL, &err), &err);
}

void fixture_make_layer(struct espl_rng *rng, const struct espl_quant_shape *shape,
                        enum espl_iebme_scope scope, double sparsity, float clip,
                        struct atom_layer *layer)
{
    enum { POISON = 0x5A, ALL_ONES = 0xFF };
    struct espl_error err;
    const size_t x_bytes = espl_cuda_atom_activation_bytes(shape, shape->tokens);
    *layer = (struct atom_layer){.shape = *shape, .clip = clip};
    make_activations(rng, layer);
    make_weights(rng, scope, sparsity, layer);
    compute_expected(layer);
    layer->device_halves =
        cuda_array(layer->halves, shape->tokens * shape->in * sizeof *layer->halves);
    layer->device_order = cuda_array(layer->order, shape->in * sizeof *layer->order);
    assert_true(x_bytes > 0);
    cuda_check(espl_cuda_alloc(x_bytes, &layer->device_x, &err), &err);
    cuda_check(espl_cuda_fill(layer->device_x, POISON, x_bytes, &err), &err);
    cuda_check(espl_cuda_alloc(sizeof(uint64_t), &layer->device_nonfinite, &err), &err);
    cuda_check(espl_cuda_fill(layer->device_nonfinite, ALL_ONES, sizeof(uint64_t), &err), &err);
    fixture_quantize(layer);
    cuda_check(espl_cuda_quantize_check(shape, layer->device_nonfinite, &err), &err);
}

void fixture_free_layer(struct atom_layer *layer)
{
    free(layer->halves);
    free(layer->x);
    free(layer->order);
    free(layer->a.codes);
    free(layer->a.scales);
    free(layer->a.outlier_codes);
    free(layer->a.outlier_scales);
    free(layer->codes);
    free(layer->packed);
    free(layer->scales);
    free(layer->outlier_scales);
    free(layer->bias);
    free(layer->outlier_codes);
    free(layer->row_of);
    free(layer->orders);
    espl_iebme_matrix_free(&layer->matrix);
    free(layer->y);
    free(layer->tolerance);
    espl_cuda_free(layer->device_halves);
    espl_cuda_free(layer->device_order);
    espl_cuda_free(layer->device_x);
    espl_cuda_free(layer->device_nonfinite);
}
