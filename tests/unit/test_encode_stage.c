/* iebme-encode on small models: the encoded model is the quantised one, the bytes are those in the
 * file, auto takes the fewest, orders are used and undone, resume, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "encode_fixture.h"

#include "model/iebme_linear.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TOKENS = 16 };

/* ---- the encoded model is the quantised one ---- */

static void check_same_tensors(struct prune_fixture *fixture, char encoded, char quantised)
{
    struct espl_artifact *artifacts[2] = {NULL, NULL};
    struct espl_model *models[2] = {NULL, NULL};
    struct espl_error err;
    const char keys[2] = {encoded, quantised};
    for (size_t m = 0; m < 2; m++) {
        prune_open(fixture, keys[m], &artifacts[m], &models[m]);
    }
    assert_true(espl_model_is_encoded(models[0]) && !espl_model_is_encoded(models[1]));
    for (size_t i = 0; i < espl_model_tensor_count(models[0]); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(models[0], i);
        const size_t bytes =
            (size_t)spec->shape[0] * (size_t)(spec->rank == 2 ? spec->shape[1] : 1) * sizeof(float);
        float *values[2];
        for (size_t m = 0; m < 2; m++) {
            values[m] = malloc(bytes);
            assert_non_null(values[m]);
            assert_int_equal(espl_model_read_f32(models[m], espl_model_tensor(models[m], i), 0,
                                                 spec->shape[0], values[m], &err),
                             ESPL_OK);
        }
        assert_memory_equal(values[0], values[1], bytes);
        assert_int_equal(espl_model_is_quantised(models[0], spec),
                         espl_model_is_quantised(models[1], espl_model_tensor(models[1], i)));
        assert_int_equal(espl_model_dtype(models[0], spec),
                         espl_model_dtype(models[1], espl_model_tensor(models[1], i)));
        free(values[0]);
        free(values[1]);
    }
    for (size_t m = 0; m < 2; m++) {
        espl_model_close(models[m]);
        espl_artifact_close(artifacts[m]);
    }
}

static void check_same_logits(struct prune_fixture *fixture, char encoded, char quantised)
{
    size_t count = 0;
    float *a = quant_logits(fixture, quantised, 2, TOKENS, NULL, NULL, &count);
    float *b = quant_logits(fixture, encoded, 2, TOKENS, NULL, NULL, &count);
    assert_memory_equal(a, b, count * sizeof *a);
    free(a);
    free(b);
}

static struct espl_model_config qwen_config(void)
{
    struct espl_model_config config = encode_llama_config();
    memcpy(config.architecture, "qwen2", sizeof "qwen2");
    config.attention_bias = true;
    return config;
}

static void test_model__is_the_quantised_one(void **state)
{
    (void)state;
    const struct espl_model_config configs[] = {encode_llama_config(), encode_opt_config(),
                                                qwen_config()};
    static const struct {
        const char *areas;
        char order; /* of the orders made below */
        char key;
    } encodings[] = {{"auto", 0, '0'},
                     {"2x2", 'c', '1'},
                     {"2x2", 'd', '2'},
                     {"dense", 0, '3'},
                     {"auto", 'd', '4'}};
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        struct prune_fixture fixture;
        const struct espl_atom_params params = quant_atom_params();
        encode_open(&fixture, &configs[i], &params);
        encode_reorder(&fixture, 2, 2, ESPL_REORDER_STRIPE, 'c', NULL);
        encode_reorder(&fixture, 2, 2, ESPL_REORDER_TILE, 'd', NULL);
        for (size_t e = 0; e < sizeof encodings / sizeof encodings[0]; e++) {
            encode_model(&fixture, encodings[e].areas, encodings[e].order, encodings[e].key, NULL);
            check_same_tensors(&fixture, encodings[e].key, 'e');
            check_same_logits(&fixture, encodings[e].key, 'e');
        }
        prune_fixture_close(&fixture);
    }
}

