/* The numerics, with figures worked by hand. */
#include "eval/energy/energy_integral.h"
#include "support/cmocka_all.h"

#include <math.h>
#include <string.h>

#define MS   ((int64_t)1000000)
#define NEAR 1e-9 /* rounding of sums of a few hundred doubles */

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance)) {
        fail_msg("%.12g is not %.12g", value, expected);
    }
}

enum { MANY = 1200 };
static struct espl_energy_sample samples[MANY];

/* Samples every `step_ms` from 0 with these values. */
static struct espl_energy_series series_of(size_t count, int64_t step_ms, double (*value)(size_t i))
{
    for (size_t i = 0; i < count; i++) {
        samples[i] = (struct espl_energy_sample){(int64_t)i * step_ms * MS, value(i)};
    }
    return (struct espl_energy_series){
        .samples = samples, .count = count, .interval_ns = step_ms * MS};
}

static double ramp(size_t i)
{
    return (double)i;
}

static double ten(size_t i)
{
    (void)i;
    return 10.0;
}

/* 2 W idle, 12 W from sample 100 to 899, 4 W idle; a small ripple, so that readings differ. */
static double pulse(size_t i)
{
    const double ripple = i % 2 == 0 ? 0.01 : -0.01;
    return ripple + (i < 100 ? 2.0 : i < 900 ? 12.0 : 4.0);
}

static double counter_10w(size_t i)
{
    return 0.1 * (double)i; /* J, every 10 ms: 10 W */
}

static void test_sum_window__interpolates_at_its_edges(void **state)
{
    (void)state;
    struct espl_energy_sum sum;
    struct espl_error err = {0};
    const struct espl_energy_series series = series_of(11, 100, ramp); /* 10 W a second */
    /* From 0.25 s (2.5 W) to 0.65 s (6.5 W): 0.4 s x 4.5 W. */
    const struct espl_energy_window window = {250 * MS, 650 * MS};
    assert_int_equal(espl_energy_sum_window(&series, window, &sum, &err), ESPL_OK);
    assert_near(sum.joules, 1.8, NEAR);
    assert_near(sum.seconds, 0.4, NEAR);
    assert_near(sum.mean_w, 4.5, NEAR);
    assert_int_equal(sum.samples, 4);
    assert_int_equal(sum.distinct, 4);
    assert_int_equal(sum.gaps, 0);
}

static void test_sum_window__uses_the_real_time_stamps(void **state)
{
    (void)state;
    struct espl_energy_sum sum;
    /* 10 W for 1 s, then 20 W: readings at 0, 0.9, 1.0, 1.3 s. Trapezoids: 9 + 1.5 + 6 = 16.5 J;
     * readings taken as even would give 3 x 0.433 x 15 = 21.7 J at best. */
    struct espl_energy_sample uneven[] = {
        {0, 10.0}, {900 * MS, 10.0}, {1000 * MS, 20.0}, {1300 * MS, 20.0}};
    const struct espl_energy_series series = {
        .samples = uneven, .count = 4, .interval_ns = 400 * MS};
    const struct espl_energy_window window = {0, 1300 * MS};
    assert_int_equal(espl_energy_sum_window(&series, window, &sum, NULL), ESPL_OK);
    assert_near(sum.joules, 16.5, NEAR);
}

static void test_sum_window__flags_gaps_and_refuses_long_ones(void **state)
{
    (void)state;
    struct espl_energy_sum sum;
    struct espl_error err = {0};
    struct espl_energy_series series = series_of(1001, 10, ten);
    /* 40 ms without readings in 10 s: flagged, and counted in the uncertainty. */
    memmove(&samples[500], &samples[504], 497 * sizeof samples[0]);
    series.count -= 4;
    const struct espl_energy_window window = {0, 10000 * MS};
    assert_int_equal(espl_energy_sum_window(&series, window, &sum, &err), ESPL_OK);
    assert_int_equal(sum.gaps, 1);
    assert_near(sum.longest_gap_s, 0.05, NEAR);
    assert_near(sum.joules, 100.0, NEAR);
    /* The same gap is 10 % of a window of 0.5 s. */
    const struct espl_energy_window narrow = {4700 * MS, 5200 * MS};
    assert_int_equal(espl_energy_sum_window(&series, narrow, &sum, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "1 gaps, the longest 0.050 s"));
}

