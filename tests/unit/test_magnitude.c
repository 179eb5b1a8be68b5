/* Magnitude pruning's numerics against sorting, and mask counting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/rng.h"
#include "espalier/kernels.h"
#include "stages/magnitude_prune/magnitude.h"
#include "stages/prune_common/prune_mask.h"

#include <stdlib.h>
#include <string.h>

static int compare_words(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return (left > right) - (left < right);
}

/* Random finite values of a type, as sign-carrying words: about a quarter of them ties, some zeros,
 * some subnormal. */
static void fill_random(enum espl_dtype dtype, size_t count, void *raw, uint32_t *magnitudes)
{
    struct espl_rng rng = espl_rng_stream(11, espl_dtype_name(dtype), count);
    for (size_t i = 0; i < count; i++) {
        uint32_t word = (uint32_t)espl_rng_u64(&rng);
        if (dtype == ESPL_DTYPE_F32) {
            const uint64_t kind = espl_rng_below(&rng, 8);
            word = kind == 0 ? word & 0x80000003u : kind == 1 ? word & 0x80000000u : word;
            word = (word & 0x7f800000u) == 0x7f800000u ? word & 0xbfffffffu : word;
            ((uint32_t *)raw)[i] = word;
            magnitudes[i] = word & 0x7fffffffu;
        } else {
            const uint32_t exponent = dtype == ESPL_DTYPE_F16 ? 0x7c00u : 0x7f80u;
            word &= 0xffffu;
            word = (word & exponent) == exponent ? word & 0xbfffu : word;
            word = espl_rng_below(&rng, 4) == 0 ? word & 0x8003u : word;
            ((uint16_t *)raw)[i] = (uint16_t)word;
            magnitudes[i] = word & 0x7fffu;
        }
    }
}

static uint32_t select_in_pieces(enum espl_dtype dtype, const void *raw, size_t count, size_t piece,
                                 uint64_t rank)
{
    struct espl_magnitude_select *select = NULL;
    struct espl_error err;
    assert_int_equal(espl_magnitude_select_create(dtype, rank, &select, &err), ESPL_OK);
    for (unsigned pass = 0; pass < espl_magnitude_select_passes(select); pass++) {
        for (size_t i = 0; i < count; i += piece) {
            const size_t here = count - i < piece ? count - i : piece;
            const unsigned char *at = (const unsigned char *)raw + i * espl_dtype_size(dtype);
            assert_int_equal(espl_magnitude_select_add(select, at, here), here);
        }
        espl_magnitude_select_end_pass(select);
    }
    const uint32_t threshold = espl_magnitude_select_threshold(select);
    espl_magnitude_select_destroy(select);
    return threshold;
}

static void test_select__equals_sorting(void **state)
{
    (void)state;
    static const enum espl_dtype types[] = {ESPL_DTYPE_F16, ESPL_DTYPE_BF16, ESPL_DTYPE_F32};
    static const size_t counts[] = {1, 2, 97, 5003};
    for (size_t t = 0; t < 3; t++) {
        for (size_t c = 0; c < 4; c++) {
            const size_t count = counts[c];
            void *raw = malloc(count * 4);
            uint32_t *sorted = malloc(count * sizeof *sorted);
            assert_non_null(raw);
            assert_non_null(sorted);
            fill_random(types[t], count, raw, sorted);
            qsort(sorted, count, sizeof *sorted, compare_words);
            for (size_t k = 0; k < 10; k++) {
                const size_t rank = (size_t)((double)count * (double)k * 0.1);
                assert_int_equal(select_in_pieces(types[t], raw, count, 41, rank), sorted[rank]);
            }
            assert_int_equal(select_in_pieces(types[t], raw, count, count, count - 1),
                             sorted[count - 1]);
            free(raw);
            free(sorted);
        }
    }
}

static void test_select__finds_what_is_not_finite(void **state)
{
    (void)state;
    const uint16_t f16[3] = {0x3c00, 0xfbff, 0xfc00};  /* 1, -65504, -inf */
    const uint16_t bf16[3] = {0x7f7f, 0x7fc0, 0x3f80}; /* largest, NaN, 1 */
    const float f32[2] = {3.4028235e38f, -1.0f};
    struct espl_magnitude_select *select = NULL;
    struct espl_error err;
    assert_int_equal(espl_magnitude_select_create(ESPL_DTYPE_F16, 0, &select, &err), ESPL_OK);
    assert_int_equal(espl_magnitude_select_add(select, f16, 3), 2);
    espl_magnitude_select_destroy(select);
    assert_int_equal(espl_magnitude_select_create(ESPL_DTYPE_BF16, 0, &select, &err), ESPL_OK);
    assert_int_equal(espl_magnitude_select_add(select, bf16, 3), 1);
    espl_magnitude_select_destroy(select);
    assert_int_equal(espl_magnitude_select_create(ESPL_DTYPE_F32, 0, &select, &err), ESPL_OK);
    assert_int_equal(espl_magnitude_select_add(select, f32, 2), 2);
    espl_magnitude_select_destroy(select);
}