static void test_model__other_bits_and_float_activations(void **state)
{
    (void)state;
    static const struct {
        int64_t weight_bits;
        int64_t activation_bits;
    } cases[] = {{2, 4}, {8, 8}, {4, 16}};
    const struct espl_model_config config = encode_opt_config();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct prune_fixture fixture;
        struct espl_atom_params params = quant_atom_params();
        params.weight_bits = cases[i].weight_bits;
        params.activation_bits = cases[i].activation_bits;
        params.max_perplexity_ratio = 0.0;
        encode_open(&fixture, &config, &params);
        encode_model(&fixture, "auto", 0, '0', NULL);
        check_same_tensors(&fixture, '0', 'e');
        check_same_logits(&fixture, '0', 'e');
        prune_fixture_close(&fixture);
    }
}

static void test_model__linears_left_in_float(void **state)
{
    (void)state;
    static const char *const some[] = {"layers.0.fc2", "layers.1.self_attn.*"};
    struct prune_fixture fixture;
    struct prune_result result;
    const struct espl_model_config config = encode_opt_config();
    struct espl_atom_params params = quant_atom_params();
    params.layers.ignore = (struct espl_list){2, some};
    encode_open(&fixture, &config, &params);
    encode_model(&fixture, "auto", 0, '0', &result);
    assert_true(prune_metric(&result, "linears") == 7.0);
    check_same_tensors(&fixture, '0', 'e');
    check_same_logits(&fixture, '0', 'e');
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_model__stands_alone(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    size_t count = 0;
    encode_open(&fixture, &config, &params);
    encode_model(&fixture, "auto", 0, '0', NULL);
    float *before = quant_logits(&fixture, 'e', 1, TOKENS, NULL, NULL, &count);
    for (const char *key = "ae"; *key != '\0'; key++) {
        char path[ESPL_PATH_MAX];
        prune_path(&fixture, *key, path);
        assert_int_equal(unlink(path), 0);
    }
    float *after = quant_logits(&fixture, '0', 1, TOKENS, NULL, NULL, &count);
    assert_memory_equal(before, after, count * sizeof *before);
    free(before);
    free(after);
    prune_fixture_close(&fixture);
}

/* ---- bytes ---- */

static bool ends_with(const char *text, const char *tail)
{
    const size_t len = strlen(text);
    return len >= strlen(tail) && strcmp(text + len - strlen(tail), tail) == 0;
}

/* Sum of the datasets in the file with one of these names; a list ends with NULL. */
static double stored_bytes(struct prune_fixture *fixture, char key, const char *const *names)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    uint64_t bytes = 0;
    prune_open(fixture, key, &artifact, &model);
    for (size_t i = 0; i < espl_artifact_tensor_count(artifact); i++) {
        const struct espl_tensor_info *info = espl_artifact_tensor(artifact, i);
        for (const char *const *name = names; *name != NULL; name++) {
            /* one area code for a whole matrix says what the layout of the format says */
            const bool uniform = strcmp(*name, "/areas") == 0 && info->rank == 1;
            bytes += ends_with(info->path, *name) && !uniform ? info->bytes : 0;
        }
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
    return (double)bytes;
}

/* Sum over all linears: their `ratio` times the bytes it divides by, which are `part` and `more`
 * (NULL = nothing). */
static double numerators(const struct prune_result *result, const char *ratio, const char *part,
                         const char *more)
{
    double sum = 0.0;
    size_t index;
    const json_t *row;
    json_array_foreach(result->layers, index, row)
    {
        const char *module = json_string_value(json_object_get(row, "module"));
        if (strcmp(json_string_value(json_object_get(row, "series")), ratio) == 0) {
            const double bytes = encode_layer(result, part, module) +
                                 (more != NULL ? encode_layer(result, more, module) : 0.0);
            sum += json_real_value(json_object_get(row, "value")) * bytes;
        }
    }
    return sum;
}

static void test_bytes__are_those_of_the_file(void **state)
{
    (void)state;
    static const char *const beside[] = {"/scales", "/outlier_codes", "/outlier_scales", NULL};
    static const char *const encoded[] = {"/masks",         "/offsets",        "/values",
                                          "/areas",         "/scales",         "/permutation",
                                          "/outlier_codes", "/outlier_scales", NULL};
    static const char *const metadata[] = {"/masks", "/offsets", "/areas", "/permutation", NULL};
    static const char *const areas[] = {"auto", "1x1", "2x1", "4x4", "dense"};
    struct prune_fixture fixture;
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    encode_open(&fixture, &config, &params);
    encode_reorder(&fixture, 2, 1, ESPL_REORDER_TILE, 'd', NULL);
    for (size_t i = 0; i < sizeof areas / sizeof areas[0]; i++) {
        struct prune_result result;
        const char key = (char)('0' + (int)i);
        encode_model(&fixture, areas[i], strcmp(areas[i], "2x1") == 0 ? 'd' : 0, key, &result);
        const double bytes = prune_metric(&result, "encoded_bytes");
        assert_true(bytes == stored_bytes(&fixture, key, encoded));
        assert_true(prune_metric(&result, "scale_bytes") == stored_bytes(&fixture, key, beside));
        assert_true(prune_metric(&result, "metadata_bytes") ==
                    stored_bytes(&fixture, key, metadata));
        assert_true(bytes == prune_metric(&result, "payload_bytes") +
                                 prune_metric(&result, "padding_bytes") +
                                 prune_metric(&result, "metadata_bytes") +
                                 prune_metric(&result, "scale_bytes"));
        assert_true(prune_metric(&result, "bits_per_weight") ==
                    8.0 * bytes / prune_metric(&result, "weights"));
        assert_true(encode_layer(&result, "bits_per_weight", "layers.1.self_attn.q_proj") ==
                    8.0 * encode_layer(&result, "encoded_bytes", "layers.1.self_attn.q_proj") /
                        (96.0 * 96.0));
        /* packed codes: q, o 96 x 44 bytes, k, v 32 x 44; gate, up 148 x 44, down 96 x 70 */
        assert_true(prune_metric(&result, "dense_bytes") - prune_metric(&result, "scale_bytes") ==
                    2.0 * (2 * 96 * 44 + 2 * 32 * 44 + 2 * 148 * 44 + 96 * 70));
        assert_true(prune_metric(&result, "csr32_bytes") > prune_metric(&result, "csr16_bytes"));
        assert_true(prune_metric(&result, "csr16_bytes") > bytes);
        assert_true(prune_metric(&result, "tiled_csl_bytes") > bytes);
        /* ten kinds of bytes, bits a weight, intensity, both PMR but where there is no metadata */
        const bool dense = strcmp(areas[i], "dense") == 0;
        assert_int_equal(json_array_size(result.layers), 2 * 7 * (dense ? 13 : 14));
        assert_int_equal(json_object_get(result.metrics, "pmr") == NULL, dense);
        if (!dense) {
            const double exact = 0.5 * prune_metric(&result, "nonzero_codes");
            assert_true(prune_metric(&result, "pmr") ==
                        exact / prune_metric(&result, "metadata_bytes"));
            assert_true(fabs(numerators(&result, "pmr", "metadata_bytes", NULL) - exact) <
                        1e-6 * exact);
            assert_true(
                fabs(numerators(&result, "pmr_effective", "metadata_bytes", "padding_bytes") -
                     exact) < 14.0); /* counts are whole bytes */
            assert_true(prune_metric(&result, "pmr_effective") < prune_metric(&result, "pmr") ||
                        prune_metric(&result, "padding_bytes") == 0.0);
        }
        prune_result_free(&result);
    }
    prune_fixture_close(&fixture);
}

static void test_auto__never_more_than_any_choice(void **state)
{
    (void)state;
    static const char *const fixed[] = {"1x1", "1x2", "1x4", "2x1",  "2x2",
                                        "2x4", "4x1", "4x4", "dense"};
    struct prune_fixture fixture;
    struct prune_result result;
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    encode_open(&fixture, &config, &params);
    encode_reorder(&fixture, 2, 2, ESPL_REORDER_TILE, 'd', NULL);
    encode_model(&fixture, "auto", 0, 'c', &result);
    const double automatic = prune_metric(&result, "encoded_bytes");
    /* random zeros, 60 %: single elements, as the closed forms say */
    assert_true(prune_metric(&result, "linears_reordered") == 0.0);
    assert_true(automatic <= prune_metric(&result, "dense_bytes"));
    prune_result_free(&result);
    encode_model(&fixture, "auto", 'd', 'f', &result);
    assert_true(prune_metric(&result, "encoded_bytes") <= automatic);
    prune_result_free(&result);
    encode_model(&fixture, "auto-matrix", 0, '9', &result);
    const double by_matrix = prune_metric(&result, "encoded_bytes");
    assert_true(by_matrix >= automatic);
    assert_null(json_object_get(result.metrics, "linears_mixed"));
    prune_result_free(&result);
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "linears_%s", fixed[i]);
        encode_model(&fixture, fixed[i], 0, (char)('0' + (int)i), &result);
        assert_true(prune_metric(&result, "encoded_bytes") >= by_matrix);
        assert_true(prune_metric(&result, name) == 14.0);
        prune_result_free(&result);
    }
    prune_fixture_close(&fixture);
}

