/* Target selection: patterns, block range, N:M divisibility, and their messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_fixture.h"

#include "stages/prune_common/prune_select.h"

#include <string.h>

static struct espl_model_config llama_config(bool tied)
{
    struct espl_model_config config = prune_llama_config();
    config.tied_embeddings = tied;
    return config;
}

static const char *const all[] = {"*"};

static struct espl_prune_params default_params(void)
{
    return (struct espl_prune_params){.sparsity = 0.5,
                                      .layers = {.targets = {1, all}, .last_layer = -1}};
}

static void expect_failure(const struct espl_prune_params *params, const char *message,
                           const char *hint, const char *blame)
{
    const struct espl_model_config config = llama_config(true);
    struct espl_prune_selection selection;
    struct espl_error err;
    assert_int_equal(espl_prune_select(&config, params, &selection, &err), ESPL_E_JOB);
    assert_string_equal(err.message, message);
    assert_non_null(strstr(err.hint, hint));
    assert_string_equal(err.blame, blame);
    espl_prune_selection_free(&selection);
}

static void test_select__everything_in_blocks(void **state)
{
    (void)state;
    const struct espl_prune_params params = default_params();
    for (int tied = 0; tied <= 1; tied++) {
        const struct espl_model_config config = llama_config(tied != 0);
        struct espl_prune_selection selection;
        struct espl_error err;
        assert_int_equal(espl_prune_select(&config, &params, &selection, &err), ESPL_OK);
        assert_int_equal(selection.count, 21);
        assert_int_equal(selection.selected, 21);
        assert_int_equal(selection.all_linears, 22); /* the head counts, tied or not */
        assert_int_equal(selection.selected_layers, 3);
        /* q 24x24, k and v 8x24, o 24x24, gate and up 40x24, down 24x40 */
        const uint64_t block = 2 * 24 * 24 + 2 * 8 * 24 + 3 * 40 * 24;
        assert_int_equal(selection.block_elements, 3 * block);
        assert_int_equal(selection.selected_elements, 3 * block);
        assert_int_equal(selection.selected_mask_bytes,
                         3 * (24 * 3 + 8 * 3 + 8 * 3 + 24 * 3 + 2 * 40 * 3 + 24 * 5));
        assert_int_equal(selection.parameters,
                         3 * block + 3 * 2 * 24 + 24 + (tied ? 1u : 2u) * 50 * 24);
        espl_prune_selection_free(&selection);
    }
}

static void test_select__targets_ignore_and_range(void **state)
{
    (void)state;
    static const char *const targets[] = {"*.mlp.*", "q_proj"};
    static const char *const ignore[] = {"layers.1.*", "up_proj"};
    const struct espl_model_config config = llama_config(true);
    struct espl_prune_params params = default_params();
    struct espl_prune_selection selection;
    struct espl_error err;
    params.layers.targets = (struct espl_list){2, targets};
    params.layers.ignore = (struct espl_list){2, ignore};
    params.layers.first_layer = 1;
    assert_int_equal(espl_prune_select(&config, &params, &selection, &err), ESPL_OK);
    assert_int_equal(selection.selected, 3); /* q, gate and down of block 2 */
    assert_int_equal(selection.selected_layers, 1);
    assert_non_null(espl_prune_selection_find(&selection, 2, ESPL_ROLE_Q));
    assert_non_null(espl_prune_selection_find(&selection, 2, ESPL_ROLE_GATE));
    assert_non_null(espl_prune_selection_find(&selection, 2, ESPL_ROLE_DOWN));
    assert_null(espl_prune_selection_find(&selection, 2, ESPL_ROLE_UP));
    assert_null(espl_prune_selection_find(&selection, 0, ESPL_ROLE_Q));
    assert_false(espl_prune_selection_has_layer(&selection, 0));
    assert_false(espl_prune_selection_has_layer(&selection, 1));
    assert_true(espl_prune_selection_has_layer(&selection, 2));
    espl_prune_selection_free(&selection);
}

static void test_select__pattern_that_matches_nothing(void **state)
{
    (void)state;
    static const char *const wrong[] = {"*.q_proj", "*.gate_prj"};
    struct espl_prune_params params = default_params();
    params.layers.targets = (struct espl_list){2, wrong};
    expect_failure(&params, "pattern '*.gate_prj' of 'targets' matches no linear layer of a block",
                   "did you mean '*.gate_proj'? the linear layers of a block are: "
                   "self_attn.q_proj, self_attn.k_proj, self_attn.v_proj, self_attn.o_proj, "
                   "mlp.gate_proj, mlp.up_proj, mlp.down_proj",
                   "param:targets");
    params = default_params();
    params.layers.ignore = (struct espl_list){1, wrong + 1};
    expect_failure(&params, "pattern '*.gate_prj' of 'ignore' matches no linear layer of a block",
                   "did you mean '*.gate_proj'?", "param:ignore");
}

static void test_select__targets_outside_blocks_are_refused(void **state)
{
    (void)state;
    static const char *const head[] = {"lm_head"};
    static const char *const embedding[] = {"embed_tokens"};
    struct espl_prune_params params = default_params();
    params.layers.targets = (struct espl_list){1, head};
    expect_failure(&params, "pattern 'lm_head' of 'targets' matches no linear layer of a block",
                   "outside the blocks, which is never pruned", "param:targets");
    params.layers.targets = (struct espl_list){1, embedding};
    expect_failure(&params,
                   "pattern 'embed_tokens' of 'targets' matches no linear layer of a block",
                   "outside the blocks, which is never pruned", "param:targets");
}

