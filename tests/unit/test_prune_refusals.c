/* What wanda-prune and magnitude-prune refuse: values that are not finite, too large a loss of
 * quality, windows that do not fit the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_cases.h"

#include <math.h>
#include <string.h>

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
    const struct espl_wanda_params params = prune_wanda_params();
    const struct espl_model_config config = prune_llama_config();
    int32_t ids[9 * 8] = {0};
    ids[5 * 8 + 6] = 7; /* window 5, token 6 */
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, infinite_embedding);
    prune_make_tokens(&fixture, 'b', ids, 9, 8, 50);
    prune_run_fails(
        &fixture, &espl_stage_wanda_prune, &params, ESPL_E_NUMERIC,
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
    const struct espl_wanda_params params = prune_wanda_params();
    struct prune_magnitude_params magnitude = prune_magnitude_params();
    prune_open_llama(&fixture, ESPL_DTYPE_BF16, nan_weight);
    prune_run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_NUMERIC,
                    "activation at the input of 'layers.1.self_attn.o_proj' (layer 1)", &err);
    prune_run_fails(&fixture, &espl_stage_magnitude_prune, &magnitude, ESPL_E_NUMERIC,
                    "weight of 'layers.1.self_attn.k_proj' at row 2, column 5 is not finite", &err);
    magnitude.scope = 1;
    prune_run_fails(&fixture, &espl_stage_magnitude_prune, &magnitude, ESPL_E_NUMERIC,
                    "weight of 'layers.1.self_attn.k_proj' at row 2, column 5 is not finite", &err);
    assert_non_null(strstr(err.context, "while pruning 'layers.1.self_attn.k_proj'"));
    prune_fixture_close(&fixture);
}

static void test_wanda__quality_check_stops_and_names_blocks(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    struct espl_wanda_params params = prune_wanda_params();
    params.max_perplexity_ratio = 1e-3;
    prune_open_llama(&fixture, ESPL_DTYPE_F32, NULL);
    prune_run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_NUMERIC,
                    "perplexity on 8 calibration windows rose from ", &err);
    assert_non_null(strstr(err.message, "above max_perplexity_ratio 0.001"));
    assert_non_null(strstr(err.hint, "largest output errors: block "));
    assert_string_equal(err.blame, "param:max_perplexity_ratio");
    char first_hint[sizeof err.hint];
    memcpy(first_hint, err.hint, sizeof first_hint);
    /* all blocks are finished now: the resumed run says the same from the kept units */
    prune_run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_NUMERIC, "rose from", &err);
    assert_string_equal(err.hint, first_hint);
    prune_fixture_close(&fixture);
}

static void test_wanda__tokens_that_do_not_fit(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const struct espl_wanda_params params = prune_wanda_params();
    const struct espl_model_config config = prune_opt_config();
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_make_random_tokens(&fixture, 'b', 0, 300);
    prune_run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_JOB,
                    "input 'tokens' is one long text, but calibration needs windows", &err);
    assert_string_equal(err.hint, "set 'samples' and 'sequence_length' of the tokens stage, for "
                                  "example {samples: 128, sequence_length: 64}");
    assert_string_equal(err.blame, "input:tokens");
    prune_fixture_close(&fixture);

    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_make_random_tokens(&fixture, 'b', 2, 65);
    prune_run_fails(&fixture, &espl_stage_wanda_prune, &params, ESPL_E_KIND,
                    "calibration windows have 65 tokens, but the model has 64 positions", &err);
    prune_fixture_close(&fixture);

    const int32_t ids[4] = {1, 2, 3, 4};
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_make_tokens(&fixture, 'b', ids, 2, 2, 51);
    prune_run_fails(
        &fixture, &espl_stage_wanda_prune, &params, ESPL_E_KIND,
        "the tokenizer of input 'tokens' has 51 entries, but the model's vocabulary has 50", &err);
    prune_fixture_close(&fixture);
}

static void test_wanda_check_rule__cumulative_with_a_pattern(void **state)
{
    (void)state;
    struct espl_wanda_params params = prune_wanda_params();
    struct espl_error err;
    params.rule = 1;
    assert_int_equal(espl_wanda_check_rule(&params, &err), ESPL_OK);
    params.common.pattern = (struct espl_nm){2, 4};
    assert_int_equal(espl_wanda_check_rule(&params, &err), ESPL_E_JOB);
    assert_string_equal(err.blame, "param:rule");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wanda__activation_that_is_not_finite),
        cmocka_unit_test(test_prune__weight_that_is_not_finite),
        cmocka_unit_test(test_wanda__quality_check_stops_and_names_blocks),
        cmocka_unit_test(test_wanda__tokens_that_do_not_fit),
        cmocka_unit_test(test_wanda_check_rule__cumulative_with_a_pattern),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
