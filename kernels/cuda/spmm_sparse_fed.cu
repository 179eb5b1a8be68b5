/* The products of spmm_sparse.cu of one form, by blocks in which one warp copies for all others. */
#include "kernels/cuda/spmm_sparse_int8.cuh"

namespace
{

template <espl_iebme_areas UNIT> const void *kernel_of(unsigned tiles)
{
    return tiles == 1 ? reinterpret_cast<const void *>(fed_sparse_kernel<int8_chunks<UNIT, 1>>)
                      : reinterpret_cast<const void *>(fed_sparse_kernel<int8_chunks<UNIT, 2>>);
}

} // namespace

const void *spmm_fed_sparse_kernel(enum espl_iebme_areas unit, unsigned tiles)
{
    switch (unit) {
    case ESPL_IEBME_1X1:
        return kernel_of<ESPL_IEBME_1X1>(tiles);
    case ESPL_IEBME_1X2:
        return kernel_of<ESPL_IEBME_1X2>(tiles);
    case ESPL_IEBME_2X1:
        return kernel_of<ESPL_IEBME_2X1>(tiles);
    default:
        return kernel_of<ESPL_IEBME_2X2>(tiles);
    }
}
