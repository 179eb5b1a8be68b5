/* GPTQ against a slow version of the same specification, and the properties it must have. */
#include "quant_oracle.h"
#include "stages/quant_common/gptq.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 37, TOKENS = 96 };

/* A layer with correlated inputs and its Hessian. */
struct layer {
    size_t cols;
    float *w, *x;
    double *hessian;
    uint8_t *mask;
};

static struct layer make_layer(size_t cols, uint64_t seed, size_t dead)
{
    struct layer layer = {cols, oracle_weights(ROWS, cols, seed),
                          oracle_activations(TOKENS, cols, seed + 100), NULL,
                          oracle_mask(ROWS, cols, seed + 200)};
    layer.hessian = oracle_hessian(layer.x, TOKENS, cols, dead);
    return layer;
}

static void free_layer(struct layer *layer)
{
    free(layer->w);
    free(layer->x);
    free(layer->hessian);
    free(layer->mask);
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

static struct espl_quantised run(const struct espl_gptq_task *task)
{
    struct espl_quantised out;
    struct espl_error err;
    if (espl_quantised_create(&task->quantiser, &task->shape, &out, &err) != ESPL_OK ||
        espl_gptq(task, &out, NULL, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    return out;
}

static void assert_same(const struct espl_quantised *a, const struct espl_quantised *b)
{
    assert_memory_equal(a->codes, b->codes, a->shape.rows * a->normal);
    assert_memory_equal(a->scales, b->scales, a->scale_rows * a->groups * sizeof(float));
    if (a->outliers > 0) {
        assert_memory_equal(a->outlier_codes, b->outlier_codes, a->shape.rows * a->outliers);
        assert_memory_equal(a->outlier_scales, b->outlier_scales, a->shape.rows * sizeof(float));
    }
}

static struct oracle_format format_of(const struct espl_quantiser *quantiser)
{
    const struct oracle_format format = {quantiser->bits,
                                         quantiser->group_size,
                                         quantiser->outliers,
                                         quantiser->rows_per_scale,
                                         quantiser->scale == ESPL_QUANT_SCALE_FULL,
                                         (double)quantiser->clip};
    return format;
}

static const struct case_row {
    size_t cols;
    struct espl_quantiser quantiser;
    bool masked;
    enum espl_removed_rule removed;
} cases[] = {
    {288, {4, 128, 32, 2, ESPL_QUANT_SCALE_FULL, 0.85F}, false, ESPL_REMOVED_REMASK},
    {288, {4, 128, 32, 2, ESPL_QUANT_SCALE_FULL, 0.85F}, true, ESPL_REMOVED_REMASK},
    {288, {4, 128, 32, 2, ESPL_QUANT_SCALE_FULL, 0.85F}, true, ESPL_REMOVED_FREEZE},
    {192, {3, 32, 0, 2, ESPL_QUANT_SCALE_HALF, 0.9F}, true, ESPL_REMOVED_REMASK},
    {256, {2, 256, 0, 1, ESPL_QUANT_SCALE_FULL, 1.0F}, false, ESPL_REMOVED_REMASK},
    {133, {8, 0, 5, 1, ESPL_QUANT_SCALE_HALF, 1.0F}, false, ESPL_REMOVED_REMASK},
    {131, {5, 0, 1, 2, ESPL_QUANT_SCALE_HALF, 1.0F}, true, ESPL_REMOVED_REMASK},
    {3, {4, 0, 0, 2, ESPL_QUANT_SCALE_FULL, 0.85F}, false, ESPL_REMOVED_REMASK},
    {96, {6, 8, 8, 2, ESPL_QUANT_SCALE_HALF, 0.95F}, true, ESPL_REMOVED_REMASK},
};

static void check_against_oracle(const struct case_row *row, uint64_t seed)
{
    struct layer layer = make_layer(row->cols, seed, 1);
    struct espl_inverse_factor factor = factor_of(layer.hessian, layer.cols);
    const struct espl_gptq_task task = {.shape = {ROWS, row->cols},
                                        .w = layer.w,
                                        .mask = row->masked ? layer.mask : NULL,
                                        .factor = &factor,
                                        .quantiser = row->quantiser,
                                        .removed = row->removed,
                                        .threads = 2};
    struct espl_quantised got = run(&task);
    double *upper = oracle_factor(layer.hessian, layer.cols, 0.01);
    double *values = calloc(ROWS * row->cols, sizeof *values);
    int *codes = calloc(ROWS * row->cols, sizeof *codes);
    const struct oracle_format format = format_of(&row->quantiser);
    assert_non_null(values);
    assert_non_null(codes);
    assert_int_equal(factor.dead_count, 1);
    oracle_gptq(ROWS, row->cols, layer.w, layer.hessian, upper, task.mask, &format,
                row->removed == ESPL_REMOVED_FREEZE, values, codes);
    for (size_t i = 0; i < ROWS * row->cols; i++) {
        const size_t c = i % row->cols;
        const int code = c < got.normal
                             ? got.codes[i / row->cols * got.normal + c]
                             : got.outlier_codes[i / row->cols * got.outliers + c - got.normal];
        if (code != codes[i]) {
            fail_msg("%zu columns, seed %d: code of row %zu, column %zu is %d, not %d", row->cols,
                     (int)seed, i / row->cols, c, code, codes[i]);
        }
    }
    espl_quantised_free(&got);
    espl_inverse_factor_free(&factor);
    free(upper);
    free(values);
    free(codes);
    free_layer(&layer);
}

static void test_gptq__equals_a_slow_version(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_against_oracle(&cases[i], i + 1);
    }
}

static void test_gptq__same_bytes_for_any_thread_count(void **state)
{
    (void)state;
    struct layer layer = make_layer(288, 9, 288);
    struct espl_inverse_factor factor = factor_of(layer.hessian, layer.cols);
    struct espl_gptq_task task = {.shape = {ROWS, 288},
                                  .w = layer.w,
                                  .mask = layer.mask,
                                  .factor = &factor,
                                  .quantiser = cases[0].quantiser,
                                  .threads = 1};
    struct espl_quantised first = run(&task);
    for (task.threads = 2; task.threads <= 3; task.threads++) {
        struct espl_quantised got = run(&task);
        assert_same(&got, &first);
        espl_quantised_free(&got);
    }
    espl_quantised_free(&first);
    espl_inverse_factor_free(&factor);
    free_layer(&layer);
}

static void test_gptq__identity_hessian_is_round_to_nearest(void **state)
{
    (void)state;
    struct espl_error err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct layer layer = make_layer(cases[i].cols, 70 + i, SIZE_MAX);
        double *identity = oracle_identity(layer.cols);
        struct espl_inverse_factor factor = factor_of(identity, layer.cols);
        const struct espl_gptq_task task = {.shape = {ROWS, layer.cols},
                                            .w = layer.w,
                                            .mask = cases[i].masked ? layer.mask : NULL,
                                            .factor = &factor,
                                            .quantiser = cases[i].quantiser,
                                            .threads = 2};
        struct espl_quantised got = run(&task);
        struct espl_quantised rounded;
        assert_int_equal(espl_quantised_create(&task.quantiser, &task.shape, &rounded, &err),
                         ESPL_OK);
        assert_int_equal(espl_rtn(&task.quantiser, layer.w, task.mask, 2, &rounded, &err), ESPL_OK);
        assert_same(&got, &rounded);
        espl_quantised_free(&got);
        espl_quantised_free(&rounded);
        espl_inverse_factor_free(&factor);
        free(identity);
        free_layer(&layer);
    }
}

static double error_of(const struct layer *layer, const struct espl_quantised *quantised)
{
    float *values = calloc(ROWS * layer->cols, sizeof *values);
    float *pruned = calloc(ROWS * layer->cols, sizeof *pruned);
    double absolute = 0.0;
    double relative = 0.0;
    struct espl_error err;
    assert_non_null(values);
    assert_non_null(pruned);
    for (size_t i = 0; i < ROWS * layer->cols; i++) {
        pruned[i] = oracle_kept(layer->mask, layer->cols, i / layer->cols, i % layer->cols)
                        ? layer->w[i]
                        : 0.0F;
    }
    espl_quantised_dequantise(quantised, values);
    assert_int_equal(espl_output_error(ROWS, layer->cols, pruned, values, layer->hessian, 2,
                                       &absolute, &relative, &err),
                     ESPL_OK);
    assert_true(absolute > 0.0 && relative > 0.0 && relative < absolute);
    free(values);
    free(pruned);
    return relative;
}

/* On correlated inputs at half sparsity: the mask holds exactly, and letting the drift of removed
 * weights flow on is better than dropping it, and than round to nearest. */
static void test_gptq__remask_keeps_the_mask_and_beats_freeze(void **state)
{
    (void)state;
    enum { SEEDS = 4, COLS = 256 };
    double sums[3] = {0.0, 0.0, 0.0};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct layer layer = make_layer(COLS, 500 + seed, COLS);
        struct espl_inverse_factor factor = factor_of(layer.hessian, COLS);
        struct espl_inverse_factor identity;
        struct espl_error err;
        assert_int_equal(espl_inverse_factor_identity(COLS, &identity, &err), ESPL_OK);
        for (int i = 0; i < 3; i++) {
            const struct espl_gptq_task task = {
                .shape = {ROWS, COLS},
                .w = layer.w,
                .mask = layer.mask,
                .factor = i == 2 ? &identity : &factor,
                .quantiser = {4, 64, 0, 2, ESPL_QUANT_SCALE_FULL, 0.85F},
                .removed = i == 1 ? ESPL_REMOVED_FREEZE : ESPL_REMOVED_REMASK,
                .threads = 2};
            struct espl_quantised got = run(&task);
            const struct espl_quant_counts counts = espl_quantised_count(&got, layer.mask, 4);
            assert_int_equal(counts.violations, 0);
            assert_true(counts.removed > counts.weights * 2 / 5);
            assert_true(counts.zero_codes >= counts.removed);
            sums[i] += error_of(&layer, &got) / SEEDS;
            espl_quantised_free(&got);
        }
        espl_inverse_factor_free(&factor);
        espl_inverse_factor_free(&identity);
        free_layer(&layer);
    }
    print_message("relative output error: remask %.5f, freeze %.5f, round to nearest %.5f\n",
                  sums[0], sums[1], sums[2]);
    assert_true(sums[0] < 0.98 * sums[1]);
    assert_true(sums[0] < 0.98 * sums[2]);
}

