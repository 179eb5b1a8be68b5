/* row-reorder on small models: the orders are the oracle's, what is counted, resume, threads,
 * cancelling. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "encode_fixture.h"

#include "core/codes.h"
#include "espalier/row_reorder.h"
#include "model/iebme_linear.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { TILE_ROWS = ESPL_IEBME_TILE_ROWS, TILE_COLS = ESPL_IEBME_TILE_COLS };

/* The codes of a linear as row masks (stripes, tile columns, 16), zero beyond the matrix. */
struct masks {
    size_t stripes, tile_cols;
    uint64_t *words;
};

static struct masks read_masks(struct espl_model *model, const struct espl_tensor_spec *spec)
{
    struct espl_quant_linear linear;
    struct espl_error err;
    assert_int_equal(espl_quant_linear_read(model, spec->layer, spec->role, false, &linear, &err),
                     ESPL_OK);
    struct masks masks = {(linear.out + 15) / 16, (linear.normal + 63) / 64, NULL};
    masks.words = calloc(masks.stripes * masks.tile_cols * TILE_ROWS, sizeof *masks.words);
    int8_t *codes = malloc(linear.out * linear.normal);
    assert_true(masks.words != NULL && codes != NULL);
    espl_codes_unpack(linear.codes, linear.out, linear.normal, linear.weight_bits, codes);
    for (size_t r = 0; r < linear.out; r++) {
        for (size_t c = 0; c < linear.normal; c++) {
            const size_t tile = r / TILE_ROWS * masks.tile_cols + c / TILE_COLS;
            masks.words[tile * TILE_ROWS + r % TILE_ROWS] |=
                (uint64_t)(codes[r * linear.normal + c] != 0) << (c % TILE_COLS);
        }
    }
    free(codes);
    espl_quant_linear_free(&linear);
    return masks;
}

static uint64_t oracle(const uint64_t *masks, size_t tiles, unsigned rows, unsigned cols,
                       uint64_t *active)
{
    uint8_t order[TILE_ROWS];
    struct espl_error err;
    assert_int_equal(
        espl_reorder_reference(masks, tiles, TILE_ROWS, rows, cols, order, active, &err), ESPL_OK);
    return espl_iebme_order_pack(order);
}

static uint64_t natural(const struct masks *masks, unsigned rows, unsigned cols)
{
    uint64_t ones = 0;
    for (size_t t = 0; t < masks->stripes * masks->tile_cols; t++) {
        ones += espl_reorder_active(masks->words + t * TILE_ROWS, ESPL_IEBME_ORDER_IDENTITY, rows,
                                    cols);
    }
    return ones;
}

/* Every word of every linear of the order `key` is the oracle's; *before and *after: mask bits of
 * all. */
static void check_orders(struct prune_fixture *fixture, char key, unsigned rows, unsigned cols,
                         bool tiles, uint64_t *before, uint64_t *after)
{
    struct espl_artifact *artifacts[2] = {NULL, NULL};
    struct espl_model *model = NULL;
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    prune_open(fixture, 'e', &artifacts[0], &model);
    prune_path(fixture, key, path);
    assert_int_equal(espl_artifact_open(path, &artifacts[1], &err), ESPL_OK);
    *before = 0;
    *after = 0;
    for (size_t i = 0; i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (!espl_model_is_quantised(model, spec)) {
            continue;
        }
        struct masks masks = read_masks(model, spec);
        struct espl_iebme_layout layout = {.rows = (size_t)spec->shape[0],
                                           .cols = (size_t)spec->shape[1] - 8};
        uint64_t *orders = NULL;
        size_t count = 0;
        assert_int_equal(espl_iebme_order_read(artifacts[1], spec, &layout, &orders, &count, &err),
                         ESPL_OK);
        assert_int_equal(layout.scope, tiles ? ESPL_IEBME_SCOPE_TILE : ESPL_IEBME_SCOPE_STRIPE);
        assert_int_equal(count, masks.stripes * (tiles ? masks.tile_cols : 1));
        const size_t tiles_each = tiles ? 1 : masks.tile_cols;
        for (size_t n = 0; n < count; n++) {
            uint64_t active = 0;
            assert_int_equal(orders[n], oracle(masks.words + n * tiles_each * TILE_ROWS, tiles_each,
                                               rows, cols, &active));
            *after += active;
        }
        *before += natural(&masks, rows, cols);
        free(orders);
        free(masks.words);
    }
    espl_model_close(model);
    espl_artifact_close(artifacts[0]);
    espl_artifact_close(artifacts[1]);
}

