/* The residual stream: adds what a branch left, norms, and writes the input of the next linears.
 * A token's row is small and its codes are much work, so several blocks share a token: each finds
 * the norm of the whole row again and writes its part. */
#include "kernels/cuda/decode_support.cuh"

namespace
{

enum { THREADS = 512, WARPS = THREADS / 32, MOST_PARTS = 8, VECTOR = 4 };

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
    using loaded = float;
    const float *x;

    __device__ __forceinline__ void get_ready(const quantise_lane &) const
    {
    }
    __device__ __forceinline__ float load(unsigned column) const
    {
        return x[column];
    }
    __device__ __forceinline__ float value(float v, unsigned, unsigned) const
    {
        return v;
    }
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
            const float4 branch = decode_four_results<false>(
                args.branch, token, c,
                decode_four_words(args.branch, (size_t)token * args.branch.stride + c));
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
    shared_row source = {row};
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
        const quantise_lane lane = quantise_lane_of(args.sink.target, decode_first_part());
        decode_put_codes(args.sink, lane, source, token, reinterpret_cast<int *>(row + args.width));
    } else if (args.sink.form == ESPL_CUDA_INPUT_BYTES) {
        const float amax = largest_of(row, args.width, of_warp);
        decode_put_bytes(args.sink, source, token, args.width, first, end, amax);
    } else {
        decode_put_halves(args.sink, source, token, args.tokens, args.width, first, end);
    }
}

/* ---- codes of narrow groups, of plain results ---- */

/* Little code with few registers: a cold start costs more than the work. */
enum { CODES_THREADS = 256, CODES_WARPS = CODES_THREADS / 32, BATCH = 5 };

/* The norm of a row that lies in shared memory; gain and bias of this lane's places. */
struct normed_row {
    using loaded = float;
    const float *x;
    float mean, scale;
    float gain[QUANTISE_LANE_PLACES], bias[QUANTISE_LANE_PLACES];

    __device__ __forceinline__ float load(unsigned column) const
    {
        return x[column];
    }
    __device__ __forceinline__ float value(float v, unsigned, unsigned place) const
    {
        return (v - mean) * scale * gain[place] + bias[place];
    }
};

__device__ __forceinline__ void load_affine(const norm_args &args, const quantise_lane &lane,
                                            normed_row &row)
{
#pragma unroll
    for (unsigned i = 0; i < QUANTISE_LANE_PLACES; i++) {
        const unsigned c = lane.columns[i];
        row.gain[i] = 1.0F;
        row.bias[i] = 0.0F;
        if (lane.there && args.gain != nullptr) {
            row.gain[i] = quantise_constant(args.gain + c);
        }
        if (lane.there && args.bias != nullptr) {
            row.bias[i] = quantise_constant(args.bias + c);
        }
    }
}