/* Nothing flows out of a channel without activation, and its weights become 0. */
static void test_gptq__channels_without_activation(void **state)
{
    (void)state;
    enum { COLS = 64, DEAD = 7 };
    struct layer layer = make_layer(COLS, 31, DEAD);
    struct espl_inverse_factor factor = factor_of(layer.hessian, COLS);
    struct espl_gptq_task task = {.shape = {ROWS, COLS},
                                  .w = layer.w,
                                  .factor = &factor,
                                  .quantiser = {4, 0, 0, 1, ESPL_QUANT_SCALE_FULL, 1.0F},
                                  .threads = 1};
    struct espl_quantised got = run(&task);
    assert_int_equal(factor.dead_count, 1);
    assert_true(factor.dead[DEAD]);
    for (size_t r = 0; r < ROWS; r++) {
        assert_int_equal(got.codes[r * COLS + DEAD], 0);
        layer.w[r * COLS + DEAD] = 1e6F; /* whatever stood there has no influence */
    }
    struct espl_quantised again = run(&task);
    assert_same(&again, &got);
    espl_quantised_free(&got);
    espl_quantised_free(&again);
    espl_inverse_factor_free(&factor);
    free_layer(&layer);
}

static void test_gptq__rows_of_zeros(void **state)
{
    (void)state;
    enum { COLS = 128 };
    struct layer layer = make_layer(COLS, 33, COLS);
    struct espl_inverse_factor factor = factor_of(layer.hessian, COLS);
    memset(layer.w, 0,
           (size_t)3 * COLS * sizeof *layer.w); /* rows 0 to 2: a pair and half a pair */
    const struct espl_gptq_task task = {.shape = {ROWS, COLS},
                                        .w = layer.w,
                                        .factor = &factor,
                                        .quantiser = {4, 32, 32, 2, ESPL_QUANT_SCALE_HALF, 0.85F},
                                        .threads = 2};
    struct espl_quantised got = run(&task);
    for (size_t i = 0; i < got.groups; i++) {
        assert_true(got.scales[i] == 1.0F);
        assert_true(got.scales[got.groups + i] != 1.0F);
    }
    for (size_t i = 0; i < 3 * got.normal; i++) {
        assert_int_equal(got.codes[i], 0);
    }
    assert_true(got.outlier_scales[2] == 1.0F);
    espl_quantised_free(&got);
    espl_inverse_factor_free(&factor);
    free_layer(&layer);
}

