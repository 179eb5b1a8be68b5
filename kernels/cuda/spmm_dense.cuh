/* What the kernels for dense weights share: how a unit becomes fragments, and how warps walk over
 * units. Layout: kernels/formats/dense_device.c. */
#ifndef ESPL_CUDA_SPMM_DENSE_CUH
#define ESPL_CUDA_SPMM_DENSE_CUH

#include "kernels/cuda/spmm_args.cuh"
#include "kernels/cuda/spmm_kernels.cuh"

enum {
    DENSE_GROUPS = 2, /* of 128 columns in a unit */
    DENSE_AHEAD = 1   /* units that a warp multiplies while the next as many are on their way */
};

/* Kernels of 10.0 and later need a few registers more than those of 9.0, so that some would keep
 * values in local memory. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr bool SPMM_FEW_REGISTERS = true;
#else
constexpr bool SPMM_FEW_REGISTERS = false;
#endif

/* x of one or half a lane's part of 128 columns. */
__device__ __forceinline__ void spmm_load_words(unsigned (&words)[4], const uint8_t *x)
{
    const uint4 v = __ldg(reinterpret_cast<const uint4 *>(x));
    words[0] = v.x;
    words[1] = v.y;
    words[2] = v.z;
    words[3] = v.w;
}
__device__ __forceinline__ void spmm_load_words(unsigned (&words)[2], const uint8_t *x)
{
    const uint2 v = __ldg(reinterpret_cast<const uint2 *>(x));
    words[0] = v.x;
    words[1] = v.y;
}

/* Bytes of `word` moved left by SHIFT (right when negative), other bits than MASK cleared. */
template <int SHIFT, unsigned MASK> __device__ __forceinline__ unsigned pick(unsigned word)
{
    return (SHIFT >= 0 ? word << (SHIFT & 31) : word >> (-SHIFT & 31)) & MASK;
}

/* The four fragment registers of a block: a[0], a[2]: first and last four columns of row g; a[1],
 * a[3]: of row g + 8. BLOCK is a constant, so that every register index is one too. */
template <int BITS, int BLOCK>
__device__ __forceinline__ void expand(const uint4 (&unit)[BITS], unsigned (&a)[4])
{
    constexpr unsigned LOW4 = 0x0F0F0F0Fu, TOP2 = 0xC0C0C0C0u, BIT5 = 0x20202020u;
    if (BITS == 4) {
        const uint4 v = unit[BLOCK / 2];
        const unsigned early = BLOCK % 2 == 0 ? v.x : v.z;
        const unsigned late = BLOCK % 2 == 0 ? v.y : v.w;
        a[0] = early & LOW4;
        a[1] = early;
        a[2] = late & LOW4;
        a[3] = late;
        return;
    }
    const uint4 v = unit[BLOCK / 4];
    const unsigned w = BLOCK % 4 == 0 ? v.x : BLOCK % 4 == 1 ? v.y : BLOCK % 4 == 2 ? v.z : v.w;
    a[0] = pick<6, TOP2>(w);
    a[2] = pick<4, TOP2>(w);
    a[1] = pick<2, TOP2>(w);
    a[3] = pick<0, TOP2>(w);
    if (BITS == 3) {
        constexpr int UP = BLOCK % 2 == 0 ? 5 : 1; /* of bit 0 or 4 to bit 5 */
        const uint4 l = unit[BITS - 1];
        const unsigned low = BLOCK / 2 == 0   ? l.x
                             : BLOCK / 2 == 1 ? l.y
                             : BLOCK / 2 == 2 ? l.z
                                              : l.w;
        a[0] |= pick<UP, BIT5>(low);
        a[2] |= pick<UP - 1, BIT5>(low);
        a[1] |= pick<UP - 2, BIT5>(low);
        a[3] |= pick<UP - 3, BIT5>(low);
    }
}

/* Walks over the units of a split, stripe after stripe. */
struct cursor {
    const uint4 *from; /* this lane's part of the unit */
    unsigned column;   /* unit in the split */
    unsigned stripe;   /* in the tile */
    unsigned width;    /* units of a stripe in the split */
    unsigned skipped;  /* uint4 from the end of the split to its start in the next stripe */

    template <int BITS> __device__ __forceinline__ void next()
    {
        column++;
        const bool wraps = column == width;
        from += BITS * SPMM_WARP + (wraps ? skipped : 0);
        column = wraps ? 0 : column;
        stripe += wraps ? 1 : 0;
    }
};

template <int BITS>
__device__ __forceinline__ cursor start_at(const spmm_args &args, const spmm_work &work,
                                           unsigned tile, unsigned item, unsigned lane)
{
    cursor c;
    c.width = work.end - work.first;
    c.stripe = 0;
    c.column = item;
    while (c.column >= c.width) { /* few stripes: quicker than a division */
        c.column -= c.width;
        c.stripe++;
    }
    c.skipped = (args.depth - c.width) * BITS * SPMM_WARP;
    const size_t unit = (size_t)(tile + c.stripe) * args.depth + work.first + c.column;
    c.from = reinterpret_cast<const uint4 *>(args.data) + unit * BITS * SPMM_WARP + lane;
    return c;
}

/* Brings x for the first units of a warp into the cache while their weights are on their way. */
template <int TILES>
__device__ __forceinline__ void prefetch_activations(const spmm_args &args, const uint8_t *x,
                                                     const cursor &now, unsigned lane)
{
    constexpr unsigned LINE = 128;
    const unsigned bytes =
        min((unsigned)DENSE_AHEAD, now.width - now.column) * (DENSE_GROUPS * SPMM_X_BLOCK);
    const uint8_t *from = x + now.column * (DENSE_GROUPS * SPMM_X_BLOCK) + lane * LINE;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        if (lane * LINE < bytes) {
            asm volatile("prefetch.global.L1 [%0];" ::"l"(from + (size_t)j * args.x_tile_bytes));
        }
    }
}

/* items / warps, rounded up; a block has 16 or 20 warps. No division: see spmm_work_of(). */
__device__ __forceinline__ unsigned per_warp(unsigned items)
{
    constexpr unsigned FIFTH = 52429u; /* 2^18 / 5: exact for less than 2^16 */
    return blockDim.x == SPMM_WARPS * SPMM_WARP
               ? (items + SPMM_WARPS - 1) / SPMM_WARPS
               : ((items + SPMM_DENSE_MAX_WARPS - 1) / 4 * FIFTH) >> 18;
}

#endif
