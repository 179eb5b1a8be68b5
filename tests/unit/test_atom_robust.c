/* atom-quantize when things go wrong or stop: resume, threads, values that are not finite, channels
 * without activation, the quality check. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "quant_fixture.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- resume, threads ---- */

static void check_resume(const struct espl_atom_params *params)
{
    const struct espl_model_config config = prune_llama_config();
    prune_check_resume(&config, ESPL_DTYPE_F32, &espl_stage_atom_quantize, params, 'b');
}

static void test_resume__gives_the_bytes_of_an_uninterrupted_run(void **state)
{
    (void)state;
    struct espl_atom_params params = quant_atom_params();
    check_resume(&params);
    params.method = ESPL_ATOM_RTN;
    check_resume(&params);
    params.method = ESPL_ATOM_GPTQ;
    params.activation_bits = 16;
    check_resume(&params);
}

static void test_threads__do_not_change_a_byte(void **state)
{
    (void)state;
    const struct espl_model_config config = prune_opt_config();
    const struct espl_atom_params params = quant_atom_params();
    prune_check_threads(&config, ESPL_DTYPE_F32, &espl_stage_atom_quantize, &params, 'b');
}

/* ---- failures ---- */

static void run_fails(prune_edit_fn edit, const struct espl_atom_params *params,
                      enum espl_status code, const char *part, struct espl_error *err)
{
    struct prune_fixture fixture;
    char path[ESPL_PATH_MAX];
    const struct espl_model_config config = prune_llama_config();
    prune_open_case(&fixture, &config, ESPL_DTYPE_F32, edit);
    assert_int_equal(
        prune_run(&fixture, &espl_stage_atom_quantize, params, 'c', 'a', 'b', NULL, NULL, err),
        code);
    if (strstr(err->message, part) == NULL) {
        fail_msg("'%s' does not contain '%s'", err->message, part);
    }
    prune_path(&fixture, 'c', path);
    assert_false(espl_fs_exists(path));
    prune_fixture_close(&fixture);
}

static void break_norm(const struct espl_tensor_spec *spec, float *values)
{
    if (spec->role == ESPL_ROLE_MLP_NORM && spec->layer == 1) {
        values[5] = INFINITY;
    }
}

static void break_weight(const struct espl_tensor_spec *spec, float *values)
{
    if (spec->role == ESPL_ROLE_DOWN && spec->layer == 2) {
        values[41] = NAN; /* 40 columns: row 1, column 1 */
    }
}

static void test_not_finite__stops_and_names_the_place(void **state)
{
    (void)state;
    const struct espl_atom_params params = quant_atom_params();
    struct espl_error err;
    run_fails(break_norm, &params, ESPL_E_NUMERIC,
              "(layer 1) is not finite: channel 5, calibration window 0, token 0", &err);
    run_fails(break_weight, &params, ESPL_E_NUMERIC, "weight of row 1, column 1 is not finite",
              &err);
    assert_non_null(strstr(err.context, "layers.2.mlp.down_proj"));
}

static void test_quality_check__stops(void **state)
{
    (void)state;
    struct espl_atom_params params = quant_atom_params();
    struct espl_error err;
    params.max_perplexity_ratio = 0.001;
    run_fails(NULL, &params, ESPL_E_NUMERIC, "above max_perplexity_ratio 0.001", &err);
    assert_string_equal(err.blame, "param:max_perplexity_ratio");
}

/* Channel 2 of the residual stream is 0 at the first norm: a dead input channel. */
static void silence_channel(const struct espl_tensor_spec *spec, float *values)
{
    if (spec->role == ESPL_ROLE_ATTENTION_NORM) {
        values[2] = 0.0f;
    }
    for (size_t i = 0; spec->role == ESPL_ROLE_V && !spec->is_bias && i < spec->shape[1]; i++) {
        values[i] = 0.25f; /* a constant row */
        values[spec->shape[1] + i] = 0.0f;
    }
}

static void test_silent_channels_and_constant_rows__pass(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_error err;
    float w[8 * 24];
    const struct espl_model_config config = prune_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    prune_open_case(&fixture, &config, ESPL_DTYPE_F32, silence_channel);
    quant_run(&fixture, &espl_stage_atom_quantize, &params, 'c', 'a', &result);
    prune_open(&fixture, 'c', &artifact, &model);
    assert_int_equal(
        espl_model_read_f32(model, espl_model_find(model, 0, ESPL_ROLE_V, false), 0, 8, w, &err),
        ESPL_OK);
    for (size_t row = 0; row < 8; row++) {
        assert_true(w[row * 24 + 2] == 0.0f); /* nothing comes in there */
        for (size_t c = 0; c < 24; c++) {
            assert_true(isfinite(w[row * 24 + c]) && (row != 1 || w[24 + c] == 0.0f));
        }
    }
    assert_true(isfinite(prune_metric(&result, "check_perplexity")));
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_stops_when_asked(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const volatile int stopped = 1;
    const struct espl_model_config config = prune_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    prune_open_case(&fixture, &config, ESPL_DTYPE_F32, NULL);
    assert_int_equal(prune_run(&fixture, &espl_stage_atom_quantize, &params, 'c', 'a', 'b',
                               &stopped, NULL, &err),
                     ESPL_E_CANCELLED);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume__gives_the_bytes_of_an_uninterrupted_run),
        cmocka_unit_test(test_threads__do_not_change_a_byte),
        cmocka_unit_test(test_not_finite__stops_and_names_the_place),
        cmocka_unit_test(test_quality_check__stops),
        cmocka_unit_test(test_silent_channels_and_constant_rows__pass),
        cmocka_unit_test(test_stops_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
