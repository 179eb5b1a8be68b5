/* Activation functions of what a linear left, and the input of the next linear. */
#include "kernels/cuda/decode_support.cuh"

namespace
{

enum { WARP_THREADS = 128, BLOCK_THREADS = 512, WARP_COLUMNS = 1024, HALF_COLUMNS = 1024 };

struct activation_args {
    struct espl_cuda_results x;
    struct decode_sink sink;
    enum espl_cuda_activation_kind kind;
    unsigned tokens;
    unsigned width;
};

/* What an activation function makes of columns of a token. PLAIN: of results that are FP32. */
template <bool PLAIN> struct activated {
    struct loaded {
        unsigned word, up; /* as they lie in memory */
    };
    const activation_args &args;
    enum espl_cuda_activation_kind kind;
    unsigned token;

    __device__ __forceinline__ void get_ready(const quantise_lane &) const
    {
    }
    __device__ __forceinline__ loaded load(unsigned column) const
    {
        loaded words = {decode_word(args.x, token, column), 0};
        if (kind == ESPL_CUDA_SILU_MUL) {
            words.up = decode_word(args.x, token, args.width + column);
        }
        return words;
    }
    __device__ __forceinline__ float operator()(unsigned column) const
    {
        return value(load(column), column, 0);
    }
    __device__ __forceinline__ float value(loaded words, unsigned column, unsigned) const
    {
        constexpr float ROOT_HALF = 0.70710678118654752F;
        const float v = decode_result_of<PLAIN>(args.x, token, column, words.word);
        switch (kind) {
        case ESPL_CUDA_RELU:
            return v < 0.0F ? 0.0F : v;
        case ESPL_CUDA_GELU:
            return 0.5F * v * (1.0F + erff(v * ROOT_HALF));
        case ESPL_CUDA_SILU_MUL:
            return v / (1.0F + expf(-v)) *
                   decode_result_of<PLAIN>(args.x, token, args.width + column, words.up);
        default:
            return v;
        }
    }
};

/* Narrow groups of plain results: a warp each. One function a kernel, because a cold start costs
 * more than the work. */
template <espl_cuda_activation_kind KIND>
__global__ void __launch_bounds__(WARP_THREADS)
    narrow_codes_kernel(const __grid_constant__ activation_args args)
{
    const unsigned part = decode_first_part();
    const quantise_lane lane = quantise_lane_of(args.sink.target, part);
    const activated<true> source = {args, KIND, blockIdx.y};
    decode_begin();
    if (lane.narrow) {
        quantise_narrow_part(args.sink.target, lane, source, blockIdx.y, part);
    }
}

const void *narrow_kernel_of(enum espl_cuda_activation_kind kind)
{
    switch (kind) {
    case ESPL_CUDA_RELU:
        return reinterpret_cast<const void *>(narrow_codes_kernel<ESPL_CUDA_RELU>);
    case ESPL_CUDA_GELU:
        return reinterpret_cast<const void *>(narrow_codes_kernel<ESPL_CUDA_GELU>);
    case ESPL_CUDA_SILU_MUL:
        return reinterpret_cast<const void *>(narrow_codes_kernel<ESPL_CUDA_SILU_MUL>);
    default:
        return reinterpret_cast<const void *>(narrow_codes_kernel<ESPL_CUDA_IDENTITY>);
    }
}

/* Groups of few columns: a warp each. */
__global__ void __launch_bounds__(WARP_THREADS)
    codes_by_warp_kernel(const __grid_constant__ activation_args args)
{
    extern __shared__ int step_sums[];
    const quantise_lane lane = quantise_lane_of(args.sink.target, decode_first_part());
    activated<false> source = {args, args.kind, blockIdx.y};
    decode_begin();
    decode_put_codes(args.sink, lane, source, blockIdx.y, step_sums);
}

__global__ void __launch_bounds__(BLOCK_THREADS)
    codes_by_block_kernel(const __grid_constant__ activation_args args)
{
    extern __shared__ int step_sums[];
    __shared__ float of_warp[REDUCE_MOST_WARPS];
    decode_begin();
    quantise_part(args.sink.target, quantise_block{of_warp},
                  activated<false>{args, args.kind, blockIdx.y}, blockIdx.y, blockIdx.x, step_sums);
}

/* Parts of a token: gridDim.x of them. Bytes need the largest value of the whole token, which each
 * part looks for. */
__global__ void __launch_bounds__(BLOCK_THREADS)
    columns_kernel(const __grid_constant__ activation_args args)
{
    __shared__ float of_warp[REDUCE_MOST_WARPS];
    const unsigned first = args.width * blockIdx.x / gridDim.x;
    const unsigned end = args.width * (blockIdx.x + 1) / gridDim.x;
    const activated<false> source = {args, args.kind, blockIdx.y};
    decode_prefetch_results(args.x, args.kind == ESPL_CUDA_SILU_MUL ? 2 * args.width : args.width);
    decode_begin();
    if (args.sink.form != ESPL_CUDA_INPUT_BYTES) {
        decode_put_halves(args.sink, source, blockIdx.y, args.tokens, args.width, first, end);
        return;
    }
    float amax = 0.0F;
#pragma unroll 4
    for (unsigned c = threadIdx.x; c < args.width; c += blockDim.x) {
        amax = fmaxf(amax, fabsf(source(c)));
    }
    amax = block_max(amax, of_warp);
    decode_put_bytes(args.sink, source, blockIdx.y, args.width, first, end, amax);
}

enum espl_status launch_codes(struct activation_args *args, bool overlap, void *stream,
                              struct espl_error *err)
{
    const struct quantise_target *target = &args->sink.target;
    const unsigned parts = target->groups + (target->outliers > 0 ? 1u : 0u);
    const unsigned tokens = static_cast<unsigned>(decode_sink_tokens(&args->sink, args->tokens));
    const unsigned warps = WARP_THREADS / 32;
    const size_t team = target->team_steps * sizeof(int);
    if (quantise_is_narrow(target) && decode_is_plain(&args->x)) {
        return decode_launch(narrow_kernel_of(args->kind),
                             dim3((parts + warps - 1) / warps, tokens), WARP_THREADS, 0, args,
                             overlap, stream, err);
    }
    if (target->columns <= WARP_COLUMNS) {
        return decode_launch(reinterpret_cast<const void *>(codes_by_warp_kernel),
                             dim3((parts + warps - 1) / warps, tokens), WARP_THREADS, warps * team,
                             args, overlap, stream, err);
    }
    return decode_launch(reinterpret_cast<const void *>(codes_by_block_kernel), dim3(parts, tokens),
                         BLOCK_THREADS, team, args, overlap, stream, err);
}

} // namespace

