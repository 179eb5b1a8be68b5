/* The N:M kernel for large products whose weights stay in shared memory, as the host code sees it.
 */
#ifndef ESPL_CUDA_NM_STAY_CUH
#define ESPL_CUDA_NM_STAY_CUH

#include "kernels/cuda/nm_args.cuh"

enum {
    NM_STAY_TOKENS = 64,      /* of a tile */
    NM_STAY_THREADS = 384,    /* two groups of four warps multiply, one copies */
    NM_STAY_LEAST_STAGES = 3, /* of activations, for each group: with fewer nothing overlaps */
    NM_STAY_MOST_STAGES = 6
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

/** Kernel for N = 2 of 8, V = 64; NULL: there is none, or none for this device. */
const void *nm_stay_kernel_of(const struct espl_cuda_nm_matrix *matrix, unsigned mode);
/** Stages of activations that each group gets beside the weights: up to NM_STAY_MOST_STAGES. */
unsigned nm_stay_stages(const struct espl_cuda_nm_matrix *matrix);
/** Bytes of dynamic shared memory. */
size_t nm_stay_shared_bytes(const struct espl_cuda_nm_matrix *matrix);

#endif
