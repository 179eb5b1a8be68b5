/* The few functions of NVML that the meter calls, loaded at run time: machines without an NVIDIA
 * driver run the same program. Names, numbers and layouts are NVML's. */
#ifndef ESPL_ENERGY_NVML_API_H
#define ESPL_ENERGY_NVML_API_H

#include "core/error.h"

enum {
    ESPL_NVML_OK = 0,
    ESPL_NVML_NOT_SUPPORTED = 3,
    ESPL_NVML_NO_PERMISSION = 4,
    ESPL_NVML_FIELD_POWER_INSTANT = 186,
    ESPL_NVML_TYPE_UNSIGNED_INT = 1
};

/** nvmlFieldValue_t. */
struct espl_nvml_field {
    unsigned field_id, scope_id;
    long long timestamp, latency_us;
    unsigned value_type; /* tells which member of value counts */
    int result;
    union {
        double real;
        unsigned natural;
        unsigned long long natural64;
    } value;
};

struct espl_nvml_api {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*by_index)(unsigned index, void **device);
    int (*by_bus_id)(const char *bus_id, void **device);
    int (*name)(void *device, char *out, unsigned size);
    int (*energy)(void *device, unsigned long long *millijoules); /* NULL = not in this library */
    int (*power)(void *device, unsigned *milliwatts);
    int (*fields)(void *device, int count, struct espl_nvml_field *fields); /* NULL allowed */
    int (*mig_mode)(void *device, unsigned *current, unsigned *pending);    /* NULL allowed */
    const char *(*error_text)(int result);
};

/** Loads and initialises the library. file: NULL = libnvidia-ml.so.1. Errors: MACHINE. */
enum espl_status espl_nvml_load(const char *file, struct espl_nvml_api *api,
                                struct espl_error *err);
/** Shuts it down; one that was not loaded: nothing happens. */
void espl_nvml_unload(struct espl_nvml_api *api);

#endif
