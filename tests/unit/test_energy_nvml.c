#include "eval/energy/meter_internal.h"
#include "fake_nvml.h"
#include "support/cmocka_all.h"

#include <dlfcn.h>
#include <math.h>
#include <string.h>

static struct fake_nvml *gpu;

static int set_up(void **state)
{
    (void)state;
    void *library = dlopen(FAKE_NVML, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return 1;
    }
    gpu = dlsym(library, "fake_nvml");
    *gpu = (struct fake_nvml){
        .field_type = 1, .energy_mj = 5000, .power_mw = 300000, .instant_mw = 310000, .count = 1};
    return 0;
}

static enum espl_status open_with(const char *bus_id, struct espl_energy_meter **meter,
                                  struct espl_error *err)
{
    const struct espl_energy_options options = {
        .meter = "nvml", .gpu = bus_id, .nvml_library = FAKE_NVML};
    return espl_energy_open(&options, meter, err);
}

static double value_of(struct espl_energy_meter *meter, size_t rail)
{
    double value = NAN;
    int sys_errno = 0;
    assert_int_equal(espl_energy_nvml.read(meter->chips[0], rail, &value, &sys_errno),
                     ESPL_RAIL_OK);
    return value;
}

static void test_counter_and_power__are_both_totals(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    assert_int_equal(open_with(NULL, &meter, NULL), ESPL_OK);
    assert_int_equal(espl_energy_total_count(meter), 2);
    assert_string_equal(espl_energy_total_at(meter, 0)->boundary, "GPU (energy counter)");
    assert_string_equal(espl_energy_total_at(meter, 1)->boundary, "GPU (power (instant))");
    gpu->energy_mj += 2500;
    assert_true(fabs(value_of(meter, 0) - 2.5) < 1e-9); /* since the meter was opened */
    assert_true(fabs(value_of(meter, 1) - 310.0) < 1e-9);
    espl_energy_close(meter);
    assert_int_equal(gpu->running, 0);
}

static void test_power__falls_back_to_the_average_by_name(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    gpu->field_result = 3;
    assert_int_equal(open_with(NULL, &meter, NULL), ESPL_OK);
    assert_string_equal(espl_energy_rail_at(meter, 1)->name, "power (driver's average)");
    assert_true(fabs(value_of(meter, 1) - 300.0) < 1e-9);
    espl_energy_close(meter);
    gpu->field_result = 0;
    gpu->field_type = 0; /* a type that is not expected is not reinterpreted */
    assert_int_equal(open_with(NULL, &meter, NULL), ESPL_OK);
    assert_string_equal(espl_energy_rail_at(meter, 1)->name, "power (driver's average)");
    espl_energy_close(meter);
}

static void test_probe__reads_and_does_not_trust_init(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    struct espl_error err = {0};
    /* As on Tegra: NVML starts, and supports neither reading. */
    gpu->energy_result = 3;
    gpu->power_result = 3;
    gpu->field_result = 3;
    assert_int_equal(open_with(NULL, &meter, &err), ESPL_E_MACHINE);
    assert_string_equal(err.message, "no rail can be read; 'energy counter': not there");
    assert_null(meter);
    assert_int_equal(gpu->running, 0);
    gpu->power_result = 0;
    assert_int_equal(open_with(NULL, &meter, &err), ESPL_OK);
    assert_int_equal(espl_energy_total_count(meter), 1);
    assert_string_equal(espl_energy_note(meter), "energy counter: not there");
    espl_energy_close(meter);
}

static void test_counter__that_falls_is_refused(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    double value = -1.0;
    int sys_errno = 0;
    assert_int_equal(open_with(NULL, &meter, NULL), ESPL_OK);
    gpu->energy_mj = 4999;
    assert_int_equal(espl_energy_nvml.read(meter->chips[0], 0, &value, &sys_errno),
                     ESPL_RAIL_WENT_BACK);
    assert_true(value == -1.0);
    espl_energy_close(meter);
}

static void test_device__is_named_or_the_only_one(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    struct espl_error err = {0};
    gpu->count = 8;
    assert_int_equal(open_with(NULL, &meter, &err), ESPL_E_MACHINE);
    assert_string_equal(err.message, "NVML shows 8 GPUs and none is named");
    assert_int_equal(open_with("0000:99:00.0", &meter, &err), ESPL_E_MACHINE);
    assert_string_equal(err.message, "NVML has no GPU '0000:99:00.0': Not Found");
    gpu->mig = 1;
    assert_int_equal(open_with("0000:17:00.0", &meter, &err), ESPL_OK);
    assert_string_equal(espl_energy_note(meter), "MIG is on: the readings are of the whole GPU");
    espl_energy_close(meter);
    gpu->count = 0;
    assert_int_equal(open_with(NULL, &meter, &err), ESPL_E_MACHINE);
    assert_int_equal(gpu->running, 0);
}

static void test_library__that_is_not_there_is_said(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    struct espl_error err = {0};
    const struct espl_energy_options options = {.meter = "nvml", .nvml_library = "/nowhere.so"};
    assert_int_equal(espl_energy_open(&options, &meter, &err), ESPL_E_MACHINE);
    assert_string_equal(err.message, "no NVML library");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_counter_and_power__are_both_totals, set_up),
        cmocka_unit_test_setup(test_power__falls_back_to_the_average_by_name, set_up),
        cmocka_unit_test_setup(test_probe__reads_and_does_not_trust_init, set_up),
        cmocka_unit_test_setup(test_counter__that_falls_is_refused, set_up),
        cmocka_unit_test_setup(test_device__is_named_or_the_only_one, set_up),
        cmocka_unit_test_setup(test_library__that_is_not_there_is_said, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
