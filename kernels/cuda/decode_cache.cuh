/* The cache of keys and values: how new ones join it, and how a lane reads its eight dimensions of
 * one. Lane `sub` of the lanes of a key has dimensions 4 sub to 4 sub + 3 of each half of the head,
 * because the rotary embedding turns dimension i with dimension half + i. */
#ifndef ESPL_CUDA_DECODE_CACHE_CUH
#define ESPL_CUDA_DECODE_CACHE_CUH

#include "kernels/cuda/decode_support.cuh"

struct attention_args {
    struct espl_cuda_results qkv;
    struct espl_cuda_cache cache;
    const int32_t *starts;
    const float *rotation;
    float *out;
    float *partial;    /* sums of parts */
    unsigned *arrived; /* parts that have come, for every tile of queries */
    unsigned row_tokens;
    unsigned heads;
    unsigned kv_heads;
    unsigned head_dim;
    unsigned share;     /* query heads of a key head */
    unsigned key_lanes; /* lanes that share a key: a power of two */
    unsigned tile_rows; /* tokens of a block */
    unsigned tiles;     /* of such, of a sequence */
    float scale;
    bool append; /* one new token a sequence, which joins the cache here */
};

constexpr unsigned CACHE_LANE_DIMS = 8;

/* Place of a key or value in the cache, counted in heads. */
__device__ __forceinline__ size_t cache_place(const attention_args &args, unsigned sequence,
                                              unsigned kv_head, unsigned position)
{
    return ((size_t)sequence * args.kv_heads + kv_head) * args.cache.max_tokens + position;
}

/* (low, high) of a pair of dimensions, turned. turn: cosines, then sines, of the position. */
__device__ __forceinline__ float2 cache_rotate(const float *turn, unsigned half, unsigned i,
                                               float low, float high)
{
    const float cosine = __ldg(turn + i);
    const float sine = __ldg(turn + half + i);
    return make_float2(__fsub_rn(__fmul_rn(low, cosine), __fmul_rn(high, sine)),
                       __fadd_rn(__fmul_rn(high, cosine), __fmul_rn(low, sine)));
}

/* Cosines and sines of a position; NULL without rotation. */
__device__ __forceinline__ const float *cache_turn(const attention_args &args, unsigned position)
{
    return args.rotation != nullptr ? args.rotation + (size_t)position * args.head_dim : nullptr;
}

/* One warp: a key (turn: NULL for values) or value as FP16. column: of its first dimension in qkv.
 */
__device__ __forceinline__ void cache_put_halves(const attention_args &args, unsigned row,
                                                 unsigned column, const float *turn, __half *to)
{
    const unsigned half = args.head_dim / 2;
    for (unsigned i = threadIdx.x % REDUCE_WARP; i < half; i += REDUCE_WARP) {
        float2 v = make_float2(decode_result<false>(args.qkv, row, column + i),
                               decode_result<false>(args.qkv, row, column + half + i));
        if (turn != nullptr) {
            v = cache_rotate(turn, half, i, v.x, v.y);
        }
        to[i] = __float2half_rn(v.x);
        to[half + i] = __float2half_rn(v.y);
    }
}

__device__ __forceinline__ unsigned cache_code(float v, float scale, float zero)
{
    constexpr float QMAX = 15.0F;
    return (unsigned)fminf(fmaxf(__fadd_rn(rintf(__fdiv_rn(v, scale)), zero), 0.0F), QMAX);
}

/* Scale and zero point of a key or value between low <= 0 and high >= 0. */
__device__ __forceinline__ float2 cache_scale(const attention_args &args, float low, float high)
{
    constexpr float QMAX = 15.0F;
    const float span = __fmul_rn(args.cache.clip, __fsub_rn(high, low));
    const float scale = __fdiv_rn(fmaxf(span, ESPL_QUANT_LEAST_AMAX), QMAX);
    const float at_zero = rintf(__fdiv_rn(-__fmul_rn(args.cache.clip, low), scale));
    return make_float2(scale, fminf(fmaxf(at_zero, 0.0F), QMAX));
}

/* One warp: a key or value as 4-bit codes, the arithmetic of quantize_kv (espalier/kernels.h). A
 * lane has bytes lane, lane + 32, ...: two dimensions each. */
