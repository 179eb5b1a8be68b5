/* Dynamic quantisation of activations [Atom, section 4]: FP16 in the order of the model to INT4
 * groups and INT8 outliers in the order of the kernels (struct atom_layout). One kernel; a block
 * does a group, or the outliers, of one token. */
#include "espalier/cuda_memory.h"
#include "kernels/cuda/atom_args.cuh"
#include "kernels/cuda/cuda_support.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/quant_internal.h"

namespace
{

enum { LEAST_THREADS = 32, MOST_THREADS = 512, LANE_COLS = 8, MOST_TOKENS = 65535 };

struct quantise_args {
    const __half *x;
    const int32_t *order;
    uint8_t *codes;
    unsigned long long *nonfinite;
    size_t x_stride;
    unsigned in;
    unsigned tokens;
    unsigned groups;
    unsigned columns; /* of a group */
    unsigned outliers;
    float clip;
    struct atom_layout layout;
};

/* Value at a reordered place. */
__device__ __forceinline__ float value_at(const quantise_args &args, const __half *row,
                                          unsigned place)
{
    const unsigned column = args.order != nullptr ? (unsigned)__ldg(args.order + place) : place;
    return __half2float(row[column]);
}

/* The largest magnitude of a block's columns, at least the least; reports what is not finite. */
__device__ __forceinline__ float largest(const quantise_args &args, const __half *row,
                                         unsigned token, unsigned first, unsigned count)
{
    __shared__ float of_warp[MOST_THREADS / SPMM_WARP];
    float amax = ESPL_QUANT_LEAST_AMAX;
    for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
        const float v = value_at(args, row, first + i);
        if (!isfinite(v)) {
            const unsigned column =
                args.order != nullptr ? (unsigned)__ldg(args.order + first + i) : first + i;
            atomicMin(args.nonfinite, (unsigned long long)token * args.in + column);
        }
        amax = fmaxf(amax, fabsf(v));
    }
    amax = warp_max(amax);
    if (threadIdx.x % SPMM_WARP == 0) {
        of_warp[threadIdx.x / SPMM_WARP] = amax;
    }
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / SPMM_WARP; w++) {
        amax = fmaxf(amax, of_warp[w]);
    }
    return amax;
}

__device__ __forceinline__ int code_of(float v, float scale, float qmax)
{
    return (int)fminf(fmaxf(rintf(__fdiv_rn(v, scale)), -qmax - 1.0F), qmax);
}

/* A group: words of 8 codes, and what every step of it needs: the scale, and the magic number plus
 * the sum of codes, times what a biased row has too much of each. */
__device__ __forceinline__ void quantise_group(const quantise_args &args, uint8_t *tile,
                                               const __half *row, unsigned token, int *step_sums)
{
    constexpr float QMAX = 7.0F;
    constexpr int BIAS = 8 << SPMM_X_SHIFT;
    const bool there = token < args.tokens;
    const unsigned group = blockIdx.x;
    const unsigned in_tile = token % SPMM_COLUMNS;
    const unsigned at = group * args.layout.group;
    const unsigned end =
        group + 1 == args.groups ? args.layout.steps * args.layout.step : at + args.layout.group;
    const unsigned steps = (end - at) / args.layout.step;
    uint32_t *words = reinterpret_cast<uint32_t *>(tile);
    float scale = 0.0F;
    for (unsigned s = threadIdx.x; s < steps; s += blockDim.x) {
        step_sums[s] = 0;
    }
    if (there) {
        const float amax = largest(args, row, token, group * args.columns, args.columns);
        scale = __fdiv_rn(__fmul_rn(args.clip, amax), QMAX);
    }
    __syncthreads();
    for (unsigned w = threadIdx.x; w < (end - at) / LANE_COLS; w += blockDim.x) {
        const unsigned column = at + w * LANE_COLS;
        unsigned packed = 0;
        int sum = 0;
        for (unsigned i = 0; there && i < LANE_COLS && w * LANE_COLS + i < args.columns; i++) {
            const unsigned place = group * args.columns + w * LANE_COLS + i;
            const int code = code_of(value_at(args, row, place), scale, QMAX);
            packed |= ((unsigned)code & 15u) << (8 * (i % 4) + (i >= 4 ? 4 : 0));
            sum += code;
        }
        words[column / 128 * (SPMM_X_BLOCK / 4) + in_tile * 16 + column % 32 / LANE_COLS * 4 +
              column % 128 / 32] = packed;
        atomicAdd(step_sums + w * LANE_COLS / args.layout.step, sum);
    }
    __syncthreads();
    float *entries =
        reinterpret_cast<float *>(tile + args.layout.scales_at) + in_tile / 2 * 4 + in_tile % 2;
    for (unsigned s = threadIdx.x; s < steps; s += blockDim.x) {
        float *entry = entries + (at / args.layout.step + s) * (ATOM_STEP_BYTES / 4);
        entry[0] = scale;
        entry[2] = ATOM_MAGIC_FLOAT + (float)(BIAS * step_sums[s]);
    }
}

