/* Attention of a step: one new token a sequence, one query head a key head, heads of 64 or 128.
 * Seven warps have the earlier tokens, an eighth puts the new one into the cache and attends to it.
 * Each warp softens the scores of its own keys and adds their values; the eight sums meet once.
 * What is in the cache is read while the kernel before ends. */
#include "kernels/cuda/decode_parts.cuh"

namespace
{

enum {
    WARPS = 7, /* for earlier tokens */
    THREADS = (WARPS + 1) * 32,
    HALF_DIMS = 8, /* of each half of a head in a lane: first HALF_DIMS * lane of the key */
    LANE_DIMS = 2 * HALF_DIMS
};

/* A lane's dimensions of a key or value as they lie in the cache. */
template <bool CODES> struct cached;
template <> struct cached<true> {
    unsigned low, high; /* eight codes each */
    float2 scale;       /* and zero point */
};
template <> struct cached<false> {
    uint4 low, high;
};

template <int DIM>
__device__ __forceinline__ void load_cached(const void *array, const float *scales, size_t place,
                                            unsigned sub, bool wanted, cached<true> &words)
{
    words = {};
    if (wanted) {
        const unsigned *from =
            static_cast<const unsigned *>(array) + place * (DIM / HALF_DIMS) + sub;
        words.low = from[0];
        words.high = from[DIM / LANE_DIMS];
        words.scale = *reinterpret_cast<const float2 *>(scales + 2 * place);
    }
}

template <int DIM>
__device__ __forceinline__ void load_cached(const void *array, const float *, size_t place,
                                            unsigned sub, bool wanted, cached<false> &words)
{
    words = {};
    if (wanted) {
        const uint4 *from = static_cast<const uint4 *>(array) + place * (DIM / HALF_DIMS) + sub;
        words.low = from[0];
        words.high = from[DIM / LANE_DIMS];
    }
}

/* Values without their scale, which is returned. */
__device__ __forceinline__ float unpack(const cached<true> &words, float (&v)[LANE_DIMS])
{
    constexpr unsigned TWO_23 = 0x4B000000u; /* as a float; its last bits count from 0 */
    const float zero = 8388608.0F + words.scale.y;
#pragma unroll
    for (int i = 0; i < HALF_DIMS; i++) {
        v[i] = __uint_as_float((words.low >> 4 * i & 15u) | TWO_23) - zero;
        v[HALF_DIMS + i] = __uint_as_float((words.high >> 4 * i & 15u) | TWO_23) - zero;
    }
    return words.scale.x;
}

__device__ __forceinline__ float unpack(const cached<false> &words, float (&v)[LANE_DIMS])
{
    const unsigned pairs[LANE_DIMS / 2] = {words.low.x,  words.low.y,  words.low.z,  words.low.w,
                                           words.high.x, words.high.y, words.high.z, words.high.w};
#pragma unroll
    for (int i = 0; i < LANE_DIMS / 2; i++) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2 *>(&pairs[i]));
        v[2 * i] = pair.x;
        v[2 * i + 1] = pair.y;
    }
    return 1.0F;
}

/* Turns a lane's dimensions, HALF_DIMS pairs. */
__device__ __forceinline__ void turn_lane(const float *turn, unsigned half, unsigned sub,
                                          float (&v)[LANE_DIMS])
{
#pragma unroll
    for (unsigned i = 0; i < HALF_DIMS; i++) {
        const float2 turned = cache_rotate(turn, half, HALF_DIMS * sub + i, v[i], v[HALF_DIMS + i]);
        v[i] = turned.x;
        v[HALF_DIMS + i] = turned.y;
    }
}