static void test_sum_window__refuses_what_is_not_covered(void **state)
{
    (void)state;
    struct espl_energy_sum sum;
    struct espl_error err = {0};
    const struct espl_energy_series series = series_of(101, 10, ten); /* 0 to 1 s */
    const struct espl_energy_window late = {500 * MS, 1031 * MS};
    const struct espl_energy_window early = {-31 * MS, 500 * MS};
    const struct espl_energy_window just = {-30 * MS, 1030 * MS};
    const struct espl_energy_window empty = {5 * MS, 5 * MS};
    assert_int_equal(espl_energy_sum_window(&series, late, &sum, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "readings end 0.031 s before the window does"));
    assert_int_equal(espl_energy_sum_window(&series, early, &sum, &err), ESPL_E_NUMERIC);
    assert_non_null(strstr(err.message, "readings begin 0.031 s after the window"));
    assert_int_equal(espl_energy_sum_window(&series, just, &sum, &err), ESPL_OK);
    assert_near(sum.joules, 10.6, NEAR);
    assert_int_equal(espl_energy_sum_window(&series, empty, &sum, &err), ESPL_E_NUMERIC);
}

static void test_sum_window__refuses_what_is_not_finite(void **state)
{
    (void)state;
    struct espl_energy_sum sum;
    const struct espl_energy_series series = series_of(101, 10, ten);
    samples[50].value = INFINITY;
    const struct espl_energy_window window = {0, 1000 * MS};
    assert_int_equal(espl_energy_sum_window(&series, window, &sum, NULL), ESPL_E_NUMERIC);
}

static void test_figure__subtracts_the_mean_of_both_idle_windows(void **state)
{
    (void)state;
    struct espl_energy_figure figure;
    const struct espl_energy_series series = series_of(1000, 10, pulse);
    const struct espl_energy_windows windows = {
        {0, 980 * MS}, {1100 * MS, 8100 * MS}, {9020 * MS, 9980 * MS}};
    espl_energy_figure_of(&series, 1, &windows, &figure);
    assert_int_equal(figure.state, ESPL_FIGURE_OK);
    assert_string_equal(figure.why, "");
    /* 12 W x 7 s; idle (2 + 4) / 2. The ripple adds at most one reading's worth, 0.1 mJ. */
    assert_near(figure.gross_j, 84.0, 1e-3);
    assert_near(figure.idle_w, 3.0, 1e-3);
    assert_near(figure.idle_drift_w, 2.0, 1e-3);
    assert_near(figure.net_j, 63.0, 1e-2);
    assert_int_equal(figure.samples, 701);
    /* The drift rules: 2 W / sqrt(12) x 7 s = 4.04 J; ripple and its step (0.02 W) are below 1 %.
     */
    assert_near(figure.net_error_j, 7.0 * 2.0 / sqrt(12.0), 0.01);
    /* Gross: step 0.02 W / sqrt(12), and a spread of 0.01 W / sqrt(701). */
    assert_near(figure.gross_error_j, 7.0 * sqrt(0.02 * 0.02 / 12.0 + 0.01 * 0.01 / 701.0), 1e-4);
}

static void test_figure__adds_rails_and_their_errors(void **state)
{
    (void)state;
    struct espl_energy_figure one;
    struct espl_energy_figure two;
    struct espl_energy_series series[2];
    series[0] = series_of(1000, 10, pulse);
    series[0].step_w = 0.24;
    series[1] = series[0];
    const struct espl_energy_windows windows = {
        {0, 980 * MS}, {1100 * MS, 8100 * MS}, {9020 * MS, 9980 * MS}};
    espl_energy_figure_of(series, 1, &windows, &one);
    espl_energy_figure_of(series, 2, &windows, &two);
    assert_int_equal(two.state, ESPL_FIGURE_OK);
    assert_near(two.gross_j, 2.0 * one.gross_j, NEAR);
    assert_near(two.net_j, 2.0 * one.net_j, NEAR);
    assert_near(two.gross_error_j, sqrt(2.0) * one.gross_error_j, NEAR);
}

