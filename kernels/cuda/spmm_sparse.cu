/* y = x W^T for IE-BME weights, 1x1, 1x2, 2x1 and 2x2 areas, with the INT8 matrix instruction.
 * Values are expanded to 16 x code, so the int32 sums are exact multiples of 256. */
#include "kernels/cuda/spmm_sparse_kernel.cuh"

namespace
{

template <espl_iebme_areas UNIT, int TILES_> struct int8_chunks {
    static constexpr int TILES = TILES_;
    static constexpr bool HAS_CODE = true;
    static constexpr int X_SHIFT = SPMM_X_SHIFT;
    static constexpr int SHIFT = 4;
    using table = typename chunk_masks<UNIT>::table;
    using activations = uint2[SPARSE_BLOCKS][TILES];

    static __device__ __forceinline__ void expand(const uint4 (&packed)[SPARSE_BLOCKS / 4][TILES],
                                                  activations &x)
    {
        expand_activations<TILES>(packed, x);
    }
    static __device__ __forceinline__ void multiply(unsigned chunk, unsigned lane,
                                                    table_place place, const activations &x,
                                                    int (&acc)[TILES][4])
    {
        plain_sums<TILES> sums = {x, acc};
        decode_chunk<UNIT>(chunk, lane, place, sums);
    }
};

template <espl_iebme_areas UNIT> const void *kernel_of(unsigned tiles)
{
    return tiles == 1 ? reinterpret_cast<const void *>(sparse_kernel<int8_chunks<UNIT, 1>>)
                      : reinterpret_cast<const void *>(sparse_kernel<int8_chunks<UNIT, 2>>);
}

} // namespace

const void *spmm_sparse_kernel(enum espl_iebme_areas unit, unsigned tiles)
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

size_t spmm_sparse_shared_bytes(const spmm_args *args, unsigned tiles, unsigned warps)
{
    const size_t ring = static_cast<size_t>(args->stages) * (args->stage_bytes + 8);
    return TABLE_BYTES + warps * ring + spmm_sums_bytes(args, tiles);
}
