/* wanda-prune and magnitude-prune on tiny models: masks, counts, resume, threads, failures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_fixture.h"

#include "espalier/kernels.h"
#include "stages/prune_common/prune_mask.h"
#include "stages/registry.h"
#include "stages/wanda_prune/wanda_setup.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_wanda_prune;
extern const struct espl_stage espl_stage_magnitude_prune;

static const char *const all[] = {"*"};

static struct espl_wanda_params wanda_params(void)
{
    return (struct espl_wanda_params){
        .common = {.sparsity = 0.5, .targets = {1, all}, .last_layer = -1},
        .max_perplexity_ratio = 100.0};
}

/* The head of magnitude-prune's parameters is shared; scope follows. */
struct magnitude_params {
    struct espl_prune_params common;
    int scope;
};

static struct magnitude_params magnitude_params(void)
{
    return (struct magnitude_params){
        .common = {.sparsity = 0.5, .targets = {1, all}, .last_layer = -1}};
}

static void run_ok(struct prune_fixture *fixture, const struct espl_stage *stage,
                   const void *params, char key, char model, char tokens,
                   struct prune_result *result)
{
    struct espl_error err;
    if (prune_run(fixture, stage, params, key, model, tokens, NULL, result, &err) != ESPL_OK) {
        fail_msg("%s [%s]", err.message, err.context);
    }
}

static void run_fails(struct prune_fixture *fixture, const struct espl_stage *stage,
                      const void *params, enum espl_status code, const char *part,
                      struct espl_error *err)
{
    const char tokens = stage == &espl_stage_wanda_prune ? 'b' : 0;
    assert_int_equal(prune_run(fixture, stage, params, 'c', 'a', tokens, NULL, NULL, err), code);
    if (strstr(err->message, part) == NULL) {
        fail_msg("'%s' does not contain '%s'", err->message, part);
    }
    char path[ESPL_PATH_MAX];
    prune_path(fixture, 'c', path);
    assert_false(espl_fs_exists(path));
}

static void open_llama(struct prune_fixture *fixture, enum espl_dtype dtype, prune_edit_fn edit)
{
    const struct espl_model_config config = prune_llama_config();
    prune_fixture_open(fixture);
    prune_make_model(fixture, 'a', &config, dtype, edit);
    prune_make_random_tokens(fixture, 'b', 11, 16);
}

/* ---- wanda ---- */

static void test_wanda__removes_half_of_every_row_and_counts_it(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    const struct espl_wanda_params params = wanda_params();
    open_llama(&fixture, ESPL_DTYPE_BF16, NULL);
    run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &result);
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
    const struct espl_wanda_params params = wanda_params();
    float embedding[50 * HIDDEN], gain[HIDDEN], w[HIDDEN * HIDDEN];
    double sums[HIDDEN] = {0.0};
    open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', NULL);
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
    struct espl_wanda_params params = wanda_params();
    const struct espl_model_config config = prune_opt_config();
    params.common.pattern = (struct espl_nm){1, 8};
    params.common.tail = ESPL_PRUNE_TAIL_DENSE; /* fc2 has 36 columns: 4 stay */
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_make_random_tokens(&fixture, 'b', 3, 64);
    run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &result);
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

static void read_bytes(struct prune_fixture *fixture, char key, char **data, size_t *len)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    prune_path(fixture, key, path);
    assert_int_equal(espl_fs_read_file(path, 1 << 24, data, len, &err), ESPL_OK);
}

static void assert_same_result(struct prune_fixture *left, struct prune_fixture *right,
                               const struct prune_result *a, const struct prune_result *b)
{
    char *left_data = NULL, *right_data = NULL;
    size_t left_len = 0, right_len = 0;
    assert_true(json_equal(a->metrics, b->metrics));
    assert_true(json_equal(a->layers, b->layers));
    assert_string_equal(a->content_sha256, b->content_sha256);
    read_bytes(left, 'c', &left_data, &left_len);
    read_bytes(right, 'c', &right_data, &right_len);
    assert_int_equal(left_len, right_len);
    assert_memory_equal(left_data, right_data, left_len);
    free(left_data);
    free(right_data);
}

