/* y = x W^T for INT4 weights in the device layout of IE-BME: 1x1, 1x2, 2x1 and 2x2 areas.
 *
 * A warp owns a slice of 512 columns and keeps its activations in registers while it walks over
 * stripes of 16 rows; each chunk (stripe, slice) comes through the warp's own ring of stages, so no
 * barrier of the block is in the loop. Decoding: spmm_decode.cuh. Values are expanded to 16 x code,
 * so the int32 sums are exact multiples of 16. */
#include "kernels/cuda/spmm_sparse.cuh"

namespace
{

enum { SHIFT = 4 };

/* All chunks of a warp: the activations of a slice are loaded once and kept. packed: those of the
 * first slice. */
template <espl_iebme_areas UNIT, int TILES>
__device__ __forceinline__ void
multiply_chunks(const spmm_args &args, const warp_work &mine, index_window &index, chunk_ring &ring,
                table_place place, unsigned lane, unsigned tile, int *sums,
                uint4 (&packed)[SPARSE_BLOCKS / 4][TILES])
{
    const unsigned sums_stride = spmm_sums_stride(args);
    unsigned slice = mine.first_slice;
    for (unsigned item = 0; item < mine.total;) {
        uint2 x[SPARSE_BLOCKS][TILES];
        int acc[TILES][4] = {};
        unsigned stripe = mine.first_stripe - tile;
        plain_sums<TILES> sums_of_chunk = {x, acc};
        expand_activations<TILES>(packed, x);
        for (unsigned i = 0; i < mine.count; i++, item++) {
            const unsigned chunk = ring_wait(ring);
            decode_chunk<UNIT>(chunk, lane, place, sums_of_chunk);
            ring_release(ring);
            put_chunk(args, mine, index, ring, item + ring.stages, lane);
            spmm_flush<TILES>(sums, sums_stride, stripe, lane, acc);
            stripe += mine.stripe_step;
        }
        slice += mine.slice_step;
        if (item < mine.total) {
            load_activations<TILES>(args, slice, lane, packed);
        }
    }
}

template <espl_iebme_areas UNIT, int TILES>
__global__ void __launch_bounds__(SPMM_WARPS *SPMM_WARP, 1)
    sparse_kernel(const __grid_constant__ spmm_args args)
{
    extern __shared__ __align__(256) uint8_t shared[];
    const unsigned rings_used = args.window * args.window_rows;
    const unsigned warp = threadIdx.x / SPMM_WARP;
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const table_place place = {shared, lane * 8};
    const unsigned ring_bytes = args.stages * args.stage_bytes;
    uint8_t *rings = shared + TABLE_BYTES;
    uint8_t *barriers = rings + rings_used * ring_bytes;
    int *sums = reinterpret_cast<int *>(barriers + rings_used * args.stages * 8);
    const spmm_work work = spmm_work_of<TILES>(args);
    chunk_ring ring;
    ring.slots = spmm_shared_address(rings) + warp * ring_bytes;
    ring.barriers = spmm_shared_address(barriers) + warp * args.stages * 8;
    ring.stage_bytes = args.stage_bytes;
    ring.stages = args.stages;
    if (warp < rings_used) {
        ring_init(ring, lane);
    }
    spmm_let_successor_start();
    for (unsigned tile = work.first_stripe; tile < work.end_stripe; tile += args.tile_stripes) {
        const unsigned stripes = min(args.tile_stripes, work.end_stripe - tile);
        const warp_work mine = warp_work_of(args, work, warp, tile, stripes);
        index_window index;
        index.now = index_entry(args, mine, lane);
        index.next = index_entry(args, mine, SPMM_WARP + lane);
        if (tile == work.first_stripe) {
            build_table<UNIT == ESPL_IEBME_1X1>(shared);
        }
        for (unsigned s = 0; s < ring.stages && mine.total != 0; s++) {
            put_chunk(args, mine, index, ring, s, lane);
        }
        uint4 packed[SPARSE_BLOCKS / 4][TILES] = {};
        spmm_wait_for_predecessor();
        if (mine.total != 0) {
            load_activations<TILES>(args, mine.first_slice, lane, packed);
        }
#pragma unroll 1
        for (bool done = false;; done = true) {
            spmm_sweep<TILES, SHIFT, false>(args, work, sums, tile, stripes, done);
            __syncthreads();
            if (done) {
                break;
            }
            multiply_chunks<UNIT, TILES>(args, mine, index, ring, place, lane, tile, sums, packed);
            __syncthreads();
            if (gridDim.z > 1 &&
                !spmm_gather_splits<TILES>(args, work, sums, tile, stripes * SPMM_STRIPE)) {
                break;
            }
        }
    }
}

template <espl_iebme_areas UNIT> const void *kernel_of(unsigned tiles)
{
    return tiles == 1 ? reinterpret_cast<const void *>(sparse_kernel<UNIT, 1>)
                      : reinterpret_cast<const void *>(sparse_kernel<UNIT, 2>);
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
