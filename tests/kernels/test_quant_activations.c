/* quantize_act and quantize_kv: hand cases, formulas in double, CPU against reference, refusals. */
#include "espalier/kernels.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"ref", "cpu"};

static struct espl_backend *open_backend(const char *name, unsigned threads)
{
    struct espl_error err;
    struct espl_backend *backend = NULL;
    if (espl_backend_open(name, threads, &backend, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return backend;
}

static float *random_values(size_t count, uint64_t seed)
{
    float *x = malloc((count + 1) * sizeof *x);
    assert_non_null(x);
    for (size_t i = 0; i < count; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const double u = (double)(seed >> 11) * 0x1p-53 - 0.5;
        x[i] = (float)(40.0 * u * u * u);
    }
    return x;
}

/* Two groups of three and two outliers, worked by hand. clip 0.5 and 4 bits: scale = amax / 14. */
static void test_act__hand_case(void **state)
{
    (void)state;
    static const float x[8] = {14.0F, -0.5F, 2.5F, 127.0F, 0.0F, -1.5F, 0.0F, -254.0F};
    static const int32_t order[8] = {1, 2, 5, 0, 4, 6, 3, 7};
    /* -0.5 2.5 -1.5: amax 2.5. 14 0 0: amax 14, scale 1, 14 saturates. 127 -254: scale 2, half of
     * 127 is a tie and goes to the even 64. */
    static const int8_t codes[6] = {-3, 7, -8, 7, 0, 0};
    static const int8_t outliers[2] = {64, -127};
    const struct espl_quant_shape shape = {1, 8, 1, 3, 2, 1, 4, 4};
    struct espl_error err;
    for (size_t b = 0; b < 2; b++) {
        struct espl_backend *backend = open_backend(names[b], 1);
        int8_t got[6], got_outliers[2];
        float scales[2], outlier_scales[1];
        const struct espl_quant_activations a = {got, scales, got_outliers, outlier_scales};
        assert_int_equal(
            espl_backend_ops(backend)->quantize_act(backend, &shape, x, order, 0.5F, &a, &err),
            ESPL_OK);
        assert_memory_equal(got, codes, sizeof codes);
        assert_memory_equal(got_outliers, outliers, sizeof outliers);
        assert_true(scales[0] == 0.5F * 2.5F / 7.0F);
        assert_true(scales[1] == 1.0F);
        assert_true(outlier_scales[0] == 2.0F);
        espl_backend_close(backend);
    }
}

/* Values below 1e-5 do not make the scale smaller; 0 stays 0. */
static void test_act__tiny_and_zero_groups(void **state)
{
    (void)state;
    static const float x[4] = {0.0F, 0.0F, 4e-6F, -1e-30F};
    const struct espl_quant_shape shape = {1, 4, 1, 2, 0, 1, 4, 4};
    struct espl_error err;
    for (size_t b = 0; b < 2; b++) {
        struct espl_backend *backend = open_backend(names[b], 1);
        int8_t got[4];
        float scales[2];
        const struct espl_quant_activations a = {got, scales, NULL, NULL};
        assert_int_equal(
            espl_backend_ops(backend)->quantize_act(backend, &shape, x, NULL, 1.0F, &a, &err),
            ESPL_OK);
        assert_true(scales[0] == 1e-5F / 7.0F && scales[1] == scales[0]);
        assert_int_equal(got[0], 0);
        assert_int_equal(got[1], 0);
        assert_int_equal(got[2], 3); /* 2.8 */
        assert_int_equal(got[3], 0);
        espl_backend_close(backend);
    }
}

static void check_token(const struct espl_quant_shape *shape, const float *x, const int32_t *order,
                        float clip, const struct espl_quant_activations *a, size_t t)
{
    const size_t normal = espl_quant_normal(shape);
    const size_t groups = espl_quant_groups(shape);
    for (size_t c = 0; c < shape->in; c++) {
        const bool outlier = c >= normal;
        const size_t g = outlier ? 0 : c / (normal / groups);
        const size_t first = outlier ? normal : g * (normal / groups);
        const size_t last = outlier ? shape->in : first + normal / groups;
        const double qmax = outlier ? 127.0 : exp2((double)shape->activation_bits - 1.0) - 1.0;
        double amax = (double)1e-5F;
        for (size_t i = first; i < last; i++) {
            amax = fmax(amax, fabs((double)x[t * shape->in + (size_t)order[i]]));
        }
        const float clipped = (float)((outlier ? 1.0 : (double)clip) * amax);
        const float scale = (float)((double)clipped / qmax);
        const float ratio = (float)((double)x[t * shape->in + (size_t)order[c]] / (double)scale);
        const double code = fmin(fmax(nearbyint((double)ratio), -qmax - 1.0), qmax);
        const float got_scale = outlier ? a->outlier_scales[t] : a->scales[t * groups + g];
        const int got =
            outlier ? a->outlier_codes[t * shape->outliers + c - normal] : a->codes[t * normal + c];
        if (got_scale != scale || got != (int)code) {
            fail_msg("token %zu, place %zu: scale %.9g and code %d, not %.9g and %d", t, c,
                     (double)got_scale, got, (double)scale, (int)code);
        }
    }
}

static void test_act__equals_formulas_for_any_thread_count(void **state)
{
    (void)state;
    static const struct espl_quant_shape shapes[] = {
        {1, 1, 1, 0, 0, 1, 4, 4},   {3, 17, 1, 0, 4, 1, 4, 5},  {29, 160, 1, 32, 32, 2, 4, 4},
        {7, 99, 1, 11, 0, 1, 4, 8}, {5, 131, 1, 0, 3, 1, 4, 7}, {2, 259, 1, 128, 3, 1, 4, 6},
    };
    struct espl_error err;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const struct espl_quant_shape *shape = &shapes[i];
        float *x = random_values(shape->tokens * shape->in, i);
        int32_t *order = malloc(shape->in * sizeof *order);
        struct espl_quant_activations a = {
            malloc(shape->tokens * shape->in), malloc(shape->tokens * shape->in * sizeof(float)),
            malloc(shape->tokens * shape->in), malloc(shape->tokens * sizeof(float))};
        assert_non_null(order);
        for (size_t c = 0; c < shape->in; c++) { /* 7 and the sizes have no common factor */
            order[c] = (int32_t)(c * 7 % shape->in);
        }
        for (unsigned threads = 0; threads <= 3; threads++) {
            struct espl_backend *backend = open_backend(threads == 0 ? "ref" : "cpu", threads);
            memset(a.codes, 99, shape->tokens * espl_quant_normal(shape));
            assert_int_equal(
                espl_backend_ops(backend)->quantize_act(backend, shape, x, order, 0.9F, &a, &err),
                ESPL_OK);
            for (size_t t = 0; t < shape->tokens; t++) {
                check_token(shape, x, order, 0.9F, &a, t);
            }
            espl_backend_close(backend);
        }
        free(x);
        free(order);
        free(a.codes);
        free(a.scales);
        free(a.outlier_codes);
        free(a.outlier_scales);
    }
}

static void test_act__names_the_value_that_is_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    const struct espl_quant_shape shape = {9, 6, 1, 2, 2, 1, 4, 4};
    static const int32_t order[6] = {5, 4, 3, 2, 1, 0};
    struct espl_error err;
    for (size_t b = 0; b < 6; b++) {
        struct espl_backend *backend = open_backend(names[b % 2], 2);
        float *x = random_values(54, 3);
        int8_t codes[36], outliers[18];
        float scales[18], outlier_scales[9];
        const struct espl_quant_activations a = {codes, scales, outliers, outlier_scales};
        x[7 * 6 + 4] = bad[b / 2];
        x[8 * 6 + 1] = NAN;
        assert_int_equal(
            espl_backend_ops(backend)->quantize_act(backend, &shape, x, order, 1.0F, &a, &err),
            ESPL_E_NUMERIC);
        assert_non_null(strstr(err.message, "token 7, channel 4 "));
        assert_int_equal(
            espl_backend_ops(backend)->quantize_act(backend, &shape, x, order, 0.0F, &a, &err),
            ESPL_E_UNSUPPORTED);
        assert_int_equal(
            espl_backend_ops(backend)->quantize_act(backend, &shape, x, order, 1.5F, &a, &err),
            ESPL_E_UNSUPPORTED);
        free(x);
        espl_backend_close(backend);
    }
}

