/* Device memory for callers in C. In a build without CUDA: UNSUPPORTED. */
#ifndef ESPALIER_CUDA_MEMORY_H
#define ESPALIER_CUDA_MEMORY_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** *device <- memory aligned to 256 bytes, not initialised. Errors: NOMEM, MACHINE, UNSUPPORTED. */
enum espl_status espl_cuda_alloc(size_t bytes, void **device, struct espl_error *err);
/** NULL is allowed. Waits for the device. */
void espl_cuda_free(void *device);
enum espl_status espl_cuda_upload(void *device, const void *host, size_t bytes,
                                  struct espl_error *err);
/** Waits for the device before it copies. */
enum espl_status espl_cuda_download(void *host, const void *device, size_t bytes,
                                    struct espl_error *err);
/** Within the device. */
enum espl_status espl_cuda_copy(void *to, const void *from, size_t bytes, struct espl_error *err);
/** Every byte of device <- value. */
enum espl_status espl_cuda_fill(void *device, int value, size_t bytes, struct espl_error *err);
/** Waits for everything and reports what went wrong meanwhile. */
enum espl_status espl_cuda_synchronize(struct espl_error *err);
/** Bytes of the device's memory that nobody uses. */
enum espl_status espl_cuda_free_bytes(uint64_t *bytes, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
