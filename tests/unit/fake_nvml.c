/* A library with the functions of NVML that the meter calls. */
#include "fake_nvml.h"

#include "eval/energy/nvml_api.h"

#include <stdio.h>
#include <string.h>

extern struct fake_nvml fake_nvml;
struct fake_nvml fake_nvml;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device);
int nvmlDeviceGetName(void *device, char *out, unsigned size);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetFieldValues(void *device, int count, struct espl_nvml_field *fields);
int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending);
const char *nvmlErrorString(int result);

int nvmlInit_v2(void)
{
    fake_nvml.running++;
    return 0;
}

int nvmlShutdown(void)
{
    fake_nvml.running--;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = fake_nvml.count;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &fake_nvml;
    return index < fake_nvml.count ? 0 : 2;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **device)
{
    *device = &fake_nvml;
    return strcmp(bus_id, "0000:17:00.0") == 0 ? 0 : 6;
}

int nvmlDeviceGetName(void *device, char *out, unsigned size)
{
    (void)device;
    (void)snprintf(out, size, "Fake GPU");
    return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    (void)device;
    *millijoules = fake_nvml.energy_mj;
    return fake_nvml.energy_result;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = fake_nvml.power_mw;
    return fake_nvml.power_result;
}

int nvmlDeviceGetFieldValues(void *device, int count, struct espl_nvml_field *fields)
{
    (void)device;
    for (int i = 0; i < count; i++) {
        fields[i].result = fields[i].field_id == 186 ? fake_nvml.field_result : 3;
        fields[i].value_type = fake_nvml.field_type;
        fields[i].value.natural = fake_nvml.instant_mw;
    }
    return 0;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending)
{
    (void)device;
    *current = fake_nvml.mig;
    *pending = fake_nvml.mig;
    return 0;
}

const char *nvmlErrorString(int result)
{
    return result == 6 ? "Not Found" : "Error";
}
