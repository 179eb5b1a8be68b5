/* atom-quantize on tiny models: the artifact is what runs, masks stay, resume, threads, failures.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "quant_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct espl_model_config post_norm_config(void)
{
    struct espl_model_config config = prune_opt_config();
    config.pre_norm = false;
    config.final_norm = false;
    return config;
}

/* Odd rows, heads of 7: the last row of every matrix has scales of its own. */
static struct espl_model_config odd_config(void)
{
    struct espl_model_config config = prune_opt_config();
    config.hidden = 21;
    config.embed_dim = 21;
    config.head_dim = 7;
    config.ffn = 33;
    return config;
}

/* Weights that 8 bits hold exactly: multiples of 1/128, 127/128 in every row. */
static void make_exact(const struct espl_tensor_spec *spec, float *values)
{
    const size_t cols = spec->rank == 2 ? (size_t)spec->shape[1] : 1;
    if (!espl_role_is_block_linear(spec->role) || spec->is_bias) {
        return;
    }
    for (size_t i = 0; i < (size_t)spec->shape[0] * cols; i++) {
        const float rounded = rintf(values[i] * 64.0f);
        values[i] = fminf(fmaxf(rounded, -127.0f), 127.0f) / 128.0f;
        values[i] = i % cols == 3 ? 127.0f / 128.0f : values[i];
    }
}

static void assert_equal_tensors(struct prune_fixture *fixture, char left, char right)
{
    struct espl_artifact *artifacts[2] = {NULL, NULL};
    struct espl_model *models[2] = {NULL, NULL};
    struct espl_error err;
    prune_open(fixture, left, &artifacts[0], &models[0]);
    prune_open(fixture, right, &artifacts[1], &models[1]);
    for (size_t i = 0; i < espl_model_tensor_count(models[0]); i++) {
        float *values[2];
        const struct espl_tensor_spec *spec = espl_model_tensor(models[0], i);
        const size_t count =
            (size_t)spec->shape[0] * (spec->rank == 2 ? (size_t)spec->shape[1] : 1);
        for (size_t m = 0; m < 2; m++) {
            values[m] = malloc(count * sizeof(float));
            assert_int_equal(espl_model_read_f32(models[m], espl_model_tensor(models[m], i), 0,
                                                 spec->shape[0], values[m], &err),
                             ESPL_OK);
        }
        for (size_t v = 0; v < count; v++) {
            if (values[0][v] != values[1][v]) {
                fail_msg("%s[%zu]: %g and %g", spec->name, v, (double)values[0][v],
                         (double)values[1][v]);
            }
        }
        free(values[0]);
        free(values[1]);
    }
    for (size_t m = 0; m < 2; m++) {
        espl_model_close(models[m]);
        espl_artifact_close(artifacts[m]);
    }
}

static void test_model_view__gives_weights_in_their_original_places(void **state)
{
    (void)state;
    const struct espl_model_config configs[] = {prune_llama_config(), prune_opt_config()};
    struct espl_atom_params params = quant_atom_params();
    params.weight_bits = 8;
    params.method = ESPL_ATOM_RTN;
    params.group_size = 0;
    params.outlier_channels = 0;
    params.rows_per_scale = 1;
    params.weight_clip = 1.0;
    for (size_t i = 0; i < 2; i++) {
        struct prune_fixture fixture;
        prune_open_case(&fixture, &configs[i], ESPL_DTYPE_F32, make_exact);
        quant_run(&fixture, &espl_stage_atom_quantize, &params, 'c', 'a', NULL);
        assert_equal_tensors(&fixture, 'a', 'c');
        prune_fixture_close(&fixture);
    }
}

/* ---- the artifact is what runs ---- */

/* Rebuilds a quantised model from the float one: dequantised weights in their original places,
 * inputs fake-quantised in the stored order. */
struct rebuild {
    struct espl_artifact *artifact;
    struct espl_model *model;
    int32_t *orders[ESPL_QUANT_SITES];
};

