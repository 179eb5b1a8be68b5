/* Which meter a stage takes, as its parameter `energy` says: one that sees what runs on the job's
 * device. */
#ifndef ESPL_ENERGY_DEVICE_METER_H
#define ESPL_ENERGY_DEVICE_METER_H

#include "eval/energy/meter.h"

enum espl_energy_choice {
    ESPL_ENERGY_NONE,
    ESPL_ENERGY_AUTO,
    ESPL_ENERGY_INA3221,
    ESPL_ENERGY_NVML,
    ESPL_ENERGY_RAPL
};
/** Their names, for the parameter; ends with NULL. */
extern const char *const espl_energy_choices[];

/** Refuses a meter that measures something else than the device (cuda: a GPU, else the CPU): rapl
 *  does not see a GPU, nvml not the CPU. Errors: JOB, blaming the parameter. */
enum espl_status espl_energy_check_choice(int choice, bool cuda, struct espl_error *err);
/** *out <- the meter, NULL for "none"; "auto" is the whole board's, else the device's own. The
 * folder in ESPL_ENERGY_ROOT stands for "/". interval_s: as in espl_energy_options. Errors: MACHINE
 * when there is none, those of espl_energy_open(); both blame the parameter. */
enum espl_status espl_energy_open_choice(int choice, bool cuda, double interval_s,
                                         struct espl_energy_meter **out, struct espl_error *err);

#endif
