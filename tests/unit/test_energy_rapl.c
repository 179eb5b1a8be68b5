#include "energy_fixture.h"
#include "eval/energy/meter_internal.h"
#include "support/test_folder.h"

#include <math.h>
#include <string.h>

#define ZONE "sys/class/powercap/"

static void put_zone(const char *zone, const char *name, long long energy_uj, long long range_uj)
{
    char path[128];
    (void)snprintf(path, sizeof path, ZONE "%s/name", zone);
    energy_put(test_folder, path, "%s\n", name);
    (void)snprintf(path, sizeof path, ZONE "%s/energy_uj", zone);
    energy_put(test_folder, path, "%lld\n", energy_uj);
    (void)snprintf(path, sizeof path, ZONE "%s/max_energy_range_uj", zone);
    energy_put(test_folder, path, "%lld\n", range_uj);
}

/* Reads the first rail once more, in J since the meter was opened. */
static enum espl_rail_state read_first(struct espl_energy_meter *meter, double *joules)
{
    int sys_errno = 0;
    return espl_energy_rapl.read(meter->chips[0], 0, joules, &sys_errno);
}

static void test_packages__are_added_and_their_parts_are_not(void **state)
{
    (void)state;
    put_zone("intel-rapl:0", "package-0", 1000, 262143328850);
    put_zone("intel-rapl:0:0", "core", 500, 262143328850);
    put_zone("intel-rapl:0:1", "dram", 100, 65712999613);
    put_zone("intel-rapl:1", "package-1", 2000, 262143328850);
    put_zone("intel-rapl:2", "psys", 9000, 262143328850);
    put_zone("intel-rapl-mmio:0", "package-0", 1000, 262143328850); /* package 0 again */
    energy_put(test_folder, ZONE "intel-rapl/enabled", "1\n");
    struct espl_energy_meter *meter = energy_open(test_folder, "auto");
    assert_string_equal(espl_energy_name(meter), "rapl");
    assert_int_equal(espl_energy_rail_count(meter), 5);
    (void)energy_rail(meter, "core of 0:0");
    assert_int_equal(espl_energy_total_count(meter), 2);
    const struct espl_energy_total *packages = espl_energy_total_at(meter, 0);
    assert_string_equal(packages->boundary, "2 CPU packages without memory");
    assert_int_equal(packages->rail_count, 2);
    assert_string_equal(espl_energy_total_at(meter, 1)->boundary, "platform (psys)");
    espl_energy_close(meter);
}

static void test_counter__wraps_around(void **state)
{
    (void)state;
    double joules = -1.0;
    put_zone("intel-rapl:0", "package-0", 99000000, 100000000);
    struct espl_energy_meter *meter = energy_open(test_folder, "rapl");
    put_zone("intel-rapl:0", "package-0", 3000000, 100000000); /* 1 J to the top, 3 J on */
    assert_int_equal(read_first(meter, &joules), ESPL_RAIL_OK);
    assert_true(fabs(joules - 4.0) < 1e-9);
    put_zone("intel-rapl:0", "package-0", 5000000, 100000000);
    assert_int_equal(read_first(meter, &joules), ESPL_RAIL_OK);
    assert_true(fabs(joules - 6.0) < 1e-9);
    espl_energy_close(meter);
}

static void test_counter__that_was_reset_is_no_wrap_around(void **state)
{
    (void)state;
    double joules = -1.0;
    put_zone("intel-rapl:0", "package-0", 30000000, 100000000);
    struct espl_energy_meter *meter = energy_open(test_folder, "rapl");
    put_zone("intel-rapl:0", "package-0", 1000000, 100000000); /* would be 71 J at once */
    assert_int_equal(read_first(meter, &joules), ESPL_RAIL_WENT_BACK);
    assert_true(joules == -1.0);
    put_zone("intel-rapl:0", "package-0", -5, 100000000);
    assert_int_equal(read_first(meter, &joules), ESPL_RAIL_BAD_VALUE);
    espl_energy_close(meter);
    /* Without a range nothing is known about a fall. */
    put_zone("intel-rapl:0", "package-0", 99000000, 0);
    meter = energy_open(test_folder, "rapl");
    put_zone("intel-rapl:0", "package-0", 98999999, 0);
    assert_int_equal(read_first(meter, &joules), ESPL_RAIL_WENT_BACK);
    espl_energy_close(meter);
}

static void test_package__that_cannot_be_read_leaves_no_total(void **state)
{
    (void)state;
    put_zone("intel-rapl:0", "package-0", 1000, 1000000);
    put_zone("intel-rapl:1", "package-1", 1000, 1000000);
    energy_put(test_folder, ZONE "intel-rapl:1/energy_uj", "%s", "secret\n");
    struct espl_energy_meter *meter = energy_open(test_folder, "rapl");
    assert_int_equal(espl_energy_total_count(meter), 0);
    assert_string_equal(espl_energy_note(meter), "a CPU package cannot be read: no total");
    espl_energy_close(meter);
}

static void test_open__without_counters_says_so(void **state)
{
    (void)state;
    const struct espl_energy_options options = {.meter = "rapl", .root = test_folder};
    struct espl_energy_meter *meter = NULL;
    struct espl_error err = {0};
    assert_int_equal(espl_energy_open(&options, &meter, &err), ESPL_E_MACHINE);
    assert_string_equal(err.message, "no RAPL counters are there");
}

static void test_ramp__played_into_the_counter_integrates(void **state)
{
    (void)state;
    /* The rising half of the triangle fills the run of 2 s: 60 J. The fall afterwards is far below
     * the top of the range, so it is no wrap-around. */
    struct energy_wave wave = {.period_s = 4.0};
    struct espl_energy_result result;
    const int64_t second = 1000000000;
    const struct espl_energy_windows windows = {{0, 0}, {second, 3 * second}, {0, 0}};
    put_zone("intel-rapl:0", "package-0", 1000000, 262143328850);
    energy_wave_add(&wave, test_folder, ZONE "intel-rapl:0/energy_uj", 1000000, 61000000);
    struct espl_energy_meter *meter = energy_open(test_folder, "rapl");
    energy_play(&wave, meter, &result);
    assert_int_equal(espl_energy_rail_at(meter, 0)->state, ESPL_RAIL_WENT_BACK);
    assert_int_equal(result.totals[0].state, ESPL_FIGURE_UNRESOLVED);
    assert_string_equal(result.totals[0].why, "rail 'package-0' is a counter that went back");
    struct espl_energy_figure figure;
    espl_energy_figure_of(&espl_energy_rail_at(meter, 0)->series, 1, &windows, &figure);
    assert_int_equal(figure.state, ESPL_FIGURE_GROSS); /* up to the fall the readings are good */
    assert_true(fabs(figure.gross_j - 60.0) < 0.6);
    espl_energy_close(meter);
}

#define IN_FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, test_folder_set_up, test_folder_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_packages__are_added_and_their_parts_are_not),
        IN_FOLDER(test_counter__wraps_around),
        IN_FOLDER(test_counter__that_was_reset_is_no_wrap_around),
        IN_FOLDER(test_package__that_cannot_be_read_leaves_no_total),
        IN_FOLDER(test_open__without_counters_says_so),
        IN_FOLDER(test_ramp__played_into_the_counter_integrates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
