/* Names and units of what deploy-bench says of whole passes, from records made by hand: metrics
 * that jobs put thresholds on, and the points that the report draws. And the energy of outputs that
 * a runtime made of nothing gives. */
#include "support/cmocka_all.h"

#include "core/fs.h"
#include "energy_fixture.h"
#include "eval/energy/meter.h"
#include "search_stage_fixture.h"
#include "stages/deploy_bench/decode_run.h"
#include "stages/deploy_bench/encoder_mode.h"
#include "support/temp_folder.h"

#include <math.h>
#include <string.h>
#include <time.h>

static const struct espl_decode_record *decode_record;
static const struct espl_encoder_record *encoder_record;

static enum espl_status say_decode(struct espl_stage_ctx *ctx, const void *params,
                                   struct espl_error *err)
{
    (void)params;
    return espl_decode_record_report(decode_record, ctx, err);
}

static enum espl_status say_encoder(struct espl_stage_ctx *ctx, const void *params,
                                    struct espl_error *err)
{
    (void)params;
    return espl_encoder_report(ctx, encoder_record, err);
}

static const struct espl_port no_ports[] = {{NULL, NULL, 0, NULL}};
static const struct espl_stage decode_stage = {
    .name = "say-decode", .inputs = no_ports, .outputs = no_ports, .run = say_decode};
static const struct espl_stage encoder_stage = {
    .name = "say-encoder", .inputs = no_ports, .outputs = no_ports, .run = say_encoder};

/* A decoder that counts what it is asked for. */
struct counted {
    size_t prompts, steps;
};

static enum espl_status count_prompt(void *self, const int32_t *ids, struct espl_error *err)
{
    const struct timespec pause = {0, 1000000};
    (void)err;
    assert_int_equal(ids[0], 7);
    ((struct counted *)self)->prompts++;
    (void)nanosleep(&pause, NULL);
    return ESPL_OK;
}

static enum espl_status count_steps(void *self, size_t count, double *seconds,
                                    struct espl_error *err)
{
    (void)err;
    assert_null(seconds);
    ((struct counted *)self)->steps += count;
    return ESPL_OK;
}

static struct espl_energy_meter *energy_meter;

/* On a board that takes 5 W whatever it does. On a busy machine readings may come too late: three
 * tries. */
static enum espl_status measure_energy(struct espl_stage_ctx *ctx, const void *params,
                                       struct espl_error *err)
{
    const struct espl_deploy_params asked = {.energy_seconds = 2.0, .energy_idle_seconds = 0.5};
    const int32_t ids[] = {7, 1, 1, 1, 1, 1};
    struct espl_decode_bench bench = {.ctx = ctx, .params = &asked, .meter = energy_meter};
    struct espl_decode_cell cell = {.output = 0};
    const struct espl_decode_energy *energy = &cell.energy;
    struct counted counted = {0};
    const struct espl_decode_runner runner = {&counted, count_prompt, count_steps, NULL};
    enum espl_status status = ESPL_OK;
    (void)params;
    for (int i = 0; status == ESPL_OK && i < 3 && !(energy->measured && energy->idle_watts > 0.0);
         i++) {
        cell = (struct espl_decode_cell){.sequences = 3, .prompt = 2, .output = 5};
        counted = (struct counted){0};
        status = espl_decode_measure_energy(&bench, &runner, ids, &cell, err);
    }
    if (status == ESPL_OK) {
        assert_true(energy->measured && counted.prompts > 0);
        assert_int_equal(counted.steps, 4 * counted.prompts);
        assert_true(energy->sequences == 3.0 * (double)counted.prompts);
        assert_true(energy->tokens == 5.0 * energy->sequences);
        assert_true(energy->seconds >= 2.0);
        assert_true(fabs(energy->watts - 5.0) < 1e-6 && fabs(energy->idle_watts - 5.0) < 1e-6);
        assert_true(fabs(energy->gross_j - 5.0 * energy->seconds) < 1e-6);
        assert_true(isnan(energy->net_j)); /* less than the sensor's steps carry, which is said */
        assert_non_null(strstr(energy->why, "not resolvable"));
        assert_true(isnan(energy->other_ratio)); /* there is one total */
    }
    return status;
}

static const struct espl_stage energy_stage = {
    .name = "measure-energy", .inputs = no_ports, .outputs = no_ports, .run = measure_energy};

