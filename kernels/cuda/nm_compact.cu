/* Instances of the N:M kernel for patterns that 16 rows and more share. */
#include "kernels/cuda/nm_small.cuh"

const void *nm_compact_kernel(unsigned registers, unsigned tokens, unsigned rows, unsigned mode)
{
    switch (registers) {
    case 1:
        return nm_wide_kernel<ESPL_CUDA_NM_COMPACT, 1>(tokens, rows, mode);
    case 2:
        return nm_wide_kernel<ESPL_CUDA_NM_COMPACT, 2>(tokens, rows, mode);
    case 3:
        return nm_common_kernel<ESPL_CUDA_NM_COMPACT, 3>(tokens, rows, mode);
    case 4:
        return nm_wide_kernel<ESPL_CUDA_NM_COMPACT, 4>(tokens, rows, mode);
    case 5:
        return nm_common_kernel<ESPL_CUDA_NM_COMPACT, 5>(tokens, rows, mode);
    case 6:
        return nm_common_kernel<ESPL_CUDA_NM_COMPACT, 6>(tokens, rows, mode);
    case 7:
        return nm_common_kernel<ESPL_CUDA_NM_COMPACT, 7>(tokens, rows, mode);
    default:
        return NULL;
    }
}