static void test_orders__are_the_oracles(void **state)
{
    (void)state;
    static const int64_t grids[][2] = {{2, 1}, {2, 2}, {4, 2}, {1, 4}};
    static const char keys[] = "01234567";
    struct prune_fixture fixture;
    struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    config.layers = 1;
    encode_open(&fixture, &config, &params);
    for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++) {
        for (int scope = ESPL_REORDER_STRIPE; scope <= ESPL_REORDER_TILE; scope++) {
            struct prune_result result;
            uint64_t before = 0;
            uint64_t after = 0;
            const char key = keys[2 * g + (size_t)scope];
            encode_reorder(&fixture, grids[g][0], grids[g][1], scope, key, &result);
            check_orders(&fixture, key, (unsigned)grids[g][0], (unsigned)grids[g][1],
                         scope == ESPL_REORDER_TILE, &before, &after);
            assert_true(prune_metric(&result, "mask_ones_before") == (double)before);
            assert_true(prune_metric(&result, "mask_ones_after") == (double)after);
            assert_true(after <= before);
            assert_true(grids[g][0] == 1 ? after == before : after < before);
            prune_result_free(&result);
        }
    }
    prune_fixture_close(&fixture);
}

/* Mask bits that the layer figures stand for: shares of the positions of each linear. */
static double ones_of_layers(const struct prune_result *result, const char *series)
{
    double ones = 0.0;
    size_t index;
    const json_t *row;
    json_array_foreach(result->layers, index, row)
    {
        const char *module = json_string_value(json_object_get(row, "module"));
        const int tiles = strstr(module, "fc1") != NULL ? 20 : strstr(module, "fc2") ? 18 : 12;
        if (strcmp(json_string_value(json_object_get(row, "series")), series) == 0) {
            ones += json_real_value(json_object_get(row, "value")) * tiles * 256;
        }
    }
    return ones;
}

static void test_figures__never_more_bits_in_any_layer(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    const struct espl_model_config config = encode_opt_config();
    const struct espl_atom_params params = quant_atom_params();
    encode_open(&fixture, &config, &params);
    encode_reorder(&fixture, 2, 2, ESPL_REORDER_STRIPE, 'c', &result);
    /* q, k, v, o: 6 stripes of 2 tiles; fc1: 10 of 2; fc2: 6 of 3; two blocks */
    assert_true(prune_metric(&result, "tiles") == 2.0 * (4 * 12 + 20 + 18));
    assert_true(prune_metric(&result, "mask_positions") == 2.0 * (4 * 12 + 20 + 18) * 256);
    const double before = prune_metric(&result, "mask_ones_before");
    const double after = prune_metric(&result, "mask_ones_after");
    assert_true(prune_metric(&result, "mask_ones_saved") == (before - after) / before);
    assert_null(json_object_get(result.metrics, "tiles_per_second")); /* volatile: not stored */
    assert_int_equal(json_array_size(result.layers), 2 * 2 * 6);
    static const char *const modules[] = {"layers.0.self_attn.q_proj", "layers.1.fc1",
                                          "layers.1.fc2"};
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        const double share = encode_layer(&result, "active_after", modules[i]);
        assert_true(share <= encode_layer(&result, "active_before", modules[i]));
        assert_true(share > 0.0 && share <= 1.0);
    }
    assert_true(after < before);
    assert_true(fabs(ones_of_layers(&result, "active_before") - before) < 0.5);
    assert_true(fabs(ones_of_layers(&result, "active_after") - after) < 0.5);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* ---- resume, threads, cancelling ---- */

static void reorder_tiles(struct prune_fixture *fixture, struct prune_result *result)
{
    encode_reorder(fixture, 2, 2, ESPL_REORDER_TILE, 'c', result);
}

static void test_resume__same_bytes(void **state)
{
    (void)state;
    const struct espl_model_config config = encode_llama_config();
    encode_check_resume(&config, reorder_tiles);
}

static void test_threads__do_not_change_a_byte(void **state)
{
    (void)state;
    const int before = omp_get_max_threads();
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    struct prune_fixture one;
    struct prune_result a;
    omp_set_num_threads(1);
    encode_open(&one, &config, &params);
    encode_reorder(&one, 4, 1, ESPL_REORDER_STRIPE, 'c', &a);
    for (int threads = 2; threads <= 3; threads++) {
        struct prune_fixture more;
        struct prune_result b;
        omp_set_num_threads(threads);
        encode_open(&more, &config, &params);
        encode_reorder(&more, 4, 1, ESPL_REORDER_STRIPE, 'c', &b);
        prune_assert_same(&one, &more, &a, &b);
        prune_result_free(&b);
        prune_fixture_close(&more);
    }
    omp_set_num_threads(before);
    prune_result_free(&a);
    prune_fixture_close(&one);
}

static void test_cancel__stops_between_linears(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const volatile int stopped = 1;
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    const struct espl_reorder_params reorder = {2, 2, ESPL_REORDER_STRIPE};
    encode_open(&fixture, &config, &params);
    assert_int_equal(
        prune_run(&fixture, &espl_stage_row_reorder, &reorder, 'c', 'e', 0, &stopped, NULL, &err),
        ESPL_E_CANCELLED);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders__are_the_oracles),
        cmocka_unit_test(test_figures__never_more_bits_in_any_layer),
        cmocka_unit_test(test_resume__same_bytes),
        cmocka_unit_test(test_threads__do_not_change_a_byte),
        cmocka_unit_test(test_cancel__stops_between_linears),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