static void test_order__saves_bytes_where_it_is_used(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result plain, ordered;
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    encode_open(&fixture, &config, &params);
    encode_reorder(&fixture, 2, 1, ESPL_REORDER_STRIPE, 'c', NULL);
    encode_model(&fixture, "2x1", 0, '0', &plain);
    encode_model(&fixture, "2x1", 'c', '1', &ordered);
    assert_true(prune_metric(&ordered, "linears_reordered") > 0.0);
    assert_true(prune_metric(&ordered, "encoded_bytes") < prune_metric(&plain, "encoded_bytes"));
    prune_result_free(&plain);
    prune_result_free(&ordered);
    prune_fixture_close(&fixture);
}

/* ---- refusals, resume, threads ---- */

static void test_order__of_another_model_is_refused(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const struct espl_model_config config = encode_llama_config();
    struct espl_atom_params params = quant_atom_params();
    encode_open(&fixture, &config, &params);
    encode_reorder(&fixture, 2, 2, ESPL_REORDER_STRIPE, 'c', NULL);
    params.method = ESPL_ATOM_RTN;
    quant_run(&fixture, &espl_stage_atom_quantize, &params, 'f', 'a', NULL);
    assert_int_equal(encode_try(&fixture, "2x2", 'f', 'c', '0', NULL, NULL, &err), ESPL_E_KIND);
    assert_non_null(strstr(err.message, "the row order was made for another model than"));
    assert_string_equal(err.blame, "input:order");
    prune_fixture_close(&fixture);
}

static void encode_auto(struct prune_fixture *fixture, struct prune_result *result)
{
    encode_model(fixture, "auto", 0, 'c', result);
}

static void test_resume__same_bytes(void **state)
{
    (void)state;
    const struct espl_model_config config = encode_opt_config();
    encode_check_resume(&config, encode_auto);
}

static void test_cancel__stops_between_tensors(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const volatile int stopped = 1;
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params params = quant_atom_params();
    encode_open(&fixture, &config, &params);
    assert_int_equal(encode_try(&fixture, "auto", 'e', 0, '0', &stopped, NULL, &err),
                     ESPL_E_CANCELLED);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model__is_the_quantised_one),
        cmocka_unit_test(test_model__other_bits_and_float_activations),
        cmocka_unit_test(test_model__linears_left_in_float),
        cmocka_unit_test(test_model__stands_alone),
        cmocka_unit_test(test_bytes__are_those_of_the_file),
        cmocka_unit_test(test_auto__never_more_than_any_choice),
        cmocka_unit_test(test_order__saves_bytes_where_it_is_used),
        cmocka_unit_test(test_order__of_another_model_is_refused),
        cmocka_unit_test(test_resume__same_bytes),
        cmocka_unit_test(test_cancel__stops_between_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
