/* What the SpMM benches compute from times: choice, floor, means, regret; which choices a sweep
 * tries; stored choices; rows in order for the ablation. All by hand, no device. */
#include "support/cmocka_all.h"

#include "kernels/bench/spmm_ablation.h"
#include "kernels/bench/spmm_choices.h"
#include "kernels/bench/spmm_layer.h"
#include "kernels/bench/spmm_summary.h"
#include "kernels/bench/spmm_tuning.h"
#include "kernels/bench/spmm_weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Equal but for rounding; cmocka compares floats only. */
static void expect_close(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected))) {
        fail_msg("%.17g, expected %.17g", found, expected);
    }
}

static struct espl_spmm_result ours(const char *name, uint64_t bytes, double expected,
                                    double median)
{
    struct espl_spmm_result result = {
        .ours = true, .lossless = true, .measured = true, .bytes = bytes, .expected = expected};
    memcpy(result.name, name, strlen(name) + 1);
    result.times[ESPL_SPMM_GRAPH].median = median;
    return result;
}

/* 64 x 128, 2 tokens: x and y are 2 x (64 + 4 x 64) = 640 bytes. The rule picks dense, 1x1 is the
 * fastest without loss, int2 is faster but another model, the baseline takes twice as long as
 * dense. */
static struct espl_spmm_case small_case(double sparsity)
{
    struct espl_spmm_case item = {
        .rows = 64, .cols = 128, .tokens = 2, .sparsity = sparsity, .usual = ESPL_SPMM_GRAPH};
    item.results[0] = ours("dense", 4096, 4e-6, 5e-6);
    item.results[1] = ours("1x1", 3360, 6e-6, 4e-6);
    item.results[2] = ours("int2", 2048, 1e-6, 1e-6);
    item.results[2].lossless = false;
    item.results[3] = ours("2x2", 1, 1e-6, 0.0);
    item.results[3].measured = false;
    item.results[4] = ours("peer", 8192, 0.0, 10e-6);
    item.results[4].ours = false;
    item.results[4].lossless = false;
    item.count = 5;
    espl_spmm_choose(&item);
    return item;
}

static void test_results__choice_floor_and_roofline(void **state)
{
    (void)state;
    const struct espl_spmm_case item = small_case(0.5);
    assert_int_equal(item.chosen, 0);
    assert_int_equal(item.best, 1);
    assert_true(isnan(espl_spmm_seconds(&item, 3)));
    expect_close(espl_spmm_operand_bytes(&item), 640.0);
    /* the fewest bytes of a measured lossless form: 3360, not 2048 or 1 */
    expect_close(espl_spmm_floor_seconds(&item, 4e9), 4000.0 / 4e9);
    /* 2 x 64 x 128 x 2 = 32768 operations over 4096 + 640 bytes, in 5 us */
    expect_close(espl_spmm_intensity(&item, 0), 32768.0 / 4736.0);
    expect_close(espl_spmm_rate(&item, 0), 32768.0 / 5e-6);
    assert_true(isnan(espl_spmm_swept_seconds(&item)));
}

/* The same with layers: dense 8 us (6 expected), 1x1 5 us (7 expected), 2x2 without the product of
 * its codes; and a quantiser of 3 us. */
static struct espl_spmm_case case_with_layers(void)
{
    struct espl_spmm_case item = small_case(0.5);
    item.results[5] = ours("dense+atom", 5000, 6e-6, 8e-6);
    item.results[6] = ours("1x1+atom", 4000, 7e-6, 5e-6);
    item.results[7] = ours("4x4+atom", 1, 8e-6, 9e-6);
    for (size_t i = 5; i < 8; i++) {
        item.results[i].kind = ESPL_SPMM_LAYER;
    }
    item.results[8] = ours(ESPL_SPMM_QUANTISER_NAME, 0, 0.0, 3e-6);
    item.results[8].kind = ESPL_SPMM_QUANTISER;
    item.count = 9;
    espl_spmm_choose(&item);
    return item;
}

static void test_results__layers_stand_beside_the_products(void **state)
{
    (void)state;
    struct espl_spmm_case item = case_with_layers();
    /* neither the quantiser nor a layer is a product: the choice and the best stay */
    assert_int_equal(item.chosen, 0);
    assert_int_equal(item.best, 1);
    assert_int_equal(item.chosen_layer, 5);
    expect_close(espl_spmm_floor_seconds(&item, 4e9), 4000.0 / 4e9);
    assert_int_equal(espl_spmm_plain_of(&item, 6), 1);
    assert_int_equal(espl_spmm_plain_of(&item, 7), item.count);
    assert_int_equal(espl_spmm_plain_of(&item, 0), item.count);
    assert_int_equal(espl_spmm_find(&item, "peer"), 4);
    assert_int_equal(espl_spmm_find(&item, "none"), item.count);
    item = small_case(0.5);
    assert_int_equal(item.chosen_layer, item.count);
}