static void test_select__refuses_integers(void **state)
{
    (void)state;
    struct espl_magnitude_select *select = NULL;
    struct espl_error err;
    assert_int_equal(espl_magnitude_select_create(ESPL_DTYPE_I8, 0, &select, &err),
                     ESPL_E_UNSUPPORTED);
    assert_null(select);
    assert_string_equal(err.message, "weights of type i8 cannot be pruned");
}

/* |w| sorted: 0.5 1 1 1 2 3; position int(6 * 0.5) = 3 holds 1, and all that is <= 1 goes: four of
 * six, one tie more and the threshold itself, as the published baseline does. */
static void test_mask__threshold_and_ties_go(void **state)
{
    (void)state;
    const float w[6] = {-1.0f, 2.0f, 1.0f, 0.5f, -3.0f, 1.0f};
    const uint32_t threshold = select_in_pieces(ESPL_DTYPE_F32, w, 6, 6, 3);
    uint8_t mask[2] = {0xff, 0xff};
    float value;
    memcpy(&value, &threshold, sizeof value);
    assert_true(value == 1.0f);
    assert_int_equal(espl_magnitude_mask(ESPL_DTYPE_F32, w, 2, 3, threshold, mask), 2);
    assert_int_equal(mask[0], 0x2); /* row 0: only the 2 */
    assert_int_equal(mask[1], 0x2); /* row 1: only the -3 */
}

static void test_mask__sixteen_bit_types_and_row_padding(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 11 };
    static const enum espl_dtype types[] = {ESPL_DTYPE_F16, ESPL_DTYPE_BF16};
    for (size_t t = 0; t < 2; t++) {
        uint16_t raw[ROWS * COLS];
        uint32_t magnitudes[ROWS * COLS];
        uint8_t mask[ROWS * 2];
        uint64_t expected = 0;
        fill_random(types[t], ROWS * COLS, raw, magnitudes);
        const uint32_t threshold = select_in_pieces(types[t], raw, ROWS * COLS, 5, 16);
        memset(mask, 0xff, sizeof mask);
        const uint64_t kept = espl_magnitude_mask(types[t], raw, ROWS, COLS, threshold, mask);
        for (size_t i = 0; i < ROWS * 16; i++) {
            const size_t row = i / 16, col = i % 16;
            const bool keep = col < COLS && magnitudes[row * COLS + col] > threshold;
            assert_int_equal(((unsigned)mask[row * 2 + col / 8] >> (col % 8)) & 1u, keep);
            expected += keep;
        }
        assert_int_equal(kept, expected);
        assert_int_equal(espl_prune_mask_kept(mask, sizeof mask), expected);
    }
}

static void test_mask_kept__counts_every_length(void **state)
{
    (void)state;
    uint8_t bytes[29];
    struct espl_rng rng = espl_rng_stream(3, "bits", 0);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)espl_rng_u64(&rng);
    }
    for (size_t len = 0; len <= sizeof bytes; len++) {
        uint64_t expected = 0;
        for (size_t i = 0; i < 8 * len; i++) {
            expected += ((unsigned)bytes[i / 8] >> (i % 8)) & 1u;
        }
        assert_int_equal(espl_prune_mask_kept(bytes, len), expected);
    }
}

static void test_mask_intersect__is_the_union_of_removals(void **state)
{
    (void)state;
    uint8_t mask[2] = {0xf0, 0x3c};
    const uint8_t other[2] = {0xcc, 0xff};
    espl_prune_mask_intersect(mask, other, 2);
    assert_int_equal(mask[0], 0xc0);
    assert_int_equal(mask[1], 0x3c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select__equals_sorting),
        cmocka_unit_test(test_select__finds_what_is_not_finite),
        cmocka_unit_test(test_select__refuses_integers),
        cmocka_unit_test(test_mask__threshold_and_ties_go),
        cmocka_unit_test(test_mask__sixteen_bit_types_and_row_padding),
        cmocka_unit_test(test_mask_kept__counts_every_length),
        cmocka_unit_test(test_mask_intersect__is_the_union_of_removals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
