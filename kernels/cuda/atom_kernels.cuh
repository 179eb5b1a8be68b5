/* The kernels with scales as the host code sees them. */
#ifndef ESPL_CUDA_ATOM_KERNELS_CUH
#define ESPL_CUDA_ATOM_KERNELS_CUH

#include "espalier/iebme.h"
#include "kernels/cuda/spmm_args.cuh"

#include <stddef.h>

enum { ATOM_WIDE_WARPS = 12 }; /* of a dense block for 4 tiles: more would not leave registers */

/** For weights of 2, 3 or 4 bits and 1, 2 or 4 tiles of 8 tokens. fine: steps of 32 columns, 1
 * tile. whole: for launches that are (spmm_is_whole()); with fine steps one kernel does all.
 */
const void *atom_dense_kernel_of(unsigned bits, unsigned tiles, bool fine, bool whole);
size_t atom_dense_shared_bytes(const struct spmm_args *args, unsigned tiles, unsigned warps);
/** For chunks of the given unit and 1 or 2 tiles. fine, whole: as above. */
const void *atom_sparse_kernel_of(enum espl_iebme_areas unit, unsigned tiles, bool fine,
                                  bool whole);
/** warps: that have rings. */
size_t atom_sparse_shared_bytes(const struct spmm_args *args, unsigned tiles, unsigned warps);

#endif
