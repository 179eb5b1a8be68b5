/* The plan of the pruning stages through the planner: estimates, predicted outputs, errors with
 * their place in the job file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_wanda_prune;
extern const struct espl_stage espl_stage_magnitude_prune;

static const struct espl_stage *const registry[] = {&espl_stage_wanda_prune,
                                                    &espl_stage_magnitude_prune, NULL};

static const char WANDA[] = "  - id: a\n" /* line 4 */
                            "    use: wanda-prune\n"
                            "    in: {model: M, tokens: T}\n";

static void test_plan__estimates_and_predicts(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = prune_llama_config();
    plan_stages(&planned, registry, &config, 11, 16,
                "  - id: small\n"
                "    use: magnitude-prune\n"
                "    in: M\n"
                "    with: {targets: [\"*.mlp.*\"], last_layer: 1}\n"
                "  - id: again\n"
                "    use: wanda-prune\n"
                "    in: {model: small, tokens: T}\n"
                "    with: {pattern: 4:8, ignore: [lm_head]}\n");
    plan_expect_clean(&planned);
    const struct espl_plan_stage *small = &planned.plan->stages[0];
    const struct espl_plan_stage *again = &planned.plan->stages[1];
    assert_string_equal(small->estimate.note, "6 of 22 linear layers");
    assert_int_equal(small->estimate.units, 2);
    assert_int_equal(small->state, ESPL_PLAN_RUN);
    assert_string_equal(again->estimate.note, "21 of 22 linear layers");
    assert_int_equal(again->estimate.units, 3);
    /* hidden states: (2 * 11 + 8) * 16 * 24 floats, and more */
    assert_true(again->estimate.host_bytes > 30 * 16 * 24 * 4);
    /* every weight takes part in 2 * 11 + 8 windows of 16 tokens, two operations each */
    assert_true(again->estimate.flop > 30.0 * 16 * 2 * 3 * (2 * 576 + 2 * 192 + 3 * 960));
    const json_t *pruning = json_object_get(again->descriptions[0], "pruning");
    assert_string_equal(json_string_value(json_object_get(pruning, "method")), "wanda");
    assert_string_equal(json_string_value(json_object_get(pruning, "pattern")), "4:8");
    assert_string_equal(json_string_value(json_object_get(pruning, "convention")), "N kept of M");
    assert_int_equal(json_integer_value(json_object_get(pruning, "linears")), 21);
    assert_int_equal(json_integer_value(json_object_get(pruning, "calibration_windows")), 11);
    assert_non_null(json_object_get(again->descriptions[0], "config"));
    plan_free(&planned);
}

static void test_plan__errors_point_at_the_parameter(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = prune_llama_config();
    plan_stages(&planned, registry, &config, 11, 16,
                "  - id: a\n" /* line 4 */
                "    use: magnitude-prune\n"
                "    in: M\n"
                "    with:\n"
                "      targets: [\"*.q_prj\"]\n"
                "  - id: b\n" /* line 9 */
                "    use: wanda-prune\n"
                "    in: {model: M, tokens: T}\n"
                "    with:\n"
                "      pattern: 8:16\n"
                "  - id: c\n" /* line 14 */
                "    use: wanda-prune\n"
                "    in: {model: M, tokens: T}\n"
                "    with:\n"
                "      pattern: 2:4\n"
                "      rule: cumulative\n"
                "  - id: d\n" /* line 20 */
                "    use: magnitude-prune\n"
                "    in: M\n"
                "    with:\n"
                "      pattern: 2:4\n"
                "      scope: row\n");
    assert_int_equal(planned.diags.count, 4);
    plan_expect_error(&planned, 0, 8,
                      "pattern '*.q_prj' of 'targets' matches no linear layer of a "
                      "block",
                      "");
    plan_expect_error(
        &planned, 1, 13,
        "pattern 8:16 does not divide the columns of 21 layers: "
        "layers.0.self_attn.q_proj (24 columns), layers.0.self_attn.k_proj (24 columns), "
        "layers.0.self_attn.v_proj (24 columns) and 18 more",
        "");
    plan_expect_error(&planned, 2, 19, "rule 'cumulative' cannot be combined with pattern 2:4", "");
    plan_expect_error(&planned, 3, 25, "scope 'row' cannot be combined with pattern 2:4", "");
    plan_free(&planned);
}

static void test_plan__tokens_without_windows(void **state)
{
    (void)state;
    const struct espl_model_config config = prune_opt_config();
    plan_expect_refusal(registry, &config, 0, 200, WANDA, 6,
                        "input 'tokens' is one long text, but calibration needs windows", "");
}

static void test_plan__windows_longer_than_the_positions(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config learned = prune_opt_config();
    plan_expect_refusal(registry, &learned, 2, 65, WANDA, 6,
                        "calibration windows have 65 tokens, but the model has 64 positions", "");
    /* rotary positions go on: possible, but worth a warning */
    const struct espl_model_config rotary = prune_llama_config();
    plan_stages(&planned, registry, &rotary, 2, 65, WANDA);
    plan_expect_clean(&planned);
    assert_non_null(strstr(planned.plan->stages[0].warnings,
                           "calibration windows of 65 tokens are longer than the model's 64 "
                           "positions"));
    plan_free(&planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__estimates_and_predicts),
        cmocka_unit_test(test_plan__errors_point_at_the_parameter),
        cmocka_unit_test(test_plan__tokens_without_windows),
        cmocka_unit_test(test_plan__windows_longer_than_the_positions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