static void rebuild_block(void *user, struct espl_forward *forward, struct espl_block *block,
                          uint64_t layer)
{
    struct rebuild *rebuild = user;
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(rebuild->model);
    struct espl_error err;
    for (int site = 0; site < ESPL_QUANT_SITES; site++) {
        char path[64];
        size_t bytes = 0;
        void *data = NULL;
        (void)snprintf(path, sizeof path, "/layers/%03d/%s", (int)layer,
                       espl_quant_order_name((enum espl_quant_site)site));
        free(rebuild->orders[site]);
        assert_int_equal(espl_artifact_read(rebuild->artifact, path, 1 << 20, &data, &bytes, &err),
                         ESPL_OK);
        rebuild->orders[site] = data;
    }
    for (const enum espl_role *role =
             espl_forward_block_roles(espl_model_get_config(rebuild->model));
         *role != ESPL_ROLE_NONE; role++) {
        struct espl_matrix_shape shape;
        float *w = espl_block_weight(block, *role, &shape);
        const struct espl_quant_width *width = espl_quant_scheme_width(scheme, shape.cols);
        const struct espl_input_quantiser quantiser = {
            scheme->activation_bits, width->outliers, width->group_size,
            (float)scheme->activation_clip, rebuild->orders[espl_quant_site_of(*role)]};
        assert_int_equal(
            espl_model_read_f32(rebuild->model,
                                espl_model_find(rebuild->model, (int64_t)layer, *role, false), 0,
                                shape.rows, w, &err),
            ESPL_OK);
        assert_int_equal(espl_block_simulate_input(forward, block, *role, &quantiser, &err),
                         ESPL_OK);
    }
    espl_block_simulate_kv(block, scheme->kv_bits, (float)scheme->kv_clip);
}

static void test_evaluation__integers_equal_the_simulation(void **state)
{
    (void)state;
    const struct espl_model_config configs[] = {prune_llama_config(), prune_opt_config(),
                                                post_norm_config(), odd_config()};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct prune_fixture fixture;
        struct rebuild rebuild = {0};
        struct espl_atom_params params = quant_atom_params();
        size_t count = 0;
        params.outlier_channels = configs[i].hidden % 2 == 0 ? 8 : 5;
        prune_open_case(&fixture, &configs[i], ESPL_DTYPE_F32, NULL);
        quant_run(&fixture, &espl_stage_atom_quantize, &params, 'c', 'a', NULL);
        prune_open(&fixture, 'c', &rebuild.artifact, &rebuild.model);
        float *integers = quant_logits(&fixture, 'c', 1, 16, NULL, NULL, &count);
        float *simulated = quant_logits(&fixture, 'a', 1, 16, rebuild_block, &rebuild, &count);
        float *dense = quant_logits(&fixture, 'a', 1, 16, NULL, NULL, &count);
        const double difference = quant_difference(simulated, integers, count);
        print_message("%s: integers differ from the simulation by %.1e, from dense by %.1e\n",
                      configs[i].architecture, difference,
                      quant_difference(dense, integers, count));
        assert_true(difference < 1e-3);
        assert_true(quant_difference(dense, integers, count) > 20.0 * difference);
        for (int site = 0; site < ESPL_QUANT_SITES; site++) {
            free(rebuild.orders[site]);
        }
        espl_model_close(rebuild.model);
        espl_artifact_close(rebuild.artifact);
        free(integers);
        free(simulated);
        free(dense);
        prune_fixture_close(&fixture);
    }
}

