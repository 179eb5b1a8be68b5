/* y = x W^T with scales for dense weights of 2, 3 or 4 bits: the dense kernel of spmm_dense.cu with
 * FP32 sums.
 *
 * A unit has 2 steps of 128 columns, or 8 of 32. Its weight scales are vectors of four floats, one
 * a pair of steps: row g, steps 2 p and 2 p + 1, then row g + 8. Order: (stripes, depth, pairs, 8
 * or 4 rows g). Warps do runs of units; of the pieces of a stripe the one that begins it goes to
 * the stripe's sums, the others wait as carries, at most one a warp, until all are added in order.
 */
#include "kernels/cuda/atom_args.cuh"
#include "kernels/cuda/atom_kernels.cuh"
#include "kernels/cuda/spmm_dense.cuh"

namespace
{

/* Steps of a unit, pairs of them, and warps of a block. */
template <bool FINE, int TILES> struct unit_steps {
    static constexpr int COLUMNS = FINE ? ATOM_FINE_STEP : ATOM_STEP;
    static constexpr int COUNT = ESPL_DENSE_UNIT_COLS / COLUMNS;
    static constexpr int PAIRS = COUNT / 2;
    static constexpr int WARPS = TILES == 4 ? static_cast<int>(ATOM_WIDE_WARPS)
                                 : TILES == 1 && !FINE && !SPMM_FEW_REGISTERS
                                     ? static_cast<int>(SPMM_DENSE_MAX_WARPS)
                                     : static_cast<int>(SPMM_WARPS);
};

/* A unit and its scales on their way. */
template <int BITS, int PAIRS> struct loaded_unit {
    uint4 codes[BITS];
    uint4 scales[PAIRS];
};

/* Scales move along with the weights. */
struct scaled_cursor {
    cursor weights;
    const uint4 *scales; /* this lane's part of the unit's */
    unsigned row_lanes;  /* vectors of a pair of steps: 8 or 4 */

    template <int BITS, int PAIRS> __device__ __forceinline__ void next()
    {
        const bool wraps = weights.column + 1 == weights.width;
        const unsigned skipped = wraps ? weights.skipped / (BITS * SPMM_WARP) : 0;
        scales += (1 + skipped) * PAIRS * row_lanes;
        weights.next<BITS>();
    }
};

template <int BITS, int PAIRS>
__device__ __forceinline__ scaled_cursor scaled_start(const atom_args &args, const spmm_work &work,
                                                      unsigned tile, unsigned item, unsigned lane)
{
    scaled_cursor c;
    c.weights = start_at<BITS>(args.spmm, work, tile, item, lane);
    c.row_lanes = 8u >> args.row_shift;
    const size_t unit =
        (size_t)(tile + c.weights.stripe) * args.spmm.depth + work.first + c.weights.column;
    c.scales = args.scales + unit * PAIRS * c.row_lanes + (lane / 4 >> args.row_shift);
    return c;
}

/* The warp barrier is for the assembler, see load_units() of spmm_dense.cu. */
template <int BITS, int PAIRS>
__device__ __forceinline__ void load_unit(scaled_cursor &ahead, bool wanted,
                                          loaded_unit<BITS, PAIRS> &unit)
{
#pragma unroll
    for (int i = 0; i < BITS; i++) {
        spmm_load_weights(unit.codes[i], ahead.weights.from + i * SPMM_WARP, wanted);
    }
#pragma unroll
    for (int p = 0; p < PAIRS; p++) {
        spmm_load_weights(unit.scales[p], ahead.scales + p * ahead.row_lanes, wanted);
    }
    ahead.next<BITS, PAIRS>();
    __syncwarp();
}

/* Blocks AT to AT + COUNT - 1 of the four that begin at FIRST. */
template <int BITS, int TILES, bool FINE, int FIRST, int AT, int COUNT, int PAIRS>
__device__ __forceinline__ void
multiply_blocks(const loaded_unit<BITS, PAIRS> &unit, const uint8_t *codes, const uint8_t *scales,
                unsigned tile_bytes, int (&acc)[TILES][4], float (&sum)[TILES][4])
{
    constexpr bool BIASED = BITS == 4;
    constexpr int BLOCKS = ATOM_STEP / ATOM_BLOCK_COLS;
    unsigned a[COUNT][4];
    expand<BITS, FIRST + AT>(unit.codes, a[0]);
    expand<BITS, FIRST + AT + 1>(unit.codes, a[1]);
    if constexpr (COUNT == BLOCKS) {
        expand<BITS, FIRST + AT + 2>(unit.codes, a[2]);
        expand<BITS, FIRST + AT + 3>(unit.codes, a[3]);
    }
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        unsigned words[COUNT];
        spmm_load_words(words, codes + j * tile_bytes + AT * sizeof(unsigned));
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int b = AT + i;
            const uint2 pair = spmm_expand_x(words[i]);
            if (FINE || b == 0) {
                atom_mma_first(acc[j], a[i][0], a[i][1], a[i][2], a[i][3], pair.x, pair.y);
            } else {
                spmm_mma(acc[j], a[i][0], a[i][1], a[i][2], a[i][3], pair.x, pair.y);
            }
            if (FINE || b == BLOCKS - 1) {
                const int step = FINE ? FIRST + b : FIRST / BLOCKS;
                const uint4 s = unit.scales[step / 2];
                const float4 t = __ldg(reinterpret_cast<const float4 *>(
                    scales + j * tile_bytes + (FINE ? b : 0) * ATOM_STEP_BYTES));
                atom_combine<BIASED>(acc[j], __uint_as_float(step % 2 == 0 ? s.x : s.y),
                                     __uint_as_float(step % 2 == 0 ? s.z : s.w), t, sum[j]);
            }
        }
    }
}

