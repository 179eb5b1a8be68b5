/* What the kernels of a decoder share: values that linears left, and how kernels are launched. */
#ifndef ESPL_CUDA_DECODE_SUPPORT_CUH
#define ESPL_CUDA_DECODE_SUPPORT_CUH

#include "espalier/cuda_decode.h"
#include "kernels/cuda/cuda_support.cuh"
#include "kernels/cuda/quantise.cuh"

/** Starts args, a kernel's only parameter. Errors: MACHINE. */
enum espl_status decode_launch(const void *kernel, dim3 grid, unsigned threads, size_t shared_bytes,
                               void *args, bool overlap, void *stream, struct espl_error *err);

/** What a kernel writes the input of linears through. */
struct decode_sink {
    enum espl_cuda_input_form form;
    void *values;
    float *scales;
    struct quantise_target target; /* ATOM */
};

/** Errors: UNSUPPORTED. */
enum espl_status decode_sink_of(const struct espl_cuda_input *input, size_t tokens, size_t width,
                                struct decode_sink *sink, struct espl_error *err);
/** Are results FP32 without a bias, as products of codes leave them? */
bool decode_is_plain(const struct espl_cuda_results *results);
/** Tokens that kernels go over: those that fill up tiles of codes, too. */
size_t decode_sink_tokens(const struct decode_sink *sink, size_t tokens);

#ifdef __CUDACC__

/* A value as it lies in memory. */
__device__ __forceinline__ unsigned decode_word(const struct espl_cuda_results &results,
                                                unsigned token, unsigned column)
{
    return static_cast<const uint32_t *>(results.values)[(size_t)token * results.stride + column];
}

/* What `word` of a token and column stands for. PLAIN: it is the value itself. */
template <bool PLAIN>
__device__ __forceinline__ float decode_result_of(const struct espl_cuda_results &results,
                                                  unsigned token, unsigned column, unsigned word)
{
    float value = __uint_as_float(word);
    if (PLAIN) {
        return value;
    }
    if (results.row_scales != nullptr) {
        value = (float)(int)word * (__ldg(results.row_scales + column) *
                                    results.token_scales[token * results.token_step]);
    }
    return results.bias != nullptr ? value + __ldg(results.bias + column) : value;
}

template <bool PLAIN>
__device__ __forceinline__ float decode_result(const struct espl_cuda_results &results,
                                               unsigned token, unsigned column)
{
    return decode_result_of<PLAIN>(results, token, column, decode_word(results, token, column));
}

/* Four values at `at` as they lie in memory: results begin at a multiple of 16 bytes and strides
 * are multiples of 4. */
__device__ __forceinline__ uint4 decode_four_words(const struct espl_cuda_results &results,
                                                   size_t at)
{
    return *reinterpret_cast<const uint4 *>(static_cast<const uint32_t *>(results.values) + at);
}

/* Four columns of a token, of which `words` are in memory. PLAIN: they are the values. */
template <bool PLAIN>
__device__ __forceinline__ float4 decode_four_results(const struct espl_cuda_results &results,
                                                      unsigned token, unsigned column, uint4 words)
{
    float4 v = make_float4(__uint_as_float(words.x), __uint_as_float(words.y),
                           __uint_as_float(words.z), __uint_as_float(words.w));
    if (PLAIN) {
        return v;
    }
    if (results.row_scales != nullptr) {
        const int4 sums = make_int4((int)words.x, (int)words.y, (int)words.z, (int)words.w);
        const float4 rows = __ldg(reinterpret_cast<const float4 *>(results.row_scales + column));
        const float scale = results.token_scales[token * results.token_step];
        v = make_float4((float)sums.x * (rows.x * scale), (float)sums.y * (rows.y * scale),
                        (float)sums.z * (rows.z * scale), (float)sums.w * (rows.w * scale));
    }
    if (results.bias != nullptr) {
        const float4 bias = __ldg(reinterpret_cast<const float4 *>(results.bias + column));
        v = make_float4(v.x + bias.x, v.y + bias.y, v.z + bias.z, v.w + bias.w);
    }
    return v;
}

