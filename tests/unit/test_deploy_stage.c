/* deploy-bench on the CPU: every different matrix once, in every form; what it stands for, bytes,
 * and the figures of the report. */
#include "encode_fixture.h"

#include "kernels/bench/spmm_cpu.h"
#include "stages/deploy_bench/deploy_run.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Equal but for rounding; cmocka compares floats only. */
static void expect_close(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-12 * fabs(expected))) {
        fail_msg("%.17g, expected %.17g", found, expected);
    }
}

extern const struct espl_stage espl_stage_deploy_bench;

static const int64_t tokens[] = {1, 3};
static const int forms[] = {0, 1, 4}; /* dense, 1x1, 2x2 */
static const int baselines[] = {ESPL_DEPLOY_AUTO};

static struct espl_deploy_params usual_params(void)
{
    return (struct espl_deploy_params){.tokens = {2, tokens},
                                       .forms = {3, forms},
                                       .baselines = {1, baselines},
                                       .repeats = 3,
                                       .threads = 1};
}

/* The description of what was published as `key`. */
static json_t *description_of(struct prune_fixture *fixture, char key,
                              struct espl_artifact **artifact)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    prune_path(fixture, key, path);
    assert_int_equal(espl_artifact_open(path, artifact, &err), ESPL_OK);
    return json_loads(espl_artifact_description(*artifact), 0, NULL);
}

static uint64_t sum_of(struct espl_artifact *artifact, const char *path, size_t count)
{
    struct espl_error err;
    uint64_t *values = calloc(count, sizeof *values);
    uint64_t sum = 0;
    assert_non_null(values);
    assert_int_equal(
        espl_artifact_read_rows(artifact, path, 0, count, values, count * sizeof *values, &err),
        ESPL_OK);
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    free(values);
    return sum;
}

static size_t count_series(const json_t *layers, const char *series)
{
    size_t count = 0;
    size_t index;
    const json_t *item;
    json_array_foreach(layers, index, item)
    {
        count += strcmp(json_string_value(json_object_get(item, "series")), series) == 0 ? 1 : 0;
    }
    return count;
}

/* LLaMA of two blocks, 96 wide, 3 heads and one key/value head of 32, ffn 148: q and o are 96 x 88
 * codes, k and v 32 x 88, gate and up 148 x 88, down 96 x 140; all in one stored form. */
static void test_stage__measures_every_matrix_once(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params atom = quant_atom_params();
    const struct espl_deploy_params params = usual_params();
    encode_open(&fixture, &config, &atom);
    encode_model(&fixture, "2x2", 0, 'f', NULL);
    assert_int_equal(
        prune_run(&fixture, &espl_stage_deploy_bench, &params, 'd', 'f', 0, NULL, &result, &err),
        ESPL_OK);
    expect_close(prune_metric(&result, "matrices"), 4.0);
    json_t *description = description_of(&fixture, 'd', &artifact);
    const json_t *cases = json_object_get(description, "cases");
    assert_int_equal(json_array_size(cases), 8);
    assert_string_equal(json_string_value(json_object_get(json_array_get(cases, 0), "stored_as")),
                        "2x2");
    /* every linear of both blocks, for both numbers of tokens */
    assert_int_equal(sum_of(artifact, "/cases/modules", 8), 2 * 14);
    assert_int_equal(sum_of(artifact, "/cases/rows", 8), 2 * (96 + 32 + 148 + 96));
    assert_int_equal(sum_of(artifact, "/cases/cols", 8), 2 * (3 * 88 + 140));
    const json_t *subjects = json_object_get(description, "subjects");
    static const char *const expected[] = {"dense", "1x1", "2x2", ESPL_SPMM_SGEMM};
    assert_int_equal(json_array_size(subjects), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(json_string_value(json_array_get(subjects, i)), expected[i]);
    }
    assert_int_equal(count_series(result.layers, "speedup_over_sgemm-f32"), 8);
    assert_int_equal(count_series(result.layers, "speedup_over_dense"), 8);
    assert_int_equal(count_series(result.layers, "roofline_rate"), 8 * 4);
    json_decref(description);
    espl_artifact_close(artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_stage__quantised_model_without_baselines(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_error err;
    static const int none[] = {ESPL_DEPLOY_NONE};
    const struct espl_model_config config = encode_opt_config();
    const struct espl_atom_params atom = quant_atom_params();
    struct espl_deploy_params params = usual_params();
    struct espl_artifact *artifact = NULL;
    params.baselines.items = none;
    encode_open(&fixture, &config, &atom);
    assert_int_equal(
        prune_run(&fixture, &espl_stage_deploy_bench, &params, 'd', 'e', 0, NULL, &result, &err),
        ESPL_OK);
    json_t *description = description_of(&fixture, 'd', &artifact);
    assert_string_equal(json_string_value(json_object_get(
                            json_array_get(json_object_get(description, "cases"), 0), "stored_as")),
                        "dense");
    assert_int_equal(json_array_size(json_object_get(description, "subjects")), 3);
    assert_int_equal(count_series(result.layers, "speedup_over_sgemm-f32"), 0);
    json_decref(description);
    espl_artifact_close(artifact);
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

static void test_stage__stops_when_asked(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const volatile int stopped = 1;
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params atom = quant_atom_params();
    const struct espl_deploy_params params = usual_params();
    encode_open(&fixture, &config, &atom);
    assert_int_equal(
        prune_run(&fixture, &espl_stage_deploy_bench, &params, 'd', 'e', 0, &stopped, NULL, &err),
        ESPL_E_CANCELLED);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stage__measures_every_matrix_once),
        cmocka_unit_test(test_stage__quantised_model_without_baselines),
        cmocka_unit_test(test_stage__stops_when_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
