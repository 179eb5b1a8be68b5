/* What is found on each board, and what each fault makes of it. */
#include "energy_fixture.h"
#include "support/test_folder.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum espl_rail_state state_of(const struct espl_energy_meter *meter, const char *name)
{
    return espl_energy_rail_at(meter, energy_rail(meter, name))->state;
}

static const char *boundary(const struct espl_energy_meter *meter, size_t i)
{
    assert_true(i < espl_energy_total_count(meter));
    return espl_energy_total_at(meter, i)->boundary;
}

static void test_agx_orin__adds_three_rails_wherever_hwmon_puts_them(void **state)
{
    (void)state;
    for (unsigned first = 1; first <= 9; first += 8) {
        char root[ESPL_PATH_MAX];
        (void)snprintf(root, sizeof root, "%s", below(first == 1 ? "one" : "two"));
        energy_put_agx_orin(root, first);
        struct espl_energy_meter *meter = energy_open(root, "auto");
        assert_string_equal(espl_energy_name(meter), "ina3221");
        assert_int_equal(espl_energy_rail_count(meter), 6);
        assert_int_equal(espl_energy_total_count(meter), 1);
        assert_string_equal(boundary(meter, 0), "module without carrier board (VDD_GPU_SOC + "
                                                "VDD_CPU_CV + VIN_SYS_5V0)");
        assert_int_equal(state_of(meter, "NC"), ESPL_RAIL_NOT_CONNECTED);
        assert_int_equal(state_of(meter, "VDDQ_VDD2_1V8AO"), ESPL_RAIL_OK);
        /* 40 uV over 2 mOhm are 20 mA, at 12 V 240 mW. */
        const struct espl_energy_rail *gpu =
            espl_energy_rail_at(meter, energy_rail(meter, "VDD_GPU_SOC"));
        assert_true(fabs(gpu->series.step_w - 0.24) < 1e-12);
        assert_true(gpu->read_cost_s > 0.0);
        espl_energy_close(meter);
    }
}

static void test_orin_nx__is_measured_by_its_input_alone(void **state)
{
    (void)state;
    energy_put_orin_nx(test_folder, 3);
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    assert_int_equal(espl_energy_total_count(meter), 1);
    assert_string_equal(boundary(meter, 0), "module (VDD_IN)");
    assert_int_equal(espl_energy_rail_count(meter), 3);
    espl_energy_close(meter);
}

static void test_thor__has_a_system_and_a_module_total(void **state)
{
    (void)state;
    energy_put_thor(test_folder);
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    assert_int_equal(espl_energy_rail_count(meter), 4);
    assert_int_equal(espl_energy_total_count(meter), 2);
    assert_string_equal(boundary(meter, 0), "system with carrier board (VIN)");
    assert_string_equal(boundary(meter, 1), "module without carrier board (VDD_GPU + "
                                            "VDD_CPU_SOC_MSS + VIN_SYS_5V0)");
    espl_energy_close(meter);
}

static void test_jetpack4__is_read_through_iio(void **state)
{
    (void)state;
    energy_put_jetpack4(test_folder);
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    assert_int_equal(espl_energy_rail_count(meter), 3);
    assert_string_equal(boundary(meter, 0), "module (POM_5V_IN)");
    espl_energy_close(meter);
}

