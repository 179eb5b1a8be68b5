/* SparseGPT's choice by groups. With the identity as Hessian nothing flows, so that the choice can
 * be checked by sorting squares; with a real one, groups must still be whole. */
#include "core/order.h"
#include "quant_oracle.h"
#include "stages/quant_common/sparsegpt.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 32, COLS = 192, BLOCK = 128, COUNT = ROWS * COLS };

static struct espl_inverse_factor factor_of(double *hessian)
{
    struct espl_inverse_factor factor = {0};
    assert_int_equal(espl_inverse_factor_create(hessian, COLS, 0.01, &factor, NULL), ESPL_OK);
    return factor;
}

/* Number of the group of 2 x 2 areas, by tile and place in it. */
static size_t area_group(size_t row, size_t col)
{
    return (row / 16 * 8 + row % 8) * COLS + col / 64 * 32 + col % 32;
}

/* Keeps what is above the threshold of its block of columns; by sums of groups, or one by one and
 * then all of a group that keeps any. */
static void oracle_choice(const float *w, double sparsity, bool fill, bool kept[COUNT])
{
    for (size_t first = 0; first < COLS; first += BLOCK) {
        const size_t last = first + BLOCK < COLS ? first + BLOCK : COLS;
        const size_t count = ROWS * (last - first);
        static double score[COUNT];
        static double sorted[COUNT];
        for (size_t i = 0; i < count; i++) {
            const size_t row = i / (last - first);
            const size_t col = first + i % (last - first);
            score[i] = 0.0;
            for (size_t other = 0; other < COUNT; other++) {
                const bool same =
                    fill ? other == row * COLS + col
                         : area_group(other / COLS, other % COLS) == area_group(row, col);
                score[i] += same ? (double)w[other] * (double)w[other] : 0.0;
            }
            sorted[i] = score[i];
        }
        qsort(sorted, count, sizeof *sorted, espl_compare_doubles);
        const double threshold = sorted[(size_t)((double)count * sparsity)];
        for (size_t i = 0; i < count; i++) {
            kept[i / (last - first) * COLS + first + i % (last - first)] = score[i] > threshold;
        }
    }
    for (size_t i = 0; fill && i < COUNT; i++) {
        for (size_t other = 0; other < COUNT && kept[i]; other++) {
            if (area_group(other / COLS, other % COLS) == area_group(i / COLS, i % COLS) &&
                !kept[other]) {
                kept[other] = true;
            }
        }
    }
}

static void check_choice(int fill)
{
    static bool kept[COUNT];
    float *w = oracle_weights(ROWS, COLS, 21);
    double *identity = oracle_identity(COLS);
    struct espl_inverse_factor factor = factor_of(identity);
    const struct espl_sparsegpt_task task = {.shape = {ROWS, COLS},
                                             .w = w,
                                             .factor = &factor,
                                             .sparsity = 0.6,
                                             .align = {{2, 2}, ESPL_ALIGN_AREAS, fill},
                                             .threads = 2};
    uint8_t mask[COUNT / 8];
    float *pruned = malloc(COUNT * sizeof *pruned);
    assert_non_null(pruned);
    oracle_choice(w, 0.6, fill == ESPL_ALIGN_FILL_UNION, kept);
    assert_int_equal(espl_sparsegpt(&task, mask, pruned, NULL, NULL, NULL), ESPL_OK);
    for (size_t i = 0; i < COUNT; i++) {
        if (oracle_kept(mask, COLS, i / COLS, i % COLS) != kept[i]) {
            fail_msg("row %zu, column %zu", i / COLS, i % COLS);
        }
        assert_true(pruned[i] == (kept[i] ? w[i] : 0.0F));
    }
    free(pruned);
    espl_inverse_factor_free(&factor);
    free(identity);
    free(w);
}

static void test_choice__by_summed_scores(void **state)
{
    (void)state;
    check_choice(ESPL_ALIGN_FILL_NONE);
}

static void test_choice__filled(void **state)
{
    (void)state;
    check_choice(ESPL_ALIGN_FILL_UNION);
}

/* Weights move, groups stay whole. */
static void test_choice__groups_are_whole_under_a_real_hessian(void **state)
{
    (void)state;
    enum { TOKENS = 400 };
    float *w = oracle_weights(ROWS, COLS, 22);
    float *x = oracle_activations(TOKENS, COLS, 23);
    double *hessian = oracle_hessian(x, TOKENS, COLS, COLS);
    struct espl_inverse_factor factor = factor_of(hessian);
    const struct espl_sparsegpt_task task = {.shape = {ROWS, COLS},
                                             .w = w,
                                             .factor = &factor,
                                             .sparsity = 0.5,
                                             .align = {{2, 2}, ESPL_ALIGN_AREAS, 0},
                                             .threads = 1};
    uint8_t mask[COUNT / 8];
    float *pruned = malloc(COUNT * sizeof *pruned);
    assert_non_null(pruned);
    assert_int_equal(espl_sparsegpt(&task, mask, pruned, NULL, NULL, NULL), ESPL_OK);
    size_t removed = 0;
    for (size_t i = 0; i < COUNT; i++) {
        const size_t row = i / COLS / 16 * 16 + i / COLS % 8;
        const size_t col = i % COLS / 64 * 64 + i % COLS % 32;
        const bool first = oracle_kept(mask, COLS, row, col);
        assert_int_equal(oracle_kept(mask, COLS, i / COLS, i % COLS), first);
        removed += first ? 0 : 1;
    }
    /* half of each block and the group at the threshold */
    assert_int_equal(removed, COUNT / 2 + 2 * 4);
    free(pruned);
    espl_inverse_factor_free(&factor);
    free(hessian);
    free(x);
    free(w);
}

static void test_errors__groups_that_do_not_fit(void **state)
{
    (void)state;
    static const struct {
        struct espl_align align;
        const char *message;
    } cases[] = {
        {{{1, 5}, ESPL_ALIGN_BLOCK, 0}, "align 1x5 does not fit 32 x 192 weights"},
        {{{1, 3}, ESPL_ALIGN_BLOCK, 0}, "groups of 3 columns cannot be chosen in blocks of 128"},
        {{{1, 8}, ESPL_ALIGN_AREAS, 0}, "align 1x8 does not fit 32 x 192 weights"},
    };
    float *w = oracle_weights(ROWS, COLS, 24);
    double *identity = oracle_identity(COLS);
    struct espl_inverse_factor factor = factor_of(identity);
    for (size_t i = 0; i < 3; i++) {
        const struct espl_sparsegpt_task task = {.shape = {ROWS, COLS},
                                                 .w = w,
                                                 .factor = &factor,
                                                 .sparsity = 0.5,
                                                 .align = cases[i].align,
                                                 .threads = 1};
        struct espl_error err;
        uint8_t mask[COUNT / 8];
        float *pruned = malloc(COUNT * sizeof *pruned);
        assert_non_null(pruned);
        assert_int_equal(espl_sparsegpt(&task, mask, pruned, NULL, NULL, &err), ESPL_E_JOB);
        assert_string_equal(err.message, cases[i].message);
        free(pruned);
    }
    espl_inverse_factor_free(&factor);
    free(identity);
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice__by_summed_scores),
        cmocka_unit_test(test_choice__filled),
        cmocka_unit_test(test_choice__groups_are_whole_under_a_real_hessian),
        cmocka_unit_test(test_errors__groups_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