__device__ __forceinline__ void cache_put_codes(const attention_args &args, unsigned row,
                                                unsigned column, uint8_t *to, float *scale_to)
{
    constexpr unsigned MOST_BYTES = ESPL_CUDA_ATTENTION_MOST_DIM / 2 / REDUCE_WARP;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    float2 v[MOST_BYTES];
    float low = 0.0F;
    float high = 0.0F;
#pragma unroll
    for (unsigned i = 0; i < MOST_BYTES; i++) {
        const unsigned dim = 2 * (lane + i * REDUCE_WARP);
        v[i] = make_float2(0.0F, 0.0F);
        if (dim < args.head_dim) {
            v[i] = make_float2(decode_result<true>(args.qkv, row, column + dim),
                               decode_result<true>(args.qkv, row, column + dim + 1));
        }
        low = fminf(low, fminf(v[i].x, v[i].y));
        high = fmaxf(high, fmaxf(v[i].x, v[i].y));
    }
    low = -warp_max(-low);
    high = warp_max(high);
    const float2 made = cache_scale(args, low, high);
    const float scale = made.x;
    const float zero = made.y;
#pragma unroll
    for (unsigned i = 0; i < MOST_BYTES; i++) {
        const unsigned byte = lane + i * REDUCE_WARP;
        if (2 * byte < args.head_dim) {
            to[byte] =
                (uint8_t)(cache_code(v[i].x, scale, zero) | cache_code(v[i].y, scale, zero) << 4);
        }
    }
    if (lane == 0) {
        scale_to[0] = scale;
        scale_to[1] = zero;
    }
}

/* One warp: the key or the value of a token joins the cache. */
template <bool CODES>
__device__ __forceinline__ void cache_append(const attention_args &args, unsigned row,
                                             unsigned sequence, unsigned kv_head, unsigned position,
                                             bool is_value)
{
    const size_t place = cache_place(args, sequence, kv_head, position);
    const unsigned head =
        args.heads + (is_value ? args.kv_heads : 0) + kv_head; /* of all in a row of qkv */
    const unsigned column = head * args.head_dim;
    void *array = is_value ? args.cache.values : args.cache.keys;
    if (!CODES) {
        cache_put_halves(args, row, column, is_value ? nullptr : cache_turn(args, position),
                         static_cast<__half *>(array) + place * args.head_dim);
    } else {
        float *scales = is_value ? args.cache.value_scales : args.cache.key_scales;
        cache_put_codes(args, row, column,
                        static_cast<uint8_t *>(array) + place * (args.head_dim / 2),
                        scales + 2 * place);
    }
}

/* A lane's share of a key or value as it lies in the cache: loads of several are on their way
 * before the first is looked at. Values may have been written by this block: no read-only path. */
struct cache_words {
    uint2 low, high; /* FP16: four dimensions each; codes: 16 bits of .x */
    float2 scale;    /* codes: scale and zero point */
};

template <bool CODES>
__device__ __forceinline__ cache_words cache_load(const attention_args &args, const void *array,
                                                  const float *scales, size_t place, unsigned sub,
                                                  bool wanted)
{
    cache_words words = {};
    if (wanted && CODES) {
        const uint8_t *from =
            static_cast<const uint8_t *>(array) + place * (args.head_dim / 2) + 2 * sub;
        words.low.x = *reinterpret_cast<const uint16_t *>(from);
        words.high.x = *reinterpret_cast<const uint16_t *>(from + args.head_dim / 4);
        words.scale = *reinterpret_cast<const float2 *>(scales + 2 * place);
    } else if (wanted) {
        const __half *from = static_cast<const __half *>(array) + place * args.head_dim + 4 * sub;
        words.low = *reinterpret_cast<const uint2 *>(from);
        words.high = *reinterpret_cast<const uint2 *>(from + args.head_dim / 2);
    }
    return words;
}

template <bool CODES>
__device__ __forceinline__ void cache_unpack(const cache_words &words, float (&v)[CACHE_LANE_DIMS])
{
    if (CODES) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            v[i] = __fmul_rn((float)(words.low.x >> 4 * i & 15u) - words.scale.y, words.scale.x);
            v[4 + i] =
                __fmul_rn((float)(words.high.x >> 4 * i & 15u) - words.scale.y, words.scale.x);
        }
        return;
    }
    const unsigned pairs[4] = {words.low.x, words.low.y, words.high.x, words.high.y};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2 *>(&pairs[i]));
        v[2 * i] = pair.x;
        v[2 * i + 1] = pair.y;
    }
}

/* Turns a lane's eight dimensions of a key. */
__device__ __forceinline__ void cache_turn_key(const float *turn, unsigned half, unsigned sub,
                                               float (&k)[CACHE_LANE_DIMS])
{
    const float4 cosines = __ldg(reinterpret_cast<const float4 *>(turn) + sub);
    const float4 sines = __ldg(reinterpret_cast<const float4 *>(turn + half) + sub);
    const float c[4] = {cosines.x, cosines.y, cosines.z, cosines.w};
    const float s[4] = {sines.x, sines.y, sines.z, sines.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float low = k[i];
        const float high = k[4 + i];
        k[i] = __fsub_rn(__fmul_rn(low, c[i]), __fmul_rn(high, s[i]));
        k[4 + i] = __fadd_rn(__fmul_rn(high, c[i]), __fmul_rn(low, s[i]));
    }
}

#endif
