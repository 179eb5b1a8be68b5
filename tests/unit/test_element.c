#include "model/element.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

/* The definition of a half, by arithmetic: an oracle that shares nothing with the code. */
static double half_value(uint16_t half)
{
    const int exponent = half >> 10 & 31;
    const int mantissa = half & 1023;
    double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    if (exponent == 31) {
        value = mantissa == 0 ? (double)INFINITY : (double)NAN;
    }
    return (half & 0x8000) != 0 ? -value : value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void test_element_to_f32__every_half(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        const uint16_t half = (uint16_t)i;
        const double expected = half_value(half);
        float got = 0.0f;
        espl_element_to_f32(ESPL_DTYPE_F16, &half, 1, &got);
        if (isnan(expected)) {
            assert_true(isnan(got));
        } else {
            assert_int_equal(bits_of(got), bits_of((float)expected));
        }
    }
}

static uint16_t convert(enum espl_dtype dtype, float value, struct espl_element_loss *loss)
{
    uint16_t word = 0;
    espl_element_from_f32(dtype, &value, 1, &word, loss);
    return word;
}

static void test_element_from_f32__every_half_comes_back(void **state)
{
    struct espl_element_loss loss = {0, 0};
    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        const uint16_t half = (uint16_t)i;
        if ((half & 0x7fff) > 0x7c00) {
            continue; /* NaN: only that it stays one, below */
        }
        assert_int_equal(convert(ESPL_DTYPE_F16, (float)half_value(half), &loss), half);
    }
    assert_int_equal(loss.overflow, 0);
    assert_int_equal(loss.flushed, 0);
}

/* Between two neighbours: below the middle goes down, above goes up, the middle goes to even. */
static void test_element_from_f32__rounds_halves_to_nearest_even(void **state)
{
    struct espl_element_loss loss = {0, 0};
    (void)state;
    for (unsigned i = 0; i < 0x7bff; i++) {
        const double low = half_value((uint16_t)i);
        const double high = half_value((uint16_t)(i + 1));
        const float middle = (float)((low + high) / 2); /* 12 bits: exact */
        const uint16_t even = (uint16_t)(i % 2 == 0 ? i : i + 1);
        assert_int_equal(convert(ESPL_DTYPE_F16, middle, &loss), even);
        assert_int_equal(convert(ESPL_DTYPE_F16, nextafterf(middle, 0.0f), &loss), i);
        assert_int_equal(convert(ESPL_DTYPE_F16, nextafterf(middle, INFINITY), &loss), i + 1);
        assert_int_equal(convert(ESPL_DTYPE_F16, -middle, &loss), even | 0x8000);
    }
}

static void test_element_from_f32__counts_what_is_lost(void **state)
{
    struct espl_element_loss loss = {0, 0};
    (void)state;
    assert_int_equal(convert(ESPL_DTYPE_F16, 65519.0f, &loss), 0x7bff);
    assert_int_equal(loss.overflow, 0);
    assert_int_equal(convert(ESPL_DTYPE_F16, 65520.0f, &loss), 0x7c00);
    assert_int_equal(convert(ESPL_DTYPE_F16, -1e30f, &loss), 0xfc00);
    assert_int_equal(loss.overflow, 2);
    assert_int_equal(convert(ESPL_DTYPE_F16, INFINITY, &loss), 0x7c00);
    assert_int_equal(loss.overflow, 2);
    assert_int_equal(convert(ESPL_DTYPE_F16, 0x1p-25f, &loss), 0); /* tie to even */
    assert_int_equal(convert(ESPL_DTYPE_F16, 1e-40f, &loss), 0);
    assert_int_equal(loss.flushed, 2);
    assert_int_equal(convert(ESPL_DTYPE_F16, -0.0f, &loss), 0x8000);
    assert_int_equal(loss.flushed, 2);
    assert_int_equal(convert(ESPL_DTYPE_BF16, 3.4028235e38f, &loss), 0x7f80);
    assert_int_equal(loss.overflow, 3);
    assert_true((convert(ESPL_DTYPE_F16, NAN, &loss) & 0x7fff) > 0x7c00);
    assert_true((convert(ESPL_DTYPE_BF16, NAN, &loss) & 0x7fff) > 0x7f80);
}

