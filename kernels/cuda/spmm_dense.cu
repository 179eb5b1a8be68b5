/* y = x W^T for dense weights of 2, 3 or 4 bits.
 *
 * Weights go from device memory straight into registers in the order of the MMA fragments, units of
 * 16 x 256 that any warp can take; activations, in the same order, stay in the first-level cache. A
 * weight is expanded into the top bits of a byte (code * 2^(8 - bits)): no sign extension is
 * needed, and the int32 sum is an exact multiple, shifted back once at the end. Layout:
 * kernels/formats/dense_device.c. */
#include "kernels/cuda/spmm_dense.cuh"

namespace
{

/* acc += blocks FIRST to FIRST + 3 of a unit * x. x: this lane's part of their 128 columns; tiles
 * of tokens are tile_bytes apart. */
template <int BITS, int TILES, int FIRST>
__device__ __forceinline__ void multiply_group(const uint4 (&unit)[BITS], const uint8_t *x,
                                               size_t tile_bytes, int (&acc)[TILES][4])
{
    unsigned a[4][4];
    expand<BITS, FIRST>(unit, a[0]);
    expand<BITS, FIRST + 1>(unit, a[1]);
    expand<BITS, FIRST + 2>(unit, a[2]);
    expand<BITS, FIRST + 3>(unit, a[3]);
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        const uint4 v = __ldg(reinterpret_cast<const uint4 *>(x + j * tile_bytes));
        const uint2 b0 = spmm_expand_x(v.x);
        const uint2 b1 = spmm_expand_x(v.y);
        const uint2 b2 = spmm_expand_x(v.z);
        const uint2 b3 = spmm_expand_x(v.w);
        spmm_mma(acc[j], a[0][0], a[0][1], a[0][2], a[0][3], b0.x, b0.y);
        spmm_mma(acc[j], a[1][0], a[1][1], a[1][2], a[1][3], b1.x, b1.y);
        spmm_mma(acc[j], a[2][0], a[2][1], a[2][2], a[2][3], b2.x, b2.y);
        spmm_mma(acc[j], a[3][0], a[3][1], a[3][2], a[3][3], b3.x, b3.y);
    }
}

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

/* Sums of bytes 16 x high + low, less those of low. */
template <int TILES> __device__ __forceinline__ void split_rows(int (&acc)[TILES][4])
{
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        acc[j][2] -= acc[j][0];
        acc[j][3] -= acc[j][1];
    }
}

/* Units [item, item + DENSE_AHEAD), as far as they lie before `end`. */
template <int BITS, int TILES>
__device__ __forceinline__ unsigned
multiply_units(const spmm_args &args, const uint8_t *x, cursor &now, unsigned item, unsigned end,
               unsigned lane, int *sums, const uint4 (&units)[DENSE_AHEAD][BITS],
               int (&acc)[TILES][4])
{
    unsigned zero = 0;
#pragma unroll
    for (int u = 0; u < DENSE_AHEAD; u++) {
        const uint8_t *from = x + now.column * (DENSE_GROUPS * SPMM_X_BLOCK);
        multiply_group<BITS, TILES, 0>(units[u], from, args.x_tile_bytes, acc);
        multiply_group<BITS, TILES, 4>(units[u], from + SPMM_X_BLOCK, args.x_tile_bytes, acc);
        zero = acc[0][0] & 1;
        if (item + u < end) {
            if (now.column + 1 == now.width || item + u + 1 == end) {
                if (BITS == 4) {
                    split_rows<TILES>(acc);
                }
                spmm_flush<TILES>(sums, spmm_sums_stride(args), now.stripe, lane, acc);
            }
            now.next<BITS>();
        }
    }
    return zero;
}

/* A tile of stripes. The first round only clears the sums, with the instructions that store them in
 * the last one: so these come into their cache while the first weights are on their way, and not
 * when all multiprocessors load weights as fast as they can. */
template <int BITS, int TILES>
__device__ __forceinline__ void multiply_tile(const spmm_args &args, const spmm_work &work,
                                              const uint8_t *x, int *sums, unsigned tile,
                                              unsigned stripes)
{
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
            zero = multiply_units<BITS, TILES>(args, x + lane * 16, now, item, end, lane, sums,
                                               units, acc);
            item += DENSE_AHEAD;
        }
        const bool last = !first && item >= end;
        if (first || last) {
            if (last) {
                __syncthreads();
                if (gridDim.z > 1 &&
                    !spmm_gather_splits<TILES>(args, work, sums, tile, stripes * SPMM_STRIPE)) {
                    return;
                }
            }
            spmm_sweep<TILES, 8 - BITS, BITS == 4>(args, work, sums, tile, stripes, last);
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

template <int BITS, int TILES>
__global__ void __launch_bounds__((TILES == 1 ? SPMM_DENSE_MAX_WARPS : SPMM_WARPS) * SPMM_WARP, 1)
    dense_kernel(const __grid_constant__ spmm_args args)
{
    extern __shared__ __align__(128) uint8_t shared[];
    int *sums = reinterpret_cast<int *>(shared);
    const spmm_work work = spmm_work_of<TILES>(args);
    const uint8_t *x = args.x + (size_t)(blockIdx.y * TILES) * args.x_tile_bytes +
                       work.first * (DENSE_GROUPS * SPMM_X_BLOCK);
    spmm_let_successor_start();
    for (unsigned tile = work.first_stripe; tile < work.end_stripe; tile += args.tile_stripes) {
        multiply_tile<BITS, TILES>(args, work, x, sums, tile,
                                   min(args.tile_stripes, work.end_stripe - tile));
    }
}

template <int BITS> const void *kernel_of(unsigned tiles)
{
    return tiles == 1   ? reinterpret_cast<const void *>(dense_kernel<BITS, 1>)
           : tiles == 2 ? reinterpret_cast<const void *>(dense_kernel<BITS, 2>)
                        : reinterpret_cast<const void *>(dense_kernel<BITS, 4>);
}

} // namespace

const void *spmm_dense_kernel(unsigned bits, unsigned tiles)
{
    return bits == 4 ? kernel_of<4>(tiles) : bits == 3 ? kernel_of<3>(tiles) : kernel_of<2>(tiles);
}

size_t spmm_dense_shared_bytes(const spmm_args *args, unsigned tiles)
{
    return spmm_sums_bytes(args, tiles);
}
