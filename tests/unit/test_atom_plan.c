/* The plan of atom-quantize through the planner: sizes, predictions, refused orders, errors with
 * their place in the job file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_fixture.h"

#include "core/buf.h"

#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_wanda_prune;
extern const struct espl_stage espl_stage_sparsegpt_prune;
extern const struct espl_stage espl_stage_atom_quantize;
extern const struct espl_stage espl_stage_evaluate;

static const struct espl_stage *const registry[] = {
    &espl_stage_wanda_prune, &espl_stage_sparsegpt_prune, &espl_stage_atom_quantize,
    &espl_stage_evaluate, NULL};

#define ATOM                   \
    "  - id: a\n" /* line 4 */ \
    "    use: atom-quantize\n" \
    "    in: {model: M, tokens: T}\n"

/* 256 columns, 320 at the last linear of a block. */
static struct espl_model_config wide_config(void)
{
    struct espl_model_config config = prune_llama_config();
    config.layers = 1;
    config.hidden = 256;
    config.embed_dim = 256;
    config.heads = 4;
    config.kv_heads = 2;
    config.head_dim = 64;
    config.ffn = 320;
    return config;
}

static void test_plan__auto_sizes_by_width(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = wide_config();
    plan_stages(&planned, registry, &config, 11, 16,
                "  - id: prune\n"
                "    use: wanda-prune\n"
                "    in: {model: M, tokens: T}\n"
                "  - id: quant\n"
                "    use: atom-quantize\n"
                "    in: {model: prune, tokens: T}\n"
                "  - id: quality\n"
                "    use: evaluate\n"
                "    in: {model: quant, tokens: T, base: M}\n");
    plan_expect_clean(&planned);
    const struct espl_plan_stage *quant = &planned.plan->stages[1];
    assert_string_equal(quant->estimate.note,
                        "7 linear layers; 256 columns: 32 outliers, groups of 32; 320 columns: 32 "
                        "outliers, groups of 32");
    assert_int_equal(quant->estimate.units, 1);
    const json_t *description = quant->descriptions[0];
    const json_t *quantisation = json_object_get(description, "quantisation");
    assert_int_equal(json_integer_value(json_object_get(quantisation, "group_size")), 32);
    assert_int_equal(json_integer_value(json_object_get(quantisation, "outlier_channels")), 32);
    assert_int_equal(json_integer_value(json_object_get(quantisation, "weight_bits")), 4);
    assert_string_equal(json_string_value(json_object_get(quantisation, "scale")), "full");
    assert_non_null(json_object_get(description, "config"));
    assert_non_null(json_object_get(description, "pruning"));
    plan_free(&planned);
}

/* The widest input of a model can be the one that nobody asked for. */
static void test_plan__counts_hessians_of_selected_inputs(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = wide_config();
    plan_stages(&planned, registry, &config, 11, 16,
                "  - {id: a, use: atom-quantize, in: {model: M, tokens: T}}\n"
                "  - {id: b, use: atom-quantize, in: {model: M, tokens: T},\n"
                "     with: {ignore: ['*.down_proj']}}\n"
                "  - {id: c, use: sparsegpt-prune, in: {model: M, tokens: T}}\n"
                "  - {id: d, use: sparsegpt-prune, in: {model: M, tokens: T},\n"
                "     with: {ignore: ['*.down_proj']}}\n");
    plan_expect_clean(&planned);
    const struct espl_plan_stage *stages = planned.plan->stages;
    /* the Hessian of 320 channels, and three matrices of 256 channels in place of 320 */
    const uint64_t less = 8 * 320 * 320 + 3 * 8 * (320 * 320 - 256 * 256);
    assert_int_equal(stages[0].estimate.host_bytes - stages[1].estimate.host_bytes, less);
    assert_int_equal(stages[2].estimate.host_bytes - stages[3].estimate.host_bytes, less);
    plan_free(&planned);
}

static void test_plan__errors_point_at_the_parameter(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = prune_llama_config();
    plan_stages(&planned, registry, &config, 11, 16,
                "  - id: a\n" /* line 4 */
                "    use: atom-quantize\n"
                "    in: {model: M, tokens: T}\n"
                "  - id: b\n" /* line 7 */
                "    use: atom-quantize\n"
                "    in: {model: M, tokens: T}\n"
                "    with: {group_size: 16}\n"
                "  - id: c\n" /* line 11 */
                "    use: atom-quantize\n"
                "    in: {model: M, tokens: T}\n"
                "    with: {outlier_channels: 24}\n"
                "  - id: d\n" /* line 15 */
                "    use: atom-quantize\n"
                "    in: {model: M, tokens: T}\n"
                "    with: {activation_bits: 12, group_size: 8}\n"
                "  - id: e\n" /* line 19 */
                "    use: atom-quantize\n"
                "    in: {model: M, tokens: T}\n"
                "    with: {kv_bits: 9, group_size: 8}\n");
    assert_int_equal(planned.diags.count, 5);
    plan_expect_error(
        &planned, 0, 5,
        "none of 128, 64, 32 divides the columns of 21 layers: "
        "layers.0.self_attn.q_proj (24 columns), layers.0.self_attn.k_proj (24 columns), "
        "layers.0.self_attn.v_proj (24 columns) and 18 more",
        "groups that fit the first of them: 8; 0 is one scale a row");
    plan_expect_error(
        &planned, 1, 10,
        "group_size 16 does not fit the columns of 21 layers: layers.0.self_attn.q_proj "
        "(24 columns), layers.0.self_attn.k_proj (24 columns), layers.0.self_attn.v_proj "
        "(24 columns) and 18 more",
        "or 'ignore' these layers");
    plan_expect_error(
        &planned, 2, 14,
        "24 outlier channels leave nothing of 18 layers: layers.0.self_attn.q_proj (24 "
        "columns), layers.0.self_attn.k_proj (24 columns), layers.0.self_attn.v_proj (24 "
        "columns) and 15 more",
        "at most an eighth");
    plan_expect_error(&planned, 3, 18, "activation_bits 12 is not possible",
                      "16 to leave them in float");
    plan_expect_error(&planned, 4, 22, "kv_bits 9 is not possible", "16 to leave them in float");
    plan_free(&planned);
}

