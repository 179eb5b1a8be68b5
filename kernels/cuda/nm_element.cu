/* Instances of the N:M kernel for patterns of single rows. */
#include "kernels/cuda/nm_small.cuh"

const void *nm_element_kernel(unsigned registers, unsigned tokens, unsigned rows, unsigned mode)
{
    switch (registers) {
    case 1:
        return nm_common_kernel<ESPL_CUDA_NM_ELEMENT, 1>(tokens, rows, mode);
    case 2:
        return nm_common_kernel<ESPL_CUDA_NM_ELEMENT, 2>(tokens, rows, mode);
    case 3:
        return nm_common_kernel<ESPL_CUDA_NM_ELEMENT, 3>(tokens, rows, mode);
    case 4:
        return nm_common_kernel<ESPL_CUDA_NM_ELEMENT, 4>(tokens, rows, mode);
    default:
        return NULL;
    }
}
