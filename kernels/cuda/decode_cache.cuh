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
        float2 v = make_float2(decode_result(args.qkv, row, column + i),
                               decode_result(args.qkv, row, column + half + i));
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

/* One warp: a key or value as 4-bit codes, the arithmetic of quantize_kv (espalier/kernels.h). */
__device__ __forceinline__ void cache_put_codes(const attention_args &args, unsigned row,
                                                unsigned column, uint8_t *to, float *scale_to)
{
    constexpr float QMAX = 15.0F;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    float low = 0.0F;
    float high = 0.0F;
    for (unsigned d = lane; d < args.head_dim; d += REDUCE_WARP) {
        const float v = decode_result(args.qkv, row, column + d);
        low = fminf(low, v);
        high = fmaxf(high, v);
    }
    low = -warp_max(-low);
    high = warp_max(high);
    const float span = __fmul_rn(args.cache.clip, __fsub_rn(high, low));
    const float scale = __fdiv_rn(fmaxf(span, ESPL_QUANT_LEAST_AMAX), QMAX);
    const float at_zero = rintf(__fdiv_rn(-__fmul_rn(args.cache.clip, low), scale));
    const float zero = fminf(fmaxf(at_zero, 0.0F), QMAX);
    for (unsigned b = lane; b < args.head_dim / 2; b += REDUCE_WARP) {
        const float even = decode_result(args.qkv, row, column + 2 * b);
        const float odd = decode_result(args.qkv, row, column + 2 * b + 1);
        to[b] = (uint8_t)(cache_code(even, scale, zero) | cache_code(odd, scale, zero) << 4);
    }
    if (lane == 0) {
        scale_to[0] = scale;
        scale_to[1] = zero;
    }
}

/* One warp: the key or the value of a token joins the cache. */
__device__ __forceinline__ void cache_append(const attention_args &args, unsigned row,
                                             unsigned sequence, unsigned kv_head, unsigned position,
                                             bool is_value)
{
    const size_t place = cache_place(args, sequence, kv_head, position);
    const unsigned head =
        args.heads + (is_value ? args.kv_heads : 0) + kv_head; /* of all in a row of qkv */
    const unsigned column = head * args.head_dim;
    void *array = is_value ? args.cache.values : args.cache.keys;
    if (args.cache.key_scales == nullptr) {
        cache_put_halves(args, row, column, is_value ? nullptr : cache_turn(args, position),
                         static_cast<__half *>(array) + place * args.head_dim);
    } else {
        float *scales = is_value ? args.cache.value_scales : args.cache.key_scales;
        cache_put_codes(args, row, column,
                        static_cast<uint8_t *>(array) + place * (args.head_dim / 2),
                        scales + 2 * place);
    }
}

/* A lane's eight dimensions of FP16. Values that this block has written itself: no read-only path.
 */
__device__ __forceinline__ void cache_get_halves(const attention_args &args, const void *array,
                                                 size_t place, unsigned sub,
                                                 float (&v)[CACHE_LANE_DIMS])
{
    const __half *from = static_cast<const __half *>(array) + place * args.head_dim + 4 * sub;
    const uint2 low = *reinterpret_cast<const uint2 *>(from);
    const uint2 high = *reinterpret_cast<const uint2 *>(from + args.head_dim / 2);
    const unsigned words[4] = {low.x, low.y, high.x, high.y};
#pragma unroll
    for (int w = 0; w < 4; w++) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2 *>(&words[w]));
        v[2 * w] = pair.x;
        v[2 * w + 1] = pair.y;
    }
}

__device__ __forceinline__ void cache_get_codes(const attention_args &args, const void *array,
                                                const float *scales, size_t place, unsigned sub,
                                                float (&v)[CACHE_LANE_DIMS])
{
    const uint8_t *from =
        static_cast<const uint8_t *>(array) + place * (args.head_dim / 2) + 2 * sub;
    const unsigned low = *reinterpret_cast<const uint16_t *>(from);
    const unsigned high = *reinterpret_cast<const uint16_t *>(from + args.head_dim / 4);
    const float2 scale = *reinterpret_cast<const float2 *>(scales + 2 * place);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = __fmul_rn((float)(low >> 4 * i & 15u) - scale.y, scale.x);
        v[4 + i] = __fmul_rn((float)(high >> 4 * i & 15u) - scale.y, scale.x);
    }
}

template <bool CODES>
__device__ __forceinline__ void cache_get_key(const attention_args &args, size_t place,
                                              unsigned position, unsigned sub,
                                              float (&k)[CACHE_LANE_DIMS])
{
    if (!CODES) {
        cache_get_halves(args, args.cache.keys, place, sub, k);
        return;
    }
    cache_get_codes(args, args.cache.keys, args.cache.key_scales, place, sub, k);
    const float *turn = cache_turn(args, position);
    if (turn == nullptr) {
        return;
    }
    const float4 cosines = __ldg(reinterpret_cast<const float4 *>(turn) + sub);
    const float4 sines = __ldg(reinterpret_cast<const float4 *>(turn + args.head_dim / 2) + sub);
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

template <bool CODES>
__device__ __forceinline__ void cache_get_value(const attention_args &args, size_t place,
                                                unsigned sub, float (&v)[CACHE_LANE_DIMS])
{
    if (CODES) {
        cache_get_codes(args, args.cache.values, args.cache.value_scales, place, sub, v);
    } else {
        cache_get_halves(args, args.cache.values, place, sub, v);
    }
}

#endif
