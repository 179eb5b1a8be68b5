/* Energy meters behind one interface.
 *
 * Calling sequence: espl_energy_open() finds the rails and reads each a few times (that is the
 * probe: a meter that opens but does not answer is refused). espl_energy_start() begins sampling in
 * threads of its own, one a chip. The caller notes espl_energy_now() at the edges of its idle
 * window, its run and its second idle window, calls espl_energy_stop(), then
 * espl_energy_measure(). One meter belongs to one thread.
 *
 * Nothing here writes to the machine: averaging, clocks and power modes stay as they are. */
#ifndef ESPL_ENERGY_METER_H
#define ESPL_ENERGY_METER_H

#include "eval/energy/energy_integral.h"
#include "eval/energy/sysfs_value.h"

enum { ESPL_ENERGY_MAX_RAILS = 32, ESPL_ENERGY_MAX_TOTALS = 2, ESPL_ENERGY_PLACE = 64 };

struct espl_energy_meter; /* opaque */

struct espl_energy_options {
    const char *meter;        /* name from espl_energy_meters, or "auto"; NULL = "auto" */
    const char *root;         /* folder that stands for "/"; NULL or "" = the machine's own */
    double interval_s;        /* wanted time between readings; 0 = 0.05 */
    double stall_s;           /* a read that takes longer is given up; 0 = 2 */
    const char *gpu;          /* nvml: PCI bus id ("0000:17:00.0"); NULL = the only GPU */
    const char *nvml_library; /* nvml: file to load; NULL = libnvidia-ml.so.1 */
};

/** One measured quantity. Only rails with state OK are sampled. */
struct espl_energy_rail {
    char name[ESPL_SYSFS_LABEL_MAX]; /* label of the board: "VDD_IN" */
    char place[ESPL_ENERGY_PLACE];   /* where it was found: "ina3221 1-0040 channel 1" */
    enum espl_rail_state state;
    int sys_errno;                     /* of the call that failed, 0 = none */
    double read_cost_s;                /* median time of one reading when the meter was opened */
    size_t failures;                   /* readings that failed while sampling */
    enum espl_rail_state last_failure; /* of those; OK = none */
    struct espl_energy_series series;  /* step_w, readings; valid until the next start or close */
};

/** Rails whose sum is the energy of something that has a name. */
struct espl_energy_total {
    char boundary[96]; /* what is inside: "module (VDD_IN)" */
    size_t rails[ESPL_ENERGY_MAX_RAILS];
    size_t rail_count;
};

/** What a run took. */
struct espl_energy_result {
    struct espl_energy_figure totals[ESPL_ENERGY_MAX_TOTALS];
    struct espl_energy_figure rails[ESPL_ENERGY_MAX_RAILS]; /* in the meter's order */
};

struct espl_energy_meter_row {
    const char *name;    /* "ina3221" */
    const char *summary; /* one line: what it measures */
};

/** Names for help texts, in the order in which "auto" tries them; ends with .name == NULL. */
extern const struct espl_energy_meter_row espl_energy_meters[];

/** Opens a meter. "auto" takes the first that answers, "none" when none does.
 * Errors: USAGE (unknown name), MACHINE (this machine has no such meter, or it does not answer),
 * NOMEM. *out is untouched on failure. */
enum espl_status espl_energy_open(const struct espl_energy_options *options,
                                  struct espl_energy_meter **out, struct espl_error *err);
/** The first of `names` (ends with NULL) that this machine has, with a total; options->meter does
 * not count. Errors: MACHINE (none of them; the message is the last one's), those of
 *  espl_energy_open(). *out is untouched on failure. */
enum espl_status espl_energy_open_total(const char *const *names,
                                        const struct espl_energy_options *options,
                                        struct espl_energy_meter **out, struct espl_error *err);
/** meter: NULL allowed. Stops sampling first. */
void espl_energy_close(struct espl_energy_meter *meter);

/** "ina3221", "nvml", "rapl", "none". */
const char *espl_energy_name(const struct espl_energy_meter *meter);
size_t espl_energy_rail_count(const struct espl_energy_meter *meter);
/** Borrowed; not to be read while sampling. */
const struct espl_energy_rail *espl_energy_rail_at(const struct espl_energy_meter *meter, size_t i);
/** 0 when nothing is known to be a total: then only rails can be reported. The first is the one to
 * report; a second one has another boundary or another source of the same. */
size_t espl_energy_total_count(const struct espl_energy_meter *meter);
const struct espl_energy_total *espl_energy_total_at(const struct espl_energy_meter *meter,
                                                     size_t i);
/** Remarks on the reading, one a line; "" when there is none. */
const char *espl_energy_note(const struct espl_energy_meter *meter);
/** Time between readings: what was wanted, or twice what a round of readings takes. */
double espl_energy_interval(const struct espl_energy_meter *meter);

/** Nanoseconds of the clock that stamps the readings. */
int64_t espl_energy_now(void);
/** Begins sampling; readings of before are dropped. Errors: NOMEM, MACHINE (no thread), USAGE (it
 * samples already). */
enum espl_status espl_energy_start(struct espl_energy_meter *meter, struct espl_error *err);
/** Ends sampling. A read that does not come back within stall_s leaves its rail STALLED, and the
 * chip is not read again. A meter that does not sample: nothing happens. */
void espl_energy_stop(struct espl_energy_meter *meter);
/** Energy of the run in the windows, per total and per rail. Rails with another state than OK, and
 * windows that the readings do not carry, give figures without numbers. Errors: USAGE (it still
 * samples). */
enum espl_status espl_energy_measure(const struct espl_energy_meter *meter,
                                     const struct espl_energy_windows *windows,
                                     struct espl_energy_result *result, struct espl_error *err);

#endif
