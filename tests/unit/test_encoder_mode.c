/* deploy-bench, mode encoder, as far as it needs no device: its plan, the kernels that it takes
 * from a latency table, its artifact. */
#include "plan_fixture.h"
#include "search_stage_fixture.h"
#include "support/test_folder.h"

#include "core/fs.h"
#include "stages/deploy_bench/encoder_levels.h"
#include "stages/deploy_bench/encoder_mode.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const struct espl_stage espl_stage_deploy_bench;
extern const struct espl_stage espl_stage_magnitude_prune;
extern const struct espl_stage espl_stage_nm_pack;

static const struct espl_stage *const registry[] = {
    &espl_stage_magnitude_prune, &espl_stage_nm_pack, &espl_stage_deploy_bench, NULL};

#define PACKED                                                                         \
    "  - {id: prune, use: magnitude-prune, in: M, with: {pattern: \"2:8\"}}\n" /* 4 */ \
    "  - {id: pack, use: nm-pack, in: prune}\n"

static void test_plan__passes(void **state)
{
    (void)state;
    struct planned planned;
    const struct espl_model_config config = search_vit_config();
    plan_stages(&planned, registry, &config, 11, 16,
                PACKED
                "  - {id: bench, use: deploy-bench, in: {model: pack}, with: {mode: encoder, "
                "batches: [1, 16]}}\n");
    plan_expect_clean(&planned);
    const struct espl_estimate *estimate = &planned.plan->stages[2].estimate;
    assert_string_equal(estimate->note, "4 runtimes at 2 batches, on cuda:0");
    assert_true(estimate->device_bytes > 0 && estimate->device_only);
    plan_free(&planned);
}

static void refuse(const char *stages, unsigned line, const char *message, const char *hint)
{
    const struct espl_model_config config = search_vit_config();
    plan_expect_refusal(registry, &config, 11, 16, stages, line, message, hint);
}

static void test_plan__refusals(void **state)
{
    (void)state;
    refuse(PACKED "  - id: bench\n"
                  "    use: deploy-bench\n"
                  "    in: {model: pack}\n"
                  "    with: {mode: encoder, batches: [8, 1, 8]}\n",
           9, "'batches' names 8 twice", "once");
    refuse(PACKED "  - id: bench\n"
                  "    use: deploy-bench\n"
                  "    in: {model: pack}\n"
                  "    with: {mode: encoder, runtimes: [packed, dense-int8, packed]}\n",
           9, "'runtimes' names 'packed' twice", "once");
    refuse(PACKED "  - id: bench\n"
                  "    use: deploy-bench\n"
                  "    in: {model: pack}\n"
                  "    with: {mode: encoder}\n"
                  "device: cuda:1\n",
           7, "deploy-bench measures cuda:0, not 'cuda:1'", "CUDA_VISIBLE_DEVICES=1");
    refuse(PACKED "  - id: bench\n"
                  "    use: deploy-bench\n"
                  "    in: {model: pack}\n"
                  "    with: {mode: encoder, runtimes: []}\n",
           9, "'runtimes' must name at least one", "leave the parameter out");
    refuse(PACKED "  - id: bench\n"
                  "    use: deploy-bench\n"
                  "    in: {model: pack}\n"
                  "    with: {mode: encoder, batches: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, "
                  "14, 15, 16, 17]}\n",
           9, "'batches' names 17, more than 16", "second stage");
    refuse(PACKED "  - id: bench\n"
                  "    use: deploy-bench\n"
                  "    in: {model: pack}\n"
                  "    with: {mode: encoder}\n"
                  "device: cpu\n",
           9, "mode 'encoder' measures a CUDA device, but the job names the CPU", "cuda:0");
    refuse(PACKED "  - id: bench\n"
                  "    use: deploy-bench\n"
                  "    in: {model: pack}\n",
           8, "mode 'kernel' does not measure models that nm-pack made", "bench nm");
    const struct espl_model_config llama = prune_llama_config();
    plan_expect_refusal(registry, &llama, 11, 16,
                        PACKED "  - id: bench\n"
                               "    use: deploy-bench\n"
                               "    in: {model: pack}\n"
                               "    with: {mode: encoder}\n",
                        8, "mode 'encoder' takes an image model that nm-pack made", "mode: kernel");
}

/* ---- kernels of a table ---- */

/* A latency/1 artifact with the table of the fixture, in which 2:8 of the first shape costs more
 * than 3:8. */
