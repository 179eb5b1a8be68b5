/* The CUDA quantiser of activations against the reference backend, code by code and scale by scale,
 * read back in the order that docs/kernels/spmm.md describes. Skipped without a CUDA device. */
#include "espalier/cuda_memory.h"
#include "kernels/cuda_atom_fixture.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 8, SLICE = 512, BLOCK_BYTES = 512, STEP_BYTES = 64, OUTLIER_BLOCK = 256 };

/* Where the parts of a tile of 8 tokens are, from the text of the page. */
struct places {
    size_t step, group, steps, outlier_blocks, outliers, scales, outlier_scales, bytes;
};

static size_t filled(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static struct places places_of(const struct espl_quant_shape *shape)
{
    struct places p;
    const size_t groups = espl_quant_groups(shape);
    const size_t width = espl_quant_normal(shape) / groups;
    p.step = groups == 1 || width % 128 == 0 ? 128 : 32;
    p.group = filled(width, p.step);
    const size_t cols = filled(groups == 1 ? width : groups * p.group, SLICE);
    p.steps = cols / p.step;
    p.outlier_blocks = filled(shape->outliers, 32) / 32;
    p.outliers = cols / 128 * BLOCK_BYTES;
    p.scales = p.outliers + p.outlier_blocks * OUTLIER_BLOCK;
    p.outlier_scales = p.scales + p.steps * STEP_BYTES;
    p.bytes = filled(p.outlier_scales + STEP_BYTES, BLOCK_BYTES);
    return p;
}

/* Signed code of a column of the kernels. */
static int code_at(const uint8_t *tile, size_t token, size_t column)
{
    const size_t word = column / 128 * 128 + token * 16 + column % 32 / 8 * 4 + column % 128 / 32;
    const uint8_t byte = tile[word * 4 + column % 4];
    const int nibble = column % 8 >= 4 ? byte >> 4 : byte & 15;
    return nibble >= 8 ? nibble - 16 : nibble;
}

static float float_at(const uint8_t *tile, size_t offset, size_t index)
{
    float v = 0.0F;
    memcpy(&v, tile + offset + 4 * index, sizeof v);
    return v;
}

static void expect_token(const struct atom_layer *layer, const struct places *p,
                         const uint8_t *tile, size_t t)
{
    const struct espl_quant_shape *shape = &layer->shape;
    const size_t normal = espl_quant_normal(shape);
    const size_t groups = espl_quant_groups(shape);
    const size_t width = normal / groups;
    const size_t i = t % TOKENS;
    int sum = 0;
    for (size_t c = 0; c < p->steps * p->step; c++) {
        const size_t g = c / p->group < groups ? c / p->group : groups - 1;
        const size_t in_group = c - g * p->group;
        const int wanted = in_group < width ? layer->a.codes[t * normal + g * width + in_group] : 0;
        const int got = code_at(tile, i, c);
        if (got != wanted) {
            fail_msg("token %zu, column %zu: code %d, not %d", t, c, got, wanted);
        }
        sum = c % p->step == 0 ? got : sum + got;
        if (c % p->step == p->step - 1) {
            const size_t entry = c / p->step * (STEP_BYTES / 4) + i / 2 * 4 + i % 2;
            assert_true(float_at(tile, p->scales, entry) == layer->a.scales[t * groups + g]);
            assert_true(float_at(tile, p->scales, entry + 2) == 12582912.0F + 128.0F * (float)sum);
        }
    }
    for (size_t c = 0; c < p->outlier_blocks * 32; c++) {
        const int wanted =
            c < shape->outliers ? layer->a.outlier_codes[t * shape->outliers + c] : 0;
        const size_t at = p->outliers + c / 32 * OUTLIER_BLOCK + (i * 4 + c % 32 / 8) * 8 + c % 8;
        assert_int_equal((int8_t)tile[at], wanted);
    }
    if (shape->outliers > 0) {
        assert_true(float_at(tile, p->outlier_scales, i) == layer->a.outlier_scales[t]);
    }
}

/* Tokens behind the last of a tile have codes 0 and scales 0. */
static void expect_empty_token(const struct places *p, const uint8_t *tile, size_t i)
{
    for (size_t c = 0; c < p->steps * p->step; c++) {
        assert_int_equal(code_at(tile, i, c), 0);
        if (c % p->step == 0) {
            const size_t entry = c / p->step * (STEP_BYTES / 4) + i / 2 * 4 + i % 2;
            assert_true(float_at(tile, p->scales, entry) == 0.0F);
        }
    }
}

static void expect_same_codes(const struct atom_layer *layer)
{
    struct espl_error err;
    const struct places p = places_of(&layer->shape);
    const size_t bytes = espl_cuda_atom_activation_bytes(&layer->shape, layer->shape.tokens);
    uint8_t *host = malloc(bytes);
    assert_non_null(host);
    assert_int_equal(bytes % p.bytes, 0);
    cuda_check(espl_cuda_download(host, layer->device_x, bytes, &err), &err);
    for (size_t t = 0; t < bytes / p.bytes * TOKENS; t++) {
        const uint8_t *tile = host + t / TOKENS * p.bytes;
        if (t < layer->shape.tokens) {
            expect_token(layer, &p, tile, t);
        } else {
            expect_empty_token(&p, tile, t % TOKENS);
        }
    }
    free(host);
}

/* tokens, in, out, group, outliers, rows a scale, weight bits, activation bits */
static const struct espl_quant_shape shapes[] = {
    {1, 1, 1, 0, 0, 1, 4, 4},        {8, 4096, 1, 128, 128, 1, 4, 4},
    {3, 1287, 1, 0, 0, 1, 4, 4},     {9, 1100, 1, 20, 100, 1, 4, 4},
    {17, 641, 1, 64, 1, 1, 4, 4},    {33, 900, 1, 256, 132, 1, 4, 4},
    {2, 103, 1, 10, 3, 1, 4, 4},     {5, 8000, 1, 0, 64, 1, 4, 4},
    {4, 1000, 1, 200, 200, 1, 4, 4},
};

static void test_codes__those_of_ref(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(41, "cuda-quantize", 0);
    if (!cuda_has_device()) {
        skip();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct atom_layer layer;
        fixture_make_layer(&rng, &shapes[i], ESPL_IEBME_SCOPE_NONE, 0.5, i % 2 == 0 ? 1.0F : 0.8F,
                           &layer);
        expect_same_codes(&layer);
        fixture_free_layer(&layer);
    }
}

static void test_zeros_and_no_order__those_of_ref(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(42, "cuda-quantize", 0);
    struct atom_layer layer;
    struct espl_error err;
    struct espl_backend *ref = NULL;
    if (!cuda_has_device()) {
        skip();
    }
    fixture_make_layer(&rng, &shapes[1], ESPL_IEBME_SCOPE_NONE, 0.5, 0.9F, &layer);
    const size_t count = layer.shape.tokens * layer.shape.in;
    memset(layer.halves, 0, layer.shape.in * sizeof *layer.halves); /* a token of zeros */
    fixture_floats_of_halves(layer.halves, count, layer.x);
    cuda_check(espl_cuda_upload(layer.device_halves, layer.halves, 2 * count, &err), &err);
    cuda_check(espl_backend_open("ref", 1, &ref, &err), &err);
    cuda_check(espl_backend_ops(ref)->quantize_act(ref, &layer.shape, layer.x, NULL, layer.clip,
                                                   &layer.a, &err),
               &err);
    espl_backend_close(ref);
    espl_cuda_free(layer.device_order);
    layer.device_order = NULL;
    fixture_quantize(&layer);
    expect_same_codes(&layer);
    fixture_free_layer(&layer);
}

static void test_nonfinite__named_as_ref_names_it(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(43, "cuda-quantize", 0);
    struct atom_layer layer;
    struct espl_error err;
    struct espl_error wanted;
    struct espl_backend *ref = NULL;
    if (!cuda_has_device()) {
        skip();
    }
    fixture_make_layer(&rng, &shapes[5], ESPL_IEBME_SCOPE_NONE, 0.5, 1.0F, &layer);
    const size_t in = layer.shape.in;
    layer.halves[31 * in + 5] = 0x7E00;   /* not a number */
    layer.halves[20 * in + 700] = 0xFC00; /* -infinity */
    layer.halves[20 * in + 899] = 0x7C00;
    fixture_floats_of_halves(layer.halves, layer.shape.tokens * in, layer.x);
    cuda_check(
        espl_cuda_upload(layer.device_halves, layer.halves, layer.shape.tokens * in * 2, &err),
        &err);
    cuda_check(espl_backend_open("ref", 1, &ref, &err), &err);
    assert_int_equal(espl_backend_ops(ref)->quantize_act(ref, &layer.shape, layer.x, layer.order,
                                                         1.0F, &layer.a, &wanted),
                     ESPL_E_NUMERIC);
    espl_backend_close(ref);
    fixture_quantize(&layer);
    assert_int_equal(espl_cuda_quantize_check(&layer.shape, layer.device_nonfinite, &err),
                     ESPL_E_NUMERIC);
    assert_string_equal(err.message, wanted.message);
    fixture_free_layer(&layer);
}

static void test_refusals__say_what_does_not_fit(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(44, "cuda-quantize", 0);
    struct atom_layer layer;
    struct espl_error err;
    if (!cuda_has_device()) {
        skip();
    }
    fixture_make_layer(&rng, &shapes[1], ESPL_IEBME_SCOPE_NONE, 0.5, 1.0F, &layer);
    struct espl_cuda_quantize operands = {layer.device_halves, layer.shape.in,
                                          layer.device_order,  layer.clip,
                                          layer.device_x,      layer.device_nonfinite};
    struct espl_quant_shape shape = layer.shape;
    shape.activation_bits = 8;
    assert_int_equal(espl_cuda_quantize_activations(&shape, &operands, NULL, &err),
                     ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_cuda_atom_activation_bytes(&shape, 1), 0);
    operands.clip = 1.5F;
    assert_int_equal(espl_cuda_quantize_activations(&layer.shape, &operands, NULL, &err),
                     ESPL_E_UNSUPPORTED);
    operands.clip = 1.0F;
    operands.x_stride = layer.shape.in - 1;
    assert_int_equal(espl_cuda_quantize_activations(&layer.shape, &operands, NULL, &err),
                     ESPL_E_UNSUPPORTED);
    fixture_free_layer(&layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes__those_of_ref),
        cmocka_unit_test(test_zeros_and_no_order__those_of_ref),
        cmocka_unit_test(test_nonfinite__named_as_ref_names_it),
        cmocka_unit_test(test_refusals__say_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
