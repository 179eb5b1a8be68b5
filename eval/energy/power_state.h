/* Clocks, power mode, temperatures and throttling of a machine, as sysfs tells them: what a
 * measurement of time or energy depends on. Only read; nothing is changed. */
#ifndef ESPL_ENERGY_POWER_STATE_H
#define ESPL_ENERGY_POWER_STATE_H

#include "core/buf.h"
#include "eval/energy/sysfs_value.h"

enum { ESPL_POWER_MAX_CLOCKS = 64, ESPL_POWER_MAX_ZONES = 32 };

/** A clock domain: a GPU or memory engine (devfreq) or a group of CPU cores (cpufreq). */
struct espl_clock_state {
    char name[ESPL_SYSFS_LABEL_MAX];
    bool known;                        /* all three could be read */
    int64_t min_khz, max_khz, now_khz; /* limits that are set, and the clock at this moment */
};

struct espl_thermal_zone {
    char name[ESPL_SYSFS_LABEL_MAX];
    int64_t millicelsius;
};

struct espl_power_state {
    char mode[ESPL_SYSFS_LABEL_MAX]; /* what nvpmodel keeps ("pmode:0000 fmode:quiet"), "" = none */
    struct espl_clock_state clocks[ESPL_POWER_MAX_CLOCKS];
    size_t clock_count;
    struct espl_thermal_zone zones[ESPL_POWER_MAX_ZONES];
    size_t zone_count;
    int64_t overcurrent_events; /* since boot, -1 = not told */
};

/** Reads what there is. root: folder that stands for "/"; NULL or "" = the machine's own. */
void espl_power_state_read(const char *root, struct espl_power_state *state);
/** Is the clock held at one frequency: least = most = now? */
bool espl_clock_is_fixed(const struct espl_clock_state *clock);
/** Hottest zone in degrees Celsius; NaN when none is known. */
double espl_power_state_hottest(const struct espl_power_state *state);
/** Adds a line for each thing that makes figures hard to repeat: clocks that are not fixed, and,
 * when `after` is given, what changed during the run. after: NULL allowed. */
void espl_power_state_warn(const struct espl_power_state *before,
                           const struct espl_power_state *after, struct espl_buf *lines);

#endif
