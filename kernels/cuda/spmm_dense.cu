/* y = x W^T for dense weights of 2, 3 or 4 bits, with the INT8 matrix instruction.
 *
 * A weight is expanded into the top bits of a byte (code * 2^(8 - bits)): no sign extension is
 * needed, and the int32 sum is an exact multiple, shifted back once at the end. */
#include "kernels/cuda/spmm_dense_kernel.cuh"

namespace
{

template <int BITS_, int TILES_> struct int8_units {
    static constexpr int BITS = BITS_;
    static constexpr int TILES = TILES_;
    static constexpr bool HAS_CODE = true;
    static constexpr int X_SHIFT = SPMM_X_SHIFT;
    static constexpr int SHIFT = 8 - BITS;
    static constexpr bool BIASED = BITS == 4;

    /* acc += blocks FIRST to FIRST + COUNT - 1 of a unit * x. x: this lane's part of their columns;
     * tiles of tokens are tile_bytes apart. */
    template <int FIRST, int COUNT>
    __device__ __forceinline__ static void multiply_blocks(const uint4 (&unit)[BITS],
                                                           const uint8_t *x, size_t tile_bytes,
                                                           int (&acc)[TILES][4])
    {
        unsigned a[COUNT][4];
        expand<BITS, FIRST>(unit, a[0]);
        expand<BITS, FIRST + 1>(unit, a[1]);
        if constexpr (COUNT == 4) {
            expand<BITS, FIRST + 2>(unit, a[2]);
            expand<BITS, FIRST + 3>(unit, a[3]);
        }
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            unsigned words[COUNT];
            spmm_load_words(words, x + j * tile_bytes);
#pragma unroll
            for (int b = 0; b < COUNT; b++) {
                const uint2 pair = spmm_expand_x(words[b]);
                spmm_mma(acc[j], a[b][0], a[b][1], a[b][2], a[b][3], pair.x, pair.y);
            }
        }
    }

    /* The four blocks of 128 columns, two at a time where the assembler would otherwise run out of
     * registers: with four tiles of tokens from 10.0 on. */
    template <int FIRST>
    __device__ __forceinline__ static void multiply(const uint4 (&unit)[BITS], const uint8_t *x,
                                                    size_t tile_bytes, int (&acc)[TILES][4])
    {
        if constexpr (SPMM_FEW_REGISTERS && TILES == 4) {
            multiply_blocks<FIRST, 2>(unit, x, tile_bytes, acc);
            multiply_blocks<FIRST + 2, 2>(unit, x + sizeof(uint2), tile_bytes, acc);
        } else {
            multiply_blocks<FIRST, 4>(unit, x, tile_bytes, acc);
        }
    }

    /* Sums are multiples of 16. */
    static __device__ __forceinline__ unsigned zero(const int (&acc)[TILES][4])
    {
        return acc[0][0] & 1;
    }
    /* INT4: sums of bytes 16 x high + low, less those of low. */
    static __device__ __forceinline__ void finish(int (&acc)[TILES][4])
    {
#pragma unroll
        for (int j = 0; j < TILES && BITS == 4; j++) {
            acc[j][2] -= acc[j][0];
            acc[j][3] -= acc[j][1];
        }
    }
};

template <int BITS, bool WHOLE> const void *kernel_of(unsigned tiles)
{
    return tiles == 1   ? reinterpret_cast<const void *>(dense_kernel<int8_units<BITS, 1>, WHOLE>)
           : tiles == 2 ? reinterpret_cast<const void *>(dense_kernel<int8_units<BITS, 2>, WHOLE>)
                        : reinterpret_cast<const void *>(dense_kernel<int8_units<BITS, 4>, WHOLE>);
}

} // namespace

/* The shorter kernels of 2 and 3 bits have so few registers that two blocks fit into a
 * multiprocessor: when launches overlap, some get two and others none. */
const void *spmm_dense_kernel(unsigned bits, unsigned tiles, bool whole)
{
    return bits == 2   ? kernel_of<2, false>(tiles)
           : bits == 3 ? kernel_of<3, false>(tiles)
           : whole     ? kernel_of<4, true>(tiles)
                       : kernel_of<4, false>(tiles);
}

size_t spmm_dense_shared_bytes(const spmm_args *args, unsigned tiles)
{
    return spmm_sums_bytes(args, tiles);
}