/* One head of four: range -1..2, 4 bits: scale 0.2, zero point 5. */
static void test_kv__hand_cases(void **state)
{
    (void)state;
    struct espl_error err;
    for (size_t b = 0; b < 2; b++) {
        struct espl_backend *backend = open_backend(names[b], 1);
        const struct espl_ops *ops = espl_backend_ops(backend);
        float x[4] = {-1.0F, 2.0F, 0.0F, 0.31F};
        float same[3] = {5.0F, 5.0F, 5.0F};
        float zero[3] = {0.0F, 0.0F, 0.0F};
        float below[2] = {-3.0F, -1.5F};
        assert_int_equal(ops->quantize_kv(backend, 1, 1, 4, 4, 1.0F, x, &err), ESPL_OK);
        assert_float_equal(x[0], -1.0F, 1e-6F);
        assert_float_equal(x[1], 2.0F, 1e-6F);
        assert_true(x[2] == 0.0F);
        assert_float_equal(x[3], 0.4F, 1e-6F);
        /* A constant row, a row of zeros, and one of a single sign keep their values. */
        assert_int_equal(ops->quantize_kv(backend, 1, 1, 3, 4, 1.0F, same, &err), ESPL_OK);
        assert_float_equal(same[0], 5.0F, 1e-6F);
        assert_true(same[1] == same[0] && same[2] == same[0]);
        assert_int_equal(ops->quantize_kv(backend, 1, 1, 3, 4, 1.0F, zero, &err), ESPL_OK);
        assert_true(zero[0] == 0.0F && zero[1] == 0.0F && zero[2] == 0.0F);
        assert_int_equal(ops->quantize_kv(backend, 1, 1, 2, 2, 1.0F, below, &err), ESPL_OK);
        assert_float_equal(below[0], -3.0F, 1e-6F);
        assert_float_equal(below[1], -2.0F, 1e-6F); /* 1.5 steps of 1: a tie, to even */
        espl_backend_close(backend);
    }
}