static size_t subject(const struct espl_spmm_summary *summary, const char *name)
{
    const size_t at = espl_spmm_summary_subject(summary, name);
    assert_true(at < summary->subjects);
    return at;
}

static void test_summary__layers_over_the_products_of_their_codes(void **state)
{
    (void)state;
    struct espl_spmm_summaries *all = calloc(1, sizeof *all);
    assert_non_null(all);
    struct espl_spmm_case item = case_with_layers();
    espl_spmm_summaries_add(all, &item, false);
    /* a second case: dense 20 us as a layer, four times its 5 us; its cut takes twice the best */
    item.results[5].times[ESPL_SPMM_GRAPH].median = 20e-6;
    item.results[5].sweep =
        (struct espl_spmm_sweep){.tried = 2, .seconds = 10e-6, .chosen_seconds = 20e-6};
    espl_spmm_summaries_add(all, &item, false);
    const struct espl_spmm_summary *s = &all->items[0];
    expect_close(espl_spmm_mean_of(&s->layer[subject(s, "dense+atom")]), sqrt(1.6 * 4.0));
    expect_close(espl_spmm_worst_regret(&s->layer[subject(s, "dense+atom")]), 3.0);
    expect_close(espl_spmm_mean_of(&s->layer[subject(s, "1x1+atom")]), 1.25);
    assert_true(isnan(espl_spmm_mean_of(&s->layer[subject(s, "4x4+atom")])));
    expect_close(espl_spmm_mean_regret(&s->cut[subject(s, "dense+atom")]), 1.0);
    assert_true(isnan(espl_spmm_worst_regret(&s->cut[subject(s, "dense")])));
    /* speed-ups are over products alone */
    assert_true(isnan(espl_spmm_mean_of(&s->over[subject(s, "dense+atom")])));
    assert_true(isnan(espl_spmm_mean_of(&s->over[subject(s, ESPL_SPMM_QUANTISER_NAME)])));
    expect_close(espl_spmm_mean_of(&s->over[subject(s, "peer")]), 2.0);
    free(all);
}

/* Sizes, kinds and the same content every time. */
static void test_layer__of_random_numbers(void **state)
{
    (void)state;
    struct espl_error err;
    struct espl_spmm_layer layer;
    struct espl_spmm_layer again;
    assert_int_equal(espl_spmm_layer_make(48, 320, 64, 64, &layer, &err), ESPL_OK);
    assert_int_equal(espl_spmm_layer_make(48, 320, 64, 64, &again, &err), ESPL_OK);
    assert_int_equal(espl_quant_normal(&layer.shape), 256);
    assert_int_equal(espl_quant_groups(&layer.shape), 4);
    bool seen[320] = {false};
    for (size_t i = 0; i < 320; i++) {
        assert_true(layer.order[i] >= 0 && layer.order[i] < 320 && !seen[layer.order[i]]);
        seen[layer.order[i]] = true;
    }
    for (size_t i = 0; i < 24 * 4; i++) {
        assert_true(layer.weights.scales[i] > 0.0F);
    }
    for (size_t i = 0; i < 48; i++) {
        assert_true(layer.weights.outlier_scales[i] > 0.0F);
    }
    assert_memory_equal(layer.weights.scales, again.weights.scales, 24 * 4 * sizeof(float));
    assert_memory_equal(layer.weights.outlier_codes, again.weights.outlier_codes, 48 * 64);
    espl_spmm_layer_free(&layer);
    espl_spmm_layer_free(&again);
    assert_int_equal(espl_spmm_layer_make(48, 320, 64, 0, &layer, &err), ESPL_OK);
    assert_null(layer.weights.outlier_codes);
    assert_null(layer.weights.outlier_scales);
    espl_spmm_layer_free(&layer);
    assert_int_equal(espl_spmm_layer_check(48, 320, 64, 64, &err), ESPL_OK);
    assert_int_equal(espl_spmm_layer_check(48, 320, 128, 64, &err), ESPL_OK);
    assert_int_equal(espl_spmm_layer_check(48, 320, 128, 0, &err), ESPL_E_UNSUPPORTED);
    assert_int_equal(espl_spmm_layer_check(48, 64, 64, 64, &err), ESPL_E_UNSUPPORTED);
}

