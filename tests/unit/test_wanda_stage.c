/* wanda-prune on tiny models: masks against the definition, counts, propagation, block range. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_cases.h"

#include "espalier/kernels.h"
#include "stages/prune_common/prune_mask.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void test_wanda__removes_half_of_every_row_and_counts_it(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    const struct espl_wanda_params params = prune_wanda_params();
    prune_open_llama(&fixture, ESPL_DTYPE_BF16, NULL);
    prune_run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &result);
    prune_open(&fixture, 'c', &artifact, &model);
    uint64_t linears = 0;
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        const bool linear = espl_role_is_block_linear(spec->role);
        assert_int_equal(espl_model_has_mask(model, spec), linear);
        if (!linear) {
            continue;
        }
        linears++;
        uint8_t *mask = prune_read_mask(model, spec);
        const size_t stride = espl_mask_stride((size_t)spec->shape[1]);
        for (uint64_t row = 0; row < spec->shape[0]; row++) {
            assert_int_equal(espl_prune_mask_kept(mask + row * stride, stride), spec->shape[1] / 2);
        }
        free(mask);
    }
    assert_int_equal(linears, 21);
    const double block = 3.0 * (2 * 24 * 24 + 2 * 8 * 24 + 3 * 40 * 24);
    assert_true(prune_metric(&result, "sparsity_targeted") == 0.5);
    assert_true(prune_metric(&result, "sparsity_block_linears") == 0.5);
    assert_true(prune_metric(&result, "sparsity_all") ==
                0.5 * block / (block + 3 * 2 * 24 + 24 + 50 * 24));
    assert_true(prune_metric(&result, "calibration_windows") == 11.0);
    assert_true(fabs(prune_metric(&result, "check_perplexity_ratio") -
                     prune_metric(&result, "check_perplexity") /
                         prune_metric(&result, "check_perplexity_base")) < 1e-12);
    assert_int_equal(json_array_size(result.layers), 21 + 3);
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* The first block's q_proj from nothing but the definition: embedding, RMSNorm, sums, order. */
static void test_wanda__first_linear_equals_the_definition(void **state)
{
    (void)state;
    enum { HIDDEN = 24, WINDOWS = 11, TOKENS = 16 };
    struct prune_fixture fixture;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_error err;
    const struct espl_wanda_params params = prune_wanda_params();
    float embedding[50 * HIDDEN], gain[HIDDEN], w[HIDDEN * HIDDEN];
    double sums[HIDDEN] = {0.0};
    prune_open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    prune_run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', NULL);
    prune_open(&fixture, 'a', &artifact, &model);
    const struct espl_tensor_spec *q = espl_model_find(model, 0, ESPL_ROLE_Q, false);
    assert_int_equal(espl_model_read_f32(model,
                                         espl_model_find(model, -1, ESPL_ROLE_EMBEDDING, false), 0,
                                         50, embedding, &err),
                     ESPL_OK);
    assert_int_equal(espl_model_read_f32(model,
                                         espl_model_find(model, 0, ESPL_ROLE_ATTENTION_NORM, false),
                                         0, HIDDEN, gain, &err),
                     ESPL_OK);
    assert_int_equal(espl_model_read_f32(model, q, 0, HIDDEN, w, &err), ESPL_OK);
    espl_model_close(model);
    espl_artifact_close(artifact);
    char path[ESPL_PATH_MAX];
    prune_path(&fixture, 'b', path);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    int32_t ids[WINDOWS * TOKENS];
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/tokens/ids", 0, WINDOWS, ids, sizeof ids, &err),
        ESPL_OK);
    espl_artifact_close(artifact);
    for (size_t t = 0; t < WINDOWS * TOKENS; t++) {
        const float *x = embedding + (size_t)ids[t] * HIDDEN;
        double mean = 0.0;
        for (size_t c = 0; c < HIDDEN; c++) {
            mean += (double)x[c] * (double)x[c] / HIDDEN;
        }
        for (size_t c = 0; c < HIDDEN; c++) {
            const double y = (double)x[c] / sqrt(mean + 1e-5) * (double)gain[c];
            sums[c] += y * y;
        }
    }
    prune_open(&fixture, 'c', &artifact, &model);
    uint8_t *mask = prune_read_mask(model, espl_model_find(model, 0, ESPL_ROLE_Q, false));
    for (size_t row = 0; row < HIDDEN; row++) {
        for (size_t c = 0; c < HIDDEN; c++) {
            const double score = fabs((double)w[row * HIDDEN + c]) * sqrt(sums[c]);
            size_t below = 0;
            for (size_t j = 0; j < HIDDEN; j++) {
                below += fabs((double)w[row * HIDDEN + j]) * sqrt(sums[j]) < score;
            }
            assert_int_equal(prune_mask_bit(mask, HIDDEN, row, c), below >= HIDDEN / 2);
        }
    }
    free(mask);
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_fixture_close(&fixture);
}

