/* Memory bandwidth and integer rate of devices that the docs speak of. */
#include "espalier/formats.h"

#include <string.h>

const struct espl_device_rate espl_device_rates[] = {
    {"orin-agx", "Jetson AGX Orin 64GB", 204.8e9, 85e12,
     "data sheet: 256-bit LPDDR5 at 6400 MT/s; 85 TOPS = half of the 170 sparse INT8 TOPS of its "
     "GPU"},
    {"orin-nano", "Jetson Orin Nano 8GB Super", 102.4e9, 33.5e12,
     "data sheet: 128-bit LPDDR5 at 6400 MT/s; 33.5 TOPS = half of 67 sparse INT8 TOPS"},
    {"thor-agx", "Jetson AGX Thor (T5000)", 273e9, 0.0, "data sheet: 256-bit LPDDR5X at 8533 MT/s"},
    {"h200", "NVIDIA H200", 4.8e12, 1979e12,
     "data sheet: HBM3e; INT8 tensor operations without sparsity"},
    {NULL, NULL, 0.0, 0.0, NULL},
};

const struct espl_device_rate *espl_device_rate_find(const char *name)
{
    for (const struct espl_device_rate *device = espl_device_rates; device->name != NULL;
         device++) {
        if (strcmp(device->name, name) == 0) {
            return device;
        }
    }
    return NULL;
}