static void test_figure__is_not_resolvable_below_three_steps(void **state)
{
    (void)state;
    struct espl_energy_figure figure;
    struct espl_energy_series series = series_of(1000, 10, pulse);
    series.step_w = 3.1; /* net power is 9 W */
    const struct espl_energy_windows windows = {
        {0, 980 * MS}, {1100 * MS, 8100 * MS}, {9020 * MS, 9980 * MS}};
    espl_energy_figure_of(&series, 1, &windows, &figure);
    assert_int_equal(figure.state, ESPL_FIGURE_GROSS);
    assert_near(figure.gross_j, 84.0, 1e-3);
    assert_true(isnan(figure.net_j) && isnan(figure.net_error_j));
    assert_non_null(strstr(figure.why, "not resolvable: net power 9.0"));
    series.step_w = 2.9;
    espl_energy_figure_of(&series, 1, &windows, &figure);
    assert_int_equal(figure.state, ESPL_FIGURE_OK);
}

static void test_figure__is_not_resolvable_below_a_hundred_readings(void **state)
{
    (void)state;
    struct espl_energy_figure figure;
    const struct espl_energy_series series = series_of(1000, 10, pulse);
    const struct espl_energy_windows windows = {
        {0, 980 * MS}, {2005 * MS, 2994 * MS}, {9020 * MS, 9980 * MS}};
    espl_energy_figure_of(&series, 1, &windows, &figure);
    assert_int_equal(figure.state, ESPL_FIGURE_UNRESOLVED);
    assert_true(isnan(figure.gross_j) && isnan(figure.net_j) && isnan(figure.mean_w));
    assert_non_null(strstr(figure.why, "99 readings in the run, at least 100"));
}

static void test_figure__without_idle_is_gross_only(void **state)
{
    (void)state;
    struct espl_energy_figure figure;
    const struct espl_energy_series series = series_of(1000, 10, pulse);
    struct espl_energy_windows windows = {{0, 0}, {1100 * MS, 8100 * MS}, {0, 0}};
    espl_energy_figure_of(&series, 1, &windows, &figure);
    assert_int_equal(figure.state, ESPL_FIGURE_GROSS);
    assert_string_equal(figure.why, "no idle window was measured");
    windows.idle_before = (struct espl_energy_window){0, 180 * MS};
    espl_energy_figure_of(&series, 1, &windows, &figure);
    assert_int_equal(figure.state, ESPL_FIGURE_GROSS);
    assert_non_null(strstr(figure.why, "idle window before the run has 19 readings"));
}

static void test_figure__takes_differences_of_a_counter(void **state)
{
    (void)state;
    struct espl_energy_figure figure;
    struct espl_energy_series series = series_of(1000, 10, counter_10w);
    const struct espl_energy_windows windows = {{0, 0}, {1005 * MS, 6005 * MS}, {0, 0}};
    series.counter = true;
    espl_energy_figure_of(&series, 1, &windows, &figure);
    assert_int_equal(figure.state, ESPL_FIGURE_GROSS);
    assert_near(figure.gross_j, 50.0, NEAR);
    /* Each edge may lack one update of 0.1 J. */
    assert_near(figure.gross_error_j, 0.1 * sqrt(2.0 / 12.0), 1e-6);
    /* A counter that stands still has no updates, however often it is read. */
    series = series_of(1000, 10, ten);
    series.counter = true;
    espl_energy_figure_of(&series, 1, &windows, &figure);
    assert_int_equal(figure.state, ESPL_FIGURE_UNRESOLVED);
    assert_non_null(strstr(figure.why, "0 updates of the counter"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sum_window__interpolates_at_its_edges),
        cmocka_unit_test(test_sum_window__uses_the_real_time_stamps),
        cmocka_unit_test(test_sum_window__flags_gaps_and_refuses_long_ones),
        cmocka_unit_test(test_sum_window__refuses_what_is_not_covered),
        cmocka_unit_test(test_sum_window__refuses_what_is_not_finite),
        cmocka_unit_test(test_figure__subtracts_the_mean_of_both_idle_windows),
        cmocka_unit_test(test_figure__adds_rails_and_their_errors),
        cmocka_unit_test(test_figure__is_not_resolvable_below_three_steps),
        cmocka_unit_test(test_figure__is_not_resolvable_below_a_hundred_readings),
        cmocka_unit_test(test_figure__without_idle_is_gross_only),
        cmocka_unit_test(test_figure__takes_differences_of_a_counter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
