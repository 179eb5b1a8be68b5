/* deploy-bench, mode decode, on the CPU: every place of the grid once, times that add up, what the
 * artifact and the metrics say. */
#include "encode_fixture.h"

#include "eval/energy/device_meter.h"
#include "stages/deploy_bench/decode_mode.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

extern const struct espl_stage espl_stage_deploy_bench;

static const int64_t sequences[] = {1, 3};
static const int64_t prompts[] = {4};
static const int64_t outputs[] = {2, 6};
static const int against[] = {0, 2}; /* dense-int4, dense-fp16 */

static struct espl_deploy_params usual_params(void)
{
    return (struct espl_deploy_params){.mode = ESPL_DEPLOY_DECODE,
                                       .repeats = 3,
                                       .threads = 1,
                                       .sequences = {2, sequences},
                                       .prompt_tokens = {1, prompts},
                                       .output_tokens = {2, outputs},
                                       .against = {2, against},
                                       .energy_seconds = 1.0,
                                       .energy_idle_seconds = 1.0};
}

static void open_encoded(struct prune_fixture *fixture, const char *areas)
{
    const struct espl_model_config config = encode_llama_config();
    const struct espl_atom_params atom = quant_atom_params();
    encode_open(fixture, &config, &atom);
    encode_model(fixture, areas, 0, 'f', NULL);
}

/* What the report draws of a place. */
static double metric_at(const struct prune_result *result, const char *name, int64_t batch,
                        int64_t output)
{
    char module[64];
    size_t index;
    const json_t *item;
    (void)snprintf(module, sizeof module, "encoded 4/%d", (int)output);
    json_array_foreach(result->layers, index, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "series")), name) == 0 &&
            json_integer_value(json_object_get(item, "layer")) == batch &&
            strcmp(json_string_value(json_object_get(item, "module")), module) == 0) {
            return json_number_value(json_object_get(item, "value"));
        }
    }
    fail_msg("no '%s' of %s at %d", name, module, (int)batch);
    return 0.0;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t len = strlen(text);
    return len >= strlen(end) && strcmp(text + len - strlen(end), end) == 0;
}

/* Of all linears of an encoded model, as its file has them. */
static uint64_t stored_bytes(struct prune_fixture *fixture, char key)
{
    static const char *const parts[] = {"/masks",      "/offsets",       "/values",
                                        "/scales",     "/outlier_codes", "/outlier_scales",
                                        "/permutation"};
    char path[ESPL_PATH_MAX];
    uint64_t bytes = 0;
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    prune_path(fixture, key, path);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    for (size_t i = 0; i < espl_artifact_tensor_count(artifact); i++) {
        const struct espl_tensor_info *info = espl_artifact_tensor(artifact, i);
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
            bytes += ends_with(info->path, parts[p]) ? info->bytes : 0;
        }
    }
    espl_artifact_close(artifact);
    return bytes;
}

/* The rows of a dataset of the bench 'd'. */
static void read_cells(struct prune_fixture *fixture, const char *dataset, size_t count, void *rows,
                       size_t bytes)
{
    char path[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    struct espl_error err;
    prune_path(fixture, 'd', path);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_read_rows(artifact, dataset, 0, count, rows, bytes, &err),
                     ESPL_OK);
    espl_artifact_close(artifact);
}

