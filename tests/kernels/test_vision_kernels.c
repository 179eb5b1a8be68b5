/* Ops of image models: attention within windows and linear layers with an epilogue, on both
 * backends, against formulas written out again in double. */
#include "espalier/kernels.h"

#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct espl_backend *open_backend(const char *name, unsigned threads)
{
    struct espl_backend *backend = NULL;
    assert_int_equal(espl_backend_open(name, threads, &backend, NULL), ESPL_OK);
    return backend;
}

/* Values in (-1, 1), different everywhere. */
static float *make_values(size_t count, unsigned seed)
{
    float *values = calloc(count, sizeof *values);
    assert_non_null(values);
    uint32_t state = seed * 2654435761u + 1u;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        values[i] = (float)(state >> 8) * 0x1p-23F - 1.0F;
    }
    return values;
}

static void assert_near(const float *found, const double *expected, size_t count, double tolerance)
{
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)found[i] - expected[i]) <= tolerance)) {
            fail_msg("value %zu is %.9g, expected %.9g", i, (double)found[i], expected[i]);
        }
    }
}

/* ---- attention ---- */

struct attention_case {
    struct espl_full_attention_shape shape;
    bool rows, bias, mask;
};

struct attention_data {
    float *qkv, *bias, *mask;
    int32_t *rows;
    size_t count; /* of y */
};

static struct attention_data make_data(const struct attention_case *item)
{
    const struct espl_full_attention_shape *shape = &item->shape;
    const size_t image_rows = shape->windows * shape->tokens;
    const size_t width = shape->heads * shape->head_dim;
    struct attention_data data = {.count = shape->images * image_rows * width};
    data.qkv = make_values(3 * data.count, 1);
    for (size_t i = 0; i < 3 * data.count; i++) {
        data.qkv[i] *= 2.0F;
    }
    if (item->bias) {
        data.bias = make_values(shape->heads * shape->tokens * shape->tokens, 2);
    }
    if (item->mask) {
        data.mask = make_values(image_rows * shape->tokens, 3);
        for (size_t i = 0; i < image_rows * shape->tokens; i++) {
            data.mask[i] = data.mask[i] < -0.4F ? -100.0F : 0.0F;
        }
    }
    if (item->rows) { /* a permutation: 5 divides none of the sizes */
        data.rows = calloc(image_rows, sizeof *data.rows);
        assert_non_null(data.rows);
        for (size_t i = 0; i < image_rows; i++) {
            data.rows[i] = (int32_t)((i * 5 + 3) % image_rows);
        }
    }
    return data;
}

static void free_data(struct attention_data *data)
{
    free(data->qkv);
    free(data->bias);
    free(data->mask);
    free(data->rows);
}

/* Straight from the definition, output by output. */
static void expect_attention(const struct attention_case *item, const struct attention_data *data,
                             double *y)
{
    const struct espl_full_attention_shape *s = &item->shape;
    const size_t image_rows = s->windows * s->tokens;
    const size_t width = s->heads * s->head_dim;
    for (size_t n = 0; n < s->images * image_rows; n++) {
        const size_t window = n % image_rows / s->tokens;
        const size_t first = n / image_rows * image_rows;
        const size_t own = data->rows != NULL ? (size_t)data->rows[n % image_rows] : n % image_rows;
        for (size_t h = 0; h < s->heads; h++) {
            double *out = y + (first + own) * width + h * s->head_dim;
            double total = 0.0;
            memset(out, 0, s->head_dim * sizeof *out);
            for (size_t t = 0; t < s->tokens; t++) {
                const size_t at = window * s->tokens + t;
                const size_t other = data->rows != NULL ? (size_t)data->rows[at] : at;
                const float *q = data->qkv + (first + own) * 3 * width + h * s->head_dim;
                const float *k = data->qkv + (first + other) * 3 * width + width + h * s->head_dim;
                double score = 0.0;
                for (size_t d = 0; d < s->head_dim; d++) {
                    score += (double)q[d] * (double)k[d] * (double)s->scale;
                }
                if (data->bias != NULL) {
                    score += (double)data->bias[(h * s->tokens + n % s->tokens) * s->tokens + t];
                }
                if (data->mask != NULL) {
                    score += (double)data->mask[n % image_rows * s->tokens + t];
                }
                total += exp(score);
                for (size_t d = 0; d < s->head_dim; d++) {
                    out[d] += exp(score) * (double)k[width + d];
                }
            }
            for (size_t d = 0; d < s->head_dim; d++) {
                out[d] /= total;
            }
        }
    }
}

