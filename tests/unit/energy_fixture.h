/* Machines made of files: sysfs trees of boards, below a temporary folder, and known waveforms that
 * are played into their files. */
#ifndef ESPL_TESTS_ENERGY_FIXTURE_H
#define ESPL_TESTS_ENERGY_FIXTURE_H

#include "eval/energy/meter_internal.h"

/** Writes printf-style text to <root>/<path>, making its folders. */
void energy_put(const char *root, const char *path, const char *fmt, ...) ESPL_PRINTF(3, 4);

/** An ina3221 as JetPack 5 and later show it; labels: three, NULL = no label file. Each channel
 * reads `millivolts` and 1000 mA. */
void energy_put_ina3221(const char *root, unsigned hwmon, const char *const labels[3],
                        int64_t millivolts, int64_t shunt_uohm);
/** Names of the board in the device tree: names joined by NUL. */
void energy_put_board(const char *root, const char *names, size_t size);

void energy_put_agx_orin(const char *root, unsigned first_hwmon);
void energy_put_orin_nx(const char *root, unsigned hwmon);
void energy_put_thor(const char *root);
void energy_put_jetpack4(const char *root);

enum { ENERGY_MAX_FILES = 8 };

/** A waveform: in idle time `low`, in the run a triangle from `low` to `high` and back, in the unit
 * of the file. */
struct energy_wave {
    char paths[ENERGY_MAX_FILES][ESPL_PATH_MAX];
    int64_t low[ENERGY_MAX_FILES], high[ENERGY_MAX_FILES];
    size_t count;
    double period_s;
};

void energy_wave_add(struct energy_wave *wave, const char *root, const char *path, int64_t low,
                     int64_t high);
/** Writes the values at `seconds` after the run's begin; negative: idle. */
void energy_wave_write(const struct energy_wave *wave, double seconds);
/** Plays idle 1 s, run 2 s, idle 1 s with a clock of the test's own, a reading each 10 ms, and
 * gives the figures. Works without the sampling thread, so that a busy machine changes nothing. */
void energy_play(const struct energy_wave *wave, struct espl_energy_meter *meter,
                 struct espl_energy_result *result);

/** Opens with interval 10 ms and fails the test when that fails. */
struct espl_energy_meter *energy_open(const char *root, const char *name);
/** The rail with this name; fails the test when there is none. */
size_t energy_rail(const struct espl_energy_meter *meter, const char *name);

#endif
