#include "eval/energy/meter_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double usual_interval_s = 0.05;
static const double usual_stall_s = 2.0;

/* In the order of espl_energy_meters. */
static const struct espl_energy_driver *const drivers[] = {
    &espl_energy_ina3221, &espl_energy_nvml, &espl_energy_rapl, &espl_energy_none, NULL};

const struct espl_energy_meter_row espl_energy_meters[] = {
    {"ina3221", "power sensors of a Jetson board (INA3221, INA238), by rail"},
    {"nvml", "energy counter and power of an NVIDIA GPU"},
    {"rapl", "energy counters of the CPU packages (powercap)"},
    {"none", "measures nothing: energy is absent, not zero"},
    {NULL, NULL},
};

void espl_energy_add_note(struct espl_energy_meter *meter, const char *fmt, ...)
{
    const size_t used = strlen(meter->note);
    const char *between = used > 0 ? "\n" : "";
    char line[256];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (used + strlen(between) + strlen(line) < sizeof meter->note) {
        (void)snprintf(meter->note + used, sizeof meter->note - used, "%s%s", between, line);
    }
}

enum espl_status espl_energy_root_path(const struct espl_energy_options *options, const char *path,
                                       char out[ESPL_PATH_MAX], struct espl_error *err)
{
    const char *root = options->root != NULL && options->root[0] != '\0' ? options->root : "/";
    return espl_fs_join(out, root, path + 1, err);
}

/* Reads every rail a few times. The chips work side by side; each may take stall_ns. */
static enum espl_status probe_rails(struct espl_energy_meter *meter, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < meter->chip_count && status == ESPL_OK; i++) {
        status = espl_energy_chip_start(meter->chips[i], false, err);
    }
    for (size_t i = 0; i < meter->chip_count; i++) {
        espl_energy_chip_finish(meter->chips[i], meter->stall_ns);
    }
    return status;
}

/* A sensor that is slower than the tick gets a longer one: reading without pause would load the
 * machine that is measured. */
static void fit_interval(struct espl_energy_meter *meter)
{
    const int64_t wanted = meter->interval_ns;
    for (size_t c = 0; c < meter->chip_count; c++) {
        double cost_s = 0.0;
        for (size_t i = 0; i < meter->chips[c]->rail_count; i++) {
            cost_s += meter->chips[c]->rails[i].read_cost_s;
        }
        const int64_t least = (int64_t)(2.0 * cost_s * 1e9);
        meter->interval_ns = least > meter->interval_ns ? least : meter->interval_ns;
    }
    for (size_t c = 0; c < meter->chip_count; c++) {
        struct espl_energy_chip *chip = meter->chips[c];
        chip->interval_ns = meter->interval_ns;
        for (size_t i = 0; i < chip->rail_count; i++) {
            chip->rails[i].series.interval_ns = meter->interval_ns;
        }
    }
    if (meter->interval_ns > wanted) {
        espl_energy_add_note(meter,
                             "reading takes %.1f ms a round: every %.0f ms instead of %.0f ms",
                             (double)meter->interval_ns * 0.5e-6, (double)meter->interval_ns * 1e-6,
                             (double)wanted * 1e-6);
    }
}

/* MACHINE with the first rail's reason when no rail can be read. */
static enum espl_status check_answers(const struct espl_energy_meter *meter, struct espl_error *err)
{
    for (size_t i = 0; i < meter->rail_count; i++) {
        if (meter->rails[i]->state == ESPL_RAIL_OK) {
            return ESPL_OK;
        }
    }
    if (meter->rail_count == 0) {
        return ESPL_OK; /* the meter that measures nothing */
    }
    /* A rail that should work and does not says more than one that nothing is connected to. */
    const struct espl_energy_rail *telling = meter->rails[0];
    for (size_t i = 0; i < meter->rail_count; i++) {
        if (meter->rails[i]->state > ESPL_RAIL_UNLABELLED) {
            telling = meter->rails[i];
            break;
        }
    }
    return espl_fail(err, ESPL_E_MACHINE, "no rail can be read; '%s': %s", telling->name,
                     espl_rail_state_text(telling->state));
}

enum espl_status espl_energy_open_driver(const struct espl_energy_driver *driver,
                                         const struct espl_energy_options *options,
                                         struct espl_energy_meter **out, struct espl_error *err)
{
    struct espl_energy_meter *meter = calloc(1, sizeof *meter);
    if (meter == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for an energy meter");
    }
    const double interval = options->interval_s > 0.0 ? options->interval_s : usual_interval_s;
    const double stall = options->stall_s > 0.0 ? options->stall_s : usual_stall_s;
    meter->driver = driver;
    meter->interval_ns = (int64_t)(fmin(fmax(interval, 0.001), 10.0) * 1e9);
    meter->stall_ns = (int64_t)(fmin(stall, 600.0) * 1e9);
    enum espl_status status = driver->find(meter, options, err);
    if (status == ESPL_OK) {
        status = probe_rails(meter, err);
    }
    if (status == ESPL_OK) {
        status = check_answers(meter, err);
    }
    if (status != ESPL_OK) {
        espl_energy_close(meter);
        return status;
    }
    fit_interval(meter);
    driver->choose_totals(meter);
    *out = meter;
    return ESPL_OK;
}

