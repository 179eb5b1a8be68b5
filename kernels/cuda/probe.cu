/* Devices, memory and versions as the CUDA runtime reports them. */
#include "espalier/cuda_probe.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

/* CUDA writes version 13.0 as 13000. */
static void split_version(int version, unsigned *major, unsigned *minor)
{
    *major = static_cast<unsigned>(version) / 1000u;
    *minor = static_cast<unsigned>(version) % 1000u / 10u;
}

static enum espl_status explain(cudaError_t error, const struct espl_cuda_info *info,
                                struct espl_error *err)
{
    if (error == cudaErrorInsufficientDriver && info->driver_major == 0) {
        return espl_fail(err, ESPL_E_MACHINE, "no CUDA driver found on this machine");
    }
    if (error == cudaErrorInsufficientDriver) {
        espl_fail(err, ESPL_E_MACHINE,
                  "the CUDA driver serves version %u.%u, this program needs %u.%u",
                  info->driver_major, info->driver_minor, info->runtime_major, info->runtime_minor);
        return espl_hint(err, "update the NVIDIA driver");
    }
    if (error == cudaErrorNoDevice) {
        return espl_fail(err, ESPL_E_MACHINE, "there is a CUDA driver, but no CUDA device");
    }
    return espl_fail(err, ESPL_E_MACHINE, "CUDA cannot be used: %s (%s)", cudaGetErrorString(error),
                     cudaGetErrorName(error));
}

static cudaError_t describe_device(int index, struct espl_cuda_device *device)
{
    cudaDeviceProp properties;
    const cudaError_t error = cudaGetDeviceProperties(&properties, index);
    if (error != cudaSuccess) {
        return error;
    }
    (void)snprintf(device->name, sizeof device->name, "%s", properties.name);
    device->compute_major = static_cast<unsigned>(properties.major);
    device->compute_minor = static_cast<unsigned>(properties.minor);
    device->multiprocessors = static_cast<unsigned>(properties.multiProcessorCount);
    device->memory_bytes = properties.totalGlobalMem;
    return cudaSuccess;
}

extern "C" enum espl_status espl_cuda_probe(struct espl_cuda_info *info, struct espl_error *err)
{
    int version = 0;
    int count = 0;
    memset(info, 0, sizeof *info);
    if (cudaRuntimeGetVersion(&version) == cudaSuccess) {
        split_version(version, &info->runtime_major, &info->runtime_minor);
    }
    if (cudaDriverGetVersion(&version) == cudaSuccess) { /* 0 without a driver */
        split_version(version, &info->driver_major, &info->driver_minor);
    }
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess) {
        return explain(error, info, err);
    }
    if (count > ESPL_CUDA_MAX_DEVICES) {
        count = ESPL_CUDA_MAX_DEVICES;
    }
    for (int i = 0; i < count; i++) {
        error = describe_device(i, &info->devices[i]);
        if (error != cudaSuccess) {
            return explain(error, info, err);
        }
    }
    info->device_count = static_cast<unsigned>(count);
    return ESPL_OK;
}
