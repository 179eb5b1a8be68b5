/* Faults while sampling: none may give a wrong number, and none may hang the caller. The sensor is
 * a driver of the test's own, so that each fault comes exactly when it is wanted. */
#include "eval/energy/meter_internal.h"
#include "support/cmocka_all.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum fault { NO_FAULT, FAULT_IO, FAULT_NAN, FAULT_STALL, FAULT_SLOW };

/* One sensor of two rails at 10 W each; the first can be made to fail. Shared with the sampling
 * thread, which may outlive the meter. */
static struct {
    _Atomic int fault;
    atomic_bool let_go; /* ends a stall */
    atomic_int closed;
} sensor;

static void nap_ms(long ms)
{
    const struct timespec pause = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&pause, NULL);
}

static enum espl_status find(struct espl_energy_meter *meter,
                             const struct espl_energy_options *options, struct espl_error *err)
{
    (void)options;
    assert_non_null(espl_energy_add_chip(meter, NULL, err));
    for (size_t i = 0; i < 2; i++) {
        struct espl_energy_rail *rail = espl_energy_add_rail(meter, err);
        assert_non_null(rail);
        (void)snprintf(rail->name, sizeof rail->name, "rail %zu", i);
        rail->series.step_w = 0.1;
    }
    return ESPL_OK;
}

static enum espl_rail_state read_rail(struct espl_energy_chip *chip, size_t rail, double *watts,
                                      int *sys_errno)
{
    (void)chip;
    const int fault = rail == 0 ? atomic_load(&sensor.fault) : NO_FAULT;
    *watts = 10.0;
    switch (fault) {
    case FAULT_IO:
        *watts = 1e6; /* must not be looked at */
        *sys_errno = EIO;
        return ESPL_RAIL_UNREADABLE;
    case FAULT_NAN:
        *watts = NAN;
        return ESPL_RAIL_OK;
    case FAULT_SLOW:
        nap_ms(8);
        return ESPL_RAIL_OK;
    case FAULT_STALL:
        while (!atomic_load(&sensor.let_go)) {
            nap_ms(1);
        }
        return ESPL_RAIL_OK;
    default:
        return ESPL_RAIL_OK;
    }
}

static void close_chip(struct espl_energy_chip *chip)
{
    (void)chip;
    atomic_fetch_add(&sensor.closed, 1);
}

static void choose_totals(struct espl_energy_meter *meter)
{
    struct espl_energy_total *total = &meter->totals[meter->total_count++];
    total->rails[0] = 0;
    total->rails[1] = 1;
    total->rail_count = 2;
}

static const struct espl_energy_driver driver = {
    .name = "fake",
    .find = find,
    .read = read_rail,
    .close_chip = close_chip,
    .choose_totals = choose_totals,
};

static int set_up(void **state)
{
    (void)state;
    atomic_store(&sensor.fault, NO_FAULT);
    atomic_store(&sensor.let_go, false);
    atomic_store(&sensor.closed, 0);
    return 0;
}

static enum espl_status open_fake(struct espl_energy_meter **meter, struct espl_error *err)
{
    const struct espl_energy_options options = {.interval_s = 0.01, .stall_s = 0.5};
    return espl_energy_open_driver(&driver, &options, meter, err);
}

static int64_t played_ns;

static int64_t played_time(void)
{
    return played_ns;
}

/* Idle 1 s, run 2 s, idle 1 s, by hand and with a clock of the test's own; the fault holds for
 * `fault_ticks` of the run's 200. */
static void play(struct espl_energy_meter *meter, enum fault fault, int fault_ticks,
                 struct espl_energy_result *result)
{
    const int64_t tick = 10000000;
    const struct espl_energy_windows windows = {
        {0, 100 * tick}, {100 * tick, 300 * tick}, {300 * tick, 400 * tick}};
    meter->chips[0]->now = played_time;
    for (int i = 0; i <= 400; i++) {
        played_ns = i * tick;
        atomic_store(&sensor.fault, i >= 150 && i < 150 + fault_ticks ? (int)fault : NO_FAULT);
        assert_true(espl_energy_sample_round(meter->chips[0]));
    }
    assert_int_equal(espl_energy_measure(meter, &windows, result, NULL), ESPL_OK);
}

/* In real time, by the thread: a second in, the sensor stalls. */
static void run_into_stall(struct espl_energy_meter *meter, struct espl_energy_result *result)
{
    struct espl_energy_windows windows = {{0, 0}, {0, 0}, {0, 0}};
    assert_int_equal(espl_energy_start(meter, NULL), ESPL_OK);
    nap_ms(20);
    windows.run.begin_ns = espl_energy_now();
    nap_ms(1000);
    atomic_store(&sensor.fault, FAULT_STALL);
    nap_ms(500);
    windows.run.end_ns = espl_energy_now();
    espl_energy_stop(meter);
    assert_int_equal(espl_energy_measure(meter, &windows, result, NULL), ESPL_OK);
}

static void assert_no_number(const struct espl_energy_figure *figure, const char *why)
{
    assert_int_equal(figure->state, ESPL_FIGURE_UNRESOLVED);
    assert_true(isnan(figure->gross_j) && isnan(figure->net_j) && isnan(figure->mean_w));
    if (strstr(figure->why, why) == NULL) {
        fail_msg("'%s' does not say '%s'", figure->why, why);
    }
}

