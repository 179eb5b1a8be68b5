/* What a decode bench leaves, and the memory that a decoder is planned to take. */
#include "eval/energy/device_meter.h"
#include "stages/deploy_bench/decode_run.h"

#include "core/fs.h"
#include "energy_fixture.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static struct espl_decode_cell cell_of(enum espl_device_form runtime, size_t sequences, double rate)
{
    struct espl_decode_cell cell = {.runtime = runtime,
                                    .sequences = sequences,
                                    .prompt = 64,
                                    .output = 128,
                                    .measured = true,
                                    .areas = ESPL_IEBME_1X1,
                                    .first_token_seconds = 0.5,
                                    .step_median = 0.25,
                                    .step_p95 = 0.375,
                                    .tokens_per_second = rate,
                                    .weight_bytes = 11,
                                    .device_bytes = 22,
                                    .planned_bytes = 33};
    cell.times = (struct espl_device_step_times){8.0, 4.0, 1.0, 0.5, 0.25, 2.25};
    return cell;
}

static void test_record__finds_the_same_place(void **state)
{
    (void)state;
    struct espl_decode_cell cells[] = {
        cell_of(ESPL_DEVICE_ENCODED, 8, 10.0), cell_of(ESPL_DEVICE_DENSE_FP16, 4, 5.0),
        cell_of(ESPL_DEVICE_DENSE_FP16, 8, 4.0), cell_of(ESPL_DEVICE_DENSE_INT8, 8, 6.0)};
    const struct espl_decode_record record = {.cells = cells, .count = 4};
    cells[3].measured = false;
    assert_ptr_equal(espl_decode_record_find(&record, &cells[0], ESPL_DEVICE_DENSE_FP16),
                     &cells[2]);
    assert_null(espl_decode_record_find(&record, &cells[0], ESPL_DEVICE_DENSE_INT8));
    assert_null(espl_decode_record_find(&record, &cells[1], ESPL_DEVICE_ENCODED));
}

