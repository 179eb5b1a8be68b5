/* gemm_w4a4: the reference against the contract worked out in 64-bit integers and double, every
 * instruction path of the CPU backend against the reference bit for bit, thread counts, extremes.
 */
#include "core/codes.h"
#include "kernels/cpu/quant_paths.h"
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

/* tokens, in, out, group, outliers, rows a scale, weight bits, activation bits. Sizes on purpose:
 * 1, primes, a panel of columns exactly and one past it, groups that are no whole quads, more
 * tokens than a piece has. */
static const struct espl_quant_shape shapes[] = {
    {1, 1, 1, 0, 0, 1, 2, 4},          {2, 2, 3, 0, 1, 2, 2, 8},    {7, 13, 17, 0, 3, 2, 3, 5},
    {5, 72, 65, 8, 8, 1, 4, 4},        {13, 67, 33, 0, 0, 2, 4, 4}, {3, 160, 130, 32, 32, 2, 4, 4},
    {1030, 24, 5, 4, 4, 1, 8, 8},      {9, 96, 64, 32, 0, 1, 2, 8}, {4, 39, 70, 9, 3, 2, 5, 6},
    {6, 50, 16, 1, 5, 2, 6, 7},        {8, 61, 128, 0, 4, 2, 7, 8}, {11, 45, 31, 15, 0, 1, 8, 7},
    {12, 256, 129, 128, 128, 2, 3, 4}, {1, 131, 71, 0, 2, 2, 8, 8}, {6, 128, 64, 64, 64, 2, 4, 8},
};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

struct layer {
    struct espl_quant_shape shape;
    struct espl_quant_activations a;
    struct espl_quant_weights w;
    int8_t *w_codes; /* not packed */
    uint8_t *packed;
    float *w_scales, *w_outlier_scales, *bias;
    int8_t *w_outliers;
    float *y;
};

static uint64_t random_state;

static uint32_t next_random(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 33);
}

static int8_t *random_codes(size_t count, unsigned bits)
{
    int8_t *codes = malloc(count + 1);
    assert_non_null(codes);
    for (size_t i = 0; i < count; i++) {
        codes[i] = (int8_t)((int)(next_random() % (1u << bits)) - (1 << (bits - 1u)));
    }
    return codes;
}

static float *random_floats(size_t count)
{
    float *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = 0.001F + (float)(next_random() % 100003u) * 1e-6F;
    }
    return values;
}

static void make_layer(const struct espl_quant_shape *shape, struct layer *layer)
{
    const size_t normal = espl_quant_normal(shape);
    const size_t groups = espl_quant_groups(shape);
    const size_t scale_rows = (shape->out + shape->rows_per_scale - 1) / shape->rows_per_scale;
    memset(layer, 0, sizeof *layer);
    layer->shape = *shape;
    layer->a.codes = random_codes(shape->tokens * normal, shape->activation_bits);
    layer->a.scales = random_floats(shape->tokens * groups);
    layer->w_codes = random_codes(shape->out * normal, shape->weight_bits);
    layer->packed = malloc(shape->out * espl_codes_stride(normal, shape->weight_bits) + 1);
    assert_non_null(layer->packed);
    espl_codes_pack(layer->w_codes, shape->out, normal, shape->weight_bits, layer->packed);
    layer->w_scales = random_floats(scale_rows * groups);
    layer->bias = random_floats(shape->out);
    if (shape->outliers > 0) {
        layer->a.outlier_codes = random_codes(shape->tokens * shape->outliers, 8);
        layer->a.outlier_scales = random_floats(shape->tokens);
        layer->w_outliers = random_codes(shape->out * shape->outliers, 8);
        layer->w_outlier_scales = random_floats(shape->out);
    }
    layer->w.codes = layer->packed;
    layer->w.scales = layer->w_scales;
    layer->w.outlier_codes = layer->w_outliers;
    layer->w.outlier_scales = layer->w_outlier_scales;
    layer->w.bias = shape->out % 2 == 1 ? layer->bias : NULL;
    layer->y = calloc(shape->tokens * shape->out, sizeof *layer->y);
    assert_non_null(layer->y);
}

