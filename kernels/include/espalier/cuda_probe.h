/* What CUDA finds on this machine. Works in every build: without a CUDA compiler the answer is that
 * this build has no CUDA, without a driver that there is none. Nothing of CUDA is linked but the
 * static runtime, which looks for the driver when it is first called. */
#ifndef ESPALIER_CUDA_PROBE_H
#define ESPALIER_CUDA_PROBE_H

#include "core/error.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { ESPL_CUDA_MAX_DEVICES = 16, ESPL_CUDA_NAME = 256 };

struct espl_cuda_device {
    char name[ESPL_CUDA_NAME];
    unsigned compute_major; /* 9.0 is 9 and 0 */
    unsigned compute_minor;
    unsigned multiprocessors;
    uint64_t memory_bytes;
};

struct espl_cuda_info {
    unsigned driver_major; /* CUDA version that the driver serves: 13.0 is 13 and 0 */
    unsigned driver_minor;
    unsigned runtime_major; /* of the runtime in this program */
    unsigned runtime_minor;
    unsigned device_count; /* entries of devices; more than ESPL_CUDA_MAX_DEVICES are not listed */
    struct espl_cuda_device devices[ESPL_CUDA_MAX_DEVICES];
};

/** Fills *info. Do not call before a fork whose child uses CUDA. Errors: UNSUPPORTED when this
 *  program was built without CUDA; MACHINE when there is no driver, it is too old, or there is no
 *  device. Versions are filled even then when they are known, and 0 otherwise. */
enum espl_status espl_cuda_probe(struct espl_cuda_info *info, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