static struct espl_artifact *make_latency(struct prune_fixture *fixture)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    struct espl_artifact *artifact = NULL;
    search_write_table(fixture, 0, false, "md-spmm", path);
    json_t *json = json_load_file(path, 0, NULL);
    json_t *raw = json_object_get(json_object_get(json, "latency"), "raw");
    json_t *cell = json_array_get(json_array_get(raw, 0), 1);
    assert_int_equal(json_array_set_new(cell, 0, json_real(1.0)), 0);
    char *text = json_dumps(json, JSON_COMPACT);
    assert_non_null(text);
    const char *file = below("latency.h5");
    assert_int_equal(espl_artifact_create(file, "latency/1", &artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_description(artifact, text, &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    assert_int_equal(espl_artifact_open(file, &artifact, &err), ESPL_OK);
    free(text);
    json_decref(json);
    return artifact;
}

static void test_levels__of_a_table(void **state)
{
    static const enum espl_role roles[] = {ESPL_ROLE_QKV, ESPL_ROLE_O, ESPL_ROLE_FC1,
                                           ESPL_ROLE_FC2};
    (void)state;
    struct prune_fixture fixture;
    struct espl_artifact *model_file = NULL;
    struct espl_model *model = NULL;
    struct espl_encoder_levels levels;
    struct espl_error err;
    search_fixture_open_stage(&fixture);
    prune_open(&fixture, 'a', &model_file, &model);
    struct espl_artifact *latency = make_latency(&fixture);
    assert_int_equal(espl_encoder_levels_open(latency, model, &levels, &err), ESPL_OK);
    const struct espl_nm_layout two = {.rows = 24, .cols = 24, .n = 2, .m = 8, .v = 1};
    const struct espl_nm_layout other = {.rows = 24, .cols = 24, .n = 2, .m = 4, .v = 1};
    assert_int_equal(espl_encoder_level(&levels, 0, ESPL_ROLE_QKV, &other), 0);
    assert_int_equal(levels.asked, 0);
    double expected = levels.record.latency.predictor.intercept;
    for (size_t i = 0; i < levels.record.layer_count; i++) {
        assert_true(espl_encoder_predicted(&levels) == 0.0);
        const unsigned level = espl_encoder_level(&levels, i / 4, roles[i % 4], &two);
        assert_int_equal(level, levels.record.shape_of[i] == 0 ? 3 : 2);
        expected += levels.record.latency.predictor.gamma[i] *
                    espl_latency_cost(&levels.record.latency.table, levels.record.shape_of[i], 2);
    }
    assert_true(fabs(espl_encoder_predicted(&levels) / expected - 1.0) < 1e-12);
    assert_false(levels.narrow);
    levels.record.vector = 16;
    (void)espl_encoder_level(&levels, 0, ESPL_ROLE_QKV, &two);
    assert_true(levels.narrow);
    espl_encoder_levels_close(&levels);
    espl_artifact_close(latency);
    espl_model_close(model);
    espl_artifact_close(model_file);
    prune_fixture_close(&fixture);
}

/* ---- artifact ---- */

static void test_artifact__holds_the_columns(void **state)
{
    (void)state;
    static struct espl_encoder_record record; /* zeros */
    const char *path = below("encoder.h5");
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    (void)snprintf(record.device, sizeof record.device, "a device");
    record.passes[0] = (struct espl_encoder_pass){.batch = 8,
                                                  .runtime = ESPL_ENCODER_PACKED,
                                                  .time = {2e-3, 3e-3},
                                                  .parts = {1e-3, 2e-4, 3e-4, 4e-4},
                                                  .weight_bytes = 77,
                                                  .predicted = 2.1e-3};
    record.passes[1] = (struct espl_encoder_pass){
        .batch = 8, .runtime = ESPL_ENCODER_DENSE_FP16, .time = {5e-3, 6e-3}};
    record.count = 2;
    record.accuracy = (struct espl_encoder_accuracy){
        .images = 10, .labelled = true, .top1 = 90.0, .top1_cpu = 80.0, .agreeing = 90.0};
    assert_ptr_equal(espl_encoder_find(&record, 8, ESPL_ENCODER_DENSE_FP16), &record.passes[1]);
    assert_null(espl_encoder_find(&record, 8, ESPL_ENCODER_DENSE_INT8));
    assert_int_equal(espl_artifact_create(path, "bench.spmm/1|bench.encoder/1", &artifact, &err),
                     ESPL_OK);
    assert_int_equal(espl_encoder_record_write(&record, artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    assert_string_equal(espl_artifact_kind(artifact), "bench.encoder/1");
    uint64_t which[2][2];
    double seconds[2][2];
    double parts[2][ESPL_ENCODER_PARTS];
    double predicted[2];
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/passes/which", 0, 2, which, sizeof which, &err),
        ESPL_OK);
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/passes/seconds", 0, 2, seconds, sizeof seconds, &err),
        ESPL_OK);
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/passes/part_seconds", 0, 2, parts, sizeof parts, &err),
        ESPL_OK);
    assert_int_equal(espl_artifact_read_rows(artifact, "/passes/predicted_seconds", 0, 2, predicted,
                                             sizeof predicted, &err),
                     ESPL_OK);
    assert_int_equal(which[1][0], 8);
    assert_int_equal(which[1][1], 2);
    assert_true(seconds[0][0] == 2e-3 && seconds[1][1] == 6e-3);
    assert_true(parts[0][3] == 4e-4);
    assert_true(predicted[0] == 2.1e-3 && isnan(predicted[1]));
    json_t *description = json_loads(espl_artifact_description(artifact), 0, NULL);
    const json_t *accuracy = json_object_get(description, "accuracy");
    assert_string_equal(json_string_value(json_object_get(description, "schema")),
                        "espalier.bench-encoder/1");
    assert_true(json_real_value(json_object_get(accuracy, "top1_cpu")) == 80.0);
    json_decref(description);
    espl_artifact_close(artifact);
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plan__passes),
        cmocka_unit_test(test_plan__refusals),
        cmocka_unit_test(test_levels__of_a_table),
        cmocka_unit_test(test_artifact__holds_the_columns),
    };
    return cmocka_run_group_tests(tests, test_folder_set_up, test_folder_tear_down);
}
