/* iebme-encode on a linear with more columns than a 16-bit index reaches: it is encoded, and only
 * the format that cannot hold it is left out of the figures. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "encode_fixture.h"

#include "core/codes.h"
#include "model/quantised.h"
#include "stages/encode_common/unit_counts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDE = 65537, NARROW = 2, BITS = 4 };

static void must(enum espl_status status, const struct espl_error *err)
{
    if (status != ESPL_OK) {
        fail_msg("%s [%s]", err->message, err->context);
    }
}

/* Two blocks whose fc2 is 2 x 65537. */
static struct espl_model_config wide_config(void)
{
    struct espl_model_config config = prune_opt_config();
    config.layers = 2;
    config.hidden = NARROW;
    config.embed_dim = NARROW;
    config.heads = 1;
    config.kv_heads = 1;
    config.head_dim = NARROW;
    config.ffn = WIDE;
    config.vocab = 4;
    config.max_positions = 4;
    return config;
}

static struct espl_quant_scheme wide_scheme(void)
{
    return (struct espl_quant_scheme){
        .weight_bits = BITS,
        .activation_bits = 16,
        .kv_bits = 16,
        .rows_per_scale = 2,
        .weight_clip = 1.0,
        .activation_clip = 1.0,
        .kv_clip = 1.0,
        .widths = {{NARROW, 0, 0}, {WIDE, 0, 0}},
        .width_count = 2,
    };
}

/* Codes of one linear: every third one is not 0, the last column among them. */
static void write_linear(struct espl_artifact *output, const struct espl_model *base, int64_t layer,
                         enum espl_role role)
{
    struct espl_error err;
    const struct espl_tensor_spec *spec = espl_model_find(base, layer, role, false);
    const size_t rows = (size_t)spec->shape[0];
    const size_t cols = (size_t)spec->shape[1];
    const struct espl_quant_scheme scheme = wide_scheme();
    struct espl_quant_linear linear =
        espl_quant_linear_sizes(&scheme, espl_quant_scheme_width(&scheme, cols), rows);
    const size_t scales = (rows + 1) / 2;
    int8_t *codes = malloc(rows * cols);
    linear.codes = malloc(rows * espl_codes_stride(cols, BITS));
    linear.scales = malloc(scales * sizeof *linear.scales);
    assert_true(codes != NULL && linear.codes != NULL && linear.scales != NULL);
    for (size_t i = 0; i < rows * cols; i++) {
        codes[i] = (int8_t)((cols - 1 - i % cols) % 3 == 0 ? 5 : 0);
    }
    for (size_t i = 0; i < scales; i++) {
        linear.scales[i] = 0.5f;
    }
    espl_codes_pack(codes, rows, cols, BITS, linear.codes);
    must(espl_quant_linear_write(output, spec, &linear, &err), &err);
    espl_quant_linear_free(&linear);
    free(codes);
}

/* Dense 'a', quantised 'e': fc1 of both blocks, fc2 of those from first_wide on. */
static void make_quantised(struct prune_fixture *fixture, int64_t first_wide)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    struct espl_artifact *base_artifact = NULL;
    struct espl_artifact *output = NULL;
    struct espl_model *base = NULL;
    const struct espl_model_config config = wide_config();
    const struct espl_quant_scheme scheme = wide_scheme();
    prune_fixture_open(fixture);
    prune_make_model(fixture, 'a', &config, ESPL_DTYPE_F32, NULL);
    prune_open(fixture, 'a', &base_artifact, &base);
    must(espl_store_private_path(&fixture->store, prune_key(fixture, 'e'), "out", path, &err),
         &err);
    must(espl_artifact_create(path, "model.quant/1", &output, &err), &err);
    json_t *json = espl_quant_scheme_to_json(&scheme);
    must(espl_model_begin_quantised(output, base, json, &err), &err);
    json_decref(json);
    for (int64_t layer = 0; layer < 2; layer++) {
        write_linear(output, base, layer, ESPL_ROLE_FC1);
        if (layer >= first_wide) {
            write_linear(output, base, layer, ESPL_ROLE_FC2);
        }
    }
    (void)snprintf(path, sizeof path, "%s", espl_artifact_path(output));
    must(espl_artifact_finish(&output, NULL, &err), &err);
    must(espl_store_publish(&fixture->store, path, prune_key(fixture, 'e'), NULL, &err), &err);
    espl_model_close(base);
    espl_artifact_close(base_artifact);
}

static bool has_layer(const struct prune_result *result, const char *series, const char *module)
{
    size_t index;
    const json_t *row;
    json_array_foreach(result->layers, index, row)
    {
        if (strcmp(json_string_value(json_object_get(row, "series")), series) == 0 &&
            strcmp(json_string_value(json_object_get(row, "module")), module) == 0) {
            return true;
        }
    }
    return false;
}

static void test_wide__encoded_without_csr16(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    make_quantised(&fixture, 1);
    encode_model(&fixture, "1x1", 0, '0', &result);
    assert_true(prune_metric(&result, "linears") == 3.0);
    /* 2 x 65537 codes of which 2 x 21846 are not 0, one float scale, offsets of 3 rows */
    const double nonzeros = 2.0 * 21846.0;
    assert_true(encode_layer(&result, "csr32_bytes", "layers.1.fc2") ==
                nonzeros / 2.0 + 4.0 * nonzeros + 3.0 * 4.0 + 4.0);
    assert_true(encode_layer(&result, "dense_bytes", "layers.1.fc2") == 2.0 * 32769.0 + 4.0);
    assert_false(has_layer(&result, "csr16_bytes", "layers.1.fc2"));
    assert_true(has_layer(&result, "csr16_bytes", "layers.1.fc1"));
    assert_true(has_layer(&result, "csr16_bytes", "layers.0.fc1"));
    /* a sum over some of the linears would be taken for one over all */
    assert_null(json_object_get(result.metrics, "csr16_bytes"));
    assert_true(prune_metric(&result, "csr32_bytes") > prune_metric(&result, "encoded_bytes"));
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_narrow__csr16_is_there(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    make_quantised(&fixture, 2);
    encode_model(&fixture, "auto", 0, '0', &result);
    assert_true(prune_metric(&result, "csr16_bytes") ==
                2.0 * encode_layer(&result, "csr16_bytes", "layers.0.fc1"));
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_wide__resume_keeps_what_is_missing(void **state)
{
    (void)state;
    struct prune_fixture whole, resumed;
    struct prune_result a, b;
    make_quantised(&whole, 0);
    make_quantised(&resumed, 0);
    encode_model(&whole, "auto", 0, 'c', &a);
    prune_copy_units(&whole, &resumed, 1);
    encode_model(&resumed, "auto", 0, 'c', &b);
    assert_int_equal(b.resumed, 1);
    prune_assert_same(&whole, &resumed, &a, &b);
    prune_result_free(&a);
    prune_result_free(&b);
    prune_fixture_close(&whole);
    prune_fixture_close(&resumed);
}

static void test_sum__of_a_missing_part_is_missing(void **state)
{
    (void)state;
    uint64_t total = 5;
    espl_unit_count_add(&total, 7);
    assert_int_equal(total, 12);
    espl_unit_count_add(&total, ESPL_UNIT_COUNT_NONE);
    espl_unit_count_add(&total, 7);
    assert_true(total == ESPL_UNIT_COUNT_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide__encoded_without_csr16),
        cmocka_unit_test(test_narrow__csr16_is_there),
        cmocka_unit_test(test_wide__resume_keeps_what_is_missing),
        cmocka_unit_test(test_sum__of_a_missing_part_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