static void free_layer(struct layer *layer)
{
    free(layer->a.codes);
    free(layer->a.scales);
    free(layer->a.outlier_codes);
    free(layer->a.outlier_scales);
    free(layer->w_codes);
    free(layer->packed);
    free(layer->w_scales);
    free(layer->w_outlier_scales);
    free(layer->w_outliers);
    free(layer->bias);
    free(layer->y);
}

/* One float32 operation: the double result of two floats rounds to the same float. */
static float times(float a, float b)
{
    return (float)((double)a * (double)b);
}

static float plus(float a, float b)
{
    return (float)((double)a + (double)b);
}

static float expected_value(const struct layer *layer, size_t t, size_t o)
{
    const struct espl_quant_shape *shape = &layer->shape;
    const size_t normal = espl_quant_normal(shape);
    const size_t groups = espl_quant_groups(shape);
    float sum = 0.0F;
    for (size_t g = 0; g < groups; g++) {
        int64_t acc = 0;
        for (size_t c = g * (normal / groups); c < (g + 1) * (normal / groups); c++) {
            acc += (int64_t)layer->a.codes[t * normal + c] * layer->w_codes[o * normal + c];
        }
        const float scale = times(layer->w_scales[o / shape->rows_per_scale * groups + g],
                                  layer->a.scales[t * groups + g]);
        sum = plus(sum, times((float)acc, scale));
    }
    if (shape->outliers > 0) {
        int64_t acc = 0;
        for (size_t c = 0; c < shape->outliers; c++) {
            acc += (int64_t)layer->a.outlier_codes[t * shape->outliers + c] *
                   layer->w_outliers[o * shape->outliers + c];
        }
        sum = plus(
            sum, times((float)acc, times(layer->w_outlier_scales[o], layer->a.outlier_scales[t])));
    }
    return layer->w.bias != NULL ? plus(sum, layer->bias[o]) : sum;
}

static void check_against_contract(const struct layer *layer, const char *what)
{
    const struct espl_quant_shape *shape = &layer->shape;
    for (size_t i = 0; i < shape->tokens * shape->out; i++) {
        const float expected = expected_value(layer, i / shape->out, i % shape->out);
        if (memcmp(&layer->y[i], &expected, sizeof expected) != 0) {
            fail_msg("%s: token %zu, output %zu of a %zu x %zu x %zu layer is %.9g, not %.9g", what,
                     i / shape->out, i % shape->out, shape->tokens, shape->in, shape->out,
                     (double)layer->y[i], (double)expected);
        }
    }
}

static void test_ref__follows_the_contract(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_backend *ref = open_backend("ref", 1);
    random_state = 1;
    for (size_t i = 0; i < SHAPES; i++) {
        struct layer layer;
        make_layer(&shapes[i], &layer);
        assert_int_equal(
            espl_backend_ops(ref)->gemm_w4a4(ref, &layer.shape, &layer.a, &layer.w, layer.y, &err),
            ESPL_OK);
        check_against_contract(&layer, "ref");
        free_layer(&layer);
    }
    espl_backend_close(ref);
}

/* Every path this CPU has, with 1, 2 and 3 threads. */
static void test_paths__equal_ref_bit_for_bit(void **state)
{
    (void)state;
    struct espl_error err;
    size_t paths = 0;
    for (const struct espl_quant_path *path = espl_quant_paths; path->name != NULL; path++) {
        if (!path->supported()) {
            print_message("path %s: not on this CPU\n", path->name);
            continue;
        }
        paths++;
        for (unsigned threads = 1; threads <= 3; threads++) {
            struct espl_backend *cpu = open_backend("cpu", threads);
            random_state = threads;
            for (size_t i = 0; i < SHAPES; i++) {
                struct layer layer;
                make_layer(&shapes[i], &layer);
                assert_int_equal(espl_cpu_gemm_w4a4_on(path, cpu, &layer.shape, &layer.a, &layer.w,
                                                       layer.y, &err),
                                 ESPL_OK);
                check_against_contract(&layer, path->name);
                free_layer(&layer);
            }
            espl_backend_close(cpu);
        }
    }
    assert_true(paths >= 1);
    assert_string_equal(espl_quant_paths[0].supported() ? espl_quant_paths[0].name : "",
                        espl_quant_paths[0].supported() ? espl_quant_path_best()->name : "");
}

