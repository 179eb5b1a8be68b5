/* Device memory for callers in C, and errors of the CUDA runtime. */
#include "espalier/cuda_memory.h"
#include "kernels/cuda/cuda_support.cuh"

enum espl_status espl_cuda_check(cudaError_t error, const char *what, struct espl_error *err)
{
    if (error == cudaSuccess) {
        return ESPL_OK;
    }
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError(); /* this one does not stick to later calls */
        return espl_fail(err, ESPL_E_NOMEM, "not enough memory on the CUDA device: %s", what);
    }
    return espl_fail(err, ESPL_E_MACHINE, "%s: CUDA says %s (%s)", what, cudaGetErrorString(error),
                     cudaGetErrorName(error));
}

enum espl_status espl_cuda_attribute(cudaDeviceAttr attribute, int *value, struct espl_error *err)
{
    int device = 0;
    enum espl_status status = espl_cuda_check(cudaGetDevice(&device), "no CUDA device", err);
    if (status == ESPL_OK) {
        status = espl_cuda_check(cudaDeviceGetAttribute(value, attribute, device),
                                 "no answer about the CUDA device", err);
    }
    return status;
}

extern "C" enum espl_status espl_cuda_alloc(size_t bytes, void **device, struct espl_error *err)
{
    return espl_cuda_check(cudaMalloc(device, bytes), "cannot take memory", err);
}

extern "C" void espl_cuda_free(void *device)
{
    (void)cudaFree(device); /* an earlier error would be reported here a second time */
}

extern "C" enum espl_status espl_cuda_upload(void *device, const void *host, size_t bytes,
                                             struct espl_error *err)
{
    return espl_cuda_check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice),
                           "cannot copy to the device", err);
}

extern "C" enum espl_status espl_cuda_download(void *host, const void *device, size_t bytes,
                                               struct espl_error *err)
{
    enum espl_status status = espl_cuda_synchronize(err);
    if (status == ESPL_OK) {
        status = espl_cuda_check(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost),
                                 "cannot copy from the device", err);
    }
    return status;
}

extern "C" enum espl_status espl_cuda_copy(void *to, const void *from, size_t bytes,
                                           struct espl_error *err)
{
    return espl_cuda_check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice),
                           "cannot copy within the device", err);
}

extern "C" enum espl_status espl_cuda_fill(void *device, int value, size_t bytes,
                                           struct espl_error *err)
{
    return espl_cuda_check(cudaMemset(device, value, bytes), "cannot fill memory", err);
}

extern "C" enum espl_status espl_cuda_synchronize(struct espl_error *err)
{
    return espl_cuda_check(cudaDeviceSynchronize(), "work on the device failed", err);
}

extern "C" enum espl_status espl_cuda_free_bytes(uint64_t *bytes, struct espl_error *err)
{
    size_t unused = 0;
    size_t total = 0;
    const enum espl_status status =
        espl_cuda_check(cudaMemGetInfo(&unused, &total), "no answer about device memory", err);
    *bytes = unused;
    return status;
}
