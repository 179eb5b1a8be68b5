/* Wanda's numerics against hand-worked numbers and slow oracles. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/rng.h"
#include "espalier/kernels.h"
#include "stages/wanda_prune/wanda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct espl_backend *open_backend(const char *name, unsigned threads)
{
    struct espl_backend *backend = NULL;
    struct espl_error err;
    assert_int_equal(espl_backend_open(name, threads, &backend, &err), ESPL_OK);
    return backend;
}

static bool bit(const uint8_t *mask, size_t cols, size_t row, size_t col)
{
    return ((unsigned)mask[row * espl_mask_stride(cols) + col / 8] >> (col % 8) & 1u) != 0;
}

static float *random_floats(const char *stream, size_t count, bool coarse)
{
    struct espl_rng rng = espl_rng_stream(7, stream, 0);
    float *values = malloc(count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        /* coarse: few different values, so that ties are common */
        values[i] = coarse ? (float)((double)espl_rng_below(&rng, 9) - 4.0) / 4.0f
                           : (float)espl_rng_normal(&rng);
    }
    return values;
}

static void test_row_prune__truncates_the_double_product(void **state)
{
    (void)state;
    assert_int_equal(espl_prune_row_count(7, 0.5), 3);
    assert_int_equal(espl_prune_row_count(8, 0.5), 4);
    assert_int_equal(espl_prune_row_count(10, 0.7), 7);
    assert_int_equal(espl_prune_row_count(10, 0.3), 3);
    assert_int_equal(espl_prune_row_count(100, 0.29), 28); /* 100 * 0.29 = 28.999999999999996 */
    assert_int_equal(espl_prune_row_count(5, 0.0), 0);
}

static void test_norms__root_of_mean_over_windows(void **state)
{
    (void)state;
    const double sums[3] = {0.0, 32.0, 1e-60};
    float norm[3];
    assert_int_equal(espl_wanda_norms(sums, 3, 2, norm), 3);
    assert_true(norm[0] == 0.0f);
    assert_true(norm[1] == 4.0f);
    assert_true(norm[2] == (float)sqrt(0.5e-60));
}

static void test_norms__names_the_first_that_is_not_finite(void **state)
{
    (void)state;
    const double sums[4] = {1.0, 1e78, NAN, 2.0}; /* sqrt(1e78) does not fit in float32 */
    float norm[4];
    assert_int_equal(espl_wanda_norms(sums, 4, 1, norm), 1);
}

/* 3 x 8 by hand. norm 1 1 1 1 2 2 0.5 0: scores are
 *   1 1 1 1 2 2 0.5 0  -> loses 7, 6, then the ties 0 and 1
 *   4 3 2 1 2 4 4 0    -> loses 7, 3, then of the ties 2 and 4 both (four in all)
 *   0 0 0 0 0 0 0 0    -> loses 0 1 2 3 */
static void test_mask__hand_case_with_ties(void **state)
{
    (void)state;
    const float w[24] = {1, -1, 1, -1, 1, 1, 1, 1, -4, 3, 2, 1, 1, 2, 8, 9, 0, 0, 0, 0, 0, 0, 0, 0};
    const float norm[8] = {1, 1, 1, 1, 2, 2, 0.5f, 0};
    const uint8_t expected[3] = {0x3c, 0x63, 0xf0};
    const struct espl_matrix_shape shape = {3, 8};
    const struct espl_wanda_task task = {.sparsity = 0.5};
    const char *const names[] = {"ref", "cpu"};
    for (size_t i = 0; i < 2; i++) {
        struct espl_backend *backend = open_backend(names[i], 1);
        struct espl_error err;
        uint8_t mask[3] = {0xff, 0xff, 0xff};
        assert_int_equal(espl_wanda_mask(backend, &shape, w, norm, &task, mask, &err), ESPL_OK);
        assert_memory_equal(mask, expected, sizeof expected);
        espl_backend_close(backend);
    }
}

/* 1:4 keeps one of four: the place where the published code's "n removed" would differ. */
static void test_mask__one_of_four_keeps_one(void **state)
{
    (void)state;
    const float w[8] = {1, 2, 3, 4, 5, 5, 5, 5};
    const float norm[8] = {9, 1, 1, 1, 1, 1, 1, 1};
    const struct espl_matrix_shape shape = {1, 8};
    const struct espl_wanda_task task = {.nm.pattern = {1, 4}};
    struct espl_backend *backend = open_backend("ref", 1);
    struct espl_error err;
    uint8_t mask = 0;
    assert_int_equal(espl_wanda_mask(backend, &shape, w, norm, &task, &mask, &err), ESPL_OK);
    assert_int_equal(mask, 0x81); /* column 0 by its norm; of four equals the last */
    espl_backend_close(backend);
}

