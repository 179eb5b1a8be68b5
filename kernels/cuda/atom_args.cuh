/* What a launch of a kernel with scales (Atom's contract) is told, and the device code that the
 * dense and the sparse one share. */
#ifndef ESPL_CUDA_ATOM_ARGS_CUH
#define ESPL_CUDA_ATOM_ARGS_CUH

#include "espalier/cuda_atom.h"
#include "kernels/cuda/spmm_args.cuh"

#include <cuda_fp16.h>

enum {
    ATOM_STEP = 128,          /* columns whose products share a scale */
    ATOM_FINE_STEP = 32,      /* the same where groups are not multiples of 128 */
    ATOM_STEP_BYTES = 64,     /* of the scales of 8 tokens for a step */
    ATOM_BLOCK_COLS = 32,     /* INT8 channels of an MMA */
    ATOM_X_BLOCK_BYTES = 256, /* of such a block of 8 tokens */
    ATOM_W_BLOCK_BYTES = 512, /* of 16 rows */
    ATOM_LANES = 32
};

/** How columns of a layer stand in the kernels, and where the parts of x are. A tile of 8 tokens is
 *  INT4 codes, INT8 codes, scales of steps, scales of outliers. Byte offsets. */
struct atom_layout {
    unsigned step;           /* 128 or 32 */
    unsigned group;          /* columns of a group, filled up to whole steps */
    unsigned cols;           /* of all groups, filled up */
    unsigned steps;          /* of whole slices of 512 */
    unsigned outlier_blocks; /* of 32 INT8 channels */
    unsigned outliers_at;
    unsigned scales_at;
    unsigned outlier_scales_at;
    unsigned tile_bytes;
};

/** Errors: UNSUPPORTED. */
enum espl_status atom_layout_of(const struct espl_quant_shape *shape, struct atom_layout *layout,
                                struct espl_error *err);

/* All pointers are device memory. Rows are counted as they stand on the device. */
struct atom_args {
    struct spmm_args spmm;       /* y and partial are not used */
    const uint4 *scales;         /* dense: one entry a pair of steps, see atom_dense.cu */
    const uint4 *outliers;       /* (stripes, outlier_blocks, 32 lanes): fragments */
    const float *outlier_scales; /* (stripes * 16) */
    const float *bias;           /* (stripes * 16) or NULL */
    const int32_t *row_of;       /* (stripes * 16) places in y, -1 = none; NULL: as they stand */
    __half *y;                   /* (tokens, spmm.y_stride) */
    float *floats;               /* the same in FP32, instead of y; or NULL */
    float4 *partial; /* sums of splits: (splits, groups of tokens, stripes, tiles, 32) */
    unsigned outlier_blocks;
    unsigned outliers_at; /* in a tile of x */
    unsigned scales_at;
    unsigned outlier_scales_at;
    unsigned row_shift;     /* 1 when two rows share scales, else 0 */
    unsigned scale_bytes;   /* sparse: in front of every chunk */
    const float *row_units; /* sparse: (stripes * 16), see atom_sparse.cu */
    float low_factor;       /* of sums of rows 0 to 7 of a stripe: 2^-n */
    float high_factor;      /* of rows 8 to 15 */
    float low_inverse;      /* 2^n */
    float high_inverse;
};

#ifdef __CUDACC__

/* Sums of a step start here: the bits of 1.5 * 2^23. Read as a float, such a sum is 1.5 * 2^23 +
 * its value, exactly, for values up to 2^22: at most 128 products of 8-bit numbers. */
constexpr int ATOM_MAGIC = 0x4B400000;
constexpr float ATOM_MAGIC_FLOAT = 12582912.0F;

/* d (16 x 8) = the magic number + a * b */
__device__ __forceinline__ void atom_mma_first(int (&d)[4], unsigned a0, unsigned a1, unsigned a2,
                                               unsigned a3, unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%10,%10,%10,%10};"
                 : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(ATOM_MAGIC));
}

/* sum += the products of a step, scaled. low, high: scales of rows g and g + 8. x: scales of tokens
 * 2 t and 2 t + 1, and what the sums of row g have too much (BIASED: see split rows in
 * docs/kernels/spmm.md). */