template <int DIM, bool PLAIN>
__device__ __forceinline__ void load_query(const attention_args &args, const block_work &work,
                                           unsigned sub, float (&q)[LANE_DIMS])
{
#pragma unroll
    for (unsigned i = 0; i < LANE_DIMS; i += 4) {
        const unsigned column =
            work.kv_head * DIM + HALF_DIMS * sub + i % HALF_DIMS + (i < HALF_DIMS ? 0 : DIM / 2);
        const float4 v = decode_four_results<PLAIN>(
            args.qkv, work.sequence, column,
            decode_four_words(args.qkv, work.sequence * args.qkv.stride + column));
        q[i] = v.x;
        q[i + 1] = v.y;
        q[i + 2] = v.z;
        q[i + 3] = v.w;
    }
    if (args.rotation != nullptr) {
        turn_lane(cache_turn(args, work.start), DIM / 2, sub, q);
    }
}

/* What a warp, or the block, has added up: weights are relative to the largest score. */
template <int DIM> struct shared_sums {
    float largest[WARPS + 1];
    float weights[WARPS + 1];
    float sum[WARPS + 1][DIM];
};

/* Adds a lane's sums to those of the lanes with the same dimensions of other keys: every step
 * halves what a lane keeps, from 2 KEPT sums to KEPT. Returns which of its LANE_DIMS the first one
 * is. */
template <unsigned KEPT, unsigned LAST>
__device__ __forceinline__ unsigned add_lanes(unsigned lane, float (&sum)[LANE_DIMS])
{
    constexpr unsigned OFFSET = REDUCE_WARP * KEPT / LANE_DIMS;
    const bool upper = (lane & OFFSET) != 0;
#pragma unroll
    for (unsigned i = 0; i < KEPT; i++) {
        const float mine = upper ? sum[KEPT + i] : sum[i];
        const float other = upper ? sum[i] : sum[KEPT + i];
        sum[i] = mine + __shfl_xor_sync(0xFFFFFFFFu, other, OFFSET);
    }
    const unsigned first = upper ? KEPT : 0;
    if constexpr (KEPT > LAST) {
        return first + add_lanes<KEPT / 2, LAST>(lane, sum);
    }
    return first;
}

/* Keys and values of a warp on their way, COUNT of each lane group at a time. */
template <int DIM, bool CODES, bool TURNED> struct cache_reader {
    static constexpr unsigned LANES = DIM / LANE_DIMS;
    static constexpr unsigned AT_ONCE = WARPS * (REDUCE_WARP / LANES);
    static constexpr unsigned COUNT = CODES && !TURNED ? 3 : 2;
    static constexpr unsigned BATCH = COUNT * AT_ONCE;
    const attention_args &args;
    size_t first; /* place of the part's first key */
    unsigned old; /* keys of it */
    unsigned sub; /* which of the LANES */
    cached<CODES> keys[COUNT], values[COUNT];

    /* Those at j, j + AT_ONCE, ... */
    __device__ __forceinline__ void load(unsigned j)
    {
#pragma unroll
        for (unsigned b = 0; b < COUNT; b++) {
            const unsigned at = j + b * AT_ONCE;
            load_cached<DIM>(args.cache.keys, args.cache.key_scales, first + at, sub, at < old,
                             keys[b]);
        }
#pragma unroll
        for (unsigned b = 0; b < COUNT; b++) {
            const unsigned at = j + b * AT_ONCE;
            load_cached<DIM>(args.cache.values, args.cache.value_scales, first + at, sub, at < old,
                             values[b]);
        }
    }
    /* score[b] <- of this lane's keys of the batch at `begin`; those that are not there minus
     * infinity. position: of the part's first key. */
    __device__ __forceinline__ void find_scores(const float (&q)[LANE_DIMS], unsigned position,
                                                unsigned begin, float (&score)[COUNT]) const
    {
#pragma unroll
        for (unsigned b = 0; b < COUNT; b++) {
            const unsigned j = begin + b * AT_ONCE + threadIdx.x / LANES;
            float k[LANE_DIMS];
            score[b] = -CUDART_INF_F;
            if (begin + b * AT_ONCE >= old) { /* for no lane */
                continue;
            }
            const float scale = unpack(keys[b], k);
            float sum = 0.0F;
            if (TURNED && j < old) {
                turn_lane(cache_turn(args, position + j), DIM / 2, sub, k);
            }
#pragma unroll
            for (int d = 0; d < LANE_DIMS; d++) {
                sum += q[d] * k[d];
            }
#pragma unroll
            for (unsigned offset = LANES / 2; offset > 0; offset /= 2) {
                sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
            }
            if (j < old) {
                score[b] = sum * scale * args.scale;
            }
        }
    }
};

