/* CUDA's errors as ours, and memory that is owned. */
#ifndef ESPL_CUDA_SUPPORT_CUH
#define ESPL_CUDA_SUPPORT_CUH

#include "core/error.h"

#include <cuda_runtime.h>
#include <stddef.h>

/** ESPL_OK, or an error that says what failed: NOMEM or MACHINE. */
enum espl_status espl_cuda_check(cudaError_t error, const char *what, struct espl_error *err);
enum espl_status espl_cuda_attribute(cudaDeviceAttr attribute, int *value, struct espl_error *err);

#endif
