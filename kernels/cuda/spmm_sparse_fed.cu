/* The products of spmm_sparse.cu of one form, by blocks in which one warp copies for all others. */
#include "kernels/cuda/spmm_sparse_int8.cuh"

namespace
{

template <bool WHOLE> struct fed_rings {
    template <class FORM> static const void *of()
    {
        return reinterpret_cast<const void *>(fed_sparse_kernel<FORM, WHOLE>);
    }
};

} // namespace

const void *spmm_fed_sparse_kernel(enum espl_iebme_areas unit, unsigned tiles, bool whole)
{
    return whole ? sparse_kernel_for<fed_rings<true>, int8_chunks>(unit, tiles)
                 : sparse_kernel_for<fed_rings<false>, int8_chunks>(unit, tiles);
}
