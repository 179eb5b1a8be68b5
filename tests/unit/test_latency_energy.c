/* latency-profile with a meter: a CPU whose energy counter goes up by 10 W and by 10 W more of this
 * process's CPU time. What a product takes net of idle is then 10 J a second of CPU time, and CPU
 * time is what a profile of one thread measures. */
#include "support/cmocka_all.h"

#include "eval/energy/device_meter.h"
#include "eval/energy/meter.h"
#include "search_stage_fixture.h"
#include "stages/latency_profile/latency_energy.h"
#include "stages/latency_profile/latency_record.h"
#include "stages/latency_profile/nm_stack_kinds.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern const struct espl_stage espl_stage_latency_profile;

#define ZONE "sys/class/powercap/intel-rapl:0"

static const double idle_w = 10.0; /* as much as busy_w: gross would be twice net */
static const double busy_w = 10.0;

static double seconds_of(clockid_t id)
{
    struct timespec time = {0};
    assert_int_equal(clock_gettime(id, &time), 0);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

struct machine {
    char root[ESPL_PATH_MAX];
    char counter[ESPL_PATH_MAX];
    atomic_bool stop;
    pthread_t thread;
};

static void put(const struct machine *machine, const char *name, const char *text)
{
    char path[ESPL_PATH_MAX];
    assert_int_equal(espl_fs_join(path, machine->root, name, NULL), ESPL_OK);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Sixteen digits at once, so that no reading sees half a number. */
static void *play(void *user)
{
    struct machine *machine = user;
    const struct timespec pause = {0, 1000000};
    FILE *file = fopen(machine->counter, "r+");
    while (file != NULL && !atomic_load(&machine->stop)) {
        const double joules =
            idle_w * seconds_of(CLOCK_MONOTONIC) + busy_w * seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        rewind(file);
        (void)fprintf(file, "%016lld\n", (long long)(1e6 * joules));
        (void)fflush(file);
        (void)nanosleep(&pause, NULL);
    }
    return file != NULL ? (void *)(intptr_t)fclose(file) : user;
}

static void machine_start(struct machine *machine, const char *folder)
{
    char zone[ESPL_PATH_MAX];
    (void)snprintf(machine->root, sizeof machine->root, "%.1000s/machine", folder);
    assert_int_equal(espl_fs_join(zone, machine->root, ZONE, NULL), ESPL_OK);
    assert_int_equal(espl_fs_make_dirs(zone, NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(machine->counter, zone, "energy_uj", NULL), ESPL_OK);
    put(machine, ZONE "/name", "package-0\n");
    put(machine, ZONE "/energy_uj", "0000000000000000\n");
    put(machine, ZONE "/max_energy_range_uj", "262143328850\n");
    assert_int_equal(setenv("ESPL_ENERGY_ROOT", machine->root, 1), 0);
    assert_int_equal(pthread_create(&machine->thread, NULL, play, machine), 0);
}

static void machine_stop(struct machine *machine)
{
    void *result = NULL;
    atomic_store(&machine->stop, true);
    assert_int_equal(pthread_join(machine->thread, &result), 0);
    assert_null(result);
    assert_int_equal(unsetenv("ESPL_ENERGY_ROOT"), 0);
}

enum { PARAMS_BYTES = 512, LAYERS = 8, RUNS = 5 };

/* The field of a parameter. */
static void *field(void *params, const char *name)
{
    const struct espl_param *param = espl_stage_latency_profile.params;
    while (param->name != NULL && strcmp(param->name, name) != 0) {
        param++;
    }
    assert_non_null(param->name);
    return (char *)params + param->offset;
}

static void set_choice(void *params, const char *name, const char *choice)
{
    const struct espl_param *param = espl_stage_latency_profile.params;
    int index = 0;
    while (strcmp(param->name, name) != 0) {
        param++;
    }
    while (strcmp(param->choices[index], choice) != 0) {
        index++;
        assert_non_null(param->choices[index]);
    }
    memcpy(field(params, name), &index, sizeof index);
}

static void set_int(void *params, const char *name, int64_t value)
{
    memcpy(field(params, name), &value, sizeof value);
}

static void set_real(void *params, const char *name, double value)
{
    memcpy(field(params, name), &value, sizeof value);
}

static void run_profile(struct prune_fixture *fixture, const char *meter, char key,
                        struct search_result *result)
{
    _Alignas(max_align_t) unsigned char params[PARAMS_BYTES];
    struct espl_arena *arena = espl_arena_create((size_t)1 << 20);
    assert_true(espl_stage_latency_profile.params_size <= sizeof params);
    search_default_params(&espl_stage_latency_profile, arena, params);
    set_int(params, "vector", 0);
    set_int(params, "threads", 1);
    set_int(params, "batch", 128); /* products long beside the clock that times them */
    set_int(params, "runs", RUNS);
    set_choice(params, "energy", meter);
    set_real(params, "energy_run", 0.5);
    set_real(params, "energy_idle", 0.15);
    set_real(params, "energy_interval", 0.004);
    const struct search_run run = {.stage = &espl_stage_latency_profile,
                                   .params = params,
                                   .key_digit = key,
                                   .ports = {"model"},
                                   .digits = {'a'},
                                   .fingerprint = "y; here"};
    search_run_stage(fixture, &run, result);
    espl_arena_destroy(arena);
}

static void open_record(struct prune_fixture *fixture, char key, struct espl_latency_record *record)
{
    struct espl_artifact *artifact = NULL;
    assert_int_equal(espl_store_open_artifact(&fixture->store, prune_key(fixture, key), "latency",
                                              &artifact, NULL),
                     ESPL_OK);
    json_t *json = json_loads(espl_artifact_description(artifact), 0, NULL);
    assert_non_null(json);
    assert_int_equal(espl_latency_record_from_json(json, record, NULL), ESPL_OK);
    json_decref(json);
    espl_artifact_close(artifact);
}

/* Watts of busy time: energy over latency. A pass is not all CPU time of its products, and a busy
 * machine stretches the 4 ms between readings, so a quarter is allowed. */
static void check_watts(double joules, double seconds)
{
    if (!(fabs(joules / seconds / busy_w - 1.0) < 0.25)) {
        fail_msg("%g J in %g s are %.2f W, not %.0f W", joules, seconds, joules / seconds, busy_w);
    }
}

static void test_energy__of_products_and_passes(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct machine machine = {.stop = false};
    struct espl_latency_record record = {0};
    struct search_result result = {.status = ESPL_E_NUMERIC};
    search_fixture_open_stage(&fixture);
    machine_start(&machine, fixture.folder);
    /* Readings that come late on a busy machine are refused, as they shall be: three tries. */
    for (const char *key = "ef0"; result.status == ESPL_E_NUMERIC && *key != '\0'; key++) {
        run_profile(&fixture, "auto", *key, &result);
        if (result.status == ESPL_OK) {
            open_record(&fixture, *key, &record);
        }
    }
    if (result.status != ESPL_OK) {
        fail_msg("%s", result.err.message);
    }
    assert_true(record.energy.present);
    assert_int_equal(record.shape_count, 4);
    for (size_t shape = 0; shape < record.shape_count; shape++) {
        const size_t dense = espl_latency_index(&record.latency.table, shape, record.m, 0);
        check_watts(record.energy.table.raw[dense], record.latency.table.raw[dense]);
        assert_true(record.energy.table.spread[dense] > 0.0);
        assert_true(isnan(record.energy.table.raw[dense - 1])); /* without a kernel: no figure */
    }
    for (size_t run = 0; run < RUNS; run++) {
        check_watts(record.energy.measured[run], record.latency.measured[run]);
    }
    espl_latency_record_free(&record);
    search_result_free(&result);
    machine_stop(&machine);
    prune_fixture_close(&fixture);
}

static void test_energy__no_meter(void **state)
{
    (void)state;
    struct prune_fixture fixture;
    struct search_result result;
    search_fixture_open_stage(&fixture);
    assert_int_equal(setenv("ESPL_ENERGY_ROOT", fixture.folder, 1), 0);
    run_profile(&fixture, "auto", 'e', &result);
    assert_int_equal(result.status, ESPL_E_MACHINE);
    assert_string_equal(result.err.message, "this machine has no energy meter that sees its CPU");
    assert_non_null(strstr(result.err.hint, "espalier doctor"));
    search_result_free(&result);
    run_profile(&fixture, "rapl", 'e', &result);
    assert_int_equal(result.status, ESPL_E_MACHINE);
    assert_string_equal(result.err.message, "no RAPL counters are there");
    search_result_free(&result);
    assert_int_equal(unsetenv("ESPL_ENERGY_ROOT"), 0);
    prune_fixture_close(&fixture);
}

/* A meter of the other device would give a number of something else. */
static void test_energy__meter_of_the_other_device(void **state)
{
    (void)state;
    for (int i = 0; espl_energy_choices[i] != NULL; i++) {
        const char *name = espl_energy_choices[i];
        struct espl_error err = {0};
        for (int cuda = 0; cuda < 2; cuda++) {
            const bool wrong = strcmp(name, cuda ? "rapl" : "nvml") == 0;
            assert_int_equal(espl_energy_check_choice(i, cuda != 0, &err),
                             wrong ? ESPL_E_JOB : ESPL_OK);
            if (wrong) {
                assert_string_equal(err.message, cuda ? "meter 'rapl' does not see a GPU"
                                                      : "meter 'nvml' does not see the CPU");
            }
        }
    }
}

/* A device that launches a graph of products as often as it is told, and once more before. */
enum { GRAPH = 4 };
static const double product_s = 0.002;

static enum espl_status time_graphs(struct espl_nm_stack *stack,
                                    const struct espl_latency_shape *shape, unsigned n, int kernel,
                                    double *seconds, struct espl_error *err)
{
    (void)shape;
    (void)err;
    assert_true(n == 1 && kernel == ESPL_NM_KERNEL_DENSE && stack->repeats > 0);
    stack->ran = GRAPH * (1 + stack->repeats);
    const double end = seconds_of(CLOCK_PROCESS_CPUTIME_ID) + product_s * (double)stack->ran;
    while (seconds_of(CLOCK_PROCESS_CPUTIME_ID) < end) {
    }
    *seconds = product_s;
    return ESPL_OK;
}

static const struct espl_nm_stack_kind graph_kind = {.kernels = {"dense"},
                                                     .time_product = time_graphs};

static enum espl_status measure_graphs(struct espl_stage_ctx *ctx, const void *params,
                                       struct espl_error *err)
{
    const struct espl_latency_energy_plan plan = {.run_s = 1.0, .idle_s = 0.6};
    struct espl_nm_stack stack = {.kind = &graph_kind};
    struct espl_latency_shape shape = {.tokens = 1, .in = 8, .out = 8};
    struct espl_latency_record record = {
        .m = 1, .kernel_count = 1, .kernels = {"dense"}, .shape_count = 1, .shapes = &shape};
    struct espl_energy_meter *meter = NULL;
    (void)params;
    assert_int_equal(espl_latency_table_create(1, 1, 1, &record.latency.table, err), ESPL_OK);
    record.latency.table.raw[0] = product_s;
    enum espl_status status = espl_energy_open_choice(ESPL_ENERGY_AUTO, false, 0.004, &meter, err);
    if (status == ESPL_OK) {
        status = espl_latency_measure_energy(ctx, &stack, &plan, meter, &record, err);
    }
    if (status == ESPL_OK) {
        const double watts = record.energy.table.raw[0] / product_s;
        /* Calls run eight products and more; a busy machine errs by less. */
        assert_true(watts > 0.5 * busy_w && watts < 2.0 * busy_w);
        assert_int_equal(stack.repeats, 1);
        assert_true((double)stack.ran > 0.1 / product_s); /* calls got longer */
    }
    espl_energy_close(meter);
    espl_latency_table_free(&record.latency.table);
    espl_latency_table_free(&record.energy.table);
    free(record.energy.measured);
    return status;
}

/* All products count that a call ran, not calls. */
static void test_energy__of_products_in_graphs(void **state)
{
    (void)state;
    static const struct espl_port no_ports[] = {{NULL, NULL, 0, NULL}};
    static const struct espl_stage stage = {
        .name = "measure-graphs", .inputs = no_ports, .outputs = no_ports, .run = measure_graphs};
    struct prune_fixture fixture;
    struct machine machine = {.stop = false};
    struct search_result result = {.status = ESPL_E_NUMERIC};
    search_fixture_open_stage(&fixture);
    machine_start(&machine, fixture.folder);
    for (const char *key = "ef0"; result.status == ESPL_E_NUMERIC && *key != '\0'; key++) {
        const struct search_run run = {.stage = &stage, .key_digit = *key};
        search_run_stage(&fixture, &run, &result);
    }
    if (result.status != ESPL_OK) {
        fail_msg("%s", result.err.message);
    }
    search_result_free(&result);
    machine_stop(&machine);
    prune_fixture_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_energy__of_products_and_passes),
        cmocka_unit_test(test_energy__of_products_in_graphs),
        cmocka_unit_test(test_energy__no_meter),
        cmocka_unit_test(test_energy__meter_of_the_other_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
