/* Instances of the N:M kernel for weights of which all columns are stored. */
#include "kernels/cuda/nm_small.cuh"

const void *nm_dense_kernel(unsigned tokens, unsigned rows, unsigned mode)
{
    return nm_wide_kernel<ESPL_CUDA_NM_DENSE, 8>(tokens, rows, mode);
}
