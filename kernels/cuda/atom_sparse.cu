/* y = x W^T with scales for IE-BME weights: the sparse kernel of spmm_sparse.cu with FP32 sums.
 *
 * In front of every chunk stand its weight scales: (steps, 8 or 4 rows g, 2) floats, of rows g and
 * g + 8. Scales of a row are multiplied by a power of two such that no sum of the row can exceed
 * 2^21 for activation scales below 1; those of a token are divided by the power of two above the
 * largest. So the sum of a chunk is a number of at most 21 bits before the point. It is added to
 * those of other chunks, by any warp at any time, as two integers, 22 bits before and 22 behind the
 * point: exact, in any order the same. */
#include "kernels/cuda/atom_args.cuh"
#include "kernels/cuda/atom_kernels.cuh"
#include "kernels/cuda/spmm_sparse.cuh"

namespace
{

enum { BARRIER_BYTES = 8, PARTS = 8 /* integers of a lane's fragment */ };

constexpr float BEHIND = 4194304.0F; /* 2^22 */

/* Activations of a slice in registers. They are expanded at every use: registers are what is
 * scarce, more than instructions. */
template <int TILES> struct slice_activations {
    uint4 packed[SPARSE_BLOCKS / 4][TILES];

    __device__ __forceinline__ uint2 of(int block, int tile) const
    {
        const uint4 v = packed[block / 4][tile];
        unsigned word = block % 4 == 0 ? v.x : block % 4 == 1 ? v.y : block % 4 == 2 ? v.z : v.w;
        asm volatile("" : "+r"(word)); /* or it is expanded once and kept */
        return spmm_expand_x(word);
    }
};

/* Where decoded fragments go. Steps of 128 columns keep their int32 sums until the whole chunk is
 * decoded, so that decoding is scheduled as it is without scales; those of 32 columns, for which
 * there are no registers, are scaled one by one. */
template <int TILES, bool FINE> struct step_sums {
    static constexpr int STEP_BLOCKS = FINE ? 1 : ATOM_STEP / ATOM_BLOCK_COLS;
    static constexpr int STEPS = SPARSE_BLOCKS / STEP_BLOCKS;
    static constexpr int KEPT = FINE ? 1 : STEPS;
    const slice_activations<TILES> &x;
    const uint8_t *x_scales; /* of the slice, this lane's tokens */
    size_t tile_bytes;
    unsigned scales; /* shared address of this lane's rows' in the chunk */
    unsigned scale_step;
    int acc[KEPT][TILES][4];
    float sum[TILES][4];

    __device__ __forceinline__ void multiply(int block, unsigned a0, unsigned a1, unsigned a2,
                                             unsigned a3)
    {
        const int step = block / STEP_BLOCKS;
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            const uint2 b = x.of(block, j);
            int(&c)[4] = acc[step % KEPT][j];
            if (block % STEP_BLOCKS == 0) {
                c[0] = c[1] = c[2] = c[3] = 0;
            }
            spmm_mma(c, a0, a1, a2, a3, b.x, b.y);
        }
        if (FINE) {
            scale(step);
        }
    }
    /* sum += the sums of a step, scaled. */
    __device__ __forceinline__ void scale(int step)
    {
        const uint2 w = load_pair(scales + step * scale_step);
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            const float2 a = __ldg(reinterpret_cast<const float2 *>(x_scales + j * tile_bytes +
                                                                    step * ATOM_STEP_BYTES));
            const int(&c)[4] = acc[step % KEPT][j];
            const float low = __uint_as_float(w.x);
            const float high = __uint_as_float(w.y);
            sum[j][0] = __fmaf_rn((float)c[0], __fmul_rn(low, a.x), sum[j][0]);
            sum[j][1] = __fmaf_rn((float)c[1], __fmul_rn(low, a.y), sum[j][1]);
            sum[j][2] = __fmaf_rn((float)c[2], __fmul_rn(high, a.x), sum[j][2]);
            sum[j][3] = __fmaf_rn((float)c[3], __fmul_rn(high, a.y), sum[j][3]);
        }
    }
    __device__ __forceinline__ void finish()
    {
#pragma unroll
        for (int step = 0; !FINE && step < STEPS; step++) {
            scale(step);
        }
    }
};

/* The sums of a tile of stripes: what they begin with, and the chunks as integers, which hold as
 * many magic numbers too much as there were chunks. */