static void test_factor__damping_grows_until_it_works(void **state)
{
    (void)state;
    /* Eigenvalues 1.05 + 0.01 and -0.05 + 0.01 with the first damping. */
    double nearly[4] = {0.5, 0.55, 0.55, 0.5};
    double hopeless[4] = {1.0, 20.0, 20.0, 1.0};
    struct espl_inverse_factor factor;
    struct espl_error err;
    assert_int_equal(espl_inverse_factor_create(nearly, 2, 0.01, &factor, &err), ESPL_OK);
    assert_int_equal(factor.attempts, 3); /* 0.01, 0.1 (still singular: 0.5 * 0.1 = 0.05), 1 */
    assert_true(fabs(factor.damp - 1.0) < 1e-12);
    assert_false(factor.identity);
    espl_inverse_factor_free(&factor);
    assert_int_equal(espl_inverse_factor_create(hopeless, 2, 0.01, &factor, &err), ESPL_OK);
    assert_int_equal(factor.attempts, 4);
    assert_true(fabs(factor.damp - 10.0) < 1e-9);
    assert_true(factor.identity);
    assert_true(factor.upper[0] == 1.0 && factor.upper[1] == 0.0 && factor.upper[3] == 1.0);
    espl_inverse_factor_free(&factor);
}

static void test_factor__refuses_what_is_not_finite(void **state)
{
    (void)state;
    double bad[4] = {1.0, 0.0, NAN, 1.0};
    double negative[4] = {1.0, 0.0, 0.0, -1.0};
    struct espl_inverse_factor factor;
    struct espl_error err;
    assert_int_equal(espl_inverse_factor_create(bad, 2, 0.01, &factor, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "channels 1 and 0 "));
    espl_inverse_factor_free(&factor);
    assert_int_equal(espl_inverse_factor_create(negative, 2, 0.01, &factor, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "channel 1 "));
    espl_inverse_factor_free(&factor);
}