static void test_failed_reads__leave_a_gap_and_no_number(void **state)
{
    (void)state;
    static const enum fault faults[] = {FAULT_IO, FAULT_NAN};
    static const char *const says[] = {"'rail 0': ", "not a valid value"};
    for (size_t i = 0; i < 2; i++) {
        struct espl_energy_meter *meter = NULL;
        struct espl_energy_result result;
        assert_int_equal(open_fake(&meter, NULL), ESPL_OK);
        play(meter, faults[i], 50, &result);
        assert_no_number(&result.rails[0], says[i]);
        assert_no_number(&result.totals[0], "gaps");
        assert_int_equal(result.rails[1].state, ESPL_FIGURE_GROSS); /* 10 W, idle 10 W */
        assert_true(fabs(result.rails[1].mean_w - 10.0) < 1e-9);
        const struct espl_energy_rail *rail = espl_energy_rail_at(meter, 0);
        assert_int_equal(rail->state, ESPL_RAIL_OK); /* it came back */
        assert_int_equal(rail->failures, 50);
        assert_int_equal(rail->last_failure, i == 0 ? ESPL_RAIL_UNREADABLE : ESPL_RAIL_BAD_VALUE);
        espl_energy_close(meter);
        assert_int_equal(atomic_load(&sensor.closed), (int)i + 1);
    }
}

static void test_few_failed_reads__are_counted_and_bridged(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    struct espl_energy_result result;
    assert_int_equal(open_fake(&meter, NULL), ESPL_OK);
    play(meter, FAULT_IO, 5, &result); /* 60 ms between readings: a gap of 3 % */
    assert_int_equal(result.rails[0].state, ESPL_FIGURE_GROSS);
    assert_int_equal(result.rails[0].gaps, 1);
    assert_true(fabs(result.rails[0].longest_gap_s - 0.06) < 1e-9);
    assert_true(fabs(result.rails[0].gross_j - 20.0) < 1e-9);
    assert_int_equal(espl_energy_rail_at(meter, 0)->failures, 5);
    espl_energy_close(meter);
}

static void test_stalled_read__is_given_up_and_spoils_its_rail(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    struct espl_energy_result result;
    assert_int_equal(open_fake(&meter, NULL), ESPL_OK);
    const int64_t before = espl_energy_now();
    run_into_stall(meter, &result);
    assert_true(espl_energy_now() - before < (int64_t)10 * 1000000000);
    assert_int_equal(espl_energy_rail_at(meter, 0)->state, ESPL_RAIL_STALLED);
    assert_no_number(&result.rails[0], "rail 'rail 0' is stalled");
    assert_no_number(&result.totals[0], "rail 'rail 0' is stalled");
    assert_no_number(&result.rails[1], "readings end"); /* read by the same thread */
    /* The meter can be used on: the chip is out. */
    assert_int_equal(espl_energy_start(meter, NULL), ESPL_OK);
    espl_energy_stop(meter);
    espl_energy_close(meter);
    assert_int_equal(atomic_load(&sensor.closed), 0); /* its thread still holds it */
    atomic_store(&sensor.let_go, true);
    for (int i = 0; i < 2000 && atomic_load(&sensor.closed) == 0; i++) {
        nap_ms(1);
    }
    assert_int_equal(atomic_load(&sensor.closed), 1); /* and lets go of it */
}

static void test_stalled_read__at_opening_refuses_the_meter(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    struct espl_error err = {0};
    atomic_store(&sensor.fault, FAULT_STALL);
    assert_int_equal(open_fake(&meter, &err), ESPL_E_MACHINE);
    assert_string_equal(err.message, "no rail can be read; 'rail 0': stalled");
    assert_null(meter);
    atomic_store(&sensor.let_go, true);
    for (int i = 0; i < 2000 && atomic_load(&sensor.closed) == 0; i++) {
        nap_ms(1);
    }
    assert_int_equal(atomic_load(&sensor.closed), 1);
}

static void test_slow_sensor__gets_a_longer_interval(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    atomic_store(&sensor.fault, FAULT_SLOW);
    assert_int_equal(open_fake(&meter, NULL), ESPL_OK);
    assert_true(espl_energy_rail_at(meter, 0)->read_cost_s >= 0.008);
    assert_true(espl_energy_interval(meter) >= 0.016);
    assert_non_null(strstr(espl_energy_note(meter), "instead of 10 ms"));
    espl_energy_close(meter);
}

static void test_sampling__can_be_repeated_and_closed_midway(void **state)
{
    (void)state;
    struct espl_energy_meter *meter = NULL;
    assert_int_equal(open_fake(&meter, NULL), ESPL_OK);
    for (int i = 0; i < 2; i++) {
        const int64_t before = espl_energy_now();
        assert_int_equal(espl_energy_start(meter, NULL), ESPL_OK);
        assert_int_equal(espl_energy_start(meter, NULL), ESPL_E_USAGE);
        nap_ms(300);
        espl_energy_stop(meter);
        espl_energy_stop(meter);
        const size_t most = (size_t)((espl_energy_now() - before) / 10000000) + 2;
        const struct espl_energy_series *series = &espl_energy_rail_at(meter, 1)->series;
        assert_true(series->count > 0 && series->count <= most);
        assert_true(series->samples[0].time_ns >= before); /* those of before are dropped */
    }
    assert_int_equal(espl_energy_start(meter, NULL), ESPL_OK);
    espl_energy_close(meter);
    espl_energy_close(NULL);
    assert_int_equal(atomic_load(&sensor.closed), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_failed_reads__leave_a_gap_and_no_number, set_up),
        cmocka_unit_test_setup(test_few_failed_reads__are_counted_and_bridged, set_up),
        cmocka_unit_test_setup(test_stalled_read__is_given_up_and_spoils_its_rail, set_up),
        cmocka_unit_test_setup(test_stalled_read__at_opening_refuses_the_meter, set_up),
        cmocka_unit_test_setup(test_slow_sensor__gets_a_longer_interval, set_up),
        cmocka_unit_test_setup(test_sampling__can_be_repeated_and_closed_midway, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
