/* SparseGPT against a slow version of the same specification, and the properties it must have. */
#include "core/order.h"
#include "quant_oracle.h"
#include "stages/quant_common/column_choice.h"
#include "stages/quant_common/sparsegpt.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, TOKENS = 96, BLOCK = 128 };

struct result {
    uint8_t *mask;
    float *pruned;
    struct espl_quantised quantised;
    double loss;
};

static struct result run(const struct espl_sparsegpt_task *task)
{
    const size_t stride = espl_mask_stride(task->shape.cols);
    struct result result = {.mask = calloc(task->shape.rows, stride),
                            .pruned = calloc(task->shape.rows * task->shape.cols, sizeof(float))};
    struct espl_error err;
    enum espl_status status = ESPL_OK;
    assert_non_null(result.mask);
    assert_non_null(result.pruned);
    if (task->quantiser != NULL) {
        status = espl_quantised_create(task->quantiser, &task->shape, &result.quantised, &err);
    }
    if (status == ESPL_OK) {
        status =
            espl_sparsegpt(task, result.mask, result.pruned,
                           task->quantiser != NULL ? &result.quantised : NULL, &result.loss, &err);
    }
    if (status != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return result;
}

static void free_result(struct result *result)
{
    free(result->mask);
    free(result->pruned);
    espl_quantised_free(&result->quantised);
}

static struct espl_inverse_factor factor_of(const double *hessian, size_t cols)
{
    struct espl_inverse_factor factor;
    struct espl_error err;
    if (espl_inverse_factor_create(hessian, cols, ESPL_DAMP_DEFAULT, &factor, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return factor;
}

/* The slow version: no panels, every update goes over the whole rest of the row at once; except
 * that an unstructured choice looks at a whole block. */
struct slow {
    size_t cols, keep, window;
    double sparsity;
    const struct oracle_format *format;
    const double *upper;
    double *w;
    bool *kept;
};

static double score(const struct slow *slow, size_t row, size_t column)
{
    return pow(slow->w[row * slow->cols + column], 2.0) /
           pow(slow->upper[column * slow->cols + column], 2.0);
}

/* Blocks of 128 columns begin at column 0 and at the first outlier. */
static bool begins_block(const struct slow *slow, size_t column)
{
    const size_t outliers = slow->format != NULL ? slow->format->outliers : 0;
    const size_t normal = slow->cols - outliers;
    return (column < normal ? column : column - normal) % BLOCK == 0;
}

static void choose_block(const struct slow *slow, size_t first)
{
    size_t last = first + 1;
    while (last < slow->cols && !begins_block(slow, last)) {
        last++;
    }
    const size_t count = ROWS * (last - first);
    double *scores = calloc(count, sizeof *scores);
    assert_non_null(scores);
    for (size_t i = 0; i < count; i++) {
        scores[i] = score(slow, i % ROWS, first + i / ROWS);
    }
    qsort(scores, count, sizeof *scores, espl_compare_doubles);
    const double threshold = scores[(size_t)((double)count * slow->sparsity)];
    for (size_t i = 0; i < count; i++) {
        if (score(slow, i % ROWS, first + i / ROWS) <= threshold) {
            slow->kept[i % ROWS * slow->cols + first + i / ROWS] = false;
        }
    }
    free(scores);
}

/* Removes every column that has at least `keep` better ones; a tie counts for the higher column. */
static void choose_window(const struct slow *slow, size_t row, size_t first)
{
    for (size_t c = first; first + slow->window <= slow->cols && c < first + slow->window; c++) {
        size_t better = 0;
        for (size_t k = first; k < first + slow->window; k++) {
            better += score(slow, row, k) > score(slow, row, c) ||
                      (k > c && score(slow, row, k) == score(slow, row, c));
        }
        slow->kept[row * slow->cols + c] = better < slow->keep;
    }
}

static float group_scale(const struct slow *slow, size_t row, size_t first)
{
    const size_t pair = row / slow->format->pair * slow->format->pair;
    double amax = 0.0;
    for (size_t r = pair; r < pair + slow->format->pair && r < ROWS; r++) {
        for (size_t c = first; c < first + slow->format->group; c++) {
            if (slow->kept[r * slow->cols + c]) {
                amax = fmax(amax, fabs(slow->w[r * slow->cols + c]));
            }
        }
    }
    return oracle_scale(slow->format, amax);
}

/* INT8 over the last columns of a row; those of later blocks are not chosen yet and count. */
static float outlier_scale(const struct slow *slow, size_t row)
{
    double amax = 0.0;
    for (size_t c = slow->cols - slow->format->outliers; c < slow->cols; c++) {
        if (slow->kept[row * slow->cols + c]) {
            amax = fmax(amax, fabs(slow->w[row * slow->cols + c]));
        }
    }
    return amax > 0.0 ? (float)amax / 127.0F : 1.0F;
}

/* Scales of all rows change where a group begins, and where the outliers do. */
static void update_scales(const struct slow *slow, size_t column, float scales[ROWS])
{
    const size_t normal = slow->cols - slow->format->outliers;
    for (size_t r = 0; r < ROWS; r++) {
        if (column == normal) {
            scales[r] = outlier_scale(slow, r);
        } else if (column < normal && column % slow->format->group == 0) {
            scales[r] = group_scale(slow, r, column);
        }
    }
}

static void slow_sparsegpt(const struct slow *slow)
{
    const size_t outliers = slow->format != NULL ? slow->format->outliers : 0;
    float scales[ROWS] = {0};
    for (size_t c = 0; c < slow->cols; c++) {
        if (slow->window == 0 && begins_block(slow, c)) {
            choose_block(slow, c);
        }
        for (size_t r = 0; slow->window != 0 && c % slow->window == 0 && r < ROWS; r++) {
            choose_window(slow, r, c);
        }
        if (slow->format != NULL) {
            update_scales(slow, c, scales);
        }
        for (size_t r = 0; r < ROWS; r++) {
            double *w = &slow->w[r * slow->cols];
            double value = slow->kept[r * slow->cols + c] ? w[c] : 0.0;
            if (slow->format != NULL && value != 0.0) {
                const unsigned bits = c + outliers < slow->cols ? slow->format->bits : 8;
                value = (double)scales[r] * oracle_code(value, scales[r], bits);
            }
            const double error = (w[c] - value) / slow->upper[c * slow->cols + c];
            for (size_t k = c + 1; k < slow->cols; k++) {
                w[k] -= error * slow->upper[c * slow->cols + k];
            }
            w[c] = value;
        }
    }
}

static const struct case_row {
    size_t cols;
    double sparsity;
    size_t keep, window;
    bool tail;
    bool quantise;
    struct espl_quantiser quantiser;
} cases[] = {
    {288, 0.5, 0, 0, false, false, {0}},
    {131, 0.7, 0, 0, false, false, {0}},
    {256, 0.0, 2, 4, false, false, {0}},
    {264, 0.0, 3, 8, false, false, {0}},
    {150, 0.0, 2, 5, false, false, {0}},
    {139, 0.0, 1, 4, true, false, {0}},
    {256, 0.5, 0, 0, false, true, {4, 128, 0, 2, ESPL_QUANT_SCALE_FULL, 0.85F}},
    {192, 0.0, 2, 4, false, true, {3, 32, 0, 2, ESPL_QUANT_SCALE_HALF, 0.9F}},
    /* INT8 outliers: inside a block of columns, over two of them, and in windows */
    {288, 0.5, 0, 0, false, true, {4, 64, 32, 2, ESPL_QUANT_SCALE_FULL, 0.85F}},
    {320, 0.6, 0, 0, false, true, {4, 32, 96, 1, ESPL_QUANT_SCALE_HALF, 1.0F}},
    {224, 0.0, 2, 4, false, true, {3, 32, 32, 2, ESPL_QUANT_SCALE_FULL, 0.9F}},
};

static void check_against_slow(const struct case_row *row, uint64_t seed)
{
    float *w = oracle_weights(ROWS, row->cols, seed);
    float *x = oracle_activations(TOKENS, row->cols, seed + 100);
    double *hessian = oracle_hessian(x, TOKENS, row->cols, 2);
    double *upper = oracle_factor(hessian, row->cols, 0.01);
    struct espl_inverse_factor factor = factor_of(hessian, row->cols);
    const struct oracle_format format = {row->quantiser.bits,
                                         row->quantiser.group_size,
                                         row->quantiser.outliers,
                                         row->quantiser.rows_per_scale,
                                         row->quantiser.scale == ESPL_QUANT_SCALE_FULL,
                                         (double)row->quantiser.clip};
    const struct espl_sparsegpt_task task = {.shape = {ROWS, row->cols},
                                             .w = w,
                                             .factor = &factor,
                                             .sparsity = row->sparsity,
                                             .keep = row->keep,
                                             .window = row->window,
                                             .keep_tail = row->tail,
                                             .quantiser = row->quantise ? &row->quantiser : NULL,
                                             .threads = 2};
    struct slow slow = {row->cols,
                        row->keep,
                        row->window,
                        row->sparsity,
                        row->quantise ? &format : NULL,
                        upper,
                        calloc(ROWS * row->cols, sizeof(double)),
                        malloc(ROWS * row->cols * sizeof(bool))};
    assert_non_null(slow.w);
    assert_non_null(slow.kept);
    for (size_t i = 0; i < ROWS * row->cols; i++) {
        slow.w[i] = i % row->cols == 2 ? 0.0 : (double)w[i];
        slow.kept[i] = true;
    }
    slow_sparsegpt(&slow);
    struct result got = run(&task);
    for (size_t i = 0; i < ROWS * row->cols; i++) {
        if (oracle_kept(got.mask, row->cols, i / row->cols, i % row->cols) != slow.kept[i] ||
            !(fabs((double)got.pruned[i] - slow.w[i]) <= 1e-5)) {
            fail_msg("%zu columns: weight of row %zu, column %zu is %g, not %g", row->cols,
                     i / row->cols, i % row->cols, (double)got.pruned[i], slow.w[i]);
        }
    }
    if (row->quantise) {
        float *values = calloc(ROWS * row->cols, sizeof *values);
        assert_non_null(values);
        espl_quantised_dequantise(&got.quantised, values);
        for (size_t i = 0; i < ROWS * row->cols; i++) {
            assert_true(values[i] == got.pruned[i]);
        }
        assert_int_equal(
            espl_quantised_count(&got.quantised, got.mask, row->quantiser.bits).violations, 0);
        free(values);
    }
    free_result(&got);
    espl_inverse_factor_free(&factor);
    free(slow.w);
    free(slow.kept);
    free(w);
    free(x);
    free(hessian);
    free(upper);
}

static void test_sparsegpt__equals_a_slow_version(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_against_slow(&cases[i], 40 + i);
    }
}

/* With H = I nothing flows: blockwise magnitude, and kept weights stay as they are. */
static void test_sparsegpt__identity_hessian_is_blockwise_magnitude(void **state)
{
    (void)state;
    enum { COLS = 200 };
    float *w = oracle_weights(ROWS, COLS, 3);
    double *identity = oracle_identity(COLS);
    struct espl_inverse_factor factor = factor_of(identity, COLS);
    const struct espl_sparsegpt_task task = {
        .shape = {ROWS, COLS}, .w = w, .factor = &factor, .sparsity = 0.6, .threads = 2};
    struct result got = run(&task);
    for (size_t first = 0; first < COLS; first += BLOCK) {
        const size_t last = first + BLOCK < COLS ? first + BLOCK : COLS;
        size_t removed = 0;
        double largest_removed = 0.0;
        double smallest_kept = INFINITY;
        for (size_t i = 0; i < ROWS * (last - first); i++) {
            const size_t at = i / (last - first) * COLS + first + i % (last - first);
            const double size = fabs((double)w[at]);
            if (oracle_kept(got.mask, COLS, at / COLS, at % COLS)) {
                smallest_kept = fmin(smallest_kept, size);
                assert_true(got.pruned[at] == w[at]);
            } else {
                removed++;
                largest_removed = fmax(largest_removed, size);
                assert_true(got.pruned[at] == 0.0F);
            }
        }
        assert_true(largest_removed < smallest_kept);
        assert_int_equal(removed, (size_t)((double)(ROWS * (last - first)) * 0.6) + 1);
    }
    free_result(&got);
    espl_inverse_factor_free(&factor);
    free(identity);
    free(w);
}

static void test_sparsegpt__windows_by_hand(void **state)
{
    (void)state;
    static const float w[10] = {1.0F, -1.0F, 1.0F, 1.0F, 4.0F, 1.0F, -3.0F, 2.0F, 9.0F, 9.0F};
    double *identity = oracle_identity(10);
    struct espl_inverse_factor factor = factor_of(identity, 10);
    struct espl_sparsegpt_task task = {.shape = {1, 10},
                                       .w = w,
                                       .factor = &factor,
                                       .keep = 2,
                                       .window = 4,
                                       .keep_tail = true,
                                       .threads = 1};
    struct result got = run(&task);
    /* Ties lose the lower columns: 0 0 1 1, then 1 0 1 0, and the short window stays. */
    assert_int_equal(got.mask[0], 0x0C | 0x50);
    assert_int_equal(got.mask[1], 0x03);
    free_result(&got);
    task.window = 0;
    task.sparsity = 0.0;
    got = run(&task);
    assert_int_equal(got.mask[0], 0xFF);
    assert_memory_equal(got.pruned, w, sizeof w);
    assert_true(got.loss == 0.0);
    free_result(&got);
    espl_inverse_factor_free(&factor);
    free(identity);
}

static void test_sparsegpt__same_bytes_for_any_thread_count(void **state)
{
    (void)state;
    enum { COLS = 200 };
    float *w = oracle_weights(200, COLS, 8);
    float *x = oracle_activations(TOKENS, COLS, 9);
    double *hessian = oracle_hessian(x, TOKENS, COLS, COLS);
    struct espl_inverse_factor factor = factor_of(hessian, COLS);
    struct espl_sparsegpt_task task = {
        .shape = {200, COLS}, .w = w, .factor = &factor, .sparsity = 0.5, .threads = 1};
    struct result first = run(&task);
    for (task.threads = 2; task.threads <= 3; task.threads++) {
        struct result got = run(&task);
        assert_memory_equal(got.mask, first.mask, 200 * espl_mask_stride(COLS));
        assert_memory_equal(got.pruned, first.pruned, (size_t)200 * COLS * sizeof *got.pruned);
        assert_true(got.loss == first.loss && got.loss > 0.0);
        free_result(&got);
    }
    free_result(&first);
    espl_inverse_factor_free(&factor);
    free(hessian);
    free(w);
    free(x);
}

static void test_sparsegpt__refusals(void **state)
{
    (void)state;
    const struct espl_quantiser quantiser = {4, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 1.0F};
    float w[30] = {0};
    float pruned[30];
    uint8_t mask[4];
    struct espl_inverse_factor factor;
    struct espl_quantised quantised;
    struct espl_error err;
    struct espl_sparsegpt_task task = {.shape = {1, 30}, .w = w, .factor = &factor, .threads = 1};
    static const struct {
        double sparsity;
        size_t keep, window;
        bool quantise;
    } bad[] = {{1.0, 0, 0, false}, {-0.1, 0, 0, false}, {NAN, 0, 0, false}, {0.0, 0, 5, false},
               {0.0, 6, 5, false}, {0.0, 2, 4, false},  {0.0, 2, 5, true},  {0.0, 1, 65, false}};
    assert_int_equal(espl_inverse_factor_identity(30, &factor, &err), ESPL_OK);
    assert_int_equal(espl_quantised_create(&quantiser, &task.shape, &quantised, &err), ESPL_OK);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        task.sparsity = bad[i].sparsity;
        task.keep = bad[i].keep;
        task.window = bad[i].window;
        task.quantiser = bad[i].quantise ? &quantiser : NULL;
        assert_int_equal(
            espl_sparsegpt(&task, mask, pruned, bad[i].quantise ? &quantised : NULL, NULL, &err),
            ESPL_E_JOB);
    }
    const struct espl_quantiser cutting = {4, 0, 3, 1, ESPL_QUANT_SCALE_HALF, 1.0F};
    task.quantiser = &cutting;
    task.keep = 1;
    task.window = 2;
    assert_int_equal(espl_sparsegpt(&task, mask, pruned, &quantised, NULL, &err), ESPL_E_JOB);
    assert_non_null(strstr(err.message, "3 outlier columns cut a window of 2"));
    task.quantiser = NULL;
    task.window = 0;
    task.sparsity = 0.5;
    w[17] = NAN;
    assert_int_equal(espl_sparsegpt(&task, mask, pruned, NULL, NULL, &err), ESPL_E_NUMERIC);
    espl_quantised_free(&quantised);
    espl_inverse_factor_free(&factor);
}

static void test_select__every_rank(void **state)
{
    (void)state;
    for (size_t count = 1; count < 40; count++) {
        for (size_t rank = 0; rank < count; rank++) {
            double values[40], sorted[40];
            uint64_t seed = count * 100 + rank;
            for (size_t i = 0; i < count; i++) { /* few distinct values: many ties */
                sorted[i] = values[i] = floor(oracle_uniform(&seed) * 7.0);
            }
            qsort(sorted, count, sizeof sorted[0], espl_compare_doubles);
            assert_true(espl_select_rank(values, count, rank) == sorted[rank]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparsegpt__equals_a_slow_version),
        cmocka_unit_test(test_sparsegpt__identity_hessian_is_blockwise_magnitude),
        cmocka_unit_test(test_sparsegpt__windows_by_hand),
        cmocka_unit_test(test_sparsegpt__same_bytes_for_any_thread_count),
        cmocka_unit_test(test_sparsegpt__refusals),
        cmocka_unit_test(test_select__every_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