/* Gives `to` the first `count` units of the run 'c' in `from`: what a run leaves that was killed
 * after that many blocks. */
static void copy_units(struct prune_fixture *from, struct prune_fixture *to, unsigned count)
{
    char from_dir[ESPL_PATH_MAX], to_dir[ESPL_PATH_MAX], path[ESPL_PATH_MAX], name[32];
    struct espl_error err;
    assert_int_equal(
        espl_store_units_dir(&from->store, prune_key(from, 'c'), false, from_dir, &err), ESPL_OK);
    assert_int_equal(espl_store_units_dir(&to->store, prune_key(to, 'c'), true, to_dir, &err),
                     ESPL_OK);
    for (unsigned i = 0; i < count; i++) {
        char *data = NULL;
        size_t len = 0;
        (void)snprintf(name, sizeof name, "unit-%06u.h5", i);
        assert_int_equal(espl_fs_join(path, from_dir, name, &err), ESPL_OK);
        assert_int_equal(espl_fs_read_file(path, 1 << 24, &data, &len, &err), ESPL_OK);
        assert_int_equal(espl_fs_join(path, to_dir, name, &err), ESPL_OK);
        assert_int_equal(espl_fs_write_file(path, data, len, &err), ESPL_OK);
        free(data);
    }
}

static void check_resume(const struct espl_stage *stage, const void *params)
{
    struct prune_fixture whole;
    struct prune_result expected;
    const char tokens = stage == &espl_stage_wanda_prune ? 'b' : 0;
    open_llama(&whole, ESPL_DTYPE_BF16, NULL);
    run_ok(&whole, stage, params, 'c', 'a', tokens, &expected);
    assert_int_equal(expected.resumed, 0);
    for (unsigned units = 1; units <= 3; units++) {
        struct prune_fixture resumed;
        struct prune_result result;
        open_llama(&resumed, ESPL_DTYPE_BF16, NULL);
        copy_units(&whole, &resumed, units);
        run_ok(&resumed, stage, params, 'c', 'a', tokens, &result);
        assert_int_equal(result.resumed, units);
        assert_same_result(&whole, &resumed, &expected, &result);
        prune_result_free(&result);
        prune_fixture_close(&resumed);
    }
    prune_result_free(&expected);
    prune_fixture_close(&whole);
}

static void test_wanda__resume_gives_the_bytes_of_an_uninterrupted_run(void **state)
{
    (void)state;
    struct espl_wanda_params params = wanda_params();
    check_resume(&espl_stage_wanda_prune, &params);
    params.propagate = ESPL_WANDA_PROPAGATE_DENSE;
    check_resume(&espl_stage_wanda_prune, &params);
}

static void test_magnitude__resume_gives_the_bytes_of_an_uninterrupted_run(void **state)
{
    (void)state;
    const struct magnitude_params params = magnitude_params();
    check_resume(&espl_stage_magnitude_prune, &params);
}