static void test_summary__means_and_regret(void **state)
{
    (void)state;
    struct espl_spmm_summaries *all = calloc(1, sizeof *all);
    assert_non_null(all);
    struct espl_spmm_case item = small_case(0.5);
    espl_spmm_summaries_add(all, &item, false);
    /* a second case whose peer is 8 times slower than dense; the sweep found 2.5 us */
    item.results[4].times[ESPL_SPMM_GRAPH].median = 40e-6;
    item.results[0].sweep =
        (struct espl_spmm_sweep){.tried = 3, .seconds = 4.5e-6, .chosen_seconds = 5e-6};
    item.results[1].sweep =
        (struct espl_spmm_sweep){.tried = 3, .seconds = 2.5e-6, .chosen_seconds = 4e-6};
    espl_spmm_summaries_add(all, &item, false);
    item = small_case(0.7);
    espl_spmm_summaries_add(all, &item, false);
    assert_int_equal(all->count, 2);
    const struct espl_spmm_summary *s = &all->items[0];
    assert_int_equal(s->cases, 2);
    expect_close(espl_spmm_mean_of(&s->over[subject(s, "peer")]), 4.0);
    expect_close(espl_spmm_mean_of(&s->over[subject(s, "dense")]), 1.0);
    expect_close(espl_spmm_mean_of(&s->over[subject(s, "1x1")]), 0.8);
    expect_close(espl_spmm_mean_regret(&s->regret), 0.25);
    expect_close(s->regret.worst, 1.25);
    expect_close(s->worst_dense, 1.0);
    /* dense in use, 5 us, against the best cut of 1x1 */
    assert_int_equal(s->swept.cases, 1);
    expect_close(espl_spmm_mean_regret(&s->swept), 1.0);
    assert_true(isnan(espl_spmm_mean_regret(&all->items[1].swept)));
    /* over all sparsities: one summary */
    all->count = 0;
    item = small_case(0.5);
    espl_spmm_summaries_add(all, &item, true);
    item = small_case(0.7);
    espl_spmm_summaries_add(all, &item, true);
    assert_int_equal(all->count, 1);
    assert_int_equal(all->items[0].cases, 2);
    free(all);
}

static void test_summary__a_case_without_a_choice_adds_nothing(void **state)
{
    (void)state;
    struct espl_spmm_summaries *all = calloc(1, sizeof *all);
    assert_non_null(all);
    struct espl_spmm_case item = small_case(0.5);
    for (size_t i = 0; i < item.count; i++) {
        item.results[i].measured = false;
    }
    espl_spmm_choose(&item);
    espl_spmm_summaries_add(all, &item, false);
    assert_int_equal(all->items[0].cases, 0);
    assert_true(isnan(espl_spmm_mean_regret(&all->items[0].regret)));
    free(all);
}

/* ---- choices ---- */

static bool has_choice(const struct espl_cuda_spmm_choice *choices, size_t count, unsigned warps,
                       unsigned splits, unsigned window, unsigned stages, unsigned parts)
{
    for (size_t i = 0; i < count; i++) {
        const struct espl_cuda_spmm_choice *c = &choices[i];
        if (c->warps == warps && c->splits == splits && c->window == window &&
            c->stages == stages && c->parts == parts) {
            return true;
        }
    }
    return false;
}

static void test_choices__of_a_dense_product(void **state)
{
    (void)state;
    static struct espl_cuda_spmm_choice choices[ESPL_SPMM_MAX_CHOICES];
    /* 100 stripes, 2 units of columns, 10 multiprocessors. One part of the columns: 10 blocks with
     * 10 stripes; 11 stripes: 10 parts (100 / 11 -> 10); 12: 9; 20: 5; 40: 3; two waves, 5 stripes:
     * 20. Two parts: 5 blocks with 20 stripes; 21: 5; 22: 5; 40: 3; 80: 2; two waves, 10 stripes:
     * 10. */
    const struct espl_spmm_cut cut = {1600, 300, true, 10};
    const size_t count = espl_spmm_choices(&cut, choices, ESPL_SPMM_MAX_CHOICES);
    assert_int_equal(count, 3 * (5 + 4));
    static const unsigned expected[][2] = {{1, 10}, {1, 9}, {1, 5}, {1, 3}, {1, 20},
                                           {2, 5},  {2, 3}, {2, 2}, {2, 10}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_true(has_choice(choices, count, 12, expected[i][0], 1, 1, expected[i][1]));
        assert_true(has_choice(choices, count, 16, expected[i][0], 1, 1, expected[i][1]));
        assert_true(has_choice(choices, count, 20, expected[i][0], 1, 1, expected[i][1]));
    }
    /* no room: only counted */
    assert_int_equal(espl_spmm_choices(&cut, choices, 0), count);
}

