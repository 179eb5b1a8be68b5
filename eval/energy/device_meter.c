#include "eval/energy/device_meter.h"

#include <stdlib.h>

const char *const espl_energy_choices[] = {"none", "auto", "ina3221", "nvml", "rapl", NULL};
/* What `auto` tries, in this order: the whole board, then the device alone. */
static const char *const cuda_meters[] = {"ina3221", "nvml", NULL};
static const char *const cpu_meters[] = {"ina3221", "rapl", NULL};

enum espl_status espl_energy_check_choice(int choice, bool cuda, struct espl_error *err)
{
    const int other = cuda ? ESPL_ENERGY_RAPL : ESPL_ENERGY_NVML;
    if (choice != other) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_JOB, "meter '%s' does not see %s", espl_energy_choices[other],
              cuda ? "a GPU" : "the CPU");
    espl_hint(err, "auto takes a meter of the job's device");
    return espl_blame(err, "param:energy");
}

enum espl_status espl_energy_open_choice(int choice, bool cuda, double interval_s,
                                         struct espl_energy_meter **out, struct espl_error *err)
{
    const struct espl_energy_options options = {.root = getenv("ESPL_ENERGY_ROOT"),
                                                .interval_s = interval_s};
    const char *const one[] = {espl_energy_choices[choice], NULL};
    const char *const *const all = cuda ? cuda_meters : cpu_meters;
    const bool automatic = choice == ESPL_ENERGY_AUTO;
    *out = NULL;
    if (choice == ESPL_ENERGY_NONE) {
        return ESPL_OK;
    }
    const enum espl_status status =
        espl_energy_open_total(automatic ? all : one, &options, out, err);
    if (status == ESPL_OK) {
        return ESPL_OK;
    }
    if (status == ESPL_E_MACHINE && automatic) {
        espl_fail(err, ESPL_E_MACHINE, "this machine has no energy meter that sees its %s",
                  cuda ? "GPU" : "CPU");
    }
    espl_hint(err,
              "`espalier doctor` says what was looked for%s; energy: none measures times alone",
              cuda || choice == ESPL_ENERGY_INA3221
                  ? ""
                  : "; rapl needs read access to /sys/class/powercap/*/energy_uj, which only root "
                    "has by default");
    return espl_blame(err, "param:energy");
}