static void test_wanda__threads_do_not_change_a_byte(void **state)
{
    (void)state;
    static const char *const mlp[] = {"*.mlp.*", "o_proj"};
    const int before = omp_get_max_threads();
    struct espl_wanda_params params = wanda_params();
    struct prune_fixture first;
    struct prune_result expected;
    params.common.targets = (struct espl_list){2, mlp};
    omp_set_num_threads(1);
    open_llama(&first, ESPL_DTYPE_F32, NULL);
    run_ok(&first, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &expected);
    for (int threads = 2; threads <= 3; threads++) {
        struct prune_fixture other;
        struct prune_result result;
        omp_set_num_threads(threads);
        open_llama(&other, ESPL_DTYPE_F32, NULL);
        run_ok(&other, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &result);
        assert_same_result(&first, &other, &expected, &result);
        prune_result_free(&result);
        prune_fixture_close(&other);
    }
    omp_set_num_threads(before);
    prune_result_free(&expected);
    prune_fixture_close(&first);
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
    struct espl_wanda_params params = wanda_params();
    size_t different = 0;
    open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &pruned);
    params.propagate = ESPL_WANDA_PROPAGATE_DENSE;
    run_ok(&fixture, &espl_stage_wanda_prune, &params, 'd', 'a', 'b', &dense);
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
    struct espl_wanda_params params = wanda_params();
    params.common.first_layer = 1;
    params.common.last_layer = 1;
    open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &result);
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
    struct magnitude_params magnitude = magnitude_params();
    struct espl_wanda_params params = wanda_params();
    magnitude.common.sparsity = 0.25;
    magnitude.scope = 1; /* row */
    params.common.targets = (struct espl_list){1, mlp};
    open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    run_ok(&fixture, &espl_stage_magnitude_prune, &magnitude, 'c', 'a', 0, NULL);
    run_ok(&fixture, &espl_stage_wanda_prune, &params, 'd', 'c', 'b', &result);
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

static void infinite_embedding(const struct espl_tensor_spec *spec, float *values)
{
    if (spec->role == ESPL_ROLE_EMBEDDING) {
        values[7 * 24 + 3] = INFINITY;
    }
}

static void test_wanda__activation_that_is_not_finite(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const struct espl_wanda_params params = wanda_params();
    const struct espl_model_config config = prune_llama_config();
    int32_t ids[9 * 8] = {0};
    ids[5 * 8 + 6] = 7; /* window 5, token 6 */
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, infinite_embedding);
    prune_make_tokens(&fixture, 'b', ids, 9, 8, 50);
    run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_NUMERIC,
              "activation at the input of 'layers.0.self_attn.q_proj' (layer 0) is not finite: "
              "channel ",
              &err);
    assert_non_null(strstr(err.message, "calibration window 5, token 6"));
    prune_fixture_close(&fixture);
}

static void nan_weight(const struct espl_tensor_spec *spec, float *values)
{
    if (spec->layer == 1 && spec->role == ESPL_ROLE_K && !spec->is_bias) {
        values[2 * 24 + 5] = NAN;
    }
}

static void test_prune__weight_that_is_not_finite(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const struct espl_wanda_params params = wanda_params();
    struct magnitude_params magnitude = magnitude_params();
    open_llama(&fixture, ESPL_DTYPE_BF16, nan_weight);
    run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_NUMERIC,
              "activation at the input of 'layers.1.self_attn.o_proj' (layer 1)", &err);
    run_fails(&fixture, &espl_stage_magnitude_prune, &magnitude, ESPL_E_NUMERIC,
              "weight of 'layers.1.self_attn.k_proj' at row 2, column 5 is not finite", &err);
    magnitude.scope = 1;
    run_fails(&fixture, &espl_stage_magnitude_prune, &magnitude, ESPL_E_NUMERIC,
              "weight of 'layers.1.self_attn.k_proj' at row 2, column 5 is not finite", &err);
    assert_non_null(strstr(err.context, "while pruning 'layers.1.self_attn.k_proj'"));
    prune_fixture_close(&fixture);
}

static void test_wanda__quality_check_stops_and_names_blocks(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    struct espl_wanda_params params = wanda_params();
    params.max_perplexity_ratio = 1e-3;
    open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_NUMERIC,
              "perplexity on 8 calibration windows rose from ", &err);
    assert_non_null(strstr(err.message, "above max_perplexity_ratio 0.001"));
    assert_non_null(strstr(err.hint, "largest output errors: block "));
    assert_string_equal(err.blame, "param:max_perplexity_ratio");
    char first_hint[sizeof err.hint];
    memcpy(first_hint, err.hint, sizeof first_hint);
    /* all blocks are finished now: the resumed run says the same from the kept units */
    run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_NUMERIC, "rose from", &err);
    assert_string_equal(err.hint, first_hint);
    prune_fixture_close(&fixture);
}

