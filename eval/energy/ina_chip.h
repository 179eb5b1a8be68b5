/* The state of an INA3221 or INA238 that meter_ina3221.c reads and ina_find.c finds. */
#ifndef ESPL_ENERGY_INA_CHIP_H
#define ESPL_ENERGY_INA_CHIP_H

#include "eval/energy/meter_internal.h"

enum { ESPL_INA_CHANNELS = 3 };

/** How a channel gives its power. Files that are not used are -1. */
struct espl_ina_channel {
    int current_fd;      /* mA, with voltage_fd */
    int voltage_fd;      /* mV */
    int power_fd;        /* or power in one read */
    double power_unit_w; /* of power_fd: 1e-3 (iio) or 1e-6 (ina238) */
    int64_t shunt_uohm;  /* 0 = unknown */
    int64_t millivolts;  /* last reading */
    unsigned age;        /* readings since */
};

struct espl_ina_chip {
    struct espl_ina_channel channels[ESPL_INA_CHANNELS];
};

/** Adds the chips of JetPack 5 and later (hwmon), then those of JetPack 4 (iio). Errors: NOMEM.
 * A machine without any is no error. */
enum espl_status espl_ina_find_hwmon(struct espl_energy_meter *meter,
                                     const struct espl_energy_options *options,
                                     struct espl_error *err);
enum espl_status espl_ina_find_iio(struct espl_energy_meter *meter,
                                   const struct espl_energy_options *options,
                                   struct espl_error *err);

#endif