/* Blocks FIRST to FIRST + 3 of a unit. codes, scales: where this lane's part of their 128 columns
 * is in a tile of x. Returns 0 in a way that the compiler cannot know, once the products are done.
 * Two blocks at a time where registers are short: of fine steps from 10.0 on. */
template <int BITS, int TILES, bool FINE, int FIRST, int PAIRS>
__device__ __forceinline__ unsigned multiply_steps(const loaded_unit<BITS, PAIRS> &unit,
                                                   const uint8_t *codes, const uint8_t *scales,
                                                   unsigned tile_bytes, float (&sum)[TILES][4])
{
    int acc[TILES][4];
    if constexpr (SPMM_FEW_REGISTERS && FINE) {
        multiply_blocks<BITS, TILES, FINE, FIRST, 0, 2>(unit, codes, scales, tile_bytes, acc, sum);
        multiply_blocks<BITS, TILES, FINE, FIRST, 2, 2>(unit, codes, scales, tile_bytes, acc, sum);
    } else {
        multiply_blocks<BITS, TILES, FINE, FIRST, 0, 4>(unit, codes, scales, tile_bytes, acc, sum);
    }
    return acc[TILES - 1][0] & 1;
}

/* As prefetch_activations(): the scales of x for the first unit of a warp. */
template <int TILES, int STEPS>
__device__ __forceinline__ void prefetch_scales(const atom_args &args, unsigned column,
                                                unsigned lane)
{
    constexpr unsigned LINE = 128;
    constexpr unsigned BYTES = STEPS * ATOM_STEP_BYTES;
    if (lane < TILES * (BYTES / LINE)) {
        const uint8_t *from = atom_x_tile<TILES>(args, lane / (BYTES / LINE)) + args.scales_at +
                              column * BYTES + lane % (BYTES / LINE) * LINE;
        asm volatile("prefetch.global.L1 [%0];" ::"l"(from));
    }
}

/* The sums of a tile of stripes: what a stripe begins with, the piece of its first columns, and
 * those of the warps whose run begins inside it, one a warp. No warp waits for another before all
 * are done. */
