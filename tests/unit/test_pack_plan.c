/* The plans of nm-pack through the planner: estimates, what is predicted for stages downstream,
 * refusals with their place in the job file. */
#include "support/cmocka_all.h"

#include "plan_fixture.h"

#include <string.h>

extern const struct espl_stage espl_stage_magnitude_prune;
extern const struct espl_stage espl_stage_nm_pack;
extern const struct espl_stage espl_stage_evaluate;
extern const struct espl_stage espl_stage_export;

static const struct espl_stage *const registry[] = {&espl_stage_magnitude_prune,
                                                    &espl_stage_nm_pack, &espl_stage_evaluate,
                                                    &espl_stage_export, NULL};

static void test_plan__the_whole_chain(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = prune_llama_config();
    plan_stages(&planned, registry, &config, 11, 16,
                "  - {id: prune, use: magnitude-prune, in: M, with: {pattern: \"2:8\"}}\n"
                "  - {id: pack, use: nm-pack, in: prune, with: {vector: 16}}\n"
                "  - {id: quality, use: evaluate, in: {model: pack, tokens: T, base: M}}\n"
                "  - {id: out, use: export, in: pack, with: {folder: out}}\n");
    plan_expect_clean(&planned);
    const struct espl_plan_stage *pack = &planned.plan->stages[1];
    assert_string_equal(pack->estimate.note, "21 linear layers, N of 8");
    assert_int_equal(pack->estimate.units, 3);
    /* 14 stripes of one block a layer, 2048 bytes each when nothing is left out */
    assert_true(pack->estimate.output_bytes > 3 * 14 * 2048);
    assert_true(pack->estimate.host_bytes > 0);
    const json_t *description = pack->descriptions[0];
    const json_t *encoding = json_object_get(description, "encoding");
    const json_t *scheme = json_object_get(description, "quantisation");
    assert_string_equal(json_string_value(json_object_get(encoding, "format")), "nm-pack/1");
    assert_int_equal(json_integer_value(json_object_get(encoding, "m")), 8);
    assert_int_equal(json_integer_value(json_object_get(encoding, "most_shared")), 16);
    assert_int_equal(json_integer_value(json_object_get(scheme, "weight_bits")), 8);
    assert_int_equal(json_integer_value(json_object_get(scheme, "linears")), 21);
    assert_non_null(json_object_get(description, "pruning"));
    plan_free(&planned);
}

static void refuse(const char *stages, unsigned line, const char *message, const char *hint)
{
    const struct espl_model_config config = prune_llama_config();
    plan_expect_refusal(registry, &config, 11, 16, stages, line, message, hint);
}

static void test_plan__refusals(void **state)
{
    (void)state;
    refuse("  - {id: prune, use: magnitude-prune, in: M}\n"
           "  - {id: pack, use: nm-pack, in: prune}\n",
           5, "the model has no N:M pattern to pack", "give the model of a budget-search");
    refuse("  - {id: prune, use: magnitude-prune, in: M, with: {pattern: \"1:2\"}}\n"
           "  - {id: pack, use: nm-pack, in: prune}\n",
           5, "patterns are packed in windows of 4, 8 or 16, not of 2", "prune with one of these");
    refuse("  - {id: prune, use: magnitude-prune, in: M, with: {pattern: \"2:4\"}}\n"
           "  - {id: pack, use: nm-pack, in: prune, with: {targets: [\"*.k_prod\"]}}\n",
           5, "pattern '*.k_prod' of 'targets' matches no linear layer of a block",
           "did you mean '*.k_proj'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__the_whole_chain),
        cmocka_unit_test(test_plan__refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
