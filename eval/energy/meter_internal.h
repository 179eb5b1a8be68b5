/* What meters share: drivers, chips, the sampling threads. */
#ifndef ESPL_ENERGY_METER_INTERNAL_H
#define ESPL_ENERGY_METER_INTERNAL_H

#include "eval/energy/meter.h"

#include <pthread.h>

enum { ESPL_ENERGY_CHIP_RAILS = 16, ESPL_ENERGY_MAX_CHIPS = 16 };

struct espl_energy_chip;

/** One kind of meter. Instances are `const`. */
struct espl_energy_driver {
    const char *name;
    /** Adds chips and their rails to the meter. Errors: MACHINE with the reason when there are
     * none, NOMEM. */
    enum espl_status (*find)(struct espl_energy_meter *meter,
                             const struct espl_energy_options *options, struct espl_error *err);
    /** Reads one rail, W or J. Called by one thread at a time. */
    enum espl_rail_state (*read)(struct espl_energy_chip *chip, size_t rail, double *value,
                                 int *sys_errno);
    /** Frees chip->state, NULL allowed there. */
    void (*close_chip)(struct espl_energy_chip *chip);
    /** Fills the totals from the rails that answered. */
    void (*choose_totals)(struct espl_energy_meter *meter);
};

/** Rails that one thread reads, because they share a bus or a driver lock. It is owned by the meter
 * and, while that runs, by its thread: a thread that never comes back keeps its chip. */
struct espl_energy_chip {
    const struct espl_energy_driver *driver;
    void *state; /* the driver's */
    struct espl_energy_rail rails[ESPL_ENERGY_CHIP_RAILS];
    size_t rail_count;
    int64_t (*now)(void); /* stamps readings: espl_energy_now, a test's own in tests */

    pthread_mutex_t lock; /* guards what follows and the rails while a thread runs */
    pthread_cond_t changed;
    pthread_t thread;
    bool sampling;  /* what the thread is for: to sample, or to probe */
    bool running;   /* the thread has not finished */
    bool stop;      /* it shall finish */
    bool abandoned; /* it did not finish in time: its readings count no more */
    size_t reading; /* rail in hand */
    int64_t interval_ns;
    struct espl_energy_sample *samples[ESPL_ENERGY_CHIP_RAILS];
    size_t capacity[ESPL_ENERGY_CHIP_RAILS];
};

struct espl_energy_meter {
    const struct espl_energy_driver *driver;
    struct espl_energy_chip *chips[ESPL_ENERGY_MAX_CHIPS];
    size_t chip_count;
    struct espl_energy_rail *rails[ESPL_ENERGY_MAX_RAILS]; /* inside the chips */
    size_t rail_count;
    struct espl_energy_total totals[ESPL_ENERGY_MAX_TOTALS];
    size_t total_count;
    char board[ESPL_SYSFS_LABEL_MAX * 8]; /* names from the device tree, each between blanks */
    char note[512];
    int64_t interval_ns, stall_ns;
    bool sampling;
};

/* energy_chip.c */
/** A chip without rails, added to the meter. state: taken, also on failure. NULL: out of memory, or
 * more than a meter takes (*err says which). */
struct espl_energy_chip *espl_energy_add_chip(struct espl_energy_meter *meter, void *state_take,
                                              struct espl_error *err);
/** Adds a rail to the meter's newest chip; NULL when there is no room (*err says so). */
struct espl_energy_rail *espl_energy_add_rail(struct espl_energy_meter *meter,
                                              struct espl_error *err);
/** Starts the chip's thread to probe or to sample. */
enum espl_status espl_energy_chip_start(struct espl_energy_chip *chip, bool sampling,
                                        struct espl_error *err);
/** Waits for the thread, after asking it to stop if it samples. A read that does not return within
 * stall_ns: the rail in hand is STALLED, the chip is abandoned. */
void espl_energy_chip_finish(struct espl_energy_chip *chip, int64_t stall_ns);
/** Frees it, or leaves that to its thread. */
void espl_energy_chip_release(struct espl_energy_chip *chip);

/* energy_sampler.c */
/** Reads every rail once. False: the thread shall end. */
bool espl_energy_sample_round(struct espl_energy_chip *chip);
/** Body of the thread. */
void *espl_energy_chip_main(void *chip);

/* meter.c */
/** Opens with a given driver: what espl_energy_open() does with those it knows. */
enum espl_status espl_energy_open_driver(const struct espl_energy_driver *driver,
                                         const struct espl_energy_options *options,
                                         struct espl_energy_meter **out, struct espl_error *err);
/** Adds a line to the remarks; what does not fit is dropped. */
void espl_energy_add_note(struct espl_energy_meter *meter, const char *fmt, ...) ESPL_PRINTF(2, 3);
/** Path of a file of the machine below the root: "<root>/sys/class/hwmon". */
enum espl_status espl_energy_root_path(const struct espl_energy_options *options, const char *path,
                                       char out[ESPL_PATH_MAX], struct espl_error *err);

/* rail_totals.c */
/** Reads the board's names from the device tree; none on other machines. */
void espl_energy_read_board(struct espl_energy_meter *meter,
                            const struct espl_energy_options *options);
/** Is the board one whose ina238 without a label measures the whole system? */
bool espl_energy_board_has_vin(const struct espl_energy_meter *meter);
/** Totals of a Jetson, by labels. */
void espl_energy_jetson_totals(struct espl_energy_meter *meter);

extern const struct espl_energy_driver espl_energy_ina3221;
extern const struct espl_energy_driver espl_energy_nvml;
extern const struct espl_energy_driver espl_energy_rapl;
extern const struct espl_energy_driver espl_energy_none;

#endif