static void test_datasets__are_what_the_format_says(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    const struct espl_model_config config = prune_opt_config();
    const struct espl_atom_params params = quant_atom_params();
    prune_open_case(&fixture, &config, ESPL_DTYPE_F32, NULL);
    quant_run(&fixture, &espl_stage_atom_quantize, &params, 'c', 'a', &result);
    prune_open(&fixture, 'c', &artifact, &model);
    assert_string_equal(espl_artifact_kind(artifact), "model.quant/1");
    const struct {
        const char *path;
        enum espl_dtype dtype;
        uint64_t rows, cols;
    } expected[] = {
        {"/layers/001/fc2/codes", ESPL_DTYPE_U8, 24, 14}, /* 36 - 8 columns of 4 bits */
        {"/layers/001/fc2/scales", ESPL_DTYPE_F32, 12, 7},
        {"/layers/001/fc2/outlier_codes", ESPL_DTYPE_I8, 24, 8},
        {"/layers/001/fc2/outlier_scales", ESPL_DTYPE_F32, 24, 0},
        {"/layers/001/fc1/bias", ESPL_DTYPE_F32, 36, 0},
        {"/layers/001/order_attention_in", ESPL_DTYPE_I32, 24, 0},
        {"/layers/001/order_attention_out", ESPL_DTYPE_I32, 24, 0},
        {"/layers/001/order_mlp_in", ESPL_DTYPE_I32, 24, 0},
        {"/layers/001/order_mlp_mid", ESPL_DTYPE_I32, 36, 0},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct espl_tensor_info *info = espl_artifact_find(artifact, expected[i].path);
        if (info == NULL) {
            fail_msg("no dataset %s", expected[i].path);
        }
        assert_int_equal(info->dtype, expected[i].dtype);
        assert_int_equal(info->rank, expected[i].cols > 0 ? 2 : 1);
        assert_int_equal(info->shape[0], expected[i].rows);
        assert_true(expected[i].cols == 0 || info->shape[1] == expected[i].cols);
    }
    const struct espl_tensor_info *codes = espl_artifact_find(artifact, "/layers/001/fc2/codes");
    assert_string_equal(codes->packing, "int4-lsb0");
    assert_int_equal(codes->logical_shape[1], 28);
    assert_null(espl_artifact_find(artifact, "/layers/001/fc2/mask"));
    assert_null(espl_artifact_find(artifact, "/layers/001/fc2/bias"));
    assert_null(espl_artifact_find(artifact, "/layers/001/fc2/weight"));
    /* 2 blocks: q, k, v, o 24 x 24, fc1 36 x 24, fc2 24 x 36; codes, scales of 4 columns and 2
     * rows, INT8 outliers with a scale a row */
    const double bytes = 2.0 * (4 * (24 * 8 + 12 * 4 * 4 + 24 * 12) +
                                (36 * 8 + 18 * 4 * 4 + 36 * 12) + (24 * 14 + 12 * 7 * 4 + 24 * 12));
    assert_true(prune_metric(&result, "quantised_bytes") == bytes);
    assert_true(prune_metric(&result, "bits_per_weight") ==
                8.0 * bytes / (2.0 * (4 * 576 + 2 * 864)));
    assert_true(prune_metric(&result, "rtn_fallbacks") == 0.0);
    assert_true(prune_metric(&result, "calibration_windows") == 11.0);
    assert_int_equal(json_array_size(result.layers), 2 * (6 * 6 + 1));
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* ---- masks ---- */

static void assert_mask_kept(struct prune_fixture *fixture)
{
    struct espl_artifact *artifacts[2] = {NULL, NULL};
    struct espl_model *models[2] = {NULL, NULL};
    struct espl_error err;
    prune_open(fixture, 'd', &artifacts[0], &models[0]);
    prune_open(fixture, 'c', &artifacts[1], &models[1]);
    for (size_t i = 0; i < espl_model_tensor_count(models[1]); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(models[1], i);
        if (!espl_model_has_mask(models[1], spec)) {
            assert_false(espl_role_is_block_linear(spec->role) && !spec->is_bias);
            continue;
        }
        const size_t cols = (size_t)spec->shape[1];
        uint8_t *before = prune_read_mask(models[0], espl_model_tensor(models[0], i));
        uint8_t *after = prune_read_mask(models[1], spec);
        assert_memory_equal(before, after, spec->shape[0] * ((cols + 7) / 8));
        float *row = malloc(cols * sizeof *row);
        for (uint64_t r = 0; r < spec->shape[0]; r++) {
            assert_int_equal(espl_model_read_f32(models[1], spec, r, 1, row, &err), ESPL_OK);
            for (size_t c = 0; c < cols; c++) {
                assert_true(row[c] == 0.0f || prune_mask_bit(after, cols, r, c));
            }
        }
        free(row);
        free(before);
        free(after);
    }
    for (size_t m = 0; m < 2; m++) {
        espl_model_close(models[m]);
        espl_artifact_close(artifacts[m]);
    }
}

static void test_pruned_model__stays_pruned(void **state)
{
    (void)state;
    const struct espl_wanda_params prune = quant_wanda_params();
    const int methods[] = {ESPL_ATOM_GPTQ, ESPL_ATOM_RTN};
    for (size_t i = 0; i < 4; i++) {
        struct prune_fixture fixture;
        struct prune_result result;
        const struct espl_model_config config =
            i % 2 == 0 ? prune_llama_config() : prune_opt_config();
        struct espl_atom_params params = quant_atom_params();
        params.method = methods[i / 2];
        prune_open_case(&fixture, &config, ESPL_DTYPE_F32, NULL);
        quant_run(&fixture, &espl_stage_wanda_prune, &prune, 'd', 'a', NULL);
        quant_run(&fixture, &espl_stage_atom_quantize, &params, 'c', 'd', &result);
        assert_mask_kept(&fixture);
        assert_true(prune_metric(&result, "mask_sparsity") == 0.5);
        assert_true(prune_metric(&result, "quantised_sparsity") >= 0.5);
        prune_result_free(&result);
        prune_fixture_close(&fixture);
    }
}

/* Half of the weights of fc1 are 0 without any mask: a checkpoint that was pruned elsewhere. */
static void zero_half(const struct espl_tensor_spec *spec, float *values)
{
    for (size_t i = 0; spec->role == ESPL_ROLE_FC1 && !spec->is_bias &&
                       i < (size_t)(spec->shape[0] * spec->shape[1]);
         i += 2) {
        values[i] = 0.0f;
    }
}

static void test_zeros_without_a_mask__stay(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct espl_error err;
    float w[36 * 24];
    const struct espl_model_config config = prune_opt_config();
    const struct espl_atom_params params = quant_atom_params();
    prune_open_case(&fixture, &config, ESPL_DTYPE_F32, zero_half);
    quant_run(&fixture, &espl_stage_atom_quantize, &params, 'c', 'a', NULL);
    prune_open(&fixture, 'c', &artifact, &model);
    const struct espl_tensor_spec *fc1 = espl_model_find(model, 1, ESPL_ROLE_FC1, false);
    assert_true(espl_model_has_mask(model, fc1));
    assert_false(espl_model_has_mask(model, espl_model_find(model, 1, ESPL_ROLE_FC2, false)));
    assert_int_equal(espl_model_read_f32(model, fc1, 0, 36, w, &err), ESPL_OK);
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i += 2) {
        assert_true(w[i] == 0.0f);
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
    prune_fixture_close(&fixture);
}

/* ---- parts of a model ---- */

/* Only some linears, so rows may not move and `down` gathers at run time. */
static void test_targets__the_rest_stays_float(void **state)
{
    (void)state;
    static const char *const ignored[] = {"*.up_proj", "*.k_proj"};
    struct prune_fixture fixture;
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    const struct espl_model_config config = prune_llama_config();
    struct espl_atom_params params = quant_atom_params();
    size_t count = 0;
    params.method = ESPL_ATOM_RTN;
    params.weight_bits = 8;
    params.activation_bits = 8;
    params.group_size = 0;
    params.outlier_channels = 0;
    params.rows_per_scale = 1;
    params.kv_bits = 16;
    params.layers.ignore = (struct espl_list){2, ignored};
    params.layers.first_layer = 1;
    prune_open_case(&fixture, &config, ESPL_DTYPE_F32, NULL);
    quant_run(&fixture, &espl_stage_atom_quantize, &params, 'c', 'a', NULL);
    params.reorder = ESPL_ATOM_REORDER_NONE;
    quant_run(&fixture, &espl_stage_atom_quantize, &params, 'd', 'a', NULL);
    prune_open(&fixture, 'c', &artifact, &model);
    const struct {
        int64_t layer;
        enum espl_role role;
        bool quantised;
    } expected[] = {{0, ESPL_ROLE_Q, false},  {1, ESPL_ROLE_Q, true},    {1, ESPL_ROLE_K, false},
                    {1, ESPL_ROLE_UP, false}, {2, ESPL_ROLE_GATE, true}, {2, ESPL_ROLE_DOWN, true}};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        assert_int_equal(espl_model_is_quantised(model, espl_model_find(model, expected[i].layer,
                                                                        expected[i].role, false)),
                         expected[i].quantised);
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
    float *reordered = quant_logits(&fixture, 'c', 2, 16, NULL, NULL, &count);
    float *plain = quant_logits(&fixture, 'd', 2, 16, NULL, NULL, &count);
    assert_true(quant_difference(plain, reordered, count) < 1e-4);
    free(reordered);
    free(plain);
    prune_fixture_close(&fixture);
}

/* ---- bits ---- */

static void test_bits__all_widths_run(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    const struct espl_model_config config = prune_llama_config();
    struct espl_atom_params params = quant_atom_params();
    double errors[9] = {0};
    size_t count = 0;
    params.weight_clip = 1.0;
    params.activation_clip = 1.0;
    prune_open_case(&fixture, &config, ESPL_DTYPE_F32, NULL);
    float *dense = quant_logits(&fixture, 'a', 2, 16, NULL, NULL, &count);
    for (int bits = 2; bits <= 8; bits++) {
        const char key = (char)('0' + bits);
        params.weight_bits = bits;
        params.activation_bits = 8;
        params.kv_bits = 8;
        quant_run(&fixture, &espl_stage_atom_quantize, &params, key, 'a', NULL);
        float *logits = quant_logits(&fixture, key, 2, 16, NULL, NULL, &count);
        errors[bits] = quant_difference(dense, logits, count);
        free(logits);
    }
    print_message("largest relative logit error of 2..8-bit weights:");
    for (int bits = 2; bits <= 8; bits++) {
        print_message(" %.3f", errors[bits]);
    }
    print_message("\n");
    assert_true(errors[2] > errors[4] && errors[4] > errors[8]);
    free(dense);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model_view__gives_weights_in_their_original_places),
        cmocka_unit_test(test_evaluation__integers_equal_the_simulation),
        cmocka_unit_test(test_datasets__are_what_the_format_says),
        cmocka_unit_test(test_pruned_model__stays_pruned),
        cmocka_unit_test(test_zeros_without_a_mask__stay),
        cmocka_unit_test(test_targets__the_rest_stays_float),
        cmocka_unit_test(test_bits__all_widths_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