static void test_choices__of_a_sparse_product(void **state)
{
    (void)state;
    static struct espl_cuda_spmm_choice choices[ESPL_SPMM_MAX_CHOICES];
    /* one stripe and three slices: always one part and one row of windows; windows 1 to 3 with 1
     * split, 1 to 2 with 2 splits, 1 with 3; three numbers of stages each */
    const struct espl_spmm_cut small = {7, 1100, false, 132};
    size_t count = espl_spmm_choices(&small, choices, ESPL_SPMM_MAX_CHOICES);
    assert_int_equal(count, (3 + 2 + 1) * 3);
    assert_true(has_choice(choices, count, 1, 1, 1, 2, 1));
    assert_true(has_choice(choices, count, 3, 1, 3, 4, 1));
    assert_true(has_choice(choices, count, 1, 3, 1, 3, 1));
    assert_false(has_choice(choices, count, 2, 3, 2, 2, 1)); /* a window larger than a split */
    /* 70 stripes, one slice, 10 multiprocessors, 10 parts: 7 stripes, in one round by 7 rows, in
     * two by 4, in three by 3; 5 parts: 14 stripes by 14, 7 or 5 rows; 3 parts: 24, at most 16
     * rows: two rounds by 12, three by 8, four by 6 */
    const struct espl_spmm_cut tall = {1120, 512, false, 10};
    count = espl_spmm_choices(&tall, choices, ESPL_SPMM_MAX_CHOICES);
    static const unsigned expected[][2] = {{10, 7}, {10, 4}, {10, 3}, {5, 14}, {5, 7},
                                           {5, 5},  {3, 12}, {3, 8},  {3, 6}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_true(has_choice(choices, count, expected[i][1], 1, 1, 2, expected[i][0]));
    }
    assert_false(has_choice(choices, count, 16, 1, 1, 2, 3)); /* as many rounds as 12 */
    assert_false(has_choice(choices, count, 2, 1, 1, 2, 10)); /* four rounds */
}

static void test_choices__large_layers_fit(void **state)
{
    (void)state;
    static const size_t sizes[][2] = {{28672, 8192}, {131071, 131071}, {512, 131071}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const struct espl_spmm_cut cut = {sizes[i][0], sizes[i][1], false, 132};
        const size_t count = espl_spmm_choices(&cut, NULL, 0);
        assert_true(count > 100 && count <= ESPL_SPMM_MAX_CHOICES);
    }
}

/* ---- stored choices ---- */

static struct espl_spmm_stored stored(const char *form, size_t tokens, double sparsity,
                                      unsigned parts)
{
    struct espl_spmm_stored one = {.rows = 64,
                                   .cols = 128,
                                   .tokens = tokens,
                                   .sparsity = sparsity,
                                   .choice = {16, 1, 1, 2, parts},
                                   .seconds = 1e-6};
    memcpy(one.form, form, strlen(form) + 1);
    return one;
}

static unsigned found(const struct espl_spmm_tuning *tuning, const char *form, size_t tokens,
                      double sparsity)
{
    const struct espl_spmm_stored *one =
        espl_spmm_tuning_find(tuning, form, 64, 128, tokens, sparsity);
    return one != NULL ? one->choice.parts : 0;
}

static void test_tuning__nearest_sparsity_of_the_same_product(void **state)
{
    (void)state;
    struct espl_spmm_tuning tuning = {.items = NULL};
    struct espl_error err;
    const struct espl_spmm_stored all[] = {stored("1x1", 8, 0.7, 7), stored("1x1", 8, 0.5, 5),
                                           stored("1x1", 4, 0.5, 4), stored("dense", 8, 0.5, 9)};
    assert_null(espl_spmm_tuning_find(NULL, "1x1", 64, 128, 8, 0.5));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(espl_spmm_tuning_put(&tuning, &all[i], &err), ESPL_OK);
    }
    assert_int_equal(found(&tuning, "1x1", 8, 0.5), 5);
    assert_int_equal(found(&tuning, "1x1", 8, 0.59), 5);
    assert_int_equal(found(&tuning, "1x1", 8, 0.61), 7);
    assert_int_equal(found(&tuning, "1x1", 4, 0.9), 4);
    assert_int_equal(found(&tuning, "dense", 8, 0.0), 9);
    assert_int_equal(found(&tuning, "1x2", 8, 0.5), 0);
    assert_int_equal(found(&tuning, "1x1", 16, 0.5), 0);
    assert_null(espl_spmm_tuning_find(&tuning, "1x1", 64, 129, 8, 0.5));
    /* the same product again: replaced */
    const struct espl_spmm_stored again = stored("1x1", 8, 0.5, 6);
    assert_int_equal(espl_spmm_tuning_put(&tuning, &again, &err), ESPL_OK);
    assert_int_equal(tuning.count, 4);
    assert_int_equal(found(&tuning, "1x1", 8, 0.5), 6);
    espl_spmm_tuning_free(&tuning);
}

