/* An NVIDIA GPU through NVML: the energy counter and the power reading, side by side, because they
 * are known to disagree on some cards. Both are probed by reading: on Tegra NVML starts and then
 * supports neither. */
#include "eval/energy/meter_internal.h"
#include "eval/energy/nvml_api.h"

#include <stdio.h>
#include <stdlib.h>

enum { RAIL_COUNTER, RAIL_POWER };

struct nvml_chip {
    struct espl_nvml_api api;
    void *device;
    bool instant; /* the power of this moment can be read, not only an average */
    unsigned long long first_mj, last_mj;
    bool has_first;
};

static enum espl_rail_state state_of(int result)
{
    switch (result) {
    case ESPL_NVML_OK:
        return ESPL_RAIL_OK;
    case ESPL_NVML_NOT_SUPPORTED:
        return ESPL_RAIL_ABSENT;
    case ESPL_NVML_NO_PERMISSION:
        return ESPL_RAIL_DENIED;
    default:
        return ESPL_RAIL_UNREADABLE;
    }
}

static enum espl_rail_state read_counter(struct nvml_chip *gpu, double *joules)
{
    unsigned long long now_mj = 0;
    if (gpu->api.energy == NULL) {
        return ESPL_RAIL_ABSENT;
    }
    const enum espl_rail_state state = state_of(gpu->api.energy(gpu->device, &now_mj));
    if (state != ESPL_RAIL_OK) {
        return state;
    }
    if (!gpu->has_first) {
        gpu->first_mj = now_mj;
        gpu->last_mj = now_mj;
        gpu->has_first = true;
    }
    if (now_mj < gpu->last_mj) {
        return ESPL_RAIL_WENT_BACK; /* the driver was loaded anew */
    }
    gpu->last_mj = now_mj;
    *joules = (double)(now_mj - gpu->first_mj) * 1e-3;
    return ESPL_RAIL_OK;
}

static enum espl_rail_state read_instant(const struct nvml_chip *gpu, double *watts)
{
    struct espl_nvml_field field = {.field_id = ESPL_NVML_FIELD_POWER_INSTANT};
    int result = gpu->api.fields(gpu->device, 1, &field);
    result = result == ESPL_NVML_OK ? field.result : result;
    if (result == ESPL_NVML_OK && field.value_type != ESPL_NVML_TYPE_UNSIGNED_INT) {
        return ESPL_RAIL_BAD_VALUE;
    }
    if (result == ESPL_NVML_OK) {
        *watts = (double)field.value.natural * 1e-3;
    }
    return state_of(result);
}

static enum espl_rail_state read_rail(struct espl_energy_chip *chip, size_t rail, double *value,
                                      int *sys_errno)
{
    struct nvml_chip *gpu = chip->state;
    unsigned milliwatts = 0;
    (void)sys_errno; /* NVML has codes of its own */
    if (rail == RAIL_COUNTER) {
        return read_counter(gpu, value);
    }
    if (gpu->instant) {
        return read_instant(gpu, value);
    }
    const enum espl_rail_state state = state_of(gpu->api.power(gpu->device, &milliwatts));
    if (state == ESPL_RAIL_OK) {
        *value = (double)milliwatts * 1e-3;
    }
    return state;
}

static void close_chip(struct espl_energy_chip *chip)
{
    struct nvml_chip *gpu = chip->state;
    if (gpu != NULL) {
        espl_nvml_unload(&gpu->api);
    }
    free(gpu);
}

/* The GPU that is asked for. Its index in NVML need not be CUDA's, so only a bus id, or its being
 * alone, says which one is meant. */
