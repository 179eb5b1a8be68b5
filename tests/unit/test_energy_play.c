/* A known waveform is played into the files of each board; its integral must come out within 1 %.
 */
#include "energy_fixture.h"
#include "support/test_folder.h"

#include <math.h>
#include <time.h>

static const double run_s = 2.0;
static const double period_s = 0.5; /* of the triangle: four whole ones in the run */

#define HWMON "sys/class/hwmon/hwmon"

static void assert_within_percent(double value, double expected)
{
    if (!(fabs(value - expected) <= 0.01 * fabs(expected))) {
        fail_msg("%.4f is not within 1 %% of %.4f", value, expected);
    }
}

static void check(const struct espl_energy_figure *figure, double gross_w, double idle_w)
{
    if (figure->state != ESPL_FIGURE_OK) {
        fail_msg("%s", figure->why);
    }
    assert_within_percent(figure->gross_j, gross_w * run_s);
    assert_within_percent(figure->idle_w, idle_w);
    assert_within_percent(figure->net_j, (gross_w - idle_w) * run_s);
    assert_true(figure->samples >= 100);
    assert_true(figure->net_error_j > 0.0);
}

static void test_agx_orin(void **state)
{
    (void)state;
    struct energy_wave wave = {.period_s = period_s};
    struct espl_energy_result result;
    energy_put_agx_orin(test_folder, 4);
    energy_wave_add(&wave, test_folder, HWMON "4/curr1_input", 500, 3500); /* at 12 V */
    energy_wave_add(&wave, test_folder, HWMON "4/curr2_input", 200, 400);
    energy_wave_add(&wave, test_folder, HWMON "4/curr3_input", 300, 300);
    /* A child of VIN_SYS_5V0: must not be counted. */
    energy_wave_add(&wave, test_folder, HWMON "5/curr2_input", 5000, 9000);
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    energy_play(&wave, meter, &result);
    /* Idle (500 + 200 + 300) mA x 12 V; run (2000 + 300 + 300) mA x 12 V in the mean. */
    check(&result.totals[0], 31.2, 12.0);
    check(&result.rails[energy_rail(meter, "VDD_GPU_SOC")], 24.0, 6.0);
    /* 1.2 W net are five steps of 0.24 W; 0 W are none. */
    check(&result.rails[energy_rail(meter, "VDD_CPU_CV")], 3.6, 2.4);
    const struct espl_energy_figure *flat = &result.rails[energy_rail(meter, "VIN_SYS_5V0")];
    assert_int_equal(flat->state, ESPL_FIGURE_GROSS);
    assert_within_percent(flat->gross_j, 3.6 * run_s);
    assert_true(isnan(flat->net_j));
    espl_energy_close(meter);
}

static void test_orin_nx(void **state)
{
    (void)state;
    struct energy_wave wave = {.period_s = period_s};
    struct espl_energy_result result;
    energy_put_orin_nx(test_folder, 1);
    energy_wave_add(&wave, test_folder, HWMON "1/curr1_input", 1000, 4000); /* at 5 V */
    energy_wave_add(&wave, test_folder, HWMON "1/curr2_input", 500, 2500);
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    energy_play(&wave, meter, &result);
    check(&result.totals[0], 12.5, 5.0);
    espl_energy_close(meter);
}

static void test_thor_with_negative_power(void **state)
{
    (void)state;
    struct energy_wave wave = {.period_s = period_s};
    struct espl_energy_result result;
    energy_put_thor(test_folder);
    /* The GPU rail of an idle board has been seen at -392 mW: the sign is kept. */
    energy_wave_add(&wave, test_folder, HWMON "2/curr1_input", -100, 3900);
    energy_wave_add(&wave, test_folder, HWMON "4/power1_input", 20000000, 80000000); /* uW */
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    energy_play(&wave, meter, &result);
    check(&result.totals[0], 50.0, 20.0);
    check(&result.rails[energy_rail(meter, "VDD_GPU")], 22.8, -1.2);
    /* Two rails stay at 1 A and 12 V. */
    check(&result.totals[1], 22.8 + 24.0, -1.2 + 24.0);
    espl_energy_close(meter);
}

static void test_jetpack4(void **state)
{
    (void)state;
    struct energy_wave wave = {.period_s = period_s};
    struct espl_energy_result result;
    energy_put_jetpack4(test_folder);
    energy_wave_add(&wave, test_folder,
                    "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0/in_power0_input", 2000, 8000);
    struct espl_energy_meter *meter = energy_open(test_folder, "ina3221");
    energy_play(&wave, meter, &result);
    check(&result.totals[0], 5.0, 2.0);
    espl_energy_close(meter);
}

static void nap(double seconds)
{
    const struct timespec pause = {(time_t)seconds, (long)(fmod(seconds, 1.0) * 1e9)};
    (void)nanosleep(&pause, NULL);
}

/* Writes the wave until a time, against the clock of the meter. */
static void play_until(const struct energy_wave *wave, bool in_run, int64_t begin_ns,
                       double seconds)
{
    for (double t = 0.0; t < seconds; t = (double)(espl_energy_now() - begin_ns) * 1e-9) {
        energy_wave_write(wave, in_run ? t : -1.0);
        nap(0.005);
    }
}

/* The sampling thread at its usual 50 ms, in real time. Figures may be refused when the machine is
 * so busy that readings are late, which is what shall happen then; it gets three tries. */
static void test_thread_in_real_time(void **state)
{
    (void)state;
    struct energy_wave wave = {.period_s = 2.0};
    struct espl_energy_result result = {0};
    const struct espl_energy_options options = {.meter = "ina3221", .root = test_folder};
    struct espl_energy_meter *meter = NULL;
    energy_put_orin_nx(test_folder, 1);
    energy_wave_add(&wave, test_folder, HWMON "1/curr1_input", 1000, 4000); /* at 5 V */
    assert_int_equal(espl_energy_open(&options, &meter, NULL), ESPL_OK);
    result.totals[0].state = ESPL_FIGURE_UNRESOLVED;
    for (int tries = 0; tries < 3 && result.totals[0].state != ESPL_FIGURE_OK; tries++) {
        struct espl_energy_windows windows;
        energy_wave_write(&wave, -1.0);
        assert_int_equal(espl_energy_start(meter, NULL), ESPL_OK);
        nap(0.1);
        windows.idle_before.begin_ns = espl_energy_now();
        nap(1.4);
        windows.idle_before.end_ns = espl_energy_now();
        windows.run.begin_ns = windows.idle_before.end_ns;
        windows.run.end_ns = windows.run.begin_ns + (int64_t)6 * 1000000000;
        play_until(&wave, true, windows.run.begin_ns, 6.0);
        energy_wave_write(&wave, -1.0);
        nap(0.2);
        windows.idle_after.begin_ns = espl_energy_now();
        nap(1.4);
        windows.idle_after.end_ns = espl_energy_now();
        espl_energy_stop(meter);
        assert_int_equal(espl_energy_measure(meter, &windows, &result, NULL), ESPL_OK);
    }
    assert_int_equal(result.totals[0].state, ESPL_FIGURE_OK);
    assert_within_percent(result.totals[0].gross_j, 12.5 * 6.0);
    assert_within_percent(result.totals[0].idle_w, 5.0);
    espl_energy_close(meter);
}

#define IN_FOLDER(test) \
    cmocka_unit_test_setup_teardown(test, test_folder_set_up, test_folder_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_agx_orin),
        IN_FOLDER(test_orin_nx),
        IN_FOLDER(test_thor_with_negative_power),
        IN_FOLDER(test_jetpack4),
        IN_FOLDER(test_thread_in_real_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
