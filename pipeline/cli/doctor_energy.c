/* What this machine can measure energy with, and whether its clocks hold still. */
#include "cli/doctor.h"

#include "eval/energy/meter.h"
#include "eval/energy/power_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Folder that stands for "/" in these two checks: fixtures are shown through it. */
static const char *machine_root(void)
{
    return getenv("ESPL_ENERGY_ROOT");
}

/* Adds to the facts; what does not fit is cut. */
static void add_fact(struct espl_check *check, const char *fmt, ...) ESPL_PRINTF(2, 3);

static void add_fact(struct espl_check *check, const char *fmt, ...)
{
    const size_t used = strlen(check->facts);
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(check->facts + used, sizeof check->facts - used, fmt, args);
    va_end(args);
}

static void describe_meter(const struct espl_energy_meter *meter, struct espl_check *check)
{
    double slowest_s = 0.0;
    size_t readable = 0;
    for (size_t i = 0; i < espl_energy_rail_count(meter); i++) {
        const struct espl_energy_rail *rail = espl_energy_rail_at(meter, i);
        readable += rail->state == ESPL_RAIL_OK ? 1 : 0;
        slowest_s = fmax(slowest_s, rail->read_cost_s);
    }
    add_fact(
        check, "%zu of %zu rails, %s, %.2f ms a reading", readable, espl_energy_rail_count(meter),
        espl_energy_total_count(meter) > 0 ? espl_energy_total_at(meter, 0)->boundary : "no total",
        1e3 * slowest_s);
    /* The remarks, or as many as fit. */
    const char *note = espl_energy_note(meter);
    const size_t used = strlen(check->advice);
    if (note[0] != '\0') {
        (void)snprintf(check->advice + used, sizeof check->advice - used, "%s%s: %.*s",
                       used > 0 ? "; " : "", espl_energy_name(meter), (int)strcspn(note, "\n"),
                       note);
    }
}

void espl_check_energy(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    size_t open = 0;
    for (size_t i = 0; espl_energy_meters[i].name != NULL; i++) {
        const char *name = espl_energy_meters[i].name;
        const struct espl_energy_options options = {.meter = name, .root = machine_root()};
        struct espl_energy_meter *meter = NULL;
        struct espl_error err = {0};
        if (strcmp(name, "none") == 0) {
            continue; /* always there, measures nothing */
        }
        add_fact(check, "%s%s: ", i > 0 ? "; " : "", name);
        if (espl_energy_open(&options, &meter, &err) == ESPL_OK) {
            describe_meter(meter, check);
            open++;
        } else {
            add_fact(check, "%s", err.message);
        }
        espl_energy_close(meter);
    }
    check->state = open > 0 ? ESPL_CHECK_OK : ESPL_CHECK_NONE;
    if (open > 0 && check->advice[0] != '\0') {
        check->state = ESPL_CHECK_WARN;
    }
}

void espl_check_clocks(const struct espl_cli *cli, struct espl_check *check)
{
    (void)cli;
    struct espl_power_state state;
    size_t fixed = 0;
    espl_power_state_read(machine_root(), &state);
    for (size_t i = 0; i < state.clock_count; i++) {
        fixed += espl_clock_is_fixed(&state.clocks[i]) ? 1 : 0;
    }
    const double hottest = espl_power_state_hottest(&state);
    check->state = fixed == state.clock_count ? ESPL_CHECK_OK : ESPL_CHECK_WARN;
    if (state.clock_count == 0) {
        check->state = ESPL_CHECK_NONE;
        add_fact(check, "this machine does not tell its clocks");
    } else {
        add_fact(check, "%zu of %zu clocks fixed", fixed, state.clock_count);
    }
    if (state.mode[0] != '\0') {
        add_fact(check, ", power mode %s", state.mode);
    }
    if (isfinite(hottest)) {
        add_fact(check, ", hottest zone %.1f C", hottest);
    }
    if (check->state == ESPL_CHECK_WARN) {
        (void)snprintf(check->advice, sizeof check->advice,
                       "times and energies of runs at different clocks do not compare: fix them "
                       "(on Jetson: nvpmodel, then jetson_clocks)");
    }
}
