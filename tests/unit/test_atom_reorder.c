/* The reorder of atom-quantize moves numbers and nothing else: logits stay what they were, on
 * random models and on those of tests/data/models, whose logits other software has computed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "golden_data.h"
#include "quant_fixture.h"

#include "core/checked.h"
#include "eval/forward_internal.h"
#include "stages/quant_common/channel_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOWS = 3, TOKENS = 16 };

/* Relative to the largest logit. */
static const double TOLERANCE = 1e-4;

static struct espl_model_config qwen_config(void)
{
    struct espl_model_config config = prune_llama_config();
    memcpy(config.architecture, "qwen2", sizeof "qwen2");
    config.attention_bias = true;
    return config;
}

static struct espl_model_config post_norm_config(void)
{
    struct espl_model_config config = prune_opt_config();
    config.pre_norm = false;
    config.final_norm = false;
    return config;
}

/* One scale a row and a token, so that codes do not depend on the order of columns. */
static struct espl_atom_params unordered_params(int64_t activation_bits)
{
    struct espl_atom_params params = quant_atom_params();
    params.method = ESPL_ATOM_RTN;
    params.weight_bits = 8;
    params.activation_bits = activation_bits;
    params.group_size = 0;
    params.outlier_channels = 0;
    params.rows_per_scale = 1;
    params.kv_bits = 16;
    params.weight_clip = 1.0;
    params.activation_clip = 1.0;
    return params;
}

/* Quantising the model 'a' with (keys[0]) and without (keys[1]) the reorder must give the same
 * model. Wrong gathers, rows or biases do not. */
static void check_codes(struct prune_fixture *fixture, const char *name, int64_t activation_bits,
                        const char keys[2])
{
    struct espl_atom_params params = unordered_params(activation_bits);
    size_t count = 0;
    quant_run(fixture, &espl_stage_atom_quantize, &params, keys[0], 'a', NULL);
    params.reorder = ESPL_ATOM_REORDER_NONE;
    quant_run(fixture, &espl_stage_atom_quantize, &params, keys[1], 'a', NULL);
    float *reordered = quant_logits(fixture, keys[0], WINDOWS, TOKENS, NULL, NULL, &count);
    float *plain = quant_logits(fixture, keys[1], WINDOWS, TOKENS, NULL, NULL, &count);
    float *dense = quant_logits(fixture, 'a', WINDOWS, TOKENS, NULL, NULL, &count);
    const double difference = quant_difference(plain, reordered, count);
    const double from_dense = quant_difference(dense, reordered, count);
    print_message("%s, %d-bit activations: reorder changes logits by %.1e, 8 bits by %.1e\n", name,
                  (int)activation_bits, difference, from_dense);
    assert_true(difference < TOLERANCE);
    assert_true(from_dense > 0.0 && from_dense < 0.2);
    free(reordered);
    free(plain);
    free(dense);
}

/* ---- in float ---- */

struct moving {
    struct espl_artifact *artifact; /* holds the orders */
    bool with_bias;
};

static int32_t *read_order(const struct moving *moving, uint64_t layer, size_t width)
{
    char path[64];
    size_t bytes = 0;
    void *order = NULL;
    struct espl_error err;
    (void)snprintf(path, sizeof path, "/layers/%03d/%s", (int)layer,
                   espl_quant_order_name(ESPL_QUANT_MLP_MID));
    assert_int_equal(espl_artifact_read(moving->artifact, path, 1 << 20, &order, &bytes, &err),
                     ESPL_OK);
    assert_int_equal(bytes, width * sizeof(int32_t));
    return order;
}

/* rows: by `order`, else columns. */
static void move(float *values, struct espl_matrix_shape shape, const int32_t *order, bool rows)
{
    float *moved = malloc(shape.rows * shape.cols * sizeof *moved);
    assert_non_null(moved);
    if (rows) {
        espl_reorder_rows(&shape, values, order, moved);
    } else {
        espl_reorder_columns(&shape, values, order, moved);
    }
    memcpy(values, moved, shape.rows * shape.cols * sizeof *moved);
    free(moved);
}