template <int TILES> struct dense_sums {
    float4 *starts;  /* (stripes, TILES, 32) */
    float4 *firsts;  /* (stripes, TILES, 32) */
    float4 *carries; /* (warps, TILES, 32) */
    unsigned each;   /* units of a warp */
    unsigned width;  /* of a stripe */
    unsigned items;

    __device__ __forceinline__ void begin(unsigned fragment, unsigned lane, float4 start)
    {
        starts[fragment * ATOM_LANES + lane] = start;
    }
    __device__ __forceinline__ float4 total(unsigned fragment, unsigned lane) const
    {
        const unsigned stripe = fragment / TILES;
        const unsigned end = min((stripe + 1) * width, items);
        float4 sum = starts[fragment * ATOM_LANES + lane];
        if (items != 0) {
            sum = atom_add(sum, firsts[fragment * ATOM_LANES + lane]);
        }
        for (unsigned w = stripe * width / each + 1; w * each < end; w++) {
            sum = atom_add(sum, carries[(w * TILES + fragment % TILES) * ATOM_LANES + lane]);
        }
        return sum;
    }
    __device__ __forceinline__ void only_begun()
    {
        items = 0;
    }
    __device__ __forceinline__ void add(bool carried, unsigned stripe, unsigned lane,
                                        float (&sum)[TILES][4])
    {
        const unsigned warp = threadIdx.x / SPMM_WARP;
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            const float4 v = make_float4(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
            float4 *at = carried ? carries + warp * TILES * ATOM_LANES
                                 : firsts + stripe * TILES * ATOM_LANES;
            at[j * ATOM_LANES + lane] = v;
            sum[j][0] = sum[j][1] = sum[j][2] = sum[j][3] = 0.0F;
        }
    }
};

/* All units of a warp. ahead: behind the first one, which is on its way into next. */
template <int BITS, int TILES, bool FINE, int PAIRS>
__device__ __forceinline__ void
multiply_run(const atom_args &args, const spmm_work &work, cursor now, scaled_cursor &ahead,
             loaded_unit<BITS, PAIRS> &next, unsigned count, dense_sums<TILES> &sums)
{
    using steps = unit_steps<FINE, TILES>;
    constexpr unsigned GROUP_STEPS = ATOM_STEP / steps::COLUMNS;
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const uint8_t *x = atom_x_tile<TILES>(args, 0) + lane * 16;
    const uint8_t *x_scales = atom_x_tile<TILES>(args, 0) + args.scales_at + lane % 4 * 16;
    const unsigned tile_bytes = args.spmm.x_tile_bytes;
    loaded_unit<BITS, PAIRS> unit = {};
    float sum[TILES][4] = {};
    bool carried = now.column != 0;
    unsigned zero = 0;
#pragma unroll 1
    for (; count != 0; count--) {
#pragma unroll
        for (int i = 0; i < BITS; i++) {
            unit.codes[i] = make_uint4(next.codes[i].x | zero, next.codes[i].y | zero,
                                       next.codes[i].z | zero, next.codes[i].w | zero);
        }
#pragma unroll
        for (int p = 0; p < PAIRS; p++) {
            unit.scales[p] = make_uint4(next.scales[p].x | zero, next.scales[p].y | zero,
                                        next.scales[p].z | zero, next.scales[p].w | zero);
        }
        load_unit<BITS, PAIRS>(ahead, count > 1, next);
        const unsigned column = work.first + now.column;
        const uint8_t *codes = x + column * (DENSE_GROUPS * SPMM_X_BLOCK);
        const uint8_t *scales = x_scales + column * (steps::COUNT * ATOM_STEP_BYTES);
        multiply_steps<BITS, TILES, FINE, 0>(unit, codes, scales, tile_bytes, sum);
        zero = multiply_steps<BITS, TILES, FINE, 4>(
            unit, codes + SPMM_X_BLOCK, scales + GROUP_STEPS * ATOM_STEP_BYTES, tile_bytes, sum);
        if (now.column + 1 == now.width || count == 1) {
            sums.add(carried, now.stripe, lane, sum);
            carried = false;
        }
        now.next<BITS>();
    }
}

