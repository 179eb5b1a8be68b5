/* Scales, codes and round to nearest: hand cases, odd row counts, empty groups, refusals. */
#include "stages/quant_common/quantiser.h"
#include "support/cmocka_all.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct espl_quantised make(const struct espl_quantiser *quantiser, size_t rows, size_t cols)
{
    struct espl_quantised out;
    struct espl_error err;
    const struct espl_matrix_shape shape = {rows, cols};
    if (espl_quantised_create(quantiser, &shape, &out, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return out;
}

/* half: 0.85 * 7 / 7; full: 2 * 0.85 * 7 / 15. Their ratio is 7.5 / 7 on any input. */
static void test_scale__both_formulas(void **state)
{
    (void)state;
    struct espl_quantiser half = {4, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 0.85F};
    struct espl_quantiser full = {4, 0, 0, 1, ESPL_QUANT_SCALE_FULL, 0.85F};
    for (int i = 1; i < 200; i++) {
        const float amax = (float)i * 0.37F;
        const double a = (double)espl_quantiser_scale(&half, amax);
        const double b = (double)espl_quantiser_scale(&full, amax);
        assert_true(fabs(a / b - 7.5 / 7.0) < 3e-7);
    }
    half.clip = 1.0F;
    full.clip = 1.0F;
    assert_true(espl_quantiser_scale(&half, 7.0F) == 1.0F);
    assert_true(espl_quantiser_scale(&full, 7.5F) == 1.0F);
    half.bits = 2;
    full.bits = 8;
    assert_true(espl_quantiser_scale(&half, 3.0F) == 3.0F);
    assert_true(espl_quantiser_scale(&full, 127.5F) == 1.0F);
    assert_true(espl_outlier_scale(254.0F) == 2.0F);
}

static void test_scale__of_nothing_is_one(void **state)
{
    (void)state;
    const struct espl_quantiser half = {4, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 0.85F};
    assert_true(espl_quantiser_scale(&half, 0.0F) == 1.0F);
    assert_true(espl_quantiser_scale(&half, 1e-45F) == 1.0F);
    assert_true(espl_quantiser_scale(&half, FLT_MIN) == 1.0F);
    assert_true(espl_quantiser_scale(&half, 1e-36F) < 1e-36F);
    assert_true(espl_outlier_scale(0.0F) == 1.0F);
}

static void test_value__ties_and_ends(void **state)
{
    (void)state;
    assert_int_equal(espl_quantise_value(0.5F, 1.0F, 4), 0);
    assert_int_equal(espl_quantise_value(1.5F, 1.0F, 4), 2);
    assert_int_equal(espl_quantise_value(-2.5F, 1.0F, 4), -2);
    assert_int_equal(espl_quantise_value(7.5F, 1.0F, 4), 7);
    assert_int_equal(espl_quantise_value(-7.5F, 1.0F, 4), -8);
    assert_int_equal(espl_quantise_value(-99.0F, 1.0F, 4), -8);
    assert_int_equal(espl_quantise_value(-3.0F, 1.0F, 2), -2);
    assert_int_equal(espl_quantise_value(3.0F, 1.0F, 2), 1);
    assert_int_equal(espl_quantise_value(500.0F, 1.0F, 8), 127);
    assert_int_equal(espl_quantise_value(-500.0F, 1.0F, 8), -128);
}

/* Three rows, groups of two, two outliers; rows 0 and 1 share scales, row 2 has its own. */
static void test_rtn__hand_case_with_an_odd_last_row(void **state)
{
    (void)state;
    static const float w[3 * 6] = {7.0F,  -1.0F, 0.0F, 0.0F, 127.0F,  1.0F, /* */
                                   14.0F, 3.0F,  0.0F, 0.0F, 0.0F,    0.0F, /* */
                                   3.5F,  1.0F,  5.0F, 5.0F, -254.0F, 3.0F};
    static const int8_t codes[3 * 4] = {4, 0, 0, 0, 7, 2, 0, 0, 7, 2, 7, 7};
    static const int8_t outliers[3 * 2] = {127, 1, 0, 0, -127, 2};
    const struct espl_quantiser quantiser = {4, 2, 2, 2, ESPL_QUANT_SCALE_HALF, 1.0F};
    struct espl_error err;
    for (unsigned threads = 1; threads <= 3; threads++) {
        struct espl_quantised out = make(&quantiser, 3, 6);
        float back[18];
        assert_int_equal(espl_rtn(&quantiser, w, NULL, threads, &out, &err), ESPL_OK);
        assert_int_equal(out.scale_rows, 2);
        assert_int_equal(out.groups, 2);
        assert_memory_equal(out.codes, codes, sizeof codes);
        assert_memory_equal(out.outlier_codes, outliers, sizeof outliers);
        assert_true(out.scales[0] == 2.0F && out.scales[1] == 1.0F);
        assert_true(out.scales[2] == 0.5F && out.scales[3] == 5.0F / 7.0F);
        assert_true(out.outlier_scales[0] == 1.0F && out.outlier_scales[1] == 1.0F);
        assert_true(out.outlier_scales[2] == 2.0F);
        espl_quantised_dequantise(&out, back);
        assert_true(back[0] == 8.0F && back[1] == 0.0F && back[6] == 14.0F && back[12] == 3.5F);
        assert_true(back[4] == 127.0F && back[16] == -254.0F && back[17] == 4.0F);
        espl_quantised_free(&out);
    }
}

/* A group without a negative value uses the same symmetric range: its largest value is code 7, not
 * a saturated upper half. */
static void test_rtn__group_of_one_sign_and_constant_rows(void **state)
{
    (void)state;
    static const float w[2 * 4] = {0.0F, 1.0F, 6.0F, 7.0F, 3.0F, 3.0F, 3.0F, 3.0F};
    static const int8_t half[8] = {0, 1, 6, 7, 7, 7, 7, 7};
    static const int8_t full[8] = {0, 1, 6, 7, 7, 7, 7, 7};
    struct espl_error err;
    for (int i = 0; i < 2; i++) {
        const struct espl_quantiser quantiser = {
            4, 0, 0, 1, i == 0 ? ESPL_QUANT_SCALE_HALF : ESPL_QUANT_SCALE_FULL, 1.0F};
        struct espl_quantised out = make(&quantiser, 2, 4);
        assert_int_equal(espl_rtn(&quantiser, w, NULL, 1, &out, &err), ESPL_OK);
        assert_memory_equal(out.codes, i == 0 ? half : full, sizeof half);
        espl_quantised_free(&out);
    }
}

/* Removed weights have code 0 and do not stretch the scale. */
static void test_rtn__mask(void **state)
{
    (void)state;
    static const float w[4] = {1.0F, 100.0F, -7.0F, 50.0F};
    static const uint8_t mask[1] = {0x05};
    const struct espl_quantiser quantiser = {4, 0, 1, 1, ESPL_QUANT_SCALE_HALF, 1.0F};
    struct espl_error err;
    struct espl_quantised out = make(&quantiser, 1, 4);
    assert_int_equal(espl_rtn(&quantiser, w, mask, 1, &out, &err), ESPL_OK);
    assert_true(out.scales[0] == 1.0F);
    assert_int_equal(out.codes[0], 1);
    assert_int_equal(out.codes[1], 0);
    assert_int_equal(out.codes[2], -7);
    assert_int_equal(out.outlier_codes[0], 0);
    assert_true(out.outlier_scales[0] == 1.0F);
    struct espl_quant_counts counts = espl_quantised_count(&out, mask, 4);
    assert_int_equal(counts.weights, 4);
    assert_int_equal(counts.removed, 2);
    assert_int_equal(counts.zero_codes, 2);
    assert_int_equal(counts.violations, 0);
    out.codes[1] = -8;
    out.outlier_codes[0] = 127;
    counts = espl_quantised_count(&out, mask, 4);
    assert_int_equal(counts.violations, 2);
    assert_int_equal(counts.saturated, 2);
    assert_int_equal(espl_quantised_count(&out, NULL, 4).violations, 0);
    espl_quantised_free(&out);
}

static void test_rtn__names_a_weight_that_is_not_finite(void **state)
{
    (void)state;
    float w[6] = {1.0F, 2.0F, 3.0F, 4.0F, NAN, 6.0F};
    const struct espl_quantiser quantiser = {4, 0, 0, 2, ESPL_QUANT_SCALE_HALF, 1.0F};
    struct espl_error err;
    struct espl_quantised out = make(&quantiser, 2, 3);
    assert_int_equal(espl_rtn(&quantiser, w, NULL, 1, &out, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "row 1, column 1 "));
    w[4] = -INFINITY;
    assert_int_equal(espl_rtn(&quantiser, w, NULL, 1, &out, &err), ESPL_E_NUMERIC);
    espl_quantised_free(&out);
}

static void test_check__names_legal_groups(void **state)
{
    (void)state;
    const struct espl_quantiser bad = {4, 128, 0, 2, ESPL_QUANT_SCALE_HALF, 0.85F};
    const struct espl_matrix_shape odd = {4, 100};
    const struct espl_matrix_shape wide = {4, 320};
    struct espl_error err;
    assert_int_equal(espl_quantiser_check(&bad, &wide, "layers.0.mlp.down_proj", &err), ESPL_E_JOB);
    assert_non_null(strstr(err.message, "groups of 128"));
    assert_non_null(strstr(err.message, "320 columns"));
    assert_non_null(strstr(err.message, "'layers.0.mlp.down_proj'"));
    assert_non_null(strstr(err.hint, "64, 32, 16, 8"));
    assert_int_equal(espl_quantiser_check(&bad, &odd, "x", &err), ESPL_E_JOB);
    assert_non_null(strstr(err.hint, "none"));
}

static void test_check__numbers(void **state)
{
    (void)state;
    static const struct espl_quantiser bad[] = {
        {1, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 1.0F},  {9, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 1.0F},
        {4, 0, 64, 1, ESPL_QUANT_SCALE_HALF, 1.0F}, {4, 0, 0, 0, ESPL_QUANT_SCALE_HALF, 1.0F},
        {4, 0, 0, 3, ESPL_QUANT_SCALE_HALF, 1.0F},  {4, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 0.0F},
        {4, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 1.1F},  {4, 0, 0, 1, ESPL_QUANT_SCALE_HALF, NAN},
        {4, 48, 0, 1, ESPL_QUANT_SCALE_HALF, 1.0F},
    };
    const struct espl_matrix_shape shape = {4, 64};
    const struct espl_matrix_shape empty = {0, 64};
    const struct espl_quantiser good = {4, 64, 0, 1, ESPL_QUANT_SCALE_HALF, 1.0F};
    struct espl_quantised out;
    struct espl_error err;
    assert_int_equal(espl_quantised_create(&good, &empty, &out, &err), ESPL_E_JOB);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(espl_quantised_create(&bad[i], &shape, &out, &err), ESPL_E_JOB);
        assert_null(out.codes);
        espl_quantised_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scale__both_formulas),
        cmocka_unit_test(test_scale__of_nothing_is_one),
        cmocka_unit_test(test_value__ties_and_ends),
        cmocka_unit_test(test_rtn__hand_case_with_an_odd_last_row),
        cmocka_unit_test(test_rtn__group_of_one_sign_and_constant_rows),
        cmocka_unit_test(test_rtn__mask),
        cmocka_unit_test(test_rtn__names_a_weight_that_is_not_finite),
        cmocka_unit_test(test_check__names_legal_groups),
        cmocka_unit_test(test_check__numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