static void check_head(const float *x, const float *got, size_t count, unsigned bits, float clip)
{
    const double q = exp2((double)bits) - 1.0;
    float lo = 0.0F;
    float hi = 0.0F;
    for (size_t i = 0; i < count; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    const float range = (float)((double)clip * (double)(float)((double)hi - (double)lo));
    const float scale = (float)(fmax((double)range, (double)1e-5F) / q);
    const float low = (float)((double)clip * (double)lo);
    const double zero =
        fmin(fmax(nearbyint((double)(float)(-(double)low / (double)scale)), 0.0), q);
    for (size_t i = 0; i < count; i++) {
        const float ratio = (float)((double)x[i] / (double)scale);
        const double code = fmin(fmax(nearbyint((double)ratio) + zero, 0.0), q);
        const float expected = (float)((code - zero) * (double)scale);
        if (got[i] != expected) {
            fail_msg("value %zu of a head of %zu: %.9g, not %.9g", i, count, (double)got[i],
                     (double)expected);
        }
    }
}

static void test_kv__equals_formulas_for_any_thread_count(void **state)
{
    (void)state;
    static const size_t sizes[][3] = {{1, 1, 1}, {7, 3, 5}, {2, 2, 64}, {33, 5, 80}, {6, 1, 17}};
    struct espl_error err;
    for (size_t i = 0; i < 5; i++) {
        const size_t heads = sizes[i][0] * sizes[i][1];
        float *x = random_values(heads * sizes[i][2], 50 + i);
        float *got = malloc(heads * sizes[i][2] * sizeof *got);
        assert_non_null(got);
        for (unsigned threads = 0; threads <= 3; threads++) {
            struct espl_backend *backend = open_backend(threads == 0 ? "ref" : "cpu", threads);
            const unsigned bits = 2 + (unsigned)i + threads / 2;
            memcpy(got, x, heads * sizes[i][2] * sizeof *got);
            assert_int_equal(espl_backend_ops(backend)->quantize_kv(backend, sizes[i][0],
                                                                    sizes[i][1], sizes[i][2], bits,
                                                                    0.95F, got, &err),
                             ESPL_OK);
            for (size_t h = 0; h < heads; h++) {
                check_head(x + h * sizes[i][2], got + h * sizes[i][2], sizes[i][2], bits, 0.95F);
            }
            espl_backend_close(backend);
        }
        free(x);
        free(got);
    }
}

static void test_kv__refusals(void **state)
{
    (void)state;
    struct espl_error err;
    for (size_t b = 0; b < 2; b++) {
        struct espl_backend *backend = open_backend(names[b], 1);
        const struct espl_ops *ops = espl_backend_ops(backend);
        float x[6] = {1.0F, 2.0F, 3.0F, 4.0F, INFINITY, 6.0F};
        assert_int_equal(ops->quantize_kv(backend, 3, 1, 2, 4, 1.0F, x, &err), ESPL_E_NUMERIC);
        assert_non_null(strstr(err.message, "token 2, channel 0 "));
        assert_true(x[0] == 1.0F); /* nothing was changed */
        assert_int_equal(ops->quantize_kv(backend, 1, 1, 2, 1, 1.0F, x, &err), ESPL_E_UNSUPPORTED);
        assert_int_equal(ops->quantize_kv(backend, 1, 1, 2, 9, 1.0F, x, &err), ESPL_E_UNSUPPORTED);
        assert_int_equal(ops->quantize_kv(backend, 1, 1, 0, 4, 1.0F, x, &err), ESPL_E_UNSUPPORTED);
        assert_int_equal(ops->quantize_kv(backend, 1, 1, 2, 4, NAN, x, &err), ESPL_E_UNSUPPORTED);
        espl_backend_close(backend);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_act__hand_case),
        cmocka_unit_test(test_act__tiny_and_zero_groups),
        cmocka_unit_test(test_act__equals_formulas_for_any_thread_count),
        cmocka_unit_test(test_act__names_the_value_that_is_not_finite),
        cmocka_unit_test(test_kv__hand_cases),
        cmocka_unit_test(test_kv__equals_formulas_for_any_thread_count),
        cmocka_unit_test(test_kv__refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