extern "C" enum espl_status
espl_cuda_activation_input(const struct espl_cuda_activation *activation,
                           const struct espl_cuda_input *input, bool overlap, void *stream,
                           struct espl_error *err)
{
    constexpr unsigned MOST_PARTS = 8;
    constexpr unsigned ENOUGH_BLOCKS = 128;
    struct activation_args args = {};
    const enum espl_status status =
        decode_sink_of(input, activation->tokens, activation->width, &args.sink, err);
    if (status != ESPL_OK) {
        return status;
    }
    args.x = activation->x;
    args.kind = activation->kind;
    args.tokens = static_cast<unsigned>(activation->tokens);
    args.width = static_cast<unsigned>(activation->width);
    if (args.sink.form == ESPL_CUDA_INPUT_ATOM) {
        return launch_codes(&args, overlap, stream, err);
    }
    unsigned parts = (args.width + HALF_COLUMNS - 1) / HALF_COLUMNS;
    if (args.sink.form == ESPL_CUDA_INPUT_BYTES) {
        const unsigned most = ENOUGH_BLOCKS / args.tokens;
        parts = most < 1 ? 1 : most < MOST_PARTS ? most : MOST_PARTS;
    }
    return decode_launch(reinterpret_cast<const void *>(columns_kernel), dim3(parts, args.tokens),
                         BLOCK_THREADS, 0, &args, overlap, stream, err);
}
