/* The plans of row-reorder and iebme-encode through the planner: estimates, predictions, legal
 * orders of stages, errors with their place in the job file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plan_fixture.h"

#include <string.h>

extern const struct espl_stage espl_stage_wanda_prune;
extern const struct espl_stage espl_stage_atom_quantize;
extern const struct espl_stage espl_stage_row_reorder;
extern const struct espl_stage espl_stage_iebme_encode;
extern const struct espl_stage espl_stage_evaluate;
extern const struct espl_stage espl_stage_export;

static const struct espl_stage *const registry[] = {&espl_stage_wanda_prune,
                                                    &espl_stage_atom_quantize,
                                                    &espl_stage_row_reorder,
                                                    &espl_stage_iebme_encode,
                                                    &espl_stage_evaluate,
                                                    &espl_stage_export,
                                                    NULL};

#define QUANT                         \
    "  - id: quant\n" /* line 4 */    \
    "    use: atom-quantize\n"        \
    "    in: {model: M, tokens: T}\n" \
    "    with: {group_size: 8, outlier_channels: 8}\n"

static void plan(struct planned *planned, const char *stages)
{
    const struct espl_model_config config = prune_llama_config();
    plan_stages(planned, registry, &config, 11, 16, stages);
}

static void test_plan__the_whole_chain(void **state)
{
    (void)state;
    struct planned planned;
    plan(&planned,
         QUANT "  - {id: order, use: row-reorder, in: quant}\n"
               "  - {id: encode, use: iebme-encode, in: {model: quant, order: order}}\n"
               "  - {id: quality, use: evaluate, in: {model: encode, tokens: T, base: M}}\n"
               "  - {id: out, use: export, in: encode, with: {folder: out}}\n");
    plan_expect_clean(&planned);
    const struct espl_plan_stage *order = &planned.plan->stages[1];
    const struct espl_plan_stage *encode = &planned.plan->stages[2];
    /* a block: q, o 24 x 16 and k, v 8 x 16 codes: 2, 2, 1, 1 tiles; gate, up 40 x 16: 3 each;
     * down 24 x 32: 2 */
    assert_string_equal(order->estimate.note, "42 tiles in 21 linear layers");
    assert_int_equal(order->estimate.units, 3);
    assert_string_equal(encode->estimate.note,
                        "21 linear layers, areas auto, rows in order where that saves bytes");
    assert_int_equal(encode->estimate.units, 3);
    assert_true(encode->estimate.output_bytes > 0 && encode->estimate.host_bytes > 0);
    const json_t *made = order->descriptions[0];
    assert_int_equal(json_integer_value(json_object_get(made, "rows")), 2);
    assert_string_equal(json_string_value(json_object_get(made, "scope")), "stripe");
    const json_t *description = encode->descriptions[0];
    const json_t *encoding = json_object_get(description, "encoding");
    assert_string_equal(json_string_value(json_object_get(encoding, "areas")), "auto");
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(encoding, "order"), "cols")), 2);
    assert_non_null(json_object_get(description, "config"));
    assert_non_null(json_object_get(description, "quantisation"));
    plan_free(&planned);
}

/* Linears that have no codes are copied in float: the result is larger than without them. */
static void test_plan__counts_what_stays_in_float(void **state)
{
    (void)state;
    struct planned planned;
    plan(&planned, QUANT "  - {id: whole, use: iebme-encode, in: {model: quant}}\n"
                         "  - id: part\n"
                         "    use: atom-quantize\n"
                         "    in: {model: M, tokens: T}\n"
                         "    with: {group_size: 8, outlier_channels: 8, first_layer: 2}\n"
                         "  - {id: mixed, use: iebme-encode, in: {model: part}}\n");
    plan_expect_clean(&planned);
    const struct espl_plan_stage *whole = NULL;
    const struct espl_plan_stage *mixed = NULL;
    for (size_t i = 0; i < planned.plan->stage_count; i++) {
        const struct espl_plan_stage *stage = &planned.plan->stages[i];
        whole = strcmp(stage->job_stage->id, "whole") == 0 ? stage : whole;
        mixed = strcmp(stage->job_stage->id, "mixed") == 0 ? stage : mixed;
    }
    assert_true(whole != NULL && mixed != NULL);
    assert_string_equal(mixed->estimate.note, "7 linear layers, areas auto");
    /* 14 linears of at most 24 x 40 floats; one dataset each, where coded ones have eight */
    const uint64_t more = 14 * (24 * 40 * 4) + 14 * 4096;
    const uint64_t less = 14 * 8 * 4096;
    assert_int_equal(mixed->estimate.output_bytes + less, whole->estimate.output_bytes + more);
    plan_free(&planned);
}

