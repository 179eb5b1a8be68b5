/* Ranks within windows: hand-worked ties, nesting, counts, shared patterns, packing, INT8 rounding.
 */
#include "support/cmocka_all.h"

#include "core/codes.h"
#include "core/rng.h"
#include "stages/nm_supernet/nm_int8.h"
#include "stages/nm_supernet/nm_rank.h"

#include <math.h>
#include <string.h>

static void test_rank__ties_go_to_the_lower_input(void **state)
{
    (void)state;
    const struct espl_matrix_shape shape = {1, 8};
    const float weights[] = {1.0f, -3.0f, 3.0f, 0.0f, -1.0f, 2.0f, 0.0f, 1.0f};
    const uint8_t expected[] = {3, 0, 1, 6, 4, 2, 7, 5};
    uint8_t ranks[8];
    espl_nm_rank(&shape, 8, 1, weights, ranks);
    assert_memory_equal(ranks, expected, sizeof ranks);
}

static void test_rank__every_window_of_four_on_its_own(void **state)
{
    (void)state;
    const struct espl_matrix_shape shape = {2, 8};
    const float weights[] = {4, 3, 2, 1, 5, 6, 7, 8, -1, 1, -2, 2, 0, 0, 0, 0};
    const uint8_t expected[] = {0, 1, 2, 3, 3, 2, 1, 0, 2, 3, 0, 1, 0, 1, 2, 3};
    uint8_t ranks[16];
    espl_nm_rank(&shape, 4, 1, weights, ranks);
    assert_memory_equal(ranks, expected, sizeof ranks);
}

/* Two rows share: sums of |w| are 3, 5, 4, 1; the third row stands alone. */
static void test_rank__vector_sums_over_the_group(void **state)
{
    (void)state;
    const struct espl_matrix_shape shape = {3, 4};
    const float weights[] = {1, -4, 0, 1, -2, 1, 4, 0, 0, 0, 0, 9};
    const uint8_t expected[] = {2, 0, 1, 3, 1, 2, 3, 0};
    uint8_t ranks[8];
    float masked[12];
    const float kept[] = {0, -4, 0, 0, 0, 1, 0, 0, 0, 0, 0, 9};
    assert_int_equal(espl_nm_groups(3, 2), 2);
    espl_nm_rank(&shape, 4, 2, weights, ranks);
    assert_memory_equal(ranks, expected, sizeof expected);
    espl_nm_apply(&shape, 2, ranks, 1, weights, masked);
    assert_memory_equal(masked, kept, sizeof kept);
}

/* Of random weights: N kept in every window, none of them smaller than a removed one, and all kept
 * by N also kept by N + 1. */
static void test_mask__is_the_largest_n_and_nested(void **state)
{
    (void)state;
    enum { ROWS = 5, COLS = 48 };
    const struct espl_matrix_shape shape = {ROWS, COLS};
    struct espl_rng rng = espl_rng_stream(4, "rank", 0);
    float weights[ROWS * COLS];
    uint8_t ranks[ROWS * COLS];
    uint8_t mask[ROWS * (COLS / 8)];
    uint8_t before[sizeof mask];
    for (size_t i = 0; i < ROWS * COLS; i++) {
        weights[i] = (float)espl_rng_normal(&rng);
    }
    for (unsigned m = 4; m <= 16; m *= 2) {
        espl_nm_rank(&shape, m, 1, weights, ranks);
        memset(before, 0, sizeof before);
        for (unsigned n = 1; n <= m; n++) {
            espl_nm_mask(&shape, 1, ranks, n, mask);
            for (size_t window = 0; window < ROWS * COLS; window += m) {
                unsigned kept = 0;
                float least = INFINITY;
                float most = 0.0f;
                for (size_t i = window; i < window + m; i++) {
                    const bool bit = ((unsigned)mask[i / 8] >> i % 8 & 1u) != 0;
                    kept += bit;
                    least = bit ? fminf(least, fabsf(weights[i])) : least;
                    most = bit ? most : fmaxf(most, fabsf(weights[i]));
                }
                assert_int_equal(kept, n);
                assert_true(least >= most);
            }
            for (size_t i = 0; i < sizeof mask; i++) {
                assert_int_equal(before[i] & mask[i], before[i]);
            }
            memcpy(before, mask, sizeof mask);
        }
    }
}

static void test_pack__keeps_all_ranks(void **state)
{
    (void)state;
    const unsigned windows[] = {4, 8, 16};
    for (size_t w = 0; w < 3; w++) {
        const unsigned m = windows[w];
        const unsigned bits = espl_nm_rank_bits(m);
        int8_t ranks[16];
        int8_t back[16];
        uint8_t packed[8];
        for (int i = 0; i < 16; i++) {
            ranks[i] = (int8_t)((unsigned)i % m);
        }
        espl_codes_pack(ranks, 1, 16, bits, packed);
        assert_int_equal(espl_codes_stride(16, bits), 2 * bits);
        espl_codes_unpack(packed, 1, 16, bits, back);
        for (int i = 0; i < 16; i++) {
            assert_int_equal((unsigned)back[i] & (m - 1u), (unsigned)i % m);
        }
    }
    assert_int_equal(espl_nm_rank_bits(6), 0);
}

/* scale = 127 / 127 = 1: halves go to even; a row of zeros stays. */
static void test_int8__hand_worked(void **state)
{
    (void)state;
    float x[] = {127.0f, -2.5f, 3.5f, 0.4f, 0.0f, 0.0f, 0.0f, 0.0f};
    const float expected[] = {127.0f, -2.0f, 4.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
    espl_nm_round_int8(x, 2, 4);
    for (size_t i = 0; i < 8; i++) {
        assert_true(x[i] == expected[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank__ties_go_to_the_lower_input),
        cmocka_unit_test(test_rank__every_window_of_four_on_its_own),
        cmocka_unit_test(test_rank__vector_sums_over_the_group),
        cmocka_unit_test(test_mask__is_the_largest_n_and_nested),
        cmocka_unit_test(test_pack__keeps_all_ranks),
        cmocka_unit_test(test_int8__hand_worked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
