/* sparsegpt-prune on tiny models: what is removed and counted, the model view, resume, threads,
 * better than pruning without updates, what follows it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "quant_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Weights that are not 0, against the mask; *moved: kept weights that differ from the base. */
static void check_weights(struct prune_fixture *fixture, char key, uint64_t *kept, uint64_t *moved)
{
    struct espl_artifact *artifacts[2] = {NULL, NULL};
    struct espl_model *models[2] = {NULL, NULL};
    struct espl_error err;
    *kept = 0;
    *moved = 0;
    prune_open(fixture, 'a', &artifacts[0], &models[0]);
    prune_open(fixture, key, &artifacts[1], &models[1]);
    for (size_t i = 0; i < espl_model_tensor_count(models[1]); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(models[1], i);
        float row[2][64];
        if (!espl_role_is_block_linear(spec->role) || spec->is_bias) {
            assert_int_equal(espl_model_dtype(models[1], spec), ESPL_DTYPE_BF16);
            assert_false(espl_model_has_mask(models[1], spec));
            continue;
        }
        assert_int_equal(espl_model_dtype(models[1], spec), ESPL_DTYPE_F32);
        uint8_t *mask = prune_read_mask(models[1], spec);
        for (uint64_t r = 0; r < spec->shape[0]; r++) {
            for (size_t m = 0; m < 2; m++) {
                assert_int_equal(espl_model_read_f32(models[m], espl_model_tensor(models[m], i), r,
                                                     1, row[m], &err),
                                 ESPL_OK);
            }
            for (size_t c = 0; c < spec->shape[1]; c++) {
                const bool bit = prune_mask_bit(mask, spec->shape[1], r, c);
                assert_true(bit || row[1][c] == 0.0f);
                *kept += bit;
                *moved += bit && row[1][c] != row[0][c];
            }
        }
        free(mask);
    }
    for (size_t m = 0; m < 2; m++) {
        espl_model_close(models[m]);
        espl_artifact_close(artifacts[m]);
    }
}