static void test_select__ignoring_the_head_is_no_mistake(void **state)
{
    (void)state;
    static const char *const head[] = {"lm_head"};
    const struct espl_model_config config = llama_config(true);
    struct espl_prune_params params = default_params();
    struct espl_prune_selection selection;
    struct espl_error err;
    params.layers.ignore = (struct espl_list){1, head};
    assert_int_equal(espl_prune_select(&config, &params, &selection, &err), ESPL_OK);
    assert_int_equal(selection.selected, 21);
    espl_prune_selection_free(&selection);
}

static void test_select__ranges_that_are_empty(void **state)
{
    (void)state;
    struct espl_prune_params params = default_params();
    params.layers.last_layer = 3;
    expect_failure(&params, "last_layer 3 is past the end: the model has 3 blocks",
                   "blocks count from 0", "param:last_layer");
    params.layers.last_layer = 1;
    params.layers.first_layer = 2;
    expect_failure(&params, "first_layer 2 is past last_layer 1", "", "param:first_layer");
    params = default_params();
    params.layers.ignore = (struct espl_list){1, all};
    expect_failure(&params, "no linear layer is left in blocks 0 to 2", "'ignore' takes away all",
                   "param:ignore");
    params = default_params();
    params.layers.targets.count = 0;
    expect_failure(&params, "no linear layer is left in blocks 0 to 2",
                   "'targets' is an empty list", "param:targets");
}

static void test_select__columns_that_the_pattern_does_not_divide(void **state)
{
    (void)state;
    static const char *const down[] = {"down_proj"};
    const struct espl_model_config config = llama_config(true);
    struct espl_prune_params params = default_params();
    struct espl_prune_selection selection;
    struct espl_error err;
    params.pattern = (struct espl_nm){8, 16};
    expect_failure(&params,
                   "pattern 8:16 does not divide the columns of 21 layers: "
                   "layers.0.self_attn.q_proj (24 columns), layers.0.self_attn.k_proj "
                   "(24 columns), layers.0.self_attn.v_proj (24 columns) and 18 more",
                   "M that fits every selected layer: 2, 4, 8; or 'tail: dense'", "param:pattern");
    params.tail = ESPL_PRUNE_TAIL_DENSE;
    assert_int_equal(espl_prune_select(&config, &params, &selection, &err), ESPL_OK);
    espl_prune_selection_free(&selection);
    params.tail = ESPL_PRUNE_TAIL_REFUSE;
    params.pattern = (struct espl_nm){5, 10}; /* divides 40, not 24 */
    params.layers.targets = (struct espl_list){1, down};
    assert_int_equal(espl_prune_select(&config, &params, &selection, &err), ESPL_OK);
    assert_int_equal(selection.selected, 3);
    espl_prune_selection_free(&selection);
}

static void test_select__sparsity_against_pattern(void **state)
{
    (void)state;
    const struct espl_model_config config = llama_config(true);
    struct espl_prune_params params = default_params();
    struct espl_prune_selection selection;
    struct espl_error err;
    params.pattern = (struct espl_nm){1, 4};
    params.sparsity = 0.7;
    expect_failure(&params, "sparsity 0.7 contradicts pattern 1:4, which removes 0.75",
                   "leave 'sparsity' out", "param:sparsity");
    params.sparsity = 0.75;
    assert_int_equal(espl_prune_select(&config, &params, &selection, &err), ESPL_OK);
    espl_prune_selection_free(&selection);
    params = default_params();
    params.vector = 16;
    expect_failure(&params, "vector 16 needs a pattern for the rows to share", "add 'pattern: N:M'",
                   "param:vector");
    params = default_params();
    params.sparsity = 1.0;
    expect_failure(&params, "sparsity 1 is not in [0, 1): at 1 nothing would be left", "",
                   "param:sparsity");
}

static void test_select__groups_that_do_not_fit(void **state)
{
    (void)state;
    const struct espl_model_config config = llama_config(true);
    static const char *const up[] = {"up_proj"};
    struct espl_prune_params params = default_params();
    struct espl_prune_selection selection;
    struct espl_error err;
    params.align.grid = (struct espl_grid){2, 1};
    /* 24, 8 and 40 rows: none is a multiple of 16 */
    expect_failure(&params,
                   "align 2x1 (areas) does not fit 21 layers: layers.0.self_attn.q_proj (24 x 24), "
                   "layers.0.self_attn.k_proj (8 x 24), layers.0.self_attn.v_proj (8 x 24) and 18 "
                   "more",
                   "rows must be a multiple of 16; or 'ignore' these layers", "param:align");
    params.align.form = ESPL_ALIGN_BLOCK;
    params.align.grid = (struct espl_grid){5, 3};
    params.layers.targets = (struct espl_list){1, up};
    assert_int_equal(espl_prune_select(&config, &params, &selection, &err), ESPL_OK);
    espl_prune_selection_free(&selection);
    params.pattern = (struct espl_nm){2, 4};
    expect_failure(&params, "align 5x3 cannot be combined with pattern 2:4",
                   "leave 'align' or 'pattern' out", "param:align");
    params = default_params();
    params.align.fill = ESPL_ALIGN_FILL_UNION;
    expect_failure(&params, "fill 'union' needs groups to fill", "align: {rows: 2, cols: 1}",
                   "param:fill");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select__everything_in_blocks),
        cmocka_unit_test(test_select__targets_ignore_and_range),
        cmocka_unit_test(test_select__pattern_that_matches_nothing),
        cmocka_unit_test(test_select__targets_outside_blocks_are_refused),
        cmocka_unit_test(test_select__ignoring_the_head_is_no_mistake),
        cmocka_unit_test(test_select__ranges_that_are_empty),
        cmocka_unit_test(test_select__columns_that_the_pattern_does_not_divide),
        cmocka_unit_test(test_select__sparsity_against_pattern),
        cmocka_unit_test(test_select__groups_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
