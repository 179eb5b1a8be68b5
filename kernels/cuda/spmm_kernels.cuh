/* The kernels of this folder as the host code sees them. */
#ifndef ESPL_CUDA_SPMM_KERNELS_CUH
#define ESPL_CUDA_SPMM_KERNELS_CUH

#include "espalier/cuda_spmm.h"
#include "espalier/iebme.h"
#include "kernels/cuda/spmm_args.cuh"

#include <stddef.h>

enum { SPMM_DENSE_MAX_WARPS = 20 }; /* of a block of the dense kernel for one tile; else 16 */
/** Kernel for weights of 2, 3 or 4 bits and 1, 2 or 4 tiles of 8 tokens. whole: for launches that
 * are (spmm_is_whole()); of 4 bits it does them in fewer instructions. */
const void *spmm_dense_kernel(unsigned bits, unsigned tiles, bool whole);
size_t spmm_dense_shared_bytes(const spmm_args *args, unsigned tiles);
/** Kernel for chunks of the given unit (1x1, 1x2, 2x1, 2x2) and 1 or 2 tiles of 8 tokens, or of
 * mixed units and 1, of which one does all launches. */
const void *spmm_sparse_kernel(enum espl_iebme_areas unit, unsigned tiles, bool whole);
/** The same of one unit with a producer warp: no code before 9.0. */
const void *spmm_fed_sparse_kernel(enum espl_iebme_areas unit, unsigned tiles, bool whole);
/** The same for INT4 weights of one unit with the INT4 matrix instruction: no code for 9.0 and
 * later. */
const void *spmm_dense_int4_kernel(unsigned tiles);
const void *spmm_sparse_int4_kernel(enum espl_iebme_areas unit, unsigned tiles);
size_t spmm_sparse_shared_bytes(const spmm_args *args, unsigned tiles, unsigned warps,
                                enum espl_cuda_pipeline pipeline);

#endif
