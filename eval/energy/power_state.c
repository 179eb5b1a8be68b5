#include "eval/energy/power_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NAMES = 1024, OVERCURRENT_FILES = 8 };

/* Calls `add` for every entry of a folder below the root whose name begins with `prefix`. */
static void each_entry(const char *root, const char *place, const char *prefix,
                       void (*add)(const char *folder, const char *name,
                                   struct espl_power_state *state),
                       struct espl_power_state *state)
{
    char base[ESPL_PATH_MAX];
    char folder[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    if (espl_fs_join(base, root, place, NULL) != ESPL_OK ||
        espl_fs_list(base, MAX_NAMES, &names, &count, NULL) != ESPL_OK) {
        return; /* this machine has no such class */
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], prefix, strlen(prefix)) == 0 &&
            espl_fs_join(folder, base, names[i], NULL) == ESPL_OK) {
            add(folder, names[i], state);
        }
    }
    espl_fs_free_names(names, count);
}

static void add_clock(const char *folder, const char *name, const char *const files[3],
                      int64_t unit_per_khz, struct espl_power_state *state)
{
    if (state->clock_count == ESPL_POWER_MAX_CLOCKS) {
        return;
    }
    struct espl_clock_state *clock = &state->clocks[state->clock_count++];
    int64_t values[3] = {0, 0, 0};
    clock->known = true;
    (void)snprintf(clock->name, sizeof clock->name, "%.40s", name);
    for (size_t i = 0; i < 3; i++) {
        clock->known = clock->known &&
                       espl_sysfs_get_int(folder, files[i], &values[i]) == ESPL_RAIL_OK &&
                       values[i] >= 0;
    }
    if (clock->known) {
        clock->min_khz = values[0] / unit_per_khz;
        clock->max_khz = values[1] / unit_per_khz;
        clock->now_khz = values[2] / unit_per_khz;
    }
}

static void add_devfreq(const char *folder, const char *name, struct espl_power_state *state)
{
    static const char *const files[3] = {"min_freq", "max_freq", "cur_freq"}; /* Hz */
    add_clock(folder, name, files, 1000, state);
}

static void add_cpufreq(const char *folder, const char *name, struct espl_power_state *state)
{
    static const char *const files[3] = {"scaling_min_freq", "scaling_max_freq",
                                         "scaling_cur_freq"}; /* kHz */
    char shown[ESPL_SYSFS_LABEL_MAX];
    (void)snprintf(shown, sizeof shown, "cpu %.40s", name);
    add_clock(folder, shown, files, 1, state);
}

static void add_zone(const char *folder, const char *name, struct espl_power_state *state)
{
    struct espl_thermal_zone zone;
    if (state->zone_count == ESPL_POWER_MAX_ZONES ||
        espl_sysfs_get_int(folder, "temp", &zone.millicelsius) != ESPL_RAIL_OK) {
        return; /* zones of engines that are off do not answer */
    }
    if (espl_sysfs_get_label(folder, "type", zone.name, NULL) != ESPL_OK) {
        (void)snprintf(zone.name, sizeof zone.name, "%.40s", name);
    }
    state->zones[state->zone_count++] = zone;
}

/* Jetson's over-current alarms are counters in a hwmon folder. */
static void add_overcurrent(const char *folder, const char *name, struct espl_power_state *state)
{
    (void)name;
    for (int i = 1; i <= OVERCURRENT_FILES; i++) {
        char file[32];
        int64_t events = 0;
        (void)snprintf(file, sizeof file, "oc%d_event_cnt", i);
        if (espl_sysfs_get_int(folder, file, &events) == ESPL_RAIL_OK && events >= 0 &&
            events < INT32_MAX) {
            state->overcurrent_events =
                events + (state->overcurrent_events > 0 ? state->overcurrent_events : 0);
        }
    }
}

void espl_power_state_read(const char *root, struct espl_power_state *state)
{
    const char *base = root != NULL && root[0] != '\0' ? root : "/";
    char folder[ESPL_PATH_MAX];
    memset(state, 0, sizeof *state);
    state->overcurrent_events = -1;
    if (espl_fs_join(folder, base, "var/lib/nvpmodel", NULL) != ESPL_OK ||
        espl_sysfs_get_label(folder, "status", state->mode, NULL) != ESPL_OK) {
        state->mode[0] = '\0';
    }
    each_entry(base, "sys/class/devfreq", "", add_devfreq, state);
    each_entry(base, "sys/devices/system/cpu/cpufreq", "policy", add_cpufreq, state);
    each_entry(base, "sys/class/thermal", "thermal_zone", add_zone, state);
    each_entry(base, "sys/class/hwmon", "hwmon", add_overcurrent, state);
}

bool espl_clock_is_fixed(const struct espl_clock_state *clock)
{
    return clock->known && clock->min_khz == clock->max_khz && clock->now_khz == clock->max_khz;
}

double espl_power_state_hottest(const struct espl_power_state *state)
{
    double hottest = NAN;
    for (size_t i = 0; i < state->zone_count; i++) {
        hottest = fmax(hottest, (double)state->zones[i].millicelsius * 1e-3);
    }
    return hottest;
}

static void warn_clocks(const struct espl_power_state *state, struct espl_buf *lines)
{
    for (size_t i = 0; i < state->clock_count; i++) {
        const struct espl_clock_state *clock = &state->clocks[i];
        if (!clock->known) {
            (void)espl_buf_printf(lines, "clock '%s' cannot be read\n", clock->name);
        } else if (!espl_clock_is_fixed(clock)) {
            (void)espl_buf_printf(
                lines, "clock '%s' is not fixed: %.0f MHz, free between %.0f and %.0f MHz\n",
                clock->name, (double)clock->now_khz * 1e-3, (double)clock->min_khz * 1e-3,
                (double)clock->max_khz * 1e-3);
        }
    }
}

static void warn_changes(const struct espl_power_state *before,
                         const struct espl_power_state *after, struct espl_buf *lines)
{
    if (strcmp(before->mode, after->mode) != 0) {
        (void)espl_buf_printf(lines, "the power mode changed during the run: '%s', then '%s'\n",
                              before->mode, after->mode);
    }
    if (after->overcurrent_events > before->overcurrent_events && before->overcurrent_events >= 0) {
        (void)espl_buf_printf(lines, "the board throttled: %lld over-current events in the run\n",
                              (long long)(after->overcurrent_events - before->overcurrent_events));
    }
    for (size_t i = 0; i < before->clock_count && i < after->clock_count; i++) {
        const struct espl_clock_state *a = &before->clocks[i];
        const struct espl_clock_state *b = &after->clocks[i];
        if (espl_clock_is_fixed(a) && b->now_khz < a->now_khz && strcmp(a->name, b->name) == 0) {
            (void)espl_buf_printf(lines, "clock '%s' fell from %.0f to %.0f MHz\n", a->name,
                                  (double)a->now_khz * 1e-3, (double)b->now_khz * 1e-3);
        }
    }
}

void espl_power_state_warn(const struct espl_power_state *before,
                           const struct espl_power_state *after, struct espl_buf *lines)
{
    warn_clocks(before, lines);
    if (after != NULL) {
        warn_changes(before, after, lines);
    }
}
