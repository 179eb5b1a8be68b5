/* From the sums of windows to the figures that are reported: gross, net, uncertainty, refusals. */
#include "eval/energy/energy_integral.h"

#include <math.h>
#include <stdio.h>

/* The three windows of all series added up. */
struct added {
    double run_j, run_error2, step2;  /* J, W^2, W^2 */
    double idle_w[2], idle_error2[2]; /* before, after: W, W^2 */
    bool has_idle[2];
};

static void refuse(struct espl_energy_figure *figure, enum espl_figure_state state, const char *why)
{
    figure->state = state;
    (void)snprintf(figure->why, sizeof figure->why, "%.*s", (int)sizeof figure->why - 1, why);
    figure->net_j = NAN;
    figure->net_error_j = NAN;
    if (state == ESPL_FIGURE_UNRESOLVED) {
        figure->mean_w = NAN;
        figure->gross_j = NAN;
        figure->gross_error_j = NAN;
        figure->idle_w = NAN;
        figure->idle_drift_w = NAN;
    }
}

static enum espl_status add_run(const struct espl_energy_series *series,
                                struct espl_energy_window window, struct added *added,
                                struct espl_energy_figure *figure, struct espl_error *err)
{
    struct espl_energy_sum sum;
    const enum espl_status status = espl_energy_sum_window(series, window, &sum, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t useful = series->counter ? sum.distinct : sum.samples;
    if (useful < ESPL_ENERGY_MIN_SAMPLES) {
        return espl_fail(err, ESPL_E_NUMERIC,
                         "not resolvable: %zu %s in the run, at least %d are "
                         "needed",
                         useful, series->counter ? "updates of the counter" : "readings",
                         ESPL_ENERGY_MIN_SAMPLES);
    }
    added->run_j += sum.joules;
    added->run_error2 += sum.error_w * sum.error_w;
    added->step2 += sum.step_w * sum.step_w;
    figure->seconds = sum.seconds;
    figure->samples = sum.samples < figure->samples ? sum.samples : figure->samples;
    figure->distinct = sum.distinct < figure->distinct ? sum.distinct : figure->distinct;
    figure->gaps += sum.gaps;
    figure->longest_gap_s = fmax(figure->longest_gap_s, sum.longest_gap_s);
    return ESPL_OK;
}

static enum espl_status add_idle(const struct espl_energy_series *series,
                                 struct espl_energy_window window, size_t which,
                                 struct added *added, struct espl_error *err)
{
    struct espl_energy_sum sum;
    if (window.begin_ns == window.end_ns) {
        return ESPL_OK;
    }
    const enum espl_status status = espl_energy_sum_window(series, window, &sum, err);
    if (status != ESPL_OK) {
        return espl_context(err, "measuring the idle power %s the run",
                            which == 0 ? "before" : "after");
    }
    const size_t useful = series->counter ? sum.distinct : sum.samples;
    if (useful < ESPL_ENERGY_MIN_IDLE_SAMPLES) {
        return espl_fail(err, ESPL_E_NUMERIC,
                         "the idle window %s the run has %zu %s, at least %d "
                         "are needed",
                         which == 0 ? "before" : "after", useful,
                         series->counter ? "updates of the counter" : "readings",
                         ESPL_ENERGY_MIN_IDLE_SAMPLES);
    }
    added->idle_w[which] += sum.mean_w;
    added->idle_error2[which] += sum.error_w * sum.error_w;
    added->has_idle[which] = true;
    return ESPL_OK;
}

/* Net energy. The idle power during the run is only known to lie near its two ends: half their
 * difference, as a uniform distribution between them, joins the uncertainty. */
static void finish_net(const struct added *added, struct espl_energy_figure *figure)
{
    const bool both = added->has_idle[0] && added->has_idle[1];
    char why[256];
    if (!added->has_idle[0] && !added->has_idle[1]) {
        refuse(figure, ESPL_FIGURE_GROSS, "no idle window was measured");
        return;
    }
    const double share = both ? 0.5 : 1.0;
    figure->idle_w = share * (added->idle_w[0] + added->idle_w[1]);
    figure->idle_drift_w = both ? added->idle_w[1] - added->idle_w[0] : 0.0;
    const double drift2 = figure->idle_drift_w * figure->idle_drift_w / 12.0;
    const double idle_error2 = share * share * (added->idle_error2[0] + added->idle_error2[1]);
    const double net_w = figure->mean_w - figure->idle_w;
    const double limit = ESPL_ENERGY_MIN_STEPS * sqrt(added->step2);
    if (!(net_w >= limit)) {
        (void)snprintf(why, sizeof why,
                       "not resolvable: net power %.3f W is below three steps of "
                       "the sensor (%.3f W)",
                       net_w, limit);
        refuse(figure, ESPL_FIGURE_GROSS, why);
        return;
    }
    figure->net_j = net_w * figure->seconds;
    figure->net_error_j = figure->seconds * sqrt(added->run_error2 + idle_error2 + drift2);
}

void espl_energy_figure_of(const struct espl_energy_series *series, size_t count,
                           const struct espl_energy_windows *windows,
                           struct espl_energy_figure *figure)
{
    struct added added = {0};
    struct espl_error err = {0};
    struct espl_error idle_err = {0};
    enum espl_status idle = ESPL_OK;
    *figure = (struct espl_energy_figure){
        .samples = SIZE_MAX, .distinct = SIZE_MAX, .idle_w = NAN, .idle_drift_w = NAN};
    for (size_t i = 0; i < count && err.code == ESPL_OK; i++) {
        (void)add_run(&series[i], windows->run, &added, figure, &err); /* the record says it */
    }
    if (count == 0 || err.code != ESPL_OK) {
        figure->samples = figure->samples == SIZE_MAX ? 0 : figure->samples;
        figure->distinct = figure->distinct == SIZE_MAX ? 0 : figure->distinct;
        refuse(figure, ESPL_FIGURE_UNRESOLVED, count == 0 ? "no readings" : err.message);
        return;
    }
    figure->gross_j = added.run_j;
    figure->mean_w = added.run_j / figure->seconds;
    figure->gross_error_j = figure->seconds * sqrt(added.run_error2);
    for (size_t i = 0; i < count && idle == ESPL_OK; i++) {
        idle = add_idle(&series[i], windows->idle_before, 0, &added, &idle_err);
        if (idle == ESPL_OK) {
            idle = add_idle(&series[i], windows->idle_after, 1, &added, &idle_err);
        }
    }
    if (idle != ESPL_OK) {
        refuse(figure, ESPL_FIGURE_GROSS, idle_err.message);
        return;
    }
    finish_net(&added, figure);
}
