/* The N:M kernel for large products whose weights stay in shared memory, as the host code sees it.
 */
#ifndef ESPL_CUDA_NM_STAY_CUH
#define ESPL_CUDA_NM_STAY_CUH

#include "kernels/cuda/nm_args.cuh"

enum {
    NM_STAY_TOKENS = 64, /* of a tile */
    NM_STAY_GROUPS = 3,  /* of four warps, which copy for themselves */
    NM_STAY_THREADS = NM_STAY_GROUPS * 128,
    NM_STAY_LEAST_STAGES = 3, /* of activations, for each group: with fewer nothing overlaps */
    NM_STAY_MOST_STAGES = 6,
    NM_STAY_MOST_SHARED = 227 * 1024 - 256 /* what a block can have there, less the barriers */
};

/** Kernels of large products: tiles and weights through one ring of stages, or weights that stay.
 */
enum nm_large { NM_NOT_LARGE, NM_LARGE_RING, NM_LARGE_STAY };
enum nm_large nm_large_of(const struct espl_cuda_nm_choice *choice);
/** The choice of such a kernel. */
struct espl_cuda_nm_choice nm_large_choice(enum nm_large large);
/** The rule: which kernel of large products is taken, if any. */
enum nm_large nm_prefers_large(const struct espl_cuda_nm_matrix *matrix, size_t tokens,
                               unsigned multiprocessors);

/** Whether there is a kernel for 2 or 4 of 8, V rows that share patterns, and so many blocks of 128
 *  columns, whose weights must leave room for NM_STAY_LEAST_STAGES. */
bool nm_stay_fits(unsigned registers, unsigned shared, unsigned blocks);
/** The kernel of such a matrix; NULL: there is none, or none for this device. */
const void *nm_stay_kernel_of(const struct espl_cuda_nm_matrix *matrix, unsigned mode);
/** Bytes of dynamic shared memory. */
size_t nm_stay_shared_bytes(const struct espl_cuda_nm_matrix *matrix);

#endif
