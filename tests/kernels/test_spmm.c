/* Products from encoded weights: ref and every path of cpu against gemm_w4a4 on the codes that were
 * encoded, bit for bit, and what happens when a permutation is not undone. */
#include "core/codes.h"
#include "espalier/kernels.h"
#include "kernels/cpu/quant_paths.h"
#include "kernels/iebme_fixture.h"
#include "support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static struct espl_backend *open_backend(const char *name, unsigned threads)
{
    struct espl_error err;
    struct espl_backend *backend = NULL;
    if (espl_backend_open(name, threads, &backend, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return backend;
}

/* A layer with all that belongs to it. Arrays that a shape does not use have one element. */
struct layer {
    struct espl_quant_shape shape;
    struct espl_quant_activations a;
    int8_t *codes; /* (out, normal) */
    uint8_t *packed;
    float *scales, *outlier_scales, *bias;
    int8_t *outlier_codes;
    uint64_t *orders;
    struct espl_iebme_matrix matrix;
    struct espl_quant_weights plain;
    struct espl_iebme_weights encoded;
    float *expected, *y;
};

static float *random_scales(struct espl_rng *rng, size_t count)
{
    float *scales = malloc((count + 1) * sizeof *scales);
    assert_non_null(scales);
    for (size_t i = 0; i < count; i++) {
        scales[i] = (float)(0.01 + espl_rng_unit(rng));
    }
    return scales;
}

static void make_layer(struct espl_rng *rng, const struct espl_quant_shape *shape,
                       enum espl_iebme_areas areas, enum espl_iebme_scope scope, double sparsity,
                       struct layer *layer)
{
    struct espl_iebme_plan plan;
    const size_t normal = espl_quant_normal(shape);
    const size_t groups = espl_quant_groups(shape);
    const struct espl_iebme_layout layout = {shape->out, normal, shape->weight_bits, areas, scope};
    *layer = (struct layer){.shape = *shape};
    layer->a.codes = fixture_codes(rng, shape->tokens + 1, normal, shape->activation_bits, 0.1);
    layer->a.scales = random_scales(rng, shape->tokens * groups);
    layer->a.outlier_codes = fixture_codes(rng, shape->tokens, shape->outliers + 1, 8, 0.0);
    layer->a.outlier_scales = random_scales(rng, shape->tokens);
    layer->codes = fixture_codes(rng, shape->out, normal, shape->weight_bits, sparsity);
    layer->packed = malloc(shape->out * espl_codes_stride(normal, shape->weight_bits));
    assert_non_null(layer->packed);
    espl_codes_pack(layer->codes, shape->out, normal, shape->weight_bits, layer->packed);
    layer->scales = random_scales(rng, shape->out * groups);
    layer->outlier_scales = random_scales(rng, shape->out);
    layer->outlier_codes = fixture_codes(rng, shape->out, shape->outliers + 1, 8, 0.0);
    layer->bias = random_scales(rng, shape->out);
    layer->orders = fixture_orders(rng, &layout);
    fixture_encode(layer->codes, &layout, layer->orders, &plan, &layer->matrix);
    layer->plain = (struct espl_quant_weights){layer->packed, layer->scales, layer->outlier_codes,
                                               layer->outlier_scales, layer->bias};
    layer->encoded = (struct espl_iebme_weights){
        &layer->matrix, layer->scales, layer->outlier_codes, layer->outlier_scales, layer->bias};
    layer->expected = calloc(shape->tokens * shape->out + 1, sizeof *layer->expected);
    layer->y = calloc(shape->tokens * shape->out + 1, sizeof *layer->y);
    assert_non_null(layer->expected);
    assert_non_null(layer->y);
}

static void free_layer(struct layer *layer)
{
    free(layer->a.codes);
    free(layer->a.scales);
    free(layer->a.outlier_codes);
    free(layer->a.outlier_scales);
    free(layer->codes);
    free(layer->packed);
    free(layer->scales);
    free(layer->outlier_scales);
    free(layer->outlier_codes);
    free(layer->bias);
    free(layer->orders);
    espl_iebme_matrix_free(&layer->matrix);
    free(layer->expected);
    free(layer->y);
}

static void expect_same(struct layer *layer)
{
    const size_t bytes = layer->shape.tokens * layer->shape.out * sizeof *layer->y;
    assert_memory_equal(layer->y, layer->expected, bytes);
    memset(layer->y, 0, bytes);
}

/* tokens, in, out, group, outliers, rows a scale, weight bits, activation bits */
static const struct espl_quant_shape shapes[] = {
    {1, 1, 1, 0, 0, 1, 4, 4},         {2, 65, 17, 0, 1, 2, 2, 8},   {7, 131, 33, 0, 3, 2, 8, 8},
    {3, 256, 130, 128, 128, 2, 4, 4}, {5, 200, 64, 32, 8, 1, 4, 4}, {1030, 70, 20, 10, 0, 1, 4, 4},
    {33, 640, 80, 128, 0, 1, 4, 4},   {9, 96, 65, 3, 0, 1, 2, 8},   {16, 192, 127, 64, 64, 2, 8, 5},
    {4, 1024, 16, 64, 0, 1, 4, 8},
};

static void test_spmm__same_bits_as_gemm_on_the_codes(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(15, "spmm", 0);
    struct espl_backend *ref = open_backend("ref", 1);
    struct espl_backend *cpu[2] = {open_backend("cpu", 1), open_backend("cpu", 3)};
    struct espl_error err;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (unsigned a = 0; a <= ESPL_IEBME_MIXED; a++) {
            struct layer layer;
            make_layer(&rng, &shapes[i], (enum espl_iebme_areas)a,
                       (enum espl_iebme_scope)((i + a) % 3), a % 4 == 3 ? 0.9 : 0.5, &layer);
            if (a % 2 != 0) {
                layer.plain.bias = NULL;
                layer.encoded.bias = NULL;
            }
            assert_int_equal(espl_backend_ops(ref)->gemm_w4a4(ref, &layer.shape, &layer.a,
                                                              &layer.plain, layer.expected, &err),
                             ESPL_OK);
            assert_int_equal(espl_backend_ops(ref)->spmm_iebme(ref, &layer.shape, &layer.a,
                                                               &layer.encoded, layer.y, &err),
                             ESPL_OK);
            expect_same(&layer);
            for (size_t b = 0; b < 2; b++) {
                assert_int_equal(espl_backend_ops(cpu[b])->spmm_iebme(
                                     cpu[b], &layer.shape, &layer.a, &layer.encoded, layer.y, &err),
                                 ESPL_OK);
                expect_same(&layer);
            }
            for (const struct espl_quant_path *path = espl_quant_paths; path->name != NULL;
                 path++) {
                if (path->supported()) {
                    assert_int_equal(espl_cpu_spmm_iebme_on(path, cpu[1], &layer.shape, &layer.a,
                                                            &layer.encoded, layer.y, &err),
                                     ESPL_OK);
                    expect_same(&layer);
                }
            }
            free_layer(&layer);
        }
    }
    espl_backend_close(ref);
    espl_backend_close(cpu[0]);
    espl_backend_close(cpu[1]);
}

static void test_spmm__any_number_of_tokens(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(16, "spmm-tokens", 0);
    struct espl_backend *cpu = open_backend("cpu", 2);
    struct espl_error err;
    for (size_t tokens = 0; tokens <= 33; tokens++) {
        const struct espl_quant_shape shape = {tokens, 130, 49, 0, 2, 1, 4, 4};
        struct layer layer;
        make_layer(&rng, &shape, ESPL_IEBME_AUTO, ESPL_IEBME_SCOPE_STRIPE, 0.6, &layer);
        assert_int_equal(espl_backend_ops(cpu)->gemm_w4a4(cpu, &shape, &layer.a, &layer.plain,
                                                          layer.expected, &err),
                         ESPL_OK);
        assert_int_equal(
            espl_backend_ops(cpu)->spmm_iebme(cpu, &shape, &layer.a, &layer.encoded, layer.y, &err),
            ESPL_OK);
        expect_same(&layer);
        free_layer(&layer);
    }
    espl_backend_close(cpu);
}

/* y (out) of whole numbers: the codes of one token times the decoded codes, in 64 bits. */
static void integer_product(const struct layer *layer, const struct espl_iebme_matrix *matrix,
                            int64_t *y)
{
    const size_t normal = espl_quant_normal(&layer->shape);
    int8_t *codes = malloc(layer->shape.out * normal);
    assert_non_null(codes);
    assert_int_equal(espl_iebme_decode(matrix, codes, NULL), ESPL_OK);
    for (size_t o = 0; o < layer->shape.out; o++) {
        y[o] = 0;
        for (size_t c = 0; c < normal; c++) {
            y[o] += (int64_t)codes[o * normal + c] * layer->a.codes[c];
        }
    }
    free(codes);
}

/* A permutation for every tile without the way back: the accumulator of encoded row r mixes other
 * output rows in every tile along K. The same decoder with the orders gives the right product. */
static void test_tile_permutation__without_undo_fails_the_oracle(void **state)
{
    (void)state;
    enum { OUT = 48, IN = 320 };
    struct espl_rng rng = espl_rng_stream(17, "spmm-naive", 0);
    const struct espl_quant_shape shape = {1, IN, OUT, 0, 0, 1, 4, 4};
    struct layer layer;
    int64_t right[OUT];
    int64_t undone[OUT];
    int64_t naive[OUT];
    make_layer(&rng, &shape, ESPL_IEBME_2X2, ESPL_IEBME_SCOPE_TILE, 0.5, &layer);
    for (size_t o = 0; o < OUT; o++) {
        right[o] = 0;
        for (size_t c = 0; c < IN; c++) {
            right[o] += (int64_t)layer.codes[o * IN + c] * layer.a.codes[c];
        }
    }
    integer_product(&layer, &layer.matrix, undone);
    assert_memory_equal(undone, right, sizeof right);
    struct espl_iebme_matrix forgetful = layer.matrix;
    forgetful.layout.scope = ESPL_IEBME_SCOPE_NONE;
    forgetful.order_count = 0;
    integer_product(&layer, &forgetful, naive);
    size_t wrong = 0;
    for (size_t o = 0; o < OUT; o++) {
        wrong += naive[o] != right[o] ? 1 : 0;
    }
    assert_true(wrong > OUT / 2);
    /* and no permutation of the outputs repairs it: the sets of numbers differ */
    size_t missing = 0;
    for (size_t o = 0; o < OUT; o++) {
        bool found = false;
        for (size_t n = 0; n < OUT; n++) {
            found = found || naive[n] == right[o];
        }
        missing += found ? 0 : 1;
    }
    assert_true(missing > OUT / 4);
    free_layer(&layer);
}

static void test_spmm__refuses_other_shapes(void **state)
{
    (void)state;
    struct espl_rng rng = espl_rng_stream(18, "spmm-refuses", 0);
    struct espl_error err;
    struct espl_backend *backends[2] = {open_backend("ref", 1), open_backend("cpu", 1)};
    const struct espl_quant_shape shape = {1, 64, 16, 0, 0, 1, 4, 4};
    struct layer layer;
    make_layer(&rng, &shape, ESPL_IEBME_1X1, ESPL_IEBME_SCOPE_NONE, 0.5, &layer);
    for (size_t b = 0; b < 2; b++) {
        struct espl_quant_shape other = shape;
        other.out = 17;
        assert_int_equal(
            espl_backend_ops(backends[b])
                ->spmm_iebme(backends[b], &other, &layer.a, &layer.encoded, layer.y, &err),
            ESPL_E_UNSUPPORTED);
        other = shape;
        other.weight_bits = 8;
        assert_int_equal(
            espl_backend_ops(backends[b])
                ->spmm_iebme(backends[b], &other, &layer.a, &layer.encoded, layer.y, &err),
            ESPL_E_UNSUPPORTED);
        assert_string_equal(err.message,
                            "encoded weights are 16 x 64 of 4 bits, the layer has 16 x 64 of 8");
        espl_backend_close(backends[b]);
    }
    free_layer(&layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spmm__same_bits_as_gemm_on_the_codes),
        cmocka_unit_test(test_spmm__any_number_of_tokens),
        cmocka_unit_test(test_tile_permutation__without_undo_fails_the_oracle),
        cmocka_unit_test(test_spmm__refuses_other_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