static void test_tuning__takes_what_sweeps_found(void **state)
{
    (void)state;
    struct espl_spmm_tuning tuning = {.items = NULL};
    struct espl_error err;
    struct espl_spmm_case item = small_case(0.5);
    item.results[1].sweep = (struct espl_spmm_sweep){
        .tried = 2, .choice = {12, 1, 3, 4, 11}, .seconds = 3e-6, .chosen_seconds = 4e-6};
    assert_int_equal(espl_spmm_tuning_take(&tuning, &item, &err), ESPL_OK);
    assert_int_equal(tuning.count, 1);
    assert_string_equal(tuning.items[0].form, "1x1");
    assert_int_equal(found(&tuning, "1x1", 2, 0.5), 11);
    expect_close(tuning.items[0].seconds, 3e-6);
    espl_spmm_tuning_free(&tuning);
}

/* ---- rows in order ---- */

static bool same_rows(const int8_t *a, const int8_t *b, size_t rows, size_t cols)
{
    /* every row of a is in b as often as in a */
    for (size_t r = 0; r < rows; r++) {
        size_t in_a = 0;
        size_t in_b = 0;
        for (size_t i = 0; i < rows; i++) {
            in_a += memcmp(a + r * cols, a + i * cols, cols) == 0 ? 1 : 0;
            in_b += memcmp(a + r * cols, b + i * cols, cols) == 0 ? 1 : 0;
        }
        if (in_a != in_b) {
            return false;
        }
    }
    return true;
}

/* Mask bits that are 1 in areas of 2 x 1. */
static uint64_t union_bits(const int8_t *codes, size_t rows, size_t cols)
{
    const struct espl_iebme_layout layout = {rows, cols, 4, ESPL_IEBME_2X1, ESPL_IEBME_SCOPE_NONE};
    struct espl_iebme_plan plan;
    struct espl_error err;
    assert_int_equal(espl_iebme_plan(codes, &layout, NULL, &plan, &err), ESPL_OK);
    return plan.mask_ones;
}

static void test_order__keeps_stripes_and_saves_mask_bits(void **state)
{
    (void)state;
    enum { ROWS = 40, COLS = 192, PADDED = 48 };
    struct espl_error err;
    int8_t *codes = NULL;
    int8_t *ordered = NULL;
    assert_int_equal(espl_spmm_weights_codes(ROWS, COLS, 4, 0.7, 1, &codes, &err), ESPL_OK);
    /* rows 0 and 1 of the first stripe have the same mask, and nothing else has */
    memset(codes, 0, 2 * COLS);
    memset(codes, 1, 8);
    memset(codes + COLS, 2, 8);
    assert_int_equal(espl_spmm_order_rows(codes, ROWS, COLS, 2, 1, &ordered, &err), ESPL_OK);
    assert_true(same_rows(codes, ordered, 16, COLS));
    assert_true(same_rows(codes + 16 * COLS, ordered + 16 * COLS, 16, COLS));
    for (size_t i = 0; i < 8; i++) { /* the tail's rows, and eight of zeros */
        size_t there = 0;
        for (size_t r = 32; r < PADDED; r++) {
            there += memcmp(codes + (32 + i) * COLS, ordered + r * COLS, COLS) == 0 ? 1 : 0;
        }
        assert_int_equal(there, 1);
    }
    assert_true(union_bits(ordered, PADDED, COLS) < union_bits(codes, ROWS, COLS));
    free(ordered);
    free(codes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results__choice_floor_and_roofline),
        cmocka_unit_test(test_results__layers_stand_beside_the_products),
        cmocka_unit_test(test_summary__means_and_regret),
        cmocka_unit_test(test_summary__layers_over_the_products_of_their_codes),
        cmocka_unit_test(test_layer__of_random_numbers),
        cmocka_unit_test(test_summary__a_case_without_a_choice_adds_nothing),
        cmocka_unit_test(test_choices__of_a_dense_product),
        cmocka_unit_test(test_choices__of_a_sparse_product),
        cmocka_unit_test(test_choices__large_layers_fit),
        cmocka_unit_test(test_tuning__nearest_sparsity_of_the_same_product),
        cmocka_unit_test(test_tuning__takes_what_sweeps_found),
        cmocka_unit_test(test_order__keeps_stripes_and_saves_mask_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
