/* magnitude-prune on tiny models: thresholds of matrices, rows and patterns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_cases.h"
#include "stages/nm_supernet/nm_rank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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
    struct prune_magnitude_params params = prune_magnitude_params();
    params.common.sparsity = sparsity;
    prune_open_llama(&fixture, dtype, NULL);
    prune_run_ok(&fixture, &espl_stage_magnitude_prune, &params, 'c', 'a', 0, NULL);
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
    struct prune_magnitude_params params = prune_magnitude_params();
    prune_open_llama(&fixture, ESPL_DTYPE_BF16, NULL);
    params.scope = 1;
    params.common.sparsity = 0.25;
    prune_run_ok(&fixture, &espl_stage_magnitude_prune, &params, 'c', 'a', 0, &result);
    assert_true(prune_metric(&result, "sparsity_targeted") == 0.25);
    assert_int_equal(json_array_size(result.layers), 21);
    prune_result_free(&result);
    params = prune_magnitude_params();
    params.common.pattern = (struct espl_nm){1, 8};
    prune_run_ok(&fixture, &espl_stage_magnitude_prune, &params, 'd', 'a', 0, &result);
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

/* Rows that share a pattern, from this stage and from the ranks of a supernet: written apart, one
 * sorts scores, the other counts what beats each weight. 5 divides no matrix. */
static void test_magnitude__shared_patterns_are_those_of_a_supernet(void **state)
{
    (void)state;
    enum { VECTOR = 5, N = 3, M = 8 };
    struct prune_fixture fixture;
    struct espl_artifact *artifact = NULL, *dense_artifact = NULL;
    struct espl_model *model = NULL, *dense = NULL;
    struct espl_error err;
    struct prune_magnitude_params params = prune_magnitude_params();
    params.common.pattern = (struct espl_nm){N, M};
    params.common.vector = VECTOR;
    params.common.sparsity = 1.0 - (double)N / M;
    prune_open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    prune_run_ok(&fixture, &espl_stage_magnitude_prune, &params, 'c', 'a', 0, NULL);
    prune_open(&fixture, 'a', &dense_artifact, &dense);
    prune_open(&fixture, 'c', &artifact, &model);
    size_t compared = 0;
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (!espl_model_has_mask(model, spec)) {
            continue;
        }
        const struct espl_matrix_shape shape = {(size_t)spec->shape[0], (size_t)spec->shape[1]};
        const size_t bytes = shape.rows * espl_mask_stride(shape.cols);
        float *w = malloc(shape.rows * shape.cols * sizeof *w);
        uint8_t *ranks = malloc(shape.rows * shape.cols);
        uint8_t *expected = malloc(bytes);
        assert_non_null(w);
        assert_non_null(ranks);
        assert_non_null(expected);
        assert_int_equal(
            espl_model_read_f32(dense, espl_model_tensor(dense, i), 0, spec->shape[0], w, &err),
            ESPL_OK);
        espl_nm_rank(&shape, M, VECTOR, w, ranks);
        espl_nm_mask(&shape, VECTOR, ranks, N, expected);
        uint8_t *mask = prune_read_mask(model, spec);
        assert_memory_equal(mask, expected, bytes);
        free(mask);
        free(expected);
        free(ranks);
        free(w);
        compared++;
    }
    assert_int_equal(compared, 21);
    espl_model_close(model);
    espl_model_close(dense);
    espl_artifact_close(artifact);
    espl_artifact_close(dense_artifact);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_magnitude__matrix_threshold),
        cmocka_unit_test(test_magnitude__rows_and_patterns),
        cmocka_unit_test(test_magnitude__shared_patterns_are_those_of_a_supernet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