/* What a lane has added up: weights are relative to the largest score. */
struct lane_sums {
    float largest, weights;
    float sum[LANE_DIMS];
};

/* The values of the batch at `begin`. */
template <class READER>
__device__ __forceinline__ void add_values(const READER &reader, unsigned begin,
                                           const float (&score)[READER::COUNT], lane_sums &sums)
{
    float most = sums.largest;
#pragma unroll
    for (unsigned b = 0; b < READER::COUNT; b++) {
        most = fmaxf(most, score[b]);
    }
    most = warp_max(most);
    if (most == -CUDART_INF_F) { /* this warp has no key at all */
        return;
    }
    const float before = expf(sums.largest - most);
    sums.largest = most;
    sums.weights *= before;
#pragma unroll
    for (int d = 0; d < LANE_DIMS; d++) {
        sums.sum[d] *= before;
    }
#pragma unroll
    for (unsigned b = 0; b < READER::COUNT; b++) {
        if (begin + b * READER::AT_ONCE >= reader.old) {
            continue;
        }
        float v[LANE_DIMS];
        const float weight = expf(score[b] - most);
        const float scaled = weight * unpack(reader.values[b], v);
        sums.weights += weight;
#pragma unroll
        for (int d = 0; d < LANE_DIMS; d++) {
            sums.sum[d] += scaled * v[d];
        }
    }
}

/* Earlier tokens: this warp's share of the keys of the part. */
template <int DIM, class READER, bool PLAIN>
__device__ __forceinline__ void attend_to_cache(const attention_args &args, const block_work &work,
                                                READER &reader, shared_sums<DIM> &shared)
{
    const unsigned warp = threadIdx.x / REDUCE_WARP;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    lane_sums sums = {-CUDART_INF_F, 0.0F, {}};
    float q[LANE_DIMS];
    load_query<DIM, PLAIN>(args, work, reader.sub, q);
#pragma unroll 1
    for (unsigned begin = 0; begin < reader.old; begin += READER::BATCH) {
        float score[READER::COUNT];
        if (begin != 0) {
            reader.load(begin + threadIdx.x / READER::LANES);
        }
        reader.find_scores(q, work.first_key, begin, score);
        add_values(reader, begin, score, sums);
    }
    for (unsigned offset = READER::LANES; offset < REDUCE_WARP; offset *= 2) {
        sums.weights += __shfl_xor_sync(0xFFFFFFFFu, sums.weights, offset);
    }
    const unsigned dim = add_lanes<LANE_DIMS / 2, DIM / REDUCE_WARP>(lane, sums.sum);
    float *at = shared.sum[warp] + HALF_DIMS * reader.sub + dim % HALF_DIMS;
#pragma unroll
    for (unsigned i = 0; i < DIM / REDUCE_WARP; i++) {
        at[(dim < HALF_DIMS ? 0 : DIM / 2) + i] = sums.sum[i];
    }
    if (lane == 0) {
        shared.largest[warp] = sums.largest;
        shared.weights[warp] = sums.weights;
    }
}

/* Dimensions DIM / 32 * lane and behind it of a head at `column`. */
template <int DIM, bool PLAIN>
__device__ __forceinline__ void load_dims(const attention_args &args, unsigned row, unsigned column,
                                          float (&v)[DIM / 32])
{
    constexpr unsigned COUNT = DIM / 32;
    const unsigned first = column + threadIdx.x % REDUCE_WARP * COUNT;
#pragma unroll
    for (unsigned i = 0; i < COUNT; i++) {
        v[i] = decode_result<PLAIN>(args.qkv, row, first + i);
    }
}