__device__ __forceinline__ void quantise_outliers(const quantise_args &args, uint8_t *tile,
                                                  const __half *row, unsigned token)
{
    constexpr float QMAX = 127.0F;
    const bool there = token < args.tokens;
    const unsigned in_tile = token % SPMM_COLUMNS;
    const unsigned first = args.in - args.outliers;
    float scale = 0.0F;
    if (there) {
        scale = __fdiv_rn(largest(args, row, token, first, args.outliers), QMAX);
    }
    for (unsigned c = threadIdx.x; c < args.layout.outlier_blocks * ATOM_BLOCK_COLS;
         c += blockDim.x) {
        const int code =
            there && c < args.outliers ? code_of(value_at(args, row, first + c), scale, QMAX) : 0;
        const unsigned lane = in_tile * 4 + c % ATOM_BLOCK_COLS / LANE_COLS;
        tile[args.layout.outliers_at + c / ATOM_BLOCK_COLS * ATOM_X_BLOCK_BYTES + lane * LANE_COLS +
             c % LANE_COLS] = (uint8_t)code;
    }
    if (threadIdx.x == 0) {
        reinterpret_cast<float *>(tile + args.layout.outlier_scales_at)[in_tile] = scale;
    }
}

/* blockIdx.y: token, also those that fill up the last tile. */
__global__ void quantise_kernel(const __grid_constant__ quantise_args args)
{
    extern __shared__ int step_sums[];
    const unsigned token = blockIdx.y;
    const __half *row = args.x + (size_t)token * args.x_stride;
    uint8_t *tile = args.codes + (size_t)(token / SPMM_COLUMNS) * args.layout.tile_bytes;
    if (blockIdx.x < args.groups) {
        quantise_group(args, tile, row, token, step_sums);
    } else {
        quantise_outliers(args, tile, row, token);
    }
}

/* Tokens filled up to whole tiles: 1, 2 or a multiple of 4 of them, as products take them. */
size_t filled_tokens(size_t tokens)
{
    const size_t tiles = (tokens + SPMM_COLUMNS - 1) / SPMM_COLUMNS;
    return (tiles <= 2 ? tiles : (tiles + 3) / 4 * 4) * SPMM_COLUMNS;
}

/* Of a block: enough for 4 columns a thread in whole warps. */
unsigned threads_for(size_t columns)
{
    const size_t wanted = (columns / 4 + SPMM_WARP - 1) / SPMM_WARP * SPMM_WARP;
    return static_cast<unsigned>(wanted < LEAST_THREADS  ? (size_t)LEAST_THREADS
                                 : wanted > MOST_THREADS ? (size_t)MOST_THREADS
                                                         : wanted);
}

} // namespace

extern "C" size_t espl_cuda_atom_activation_bytes(const struct espl_quant_shape *shape,
                                                  size_t tokens)
{
    struct atom_layout layout;
    struct espl_error err;
    if (atom_layout_of(shape, &layout, &err) != ESPL_OK) {
        return 0;
    }
    return filled_tokens(tokens) / SPMM_COLUMNS * layout.tile_bytes;
}

extern "C" enum espl_status
espl_cuda_quantize_activations(const struct espl_quant_shape *shape,
                               const struct espl_cuda_quantize *operands, void *stream,
                               struct espl_error *err)
{
    struct quantise_args args = {};
    enum espl_status status = atom_layout_of(shape, &args.layout, err);
    if (status == ESPL_OK) {
        status = espl_quant_clip_check(operands->clip, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const size_t tokens = filled_tokens(shape->tokens);
    if (shape->tokens == 0 || tokens > MOST_TOKENS || operands->x_stride < shape->in ||
        reinterpret_cast<uintptr_t>(operands->codes) % ESPL_CUDA_SPMM_ALIGN != 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "cannot quantise %zu tokens of %zu channels in rows of %zu", shape->tokens,
                         shape->in, operands->x_stride);
    }
    args.x = reinterpret_cast<const __half *>(operands->x);
    args.order = operands->order;
    args.codes = operands->codes;
    args.nonfinite = reinterpret_cast<unsigned long long *>(operands->nonfinite);
    args.x_stride = operands->x_stride;
    args.in = static_cast<unsigned>(shape->in);
    args.tokens = static_cast<unsigned>(shape->tokens);
    args.groups = static_cast<unsigned>(espl_quant_groups(shape));
    args.columns = static_cast<unsigned>(espl_quant_group_columns(shape));
    args.outliers = static_cast<unsigned>(shape->outliers);
    args.clip = operands->clip;
    const unsigned group_steps = (args.layout.group + args.layout.step - 1) / args.layout.step;
    const unsigned last = args.layout.steps - (args.groups - 1) * group_steps;
    const dim3 grid(args.groups + (args.outliers > 0 ? 1 : 0), static_cast<unsigned>(tokens));
    const unsigned threads = threads_for(args.columns);
    const size_t shared = (last > group_steps ? last : group_steps) * sizeof(int);
    quantise_kernel<<<grid, threads, shared, static_cast<cudaStream_t>(stream)>>>(args);
    return espl_cuda_check(cudaGetLastError(), "cannot launch the quantiser of activations", err);
}

extern "C" enum espl_status espl_cuda_quantize_check(const struct espl_quant_shape *shape,
                                                     const uint64_t *nonfinite,
                                                     struct espl_error *err)
{
    uint64_t least = 0;
    const enum espl_status status = espl_cuda_download(&least, nonfinite, sizeof least, err);
    if (status != ESPL_OK || least == UINT64_MAX) {
        return status;
    }
    return espl_quant_fail_nonfinite(least / shape->in, least % shape->in, err);
}
