/* What the CUDA functions of a build without CUDA answer. */
#ifndef ESPL_KERNELS_CUDA_ABSENT_H
#define ESPL_KERNELS_CUDA_ABSENT_H

#include "core/error.h"

/** UNSUPPORTED, with a hint how to build with CUDA. */
enum espl_status espl_cuda_fail_absent(struct espl_error *err);

#endif