enum espl_status espl_energy_open(const struct espl_energy_options *options,
                                  struct espl_energy_meter **out, struct espl_error *err)
{
    const char *name = options->meter != NULL ? options->meter : "auto";
    const bool any = strcmp(name, "auto") == 0;
    for (size_t i = 0; drivers[i] != NULL; i++) {
        if (!any && strcmp(name, drivers[i]->name) != 0) {
            continue;
        }
        struct espl_error why = {0};
        const enum espl_status status = espl_energy_open_driver(drivers[i], options, out, &why);
        if (any && status == ESPL_E_MACHINE) {
            continue; /* "none" always opens */
        }
        if (status != ESPL_OK && err != NULL) {
            *err = why;
        }
        return status;
    }
    (void)espl_fail(err, ESPL_E_USAGE, "unknown energy meter '%s'", name);
    return espl_hint(err, "meters: auto, ina3221, nvml, rapl, none");
}

enum espl_status espl_energy_open_total(const char *const *names,
                                        const struct espl_energy_options *options,
                                        struct espl_energy_meter **out, struct espl_error *err)
{
    struct espl_energy_options one = *options;
    struct espl_energy_meter *meter = NULL;
    enum espl_status status = ESPL_E_MACHINE;
    for (size_t i = 0; status == ESPL_E_MACHINE && names[i] != NULL; i++) {
        one.meter = names[i];
        status = espl_energy_open(&one, &meter, err);
    }
    if (status == ESPL_OK && espl_energy_total_count(meter) == 0) {
        status = espl_fail(err, ESPL_E_MACHINE, "meter '%s' has rails, but no total of them",
                           espl_energy_name(meter));
        espl_energy_close(meter);
        meter = NULL;
    }
    if (status == ESPL_OK) {
        *out = meter;
    }
    return status;
}

void espl_energy_close(struct espl_energy_meter *meter)
{
    if (meter == NULL) {
        return;
    }
    espl_energy_stop(meter);
    for (size_t i = 0; i < meter->chip_count; i++) {
        espl_energy_chip_release(meter->chips[i]);
    }
    free(meter);
}

const char *espl_energy_name(const struct espl_energy_meter *meter)
{
    return meter->driver->name;
}

size_t espl_energy_rail_count(const struct espl_energy_meter *meter)
{
    return meter->rail_count;
}

const struct espl_energy_rail *espl_energy_rail_at(const struct espl_energy_meter *meter, size_t i)
{
    return meter->rails[i];
}

size_t espl_energy_total_count(const struct espl_energy_meter *meter)
{
    return meter->total_count;
}

const struct espl_energy_total *espl_energy_total_at(const struct espl_energy_meter *meter,
                                                     size_t i)
{
    return &meter->totals[i];
}

const char *espl_energy_note(const struct espl_energy_meter *meter)
{
    return meter->note;
}

double espl_energy_interval(const struct espl_energy_meter *meter)
{
    return (double)meter->interval_ns * 1e-9;
}

enum espl_status espl_energy_start(struct espl_energy_meter *meter, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (meter->sampling) {
        return espl_fail(err, ESPL_E_USAGE, "the energy meter samples already");
    }
    meter->sampling = true;
    for (size_t i = 0; i < meter->chip_count && status == ESPL_OK; i++) {
        status = espl_energy_chip_start(meter->chips[i], true, err);
    }
    if (status != ESPL_OK) {
        espl_energy_stop(meter);
    }
    return status;
}

void espl_energy_stop(struct espl_energy_meter *meter)
{
    if (!meter->sampling) {
        return;
    }
    for (size_t i = 0; i < meter->chip_count; i++) {
        espl_energy_chip_finish(meter->chips[i], meter->stall_ns);
    }
    meter->sampling = false;
}

/* Says which rail spoiled a figure, and how. */
static void explain_rail(const struct espl_energy_rail *rail, struct espl_energy_figure *figure)
{
    char why[sizeof figure->why];
    if (figure->state != ESPL_FIGURE_UNRESOLVED || rail->failures == 0) {
        return;
    }
    (void)snprintf(why, sizeof why, "%.150s; '%s': %zu readings failed, the last: %s", figure->why,
                   rail->name, rail->failures, espl_rail_state_text(rail->last_failure));
    memcpy(figure->why, why, sizeof why);
}

static void measure_rails(const struct espl_energy_meter *meter, const size_t *rails, size_t count,
                          const struct espl_energy_windows *windows,
                          struct espl_energy_figure *figure)
{
    struct espl_energy_series series[ESPL_ENERGY_MAX_RAILS] = {{0}};
    for (size_t i = 0; i < count; i++) {
        const struct espl_energy_rail *rail = meter->rails[rails[i]];
        series[i] = rail->series;
        if (rail->state != ESPL_RAIL_OK) {
            espl_energy_figure_of(NULL, 0, windows, figure);
            (void)snprintf(figure->why, sizeof figure->why, "rail '%s' is %s", rail->name,
                           espl_rail_state_text(rail->state));
            return;
        }
    }
    espl_energy_figure_of(series, count, windows, figure);
    for (size_t i = 0; i < count; i++) {
        explain_rail(meter->rails[rails[i]], figure);
    }
}

enum espl_status espl_energy_measure(const struct espl_energy_meter *meter,
                                     const struct espl_energy_windows *windows,
                                     struct espl_energy_result *result, struct espl_error *err)
{
    if (meter->sampling) {
        return espl_fail(err, ESPL_E_USAGE, "the energy meter still samples");
    }
    memset(result, 0, sizeof *result);
    for (size_t i = 0; i < meter->rail_count; i++) {
        measure_rails(meter, &i, 1, windows, &result->rails[i]);
    }
    for (size_t i = 0; i < meter->total_count; i++) {
        measure_rails(meter, meter->totals[i].rails, meter->totals[i].rail_count, windows,
                      &result->totals[i]);
    }
    return ESPL_OK;
}