static void test_unstructured__removes_half_and_updates_the_rest(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *artifact = NULL;
    uint64_t kept = 0, moved = 0;
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    const struct espl_model_config config = prune_llama_config();
    const struct espl_sparsegpt_params params = quant_sparsegpt_params();
    prune_open_case(&fixture, &config, ESPL_DTYPE_BF16, NULL);
    quant_run(&fixture, &espl_stage_sparsegpt_prune, &params, 'c', 'a', &result);
    check_weights(&fixture, 'c', &kept, &moved);
    const double weights = 3.0 * (2 * 576 + 2 * 192 + 3 * 960);
    /* trunc(count / 2) + 1 of every matrix, all of them narrower than a block of 128 columns; of
     * equal scores (bf16 has few values) all go */
    assert_true((double)kept <= weights / 2 - 21 && (double)kept > weights / 2 - 42);
    assert_true((double)moved > 0.9 * (double)kept);
    assert_true(prune_metric(&result, "sparsity_targeted") == 1.0 - (double)kept / weights);
    assert_true(isfinite(prune_metric(&result, "check_perplexity_ratio")));
    assert_int_equal(json_array_size(result.layers), 21 * 2 + 3);
    prune_path(&fixture, 'c', path);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    assert_string_equal(espl_artifact_kind(artifact), "model.updated/1");
    assert_null(espl_artifact_find(artifact, "/embed_tokens/weight"));
    espl_artifact_close(artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_pattern__holds_in_every_window(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    const struct espl_model_config config = prune_opt_config();
    struct espl_sparsegpt_params params = quant_sparsegpt_params();
    params.common.pattern = (struct espl_nm){2, 4};
    prune_open_case(&fixture, &config, ESPL_DTYPE_BF16, NULL);
    quant_run(&fixture, &espl_stage_sparsegpt_prune, &params, 'c', 'a', NULL);
    prune_open(&fixture, 'c', &artifact, &model);
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (!espl_role_is_block_linear(spec->role) || spec->is_bias) {
            continue;
        }
        uint8_t *mask = prune_read_mask(model, spec);
        for (uint64_t r = 0; r < spec->shape[0]; r++) {
            for (uint64_t c = 0; c < spec->shape[1]; c += 4) {
                unsigned kept = 0;
                for (uint64_t j = 0; j < 4; j++) {
                    kept += prune_mask_bit(mask, spec->shape[1], r, c + j);
                }
                assert_int_equal(kept, 2);
            }
        }
        free(mask);
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_fixture_close(&fixture);
}

/* At most 15 different values a group of 4 bits may take: here 3 bits, one scale a row. */
static void test_joint__weights_lie_on_a_grid(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_error err;
    uint64_t kept = 0, moved = 0;
    float row[40];
    const struct espl_model_config config = prune_llama_config();
    struct espl_sparsegpt_params params = quant_sparsegpt_params();
    params.weight_bits = 3;
    params.group_size = 0;
    prune_open_case(&fixture, &config, ESPL_DTYPE_BF16, NULL);
    quant_run(&fixture, &espl_stage_sparsegpt_prune, &params, 'c', 'a', NULL);
    check_weights(&fixture, 'c', &kept, &moved);
    prune_open(&fixture, 'c', &artifact, &model);
    const struct espl_tensor_spec *down = espl_model_find(model, 1, ESPL_ROLE_DOWN, false);
    for (uint64_t r = 0; r < down->shape[0]; r++) {
        float smallest = INFINITY;
        assert_int_equal(espl_model_read_f32(model, down, r, 1, row, &err), ESPL_OK);
        for (size_t c = 0; c < 40; c++) {
            smallest = row[c] != 0.0f ? fminf(smallest, fabsf(row[c])) : smallest;
        }
        for (size_t c = 0; c < 40; c++) {
            bool on_grid = false;
            /* the smallest value in the row is 1, 2, 3 or 4 steps from 0 */
            for (int unit = 1; unit <= 4 && !on_grid; unit++) {
                const float steps = row[c] / (smallest / (float)unit);
                on_grid = fabsf(steps - rintf(steps)) < 1e-4f && fabsf(steps) < 4.5f;
            }
            assert_true(on_grid);
        }
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_fixture_close(&fixture);
}

static void test_updates__beat_pruning_without_them(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    const struct espl_model_config config = prune_opt_config();
    struct espl_sparsegpt_params params = quant_sparsegpt_params();
    const struct espl_wanda_params wanda = quant_wanda_params();
    struct prune_result results[2];
    prune_open_case(&fixture, &config, ESPL_DTYPE_BF16, NULL);
    quant_run(&fixture, &espl_stage_sparsegpt_prune, &params, 'c', 'a', &results[0]);
    quant_run(&fixture, &espl_stage_wanda_prune, &wanda, 'd', 'a', &results[1]);
    size_t count = 0;
    float *dense = quant_logits(&fixture, 'a', 3, 16, NULL, NULL, &count);
    float *updated = quant_logits(&fixture, 'c', 3, 16, NULL, NULL, &count);
    float *masked = quant_logits(&fixture, 'd', 3, 16, NULL, NULL, &count);
    double errors[2] = {0.0, 0.0};
    for (size_t i = 0; i < count; i++) {
        errors[0] += pow((double)updated[i] - (double)dense[i], 2.0);
        errors[1] += pow((double)masked[i] - (double)dense[i], 2.0);
    }
    print_message("squared logit error: %.4g with updates, %.4g by Wanda\n", errors[0], errors[1]);
    assert_true(errors[0] < errors[1]);
    free(dense);
    free(updated);
    free(masked);
    prune_result_free(&results[0]);
    prune_result_free(&results[1]);
    prune_fixture_close(&fixture);
}

/* prune with updates -> quantise: the mask of the changed weights stays. */
static void test_quantising_it__keeps_its_mask(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result first, second;
    const struct espl_model_config config = prune_opt_config();
    const struct espl_sparsegpt_params prune = quant_sparsegpt_params();
    const struct espl_atom_params quantise = quant_atom_params();
    prune_open_case(&fixture, &config, ESPL_DTYPE_BF16, NULL);
    quant_run(&fixture, &espl_stage_sparsegpt_prune, &prune, 'c', 'a', &first);
    quant_run(&fixture, &espl_stage_atom_quantize, &quantise, 'd', 'c', &second);
    assert_true(prune_metric(&second, "mask_sparsity") ==
                prune_metric(&first, "sparsity_targeted"));
    prune_result_free(&first);
    prune_result_free(&second);
    prune_fixture_close(&fixture);
}

static void test_resume__gives_the_bytes_of_an_uninterrupted_run(void **state)
{
    (void)state;
    static const char *const some[] = {"*.mlp.*", "*.o_proj"};
    const struct espl_model_config config = prune_llama_config();
    struct espl_sparsegpt_params params = quant_sparsegpt_params();
    params.common.layers.targets = (struct espl_list){2, some};
    prune_check_resume(&config, ESPL_DTYPE_BF16, &espl_stage_sparsegpt_prune, &params, 'b');
}

static void test_threads__do_not_change_a_byte(void **state)
{
    (void)state;
    const struct espl_model_config config = prune_llama_config();
    const struct espl_sparsegpt_params params = quant_sparsegpt_params();
    prune_check_threads(&config, ESPL_DTYPE_BF16, &espl_stage_sparsegpt_prune, &params, 'b');
}

static void break_norm(const struct espl_tensor_spec *spec, float *values)
{
    if (spec->role == ESPL_ROLE_MLP_NORM && spec->layer == 1) {
        values[5] = INFINITY;
    }
}

static void test_failures__name_the_place(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const struct espl_model_config config = prune_llama_config();
    struct espl_sparsegpt_params params = quant_sparsegpt_params();
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, break_norm);
    prune_make_random_tokens(&fixture, 'b', 11, 16);
    assert_int_equal(
        prune_run(&fixture, &espl_stage_sparsegpt_prune, &params, 'c', 'a', 'b', NULL, NULL, &err),
        ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "channel 5"));
    assert_non_null(strstr(err.context, "layer 1"));
    prune_fixture_close(&fixture);
    prune_open_case(&fixture, &config, ESPL_DTYPE_BF16, NULL);
    params.group_size = 8;
    assert_int_equal(
        prune_run(&fixture, &espl_stage_sparsegpt_prune, &params, 'c', 'a', 'b', NULL, NULL, &err),
        ESPL_E_JOB);
    assert_string_equal(err.message, "group_size 8 has nothing to quantise");
    assert_string_equal(err.blame, "param:group_size");
    params.weight_bits = 4;
    params.group_size = 7;
    assert_int_equal(
        prune_run(&fixture, &espl_stage_sparsegpt_prune, &params, 'c', 'a', 'b', NULL, NULL, &err),
        ESPL_E_JOB);
    assert_string_equal(err.blame, "param:group_size");
    params.group_size = 8;
    params.common.pattern = (struct espl_nm){2, 3};
    params.common.tail = ESPL_PRUNE_TAIL_DENSE;
    assert_int_equal(
        prune_run(&fixture, &espl_stage_sparsegpt_prune, &params, 'c', 'a', 'b', NULL, NULL, &err),
        ESPL_E_JOB);
    assert_string_equal(err.blame, "param:pattern");
    params = quant_sparsegpt_params();
    params.max_perplexity_ratio = 0.001;
    assert_int_equal(
        prune_run(&fixture, &espl_stage_sparsegpt_prune, &params, 'c', 'a', 'b', NULL, NULL, &err),
        ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "by pruning"));
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unstructured__removes_half_and_updates_the_rest),
        cmocka_unit_test(test_pattern__holds_in_every_window),
        cmocka_unit_test(test_joint__weights_lie_on_a_grid),
        cmocka_unit_test(test_updates__beat_pruning_without_them),
        cmocka_unit_test(test_quantising_it__keeps_its_mask),
        cmocka_unit_test(test_resume__gives_the_bytes_of_an_uninterrupted_run),
        cmocka_unit_test(test_threads__do_not_change_a_byte),
        cmocka_unit_test(test_failures__name_the_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
