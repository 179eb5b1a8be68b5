/* The N:M kernel for large products on compute capability 9.0, as the host code sees it. */
#ifndef ESPL_CUDA_NM_WIDE_CUH
#define ESPL_CUDA_NM_WIDE_CUH

#include "kernels/cuda/nm_args.cuh"

enum {
    NM_WIDE_TOKENS = 128,      /* of a tile */
    NM_WIDE_LEAST_SHARED = 32, /* V */
    NM_WIDE_ROW_STEP = 16,     /* rows, strides and addresses of outputs are multiples of it */
    NM_WIDE_STAGES = 4,
    NM_WIDE_THREADS = 384 /* two groups of four warps multiply, one copies */
};

/** Whether a kernel of large products has code for this device: elsewhere it is empty, without
 *  barriers. */
bool nm_has_code(const void *kernel);
/** Kernel for N = 2 or 4 of 8, V = 32 or 64; NULL: there is none, or none for this device. */
const void *nm_wide_kernel_of(const struct espl_cuda_nm_matrix *matrix, unsigned mode);
/** Bytes of dynamic shared memory. */
size_t nm_wide_shared_bytes(const struct espl_cuda_nm_matrix *matrix);

#endif