template <int TILES> struct chunk_sums {
    float4 *starts;         /* (stripes, TILES, 32) */
    int *fixed;             /* (stripes, TILES, 8, 32): four before the point, four behind */
    unsigned chunks;        /* of a stripe */
    float units[TILES][2];  /* by which scales of this lane's tokens are multiplied */
    const float *row_units; /* of the tile's rows: what scales of weights are divided by */

    __device__ __forceinline__ void begin(unsigned fragment, unsigned lane, float4 start)
    {
        starts[fragment * ATOM_LANES + lane] = start;
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            fixed[(fragment * PARTS + i) * ATOM_LANES + lane] = 0;
        }
    }
    __device__ __forceinline__ float part(const int *from, float row, float token) const
    {
        const int magic = (int)(chunks * (unsigned)ATOM_MAGIC);
        const float before = (float)(from[0] - magic);
        const float behind = (float)(from[4 * ATOM_LANES] - magic);
        const float inverse = __int_as_float((254 << 23) - __float_as_int(token));
        return __fmaf_rn(behind, 1.0F / BEHIND, before) * row * inverse;
    }
    __device__ __forceinline__ float4 total(unsigned fragment, unsigned lane) const
    {
        const float4 start = starts[fragment * ATOM_LANES + lane];
        const int *from = fixed + fragment * PARTS * ATOM_LANES + lane;
        const float *rows = row_units + fragment / TILES * SPMM_STRIPE + lane / 4;
        const float low = __ldg(rows);
        const float high = __ldg(rows + SPMM_STRIPE / 2);
        float first = units[0][0];
        float second = units[0][1];
#pragma unroll
        for (unsigned j = 1; j < TILES; j++) {
            first = fragment % TILES == j ? units[j][0] : first;
            second = fragment % TILES == j ? units[j][1] : second;
        }
        if (chunks == 0) {
            return start;
        }
        return atom_add(start,
                        make_float4(part(from, low, first), part(from + ATOM_LANES, low, second),
                                    part(from + 2 * ATOM_LANES, high, first),
                                    part(from + 3 * ATOM_LANES, high, second)));
    }
    __device__ __forceinline__ void only_begun()
    {
        chunks = 0;
    }
    /* The sums of one chunk. */
    __device__ __forceinline__ void add(unsigned stripe, unsigned lane,
                                        const float (&sum)[TILES][4])
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            int *to = fixed + (stripe * TILES + j) * PARTS * ATOM_LANES + lane;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float unit = units[j][i % 2];
                const float before = __fmaf_rn(sum[j][i], unit, ATOM_MAGIC_FLOAT);
                const float rest = __fmaf_rn(sum[j][i], unit, -__fsub_rn(before, ATOM_MAGIC_FLOAT));
                const float behind = __fmaf_rn(rest, BEHIND, ATOM_MAGIC_FLOAT);
                atomicAdd(to + i * ATOM_LANES, __float_as_int(before));
                atomicAdd(to + (4 + i) * ATOM_LANES, __float_as_int(behind));
            }
        }
    }
};

/* The largest scales of this lane's two tokens as powers of two, inverted, such that scale * unit
 * is between 1/2 and 1. */
__device__ __forceinline__ float unit_of(float largest)
{
    constexpr int TOP = 253; /* exponents as they are stored: of 2^-e, given that of 2^(e - 1) */
    return __int_as_float((TOP - (__float_as_int(largest) >> 23)) << 23);
}

template <int TILES>
__device__ __forceinline__ void find_units(const atom_args &args, unsigned steps, unsigned lane,
                                           float (&units)[TILES][2])
{
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        const uint8_t *scales = atom_x_tile<TILES>(args, j) + args.scales_at + lane % 4 * 16;
        float first = 0.0F;
        float second = 0.0F;
#pragma unroll 8
        for (unsigned s = lane / 4; s < steps; s += SPMM_WARP / 4) {
            const float2 v = __ldg(reinterpret_cast<const float2 *>(scales + s * ATOM_STEP_BYTES));
            first = fmaxf(first, v.x);
            second = fmaxf(second, v.y);
        }
#pragma unroll
        for (int offset = 4; offset < SPMM_WARP; offset *= 2) {
            first = fmaxf(first, __shfl_xor_sync(0xFFFFFFFFu, first, offset));
            second = fmaxf(second, __shfl_xor_sync(0xFFFFFFFFu, second, offset));
        }
        units[j][0] = unit_of(first);
        units[j][1] = unit_of(second);
    }
}

