/* The two ends of a decoder: embedding, and the choice of the next token. */
#include "kernels/cuda/decode_support.cuh"

#include <limits.h>

namespace
{

enum { THREADS = 256, EMBED_COLUMNS = 4 * THREADS, GREEDY_COLUMNS = 16 * THREADS };

struct embed_args {
    const __half *table;
    const __half *positions;
    const int32_t *ids;
    const int32_t *starts;
    float *hidden;
    unsigned width;
    unsigned row_tokens;
};

__global__ void __launch_bounds__(THREADS) embed_kernel(const __grid_constant__ embed_args args)
{
    const unsigned row = blockIdx.y;
    const unsigned end = min(args.width, (blockIdx.x + 1) * (unsigned)EMBED_COLUMNS);
    decode_begin();
    const __half *token = args.table + (size_t)args.ids[row] * args.width;
    const size_t position = args.starts[row / args.row_tokens] + row % args.row_tokens;
    for (unsigned c = blockIdx.x * EMBED_COLUMNS + threadIdx.x; c < end; c += THREADS) {
        float v = __half2float(token[c]);
        if (args.positions != nullptr) {
            v += __half2float(args.positions[position * args.width + c]);
        }
        args.hidden[(size_t)row * args.width + c] = v;
    }
}

/* Larger for larger logits; of equal ones larger for the first. */
__device__ __forceinline__ unsigned long long rank_of(float logit, unsigned token)
{
    const unsigned bits = __float_as_uint(logit);
    const unsigned ordered = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
    return (unsigned long long)ordered << 32 | (0xFFFFFFFFu - token);
}

/* Of a block's columns; adds up split logits. */
__device__ __forceinline__ unsigned long long best_of(const struct espl_cuda_greedy &args,
                                                      unsigned row)
{
    const unsigned vocabulary = (unsigned)args.vocabulary;
    const unsigned end = min(vocabulary, (blockIdx.x + 1) * (unsigned)GREEDY_COLUMNS);
    float *logits = args.logits + (size_t)row * vocabulary;
    const float *rest = logits + args.sequences * vocabulary;
    unsigned long long best = 0;
    for (unsigned v = blockIdx.x * GREEDY_COLUMNS + threadIdx.x; v < end; v += THREADS) {
        float logit = logits[v];
        if (args.split) {
            logit += rest[v];
            logits[v] = logit;
        }
        if (!isfinite(logit)) {
            *args.nonfinite = 1;
        }
        best = max(best, rank_of(logit, v));
    }
    return best;
}

__device__ __forceinline__ void take_token(const struct espl_cuda_greedy &args, unsigned row)
{
    const unsigned long long best =
        atomicExch(reinterpret_cast<unsigned long long *>(args.best + row), 0ull);
    const int32_t token = (int32_t)(0xFFFFFFFFu - (unsigned)(best & 0xFFFFFFFFu));
    const int32_t position = args.starts[row] + (int32_t)args.advance;
    args.next[row] = token;
    args.arrived[row] = 0;
    if ((size_t)position < args.max_tokens) {
        args.history[(size_t)row * args.max_tokens + position] = token;
    }
    args.starts[row] = position;
}

__global__ void __launch_bounds__(THREADS)
    greedy_kernel(const __grid_constant__ struct espl_cuda_greedy args)
{
    __shared__ unsigned long long of_warp[THREADS / REDUCE_WARP];
    const unsigned row = blockIdx.y;
    decode_begin();
    unsigned long long best = best_of(args, row);
    if (args.next == nullptr) {
        return;
    }
    for (unsigned offset = REDUCE_WARP / 2; offset > 0; offset /= 2) {
        best = max(best, __shfl_xor_sync(0xFFFFFFFFu, best, offset));
    }
    if (threadIdx.x % REDUCE_WARP == 0) {
        of_warp[threadIdx.x / REDUCE_WARP] = best;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 0; w < THREADS / REDUCE_WARP; w++) {
            best = max(best, of_warp[w]);
        }
        atomicMax(reinterpret_cast<unsigned long long *>(args.best + row), best);
        __threadfence();
        if (atomicAdd(args.arrived + row, 1u) == gridDim.x - 1) {
            __threadfence();
            take_token(args, row);
        }
    }
}

} // namespace

extern "C" enum espl_status espl_cuda_embed(const struct espl_cuda_embed *embed, bool overlap,
                                            void *stream, struct espl_error *err)
{
    const size_t rows = embed->sequences * embed->row_tokens;
    struct embed_args args = {};
    if (rows == 0 || rows > QUANTISE_MOST_TOKENS || embed->width > INT_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot embed %zu tokens", rows);
    }
    args.table = reinterpret_cast<const __half *>(embed->table);
    args.positions = reinterpret_cast<const __half *>(embed->positions);
    args.ids = embed->ids;
    args.starts = embed->starts;
    args.hidden = embed->hidden;
    args.width = static_cast<unsigned>(embed->width);
    args.row_tokens = static_cast<unsigned>(embed->row_tokens);
    const dim3 grid((args.width + EMBED_COLUMNS - 1) / EMBED_COLUMNS, static_cast<unsigned>(rows));
    return decode_launch(reinterpret_cast<const void *>(embed_kernel), grid, THREADS, 0, &args,
                         overlap, stream, err);
}

extern "C" enum espl_status espl_cuda_greedy(const struct espl_cuda_greedy *greedy, bool overlap,
                                             void *stream, struct espl_error *err)
{
    struct espl_cuda_greedy args = *greedy;
    if (greedy->sequences == 0 || greedy->sequences > QUANTISE_MOST_TOKENS ||
        greedy->vocabulary == 0 || greedy->vocabulary > INT_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot choose tokens of %zu sequences",
                         greedy->sequences);
    }
    const dim3 grid(
        static_cast<unsigned>((greedy->vocabulary + GREEDY_COLUMNS - 1) / GREEDY_COLUMNS),
        static_cast<unsigned>(greedy->sequences));
    return decode_launch(reinterpret_cast<const void *>(greedy_kernel), grid, THREADS, 0, &args,
                         overlap, stream, err);
}