static void test_wanda__nm_keeps_n_and_the_tail(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_wanda_params params = prune_wanda_params();
    const struct espl_model_config config = prune_opt_config();
    params.common.pattern = (struct espl_nm){1, 8};
    params.common.tail = ESPL_PRUNE_TAIL_DENSE; /* fc2 has 36 columns: 4 stay */
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_make_random_tokens(&fixture, 'b', 3, 64);
    prune_run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &result);
    prune_open(&fixture, 'c', &artifact, &model);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (!espl_model_has_mask(model, spec)) {
            assert_true(spec->is_bias || !espl_role_is_block_linear(spec->role));
            continue;
        }
        uint8_t *mask = prune_read_mask(model, spec);
        for (uint64_t row = 0; row < spec->shape[0]; row++) {
            for (uint64_t first = 0; first < spec->shape[1]; first += 8) {
                const uint64_t left = spec->shape[1] - first;
                uint64_t kept = 0;
                for (uint64_t c = first; c < first + (left < 8 ? left : 8); c++) {
                    kept += prune_mask_bit(mask, spec->shape[1], row, c);
                }
                assert_int_equal(kept, left < 8 ? left : 1);
            }
        }
        free(mask);
    }
    const double elements = 4 * 24 * 24 + 2 * 36 * 24;
    const double removed = 4 * 24 * 21 + 36 * 21 + 24 * 28;
    assert_true(prune_metric(&result, "sparsity_targeted") == removed / elements);
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* Dense propagation feeds every block what the dense model feeds it, so the first block's masks are
 * those of pruned propagation and later ones may differ; both end with the same dense perplexity.
 */
static void test_wanda__propagation_changes_later_blocks_only(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result pruned, dense;
    struct espl_artifact *left_artifact = NULL, *right_artifact = NULL;
    struct espl_model *left = NULL, *right = NULL;
    struct espl_wanda_params params = prune_wanda_params();
    size_t different = 0;
    prune_open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    prune_run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &pruned);
    params.propagate = ESPL_WANDA_PROPAGATE_DENSE;
    prune_run_ok(&fixture, &espl_stage_wanda_prune, &params, 'd', 'a', 'b', &dense);
    prune_open(&fixture, 'c', &left_artifact, &left);
    prune_open(&fixture, 'd', &right_artifact, &right);
    for (size_t i = 0; i < espl_model_tensor_count(left); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(left, i);
        if (!espl_model_has_mask(left, spec)) {
            continue;
        }
        uint8_t *a = prune_read_mask(left, spec);
        uint8_t *b = prune_read_mask(right, espl_model_tensor(right, i));
        const size_t bytes = (size_t)spec->shape[0] * espl_mask_stride((size_t)spec->shape[1]);
        const bool same = memcmp(a, b, bytes) == 0;
        assert_true(same || spec->layer > 0);
        different += !same;
        free(a);
        free(b);
    }
    assert_true(different > 0);
    assert_true(prune_metric(&pruned, "check_perplexity_base") ==
                prune_metric(&dense, "check_perplexity_base"));
    espl_model_close(left);
    espl_model_close(right);
    espl_artifact_close(left_artifact);
    espl_artifact_close(right_artifact);
    prune_result_free(&pruned);
    prune_result_free(&dense);
    prune_fixture_close(&fixture);
}

static void test_wanda__block_range_and_denominators(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_wanda_params params = prune_wanda_params();
    params.common.layers.first_layer = 1;
    params.common.layers.last_layer = 1;
    prune_open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    prune_run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &result);
    assert_true(prune_metric(&result, "sparsity_targeted") == 0.5);
    assert_true(fabs(prune_metric(&result, "sparsity_block_linears") - 0.5 / 3.0) < 1e-15);
    prune_open(&fixture, 'c', &artifact, &model);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        assert_int_equal(espl_model_has_mask(model, spec),
                         spec->layer == 1 && espl_role_is_block_linear(spec->role));
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* Pruning a pruned model: what was removed stays removed and counts towards the sparsity; linears
 * that are not selected keep their masks. */