template <int DIM>
__device__ __forceinline__ void turn_dims(const float *turn, float (&v)[DIM / 32])
{
    constexpr unsigned COUNT = DIM / 32;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    const bool upper = lane >= REDUCE_WARP / 2;
#pragma unroll
    for (unsigned i = 0; i < COUNT; i++) {
        const float other = __shfl_xor_sync(0xFFFFFFFFu, v[i], REDUCE_WARP / 2);
        const float2 turned = cache_rotate(turn, DIM / 2, lane % (REDUCE_WARP / 2) * COUNT + i,
                                           upper ? other : v[i], upper ? v[i] : other);
        v[i] = upper ? turned.y : turned.x;
    }
}

/* v as the cache has it, from now on also there, at `place`. */
template <int DIM>
__device__ __forceinline__ void put_dims(const attention_args &args, void *array, float *scales,
                                         size_t place, bool codes, float (&v)[DIM / 32])
{
    constexpr unsigned COUNT = DIM / 32;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    if (!codes) {
        __half *to = static_cast<__half *>(array) + place * DIM + lane * COUNT;
#pragma unroll
        for (unsigned i = 0; i < COUNT; i++) {
            to[i] = __float2half_rn(v[i]);
            v[i] = __half2float(__float2half_rn(v[i]));
        }
        return;
    }
    float low = 0.0F;
    float high = 0.0F;
#pragma unroll
    for (unsigned i = 0; i < COUNT; i++) {
        low = fminf(low, v[i]);
        high = fmaxf(high, v[i]);
    }
    const float2 scale = cache_scale(args, -warp_max(-low), warp_max(high));
    uint8_t *to = static_cast<uint8_t *>(array) + place * (DIM / 2) + lane * (COUNT / 2);
#pragma unroll
    for (unsigned i = 0; i < COUNT; i += 2) {
        const unsigned even = cache_code(v[i], scale.x, scale.y);
        const unsigned odd = cache_code(v[i + 1], scale.x, scale.y);
        to[i / 2] = (uint8_t)(even | odd << 4);
        v[i] = __fmul_rn((float)even - scale.y, scale.x);
        v[i + 1] = __fmul_rn((float)odd - scale.y, scale.x);
    }
    if (lane == 0) {
        *reinterpret_cast<float2 *>(scales + 2 * place) = scale;
    }
}

/* The new token, by one warp; there: this part has its place. */
template <int DIM, bool CODES>
__device__ __forceinline__ void attend_to_new(const attention_args &args, const block_work &work,
                                              bool there, shared_sums<DIM> &sums)
{
    constexpr unsigned COUNT = DIM / 32;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    const size_t place = cache_place(args, work.sequence, work.kv_head, work.start);
    const unsigned column = (args.heads + work.kv_head) * DIM;
    const float *turn = cache_turn(args, work.start);
    float v[COUNT] = {};
    float score = 0.0F;
    if (there) {
        float q[COUNT];
        float k[COUNT];
        load_dims<DIM, CODES>(args, work.sequence, column, k);
        load_dims<DIM, CODES>(args, work.sequence, column + args.kv_heads * DIM, v);
        load_dims<DIM, CODES>(args, work.sequence, work.kv_head * DIM, q);
        if (turn != nullptr) {
            turn_dims<DIM>(turn, q);
        }
        if (turn != nullptr && !CODES) {
            turn_dims<DIM>(turn, k);
        }
        put_dims<DIM>(args, args.cache.keys, args.cache.key_scales, place, CODES, k);
        put_dims<DIM>(args, args.cache.values, args.cache.value_scales, place, CODES, v);
        if (turn != nullptr && CODES) {
            turn_dims<DIM>(turn, k);
        }
#pragma unroll
        for (unsigned i = 0; i < COUNT; i++) {
            score += q[i] * k[i];
        }
        score = warp_sum(score) * args.scale;
    }
#pragma unroll
    for (unsigned i = 0; i < COUNT; i++) {
        sums.sum[WARPS][lane * COUNT + i] = v[i];
    }
    if (lane == 0) {
        sums.largest[WARPS] = there ? score : -CUDART_INF_F;
        sums.weights[WARPS] = there ? 1.0F : 0.0F;
    }
}

