/* The model view of quantised models and of models with changed weights: values by hand, original
 * order, what a damaged file gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "prune_fixture.h"

#include "core/codes.h"
#include "model/quantised.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The smallest OPT: 2 rows and 6 columns at fc2, 6 rows and 2 columns at fc1. */
static struct espl_model_config tiny_config(void)
{
    struct espl_model_config config = prune_opt_config();
    config.layers = 1;
    config.hidden = 2;
    config.heads = 1;
    config.kv_heads = 1;
    config.head_dim = 2;
    config.ffn = 6;
    config.vocab = 4;
    config.embed_dim = 2;
    config.max_positions = 4;
    return config;
}

static struct espl_quant_scheme tiny_scheme(void)
{
    return (struct espl_quant_scheme){
        .weight_bits = 4,
        .activation_bits = 4,
        .kv_bits = 4,
        .rows_per_scale = 2,
        .weight_clip = 0.85,
        .activation_clip = 0.9,
        .kv_clip = 1.0,
        .gptq = true,
        .full_scale = true,
        .reordered = true,
        .widths = {{6, 2, 2}, {2, 0, 0}},
        .width_count = 2,
    };
}

/* fc2: places 0..5 hold columns 4, 2, 0, 5 | 1, 3; the last two are outliers. */
static const int32_t mid_order[6] = {4, 2, 0, 5, 1, 3};
static const int8_t fc2_codes[8] = {1, -2, 3, -8, 0, 7, -1, 4};
static float fc2_scales[2] = {0.5f, 0.25f};
static int8_t fc2_outliers[4] = {100, -128, 3, 0};
static float fc2_outlier_scales[2] = {0.01f, 2.0f};
/* columns 0..5 of both rows, by hand */
static const float fc2_values[2][6] = {{0.75f, 1.0f, -1.0f, -1.28f, 0.5f, -2.0f},
                                       {-0.25f, 6.0f, 3.5f, 0.0f, 0.0f, 1.0f}};
/* kept bits by place: row 0 all, row 1 without places 0 and 5 */
static uint8_t fc2_mask[2] = {0x3f, 0x1e};

/* fc1: rows in mid_order, columns 1, 0; one scale for two rows. */
static const int32_t in_order[2] = {1, 0};
static const int8_t fc1_codes[12] = {1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4};
static float fc1_scales[3] = {1.0f, 2.0f, 4.0f};
static float fc1_bias[6] = {0.4f, 0.2f, 0.0f, 0.5f, 0.1f, 0.3f};
static const float fc1_values[6][2] = {{12.0f, 10.0f},   {-24.0f, -28.0f}, {4.0f, 3.0f},
                                       {-16.0f, -20.0f}, {2.0f, 1.0f},     {-16.0f, 14.0f}};

struct quantised {
    struct prune_fixture fixture;
    struct espl_artifact *base_artifact;
    struct espl_model *base;
    struct espl_artifact *artifact;
    struct espl_model *model;
};

static void must(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s]", err->message, err->context);
    }
}

static void write_linear(struct espl_artifact *output, const struct espl_model *base,
                         enum espl_role role, const int8_t *codes, struct espl_quant_linear *linear)
{
    struct espl_error err;
    uint8_t packed[16];
    linear->rows_per_scale = 2;
    linear->weight_bits = 4;
    espl_codes_pack(codes, linear->out, linear->normal, 4, packed);
    linear->codes = packed;
    must(espl_quant_linear_write(output, espl_model_find(base, 0, role, false), linear, &err),
         &err);
}

/* A file with the two linears above. bad: what is wrong with it. */
enum damage { NONE, ORDER_TWICE, ORDER_LOST, CODES_LOST, SCALE_ZERO, WRONG_SHAPE, NO_SCHEME };

