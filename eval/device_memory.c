#include "eval/device_memory.h"

#include "core/checked.h"
#include "espalier/cuda_memory.h"

enum espl_status espl_device_upload(const void *host, size_t count, size_t item_bytes,
                                    void **device, struct espl_error *err)
{
    size_t bytes = 0;
    *device = NULL;
    if (host == NULL) {
        return ESPL_OK;
    }
    if (!espl_mul_size(count, item_bytes, &bytes)) {
        return espl_fail(err, ESPL_E_NOMEM, "an array for the CUDA device is too large");
    }
    const enum espl_status status = espl_cuda_alloc(bytes, device, err);
    return status == ESPL_OK ? espl_cuda_upload(*device, host, bytes, err) : status;
}

enum espl_status espl_device_upload_floats(const float *host, size_t count, float **device,
                                           struct espl_error *err)
{
    void *memory = NULL;
    const enum espl_status status = espl_device_upload(host, count, sizeof *host, &memory, err);
    *device = memory;
    return status;
}
