#include "eval/energy/power_state.h"

#include "energy_fixture.h"
#include "support/test_folder.h"

#include <math.h>
#include <string.h>

static void put_gpu_clock(long long least, long long most, long long now)
{
    energy_put(test_folder, "sys/class/devfreq/17000000.gpu/min_freq", "%lld\n", least);
    energy_put(test_folder, "sys/class/devfreq/17000000.gpu/max_freq", "%lld\n", most);
    energy_put(test_folder, "sys/class/devfreq/17000000.gpu/cur_freq", "%lld\n", now);
}

static void put_machine(void)
{
    const char *cpu = "sys/devices/system/cpu/cpufreq/policy0";
    char path[128];
    static const char *const files[] = {"scaling_min_freq", "scaling_max_freq", "scaling_cur_freq"};
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", cpu, files[i]);
        energy_put(test_folder, path, "2201600\n");
    }
    put_gpu_clock(1300500000, 1300500000, 1300500000);
    energy_put(test_folder, "var/lib/nvpmodel/status", "pmode:0000 fmode:quiet\n");
    energy_put(test_folder, "sys/class/thermal/thermal_zone0/type", "cpu-thermal\n");
    energy_put(test_folder, "sys/class/thermal/thermal_zone0/temp", "48250\n");
    energy_put(test_folder, "sys/class/thermal/thermal_zone1/temp", "n/a\n");
    energy_put(test_folder, "sys/class/hwmon/hwmon3/oc1_event_cnt", "2\n");
    energy_put(test_folder, "sys/class/hwmon/hwmon3/oc3_event_cnt", "5\n");
}

static const char *warnings(const struct espl_power_state *before,
                            const struct espl_power_state *after, struct espl_buf *lines)
{
    espl_buf_init(lines, 4096);
    espl_power_state_warn(before, after, lines);
    return espl_buf_text(lines);
}

static void test_fixed_clocks__give_no_warning(void **state)
{
    (void)state;
    struct espl_power_state now;
    struct espl_buf lines;
    put_machine();
    espl_power_state_read(test_folder, &now);
    assert_string_equal(now.mode, "pmode:0000 fmode:quiet");
    assert_int_equal(now.clock_count, 2);
    assert_int_equal(now.clocks[0].now_khz, 1300500);
    assert_true(espl_clock_is_fixed(&now.clocks[0]) && espl_clock_is_fixed(&now.clocks[1]));
    assert_int_equal(now.zone_count, 1);
    assert_true(fabs(espl_power_state_hottest(&now) - 48.25) < 1e-9);
    assert_int_equal(now.overcurrent_events, 7);
    assert_string_equal(warnings(&now, &now, &lines), "");
    espl_buf_free(&lines);
}

static void test_what_changes_in_a_run__is_said(void **state)
{
    (void)state;
    struct espl_power_state before;
    struct espl_power_state after;
    struct espl_buf lines;
    put_machine();
    espl_power_state_read(test_folder, &before);
    put_gpu_clock(1300500000, 1300500000, 918000000);
    energy_put(test_folder, "sys/class/hwmon/hwmon3/oc1_event_cnt", "6\n");
    energy_put(test_folder, "var/lib/nvpmodel/status", "pmode:0002 fmode:quiet\n");
    espl_power_state_read(test_folder, &after);
    assert_string_equal(
        warnings(&before, &after, &lines),
        "the power mode changed during the run: 'pmode:0000 fmode:quiet', then 'pmode:0002 "
        "fmode:quiet'\n"
        "the board throttled: 4 over-current events in the run\n"
        "clock '17000000.gpu' fell from 1300 to 918 MHz\n");
    espl_buf_free(&lines);
}

static void test_free_and_unreadable_clocks__are_warned_of(void **state)
{
    (void)state;
    struct espl_power_state now;
    struct espl_buf lines;
    put_gpu_clock(306000000, 1300500000, 612000000);
    energy_put(test_folder, "sys/class/devfreq/nvdec/min_freq", "fast\n");
    espl_power_state_read(test_folder, &now);
    assert_string_equal(warnings(&now, NULL, &lines),
                        "clock '17000000.gpu' is not fixed: 612 MHz, free between 306 and 1300 "
                        "MHz\nclock 'nvdec' cannot be read\n");
    espl_buf_free(&lines);
}

static void test_empty_machine__has_nothing(void **state)
{
    (void)state;
    struct espl_power_state now;
    espl_power_state_read(test_folder, &now);
    assert_string_equal(now.mode, "");
    assert_int_equal(now.clock_count + now.zone_count, 0);
    assert_int_equal(now.overcurrent_events, -1);
    assert_true(isnan(espl_power_state_hottest(&now)));
}

#define IN_FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, test_folder_set_up, test_folder_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_fixed_clocks__give_no_warning),
        IN_FOLDER(test_what_changes_in_a_run__is_said),
        IN_FOLDER(test_free_and_unreadable_clocks__are_warned_of),
        IN_FOLDER(test_empty_machine__has_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