static void test_gptq__refusals(void **state)
{
    (void)state;
    float w[6] = {1.0F, 2.0F, 3.0F, INFINITY, 5.0F, 6.0F};
    struct espl_inverse_factor factor;
    struct espl_quantised out;
    struct espl_error err;
    struct espl_gptq_task task = {.shape = {2, 3},
                                  .w = w,
                                  .factor = &factor,
                                  .quantiser = {4, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 1.0F},
                                  .threads = 1};
    assert_int_equal(espl_inverse_factor_identity(3, &factor, &err), ESPL_OK);
    assert_int_equal(espl_quantised_create(&task.quantiser, &task.shape, &out, &err), ESPL_OK);
    assert_int_equal(espl_gptq(&task, &out, NULL, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "row 1, column 0 "));
    espl_inverse_factor_free(&factor);
    assert_int_equal(espl_inverse_factor_identity(4, &factor, &err), ESPL_OK);
    assert_int_equal(espl_gptq(&task, &out, NULL, &err), ESPL_E_KIND);
    espl_inverse_factor_free(&factor);
    espl_quantised_free(&out);
}

/* One row, everything by hand. 2 bits, clip 0.5: scale 0.5 * 4 / 1 = 2, codes -2..1. U = [[2, 1],
 * [0, 1]]. 4 becomes code 1 = 2; its error (4 - 2) / 2 = 1 moves the second weight from 2 to 1, a
 * tie that goes to code 0: error 1. Without the update 2 would be code 1. */
static void test_gptq__hand_case(void **state)
{
    (void)state;
    const float w[2] = {4.0F, 2.0F};
    double upper[4] = {2.0, 1.0, 0.0, 1.0};
    bool dead[2] = {false, false};
    const struct espl_inverse_factor factor = {.cols = 2, .upper = upper, .dead = dead};
    struct espl_quantised out;
    struct espl_error err;
    double loss = 0.0;
    const struct espl_gptq_task task = {.shape = {1, 2},
                                        .w = w,
                                        .factor = &factor,
                                        .quantiser = {2, 0, 0, 1, ESPL_QUANT_SCALE_HALF, 0.5F},
                                        .threads = 1};
    assert_int_equal(espl_quantised_create(&task.quantiser, &task.shape, &out, &err), ESPL_OK);
    assert_int_equal(espl_gptq(&task, &out, &loss, &err), ESPL_OK);
    assert_true(out.scales[0] == 2.0F);
    assert_int_equal(out.codes[0], 1);
    assert_int_equal(out.codes[1], 0);
    assert_true(loss == 1.0);
    espl_quantised_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gptq__hand_case),
        cmocka_unit_test(test_gptq__equals_a_slow_version),
        cmocka_unit_test(test_gptq__same_bytes_for_any_thread_count),
        cmocka_unit_test(test_gptq__identity_hessian_is_round_to_nearest),
        cmocka_unit_test(test_gptq__remask_keeps_the_mask_and_beats_freeze),
        cmocka_unit_test(test_gptq__channels_without_activation),
        cmocka_unit_test(test_gptq__rows_of_zeros),
        cmocka_unit_test(test_factor__damping_grows_until_it_works),
        cmocka_unit_test(test_factor__refuses_what_is_not_finite),
        cmocka_unit_test(test_gptq__refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