template <int DIM>
__device__ __forceinline__ void add_warps(const attention_args &args, const block_work &work,
                                          const shared_sums<DIM> &sums)
{
    if (threadIdx.x >= DIM) {
        return;
    }
    float most = sums.largest[0];
    float sum = 0.0F;
    float weights = 0.0F;
#pragma unroll
    for (int w = 1; w <= WARPS; w++) {
        most = fmaxf(most, sums.largest[w]);
    }
#pragma unroll
    for (int w = 0; w <= WARPS; w++) {
        const float factor = expf(sums.largest[w] - most);
        sum += factor * sums.sum[w][threadIdx.x];
        weights += factor * sums.weights[w];
    }
    if (work.parts == 1) {
        result_of(args, work, 0)[threadIdx.x] = sum / weights;
        return;
    }
    float *partial = partial_of(args, work.part, 0);
    partial[threadIdx.x] = sum;
    if (threadIdx.x == 0) {
        partial[DIM] = most;
        partial[DIM + 1] = weights;
    }
}

/* blockIdx: sequence, head, part of the keys. TURNED: keys of codes, which are turned when they are
 * read. */
template <int DIM, bool CODES, bool TURNED>
__global__ void __launch_bounds__(THREADS, 3)
    step_kernel(const __grid_constant__ attention_args args)
{
    using reader_of = cache_reader<DIM, CODES, TURNED>;
    __shared__ shared_sums<DIM> sums;
    block_work work = {blockIdx.x, blockIdx.y, blockIdx.z, 0, 1, 0, 0, 0, 0};
    work.start = (unsigned)args.starts[work.sequence];
    work.parts = work.start / ATTENTION_KEYS + 1;
    work.first_key = work.part * ATTENTION_KEYS;
    if (work.part >= work.parts) {
        return;
    }
    const bool has_new = work.part + 1 == work.parts;
    const bool is_new = threadIdx.x >= WARPS * REDUCE_WARP;
    work.keys = has_new ? work.start - work.first_key : (unsigned)ATTENTION_KEYS;
    reader_of reader = {args,      cache_place(args, work.sequence, work.kv_head, work.first_key),
                        work.keys, threadIdx.x % reader_of::LANES,
                        {},        {}};
    if (!is_new) {
        reader.load(threadIdx.x / reader_of::LANES);
    }
    if (work.keys > reader_of::BATCH) {
        ask_for_cache<CODES>(args, work);
    }
    decode_begin();
    if (is_new) {
        attend_to_new<DIM, CODES>(args, work, has_new, sums);
    } else {
        attend_to_cache<DIM, reader_of, CODES>(args, work, reader, sums);
    }
    __syncthreads();
    add_warps<DIM>(args, work, sums);
    if (work.parts > 1) {
        meet_parts(args, work);
    }
}

template <int DIM> const void *kernel_of(bool codes, bool turned)
{
    return codes && turned ? reinterpret_cast<const void *>(step_kernel<DIM, true, true>)
           : codes         ? reinterpret_cast<const void *>(step_kernel<DIM, true, false>)
                           : reinterpret_cast<const void *>(step_kernel<DIM, false, false>);
}

} // namespace

const void *decode_step_attention_of(unsigned head_dim, bool codes, bool turned)
{
    return head_dim == 64    ? kernel_of<64>(codes, turned)
           : head_dim == 128 ? kernel_of<128>(codes, turned)
                             : NULL;
}

unsigned decode_step_attention_threads(void)
{
    return THREADS;
}
