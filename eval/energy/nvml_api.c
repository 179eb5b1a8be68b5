#include "eval/energy/nvml_api.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* A function pointer cannot be cast from a data pointer in ISO C; POSIX promises that its bytes are
 * the same. */
static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

enum espl_status espl_nvml_load(const char *file, struct espl_nvml_api *api, struct espl_error *err)
{
    memset(api, 0, sizeof *api);
    void *library = dlopen(file != NULL ? file : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return espl_fail(err, ESPL_E_MACHINE, "no NVML library");
    }
    const bool complete = find(library, "nvmlInit_v2", &api->init) &&
                          find(library, "nvmlShutdown", &api->shutdown) &&
                          find(library, "nvmlDeviceGetCount_v2", &api->count) &&
                          find(library, "nvmlDeviceGetHandleByIndex_v2", &api->by_index) &&
                          find(library, "nvmlDeviceGetHandleByPciBusId_v2", &api->by_bus_id) &&
                          find(library, "nvmlDeviceGetName", &api->name) &&
                          find(library, "nvmlDeviceGetPowerUsage", &api->power) &&
                          find(library, "nvmlErrorString", &api->error_text);
    (void)find(library, "nvmlDeviceGetTotalEnergyConsumption", &api->energy);
    (void)find(library, "nvmlDeviceGetFieldValues", &api->fields);
    (void)find(library, "nvmlDeviceGetMigMode", &api->mig_mode);
    const int result = complete ? api->init() : ESPL_NVML_NOT_SUPPORTED;
    if (result != ESPL_NVML_OK) {
        (void)espl_fail(err, ESPL_E_MACHINE, "NVML does not start: %s",
                        complete ? api->error_text(result) : "functions are missing");
        (void)dlclose(library); /* nothing of it is in use */
        return ESPL_E_MACHINE;
    }
    api->library = library;
    return ESPL_OK;
}

void espl_nvml_unload(struct espl_nvml_api *api)
{
    if (api->library != NULL) {
        (void)api->shutdown(); /* nothing could be done about a failure */
        (void)dlclose(api->library);
        api->library = NULL;
    }
}