template <int BITS, int TILES, bool FINE, bool WHOLE>
__device__ __forceinline__ void multiply_tile(const atom_args &args, const spmm_work &work,
                                              float4 *shared, unsigned tile, unsigned stripes)
{
    constexpr int PAIRS = unit_steps<FINE, TILES>::PAIRS;
    const unsigned warp = threadIdx.x / SPMM_WARP;
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const unsigned width = work.end - work.first;
    const unsigned items = stripes * width;
    const unsigned each =
        TILES == 4 ? (items + ATOM_WIDE_WARPS - 1) / ATOM_WIDE_WARPS : per_warp(items);
    const unsigned first = min(items, warp * each);
    const unsigned count = min(items, first + each) - first;
    scaled_cursor ahead = scaled_start<BITS, PAIRS>(args, work, tile, first, lane);
    const cursor now = ahead.weights;
    const unsigned fragments = args.spmm.tile_stripes * TILES * ATOM_LANES;
    dense_sums<TILES> sums = {shared, shared + fragments, shared + 2 * fragments, each, width,
                              items};
    loaded_unit<BITS, PAIRS> next = {};
    load_unit<BITS, PAIRS>(ahead, count != 0, next);
    if (TILES != 2 && warp < stripes * TILES) {
        atom_prefetch_start(args, tile + warp / TILES, lane);
    }
    spmm_wait_for_predecessor();
    spmm_let_successor_start(); /* not sooner: see decode_begin() */
    prefetch_activations<TILES>(
        args.spmm, atom_x_tile<TILES>(args, 0) + work.first * (DENSE_GROUPS * SPMM_X_BLOCK), now,
        lane);
    prefetch_scales<TILES, unit_steps<FINE, TILES>::COUNT>(args, work.first + now.column, lane);
#pragma unroll 1
    for (bool done = false;; done = true) {
        atom_sweep<TILES>(args, work, sums, tile, stripes, done);
        if (done) {
            break;
        }
        multiply_run<BITS, TILES, FINE, PAIRS>(args, work, now, ahead, next, count, sums);
        __syncthreads();
        if (!WHOLE && gridDim.z > 1 && !atom_gather<TILES>(args, sums, tile, stripes)) {
            break;
        }
    }
    __syncthreads();
}

/* WHOLE_LAUNCH: see spmm_work_of(). What does any launch does a whole one, too, where the short
 * form would keep values in local memory: with two tiles from 10.0 on. */
template <int BITS, int TILES, bool FINE, bool WHOLE_LAUNCH>
__global__ void __launch_bounds__((unit_steps<FINE, TILES>::WARPS) * SPMM_WARP, 1)
    atom_dense_kernel(const __grid_constant__ atom_args args)
{
    constexpr bool WHOLE = WHOLE_LAUNCH && !(SPMM_FEW_REGISTERS && TILES == 2);
    extern __shared__ __align__(128) uint8_t shared[];
    const spmm_work work = spmm_work_of<TILES, WHOLE>(args.spmm);
    float4 *const sums = reinterpret_cast<float4 *>(shared);
    if constexpr (WHOLE) {
        multiply_tile<BITS, TILES, FINE, WHOLE>(args, work, sums, work.first_stripe,
                                                work.end_stripe - work.first_stripe);
    } else {
        for (unsigned tile = work.first_stripe; tile < work.end_stripe;
             tile += args.spmm.tile_stripes) {
            multiply_tile<BITS, TILES, FINE, WHOLE>(
                args, work, sums, tile, min(args.spmm.tile_stripes, work.end_stripe - tile));
        }
    }
}

template <int BITS, bool WHOLE> const void *kernel_for(unsigned tiles)
{
    return tiles == 1   ? reinterpret_cast<const void *>(atom_dense_kernel<BITS, 1, false, WHOLE>)
           : tiles == 2 ? reinterpret_cast<const void *>(atom_dense_kernel<BITS, 2, false, WHOLE>)
                        : reinterpret_cast<const void *>(atom_dense_kernel<BITS, 4, false, WHOLE>);
}

template <int BITS> const void *kernel_of(unsigned tiles, bool fine, bool whole)
{
    return fine    ? reinterpret_cast<const void *>(atom_dense_kernel<BITS, 1, true, false>)
           : whole ? kernel_for<BITS, true>(tiles)
                   : kernel_for<BITS, false>(tiles);
}

} // namespace

const void *atom_dense_kernel_of(unsigned bits, unsigned tiles, bool fine, bool whole)
{
    return bits == 4   ? kernel_of<4>(tiles, fine, whole)
           : bits == 3 ? kernel_of<3>(tiles, fine, whole)
                       : kernel_of<2>(tiles, fine, whole);
}

size_t atom_dense_shared_bytes(const spmm_args *args, unsigned tiles, unsigned warps)
{
    return static_cast<size_t>(2 * args->tile_stripes + warps) * tiles * ATOM_LANES *
           sizeof(float4);
}
