/* Launches over the end of the kernel before, where the device can (programmatic dependent launch,
 * 9.0 and later). */
#ifndef ESPL_CUDA_LAUNCH_CUH
#define ESPL_CUDA_LAUNCH_CUH

#include "kernels/cuda/cuda_support.cuh"

/** Can the current device? Errors: MACHINE. */
enum espl_status espl_cuda_can_overlap(bool *can, struct espl_error *err);
/** config: grid, block and shared memory. args: the kernel's only parameter. overlap: the kernel
 * may start while the one before it in the stream ends; only where the device can. what: failed,
 * when it does. Errors: MACHINE, NOMEM. */
enum espl_status espl_cuda_launch(const void *kernel, cudaLaunchConfig_t config, const void *args,
                                  bool overlap, void *stream, const char *what,
                                  struct espl_error *err);

#endif
