/* Copies of host arrays on the CUDA device, for the runtimes of whole models. */
#ifndef ESPL_EVAL_DEVICE_MEMORY_H
#define ESPL_EVAL_DEVICE_MEMORY_H

#include "core/error.h"

#include <stddef.h>

/** *device <- device memory with a copy of `count` items of host; NULL for NULL. The caller frees
 *  it with espl_cuda_free(), also after an error. Errors: NOMEM, MACHINE. */
enum espl_status espl_device_upload(const void *host, size_t count, size_t item_bytes,
                                    void **device, struct espl_error *err);
/** The same for floats. */
enum espl_status espl_device_upload_floats(const float *host, size_t count, float **device,
                                           struct espl_error *err);

#endif