static const struct attention_case attention_cases[] = {
    {{1, 1, 1, 1, 1, 1.0F}, false, false, false},   {{2, 1, 10, 3, 5, 0.4F}, false, false, false},
    {{3, 4, 4, 2, 3, 0.5F}, true, true, true},      {{2, 4, 16, 2, 8, 0.35F}, true, true, false},
    {{1, 9, 4, 1, 32, 0.17F}, false, false, true},  {{2, 1, 65, 3, 16, 0.25F}, false, true, false},
    {{1, 1, 197, 2, 7, 0.3F}, false, false, false}, {{1, 4, 49, 3, 32, 0.17F}, true, true, true},
};

static void test_full_attention(void **state)
{
    (void)state;
    const char *const names[] = {"ref", "cpu"};
    for (size_t c = 0; c < sizeof attention_cases / sizeof attention_cases[0]; c++) {
        const struct attention_case *item = &attention_cases[c];
        struct attention_data data = make_data(item);
        const struct espl_full_attention_tables tables = {data.rows, data.bias, data.mask};
        double *expected = calloc(data.count, sizeof *expected);
        float *y = calloc(data.count, sizeof *y);
        assert_non_null(expected);
        assert_non_null(y);
        expect_attention(item, &data, expected);
        for (size_t b = 0; b < 2; b++) {
            struct espl_backend *backend = open_backend(names[b], 2);
            memset(y, 0xff, data.count * sizeof *y);
            assert_int_equal(espl_backend_ops(backend)->full_attention(backend, &item->shape,
                                                                       &tables, data.qkv, y, NULL),
                             ESPL_OK);
            assert_near(y, expected, data.count, b == 0 ? 1e-6 : 4e-6);
            espl_backend_close(backend);
        }
        free(expected);
        free(y);
        free_data(&data);
    }
}

/* Two tokens, one of them masked for the other: worked out by hand. */
static void test_full_attention__by_hand(void **state)
{
    (void)state;
    const struct espl_full_attention_shape shape = {1, 1, 2, 1, 1, 1.0F};
    const float qkv[] = {1.0F, 0.0F, 10.0F, 2.0F, 1.0F, 20.0F}; /* q, k, v of each token */
    const float mask[] = {0.0F, -100.0F, 0.0F, 0.0F};
    const struct espl_full_attention_tables tables = {NULL, NULL, mask};
    /* Token 0 sees itself alone; token 1 has scores 0 and 2. */
    const double expected[] = {10.0, (10.0 + 20.0 * exp(2.0)) / (1.0 + exp(2.0))};
    struct espl_backend *backend = open_backend("cpu", 1);
    float y[2];
    assert_int_equal(
        espl_backend_ops(backend)->full_attention(backend, &shape, &tables, qkv, y, NULL), ESPL_OK);
    assert_near(y, expected, 2, 2e-6);
    espl_backend_close(backend);
}

static void test_full_attention__threads(void **state)
{
    (void)state;
    const struct attention_case *item = &attention_cases[2];
    struct attention_data data = make_data(item);
    const struct espl_full_attention_tables tables = {data.rows, data.bias, data.mask};
    float *y[2];
    for (unsigned i = 0; i < 2; i++) {
        struct espl_backend *backend = open_backend("cpu", i == 0 ? 1 : 3);
        y[i] = calloc(data.count, sizeof(float));
        assert_non_null(y[i]);
        assert_int_equal(espl_backend_ops(backend)->full_attention(backend, &item->shape, &tables,
                                                                   data.qkv, y[i], NULL),
                         ESPL_OK);
        espl_backend_close(backend);
    }
    assert_memory_equal(y[0], y[1], data.count * sizeof(float));
    free(y[0]);
    free(y[1]);
    free_data(&data);
}

