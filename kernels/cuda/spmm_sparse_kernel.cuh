/* The kernel for INT4 weights in the device layout of IE-BME.
 *
 * A warp owns a slice of 512 columns and keeps its activations in registers while it walks over
 * stripes of 16 rows; each chunk (stripe, slice) comes through the warp's own ring of stages, so no
 * barrier of the block is in the loop. The warp fills its ring itself or, FED, a producer warp
 * fills those of all others (spmm_feed.cuh). WHOLE: see spmm_work_of(). FORM says how chunks become
 * products: its members are TILES, HAS_CODE (on this architecture), MIXED (each chunk has areas of
 * its own, which multiply() is told), X_SHIFT and SHIFT (sums are multiples of 2 to their power),
 * table, activations (registers for x of a slice), expand(), multiply(). */
#ifndef ESPL_CUDA_SPMM_SPARSE_KERNEL_CUH
#define ESPL_CUDA_SPMM_SPARSE_KERNEL_CUH

#include "kernels/cuda/spmm_feed.cuh"
#include "kernels/cuda/spmm_sparse.cuh"

namespace
{

/* Areas of the chunks in a ring, a byte a stage; of a layout whose chunks are all alike, nothing.
 */
template <bool MIXED> struct stage_areas {
    unsigned bytes = 0;

    __device__ __forceinline__ void put(unsigned stage, unsigned word)
    {
        const unsigned shift = 8 * stage;
        const unsigned code = word >> ESPL_IEBME_DEVICE_LENGTH_BITS;
        bytes = MIXED ? (bytes & ~(0xFFu << shift)) | code << shift : 0;
    }
    __device__ __forceinline__ unsigned get(unsigned stage) const
    {
        return MIXED ? bytes >> 8 * stage & 0xFFu : 0;
    }
};

/* All chunks of a warp: the activations of a slice are loaded once and kept. packed: those of the
 * first slice. empty: FED, of the warp's ring. */
template <class FORM, bool FED>
__device__ __forceinline__ void
multiply_chunks(const spmm_args &args, const warp_work &mine, index_window &index, chunk_ring &ring,
                stage_areas<FORM::MIXED> &areas, unsigned empty, table_place place, unsigned lane,
                unsigned tile, int *sums, uint4 (&packed)[SPARSE_BLOCKS / 4][FORM::TILES])
{
    constexpr int TILES = FORM::TILES;
    const unsigned sums_stride = spmm_sums_stride(args);
    unsigned slice = mine.first_slice;
    for (unsigned item = 0; item < mine.total;) {
        typename FORM::activations x;
        int acc[TILES][4] = {};
        unsigned stripe = mine.first_stripe - tile;
        FORM::expand(packed, x);
        for (unsigned i = 0; i < mine.count; i++, item++) {
            const unsigned chunk = ring_wait(ring);
            FORM::multiply(chunk, areas.get(ring.read_stage), lane, place, x, acc);
            if constexpr (FED) {
                ring_hand_back(ring, empty, lane);
            } else {
                ring_release(ring);
                const unsigned stage = ring.write_stage;
                const unsigned next = item + ring.stages;
                areas.put(stage, put_chunk<FORM::MIXED>(args, mine, index, ring, next, lane));
            }
            spmm_flush<TILES>(sums, sums_stride, stripe, lane, acc);
            stripe += mine.stripe_step;
        }
        slice += mine.slice_step;
        if (item < mine.total) {
            load_activations<TILES>(args, slice, lane, packed);
        }
    }
}

/* What a block reads before its first product. While all multiprocessors fetch chunks as fast as
 * they can, whatever else is read waits in the same queues for microseconds: so activations come
 * first, unless they are still being written, and chunks as soon as the index is there. */
template <class FORM>
__device__ __forceinline__ void fetch_first(const spmm_args &args, const warp_work &mine,
                                            index_window &index, chunk_ring &ring,
                                            stage_areas<FORM::MIXED> &areas, unsigned lane,
                                            uint4 (&packed)[SPARSE_BLOCKS / 4][FORM::TILES])
{
    if (args.x_ready != 0 && mine.total != 0) {
        load_activations<FORM::TILES>(args, mine.first_slice, lane, packed);
    }
#pragma unroll 1
    for (unsigned s = 0; s < ring.stages && mine.total != 0; s++) {
        const unsigned stage = ring.write_stage;
        areas.put(stage, put_entry<FORM::MIXED>(args, index, s, ring, lane));
    }
    index.next = index_entry(args, mine, SPMM_WARP + lane);
}

template <class FORM, bool FED, bool WHOLE>
__device__ __forceinline__ void multiply_block(const spmm_args &args)
{
    constexpr int TILES = FORM::TILES;
    constexpr unsigned BARRIER_BYTES = FED ? 16 : 8; /* of a stage */
    extern __shared__ __align__(256) uint8_t shared[];
    const unsigned rings_used = args.window * args.window_rows;
    const unsigned warp = threadIdx.x / SPMM_WARP;
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const bool feeds = FED && warp == SPMM_PRODUCER;
    const unsigned served = feeds ? lane : warp; /* whose ring, whose chunks */
    const table_place place = {shared, lane * 8};
    const unsigned ring_bytes = args.stages * args.stage_bytes;
    uint8_t *rings = shared + TABLE_BYTES;
    uint8_t *barriers = rings + rings_used * ring_bytes;
    int *sums = reinterpret_cast<int *>(barriers + rings_used * args.stages * BARRIER_BYTES);
    const spmm_work work = spmm_work_of<TILES, WHOLE>(args);
    chunk_ring ring;
    ring.slots = spmm_shared_address(rings) + served * ring_bytes;
    ring.barriers = spmm_shared_address(barriers) + served * args.stages * 8;
    ring.stage_bytes = args.stage_bytes;
    ring.stages = args.stages;
    ring_feeder feeder;
    spmm_let_successor_start();
    for (unsigned tile = work.first_stripe; tile < work.end_stripe; tile += args.tile_stripes) {
        const bool first = WHOLE || tile == work.first_stripe;
        const unsigned left = work.end_stripe - tile;
        const unsigned stripes = WHOLE ? left : min(args.tile_stripes, left);
        const warp_work mine = warp_work_of(args, work, served, tile, stripes);
        index_window index;
        stage_areas<FORM::MIXED> areas;
        uint4 packed[SPARSE_BLOCKS / 4][TILES] = {};
        if constexpr (FED) {
            if (first) {
                feed_init(feeder, ring, rings_used, feeds, lane);
            }
            if (feeds) {
                feed_first(args, mine, feeder);
            } else if (args.x_ready != 0 && mine.total != 0) {
                load_activations<TILES>(args, mine.first_slice, lane, packed);
            }
        } else {
            index.now = index_entry(args, mine, lane);
            if (first && warp < rings_used) {
                ring_init(ring, lane);
            }
            fetch_first<FORM>(args, mine, index, ring, areas, lane, packed);
        }
#pragma unroll 1
        for (bool done = false;; done = true) {
            spmm_sweep<TILES, FORM::X_SHIFT, FORM::SHIFT, false>(args, work, sums, tile, stripes,
                                                                 done);
            if (!done) {
                if (first) {
                    build_table<typename FORM::table>(shared);
                }
                spmm_wait_for_predecessor();
                if (args.x_ready == 0 && mine.total != 0 && !feeds) {
                    load_activations<TILES>(args, mine.first_slice, lane, packed);
                }
            }
            __syncthreads();
            if (done) {
                break;
            }
            if (feeds) {
                feed_rest(args, mine, feeder);
            } else {
                multiply_chunks<FORM, FED>(args, mine, index, ring, areas, feeder.empty, place,
                                           lane, tile, sums, packed);
            }
            __syncthreads();
            if (!WHOLE && gridDim.z > 1 &&
                !spmm_gather_splits<TILES>(args, work, sums, tile, stripes * SPMM_STRIPE)) {
                break;
            }
        }
        if (WHOLE) {
            break;
        }
    }
}

template <class FORM, bool WHOLE>
__global__ void __launch_bounds__(SPMM_WARPS *SPMM_WARP, 1)
    sparse_kernel(const __grid_constant__ spmm_args args)
{
    if constexpr (FORM::HAS_CODE) {
        multiply_block<FORM, false, WHOLE>(args);
    }
}

/* FORM has code on all architectures. */
template <class FORM, bool WHOLE>
__global__ void __launch_bounds__(SPMM_WARPS *SPMM_WARP, 1)
    fed_sparse_kernel(const __grid_constant__ spmm_args args)
{
    if constexpr (SPMM_HAS_BULK_COPIES) {
        multiply_block<FORM, true, WHOLE>(args);
    }
}

/* The kernel for chunks of these areas (1x1, 1x2, 2x1 or 2x2) and 1 or 2 tiles of tokens.
 * KERNEL::of<FORM>(): its address; CHUNKS<areas, tiles>: how chunks become products. */
template <class KERNEL, template <espl_iebme_areas, int> class CHUNKS>
const void *sparse_kernel_for(enum espl_iebme_areas areas, unsigned tiles)
{
    const bool one = tiles == 1;
    switch (areas) {
    case ESPL_IEBME_1X1:
        return one ? KERNEL::template of<CHUNKS<ESPL_IEBME_1X1, 1>>()
                   : KERNEL::template of<CHUNKS<ESPL_IEBME_1X1, 2>>();
    case ESPL_IEBME_1X2:
        return one ? KERNEL::template of<CHUNKS<ESPL_IEBME_1X2, 1>>()
                   : KERNEL::template of<CHUNKS<ESPL_IEBME_1X2, 2>>();
    case ESPL_IEBME_2X1:
        return one ? KERNEL::template of<CHUNKS<ESPL_IEBME_2X1, 1>>()
                   : KERNEL::template of<CHUNKS<ESPL_IEBME_2X1, 2>>();
    default:
        return one ? KERNEL::template of<CHUNKS<ESPL_IEBME_2X2, 1>>()
                   : KERNEL::template of<CHUNKS<ESPL_IEBME_2X2, 2>>();
    }
}

/* Blocks whose warps fill their own rings. */
template <bool WHOLE> struct own_rings {
    template <class FORM> static const void *of()
    {
        return reinterpret_cast<const void *>(sparse_kernel<FORM, WHOLE>);
    }
};

} // namespace

#endif