static void test_unknown_board__has_rails_and_no_total(void **state)
{
    (void)state;
    static const char *const labels[] = {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"};
    energy_put_ina3221(test_folder, 0, labels, 5000, 2000);
    energy_put(test_folder, "sys/class/hwmon/hwmon4/name", "ina238\n");
    energy_put(test_folder, "sys/class/hwmon/hwmon4/power1_input", "40000000\n");
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    assert_int_equal(espl_energy_total_count(meter), 0);
    assert_non_null(strstr(espl_energy_note(meter), "rails only"));
    assert_int_equal(state_of(meter, "ina238"), ESPL_RAIL_UNLABELLED);
    espl_energy_close(meter);
}

static void test_two_rails_of_one_name__are_no_total(void **state)
{
    (void)state;
    static const char *const labels[] = {"VDD_IN", "VDD_IN", "NC"};
    energy_put_ina3221(test_folder, 0, labels, 5000, 5000);
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    assert_int_equal(espl_energy_total_count(meter), 0);
    assert_non_null(strstr(espl_energy_note(meter), "2 rails are called 'VDD_IN'"));
    espl_energy_close(meter);
}

/* Faults of the rail VDD_IN of an Orin NX: name, what is done to its files, the state. */
static void break_disabled(void)
{
    energy_put(test_folder, "sys/class/hwmon/hwmon3/in1_enable", "0\n");
}

static void break_missing(void)
{
    assert_int_equal(unlink(below("sys/class/hwmon/hwmon3/curr1_input")), 0);
}

static void break_folder(void)
{
    break_missing();
    assert_int_equal(mkdir(below("sys/class/hwmon/hwmon3/curr1_input"), 0755), 0);
}

static void break_pipe(void)
{
    break_missing();
    assert_int_equal(mkfifo(below("sys/class/hwmon/hwmon3/curr1_input"), 0644), 0);
}

static void break_garbage(void)
{
    energy_put(test_folder, "sys/class/hwmon/hwmon3/curr1_input", "12 mA\n");
}

static void break_huge(void)
{
    energy_put(test_folder, "sys/class/hwmon/hwmon3/curr1_input", "9223372036854775807\n");
}

static void break_voltage(void)
{
    energy_put(test_folder, "sys/class/hwmon/hwmon3/in1_input", "-9223372036854775808\n");
}

static void test_faults__give_a_state_and_no_total(void **state)
{
    (void)state;
    static const struct {
        void (*apply)(void);
        enum espl_rail_state expected;
        const char *note;
    } faults[] = {
        {break_disabled, ESPL_RAIL_DISABLED, "rail 'VDD_IN' is disabled: no total with it"},
        {break_missing, ESPL_RAIL_ABSENT, "rail 'VDD_IN' is not there"},
        {break_folder, ESPL_RAIL_UNREADABLE, "rail 'VDD_IN' is not readable"},
        {break_pipe, ESPL_RAIL_UNREADABLE, "rail 'VDD_IN' is not readable"},
        {break_garbage, ESPL_RAIL_BAD_VALUE, "rail 'VDD_IN' is not a valid value"},
        {break_huge, ESPL_RAIL_BAD_VALUE, "rail 'VDD_IN' is not a valid value"},
        {break_voltage, ESPL_RAIL_BAD_VALUE, "rail 'VDD_IN' is not a valid value"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        energy_put_orin_nx(test_folder, 3);
        faults[i].apply();
        struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
        assert_int_equal(state_of(meter, "VDD_IN"), faults[i].expected);
        assert_int_equal(state_of(meter, "VDD_SOC"), ESPL_RAIL_OK);
        assert_int_equal(espl_energy_total_count(meter), 0);
        assert_non_null(strstr(espl_energy_note(meter), faults[i].note));
        espl_energy_close(meter);
        assert_int_equal(espl_fs_remove_tree(below("sys"), NULL), ESPL_OK);
    }
}

static void test_missing_label__is_not_sampled(void **state)
{
    (void)state;
    static const char *const labels[] = {"VDD_IN", NULL, "VDD_SOC"};
    energy_put_ina3221(test_folder, 0, labels, 5000, 5000);
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    assert_int_equal(state_of(meter, "channel 2"), ESPL_RAIL_UNLABELLED);
    assert_string_equal(boundary(meter, 0), "module (VDD_IN)");
    espl_energy_close(meter);
}

static void test_open__refuses_when_nothing_answers(void **state)
{
    (void)state;
    static const char *const labels[] = {"NC", "NC", "NC"};
    struct espl_energy_meter *meter = NULL;
    struct espl_error err = {0};
    struct espl_energy_options options = {.meter = "ina3221", .root = test_folder};
    assert_int_equal(espl_energy_open(&options, &meter, &err), ESPL_E_MACHINE);
    assert_string_equal(err.message, "no power sensor of a Jetson board is there");
    energy_put_ina3221(test_folder, 0, labels, 0, 0);
    assert_int_equal(espl_energy_open(&options, &meter, &err), ESPL_E_MACHINE);
    assert_string_equal(err.message, "no rail can be read; 'NC': not connected");
    options.meter = "wattmeter";
    assert_int_equal(espl_energy_open(&options, &meter, &err), ESPL_E_USAGE);
    assert_string_equal(err.message, "unknown energy meter 'wattmeter'");
    assert_null(meter);
}

static void test_none__measures_nothing(void **state)
{
    (void)state;
    struct espl_energy_result result;
    const struct espl_energy_windows windows = {{0, 0}, {0, 1}, {0, 0}};
    struct espl_energy_meter *meter = energy_open(test_folder, "none");
    assert_int_equal(espl_energy_start(meter, NULL), ESPL_OK);
    assert_int_equal(espl_energy_measure(meter, &windows, &result, NULL), ESPL_E_USAGE);
    espl_energy_stop(meter);
    assert_int_equal(espl_energy_measure(meter, &windows, &result, NULL), ESPL_OK);
    assert_int_equal(espl_energy_rail_count(meter), 0);
    assert_int_equal(espl_energy_total_count(meter), 0);
    assert_string_equal(espl_energy_note(meter), "energy is not measured");
    espl_energy_close(meter);
}

static void test_open_total__takes_the_first_that_is_there(void **state)
{
    static const char *const of_gpu[] = {"ina3221", "nvml", NULL};
    static const char *const unknown_first[] = {"watts", "ina3221", NULL};
    struct espl_energy_options options = {.root = test_folder, .nvml_library = "libnothing.so"};
    struct espl_energy_meter *meter = NULL;
    struct espl_error err = {0};
    (void)state;
    assert_int_equal(espl_energy_open_total(of_gpu, &options, &meter, &err), ESPL_E_MACHINE);
    assert_null(meter);
    assert_null(strstr(err.message, "Jetson")); /* the last one's reason, not the first one's */
    energy_put_orin_nx(test_folder, 3);
    /* a mistake is no absence: the board's meter does not make up for it */
    assert_int_equal(espl_energy_open_total(unknown_first, &options, &meter, &err), ESPL_E_USAGE);
    assert_null(meter);
    assert_int_equal(espl_energy_open_total(of_gpu, &options, &meter, &err), ESPL_OK);
    assert_string_equal(espl_energy_name(meter), "ina3221");
    espl_energy_close(meter);
}

static void test_open_total__refuses_rails_without_a_total(void **state)
{
    static const char *const names[] = {"ina3221", NULL};
    static const char *const labels[3] = {"VDD_FAN", "VDD_LED", NULL};
    const struct espl_energy_options options = {.root = test_folder};
    struct espl_energy_meter *meter = NULL;
    struct espl_error err = {0};
    (void)state;
    energy_put_ina3221(test_folder, 1, labels, 5000, 5000);
    assert_int_equal(espl_energy_open_total(names, &options, &meter, &err), ESPL_E_MACHINE);
    assert_null(meter);
    assert_string_equal(err.message, "meter 'ina3221' has rails, but no total of them");
}

#define IN_FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, test_folder_set_up, test_folder_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_agx_orin__adds_three_rails_wherever_hwmon_puts_them),
        IN_FOLDER(test_orin_nx__is_measured_by_its_input_alone),
        IN_FOLDER(test_thor__has_a_system_and_a_module_total),
        IN_FOLDER(test_jetpack4__is_read_through_iio),
        IN_FOLDER(test_unknown_board__has_rails_and_no_total),
        IN_FOLDER(test_two_rails_of_one_name__are_no_total),
        IN_FOLDER(test_faults__give_a_state_and_no_total),
        IN_FOLDER(test_missing_label__is_not_sampled),
        IN_FOLDER(test_open__refuses_when_nothing_answers),
        IN_FOLDER(test_none__measures_nothing),
        IN_FOLDER(test_open_total__takes_the_first_that_is_there),
        IN_FOLDER(test_open_total__refuses_rails_without_a_total),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
