/* Chunks of one form with the INT8 matrix instruction. Values are expanded to 16 x code, so the
 * int32 sums are exact multiples of 256. */
#ifndef ESPL_CUDA_SPMM_SPARSE_INT8_CUH
#define ESPL_CUDA_SPMM_SPARSE_INT8_CUH

#include "kernels/cuda/spmm_sparse_kernel.cuh"

namespace
{

template <int TILES_> struct int8_form {
    static constexpr int TILES = TILES_;
    static constexpr bool HAS_CODE = true;
    static constexpr int X_SHIFT = SPMM_X_SHIFT;
    static constexpr int SHIFT = 4;
    using activations = uint2[SPARSE_BLOCKS][TILES];

    static __device__ __forceinline__ void expand(const uint4 (&packed)[SPARSE_BLOCKS / 4][TILES],
                                                  activations &x)
    {
        expand_activations<TILES>(packed, x);
    }
};

template <espl_iebme_areas UNIT, int TILES> struct int8_chunks : int8_form<TILES> {
    static constexpr bool MIXED = false;
    using table = typename chunk_masks<UNIT>::table;
    using activations = typename int8_form<TILES>::activations;

    static __device__ __forceinline__ void multiply(unsigned chunk, unsigned, unsigned lane,
                                                    table_place place, const activations &x,
                                                    int (&acc)[TILES][4])
    {
        plain_sums<TILES> sums = {x, acc};
        decode_chunk<UNIT, table>(chunk, lane, place, sums);
    }
};

} // namespace

#endif
