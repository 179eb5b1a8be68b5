#include "eval/energy/energy_integral.h"

#include <math.h>
#include <string.h>

static double seconds_of(int64_t ns)
{
    return (double)ns * 1e-9;
}

/* Index of the first sample at or after `time_ns`; count when there is none. */
static size_t first_at(const struct espl_energy_series *series, int64_t time_ns)
{
    size_t low = 0;
    size_t high = series->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (series->samples[middle].time_ns < time_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Value at an edge of a window, between the two samples around it. Outside the series its outermost
 * value is held: the caller has checked that it is at most a gap away. */
static double value_at(const struct espl_energy_series *series, int64_t time_ns)
{
    const struct espl_energy_sample *samples = series->samples;
    const size_t right = first_at(series, time_ns);
    if (right == 0) {
        return samples[0].value;
    }
    if (right == series->count) {
        return samples[series->count - 1].value;
    }
    const struct espl_energy_sample *a = &samples[right - 1];
    const struct espl_energy_sample *b = &samples[right];
    const double share = (double)(time_ns - a->time_ns) / (double)(b->time_ns - a->time_ns);
    return a->value + share * (b->value - a->value);
}

static enum espl_status check_cover(const struct espl_energy_series *series,
                                    struct espl_energy_window window, struct espl_error *err)
{
    const int64_t reach = ESPL_ENERGY_GAP_TICKS * series->interval_ns;
    if (window.end_ns <= window.begin_ns) {
        return espl_fail(err, ESPL_E_NUMERIC, "the window has no length");
    }
    if (series->count == 0) {
        return espl_fail(err, ESPL_E_NUMERIC, "no readings");
    }
    const int64_t first = series->samples[0].time_ns;
    const int64_t last = series->samples[series->count - 1].time_ns;
    if (first - window.begin_ns > reach) {
        return espl_fail(err, ESPL_E_NUMERIC, "readings begin %.3f s after the window",
                         seconds_of(first - window.begin_ns));
    }
    if (window.end_ns - last > reach) {
        return espl_fail(err, ESPL_E_NUMERIC, "readings end %.3f s before the window does",
                         seconds_of(window.end_ns - last));
    }
    return ESPL_OK;
}

/* What one pass over a window collects. */
struct pass {
    double area;          /* value x s */
    double mean, squares; /* of the samples: running mean, sum of squared deviations */
    double lowest, highest, least_change;
    double missing_s; /* time inside gaps */
};

/* Adds the stretch from (*time, *value) to (to, end). */
static void add_stretch(const struct espl_energy_series *series, struct espl_energy_sum *sum,
                        struct pass *pass, struct espl_energy_sample *from,
                        struct espl_energy_sample to)
{
    const int64_t length = to.time_ns - from->time_ns;
    pass->area += seconds_of(length) * 0.5 * (from->value + to.value);
    if (length > ESPL_ENERGY_GAP_TICKS * series->interval_ns) {
        sum->gaps++;
        sum->longest_gap_s = fmax(sum->longest_gap_s, seconds_of(length));
        pass->missing_s += seconds_of(length);
    }
    *from = to;
}

static void add_sample(struct espl_energy_sum *sum, struct pass *pass, double value, double before)
{
    const double change = fabs(value - before);
    sum->samples++;
    if (change > 0.0) {
        sum->distinct++;
        pass->least_change = fmin(pass->least_change, change);
    }
    const double delta = value - pass->mean;
    pass->mean += delta / (double)sum->samples;
    pass->squares += delta * (value - pass->mean);
    pass->lowest = fmin(pass->lowest, value);
    pass->highest = fmax(pass->highest, value);
}

/* Uncertainty of a mean power. The readings' spread counts as noise (a periodic load that the
 * sensor samples at unlucky moments looks like that); rounding is taken as fully correlated,
 * because a constant load is rounded the same way every time; inside a gap any value seen in the
 * window is possible. */
static void finish_power(const struct espl_energy_series *series, struct espl_energy_sum *sum,
                         const struct pass *pass)
{
    const double n = (double)sum->samples;
    sum->joules = pass->area;
    sum->mean_w = pass->area / sum->seconds;
    sum->step_w = series->step_w > 0.0           ? series->step_w
                  : isfinite(pass->least_change) ? pass->least_change
                                                 : 0.0;
    const double spread = n > 1.0 ? sqrt(pass->squares / (n - 1.0) / n) : 0.0;
    const double rounding = sum->step_w / sqrt(12.0);
    const double unseen =
        n > 0.0 ? pass->missing_s / sum->seconds * (pass->highest - pass->lowest) / sqrt(12.0)
                : 0.0;
    sum->error_w = sqrt(spread * spread + rounding * rounding + unseen * unseen);
}

/* A counter is read between two of its updates, so each edge may lack up to one update: uniform,
 * and independent for the two. */
static void finish_counter(const struct espl_energy_series *series,
                           struct espl_energy_window window, struct espl_energy_sum *sum)
{
    sum->joules = value_at(series, window.end_ns) - value_at(series, window.begin_ns);
    sum->mean_w = sum->joules / sum->seconds;
    sum->step_w = sum->distinct > 0 ? sum->mean_w / (double)sum->distinct : 0.0;
    sum->error_w = sum->step_w * sqrt(2.0 / 12.0);
}

enum espl_status espl_energy_sum_window(const struct espl_energy_series *series,
                                        struct espl_energy_window window,
                                        struct espl_energy_sum *sum, struct espl_error *err)
{
    memset(sum, 0, sizeof *sum);
    const enum espl_status status = check_cover(series, window, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct pass pass = {.lowest = INFINITY, .highest = -INFINITY, .least_change = INFINITY};
    struct espl_energy_sample at = {window.begin_ns, value_at(series, window.begin_ns)};
    size_t i = first_at(series, window.begin_ns);
    sum->seconds = seconds_of(window.end_ns - window.begin_ns);
    for (; i < series->count && series->samples[i].time_ns <= window.end_ns; i++) {
        const struct espl_energy_sample *sample = &series->samples[i];
        const double before = i > 0 ? series->samples[i - 1].value : sample->value;
        add_stretch(series, sum, &pass, &at, *sample);
        add_sample(sum, &pass, sample->value, before);
    }
    const struct espl_energy_sample end = {window.end_ns, value_at(series, window.end_ns)};
    add_stretch(series, sum, &pass, &at, end);
    if (pass.missing_s > ESPL_ENERGY_MAX_GAP_SHARE * sum->seconds) {
        return espl_fail(err, ESPL_E_NUMERIC,
                         "%zu gaps, the longest %.3f s, take %.0f %% of the "
                         "window",
                         sum->gaps, sum->longest_gap_s, 100.0 * pass.missing_s / sum->seconds);
    }
    if (series->counter) {
        finish_counter(series, window, sum);
    } else {
        finish_power(series, sum, &pass);
    }
    if (!isfinite(sum->joules) || !isfinite(sum->error_w)) {
        return espl_fail(err, ESPL_E_NUMERIC, "a reading is not a finite number");
    }
    return ESPL_OK;
}