static enum espl_status make_quantised(struct quantised *q, enum damage damage,
                                       struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    struct espl_artifact *output = NULL;
    const struct espl_model_config config = tiny_config();
    const struct espl_quant_scheme scheme = tiny_scheme();
    int32_t order[6];
    float scales[2] = {fc2_scales[0], damage == SCALE_ZERO ? 0.0f : fc2_scales[1]};
    memset(q, 0, sizeof *q);
    memcpy(order, mid_order, sizeof order);
    order[3] = damage == ORDER_TWICE ? 4 : order[3];
    prune_fixture_open(&q->fixture);
    prune_make_model(&q->fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_open(&q->fixture, 'a', &q->base_artifact, &q->base);
    prune_path(&q->fixture, 'c', path);
    must(espl_store_private_path(&q->fixture.store, prune_key(&q->fixture, 'c'), "out", path, err),
         err);
    must(espl_artifact_create(path, "model.quant/1", &output, err), err);
    json_t *json = damage == NO_SCHEME ? json_object() : espl_quant_scheme_to_json(&scheme);
    (void)json_object_set_new(json, "linears", json_integer(damage == CODES_LOST ? 3 : 2));
    must(espl_model_begin_quantised(output, q->base, json, err), err);
    json_decref(json);
    if (damage != ORDER_LOST) {
        must(espl_quant_order_write(output, 0, ESPL_QUANT_MLP_MID, order, 6, err), err);
    }
    must(espl_quant_order_write(output, 0, ESPL_QUANT_MLP_IN, in_order, 2, err), err);
    struct espl_quant_linear fc2 = {.out = 2,
                                    .in = 6,
                                    .normal = 4,
                                    .outliers = 2,
                                    .group_size = 4,
                                    .groups = 1,
                                    .scales = scales,
                                    .outlier_codes = fc2_outliers,
                                    .outlier_scales = fc2_outlier_scales,
                                    .mask = fc2_mask};
    fc2.group_size = 2;
    fc2.groups = damage == WRONG_SHAPE ? 1 : 2;
    write_linear(output, q->base, ESPL_ROLE_FC2, fc2_codes, &fc2);
    int32_t rows[6];
    memcpy(rows, mid_order, sizeof rows);
    struct espl_quant_linear fc1 = {.out = 6,
                                    .in = 2,
                                    .normal = 2,
                                    .group_size = 2,
                                    .groups = 1,
                                    .scales = fc1_scales,
                                    .bias = fc1_bias,
                                    .row_order = rows};
    write_linear(output, q->base, ESPL_ROLE_FC1, fc1_codes, &fc1);
    (void)snprintf(path, sizeof path, "%s", espl_artifact_path(output));
    must(espl_artifact_finish(&output, NULL, err), err);
    must(espl_store_publish(&q->fixture.store, path, prune_key(&q->fixture, 'c'), NULL, err), err);
    prune_path(&q->fixture, 'c', path);
    must(espl_artifact_open(path, &q->artifact, err), err);
    return espl_model_open(q->artifact, &q->fixture.store, &q->model, err);
}

static void close_quantised(struct quantised *q)
{
    espl_model_close(q->model);
    espl_artifact_close(q->artifact);
    espl_model_close(q->base);
    espl_artifact_close(q->base_artifact);
    prune_fixture_close(&q->fixture);
}

static void test_read__values_and_masks_by_hand(void **state)
{
    (void)state;
    struct quantised q;
    struct espl_error err;
    float w[12], row[6];
    uint8_t mask[2];
    must(make_quantised(&q, NONE, &err), &err);
    const struct espl_tensor_spec *fc2 = espl_model_find(q.model, 0, ESPL_ROLE_FC2, false);
    const struct espl_tensor_spec *fc1 = espl_model_find(q.model, 0, ESPL_ROLE_FC1, false);
    assert_true(espl_model_is_quantised(q.model, fc2));
    assert_int_equal(espl_model_dtype(q.model, fc2), ESPL_DTYPE_F32);
    must(espl_model_read_f32(q.model, fc2, 0, 2, w, &err), &err);
    assert_memory_equal(w, fc2_values, sizeof fc2_values);
    must(espl_model_read_raw(q.model, fc2, 1, 1, row, sizeof row, &err), &err);
    assert_memory_equal(row, fc2_values[1], sizeof row);
    must(espl_model_read_f32(q.model, fc1, 0, 6, w, &err), &err);
    assert_memory_equal(w, fc1_values, sizeof fc1_values);
    must(espl_model_read_f32(q.model, fc1, 4, 1, row, &err), &err);
    assert_true(row[0] == 2.0f && row[1] == 1.0f);
    assert_true(espl_model_has_mask(q.model, fc2));
    must(espl_model_read_mask(q.model, fc2, 0, 2, mask, &err), &err);
    assert_int_equal(mask[0], 0x3f);
    assert_int_equal(mask[1], 0x3f & ~(1 << 4) & ~(1 << 3)); /* places 0 and 5: columns 4 and 3 */
    assert_false(espl_model_has_mask(q.model, fc1));
    must(espl_model_read_mask(q.model, fc1, 2, 2, mask, &err), &err);
    assert_true(mask[0] == 3 && mask[1] == 3);
    close_quantised(&q);
}

static void test_read__the_rest_comes_from_the_base(void **state)
{
    (void)state;
    struct quantised q;
    struct espl_error err;
    must(make_quantised(&q, NONE, &err), &err);
    for (size_t i = 0; i < espl_model_tensor_count(q.model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(q.model, i);
        float got[64], expected[64];
        if (espl_model_is_quantised(q.model, spec)) {
            continue;
        }
        must(espl_model_read_f32(q.model, spec, 0, spec->shape[0], got, &err), &err);
        must(espl_model_read_f32(q.base, espl_model_tensor(q.base, i), 0, spec->shape[0], expected,
                                 &err),
             &err);
        for (size_t v = 0; v < spec->shape[0] * (spec->rank == 2 ? spec->shape[1] : 1); v++) {
            assert_true(got[v] == expected[v]);
        }
    }
    close_quantised(&q);
}

static void test_linear__as_kernels_take_it(void **state)
{
    (void)state;
    struct quantised q;
    struct espl_error err;
    struct espl_quant_linear linear;
    must(make_quantised(&q, NONE, &err), &err);
    must(espl_quant_linear_read(q.model, 0, ESPL_ROLE_FC2, false, &linear, &err), &err);
    assert_true(linear.gathered && linear.row_order == NULL && linear.mask == NULL);
    assert_int_equal(linear.normal, 4);
    assert_int_equal(linear.groups, 2);
    assert_memory_equal(linear.order, mid_order, sizeof mid_order);
    /* low nibble = even column: 1, -2 | 3, -8 */
    assert_int_equal(linear.codes[0], 0xe1);
    assert_int_equal(linear.codes[1], 0x83);
    assert_int_equal(espl_quant_linear_bytes(&linear), 2 * 2 + 2 * 4 + 2 * 2 + 2 * 4);
    espl_quant_linear_free(&linear);
    must(espl_quant_linear_read(q.model, 0, ESPL_ROLE_FC1, true, &linear, &err), &err);
    assert_false(linear.gathered);
    assert_memory_equal(linear.row_order, mid_order, sizeof mid_order);
    assert_memory_equal(linear.bias, fc1_bias, sizeof fc1_bias);
    espl_quant_linear_free(&linear);
    assert_int_equal(espl_quant_linear_read(q.model, 0, ESPL_ROLE_Q, false, &linear, &err),
                     ESPL_E_NOTFOUND);
    assert_int_equal(espl_quant_linear_read(q.base, 0, ESPL_ROLE_FC1, false, &linear, &err),
                     ESPL_E_NOTFOUND);
    close_quantised(&q);
}

static void test_read__damage_is_corrupt(void **state)
{
    (void)state;
    const struct {
        enum damage damage;
        const char *message;
    } cases[] = {
        {ORDER_TWICE, "is no permutation: entry 3 is 4"},
        {ORDER_LOST, "has no dataset '/layers/000/order_mlp_mid'"},
        {CODES_LOST, "has codes of 2 linears, but its description says 3"},
        {SCALE_ZERO, "scale 1 of '/layers/000/fc2/scales' is 0"},
        {WRONG_SHAPE, "dataset '/layers/000/fc2/scales'"},
        {NO_SCHEME, "has no valid 'weight_bits'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct quantised q;
        struct espl_error err;
        float w[12];
        enum espl_status status = make_quantised(&q, cases[i].damage, &err);
        const bool seen_at_open = cases[i].damage == NO_SCHEME || cases[i].damage == CODES_LOST;
        if (!seen_at_open) {
            must(status, &err);
            status = espl_model_read_f32(q.model, espl_model_find(q.model, 0, ESPL_ROLE_FC2, false),
                                         0, 2, w, &err);
        }
        assert_int_equal(status, ESPL_E_CORRUPT);
        if (strstr(err.message, cases[i].message) == NULL) {
            fail_msg("'%s' does not contain '%s'", err.message, cases[i].message);
        }
        close_quantised(&q);
    }
}

static void test_scheme__round_trip_and_refusals(void **state)
{
    (void)state;
    const struct espl_quant_scheme scheme = tiny_scheme();
    struct espl_quant_scheme read;
    struct espl_error err;
    json_t *json = espl_quant_scheme_to_json(&scheme);
    must(espl_quant_scheme_from_json(json, &read, &err), &err);
    assert_int_equal(read.width_count, 2);
    assert_int_equal(espl_quant_scheme_width(&read, 6)->outliers, 2);
    assert_int_equal(espl_quant_scheme_width(&read, 6)->group_size, 2);
    assert_null(espl_quant_scheme_width(&read, 7));
    assert_true(read.gptq && read.full_scale && read.reordered && read.weight_clip == 0.85);
    assert_null(json_object_get(json, "group_size")); /* not the same for both widths */
    const struct {
        const char *name;
        json_t *value;
    } bad[] = {
        {"weight_bits", json_integer(9)},
        {"weight_bits", json_integer(16)},
        {"activation_bits", json_integer(3)},
        {"activation_bits", json_integer(12)},
        {"kv_bits", json_string("4")},
        {"rows_per_scale", json_integer(3)},
        {"weight_clip", json_real(0.0)},
        {"kv_clip", json_real(1.5)},
        {"method", json_string("awq")},
        {"outlier_bits", json_integer(4)},
        {"widths", json_array()},
        {"widths", json_object()},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        json_t *changed = json_deep_copy(json);
        (void)json_object_set_new(changed, bad[i].name, bad[i].value);
        assert_int_equal(espl_quant_scheme_from_json(changed, &read, &err), ESPL_E_CORRUPT);
        assert_non_null(strstr(err.message, bad[i].name));
        json_decref(changed);
    }
    json_t *width = json_object_get(json_object_get(json, "widths"), "6");
    (void)json_object_set_new(width, "outlier_channels", json_integer(6));
    assert_int_equal(espl_quant_scheme_from_json(json, &read, &err), ESPL_E_CORRUPT);
    (void)json_object_set_new(width, "outlier_channels", json_integer(3));
    assert_int_equal(espl_quant_scheme_from_json(json, &read, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "widths"));
    json_t *widths = json_object_get(json, "widths");
    (void)json_object_set(widths, "six", width);
    assert_int_equal(espl_quant_scheme_from_json(json, &read, &err), ESPL_E_CORRUPT);
    json_decref(json);
}

/* ---- changed weights ---- */

static struct espl_artifact *start(struct prune_fixture *fixture, char key, const char *kind,
                                   const struct espl_model *base)
{
    char path[ESPL_PATH_MAX];
    struct espl_artifact *output = NULL;
    struct espl_error err;
    json_t *pruning = json_object();
    must(espl_store_private_path(&fixture->store, prune_key(fixture, key), "out", path, &err),
         &err);
    must(espl_artifact_create(path, kind, &output, &err), &err);
    must(espl_artifact_set_attribute(output, "key", prune_key(fixture, key), &err), &err);
    must(espl_model_begin_masked(output, base, pruning, &err), &err);
    json_decref(pruning);
    return output;
}

static void finish(struct prune_fixture *fixture, char key, struct espl_artifact *output)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    (void)snprintf(path, sizeof path, "%s", espl_artifact_path(output));
    must(espl_artifact_finish(&output, NULL, &err), &err);
    must(espl_store_publish(&fixture->store, path, prune_key(fixture, key), NULL, &err), &err);
}

/* dense <- masked <- changed weights <- masked: what lies under changed weights does not count. */
static void test_updated__weights_and_masks_of_the_chain(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_artifact *artifacts[4] = {NULL};
    struct espl_model *models[4] = {NULL};
    struct espl_error err;
    const struct espl_model_config config = tiny_config();
    const float changed[12] = {1, 2, 3, 0, 0, 6, 7, 8, 9, 10, 11, 0};
    const uint8_t masks[3][2] = {{0x01, 0x01}, {0x27, 0x1f}, {0x3e, 0x3f}};
    float w[12];
    uint8_t mask[2];
    prune_fixture_open(&fixture);
    prune_make_model(&fixture, 'a', &config, ESPL_DTYPE_BF16, NULL);
    prune_open(&fixture, 'a', &artifacts[0], &models[0]);
    for (size_t i = 1; i < 4; i++) {
        const char key = (char)('a' + (int)i);
        const struct espl_tensor_spec *fc2 =
            espl_model_find(models[i - 1], 0, ESPL_ROLE_FC2, false);
        struct espl_artifact *output =
            start(&fixture, key, i == 2 ? "model.updated/1" : "model.masked/1", models[i - 1]);
        if (i == 2) {
            const struct espl_tensor_info info =
                espl_tensor_info_make(fc2->path, ESPL_DTYPE_F32, 2, fc2->shape);
            must(espl_artifact_write(output, &info, changed, &err), &err);
        }
        must(espl_model_write_mask(output, fc2, masks[i - 1], &err), &err);
        finish(&fixture, key, output);
        prune_open(&fixture, key, &artifacts[i], &models[i]);
    }
    const struct espl_tensor_spec *fc2 = espl_model_find(models[2], 0, ESPL_ROLE_FC2, false);
    assert_int_equal(espl_model_dtype(models[2], fc2), ESPL_DTYPE_F32);
    must(espl_model_read_f32(models[2], fc2, 0, 2, w, &err), &err);
    assert_memory_equal(w, changed, sizeof w);
    must(espl_model_read_mask(models[2], fc2, 0, 2, mask, &err), &err);
    assert_memory_equal(mask, masks[1], 2);
    const struct espl_tensor_spec *top = espl_model_find(models[3], 0, ESPL_ROLE_FC2, false);
    must(espl_model_read_f32(models[3], top, 0, 2, w, &err), &err);
    assert_true(w[0] == 0.0f && w[1] == 2.0f && w[6] == 7.0f);
    must(espl_model_read_mask(models[3], top, 0, 1, mask, &err), &err);
    assert_int_equal(mask[0], 0x26);
    /* other tensors still come from the bottom */
    const struct espl_tensor_spec *fc1 = espl_model_find(models[3], 0, ESPL_ROLE_FC1, false);
    assert_int_equal(espl_model_dtype(models[3], fc1), ESPL_DTYPE_BF16);
    assert_false(espl_model_has_mask(models[3], fc1));
    for (size_t i = 0; i < 4; i++) {
        espl_model_close(models[i]);
        espl_artifact_close(artifacts[i]);
    }
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read__values_and_masks_by_hand),
        cmocka_unit_test(test_read__the_rest_comes_from_the_base),
        cmocka_unit_test(test_linear__as_kernels_take_it),
        cmocka_unit_test(test_read__damage_is_corrupt),
        cmocka_unit_test(test_scheme__round_trip_and_refusals),
        cmocka_unit_test(test_updated__weights_and_masks_of_the_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