static enum espl_status find_device(struct nvml_chip *gpu, const char *bus_id,
                                    struct espl_error *err)
{
    unsigned count = 0;
    if (bus_id != NULL) {
        const int result = gpu->api.by_bus_id(bus_id, &gpu->device);
        return result == ESPL_NVML_OK ? ESPL_OK
                                      : espl_fail(err, ESPL_E_MACHINE, "NVML has no GPU '%s': %s",
                                                  bus_id, gpu->api.error_text(result));
    }
    if (gpu->api.count(&count) != ESPL_NVML_OK || count == 0) {
        return espl_fail(err, ESPL_E_MACHINE, "NVML shows no GPU");
    }
    if (count > 1) {
        (void)espl_fail(err, ESPL_E_MACHINE, "NVML shows %u GPUs and none is named", count);
        return espl_hint(err, "name it by its PCI bus id");
    }
    return gpu->api.by_index(0, &gpu->device) == ESPL_NVML_OK
               ? ESPL_OK
               : espl_fail(err, ESPL_E_MACHINE, "NVML does not give access to the GPU");
}

static enum espl_status add_rails(struct espl_energy_meter *meter, struct nvml_chip *gpu,
                                  struct espl_error *err)
{
    char name[ESPL_ENERGY_PLACE] = "";
    unsigned mig = 0;
    unsigned pending = 0;
    double watts = 0.0;
    (void)gpu->api.name(gpu->device, name, sizeof name); /* then the place stays empty */
    name[sizeof name - 1] = '\0';
    gpu->instant = gpu->api.fields != NULL && read_instant(gpu, &watts) == ESPL_RAIL_OK;
    if (gpu->api.mig_mode != NULL && gpu->api.mig_mode(gpu->device, &mig, &pending) == 0 &&
        mig != 0) {
        espl_energy_add_note(meter, "MIG is on: the readings are of the whole GPU");
    }
    struct espl_energy_rail *counter = espl_energy_add_rail(meter, err);
    struct espl_energy_rail *power = espl_energy_add_rail(meter, err);
    if (counter == NULL || power == NULL) {
        return ESPL_E_NOMEM;
    }
    (void)snprintf(counter->name, sizeof counter->name, "energy counter");
    (void)snprintf(counter->place, sizeof counter->place, "%s", name);
    counter->series.counter = true;
    (void)snprintf(power->name, sizeof power->name, "power (%s)",
                   gpu->instant ? "instant" : "driver's average");
    (void)snprintf(power->place, sizeof power->place, "%s", name);
    return ESPL_OK;
}

static enum espl_status find(struct espl_energy_meter *meter,
                             const struct espl_energy_options *options, struct espl_error *err)
{
    struct nvml_chip *gpu = calloc(1, sizeof *gpu);
    if (gpu == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the NVML meter");
    }
    enum espl_status status = espl_nvml_load(options->nvml_library, &gpu->api, err);
    if (status == ESPL_OK) {
        status = find_device(gpu, options->gpu, err);
    }
    if (status != ESPL_OK) {
        espl_nvml_unload(&gpu->api);
        free(gpu);
        return status;
    }
    if (espl_energy_add_chip(meter, gpu, err) == NULL) {
        return ESPL_E_NOMEM;
    }
    return add_rails(meter, gpu, err);
}

/* Both are totals of the same thing, so that a report shows both; the counter comes first. */
static void choose_totals(struct espl_energy_meter *meter)
{
    for (size_t i = 0; i < meter->rail_count; i++) {
        if (meter->rails[i]->state == ESPL_RAIL_OK) {
            struct espl_energy_total *total = &meter->totals[meter->total_count++];
            total->rails[total->rail_count++] = i;
            (void)snprintf(total->boundary, sizeof total->boundary, "GPU (%s)",
                           meter->rails[i]->name);
        } else {
            espl_energy_add_note(meter, "%s: %s", meter->rails[i]->name,
                                 espl_rail_state_text(meter->rails[i]->state));
        }
    }
}

const struct espl_energy_driver espl_energy_nvml = {
    .name = "nvml",
    .find = find,
    .read = read_rail,
    .close_chip = close_chip,
    .choose_totals = choose_totals,
};