static void run_stage(const struct espl_stage *stage, struct search_result *result)
{
    struct prune_fixture fixture;
    const struct search_run run = {.stage = stage, .key_digit = 'c'};
    search_fixture_open_stage(&fixture);
    search_run_stage(&fixture, &run, result);
    if (result->status != ESPL_OK) {
        fail_msg("%s", result->err.message);
    }
    prune_fixture_close(&fixture);
}

static void expect_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected))) {
        fail_msg("%.17g, expected %.17g", found, expected);
    }
}

static void expect_point(const struct search_result *result, const char *series, int layer,
                         const char *module, double expected)
{
    size_t index;
    const json_t *point;
    json_array_foreach(result->layers, index, point)
    {
        if (strcmp(json_string_value(json_object_get(point, "series")), series) == 0 &&
            json_integer_value(json_object_get(point, "layer")) == layer &&
            strcmp(json_string_value(json_object_get(point, "module")), module) == 0) {
            expect_near(json_number_value(json_object_get(point, "value")), expected);
            return;
        }
    }
    fail_msg("no point '%s' of %d '%s'", series, layer, module);
}

static void test_decode__names_and_units(void **state)
{
    struct espl_decode_cell cells[] = {{.runtime = ESPL_DEVICE_ENCODED, .sequences = 8},
                                       {.runtime = ESPL_DEVICE_DENSE_FP16, .sequences = 8}};
    const struct espl_decode_record record = {.cells = cells, .count = 2, .repeats = 3};
    struct search_result result;
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        cells[i].measured = true;
        cells[i].prompt = 64;
        cells[i].output = 128;
        cells[i].step_median = 0.002;
        cells[i].step_p95 = 0.003;
        cells[i].first_token_seconds = 0.05;
        cells[i].tokens_per_second = i == 0 ? 600.0 : 200.0;
        cells[i].times = (struct espl_device_step_times){.step = 2e-3,
                                                         .products = 1e-3,
                                                         .attention = 5e-4,
                                                         .norms = 3e-4,
                                                         .head = 1.5e-4,
                                                         .gaps = 5e-5};
        cells[i].device_bytes = 7000;
        cells[i].planned_bytes = 6000;
    }
    cells[0].energy = (struct espl_decode_energy){.measured = true,
                                                  .watts = 300.0,
                                                  .tokens = 100.0,
                                                  .gross_j = 250.0,
                                                  .net_j = 200.0,
                                                  .deviation_j = 10.0,
                                                  .other_ratio = (double)NAN};
    cells[1].energy = cells[0].energy;
    cells[1].energy.gross_j = 1000.0;
    decode_record = &record;
    run_stage(&decode_stage, &result);
    expect_near(search_metric(&result, "decode_tokens_per_second_b8_p64_o128"), 600.0);
    expect_near(search_metric(&result, "decode_speedup_over_dense_fp16_b8_p64_o128"), 3.0);
    expect_near(search_metric(&result, "decode_energy_over_dense_fp16_b8_p64_o128"), 0.25);
    expect_point(&result, "decode_j_per_token", 8, "dense-fp16 64/128", 10.0);
    expect_near(search_metric(&result, "decode_ms_per_token_b8_p64_o128"), 2.0);
    expect_near(search_metric(&result, "decode_j_per_token_b8_p64_o128"), 2.5);
    expect_near(search_metric(&result, "decode_j_per_token_net_b8_p64_o128"), 2.0);
    expect_point(&result, "decode_ms_per_token_p95", 8, "dense-fp16 64/128", 3.0);
    expect_point(&result, "decode_ms_first_token", 8, "encoded 64/128", 50.0);
    expect_point(&result, "decode_us_products", 8, "encoded 64/128", 1000.0);
    expect_point(&result, "decode_us_attention", 8, "encoded 64/128", 500.0);
    expect_point(&result, "decode_us_norms", 8, "encoded 64/128", 300.0);
    expect_point(&result, "decode_us_head", 8, "encoded 64/128", 150.0);
    expect_point(&result, "decode_us_gaps", 8, "encoded 64/128", 50.0);
    expect_point(&result, "decode_device_bytes", 8, "encoded 64/128", 7000.0);
    expect_point(&result, "decode_planned_bytes", 8, "encoded 64/128", 6000.0);
    expect_point(&result, "decode_j_per_token_deviation", 8, "encoded 64/128", 0.1);
    expect_point(&result, "decode_watts", 8, "encoded 64/128", 300.0);
    assert_null(json_object_get(result.metrics, "decode_tokens_per_second_b8_p64_o128"));
    search_result_free(&result);
}

