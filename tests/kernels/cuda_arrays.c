#include "kernels/cuda_arrays.h"

#include "espalier/cuda_memory.h"
#include "kernels/cuda_device.h"

#include <math.h>

void *cuda_array(const void *host, size_t bytes)
{
    struct espl_error err;
    void *device = NULL;
    cuda_check(espl_cuda_alloc(bytes, &device, &err), &err);
    cuda_check(host != NULL ? espl_cuda_upload(device, host, bytes, &err)
                            : espl_cuda_fill(device, 0, bytes, &err),
               &err);
    return device;
}

void *cuda_fetch(const void *device, size_t bytes)
{
    struct espl_error err;
    void *host = malloc(bytes);
    assert_non_null(host);
    cuda_check(espl_cuda_download(host, device, bytes, &err), &err);
    return host;
}

float cuda_float_of_half(uint16_t half)
{
    const int exponent = half >> 10 & 31;
    const float mantissa = (float)(half & 1023);
    const float size = exponent == 0    ? ldexpf(mantissa, -24)
                       : exponent == 31 ? (mantissa == 0.0F ? INFINITY : NAN)
                                        : ldexpf(1024.0F + mantissa, exponent - 25);
    return (half & 0x8000) != 0 ? -size : size;
}