static void test_record__written_and_read(void **state)
{
    (void)state;
    char folder[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    struct espl_artifact *artifact = NULL;
    struct espl_decode_cell cells[] = {cell_of(ESPL_DEVICE_ENCODED, 8, 10.0),
                                       cell_of(ESPL_DEVICE_DENSE_FP16, 8, 4.0)};
    cells[0].energy = (struct espl_decode_energy){.measured = true,
                                                  .seconds = 12.0,
                                                  .watts = 300.0,
                                                  .tokens = 100.0,
                                                  .gross_j = 3600.0,
                                                  .net_j = 3000.0};
    const struct espl_decode_record record = {
        .device = "a GPU", .meter = "nvml", .boundary = "GPU", .cells = cells, .count = 2};
    temp_folder_make(folder);
    (void)snprintf(path, sizeof path, "%.*s/bench.h5", (int)sizeof path - 16, folder);
    assert_int_equal(espl_artifact_create(path, "bench.decode/1", &artifact, &err), ESPL_OK);
    assert_int_equal(espl_decode_record_write(&record, artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    assert_non_null(strstr(espl_artifact_description(artifact), "\"meter\":\"nvml\""));
    uint64_t numbers[2][8];
    double seconds[2][9];
    double energy[2][8];
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/cells/numbers", 0, 2, numbers, sizeof numbers, &err),
        ESPL_OK);
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/cells/seconds", 0, 2, seconds, sizeof seconds, &err),
        ESPL_OK);
    assert_int_equal(
        espl_artifact_read_rows(artifact, "/cells/energy", 0, 2, energy, sizeof energy, &err),
        ESPL_OK);
    const uint64_t wanted[8] = {ESPL_DEVICE_DENSE_FP16, 8, 64, 128, ESPL_IEBME_1X1, 11, 22, 33};
    assert_memory_equal(numbers[1], wanted, sizeof wanted);
    assert_true(seconds[0][0] == 0.5 && seconds[0][2] == 0.375 && seconds[0][8] == 2.25);
    assert_true(energy[0][1] == 300.0 && energy[0][6] == 3000.0 && isnan(energy[1][0]));
    espl_artifact_close(artifact);
    temp_folder_remove(folder);
}

/* OPT-13B: 40 blocks of 12 * 5120^2 weights; vocabulary 50272, 2048 positions. */
static void test_bytes__of_a_large_model(void **state)
{
    (void)state;
    const struct espl_model_config config = {.architecture = "opt",
                                             .layers = 40,
                                             .hidden = 5120,
                                             .heads = 40,
                                             .kv_heads = 40,
                                             .head_dim = 128,
                                             .ffn = 20480,
                                             .vocab = 50272,
                                             .max_positions = 2048,
                                             .embed_dim = 5120,
                                             .activation = ESPL_ACT_RELU,
                                             .tied_embeddings = true};
    const struct espl_quant_scheme scheme = {.weight_bits = 4,
                                             .activation_bits = 4,
                                             .kv_bits = 4,
                                             .rows_per_scale = 2,
                                             .widths = {{5120, 128, 128}, {20480, 128, 128}},
                                             .width_count = 2};
    const struct espl_device_decoder_options options = {8, 64, 192, true};
    struct espl_device_weights_options weights = {.form = ESPL_DEVICE_DENSE_FP16};
    const double count = 40.0 * 12.0 * 5120.0 * 5120.0;
    struct espl_device_bytes bytes;
    espl_device_plan_bytes(&config, &scheme, &weights, 0.0, &options, &bytes);
    assert_true(fabs((double)bytes.weights / (2.0 * count) - 1.0) < 0.01);
    assert_true(fabs((double)bytes.outside / (2.0 * 5120.0 * (50272.0 + 2048.0)) - 1.0) < 0.01);
    /* FP16: 40 blocks, keys and values, 8 sequences of 192 tokens. */
    assert_true(fabs((double)bytes.cache / (40.0 * 2.0 * 8.0 * 192.0 * 5120.0 * 2.0) - 1.0) < 0.05);
    weights.form = ESPL_DEVICE_DENSE_INT4;
    espl_device_plan_bytes(&config, &scheme, &weights, 0.0, &options, &bytes);
    /* Half a byte, scales of two rows and 128 columns, 128 INT8 columns of 46080 rows a block; two
     * arrays a product in whole pages of 2 MiB. */
    const double int4 = count * (0.5 + 4.0 / 256.0) + 40.0 * 128.0 * 46080.0;
    const double pages = 40.0 * 4.0 * 2.0 * 2097152.0;
    assert_true((double)bytes.weights >= int4 && (double)bytes.weights <= int4 + pages);
    weights.form = ESPL_DEVICE_ENCODED;
    weights.areas = ESPL_IEBME_1X1;
    struct espl_device_bytes sparse;
    espl_device_plan_bytes(&config, &scheme, &weights, 0.5, &options, &sparse);
    /* 3.31 bits for 4. */
    assert_true(sparse.weights < bytes.weights &&
                (double)sparse.weights > 0.8 * (double)bytes.weights);
}

/* On a Jetson the meter of the board, with the boundary of its total. */
static void test_energy__automatic_meter_of_a_board(void **state)
{
    char root[ESPL_PATH_MAX];
    struct espl_decode_record record = {.count = 0};
    struct espl_energy_meter *meter = NULL;
    struct espl_error err;
    const struct espl_deploy_params params = {.energy = ESPL_ENERGY_AUTO};
    static const struct {
        enum espl_energy_choice meter;
        const char *name;
    } names[] = {{ESPL_ENERGY_NONE, "none"},
                 {ESPL_ENERGY_AUTO, "auto"},
                 {ESPL_ENERGY_INA3221, "ina3221"},
                 {ESPL_ENERGY_NVML, "nvml"},
                 {ESPL_ENERGY_RAPL, "rapl"}};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_string_equal(espl_energy_choices[names[i].meter], names[i].name);
    }
    assert_null(espl_energy_choices[sizeof names / sizeof names[0]]);
    temp_folder_make(root);
    energy_put_orin_nx(root, 3);
    assert_int_equal(setenv("ESPL_ENERGY_ROOT", root, 1), 0);
    for (int cpu = 0; cpu < 2; cpu++) {
        if (espl_decode_energy_open(&params, cpu != 0, &record, &meter, &err) != ESPL_OK) {
            fail_msg("%s", err.message);
        }
        assert_string_equal(record.meter, "ina3221");
        assert_string_equal(record.boundary, "module (VDD_IN)");
        espl_energy_close(meter);
    }
    assert_int_equal(unsetenv("ESPL_ENERGY_ROOT"), 0);
    temp_folder_remove(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record__finds_the_same_place),
        cmocka_unit_test(test_record__written_and_read),
        cmocka_unit_test(test_bytes__of_a_large_model),
        cmocka_unit_test(test_energy__automatic_meter_of_a_board),
    };
    espl_artifact_library_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