/* Every code at an end of its range, in all four combinations of signs, and as many columns as fit.
 */
static void test_paths__extremes_do_not_saturate(void **state)
{
    (void)state;
    enum { MOST = 131071 };
    static const size_t columns[] = {1, 5, 64, MOST};
    static const int8_t ends[] = {-128, 127};
    struct espl_error err;
    struct espl_backend *cpu = open_backend("cpu", 1);
    for (const struct espl_quant_path *path = espl_quant_paths; path->name != NULL; path++) {
        for (size_t i = 0; path->supported() && i < 16; i++) {
            const struct espl_quant_shape shape = {2, columns[i / 4], 3, 0, 0, 1, 8, 8};
            struct layer layer;
            make_layer(&shape, &layer);
            memset(layer.a.codes, ends[i % 2], 2 * shape.in);
            memset(layer.w_codes, ends[i / 2 % 2], 3 * shape.in);
            espl_codes_pack(layer.w_codes, 3, shape.in, 8, layer.packed);
            assert_int_equal(
                espl_cpu_gemm_w4a4_on(path, cpu, &shape, &layer.a, &layer.w, layer.y, &err),
                ESPL_OK);
            check_against_contract(&layer, path->name);
            free_layer(&layer);
        }
    }
    espl_backend_close(cpu);
}

static void test_gemm__refuses_impossible_shapes(void **state)
{
    (void)state;
    static const struct espl_quant_shape bad[] = {
        {1, 0, 1, 0, 0, 1, 4, 4},      {1, 8, 1, 0, 8, 1, 4, 4}, {1, 8, 1, 3, 0, 1, 4, 4},
        {1, 8, 1, 0, 0, 3, 4, 4},      {1, 8, 1, 0, 0, 0, 4, 4}, {1, 8, 1, 0, 0, 1, 1, 4},
        {1, 8, 1, 0, 0, 1, 9, 4},      {1, 8, 1, 0, 0, 1, 4, 3}, {1, 8, 1, 0, 0, 1, 4, 16},
        {1, 131072, 1, 0, 0, 1, 4, 4},
    };
    static const char *const names[] = {"ref", "cpu"};
    struct espl_error err;
    for (size_t b = 0; b < 2; b++) {
        struct espl_backend *backend = open_backend(names[b], 1);
        const struct espl_quant_activations a = {NULL, NULL, NULL, NULL};
        const struct espl_quant_weights w = {NULL, NULL, NULL, NULL, NULL};
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            assert_int_equal(
                espl_backend_ops(backend)->gemm_w4a4(backend, &bad[i], &a, &w, NULL, &err),
                ESPL_E_UNSUPPORTED);
            assert_true(err.message[0] != '\0');
        }
        espl_backend_close(backend);
    }
}

static void test_gemm__nothing_to_do(void **state)
{
    (void)state;
    static const char *const names[] = {"ref", "cpu"};
    const struct espl_quant_shape shape = {0, 8, 3, 4, 0, 2, 4, 4};
    struct espl_error err;
    for (size_t b = 0; b < 2; b++) {
        struct espl_backend *backend = open_backend(names[b], 2);
        struct layer layer;
        make_layer(&shape, &layer);
        assert_int_equal(espl_backend_ops(backend)->gemm_w4a4(backend, &shape, &layer.a, &layer.w,
                                                              layer.y, &err),
                         ESPL_OK);
        free_layer(&layer);
        espl_backend_close(backend);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref__follows_the_contract),
        cmocka_unit_test(test_paths__equal_ref_bit_for_bit),
        cmocka_unit_test(test_paths__extremes_do_not_saturate),
        cmocka_unit_test(test_gemm__refuses_impossible_shapes),
        cmocka_unit_test(test_gemm__nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
