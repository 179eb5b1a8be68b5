/* The residual stream: adds what a branch left, norms, and writes the input of the next linears.
 * A token's row is small and its codes are much work, so several blocks share a token: each finds
 * the norm of the whole row again and writes its part. */
#include "kernels/cuda/decode_support.cuh"

namespace
{

enum { THREADS = 512, WARPS = THREADS / 32, MOST_PARTS = 8 };

struct norm_args {
    const float *residual;
    size_t stride;
    struct espl_cuda_results branch;
    float *sum; /* NULL: no branch */
    const float *gain;
    const float *bias;
    struct decode_sink sink;
    unsigned tokens;
    unsigned width;
    float eps;
    bool rms;
};

struct shared_row {
    const float *x;

    __device__ __forceinline__ float operator()(unsigned column) const
    {
        return x[column];
    }
};

/* row <- residual + branch; returns the sum, or of RMSNorm the sum of squares, of this thread. */
__device__ __forceinline__ float load_row(const norm_args &args, unsigned token, float *row)
{
    const float *residual = args.residual + token * args.stride;
    float sum = 0.0F;
#pragma unroll 4
    for (unsigned c = 4 * threadIdx.x; c < args.width; c += 4 * THREADS) {
        float4 v = *reinterpret_cast<const float4 *>(residual + c);
        if (args.sum != nullptr) {
            const float4 branch = decode_four_results(args.branch, token, c);
            v = make_float4(v.x + branch.x, v.y + branch.y, v.z + branch.z, v.w + branch.w);
        }
        *reinterpret_cast<float4 *>(row + c) = v;
        sum += args.rms ? v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w : v.x + v.y + v.z + v.w;
    }
    return sum;
}

__device__ __forceinline__ void store_sum(const norm_args &args, unsigned token, const float *row,
                                          unsigned first, unsigned end)
{
    for (unsigned c = first + threadIdx.x; args.sum != nullptr && c < end; c += THREADS) {
        args.sum[(size_t)token * args.width + c] = row[c];
    }
}

/* row <- its norm. sum: of this thread. */
__device__ __forceinline__ void norm_row(const norm_args &args, float sum, float *row,
                                         float (&of_warp)[REDUCE_MOST_WARPS])
{
    const float width = (float)args.width;
    float mean = 0.0F;
    float squares = block_sum(sum, of_warp);
    if (!args.rms) {
        mean = squares / width;
        float mine = 0.0F;
#pragma unroll 4
        for (unsigned c = threadIdx.x; c < args.width; c += THREADS) {
            const float d = row[c] - mean;
            mine += d * d;
        }
        squares = block_sum(mine, of_warp);
    }
    const float scale = 1.0F / sqrtf(squares / width + args.eps);
#pragma unroll 4
    for (unsigned c = threadIdx.x; c < args.width; c += THREADS) {
        const float gain = args.gain != nullptr ? __ldg(args.gain + c) : 1.0F;
        const float bias = args.bias != nullptr ? __ldg(args.bias + c) : 0.0F;
        row[c] = (row[c] - mean) * scale * gain + bias;
    }
}

__device__ __forceinline__ float largest_of(const float *row, unsigned width,
                                            float (&of_warp)[REDUCE_MOST_WARPS])
{
    float amax = 0.0F;
    for (unsigned c = threadIdx.x; c < width; c += THREADS) {
        amax = fmaxf(amax, fabsf(row[c]));
    }
    return block_max(amax, of_warp);
}

/* blockIdx.x: part of the token blockIdx.y. */
__global__ void __launch_bounds__(THREADS) norm_kernel(const __grid_constant__ norm_args args)
{
    extern __shared__ __align__(16) float row[];
    __shared__ float of_warp[REDUCE_MOST_WARPS];
    const unsigned token = blockIdx.y;
    const unsigned first = args.width * blockIdx.x / gridDim.x;
    const unsigned end = args.width * (blockIdx.x + 1) / gridDim.x;
    const shared_row source = {row};
    decode_prefetch(args.gain, args.width * sizeof(float));
    decode_prefetch(args.bias, args.width * sizeof(float));
    decode_prefetch(args.sink.target.order, args.width * sizeof(int32_t));
    decode_prefetch_results(args.branch, args.width);
    decode_begin();
    if (token < args.tokens) {
        const float sum = load_row(args, token, row);
        __syncthreads();
        store_sum(args, token, row, first, end);
        norm_row(args, sum, row, of_warp);
        __syncthreads();
    }
    if (args.sink.form == ESPL_CUDA_INPUT_ATOM) {
        decode_put_codes(args.sink, source, token, reinterpret_cast<int *>(row + args.width));
    } else if (args.sink.form == ESPL_CUDA_INPUT_BYTES) {
        const float amax = largest_of(row, args.width, of_warp);
        decode_put_bytes(args.sink, source, token, args.width, first, end, amax);
    } else {
        decode_put_halves(args.sink, source, token, args.tokens, args.width, first, end);
    }
}

/* Blocks for a token: a warp for every group, but no more blocks in all than are useful. */
unsigned parts_of(const struct decode_sink *sink)
{
    const unsigned groups = sink->target.groups + (sink->target.outliers > 0 ? 1u : 0u);
    const unsigned wanted =
        sink->form == ESPL_CUDA_INPUT_ATOM ? (groups + WARPS - 1) / WARPS : MOST_PARTS / 2;
    return wanted < MOST_PARTS ? wanted : (unsigned)MOST_PARTS;
}

} // namespace

extern "C" enum espl_status espl_cuda_norm_input(const struct espl_cuda_norm *norm,
                                                 const struct espl_cuda_input *input, bool overlap,
                                                 void *stream, struct espl_error *err)
{
    struct norm_args args = {};
    const enum espl_status status =
        decode_sink_of(input, norm->tokens, norm->width, &args.sink, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (norm->width % 4 != 0 || norm->stride % 4 != 0 ||
        (norm->branch != NULL && norm->branch->stride % 4 != 0)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "rows of %zu values are no whole vectors of four",
                         norm->width);
    }
    args.residual = norm->residual;
    args.stride = norm->stride;
    if (norm->branch != NULL) {
        args.branch = *norm->branch;
        args.sum = norm->sum;
    }
    args.gain = norm->gain;
    args.bias = norm->bias;
    args.tokens = static_cast<unsigned>(norm->tokens);
    args.width = static_cast<unsigned>(norm->width);
    args.eps = norm->eps;
    args.rms = norm->rms;
    const dim3 grid(parts_of(&args.sink),
                    static_cast<unsigned>(decode_sink_tokens(&args.sink, norm->tokens)));
    const size_t shared =
        norm->width * sizeof(float) + WARPS * args.sink.target.team_steps * sizeof(int);
    return decode_launch(reinterpret_cast<const void *>(norm_kernel), grid, THREADS, shared, &args,
                         overlap, stream, err);
}
