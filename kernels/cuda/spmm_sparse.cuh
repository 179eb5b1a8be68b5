/* What the kernels for IE-BME weights share: which chunks a warp does, how they come, and its
 * activations. */
#ifndef ESPL_CUDA_SPMM_SPARSE_CUH
#define ESPL_CUDA_SPMM_SPARSE_CUH

#include "kernels/cuda/spmm_copy.cuh"
#include "kernels/cuda/spmm_decode.cuh"
#include "kernels/cuda/spmm_kernels.cuh"

enum { SPARSE_BLOCKS = SPMM_SLICE / 32 };

/* The chunks that one warp does: some slices, each for `count` stripes. What finds them comes
 * before the first look into memory: short code, without divisions and unrolled loops, since every
 * line of instructions must itself be fetched. */
struct warp_work {
    unsigned first_stripe;
    unsigned stripe_step;
    unsigned count;
    unsigned first_slice;
    unsigned slice_step;
    unsigned total;
};

/* Warps stand in rows of args.window slices; a row takes every rows-th stripe. */
__device__ __forceinline__ warp_work warp_work_of(const spmm_args &args, const spmm_work &work,
                                                  unsigned warp, unsigned tile, unsigned stripes)
{
    warp_work w;
    unsigned row = 0;
    unsigned column = warp;
#pragma unroll 1
    while (column >= args.window) {
        column -= args.window;
        row++;
    }
    w.first_stripe = tile + row;
    w.stripe_step = args.window_rows;
    w.count = 0;
#pragma unroll 1
    for (unsigned stripe = row; row < args.window_rows && stripe < stripes;
         stripe += args.window_rows) {
        w.count++;
    }
    w.first_slice = work.first + column;
    w.slice_step = args.window;
    w.total = 0;
#pragma unroll 1
    for (unsigned slice = w.first_slice; slice < work.end; slice += w.slice_step) {
        w.total += w.count;
    }
    return w;
}

/* Index entries of the next 32 chunks, one a lane. */
struct index_window {
    uint2 now;
    uint2 next;
};

__device__ __forceinline__ uint2 index_entry(const spmm_args &args, const warp_work &w,
                                             unsigned item)
{
    if (item >= w.total) {
        return make_uint2(0, 0);
    }
    unsigned slice = w.first_slice;
#pragma unroll 1
    while (item >= w.count) {
        item -= w.count;
        slice += w.slice_step;
    }
    const unsigned stripe = w.first_stripe + item * w.stripe_step;
    return __ldg(args.index + (size_t)stripe * args.depth + slice);
}

/* Starts the copy of the chunk whose entry lane `place` of the index window holds; returns the
 * second word of the entry. MIXED: that has more in it than the length. */
template <bool MIXED = false>
__device__ __forceinline__ unsigned put_entry(const spmm_args &args, const index_window &index,
                                              unsigned place, chunk_ring &ring, unsigned lane)
{
    const unsigned start = __shfl_sync(0xFFFFFFFFu, index.now.x, place);
    const unsigned word = __shfl_sync(0xFFFFFFFFu, index.now.y, place);
    const unsigned length = MIXED ? word & ((1u << ESPL_IEBME_DEVICE_LENGTH_BITS) - 1) : word;
    ring_put(ring, args.data + (size_t)start * ESPL_IEBME_DEVICE_UNIT,
             length * ESPL_IEBME_DEVICE_UNIT, lane);
    return word;
}

/* The same for chunk `item` of a warp, not one of the first, which come from the first window. */
template <bool MIXED = false>
__device__ __forceinline__ unsigned put_chunk(const spmm_args &args, const warp_work &w,
                                              index_window &index, chunk_ring &ring, unsigned item,
                                              unsigned lane)
{
    const unsigned place = item % SPMM_WARP;
    if (place == 0) {
        index.now = index.next;
        index.next = index_entry(args, w, item + SPMM_WARP + lane);
    }
    return put_entry<MIXED>(args, index, place, ring, lane);
}

/* The compiler would rather keep the packed word and expand it again for every chunk. */
__device__ __forceinline__ uint2 expand_once(unsigned word)
{
    uint2 v = spmm_expand_x(word);
    asm volatile("" : "+r"(v.x), "+r"(v.y));
    return v;
}

/* x for a slice as it is packed: lane 4 g + t holds columns 8 t .. 8 t + 7 of every block, token g.
 */
template <int TILES>
__device__ __forceinline__ void load_activations(const spmm_args &args, unsigned slice,
                                                 unsigned lane,
                                                 uint4 (&packed)[SPARSE_BLOCKS / 4][TILES])
{
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        const uint8_t *from = args.x + (size_t)(blockIdx.y * TILES + j) * args.x_tile_bytes +
                              slice * (SPMM_SLICE / 128 * SPMM_X_BLOCK) + lane * 16;
#pragma unroll
        for (int q = 0; q < SPARSE_BLOCKS / 4; q++) {
            packed[q][j] = __ldg(reinterpret_cast<const uint4 *>(from + q * SPMM_X_BLOCK));
        }
    }
}

template <int TILES>
__device__ __forceinline__ void expand_activations(const uint4 (&packed)[SPARSE_BLOCKS / 4][TILES],
                                                   uint2 (&x)[SPARSE_BLOCKS][TILES])
{
#pragma unroll
    for (int j = 0; j < TILES; j++) {
#pragma unroll
        for (int q = 0; q < SPARSE_BLOCKS / 4; q++) {
            x[4 * q][j] = expand_once(packed[q][j].x);
            x[4 * q + 1][j] = expand_once(packed[q][j].y);
            x[4 * q + 2][j] = expand_once(packed[q][j].z);
            x[4 * q + 3][j] = expand_once(packed[q][j].w);
        }
    }
}

#endif