/* Brings what a stripe begins with closer while chunks are looked up: of its INT8 channels the
 * first 2 KB, and what belongs to its rows. */
__device__ __forceinline__ void prefetch_rows(const atom_args &args, unsigned stripe, unsigned lane)
{
    constexpr unsigned LINE = 128, LINES = 16;
    const size_t bytes = (size_t)args.outlier_blocks * ATOM_W_BLOCK_BYTES;
    const void *from = nullptr;
    if (stripe < args.spmm.stripes) {
        if (lane < LINES && lane * LINE < bytes) {
            from = reinterpret_cast<const uint8_t *>(args.outliers) + stripe * bytes + lane * LINE;
        } else if (lane == LINES && bytes != 0) {
            from = args.outlier_scales + stripe * SPMM_STRIPE;
        } else if (lane == LINES + 1) {
            from = args.row_units + stripe * SPMM_STRIPE;
        } else if (lane == LINES + 2 && args.bias != nullptr) {
            from = args.bias + stripe * SPMM_STRIPE;
        }
    }
    if (from != nullptr) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
    }
}

/* All chunks of a warp. x: activations of the first slice. */
template <espl_iebme_areas UNIT, int TILES, bool FINE>
__device__ __forceinline__ void
multiply_chunks(const atom_args &args, const warp_work &mine, index_window &index, chunk_ring &ring,
                table_place place, unsigned lane, unsigned tile, chunk_sums<TILES> &sums,
                slice_activations<TILES> &x)
{
    constexpr unsigned STEPS = SPMM_SLICE / (FINE ? ATOM_FINE_STEP : ATOM_STEP);
    const unsigned row_lanes = 8u >> args.row_shift;
    const unsigned lane_scales = (lane / 4 >> args.row_shift) * 8;
    unsigned slice = mine.first_slice;
    for (unsigned item = 0; item < mine.total;) {
        unsigned stripe = mine.first_stripe - tile;
        const uint8_t *x_scales = atom_x_tile<TILES>(args, 0) + args.scales_at +
                                  slice * (STEPS * ATOM_STEP_BYTES) + lane % 4 * 16;
        for (unsigned i = 0; i < mine.count; i++, item++) {
            const unsigned chunk = ring_wait(ring);
            step_sums<TILES, FINE> steps = {
                x, x_scales, args.spmm.x_tile_bytes, chunk + lane_scales, row_lanes * 8, {}, {}};
            decode_chunk<UNIT, typename chunk_masks<UNIT>::table>(chunk + args.scale_bytes, lane,
                                                                  place, steps);
            steps.finish();
            ring_release(ring);
            (void)put_chunk(args.spmm, mine, index, ring, item + ring.stages, lane);
            sums.add(stripe, lane, steps.sum);
            stripe += mine.stripe_step;
        }
        slice += mine.slice_step;
        if (item < mine.total) {
            load_activations<TILES>(args.spmm, slice, lane, x.packed);
        }
    }
}

__device__ __forceinline__ void fill_ring(const spmm_args &args, const warp_work &mine,
                                          const index_window &index, chunk_ring &ring,
                                          unsigned lane)
{
#pragma unroll 1
    for (unsigned s = 0; s < ring.stages && mine.total != 0; s++) {
        (void)put_entry(args, index, s, ring, lane);
    }
}

/* What is needed first, x, scales, outliers and bias, is read before the first chunks are asked
 * for: see fetch_first() in spmm_sparse_kernel.cuh. A kernel that starts before they have been
 * written asks for its chunks while it waits. WHOLE: see spmm_work_of(). */