/* Is (a, i) removed before (b, j)? */
static bool goes_first(float a, size_t i, float b, size_t j)
{
    return a < b || (a == b && i < j);
}

/* The definition: a weight goes when fewer than `prune` others of its window go before it. */
static bool slow_keeps(const float *score, size_t first, size_t count, size_t prune, size_t col)
{
    size_t before = 0;
    for (size_t j = first; j < first + count; j++) {
        before += j != col && goes_first(score[j], j, score[col], col);
    }
    return before >= prune;
}

static void check_against_definition(size_t rows, size_t cols, const struct espl_wanda_task *task,
                                     bool coarse, const char *name, unsigned threads)
{
    const struct espl_matrix_shape shape = {rows, cols};
    struct espl_backend *backend = open_backend(name, threads);
    struct espl_error err;
    float *w = random_floats("w", rows * cols, coarse);
    float *norm = random_floats("norm", cols, coarse);
    float *score = malloc(cols * sizeof *score);
    uint8_t *mask = malloc(rows * espl_mask_stride(cols));
    assert_non_null(score);
    assert_non_null(mask);
    for (size_t j = 0; j < cols; j++) {
        norm[j] = fabsf(norm[j]);
    }
    memset(mask, 0x5a, rows * espl_mask_stride(cols));
    assert_int_equal(espl_wanda_mask(backend, &shape, w, norm, task, mask, &err), ESPL_OK);
    const size_t m = task->nm.pattern.m > 0 ? task->nm.pattern.m : cols;
    const size_t prune =
        task->nm.pattern.m > 0 ? m - task->nm.pattern.n : (size_t)((double)cols * task->sparsity);
    for (size_t i = 0; i < rows; i++) {
        const size_t shared = task->nm.vector > 1 ? task->nm.vector : 1;
        const size_t first_row = i / shared * shared;
        for (size_t j = 0; j < cols; j++) {
            double sum = 0.0;
            for (size_t r = first_row; r < first_row + shared && r < rows; r++) {
                sum += (double)(fabsf(w[r * cols + j]) * norm[j]);
            }
            score[j] = (float)sum;
        }
        for (size_t j = 0; j < cols; j++) {
            const size_t first = j / m * m;
            const bool keeps = first + m > cols || slow_keeps(score, first, m, prune, j);
            assert_int_equal(bit(mask, cols, i, j), keeps);
        }
        for (size_t j = cols; j < 8 * espl_mask_stride(cols); j++) {
            assert_false(bit(mask, cols, i, j));
        }
    }
    free(w);
    free(norm);
    free(score);
    free(mask);
    espl_backend_close(backend);
}

static void test_mask__equals_the_definition_on_odd_sizes(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{1, 1}, {5, 3}, {7, 31}, {13, 97}, {3, 257}};
    static const double sparsities[] = {0.0, 0.5, 0.7, 0.99};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (size_t j = 0; j < sizeof sparsities / sizeof sparsities[0]; j++) {
            const struct espl_wanda_task task = {.sparsity = sparsities[j]};
            check_against_definition(sizes[i][0], sizes[i][1], &task, false, "ref", 1);
            check_against_definition(sizes[i][0], sizes[i][1], &task, true, "cpu", 2);
        }
    }
}

static void test_mask__nm_equals_the_definition_with_a_dense_tail(void **state)
{
    (void)state;
    static const struct espl_nm patterns[] = {{2, 4}, {4, 8}, {1, 4}, {3, 5}, {4, 4}};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        const struct espl_wanda_task task = {.nm = {.pattern = patterns[i], .keep_tail = true}};
        const struct espl_wanda_task shared = {
            .nm = {.pattern = patterns[i], .keep_tail = true, .vector = 4}};
        check_against_definition(9, 43, &task, true, "ref", 1);
        check_against_definition(9, 43, &task, true, "cpu", 2);
        check_against_definition(2, 3, &task, false, "cpu", 2);
        check_against_definition(9, 43, &shared, true, "cpu", 2);
        /* More rows than a piece, whose end would cut a group of 48 rows in two. */
        const struct espl_wanda_task wide = {
            .nm = {.pattern = patterns[i], .keep_tail = true, .vector = 48}};
        check_against_definition(130, 16000, &wide, false, "cpu", 2);
    }
}