static void test_wanda__of_a_masked_model(void **state)
{
    (void)state;
    static const char *const mlp[] = {"*.mlp.*"};
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *left_artifact = NULL, *right_artifact = NULL;
    struct espl_model *first = NULL, *second = NULL;
    struct prune_magnitude_params magnitude = prune_magnitude_params();
    struct espl_wanda_params params = prune_wanda_params();
    magnitude.common.sparsity = 0.25;
    magnitude.scope = 1; /* row */
    params.common.layers.targets = (struct espl_list){1, mlp};
    prune_open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    prune_run_ok(&fixture, &espl_stage_magnitude_prune, &magnitude, 'c', 'a', 0, NULL);
    prune_run_ok(&fixture, &espl_stage_wanda_prune, &params, 'd', 'c', 'b', &result);
    prune_open(&fixture, 'c', &left_artifact, &first);
    prune_open(&fixture, 'd', &right_artifact, &second);
    for (size_t i = 0; i < espl_model_tensor_count(first); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(first, i);
        if (!espl_role_is_block_linear(spec->role)) {
            continue;
        }
        const bool selected = strstr(spec->module, "mlp") != NULL;
        uint8_t *a = prune_read_mask(first, spec);
        uint8_t *b = prune_read_mask(second, espl_model_tensor(second, i));
        for (uint64_t row = 0; row < spec->shape[0]; row++) {
            uint64_t kept = 0;
            for (uint64_t c = 0; c < spec->shape[1]; c++) {
                const bool before = prune_mask_bit(a, spec->shape[1], row, c);
                const bool after = prune_mask_bit(b, spec->shape[1], row, c);
                assert_true(before || !after);
                kept += after;
            }
            assert_int_equal(kept, selected ? spec->shape[1] / 2 : spec->shape[1] * 3 / 4);
        }
        free(a);
        free(b);
    }
    const double mlp_part = 3 * 40 * 24, rest = 2 * 24 * 24 + 2 * 8 * 24;
    assert_true(prune_metric(&result, "sparsity_targeted") == 0.5);
    assert_true(fabs(prune_metric(&result, "sparsity_block_linears") -
                     (0.5 * mlp_part + 0.25 * rest) / (mlp_part + rest)) < 1e-15);
    espl_model_close(first);
    espl_model_close(second);
    espl_artifact_close(left_artifact);
    espl_artifact_close(right_artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_wanda__cumulative_rule_reaches_its_sparsity(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_wanda_params params = prune_wanda_params();
    params.rule = 1;
    params.common.sparsity = 0.4;
    prune_open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    prune_run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &result);
    /* the smallest matrix has 192 weights: one weight is 0.005 of it */
    assert_true(fabs(prune_metric(&result, "sparsity_targeted") - 0.4) < 0.01);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* Hidden states of 128 windows of 2048 tokens at 4096 wide do not stay in memory. */
static void test_wanda_estimate__large_models_use_a_mapped_file(void **state)
{
    (void)state;
    struct espl_model_config config = prune_llama_config();
    struct espl_wanda_params params = prune_wanda_params();
    struct espl_prune_selection selection;
    struct espl_estimate small = {0}, large = {0};
    struct espl_error err;
    const struct espl_calibration_info few = {11, 16, 0}, many = {128, 2048, 0};
    assert_int_equal(espl_prune_select(&config, &params.common, &selection, &err), ESPL_OK);
    espl_wanda_estimate(&config, &params, &selection, &few, &small);
    assert_string_equal(small.note, "21 of 22 linear layers");
    assert_int_equal(small.units, 3);
    assert_true(small.flop > 0.0);
    params.rule = 1; /* cumulative: two score matrices of the largest linear, 40 x 24 */
    large = small;
    espl_wanda_estimate(&config, &params, &selection, &few, &large);
    assert_int_equal(large.host_bytes, small.host_bytes + 2 * 40 * 24 * 4);
    config.hidden = 4096;
    espl_wanda_estimate(&config, &params, &selection, &many, &large);
    assert_string_equal(large.note, "21 of 22 linear layers; hidden states in a mapped file");
    assert_true(large.scratch_bytes > UINT64_C(264) * 2048 * 4096 * 4);
    espl_prune_selection_free(&selection);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wanda__removes_half_of_every_row_and_counts_it),
        cmocka_unit_test(test_wanda__first_linear_equals_the_definition),
        cmocka_unit_test(test_wanda__nm_keeps_n_and_the_tail),
        cmocka_unit_test(test_wanda__propagation_changes_later_blocks_only),
        cmocka_unit_test(test_wanda__block_range_and_denominators),
        cmocka_unit_test(test_wanda__of_a_masked_model),
        cmocka_unit_test(test_wanda__cumulative_rule_reaches_its_sparsity),
        cmocka_unit_test(test_wanda_estimate__large_models_use_a_mapped_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