template <espl_iebme_areas UNIT, int TILES, bool FINE, bool WHOLE>
__global__ void __launch_bounds__(SPMM_WARPS *SPMM_WARP, 1)
    atom_sparse_kernel(const __grid_constant__ atom_args args)
{
    extern __shared__ __align__(256) uint8_t shared[];
    const unsigned rings_used = args.spmm.window * args.spmm.window_rows;
    const unsigned warp = threadIdx.x / SPMM_WARP;
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const table_place place = {shared, lane * 8};
    const unsigned ring_bytes = args.spmm.stages * args.spmm.stage_bytes;
    uint8_t *rings = shared + TABLE_BYTES;
    float4 *starts = reinterpret_cast<float4 *>(rings + rings_used * ring_bytes);
    int *fixed = reinterpret_cast<int *>(starts + args.spmm.tile_stripes * TILES * ATOM_LANES);
    int *barriers = fixed + args.spmm.tile_stripes * TILES * PARTS * ATOM_LANES;
    const spmm_work work = spmm_work_of<TILES, WHOLE>(args.spmm);
    chunk_ring ring;
    ring.slots = spmm_shared_address(rings) + warp * ring_bytes;
    ring.barriers = spmm_shared_address(barriers) + warp * args.spmm.stages * BARRIER_BYTES;
    ring.stage_bytes = args.spmm.stage_bytes;
    ring.stages = args.spmm.stages;
    spmm_let_successor_start();
    for (unsigned tile = work.first_stripe; tile < work.end_stripe;
         tile += args.spmm.tile_stripes) {
        const bool first = WHOLE || tile == work.first_stripe;
        const unsigned left = work.end_stripe - tile;
        const unsigned stripes = WHOLE ? left : min(args.spmm.tile_stripes, left);
        const warp_work mine = warp_work_of(args.spmm, work, warp, tile, stripes);
        index_window index;
        index.now = index_entry(args.spmm, mine, lane);
        prefetch_rows(args, tile + warp / TILES, lane);
        if (first && warp < rings_used) {
            ring_init(ring, lane);
        }
        index.next = index_entry(args.spmm, mine, SPMM_WARP + lane);
        if (first) {
            build_table<typename chunk_masks<UNIT>::table>(shared);
        }
        if (args.spmm.x_ready == 0) {
            fill_ring(args.spmm, mine, index, ring, lane);
        }
        slice_activations<TILES> x = {};
        chunk_sums<TILES> sums = {
            starts, fixed, work.end - work.first, {}, args.row_units + tile * SPMM_STRIPE};
        spmm_wait_for_predecessor();
        if (mine.total != 0) {
            load_activations<TILES>(args.spmm, mine.first_slice, lane, x.packed);
        }
        find_units<TILES>(args,
                          args.spmm.depth * (SPMM_SLICE / (FINE ? ATOM_FINE_STEP : ATOM_STEP)),
                          lane, sums.units);
#pragma unroll 1
        for (bool done = false;; done = true) {
            atom_sweep<TILES>(args, work, sums, tile, stripes, done);
            if (!done && args.spmm.x_ready != 0) {
                fill_ring(args.spmm, mine, index, ring, lane);
            }
            __syncthreads();
            if (done) {
                break;
            }
            multiply_chunks<UNIT, TILES, FINE>(args, mine, index, ring, place, lane, tile, sums, x);
            __syncthreads();
            if (!WHOLE && gridDim.z > 1 && !atom_gather<TILES>(args, sums, tile, stripes)) {
                __syncthreads();
                break;
            }
        }
        if (WHOLE) {
            break;
        }
    }
}

template <espl_iebme_areas UNIT, bool WHOLE> const void *kernel_for(unsigned tiles)
{
    return tiles == 1 ? reinterpret_cast<const void *>(atom_sparse_kernel<UNIT, 1, false, WHOLE>)
                      : reinterpret_cast<const void *>(atom_sparse_kernel<UNIT, 2, false, WHOLE>);
}

template <espl_iebme_areas UNIT> const void *kernel_of(unsigned tiles, bool fine, bool whole)
{
    return fine    ? reinterpret_cast<const void *>(atom_sparse_kernel<UNIT, 1, true, false>)
           : whole ? kernel_for<UNIT, true>(tiles)
                   : kernel_for<UNIT, false>(tiles);
}

} // namespace

const void *atom_sparse_kernel_of(enum espl_iebme_areas unit, unsigned tiles, bool fine, bool whole)
{
    switch (unit) {
    case ESPL_IEBME_1X1:
        return kernel_of<ESPL_IEBME_1X1>(tiles, fine, whole);
    case ESPL_IEBME_1X2:
        return kernel_of<ESPL_IEBME_1X2>(tiles, fine, whole);
    case ESPL_IEBME_2X1:
        return kernel_of<ESPL_IEBME_2X1>(tiles, fine, whole);
    default:
        return kernel_of<ESPL_IEBME_2X2>(tiles, fine, whole);
    }
}

size_t atom_sparse_shared_bytes(const spmm_args *args, unsigned tiles, unsigned warps)
{
    const size_t ring = static_cast<size_t>(args->stages) * (args->stage_bytes + BARRIER_BYTES);
    const size_t fragment = ATOM_LANES * (sizeof(float4) + PARTS * sizeof(int));
    return TABLE_BYTES + warps * ring + args->tile_stripes * tiles * fragment;
}
