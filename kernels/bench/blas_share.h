/* What share of the processor time of this process is spent inside the linked BLAS: a sampler on
 * the kernel's profiling timer, which costs nothing in the code that is measured. */
#ifndef ESPL_KERNELS_BENCH_BLAS_SHARE_H
#define ESPL_KERNELS_BENCH_BLAS_SHARE_H

#include "core/error.h"

#include <stdint.h>

struct espl_blas_share {
    uint64_t samples; /* one every 2 ms of processor time or tick of the kernel, all threads */
    uint64_t in_blas; /* of them, with the program counter in the library that holds the BLAS */
};

/** Starts sampling; one at a time. Errors: UNSUPPORTED (BLAS linked into the program itself, or a
 *  processor whose program counter this build cannot read), IO. */
enum espl_status espl_blas_share_start(struct espl_error *err);
/** Stops sampling and gives what was counted. */
void espl_blas_share_stop(struct espl_blas_share *share);

#endif