template <bool BIASED>
__device__ __forceinline__ void atom_combine(const int (&acc)[4], float low, float high, float4 x,
                                             float (&sum)[4])
{
    const float d0 = __int_as_float(acc[0]) - (BIASED ? x.z : ATOM_MAGIC_FLOAT);
    const float d1 = __int_as_float(acc[1]) - (BIASED ? x.w : ATOM_MAGIC_FLOAT);
    const float d2 = __int_as_float(acc[2]) - (BIASED ? __int_as_float(acc[0]) : ATOM_MAGIC_FLOAT);
    const float d3 = __int_as_float(acc[3]) - (BIASED ? __int_as_float(acc[1]) : ATOM_MAGIC_FLOAT);
    sum[0] = __fmaf_rn(d0, __fmul_rn(low, x.x), sum[0]);
    sum[1] = __fmaf_rn(d1, __fmul_rn(low, x.y), sum[1]);
    sum[2] = __fmaf_rn(d2, __fmul_rn(high, x.x), sum[2]);
    sum[3] = __fmaf_rn(d3, __fmul_rn(high, x.y), sum[3]);
}

__device__ __forceinline__ float4 atom_add(float4 a, float4 b)
{
    return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z),
                       __fadd_rn(a.w, b.w));
}

/* Tile `tile` of x of this block's tokens. */
template <int TILES>
__device__ __forceinline__ const uint8_t *atom_x_tile(const atom_args &args, unsigned tile)
{
    return args.spmm.x + (size_t)(blockIdx.y * TILES + tile) * args.spmm.x_tile_bytes;
}

/* What sums of a stripe and a tile of tokens begin with: INT8 channels (of the first split) and
 * bias, as the sums have them: divided by the factors of their rows. */
template <int TILES>
__device__ __forceinline__ float4 atom_start(const atom_args &args, unsigned stripe, unsigned tile,
                                             unsigned lane)
{
    const uint8_t *x = atom_x_tile<TILES>(args, tile);
    const uint4 *w = args.outliers + (size_t)stripe * args.outlier_blocks * ATOM_LANES + lane;
    const uint2 *codes = reinterpret_cast<const uint2 *>(x + args.outliers_at) + lane;
    const unsigned row = stripe * SPMM_STRIPE + lane / 4;
    float low_bias = 0.0F;
    float high_bias = 0.0F;
    float low_scale = 0.0F;
    float high_scale = 0.0F;
    float2 x_scale = make_float2(0.0F, 0.0F);
    int acc[4] = {};
    if (args.bias != nullptr) {
        low_bias = __ldg(args.bias + row) * args.low_inverse;
        high_bias = __ldg(args.bias + row + SPMM_STRIPE / 2) * args.high_inverse;
    }
    if (args.outlier_blocks != 0) {
        low_scale = __ldg(args.outlier_scales + row);
        high_scale = __ldg(args.outlier_scales + row + SPMM_STRIPE / 2);
        x_scale = __ldg(reinterpret_cast<const float2 *>(x + args.outlier_scales_at) + lane % 4);
    }
#pragma unroll 4
    for (unsigned block = 0; block < args.outlier_blocks; block++) {
        const uint4 a = __ldg(w + block * ATOM_LANES);
        const uint2 b = __ldg(codes + block * ATOM_LANES);
        spmm_mma(acc, a.x, a.y, a.z, a.w, b.x, b.y);
    }
    low_scale *= args.low_inverse;
    high_scale *= args.high_inverse;
    return make_float4(__fmaf_rn((float)acc[0], __fmul_rn(low_scale, x_scale.x), low_bias),
                       __fmaf_rn((float)acc[1], __fmul_rn(low_scale, x_scale.y), low_bias),
                       __fmaf_rn((float)acc[2], __fmul_rn(high_scale, x_scale.x), high_bias),
                       __fmaf_rn((float)acc[3], __fmul_rn(high_scale, x_scale.y), high_bias));
}

/* Brings what atom_start() reads of a stripe beside x closer: of its INT8 channels the first 2 KB,
 * scales, bias. */
__device__ __forceinline__ void atom_prefetch_start(const atom_args &args, unsigned stripe,
                                                    unsigned lane)
{
    constexpr unsigned LINE = 128, LINES = 16;
    const size_t bytes = (size_t)args.outlier_blocks * ATOM_W_BLOCK_BYTES;
    const void *from = nullptr;
    if (lane < LINES && lane * LINE < bytes) {
        from = reinterpret_cast<const uint8_t *>(args.outliers) + stripe * bytes + lane * LINE;
    } else if (lane == LINES && bytes != 0) {
        from = args.outlier_scales + stripe * SPMM_STRIPE;
    } else if (lane == LINES + 1 && args.bias != nullptr) {
        from = args.bias + stripe * SPMM_STRIPE;
    }
    if (from != nullptr) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
    }
}