/* What is refused, its line, and a part of the hint. */
static const struct {
    const char *stages;
    unsigned line;
    const char *message;
    const char *hint;
} refusals[] = {
    {"  - {id: encode, use: iebme-encode, in: M}\n", 4,
     "input 'model' of 'encode' needs kind model.quant/1, but ", "atom-quantize"},
    {"  - {id: prune, use: wanda-prune, in: {model: M, tokens: T}}\n"
     "  - {id: order, use: row-reorder, in: prune}\n",
     5, "input 'model' of 'order' needs kind model.quant/1, but 'prune' makes model.masked/1",
     "atom-quantize"},
    {QUANT "  - {id: encode, use: iebme-encode, in: quant}\n"
           "  - {id: order, use: row-reorder, in: encode}\n",
     9, "input 'model' of 'order' needs kind model.quant/1, but 'encode' makes model.iebme/1",
     "atom-quantize"},
    {QUANT "  - {id: encode, use: iebme-encode, in: quant}\n"
           "  - {id: prune, use: wanda-prune, in: {model: encode, tokens: T}}\n",
     9, "input 'model' of 'prune' needs kind model.dense/1", ""},
    {QUANT "  - {id: encode, use: iebme-encode, in: quant}\n"
           "  - {id: again, use: iebme-encode, in: encode}\n",
     9, "input 'model' of 'again' needs kind model.quant/1, but 'encode' makes model.iebme/1",
     "atom-quantize"},
    {QUANT "  - {id: encode, use: iebme-encode, in: {model: quant, order: quant}}\n", 8,
     "input 'order' of 'encode' needs kind order.rows/1, but 'quant' makes model.quant/1",
     "row-reorder"},
    {QUANT "  - {id: order, use: row-reorder, in: quant}\n"
           "  - {id: quality, use: evaluate, in: {model: order, tokens: T}}\n",
     9, "input 'model' of 'quality' needs kind model.dense/1", ""},
    {QUANT "  - {id: order, use: row-reorder, in: quant, with: {rows: 3}}\n", 8,
     "'rows' must be 1, 2 or 4, got 3", "1, 2 or 4 areas a side"},
    {QUANT "  - {id: order, use: row-reorder, in: quant, with: {cols: 3}}\n", 8,
     "'cols' must be 1, 2 or 4, got 3", "1, 2 or 4 areas a side"},
    {QUANT
     "  - {id: order, use: row-reorder, in: quant}\n"
     "  - {id: encode, use: iebme-encode, in: {model: quant, order: order}, with: {areas: 1x2}}\n",
     9, "areas '1x2' gain nothing from a row order", "leave the input 'order' out"},
    {QUANT "  - {id: order, use: row-reorder, in: quant}\n"
           "  - {id: encode, use: iebme-encode, in: {model: quant, order: order}, with: {areas: "
           "dense}}\n",
     9, "areas 'dense' gain nothing from a row order", "leave the input 'order' out"},
    {"  - id: quant\n"
     "    use: atom-quantize\n"
     "    in: {model: M, tokens: T}\n"
     "    with: {group_size: 8, outlier_channels: 8, weight_bits: 3}\n"
     "  - {id: encode, use: iebme-encode, in: quant}\n",
     8, "IE-BME holds codes of 2, 4 or 8 bits, but the model has 3", "weight_bits: 2, 4 or 8"},
};

static void test_plan__refusals_point_at_their_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        struct planned planned;
        plan(&planned, refusals[i].stages);
        if (planned.diags.count != 1) {
            fail_msg("case %zu: %zu errors", i, planned.diags.count);
        }
        const struct espl_error *error = &planned.diags.items[0].error;
        if (strncmp(error->message, refusals[i].message, strlen(refusals[i].message)) != 0 ||
            error->at.line != refusals[i].line || strstr(error->hint, refusals[i].hint) == NULL) {
            fail_msg("case %zu: line %u: %s; %s", i, error->at.line, error->message, error->hint);
        }
        plan_free(&planned);
    }
}

static void test_plan__warnings(void **state)
{
    (void)state;
    struct planned planned;
    plan(&planned, QUANT "  - {id: order, use: row-reorder, in: quant, with: {rows: 1}}\n"
                         "  - {id: encode, use: iebme-encode, in: {model: quant, order: order}, "
                         "with: {areas: 2x1}}\n");
    plan_expect_clean(&planned);
    assert_non_null(strstr(planned.plan->stages[1].warnings,
                           "with 1 row in a group no order of rows changes any mask"));
    assert_non_null(strstr(planned.plan->stages[2].warnings,
                           "the row order is the best one for 1x2 areas, but 'areas' is 2x1"));
    plan_free(&planned);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__the_whole_chain),
        cmocka_unit_test(test_plan__counts_what_stays_in_float),
        cmocka_unit_test(test_plan__refusals_point_at_their_place),
        cmocka_unit_test(test_plan__warnings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
