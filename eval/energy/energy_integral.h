/* From readings to energy: pure numerics on time-stamped series.
 *
 * A power series is integrated by the trapezoid rule on its real time stamps, with values
 * interpolated at the edges of the window; of a counter the difference is taken, interpolated the
 * same way. What the readings cannot carry is refused with a reason, not estimated. */
#ifndef ESPL_ENERGY_INTEGRAL_H
#define ESPL_ENERGY_INTEGRAL_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ESPL_ENERGY_MIN_SAMPLES = 100,     /* of the run; of a counter: updates */
    ESPL_ENERGY_MIN_IDLE_SAMPLES = 20, /* of each idle window */
    ESPL_ENERGY_GAP_TICKS = 3          /* a longer silence is a gap */
};
/** Largest share of a window that gaps may take. */
#define ESPL_ENERGY_MAX_GAP_SHARE 0.05
/** Net power below this many steps of the sensor is not resolved. */
#define ESPL_ENERGY_MIN_STEPS 3.0

struct espl_energy_sample {
    int64_t time_ns; /* CLOCK_MONOTONIC_RAW, the middle of the read */
    double value;    /* W, or J since some moment */
};

struct espl_energy_series {
    const struct espl_energy_sample *samples; /* in order of time, borrowed */
    size_t count;
    bool counter;        /* values are J that only grow; otherwise W */
    double step_w;       /* least change of a power reading, 0 = taken from the readings */
    int64_t interval_ns; /* nominal time between readings */
};

struct espl_energy_window {
    int64_t begin_ns, end_ns;
};

/** The window between two idle ones; an idle window of no length is one that was not measured. */
struct espl_energy_windows {
    struct espl_energy_window idle_before, run, idle_after;
};

/** One window of one series. */
struct espl_energy_sum {
    double seconds;
    double joules;
    double mean_w;
    double error_w; /* standard uncertainty of mean_w: spread, quantisation, gaps */
    double step_w;  /* resolution: of a power reading, or one update of a counter over the window */
    size_t samples; /* inside the window */
    size_t distinct; /* that differ from the one before */
    size_t gaps;
    double longest_gap_s;
};

/** Sums a window. Errors: NUMERIC with the reason: not covered by readings, gaps too long, values
 * that are not finite. */
enum espl_status espl_energy_sum_window(const struct espl_energy_series *series,
                                        struct espl_energy_window window,
                                        struct espl_energy_sum *sum, struct espl_error *err);

enum espl_figure_state {
    ESPL_FIGURE_OK,        /* gross and net hold */
    ESPL_FIGURE_GROSS,     /* gross holds, net is not resolvable: see why */
    ESPL_FIGURE_UNRESOLVED /* no number at all: see why */
};

/** The energy of a run. Fields that do not hold are NaN. */
struct espl_energy_figure {
    enum espl_figure_state state;
    char why[256];  /* "" with ESPL_FIGURE_OK */
    double seconds; /* of the run */
    double mean_w;  /* gross */
    double gross_j, gross_error_j;
    double idle_w;                  /* mean of the idle windows */
    double idle_drift_w;            /* after minus before; 0 with one idle window */
    double net_j, net_error_j;      /* gross less idle; standard uncertainty, k = 1 */
    size_t samples, distinct, gaps; /* of the run: least, least and sum over the rails */
    double longest_gap_s;
};

/** Energy of `count` series that are added up (count 1: of that one). */
void espl_energy_figure_of(const struct espl_energy_series *series, size_t count,
                           const struct espl_energy_windows *windows,
                           struct espl_energy_figure *figure);

#endif
