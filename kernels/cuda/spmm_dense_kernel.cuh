/* The kernel for dense weights.
 *
 * Weights go from device memory straight into registers in the order of the MMA fragments, units of
 * 16 x 256 that any warp can take; activations, in the same order, stay in the first-level cache.
 * Layout: kernels/formats/dense_device.c. WHOLE: see spmm_work_of(). FORM says how units become
 * products: its members are BITS, TILES, HAS_CODE (on this architecture), X_SHIFT, SHIFT and BIASED
 * (see spmm_sweep()), multiply(), which adds the products of four blocks, finish(), of the sums of
 * a stripe, and zero(), a 0 that the compiler must wait for the sums to know. */
#ifndef ESPL_CUDA_SPMM_DENSE_KERNEL_CUH
#define ESPL_CUDA_SPMM_DENSE_KERNEL_CUH

#include "kernels/cuda/spmm_dense.cuh"

namespace
{

/* The next units of a cursor; those behind `end` keep what they hold. The warp barrier is for the
 * assembler, which would move the loads down to where their values are used. */
template <int BITS>
__device__ __forceinline__ void load_units(cursor &ahead, unsigned item, unsigned end,
                                           uint4 (&units)[DENSE_AHEAD][BITS])
{
#pragma unroll
    for (int u = 0; u < DENSE_AHEAD; u++) {
#pragma unroll
        for (int i = 0; i < BITS; i++) {
            spmm_load_weights(units[u][i], ahead.from + i * SPMM_WARP, item + u < end);
        }
        ahead.next<BITS>();
    }
    __syncwarp();
}

/* Units [item, item + DENSE_AHEAD), as far as they lie before `end`. */
template <class FORM>
__device__ __forceinline__ unsigned
multiply_units(const spmm_args &args, const uint8_t *x, cursor &now, unsigned item, unsigned end,
               unsigned lane, int *sums, const uint4 (&units)[DENSE_AHEAD][FORM::BITS],
               int (&acc)[FORM::TILES][4])
{
    unsigned zero = 0;
#pragma unroll
    for (int u = 0; u < DENSE_AHEAD; u++) {
        const uint8_t *from = x + now.column * (DENSE_GROUPS * SPMM_X_BLOCK);
        FORM::template multiply<0>(units[u], from, args.x_tile_bytes, acc);
        FORM::template multiply<4>(units[u], from + SPMM_X_BLOCK, args.x_tile_bytes, acc);
        zero = FORM::zero(acc);
        if (item + u < end) {
            if (now.column + 1 == now.width || item + u + 1 == end) {
                FORM::finish(acc);
                spmm_flush<FORM::TILES>(sums, spmm_sums_stride(args), now.stripe, lane, acc);
            }
            now.next<FORM::BITS>();
        }
    }
    return zero;
}

/* A tile of stripes. The first round only clears the sums, with the instructions that store them in
 * the last one: so these come into their cache while the first weights are on their way, and not
 * when all multiprocessors load weights as fast as they can. */
template <class FORM, bool WHOLE>
__device__ __forceinline__ void multiply_tile(const spmm_args &args, const spmm_work &work,
                                              const uint8_t *x, int *sums, unsigned tile,
                                              unsigned stripes)
{
    constexpr int BITS = FORM::BITS, TILES = FORM::TILES;
    const unsigned warp = threadIdx.x / SPMM_WARP;
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const unsigned items = stripes * (work.end - work.first);
    const unsigned each = per_warp(items);
    const unsigned end = min(items, (warp + 1) * each);
    unsigned item = min(items, warp * each);
    bool first = true;
    cursor now = start_at<BITS>(args, work, tile, item, lane);
    cursor ahead = now;
    uint4 units[DENSE_AHEAD][BITS] = {};
    uint4 next[DENSE_AHEAD][BITS] = {};
    int acc[TILES][4] = {};
    load_units<BITS>(ahead, item, end, next);
    spmm_wait_for_predecessor();
    prefetch_activations<TILES>(args, x, now, lane);
#pragma unroll 1
    for (;;) {
        unsigned zero = 0;
        if (!first) {
            zero =
                multiply_units<FORM>(args, x + lane * 16, now, item, end, lane, sums, units, acc);
            item += DENSE_AHEAD;
        }
        const bool last = !first && item >= end;
        if (first || last) {
            if (last) {
                __syncthreads();
                if (!WHOLE && gridDim.z > 1 &&
                    !spmm_gather_splits<TILES>(args, work, sums, tile, stripes * SPMM_STRIPE)) {
                    return;
                }
            }
            spmm_sweep<TILES, FORM::X_SHIFT, FORM::SHIFT, FORM::BIASED>(args, work, sums, tile,
                                                                        stripes, last);
            __syncthreads();
            if (last) {
                return;
            }
            first = false;
        }
#pragma unroll
        for (int u = 0; u < DENSE_AHEAD; u++) {
#pragma unroll
            for (int i = 0; i < BITS; i++) {
                units[u][i] = make_uint4(next[u][i].x | zero, next[u][i].y | zero,
                                         next[u][i].z | zero, next[u][i].w | zero);
            }
        }
        load_units<BITS>(ahead, item + DENSE_AHEAD, end, next);
    }
}

template <class FORM, bool WHOLE>
__device__ __forceinline__ void multiply_block(const spmm_args &args)
{
    constexpr int TILES = FORM::TILES;
    extern __shared__ __align__(128) uint8_t shared[];
    int *sums = reinterpret_cast<int *>(shared);
    const spmm_work work = spmm_work_of<TILES, WHOLE>(args);
    const uint8_t *x = args.x + (size_t)(blockIdx.y * TILES) * args.x_tile_bytes +
                       work.first * (DENSE_GROUPS * SPMM_X_BLOCK);
    spmm_let_successor_start();
    if constexpr (WHOLE) {
        multiply_tile<FORM, WHOLE>(args, work, x, sums, work.first_stripe,
                                   work.end_stripe - work.first_stripe);
    } else {
        for (unsigned tile = work.first_stripe; tile < work.end_stripe; tile += args.tile_stripes) {
            multiply_tile<FORM, WHOLE>(args, work, x, sums, tile,
                                       min(args.tile_stripes, work.end_stripe - tile));
        }
    }
}

template <class FORM, bool WHOLE>
__global__ void
    __launch_bounds__((FORM::TILES == 1 ? SPMM_DENSE_MAX_WARPS : SPMM_WARPS) * SPMM_WARP, 1)
        dense_kernel(const __grid_constant__ spmm_args args)
{
    if constexpr (FORM::HAS_CODE) {
        multiply_block<FORM, WHOLE>(args);
    }
}

} // namespace

#endif