/* ---- linear layers with an epilogue ---- */

static double epilogue_of(enum espl_epilogue epilogue, double sum, double before)
{
    switch (epilogue) {
    case ESPL_EPILOGUE_GELU:
        return sum / 2.0 * erfc(-sum / sqrt(2.0));
    case ESPL_EPILOGUE_ADD:
        return before + sum;
    case ESPL_EPILOGUE_NONE:
        break;
    }
    return sum;
}

static void check_linear(const struct espl_gemm_shape *shape, enum espl_epilogue epilogue,
                         bool with_bias)
{
    float *x = make_values(shape->tokens * shape->in, 4);
    float *w = make_values(shape->out * shape->in, 5);
    float *bias = with_bias ? make_values(shape->out, 6) : NULL;
    float *before = make_values(shape->tokens * shape->out, 7);
    const size_t count = shape->tokens * shape->out;
    double *expected = calloc(count, sizeof *expected);
    float *y = calloc(count, sizeof *y);
    assert_non_null(expected);
    assert_non_null(y);
    for (size_t i = 0; i < count; i++) {
        double sum = bias != NULL ? (double)bias[i % shape->out] : 0.0;
        for (size_t j = shape->in; j-- > 0;) {
            sum += (double)x[i / shape->out * shape->in + j] *
                   (double)w[i % shape->out * shape->in + j];
        }
        expected[i] = epilogue_of(epilogue, sum, (double)before[i]);
    }
    for (int b = 0; b < 2; b++) {
        struct espl_backend *backend = open_backend(b == 0 ? "ref" : "cpu", 2);
        memcpy(y, before, count * sizeof *y);
        assert_int_equal(
            espl_backend_ops(backend)->fused_linear(backend, shape, epilogue, x, w, bias, y, NULL),
            ESPL_OK);
        assert_near(y, expected, count, 1e-5);
        espl_backend_close(backend);
    }
    free(x);
    free(w);
    free(bias);
    free(before);
    free(expected);
    free(y);
}

static void test_fused_linear(void **state)
{
    (void)state;
    const struct espl_gemm_shape shapes[] = {{1, 1, 1}, {3, 5, 7}, {257, 33, 65}, {5, 64, 1031}};
    const enum espl_epilogue epilogues[] = {ESPL_EPILOGUE_NONE, ESPL_EPILOGUE_GELU,
                                            ESPL_EPILOGUE_ADD};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        for (size_t e = 0; e < 3; e++) {
            check_linear(&shapes[s], epilogues[e], false);
            check_linear(&shapes[s], epilogues[e], true);
        }
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct espl_backend *backend = open_backend("cpu", 1);
    struct espl_error err = {0};
    const struct espl_full_attention_shape wide = {1, 1, 1, 1, (size_t)1 << 31, 1.0F};
    const struct espl_full_attention_tables none = {NULL, NULL, NULL};
    const struct espl_gemm_shape deep = {1, (size_t)1 << 32, 1};
    assert_int_equal(
        espl_backend_ops(backend)->full_attention(backend, &wide, &none, NULL, NULL, &err),
        ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_backend_ops(backend)->fused_linear(backend, &deep, ESPL_EPILOGUE_NONE,
                                                             NULL, NULL, NULL, NULL, &err),
                     ESPL_E_UNSUPPORTED);
    espl_backend_close(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_attention),
        cmocka_unit_test(test_full_attention__by_hand),
        cmocka_unit_test(test_full_attention__threads),
        cmocka_unit_test(test_fused_linear),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("vision_kernels", tests, NULL, NULL);
}