__device__ __forceinline__ float4 add_four(float4 a, float4 b)
{
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* row <- residual + branch, and this block's part of it to memory; all loads of up to BATCH vectors
 * are on their way before the first is looked at. Returns the sum, or of RMSNorm the sum of
 * squares, of this thread. */
template <bool RMS>
__device__ __forceinline__ float load_plain_row(const norm_args &args, unsigned token, float *row)
{
    const unsigned vectors = args.width / VECTOR;
    const unsigned first = vectors * blockIdx.x / gridDim.x;
    const unsigned end = vectors * (blockIdx.x + 1) / gridDim.x;
    const float4 *residual = reinterpret_cast<const float4 *>(args.residual + token * args.stride);
    const float4 *branch = reinterpret_cast<const float4 *>(
        static_cast<const float *>(args.branch.values) + token * args.branch.stride);
    float4 *out = reinterpret_cast<float4 *>(args.sum + (size_t)token * args.width);
    float sum = 0.0F;
#pragma unroll 1
    for (unsigned begin = threadIdx.x; begin < vectors; begin += BATCH * CODES_THREADS) {
        float4 v[BATCH];
        float4 more[BATCH];
#pragma unroll
        for (unsigned i = 0; i < BATCH; i++) {
            const unsigned c = begin + i * CODES_THREADS;
            v[i] = more[i] = make_float4(0.0F, 0.0F, 0.0F, 0.0F);
            if (c < vectors) {
                v[i] = residual[c];
            }
            if (c < vectors && args.sum != nullptr) {
                more[i] = branch[c];
            }
        }
#pragma unroll
        for (unsigned i = 0; i < BATCH; i++) {
            const unsigned c = begin + i * CODES_THREADS;
            v[i] = add_four(v[i], more[i]);
            sum += RMS ? v[i].x * v[i].x + v[i].y * v[i].y + v[i].z * v[i].z + v[i].w * v[i].w
                       : v[i].x + v[i].y + v[i].z + v[i].w;
            if (c < vectors) {
                reinterpret_cast<float4 *>(row)[c] = v[i];
            }
            if (c >= first && c < end && args.sum != nullptr) {
                out[c] = v[i];
            }
        }
    }
    return sum;
}

/* Of all threads. of_warp: shared, (CODES_WARPS), used once. */
__device__ __forceinline__ float total_of(float value, float *of_warp)
{
    value = warp_sum(value);
    if (threadIdx.x % REDUCE_WARP == 0) {
        of_warp[threadIdx.x / REDUCE_WARP] = value;
    }
    __syncthreads();
    float sum = 0.0F;
#pragma unroll
    for (unsigned warp = 0; warp < CODES_WARPS; warp++) {
        sum += of_warp[warp];
    }
    return sum;
}

/* Mean and scale of the row from this thread's sum; the row is there for all threads then. */
template <bool RMS>
__device__ __forceinline__ void measure_row(const norm_args &args, float sum, normed_row &row,
                                            float (&of_warp)[2][CODES_WARPS])
{
    const float width = (float)args.width;
    float squares = total_of(sum, of_warp[0]);
    if (!RMS) {
        float mine = 0.0F;
        row.mean = squares / width;
#pragma unroll 2
        for (unsigned c = VECTOR * threadIdx.x; c < args.width; c += VECTOR * CODES_THREADS) {
            const float4 v = *reinterpret_cast<const float4 *>(row.x + c);
            mine += (v.x - row.mean) * (v.x - row.mean) + (v.y - row.mean) * (v.y - row.mean) +
                    (v.z - row.mean) * (v.z - row.mean) + (v.w - row.mean) * (v.w - row.mean);
        }
        squares = total_of(mine, of_warp[1]);
    }
    row.scale = 1.0F / sqrtf(squares / width + args.eps);
}

/* blockIdx.x: part of the token blockIdx.y; a warp does a group, or the outliers. */
template <bool RMS>
__global__ void __launch_bounds__(CODES_THREADS)
    norm_codes_kernel(const __grid_constant__ norm_args args)
{
    extern __shared__ __align__(16) float row[];
    __shared__ float sums[2][CODES_WARPS];
    const unsigned token = blockIdx.y;
    const unsigned part = decode_first_part();
    const quantise_lane lane = quantise_lane_of(args.sink.target, part);
    normed_row source = {row, 0.0F, 0.0F, {}, {}};
    load_affine(args, lane, source);
    decode_begin();
    if (token < args.tokens) {
        const float sum = load_plain_row<RMS>(args, token, row);
        measure_row<RMS>(args, sum, source, sums);
    }
    if (lane.narrow) {
        quantise_narrow_part(args.sink.target, lane, source, token, part);
    }
}

enum espl_status launch_codes(struct norm_args *args, unsigned tokens, bool overlap, void *stream,
                              struct espl_error *err)
{
    const unsigned parts = args->sink.target.groups + (args->sink.target.outliers > 0 ? 1u : 0u);
    const void *kernel = args->rms ? reinterpret_cast<const void *>(norm_codes_kernel<true>)
                                   : reinterpret_cast<const void *>(norm_codes_kernel<false>);
    return decode_launch(kernel, dim3((parts + CODES_WARPS - 1) / CODES_WARPS, tokens),
                         CODES_THREADS, args->width * sizeof(float), args, overlap, stream, err);
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
    const unsigned tokens = static_cast<unsigned>(decode_sink_tokens(&args.sink, norm->tokens));
    if (input->form == ESPL_CUDA_INPUT_ATOM && quantise_is_narrow(&args.sink.target) &&
        decode_is_plain(&args.branch)) {
        return launch_codes(&args, tokens, overlap, stream, err);
    }
    const dim3 grid(parts_of(&args.sink), tokens);
    const size_t shared =
        norm->width * sizeof(float) + WARPS * args.sink.target.team_steps * sizeof(int);
    return decode_launch(reinterpret_cast<const void *>(norm_kernel), grid, THREADS, shared, &args,
                         overlap, stream, err);
}
