/* y = x W^T for dense 4-bit weights with the INT4 matrix instruction of compute capability 8.0 to
 * 8.9. A word has rows g (code + 8) and g + 8 of four columns: two words make the register of
 * either row, and activations are fragments as they are packed. */
#include "kernels/cuda/spmm_dense_kernel.cuh"

/* Not in an unnamed namespace: of its own things a compiler says which have no use, as none have
 * where there is no code. */
template <int TILES_> struct int4_units {
    static constexpr int BITS = 4;
    static constexpr int TILES = TILES_;
    static constexpr bool HAS_CODE = SPMM_HAS_INT4;
    static constexpr int X_SHIFT = 0;
    static constexpr int SHIFT = 0;
    static constexpr bool BIASED = false;

    /* acc += 64 columns * b. */
    static __device__ __forceinline__ void multiply_pair(uint4 v, unsigned b0, unsigned b1,
                                                         int (&acc)[4])
    {
        constexpr unsigned BIAS = 0x88888888u; /* of nibbles: code + 8 ^ 8 is the code */
        spmm_mma_int4(acc, join_nibbles(v.x, v.y << 4) ^ BIAS, join_nibbles(v.x >> 4, v.y),
                      join_nibbles(v.z, v.w << 4) ^ BIAS, join_nibbles(v.z >> 4, v.w), b0, b1);
    }
    /* acc += blocks FIRST to FIRST + 3 of a unit * x. x: this lane's part of their 128 columns;
     * tiles of tokens are tile_bytes apart. */
    template <int FIRST>
    static __device__ __forceinline__ void multiply(const uint4 (&unit)[BITS], const uint8_t *x,
                                                    size_t tile_bytes, int (&acc)[TILES][4])
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            const uint4 v = __ldg(reinterpret_cast<const uint4 *>(x + j * tile_bytes));
            multiply_pair(unit[FIRST / 2], v.x, v.y, acc[j]);
            multiply_pair(unit[FIRST / 2 + 1], v.z, v.w, acc[j]);
        }
    }
    /* Sums are less than 2^23: 2^17 columns of 8 x 8. */
    static __device__ __forceinline__ unsigned zero(const int (&acc)[TILES][4])
    {
        return (unsigned)(acc[0][0] + (1 << 24)) >> 31;
    }
    static __device__ __forceinline__ void finish(int (&)[TILES][4])
    {
    }
};

const void *spmm_dense_int4_kernel(unsigned tiles)
{
    return tiles == 1   ? reinterpret_cast<const void *>(dense_kernel<int4_units<1>, false>)
           : tiles == 2 ? reinterpret_cast<const void *>(dense_kernel<int4_units<2>, false>)
                        : reinterpret_cast<const void *>(dense_kernel<int4_units<4>, false>);
}