__device__ __forceinline__ void atom_put(const atom_args &args, size_t at, float value)
{
    if (args.floats != nullptr) {
        args.floats[at] = value;
    } else {
        args.y[at] = __float2half_rn(value);
    }
}

/* Writes the four results of a lane, of tokens below `tokens`. */
__device__ __forceinline__ void atom_store(const atom_args &args, unsigned stripe, unsigned token,
                                           unsigned tokens, unsigned lane, float4 sum)
{
    const unsigned low = stripe * SPMM_STRIPE + lane / 4;
    const unsigned high = low + SPMM_STRIPE / 2;
    const size_t row = (size_t)token * args.spmm.y_stride;
    int low_at = low < args.spmm.rows ? (int)low : -1;
    int high_at = high < args.spmm.rows ? (int)high : -1;
    if (args.row_of != nullptr) {
        low_at = __ldg(args.row_of + low);
        high_at = __ldg(args.row_of + high);
    }
    if (low_at >= 0 && token < tokens) {
        atom_put(args, row + low_at, sum.x * args.low_factor);
    }
    if (low_at >= 0 && token + 1 < tokens) {
        atom_put(args, row + args.spmm.y_stride + low_at, sum.y * args.low_factor);
    }
    if (high_at >= 0 && token < tokens) {
        atom_put(args, row + high_at, sum.z * args.high_factor);
    }
    if (high_at >= 0 && token + 1 < tokens) {
        atom_put(args, row + args.spmm.y_stride + high_at, sum.w * args.high_factor);
    }
}

/* Goes over a tile of stripes: fragments (stripes, TILES, 32) of which a warp has the same every
 * time. Begins the sums, or with `end` writes y: a kernel calls it at one place, in a loop, so that
 * the instructions of the end come into their cache while the first weights are on their way. SUMS:
 * begin(fragment, lane, start) and total(fragment, lane). */
template <int TILES, class SUMS>
__device__ __forceinline__ void atom_sweep(const atom_args &args, const spmm_work &work, SUMS &sums,
                                           unsigned first, unsigned count, bool end)
{
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const unsigned warps = blockDim.x / SPMM_WARP;
#pragma unroll 1
    for (unsigned f = threadIdx.x / SPMM_WARP; f < count * TILES; f += warps) {
        const unsigned stripe = first + f / TILES;
        const unsigned tile = f % TILES;
        float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        if (!end && blockIdx.z == 0) {
            sum = atom_start<TILES>(args, stripe, tile, lane);
        }
        if (end) {
            sum = sums.total(f, lane);
        }
        atom_store(args, stripe, work.first_token + tile * SPMM_COLUMNS + lane % 4 * 2,
                   end ? args.spmm.tokens : 0, lane, sum);
        if (!end) {
            sums.begin(f, lane, sum);
        }
    }
}

/* With splits: puts the sums of this one into memory. When all have: true, and sums are those of
 * all, added in their order. */
template <int TILES, class SUMS>
__device__ __forceinline__ bool atom_gather(const atom_args &args, SUMS &sums, unsigned first,
                                            unsigned count)
{
    __shared__ unsigned last_to_arrive;
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const unsigned warp = threadIdx.x / SPMM_WARP;
    const unsigned warps = blockDim.x / SPMM_WARP;
    const size_t split = (size_t)args.spmm.stripes * TILES * ATOM_LANES;
    float4 *partial = args.partial + blockIdx.y * split + (size_t)first * TILES * ATOM_LANES + lane;
    for (unsigned f = warp; f < count * TILES; f += warps) {
        partial[blockIdx.z * gridDim.y * split + f * ATOM_LANES] = sums.total(f, lane);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *arrived = args.spmm.arrived + (size_t)blockIdx.y * args.spmm.stripes + first;
        last_to_arrive = atomicAdd(arrived, 1u) == gridDim.z - 1 ? 1u : 0u;
        if (last_to_arrive != 0) {
            *arrived = 0;
        }
    }
    __syncthreads();
    if (last_to_arrive == 0) {
        return false;
    }
    __threadfence();
    for (unsigned f = warp; f < count * TILES; f += warps) {
        float4 sum = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
        for (unsigned z = 0; z < gridDim.z; z++) {
            sum = atom_add(sum, __ldcg(partial + z * gridDim.y * split + f * ATOM_LANES));
        }
        sums.begin(f, lane, sum);
    }
    sums.only_begun();
    return true;
}

#endif
#endif
