/* Packed codes: bytes by hand, round trips for every width, padding. */
#include "core/codes.h"
#include "support/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

static void test_pack__four_bits_by_hand(void **state)
{
    (void)state;
    static const int8_t codes[2 * 3] = {1, -1, 7, -8, 0, -3};
    static const uint8_t expected[2 * 2] = {0xF1, 0x07, 0x08, 0x0D};
    uint8_t packed[4] = {0xEE, 0xEE, 0xEE, 0xEE};
    assert_int_equal(espl_codes_stride(3, 4), 2);
    espl_codes_pack(codes, 2, 3, 4, packed);
    assert_memory_equal(packed, expected, sizeof expected);
}

/* 3 bits: 1, -1 (111), 2 (010) and -4 (100), 3 (011): bits from the lowest on are
 * 100 111 01|0 001 110 0: 0xB9 = 10111001, 0x38 = 00111000. */
static void test_pack__three_bits_by_hand(void **state)
{
    (void)state;
    static const int8_t codes[5] = {1, -1, 2, -4, 3};
    uint8_t packed[2];
    assert_int_equal(espl_codes_stride(5, 3), 2);
    espl_codes_pack(codes, 1, 5, 3, packed);
    assert_int_equal(packed[0], 1 + (7 << 3) + ((2 & 3) << 6));
    assert_int_equal(packed[1], (2 >> 2) + (4 << 1) + (3 << 4));
}

static void test_pack__round_trip_for_all_widths(void **state)
{
    (void)state;
    enum { MOST = 41, ROWS = 3 };
    int8_t codes[ROWS * MOST], back[ROWS * MOST];
    uint8_t packed[ROWS * MOST + 1];
    uint64_t seed = 1;
    for (unsigned bits = ESPL_CODES_MIN_BITS; bits <= ESPL_CODES_MAX_BITS; bits++) {
        for (size_t cols = 1; cols <= MOST; cols++) {
            const size_t stride = espl_codes_stride(cols, bits);
            assert_int_equal(stride, (cols * bits + 7) / 8);
            for (size_t i = 0; i < ROWS * cols; i++) {
                seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
                codes[i] = (int8_t)((int)((seed >> 40) % (1u << bits)) - (1 << (bits - 1)));
            }
            codes[0] = (int8_t) - (1 << (bits - 1));
            codes[ROWS * cols - 1] = (int8_t)((1 << (bits - 1)) - 1);
            memset(packed, 0xFF, sizeof packed);
            espl_codes_pack(codes, ROWS, cols, bits, packed);
            assert_int_equal(packed[ROWS * stride], 0xFF); /* nothing behind the end */
            const unsigned used = (unsigned)(cols * bits % 8);
            for (size_t r = 0; r < ROWS && used != 0; r++) {
                assert_int_equal(packed[(r + 1) * stride - 1] >> used, 0);
            }
            espl_codes_unpack(packed, ROWS, cols, bits, back);
            assert_memory_equal(back, codes, ROWS * cols);
        }
    }
}

static void test_stride__does_not_overflow(void **state)
{
    (void)state;
    assert_true(espl_codes_stride(SIZE_MAX, 8) == SIZE_MAX);
    assert_true(espl_codes_stride(0, 4) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack__four_bits_by_hand),
        cmocka_unit_test(test_pack__three_bits_by_hand),
        cmocka_unit_test(test_pack__round_trip_for_all_widths),
        cmocka_unit_test(test_stride__does_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