static void test_prune__stops_when_asked(void **state)
{
    (void)state;
    const volatile int stopped = 1;
    struct prune_fixture fixture;
    struct espl_error err;
    const struct espl_wanda_params params = wanda_params();
    const struct magnitude_params magnitude = magnitude_params();
    open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    assert_int_equal(
        prune_run(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &stopped, NULL, &err),
        ESPL_E_CANCELLED);
    assert_int_equal(prune_run(&fixture, &espl_stage_magnitude_prune, &magnitude, 'c', 'a', 0,
                               &stopped, NULL, &err),
                     ESPL_E_CANCELLED);
    prune_fixture_close(&fixture);
}

static void test_wanda__tokens_that_do_not_fit(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const struct espl_wanda_params params = wanda_params();
    const struct espl_model_config config = prune_opt_config();
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_make_random_tokens(&fixture, 'b', 0, 300);
    run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_JOB,
              "input 'tokens' is one long text, but calibration needs windows", &err);
    assert_string_equal(err.hint, "set 'samples' and 'sequence_length' of the tokens stage, for "
                                  "example {samples: 128, sequence_length: 64}");
    assert_string_equal(err.blame, "input:tokens");
    prune_fixture_close(&fixture);

    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_make_random_tokens(&fixture, 'b', 2, 65);
    run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_KIND,
              "calibration windows have 65 tokens, but the model has 64 positions", &err);
    prune_fixture_close(&fixture);

    const int32_t ids[4] = {1, 2, 3, 4};
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_make_tokens(&fixture, 'b', ids, 2, 2, 51);
    run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_KIND,
              "the tokenizer of input 'tokens' has 51 entries, but the model's vocabulary has 50",
              &err);
    prune_fixture_close(&fixture);
}

static void test_wanda_check_rule__cumulative_with_a_pattern(void **state)
{
    (void)state;
    struct espl_wanda_params params = wanda_params();
    struct espl_error err;
    params.rule = 1;
    assert_int_equal(espl_wanda_check_rule(&params, &err), ESPL_OK);
    params.common.pattern = (struct espl_nm){2, 4};
    assert_int_equal(espl_wanda_check_rule(&params, &err), ESPL_E_JOB);
    assert_string_equal(err.blame, "param:rule");
}

static void test_wanda__cumulative_rule_reaches_its_sparsity(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_wanda_params params = wanda_params();
    params.rule = 1;
    params.common.sparsity = 0.4;
    open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    run_ok(&fixture, &espl_stage_wanda_prune, &params, 'c', 'a', 'b', &result);
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
    struct espl_wanda_params params = wanda_params();
    struct espl_prune_selection selection;
    struct espl_estimate small = {0}, large = {0};
    struct espl_error err;
    const struct espl_wanda_windows few = {11, 16, 0}, many = {128, 2048, 0};
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

/* ---- magnitude ---- */

static int compare_floats(const void *a, const void *b)
{
    const float left = *(const float *)a, right = *(const float *)b;
    return (left > right) - (left < right);
}

static void check_magnitude_matrix(enum espl_dtype dtype, double sparsity)
{
    struct prune_fixture fixture;
    struct espl_artifact *artifact = NULL, *dense_artifact = NULL;
    struct espl_model *model = NULL, *dense = NULL;
    struct espl_error err;
    struct magnitude_params params = magnitude_params();
    params.common.sparsity = sparsity;
    open_llama(&fixture, dtype, NULL);
    run_ok(&fixture, &espl_stage_magnitude_prune, &params, 'c', 'a', 0, NULL);
    prune_open(&fixture, 'a', &dense_artifact, &dense);
    prune_open(&fixture, 'c', &artifact, &model);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        assert_int_equal(espl_model_has_mask(model, spec), espl_role_is_block_linear(spec->role));
        if (!espl_model_has_mask(model, spec)) {
            continue;
        }
        const size_t count = (size_t)(spec->shape[0] * spec->shape[1]);
        float *w = malloc(count * sizeof *w), *sorted = malloc(count * sizeof *sorted);
        assert_non_null(w);
        assert_non_null(sorted);
        assert_int_equal(
            espl_model_read_f32(dense, espl_model_tensor(dense, i), 0, spec->shape[0], w, &err),
            ESPL_OK);
        for (size_t j = 0; j < count; j++) {
            sorted[j] = fabsf(w[j]);
        }
        qsort(sorted, count, sizeof *sorted, compare_floats);
        const float threshold = sorted[(size_t)((double)count * sparsity)];
        uint8_t *mask = prune_read_mask(model, spec);
        for (size_t j = 0; j < count; j++) {
            const bool keep = sparsity == 0.0 || fabsf(w[j]) > threshold;
            assert_int_equal(
                prune_mask_bit(mask, spec->shape[1], j / spec->shape[1], j % spec->shape[1]), keep);
        }
        free(mask);
        free(w);
        free(sorted);
    }
    espl_model_close(model);
    espl_model_close(dense);
    espl_artifact_close(artifact);
    espl_artifact_close(dense_artifact);
    prune_fixture_close(&fixture);
}