static void test_cpu__measures_every_place(void **state)
{
    (void)state;
    enum { NUMBERS = 8, PLACES = 4 };
    static const char *const parts[] = {"decode_us_products", "decode_us_attention",
                                        "decode_us_norms", "decode_us_head", "decode_us_gaps"};
    struct prune_fixture fixture;
    struct prune_result result;
    struct espl_error err;
    const struct espl_deploy_params params = usual_params();
    open_encoded(&fixture, "2x2");
    assert_int_equal(
        prune_run(&fixture, &espl_stage_deploy_bench, &params, 'd', 'f', 0, NULL, &result, &err),
        ESPL_OK);
    for (size_t s = 0; s < 2; s++) {
        for (size_t o = 0; o < 2; o++) {
            double sum = 0.0;
            for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
                const double part = metric_at(&result, parts[i], sequences[s], outputs[o]);
                assert_true(part > 0.0); /* so the pieces are no longer than the step */
                sum += part;
            }
            const double ms = metric_at(&result, "decode_ms_per_token", sequences[s], outputs[o]);
            const double rate =
                metric_at(&result, "decode_tokens_per_second", sequences[s], outputs[o]);
            assert_true(sum > 0.0 && ms > 0.0 && rate > 0.0);
            assert_true(metric_at(&result, "decode_ms_per_token_p95", sequences[s], outputs[o]) >=
                        ms);
            assert_true(metric_at(&result, "decode_ms_first_token", sequences[s], outputs[o]) >
                        0.0);
            assert_true(metric_at(&result, "decode_planned_bytes", sequences[s], outputs[o]) > 0.0);
        }
    }
    uint64_t numbers[PLACES][NUMBERS];
    read_cells(&fixture, "/cells/numbers", PLACES, numbers, sizeof numbers);
    for (size_t i = 0; i < PLACES; i++) { /* runtime, sequences, prompt, output, areas */
        const uint64_t expected[] = {ESPL_DEVICE_ENCODED, (uint64_t)sequences[i / 2], 4,
                                     (uint64_t)outputs[i % 2], ESPL_IEBME_2X2};
        assert_memory_equal(numbers[i], expected, sizeof expected);
        assert_int_equal(numbers[i][5], stored_bytes(&fixture, 'f'));
    }
    prune_result_free(&result);
    prune_fixture_close(&fixture);
}

/* There is no rail under an empty root. */
static void test_cpu__no_meter_is_an_error(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    struct espl_deploy_params params = usual_params();
    open_encoded(&fixture, "1x1");
    params.energy = ESPL_ENERGY_AUTO;
    assert_int_equal(setenv("ESPL_ENERGY_ROOT", fixture.folder, 1), 0);
    assert_int_equal(
        prune_run(&fixture, &espl_stage_deploy_bench, &params, 'd', 'f', 0, NULL, NULL, &err),
        ESPL_E_MACHINE);
    assert_string_equal(err.message, "this machine has no energy meter that sees its CPU");
    assert_int_equal(unsetenv("ESPL_ENERGY_ROOT"), 0);
    prune_fixture_close(&fixture);
}

static void test_cpu__stops_when_told(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct espl_error err;
    const struct espl_deploy_params params = usual_params();
    const volatile int stopped = 1;
    open_encoded(&fixture, "dense");
    assert_int_equal(
        prune_run(&fixture, &espl_stage_deploy_bench, &params, 'd', 'f', 0, &stopped, NULL, &err),
        ESPL_E_CANCELLED);
    prune_fixture_close(&fixture);
}

static volatile int stopped_by_timer;

static void stop(int number)
{
    (void)number;
    stopped_by_timer = 1;
}

static double cpu_seconds(void)
{
    struct timespec time = {0};
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time), 0);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* An output of minutes: the stop must be seen within it. */
static void test_cpu__stops_within_an_output(void **state)
{
    (void)state;
    static const int64_t length[] = {60000};
    const struct itimerval soon = {.it_value = {.tv_usec = 200000}};
    struct prune_fixture fixture;
    struct espl_error err;
    struct espl_deploy_params params = usual_params();
    params.sequences.count = 1;
    params.output_tokens = (struct espl_list){1, length};
    open_encoded(&fixture, "dense");
    assert_true(signal(SIGPROF, stop) != SIG_ERR);
    assert_int_equal(setitimer(ITIMER_PROF, &soon, NULL), 0);
    const double start = cpu_seconds();
    assert_int_equal(prune_run(&fixture, &espl_stage_deploy_bench, &params, 'd', 'f', 0,
                               &stopped_by_timer, NULL, &err),
                     ESPL_E_CANCELLED);
    assert_true(cpu_seconds() - start < 3.0);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu__measures_every_place),
        cmocka_unit_test(test_cpu__no_meter_is_an_error),
        cmocka_unit_test(test_cpu__stops_when_told),
        cmocka_unit_test(test_cpu__stops_within_an_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