static void test_element_from_f32__rounds_bf16_to_nearest_even(void **state)
{
    struct espl_element_loss loss = {0, 0};
    (void)state;
    /* 1 + k/128; a step of a bf16 at 1 is 2^-7 */
    assert_int_equal(convert(ESPL_DTYPE_BF16, 1.0f, &loss), 0x3f80);
    assert_int_equal(convert(ESPL_DTYPE_BF16, 1.0f + 0x1p-8f, &loss), 0x3f80);
    assert_int_equal(convert(ESPL_DTYPE_BF16, 1.0f + 0x1p-8f + 0x1p-20f, &loss), 0x3f81);
    assert_int_equal(convert(ESPL_DTYPE_BF16, 1.0f + 0x3p-8f, &loss), 0x3f82);
    assert_int_equal(convert(ESPL_DTYPE_BF16, -1.0f - 0x3p-8f, &loss), 0xbf82);
    for (unsigned i = 0; i < 0x7f80; i++) {
        const uint16_t word = (uint16_t)i;
        float value = 0.0f;
        espl_element_to_f32(ESPL_DTYPE_BF16, &word, 1, &value);
        assert_int_equal(bits_of(value), (uint32_t)i << 16);
        assert_int_equal(convert(ESPL_DTYPE_BF16, value, &loss), word);
    }
}

static void test_element_count_odd__finds_them_in_every_type(void **state)
{
    const uint16_t halves[] = {0x7c00, 0xfc00, 0x7c01, 0xffff, 0x7bff, 0x0000, 0x8001};
    const uint16_t bfloats[] = {0x7f80, 0xff80, 0x7f81, 0xffff, 0x7f7f, 0x0000, 0x7c01};
    const float singles[] = {INFINITY, -INFINITY, NAN, -NAN, 3.4e38f, 0.0f, -1.0f};
    (void)state;
    const void *const data[] = {halves, bfloats, singles};
    const enum espl_dtype dtypes[] = {ESPL_DTYPE_F16, ESPL_DTYPE_BF16, ESPL_DTYPE_F32};
    for (size_t i = 0; i < 3; i++) {
        uint64_t nan = 10;
        uint64_t infinite = 20;
        espl_element_count_odd(dtypes[i], data[i], 7, &nan, &infinite);
        assert_int_equal(nan, 12);
        assert_int_equal(infinite, 22);
    }
}

static void test_element_mask_row__zeroes_exactly_the_removed(void **state)
{
    const uint8_t mask[] = {0xb5, 0x02}; /* columns 0 2 4 5 7 9 stay */
    uint16_t words[11];
    float singles[11];
    (void)state;
    for (unsigned i = 0; i < 11; i++) {
        words[i] = (uint16_t)(0x8000u + i + 1);
        singles[i] = -(float)(i + 1);
    }
    espl_element_mask_row(ESPL_DTYPE_BF16, words, 11, mask);
    espl_element_mask_row(ESPL_DTYPE_F32, singles, 11, mask);
    static const bool stays[11] = {1, 0, 1, 0, 1, 1, 0, 1, 0, 1, 0};
    for (unsigned i = 0; i < 11; i++) {
        assert_int_equal(words[i], stays[i] ? 0x8000u + i + 1 : 0);
        assert_int_equal(bits_of(singles[i]), stays[i] ? bits_of(-(float)(i + 1)) : 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_element_to_f32__every_half),
        cmocka_unit_test(test_element_from_f32__every_half_comes_back),
        cmocka_unit_test(test_element_from_f32__rounds_halves_to_nearest_even),
        cmocka_unit_test(test_element_from_f32__counts_what_is_lost),
        cmocka_unit_test(test_element_from_f32__rounds_bf16_to_nearest_even),
        cmocka_unit_test(test_element_count_odd__finds_them_in_every_type),
        cmocka_unit_test(test_element_mask_row__zeroes_exactly_the_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
