/* y = x W^T for IE-BME weights with the INT4 matrix instruction of compute capability 8.0 to 8.9.
 */
#include "kernels/cuda/spmm_decode_int4.cuh"
#include "kernels/cuda/spmm_sparse_kernel.cuh"

/* Not in the namespace below: of its own things a compiler says which have no use, as none have
 * where there is no code. */
template <espl_iebme_areas UNIT, int TILES_> struct int4_chunks {
    static constexpr int TILES = TILES_;
    static constexpr bool HAS_CODE = SPMM_HAS_INT4;
    static constexpr bool MIXED = false;
    static constexpr int X_SHIFT = 0;
    static constexpr int SHIFT = 0;
    using table = typename int4_table<UNIT>::type;
    using activations = uint2[SPARSE_BLOCKS / 2][TILES];

    static __device__ __forceinline__ void expand(const uint4 (&packed)[SPARSE_BLOCKS / 4][TILES],
                                                  activations &x)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
#pragma unroll
            for (int q = 0; q < SPARSE_BLOCKS / 4; q++) {
                x[2 * q][j] = pair_activations<UNIT>(packed[q][j].x, packed[q][j].y);
                x[2 * q + 1][j] = pair_activations<UNIT>(packed[q][j].z, packed[q][j].w);
            }
        }
    }
    static __device__ __forceinline__ void multiply(unsigned chunk, unsigned, unsigned lane,
                                                    table_place place, const activations &x,
                                                    int (&acc)[TILES][4])
    {
        int4_sums<TILES> sums = {x, acc};
        decode_chunk_int4<UNIT>(chunk, lane, place, sums);
    }
};

const void *spmm_sparse_int4_kernel(enum espl_iebme_areas unit, unsigned tiles)
{
    return sparse_kernel_for<own_rings<false>, int4_chunks>(unit, tiles);
}