static void test_encoder__names_and_units(void **state)
{
    static struct espl_encoder_record record;
    struct search_result result;
    (void)state;
    record.count = 2;
    record.passes[0] = (struct espl_encoder_pass){.batch = 32,
                                                  .runtime = ESPL_ENCODER_PACKED,
                                                  .time = {.median = 0.004, .p95 = 0.005},
                                                  .parts = {2e-3, 1e-3, 5e-4, 2.5e-4},
                                                  .device_bytes = 9000,
                                                  .predicted = 0.005};
    record.passes[1] = record.passes[0];
    record.passes[1].runtime = ESPL_ENCODER_DENSE_INT8;
    record.passes[1].time.median = 0.01;
    encoder_record = &record;
    run_stage(&encoder_stage, &result);
    expect_near(search_metric(&result, "seconds_packed_b32"), 0.004);
    expect_near(search_metric(&result, "speedup_over_dense_int8_b32"), 2.5);
    expect_point(&result, "encoder_images_per_second", 32, "packed", 8000.0);
    expect_point(&result, "encoder_ms_per_batch", 32, "dense-int8", 10.0);
    expect_point(&result, "encoder_ms_per_batch_p95", 32, "packed", 5.0);
    expect_point(&result, "encoder_us_products", 32, "packed", 2000.0);
    expect_point(&result, "encoder_us_attention", 32, "packed", 1000.0);
    expect_point(&result, "encoder_us_norms", 32, "packed", 500.0);
    expect_point(&result, "encoder_us_rest", 32, "packed", 250.0);
    expect_point(&result, "encoder_speedup_over_dense-int8", 32, "packed", 2.5);
    search_result_free(&result);
}

static enum espl_status count_measured(struct espl_decode_bench *bench, void *self,
                                       struct espl_decode_cell *cell, struct espl_error *err)
{
    size_t *calls = self;
    (void)bench;
    (void)err;
    assert_int_equal(cell->sequences, *calls % 4 < 2 ? 1 : 3);
    assert_int_equal(cell->prompt, 4);
    assert_int_equal(cell->output, *calls % 2 == 0 ? 2 : 6);
    assert_true(!cell->measured && cell->energy.sequences == 0.0);
    cell->measured = true;
    cell->energy.sequences += 1.0;
    (*calls)++;
    return ESPL_OK;
}

/* The cells of a runtime that was left out are those of the next. */
static enum espl_status measure_twice(struct espl_stage_ctx *ctx, const void *params,
                                      struct espl_error *err)
{
    static const int64_t sequences[] = {1, 3};
    static const int64_t prompts[] = {4};
    static const int64_t outputs[] = {2, 6};
    const struct espl_deploy_params asked = {
        .sequences = {2, sequences}, .prompt_tokens = {1, prompts}, .output_tokens = {2, outputs}};
    struct espl_decode_cell cells[4];
    struct espl_decode_bench bench = {
        .ctx = ctx, .params = &asked, .record = {.cells = cells}, .cells = 4};
    size_t calls = 0;
    enum espl_status status = ESPL_OK;
    (void)params;
    memset(cells, 0, sizeof cells);
    for (int runtime = ESPL_DEVICE_DENSE_INT8; status == ESPL_OK && runtime < ESPL_DEVICE_FORMS;
         runtime++) {
        bench.record.count = 0;
        status = espl_decode_measure_grid(&bench, (enum espl_device_form)runtime, count_measured,
                                          &calls, err);
        assert_int_equal(bench.record.count, 4);
        assert_int_equal(cells[3].runtime, runtime);
    }
    assert_int_equal(calls, 8);
    return status;
}

static const struct espl_stage grid_stage = {
    .name = "measure-twice", .inputs = no_ports, .outputs = no_ports, .run = measure_twice};

static void test_decode__cells_are_used_again(void **state)
{
    struct search_result result;
    (void)state;
    run_stage(&grid_stage, &result);
    search_result_free(&result);
}

static void test_decode__energy_of_outputs(void **state)
{
    struct search_result result;
    char root[ESPL_PATH_MAX];
    (void)state;
    temp_folder_make(root);
    energy_put_orin_nx(root, 3);
    energy_meter = energy_open(root, "ina3221");
    run_stage(&energy_stage, &result);
    search_result_free(&result);
    espl_energy_close(energy_meter);
    temp_folder_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode__names_and_units),
        cmocka_unit_test(test_encoder__names_and_units),
        cmocka_unit_test(test_decode__cells_are_used_again),
        cmocka_unit_test(test_decode__energy_of_outputs),
    };
    espl_artifact_library_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