/* More elements than one piece, so that the cut into pieces shows. */
static void test_mask__pieces_and_threads_do_not_show(void **state)
{
    (void)state;
    enum { ROWS = 700, COLS = 2100 };
    const struct espl_matrix_shape shape = {ROWS, COLS};
    const struct espl_wanda_task task = {.sparsity = 0.5};
    const size_t bytes = ROWS * espl_mask_stride(COLS);
    float *w = random_floats("w", (size_t)ROWS * COLS, true);
    float *norm = malloc(COLS * sizeof *norm);
    uint8_t *first = malloc(bytes), *other = malloc(bytes);
    struct espl_error err;
    assert_non_null(norm);
    assert_non_null(first);
    assert_non_null(other);
    for (size_t j = 0; j < COLS; j++) {
        norm[j] = 1.0f + (float)(j % 3);
    }
    struct espl_backend *backend = open_backend("ref", 1);
    assert_int_equal(espl_wanda_mask(backend, &shape, w, norm, &task, first, &err), ESPL_OK);
    espl_backend_close(backend);
    for (unsigned threads = 1; threads <= 3; threads++) {
        backend = open_backend("cpu", threads);
        assert_int_equal(espl_wanda_mask(backend, &shape, w, norm, &task, other, &err), ESPL_OK);
        assert_memory_equal(first, other, bytes);
        espl_backend_close(backend);
    }
    /* a row of the second piece alone gives the same bits */
    backend = open_backend("ref", 1);
    const struct espl_matrix_shape one = {1, COLS};
    assert_int_equal(
        espl_wanda_mask(backend, &one, w + (size_t)650 * COLS, norm, &task, other, &err), ESPL_OK);
    assert_memory_equal(first + 650 * espl_mask_stride(COLS), other, espl_mask_stride(COLS));
    espl_backend_close(backend);
    free(w);
    free(norm);
    free(first);
    free(other);
}

static void test_mask__weight_that_is_not_finite(void **state)
{
    (void)state;
    const float w[6] = {1, 2, 3, 4, INFINITY, 6};
    const float norm[3] = {1, 1, 1};
    const struct espl_matrix_shape shape = {2, 3};
    const struct espl_wanda_task task = {.sparsity = 0.5};
    struct espl_backend *backend = open_backend("cpu", 1);
    struct espl_error err;
    uint8_t mask[2];
    assert_int_equal(espl_wanda_mask(backend, &shape, w, norm, &task, mask, &err), ESPL_E_NUMERIC);
    assert_string_equal(err.message, "weight at row 1, column 1 is not finite");
    espl_backend_close(backend);
}

static void test_mask__empty_matrix(void **state)
{
    (void)state;
    const struct espl_matrix_shape shape = {0, 3};
    const struct espl_wanda_task task = {.sparsity = 0.5};
    struct espl_backend *backend = open_backend("ref", 1);
    struct espl_error err;
    assert_int_equal(espl_wanda_mask(backend, &shape, NULL, NULL, &task, NULL, &err), ESPL_E_KIND);
    espl_backend_close(backend);
}

/* Scores of row 0 sorted: 1 2 3 4, total 10, running sums 1 3 6 10. At alpha 0.4 the sum 3 is the
 * last that is not above 4, so 1 and 2 go: half of the row. Row 1: 1 1 1 1, sums 1 2 3 4, alpha
 * gives 1.6: the first goes and takes its ties along. Row 2: 10 1 1 1, sums 1 2 3 13, alpha gives
 * 5.2: the three ones go. Sparsity 9/12 at alpha 0.4, and the wanted 0.75 is reached at once. */
static void test_mask__cumulative_by_hand(void **state)
{
    (void)state;
    const float w[12] = {3, -1, 4, 2, 1, 1, -1, 1, 10, 1, 1, 1};
    const float norm[4] = {1, 1, 1, 1};
    const struct espl_matrix_shape shape = {3, 4};
    const struct espl_wanda_task task = {.sparsity = 0.75, .rule = ESPL_WANDA_CUMULATIVE};
    struct espl_backend *backend = open_backend("ref", 1);
    struct espl_error err;
    uint8_t mask[3];
    assert_int_equal(espl_wanda_mask(backend, &shape, w, norm, &task, mask, &err), ESPL_OK);
    assert_int_equal(mask[0], 0x5);
    assert_int_equal(mask[1], 0x0);
    assert_int_equal(mask[2], 0x1);
    espl_backend_close(backend);
}