static void test_plan__sizes_are_numbers_or_auto(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = wide_config();
    plan_stages(&planned, registry, &config, 11, 16,
                ATOM "    with: {group_size: auto, outlier_channels: 64}\n");
    plan_expect_clean(&planned);
    assert_non_null(strstr(planned.plan->stages[0].estimate.note,
                           "256 columns: 64 outliers, groups of 64; 320 columns: 64 outliers, "
                           "groups of 128"));
    plan_free(&planned);
    plan_expect_refusal(registry, &config, 11, 16, ATOM "    with: {group_size: wide}\n", 7,
                        "'group_size' must be an integer from 0 to 65536 or auto, got text 'wide'",
                        "for example");
    plan_expect_refusal(registry, &config, 11, 16, ATOM "    with: {outlier_channels: -1}\n", 7,
                        "'outlier_channels' must be an integer from 0 to 65536 or auto, got -1",
                        "");
}

static void test_plan__a_reorder_of_windows_is_refused(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = prune_llama_config();
    plan_expect_refusal(
        registry, &config, 11, 16,
        "  - id: prune\n" /* line 4 */
        "    use: wanda-prune\n"
        "    in: {model: M, tokens: T}\n"
        "    with: {pattern: 2:4}\n"
        "  - id: a\n" /* line 8 */
        "    use: atom-quantize\n"
        "    in: {model: prune, tokens: T}\n"
        "    with: {group_size: 8}\n",
        9,
        "the input model is pruned 2:4, and 'reorder: hessian' moves its columns out of "
        "their windows",
        "set 'reorder: none'");
    plan_stages(&planned, registry, &config, 11, 16,
                "  - id: prune\n"
                "    use: sparsegpt-prune\n"
                "    in: {model: M, tokens: T}\n"
                "    with: {pattern: 2:4}\n"
                "  - id: a\n"
                "    use: atom-quantize\n"
                "    in: {model: prune, tokens: T}\n"
                "    with: {group_size: 8, reorder: none, outlier_channels: 8}\n");
    plan_expect_clean(&planned);
    assert_non_null(strstr(planned.plan->stages[1].warnings,
                           "without a reorder the last 8 columns of each layer are kept in INT8"));
    const json_t *pruning = json_object_get(planned.plan->stages[0].descriptions[0], "pruning");
    assert_string_equal(json_string_value(json_object_get(pruning, "method")), "sparsegpt");
    plan_free(&planned);
}

static void test_plan__quantised_models_are_the_end(void **state)
{
    (void)state;
    static const char *const next[] = {"atom-quantize", "wanda-prune", "sparsegpt-prune"};
    const struct espl_model_config config = prune_llama_config();
    for (size_t i = 0; i < sizeof next / sizeof next[0]; i++) {
        struct planned planned;
        struct espl_buf text;
        espl_buf_init(&text, 1 << 12);
        assert_true(espl_buf_printf(&text,
                                    "  - id: quant\n"
                                    "    use: atom-quantize\n"
                                    "    in: {model: M, tokens: T}\n"
                                    "    with: {group_size: 8}\n"
                                    "  - id: again\n"
                                    "    use: %s\n"
                                    "    in: {model: quant, tokens: T}\n",
                                    next[i]));
        plan_stages(&planned, registry, &config, 11, 16, espl_buf_text(&text));
        assert_true(planned.diags.count >= 1);
        assert_non_null(
            strstr(planned.diags.items[0].error.message, "'quant' makes model.quant/1"));
        espl_buf_free(&text);
        plan_free(&planned);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__auto_sizes_by_width),
        cmocka_unit_test(test_plan__counts_hessians_of_selected_inputs),
        cmocka_unit_test(test_plan__errors_point_at_the_parameter),
        cmocka_unit_test(test_plan__sizes_are_numbers_or_auto),
        cmocka_unit_test(test_plan__a_reorder_of_windows_is_refused),
        cmocka_unit_test(test_plan__quantised_models_are_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