static void test_magnitude__matrix_threshold(void **state)
{
    (void)state;
    check_magnitude_matrix(ESPL_DTYPE_BF16, 0.5);
    check_magnitude_matrix(ESPL_DTYPE_F32, 0.7);
    check_magnitude_matrix(ESPL_DTYPE_F32, 0.0);
}

static void test_magnitude__rows_and_patterns(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct magnitude_params params = magnitude_params();
    open_llama(&fixture, ESPL_DTYPE_BF16, NULL);
    params.scope = 1;
    params.common.sparsity = 0.25;
    run_ok(&fixture, &espl_stage_magnitude_prune, &params, 'c', 'a', 0, &result);
    assert_true(prune_metric(&result, "sparsity_targeted") == 0.25);
    assert_int_equal(json_array_size(result.layers), 21);
    prune_result_free(&result);
    params = magnitude_params();
    params.common.pattern = (struct espl_nm){1, 8};
    run_ok(&fixture, &espl_stage_magnitude_prune, &params, 'd', 'a', 0, &result);
    assert_true(prune_metric(&result, "sparsity_targeted") == 0.875);
    prune_result_free(&result);
    struct espl_error err;
    params.scope = 1;
    assert_int_equal(
        prune_run(&fixture, &espl_stage_magnitude_prune, &params, 'e', 'a', 0, NULL, NULL, &err),
        ESPL_E_JOB);
    assert_string_equal(err.blame, "param:scope");
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wanda__removes_half_of_every_row_and_counts_it),
        cmocka_unit_test(test_wanda__first_linear_equals_the_definition),
        cmocka_unit_test(test_wanda__nm_keeps_n_and_the_tail),
        cmocka_unit_test(test_wanda__resume_gives_the_bytes_of_an_uninterrupted_run),
        cmocka_unit_test(test_wanda__threads_do_not_change_a_byte),
        cmocka_unit_test(test_wanda__propagation_changes_later_blocks_only),
        cmocka_unit_test(test_wanda__block_range_and_denominators),
        cmocka_unit_test(test_wanda__of_a_masked_model),
        cmocka_unit_test(test_wanda__activation_that_is_not_finite),
        cmocka_unit_test(test_wanda__quality_check_stops_and_names_blocks),
        cmocka_unit_test(test_wanda__tokens_that_do_not_fit),
        cmocka_unit_test(test_wanda_check_rule__cumulative_with_a_pattern),
        cmocka_unit_test(test_wanda__cumulative_rule_reaches_its_sparsity),
        cmocka_unit_test(test_wanda_estimate__large_models_use_a_mapped_file),
        cmocka_unit_test(test_prune__weight_that_is_not_finite),
        cmocka_unit_test(test_prune__stops_when_asked),
        cmocka_unit_test(test_magnitude__matrix_threshold),
        cmocka_unit_test(test_magnitude__rows_and_patterns),
        cmocka_unit_test(test_magnitude__resume_gives_the_bytes_of_an_uninterrupted_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