static int compare_floats(const void *a, const void *b)
{
    const float left = *(const float *)a, right = *(const float *)b;
    return (left > right) - (left < right);
}

/* One evaluation of the published rule, written from its formula. */
static double slow_cumulative(const float *score, size_t rows, size_t cols, double alpha,
                              bool *removed)
{
    float *sorted = malloc(cols * sizeof *sorted);
    size_t count = 0;
    assert_non_null(sorted);
    for (size_t i = 0; i < rows; i++) {
        const float *line = score + i * cols;
        double total = 0.0, sum = 0.0;
        size_t within = 0;
        memcpy(sorted, line, cols * sizeof *sorted);
        qsort(sorted, cols, sizeof *sorted, compare_floats);
        for (size_t j = 0; j < cols; j++) {
            total += (double)sorted[j];
        }
        for (size_t j = 0; j < cols; j++) {
            sum += (double)sorted[j];
            within += sum <= total * alpha;
        }
        for (size_t j = 0; j < cols; j++) {
            removed[i * cols + j] = within > 0 && line[j] <= sorted[within - 1];
            count += removed[i * cols + j];
        }
    }
    free(sorted);
    return (double)count / (double)(rows * cols);
}

static void test_mask__cumulative_equals_a_slow_bisection(void **state)
{
    (void)state;
    enum { ROWS = 37, COLS = 131 };
    static const double wanted[] = {0.2, 0.5, 0.6, 0.9};
    const struct espl_matrix_shape shape = {ROWS, COLS};
    struct espl_backend *backend = open_backend("cpu", 2);
    struct espl_error err;
    float *w = random_floats("w", ROWS * COLS, false);
    float *norm = random_floats("norm", COLS, false);
    float *score = malloc(ROWS * COLS * sizeof *score);
    bool *removed = malloc(ROWS * COLS * sizeof *removed);
    uint8_t *mask = malloc(ROWS * espl_mask_stride(COLS));
    assert_non_null(score);
    assert_non_null(removed);
    assert_non_null(mask);
    for (size_t i = 0; i < ROWS * COLS; i++) {
        norm[i % COLS] = fabsf(norm[i % COLS]);
        score[i] = fabsf(w[i]) * norm[i % COLS];
    }
    for (size_t k = 0; k < sizeof wanted / sizeof wanted[0]; k++) {
        const struct espl_wanda_task task = {.sparsity = wanted[k], .rule = ESPL_WANDA_CUMULATIVE};
        double low = 0.0, high = 0.8, alpha = 0.4;
        double reached = slow_cumulative(score, ROWS, COLS, alpha, removed);
        while (fabs(reached - wanted[k]) > 0.001 && high - low >= 0.001) {
            *(reached > wanted[k] ? &high : &low) = alpha;
            alpha = 0.5 * (low + high);
            reached = slow_cumulative(score, ROWS, COLS, alpha, removed);
        }
        assert_int_equal(espl_wanda_mask(backend, &shape, w, norm, &task, mask, &err), ESPL_OK);
        for (size_t i = 0; i < ROWS; i++) {
            for (size_t j = 0; j < COLS; j++) {
                assert_int_equal(bit(mask, COLS, i, j), !removed[i * COLS + j]);
            }
        }
    }
    free(w);
    free(norm);
    free(score);
    free(removed);
    free(mask);
    espl_backend_close(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row_prune__truncates_the_double_product),
        cmocka_unit_test(test_norms__root_of_mean_over_windows),
        cmocka_unit_test(test_norms__names_the_first_that_is_not_finite),
        cmocka_unit_test(test_mask__hand_case_with_ties),
        cmocka_unit_test(test_mask__one_of_four_keeps_one),
        cmocka_unit_test(test_mask__equals_the_definition_on_odd_sizes),
        cmocka_unit_test(test_mask__nm_equals_the_definition_with_a_dense_tail),
        cmocka_unit_test(test_mask__pieces_and_threads_do_not_show),
        cmocka_unit_test(test_mask__weight_that_is_not_finite),
        cmocka_unit_test(test_mask__empty_matrix),
        cmocka_unit_test(test_mask__cumulative_by_hand),
        cmocka_unit_test(test_mask__cumulative_equals_a_slow_bisection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