/* The rows before the last linear of a block and the columns of that, in the float block: what the
 * stage stores, without any rounding. */
static void move_block(void *user, struct espl_forward *forward, struct espl_block *block,
                       uint64_t layer)
{
    const struct moving *moving = user;
    const struct espl_model_config *config = &forward->config;
    const enum espl_role *in = espl_quant_site_roles(config, ESPL_QUANT_MLP_IN);
    const enum espl_role last = espl_quant_site_roles(config, ESPL_QUANT_MLP_MID)[0];
    struct espl_matrix_shape shape;
    float *w = espl_block_weight(block, last, &shape);
    int32_t *order = read_order(moving, layer, shape.cols);
    move(w, shape, order, false);
    for (; *in != ESPL_ROLE_NONE; in++) {
        w = espl_block_weight(block, *in, &shape);
        move(w, shape, order, true);
        if (block->parts[*in].bias != NULL && moving->with_bias) {
            move(block->parts[*in].bias, (struct espl_matrix_shape){shape.rows, 1}, order, true);
        }
    }
    free(order);
}

/* key: a model that was quantised with the reorder. */
static void check_float(struct prune_fixture *fixture, const char *name, char key, bool has_bias)
{
    struct moving moving = {.with_bias = true};
    struct espl_model *model = NULL;
    size_t count = 0;
    prune_open(fixture, key, &moving.artifact, &model);
    float *plain = quant_logits(fixture, 'a', WINDOWS, TOKENS, NULL, NULL, &count);
    float *moved = quant_logits(fixture, 'a', WINDOWS, TOKENS, move_block, &moving, &count);
    moving.with_bias = false;
    float *left = quant_logits(fixture, 'a', WINDOWS, TOKENS, move_block, &moving, &count);
    const double difference = quant_difference(plain, moved, count);
    const double without_bias = quant_difference(plain, left, count);
    print_message("%s in float: moved rows change logits by %.1e, biases left behind by %.1e\n",
                  name, difference, without_bias);
    assert_true(difference < TOLERANCE);
    assert_true(has_bias ? without_bias > 100.0 * TOLERANCE : without_bias == difference);
    free(plain);
    free(moved);
    free(left);
    espl_model_close(model);
    espl_artifact_close(moving.artifact);
}

/* ---- models ---- */

static void test_reorder__random_models(void **state)
{
    (void)state;
    const struct {
        const char *name;
        struct espl_model_config config;
    } models[] = {{"llama", prune_llama_config()},
                  {"opt", prune_opt_config()},
                  {"opt post-norm", post_norm_config()},
                  {"qwen2", qwen_config()}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct prune_fixture fixture;
        prune_fixture_open(&fixture);
        prune_make_model(&fixture, 'a', &models[i].config, ESPL_DTYPE_F32, NULL);
        prune_make_random_tokens(&fixture, 'b', 11, TOKENS);
        check_codes(&fixture, models[i].name, 8, "cd");
        check_codes(&fixture, models[i].name, 16, "ef");
        check_float(&fixture, models[i].name, 'c', models[i].config.activation == ESPL_ACT_RELU);
        prune_fixture_close(&fixture);
    }
}

static void test_reorder__models_of_other_software(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool mlp_bias;
    } models[] = {
        {"llama-default", true}, {"opt-post-norm", true}, {"opt-gelu", false}, {"qwen2", false}};
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct prune_fixture fixture;
        char name[64], folder[GOLDEN_PATH];
        (void)snprintf(name, sizeof name, "models/%s", models[i].name);
        golden_path(name, folder);
        prune_fixture_open(&fixture);
        prune_import(&fixture, 'a', folder);
        prune_make_random_tokens(&fixture, 'b', 11, TOKENS);
        check_codes(&fixture, models[i].name, 8, "cd");
        check_codes(&fixture, models[i].name, 16, "ef");
        check_float(&fixture, models[i].name, 'c', models[i].mlp_bias);
        prune_fixture_close(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reorder__random_models),
        cmocka_unit_test(test_reorder__models_of_other_software),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