/* Asks for constants that are read later, which no kernel before writes: all blocks ask for all of
 * them, each line once a block. NULL is allowed. */
__device__ __forceinline__ void decode_prefetch(const void *from, unsigned bytes)
{
    constexpr unsigned LINE = 128;
    const char *at = static_cast<const char *>(from);
    for (unsigned i = threadIdx.x * LINE; at != nullptr && i < bytes; i += blockDim.x * LINE) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at + i));
    }
}

__device__ __forceinline__ void decode_prefetch_results(const struct espl_cuda_results &results,
                                                        unsigned columns)
{
    decode_prefetch(results.bias, columns * sizeof(float));
    decode_prefetch(results.row_scales, columns * sizeof(float));
}

/* All of a kernel's work but reading constants comes after this. The next kernel may start only now:
 * sooner, kernels that wait stand in the way of the one that is needed first. */
__device__ __forceinline__ void decode_begin()
{
    spmm_wait_for_predecessor();
    spmm_let_successor_start();
}

/* A token's columns [first, end) as FP16, or as FP16 and the rest. */
template <class SOURCE>
__device__ __forceinline__ void decode_put_halves(const decode_sink &sink, const SOURCE &source,
                                                  unsigned token, unsigned tokens, unsigned width,
                                                  unsigned first, unsigned end)
{
    __half *values = static_cast<__half *>(sink.values);
#pragma unroll 4
    for (unsigned c = first + threadIdx.x; c < end; c += blockDim.x) {
        const float v = source(c);
        const __half high = __float2half_rn(v);
        values[(size_t)token * width + c] = high;
        if (sink.form == ESPL_CUDA_INPUT_SPLIT) {
            values[((size_t)tokens + token) * width + c] = __float2half_rn(v - __half2float(high));
        }
    }
}

/* Columns [first, end) as bytes; amax: of the whole token. */
template <class SOURCE>
__device__ __forceinline__ void decode_put_bytes(const decode_sink &sink, const SOURCE &source,
                                                 unsigned token, unsigned width, unsigned first,
                                                 unsigned end, float amax)
{
    constexpr float QMAX = 127.0F;
    const float scale = fmaxf(amax, ESPL_QUANT_LEAST_AMAX) / QMAX;
    int8_t *values = static_cast<int8_t *>(sink.values);
#pragma unroll 4
    for (unsigned c = first + threadIdx.x; c < end; c += blockDim.x) {
        values[(size_t)token * width + c] = (int8_t)quantise_code(source(c), scale, QMAX);
    }
    if (first == 0 && threadIdx.x == 0) {
        sink.scales[token] = scale;
    }
}

/* The first part of a token that this warp does: groups and outliers are a warp's each, shared
 * among gridDim.x blocks. */
__device__ __forceinline__ unsigned decode_first_part()
{
    return blockIdx.x + threadIdx.x / REDUCE_WARP * gridDim.x;
}

/* The parts of a warp. lane: of the first one, for which the source is ready. shared: ints of all
 * warps. */
template <class SOURCE>
__device__ __forceinline__ void decode_put_codes(const decode_sink &sink, quantise_lane lane,
                                                 SOURCE &source, unsigned token, int *shared)
{
    int *step_sums = shared + threadIdx.x / REDUCE_WARP * sink.target.team_steps;
    unsigned part = decode_first_part();
    while (part < quantise_parts(sink.target)) {
        quantise_warp_part(sink.target, lane, source, token, part, step_sums);
        part += blockDim.x / REDUCE_WARP * gridDim.x;
        if (part < quantise_parts(sink.target)) {
            lane = quantise_lane_of(sink.target, part);
            source.get_ready(lane);
            __syncwarp();
        }
    }
}

#endif
#endif
