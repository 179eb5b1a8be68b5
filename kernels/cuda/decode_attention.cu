/* Causal attention of new tokens over the cache of keys and values. A block has one key head of one
 * sequence and up to QUERIES queries that read it: query heads that share it, of several tokens
 * when a prompt is read. Caches longer than ESPL_CUDA_ATTENTION_KEYS are cut into parts, which
 * meet in memory; the last block to arrive adds them in their order. */
#include "kernels/cuda/decode_parts.cuh"

namespace
{

enum {
    THREADS = 256,
    WARPS = THREADS / 32,
    KEYS = ATTENTION_KEYS,
    MOST_QUERIES = ATTENTION_MOST_QUERIES
};

__device__ __forceinline__ block_work work_of(const attention_args &args)
{
    block_work work;
    work.sequence = blockIdx.x / args.tiles;
    work.kv_head = blockIdx.y;
    work.part = blockIdx.z;
    work.first_row = blockIdx.x % args.tiles * args.tile_rows;
    const unsigned rows = min(args.tile_rows, args.row_tokens - work.first_row);
    work.queries = rows * args.share;
    work.start = (unsigned)args.starts[work.sequence];
    const unsigned end = work.start + work.first_row + rows;
    work.parts = (end + KEYS - 1) / KEYS;
    work.first_key = work.part * KEYS;
    work.keys = work.part < work.parts ? min((unsigned)KEYS, end - work.first_key) : 0;
    return work;
}

/* Queries, turned and scaled, in shared memory (QUERIES, head_dim). */
template <bool PLAIN>
__device__ __forceinline__ void load_queries(const attention_args &args, const block_work &work,
                                             float *queries)
{
    const unsigned half = args.head_dim / 2;
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < work.queries * half; i += THREADS) {
        const unsigned query = i / half;
        const unsigned d = i % half;
        const unsigned token = work.first_row + query / args.share;
        const unsigned row = work.sequence * args.row_tokens + token;
        const unsigned head = work.kv_head * args.share + query % args.share;
        float2 v =
            make_float2(decode_result<PLAIN>(args.qkv, row, head * args.head_dim + d),
                        decode_result<PLAIN>(args.qkv, row, head * args.head_dim + half + d));
        if (args.rotation != nullptr) {
            v = cache_rotate(cache_turn(args, work.start + token), half, d, v.x, v.y);
        }
        queries[query * args.head_dim + d] = v.x;
        queries[query * args.head_dim + half + d] = v.y;
    }
}

/* The scores of a key: q and k are this lane's dimensions. All lanes of a warp take part. */
template <int QUERIES>
__device__ __forceinline__ void put_scores(const attention_args &args, const block_work &work,
                                           const float (&q)[QUERIES][CACHE_LANE_DIMS],
                                           const float (&k)[CACHE_LANE_DIMS], unsigned j,
                                           unsigned sub, float *scores)
{
#pragma unroll
    for (int n = 0; n < QUERIES; n++) {
        float sum = 0.0F;
#pragma unroll
        for (unsigned d = 0; d < CACHE_LANE_DIMS; d++) {
            sum += q[n][d] * k[d];
        }
        for (unsigned offset = args.key_lanes / 2; offset > 0; offset /= 2) {
            sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
        }
        const unsigned position = work.start + work.first_row + n / args.share;
        if (sub == 0 && j < work.keys && n < work.queries) {
            scores[n * KEYS + j] =
                work.first_key + j <= position ? sum * args.scale : -CUDART_INF_F;
        }
    }
}

/* scores (QUERIES, KEYS) of this block's keys; what a query must not see is minus infinity. */
template <int QUERIES, bool CODES>
__device__ __forceinline__ void find_scores(const attention_args &args, const block_work &work,
                                            const float *queries, float *scores)
{
    constexpr unsigned BATCH = QUERIES == 1 ? 8 : 2;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    const unsigned sub = lane % args.key_lanes;
    const unsigned at_once = WARPS * (REDUCE_WARP / args.key_lanes);
    const unsigned mine =
        threadIdx.x / REDUCE_WARP * (REDUCE_WARP / args.key_lanes) + lane / args.key_lanes;
    const bool there = 4 * sub < args.head_dim / 2;
    const size_t first = cache_place(args, work.sequence, work.kv_head, work.first_key);
    float q[QUERIES][CACHE_LANE_DIMS];
#pragma unroll
    for (int n = 0; n < QUERIES; n++) {
#pragma unroll
        for (unsigned d = 0; d < CACHE_LANE_DIMS; d++) {
            const unsigned dim = 4 * sub + d % 4 + (d < 4 ? 0 : args.head_dim / 2);
            q[n][d] = there && n < work.queries ? queries[n * args.head_dim + dim] : 0.0F;
        }
    }
#pragma unroll 1
    for (unsigned begin = 0; begin < work.keys; begin += BATCH * at_once) {
        cache_words words[BATCH];
#pragma unroll
        for (unsigned b = 0; b < BATCH; b++) {
            const unsigned j = begin + b * at_once + mine;
            words[b] = cache_load<CODES>(args, args.cache.keys, args.cache.key_scales, first + j,
                                         sub, there && j < work.keys);
        }
#pragma unroll
        for (unsigned b = 0; b < BATCH; b++) {
            const unsigned j = begin + b * at_once + mine;
            float k[CACHE_LANE_DIMS];
            cache_unpack<CODES>(words[b], k);
            if (CODES && args.rotation != nullptr && there && j < work.keys) {
                cache_turn_key(cache_turn(args, work.first_key + j), args.head_dim / 2, sub, k);
            }
            put_scores<QUERIES>(args, work, q, k, j, sub, scores);
        }
    }
}

/* scores <- exp(score - largest); of every query the largest and the sum. A warp a query. */
template <int QUERIES>
__device__ __forceinline__ void soften(const block_work &work, float *scores, float *largest,
                                       float *sums)
{
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    const unsigned query = threadIdx.x / REDUCE_WARP;
    if (query >= work.queries) {
        return;
    }
    float most = -CUDART_INF_F;
#pragma unroll 2
    for (unsigned j = lane; j < work.keys; j += REDUCE_WARP) {
        most = fmaxf(most, scores[query * KEYS + j]);
    }
    most = warp_max(most);
    float sum = 0.0F;
#pragma unroll 2
    for (unsigned j = lane; j < work.keys; j += REDUCE_WARP) {
        /* A part may hold nothing that this query may see. */
        const float e = most == -CUDART_INF_F ? 0.0F : expf(scores[query * KEYS + j] - most);
        scores[query * KEYS + j] = e;
        sum += e;
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        largest[query] = most;
        sums[query] = sum;
    }
}

/* sums_of (WARPS, QUERIES, head_dim) <- each warp's share of weight times value. */
template <int QUERIES, bool CODES>
__device__ __forceinline__ void add_values(const attention_args &args, const block_work &work,
                                           const float *scores, float *sums_of)
{
    constexpr unsigned BATCH = QUERIES == 1 ? 8 : 2;
    const unsigned lane = threadIdx.x % REDUCE_WARP;
    const unsigned warp = threadIdx.x / REDUCE_WARP;
    const unsigned sub = lane % args.key_lanes;
    const unsigned at_once = WARPS * (REDUCE_WARP / args.key_lanes);
    const bool there = 4 * sub < args.head_dim / 2;
    const size_t first = cache_place(args, work.sequence, work.kv_head, work.first_key);
    float sum[QUERIES][CACHE_LANE_DIMS] = {};
#pragma unroll 1
    for (unsigned begin = warp * (REDUCE_WARP / args.key_lanes) + lane / args.key_lanes;
         begin < work.keys; begin += BATCH * at_once) {
        cache_words words[BATCH];
#pragma unroll
        for (unsigned b = 0; b < BATCH; b++) {
            const unsigned j = begin + b * at_once;
            words[b] = cache_load<CODES>(args, args.cache.values, args.cache.value_scales,
                                         first + j, sub, there && j < work.keys);
        }
#pragma unroll
        for (unsigned b = 0; b < BATCH; b++) {
            const unsigned j = begin + b * at_once;
            float v[CACHE_LANE_DIMS];
            cache_unpack<CODES>(words[b], v);
#pragma unroll
            for (int n = 0; n < QUERIES; n++) {
                const float weight =
                    n < work.queries && j < work.keys ? scores[n * KEYS + j] : 0.0F;
#pragma unroll
                for (unsigned d = 0; d < CACHE_LANE_DIMS; d++) {
                    sum[n][d] += weight * v[d];
                }
            }
        }
    }
    __syncthreads(); /* the weights have been read: their place is used again */
#pragma unroll
    for (int n = 0; n < QUERIES; n++) {
#pragma unroll
        for (unsigned d = 0; d < CACHE_LANE_DIMS; d++) {
            for (unsigned offset = args.key_lanes; offset < REDUCE_WARP; offset *= 2) {
                sum[n][d] += __shfl_xor_sync(0xFFFFFFFFu, sum[n][d], offset);
            }
            if (there && lane < args.key_lanes) {
                const unsigned dim = 4 * sub + d % 4 + (d < 4 ? 0 : args.head_dim / 2);
                sums_of[(warp * QUERIES + n) * args.head_dim + dim] = sum[n][d];
            }
        }
    }
}

/* y, or with several parts this one's sums and, from the last to come, y. */
template <int QUERIES>
__device__ __forceinline__ void finish(const attention_args &args, const block_work &work,
                                       const float *sums_of, const float *largest,
                                       const float *weights)
{
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < work.queries * args.head_dim; i += THREADS) {
        const unsigned query = i / args.head_dim;
        const unsigned dim = i % args.head_dim;
        float sum = 0.0F;
        for (unsigned w = 0; w < WARPS; w++) {
            sum += sums_of[(w * QUERIES + query) * args.head_dim + dim];
        }
        if (work.parts == 1) {
            result_of(args, work, query)[dim] = sum / weights[query];
            continue;
        }
        float *partial = partial_of(args, work.part, query);
        partial[dim] = sum;
        if (dim == 0) {
            partial[args.head_dim] = largest[query];
            partial[args.head_dim + 1] = weights[query];
        }
    }
    if (work.parts == 1) {
        return;
    }
    meet_parts(args, work);
}

/* blockIdx: tile of a sequence, key head, part of the keys. With args.append the tile's one
 * token joins the cache first, in the part that holds its place. */
template <int QUERIES, bool CODES>
__global__ void __launch_bounds__(THREADS)
    attention_kernel(const __grid_constant__ attention_args args)
{
    extern __shared__ __align__(16) float shared[];
    __shared__ float largest[MOST_QUERIES];
    __shared__ float weights[MOST_QUERIES];
    float *queries = shared;
    float *scores = shared + QUERIES * args.head_dim; /* and later sums of warps */
    block_work work;
    if (args.append) {
        work = work_of(args);
        ask_for_cache<CODES>(args, work);
    }
    decode_begin();
    if (!args.append) {
        work = work_of(args);
    }
    if (work.keys == 0) {
        return;
    }
    load_queries<CODES>(args, work, queries);
    /* The last two warps: they have the fewest queries to load. */
    if (args.append && work.start / KEYS == work.part && threadIdx.x >= THREADS - 2 * REDUCE_WARP) {
        cache_append<CODES>(args, work.sequence, work.sequence, work.kv_head, work.start,
                            threadIdx.x >= THREADS - REDUCE_WARP);
    }
    __syncthreads();
    find_scores<QUERIES, CODES>(args, work, queries, scores);
    __syncthreads();
    soften<QUERIES>(work, scores, largest, weights);
    __syncthreads();
    add_values<QUERIES, CODES>(args, work, scores, scores);
    __syncthreads();
    finish<QUERIES>(args, work, scores, largest, weights);
}

/* All tokens of a prompt join the cache: blockIdx.x: row; a warp has a key or a value of a head. */
template <bool CODES>
__global__ void __launch_bounds__(THREADS)
    append_kernel(const __grid_constant__ attention_args args)
{
    const unsigned row = blockIdx.x;
    const unsigned sequence = row / args.row_tokens;
    decode_begin();
    const unsigned position = (unsigned)args.starts[sequence] + row % args.row_tokens;
    for (unsigned i = threadIdx.x / REDUCE_WARP; i < 2 * args.kv_heads; i += WARPS) {
        cache_append<CODES>(args, row, sequence, i / 2, position, i % 2 != 0);
    }
}

template <bool CODES> const void *kernel_of(unsigned queries)
{
    return queries == 1   ? reinterpret_cast<const void *>(attention_kernel<1, CODES>)
           : queries <= 4 ? reinterpret_cast<const void *>(attention_kernel<4, CODES>)
                          : reinterpret_cast<const void *>(attention_kernel<MOST_QUERIES, CODES>);
}

/* Queries that a kernel is compiled for. */
unsigned queries_of(unsigned queries)
{
    return queries == 1 ? 1u : queries <= 4 ? 4u : (unsigned)MOST_QUERIES;
}

enum espl_status check(const struct espl_cuda_attention *a, struct espl_error *err)
{
    const size_t rows = a->sequences * a->row_tokens;
    if (rows == 0 || rows > QUANTISE_MOST_TOKENS || a->kv_heads == 0 ||
        a->heads % a->kv_heads != 0 || a->heads / a->kv_heads > ESPL_CUDA_ATTENTION_MOST_SHARE ||
        a->head_dim == 0 || a->head_dim % CACHE_LANE_DIMS != 0 ||
        a->head_dim > ESPL_CUDA_ATTENTION_MOST_DIM) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "no attention kernel for %zu tokens, %zu heads of %zu sharing %zu keys",
                         rows, a->heads, a->head_dim, a->kv_heads);
    }
    if (a->cache.key_scales != NULL && !decode_is_plain(&a->qkv)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "a cache of codes takes FP32 keys and values without a bias");
    }
    return ESPL_OK;
}

unsigned tile_rows_of(const struct espl_cuda_attention *a)
{
    const size_t most = MOST_QUERIES / (a->heads / a->kv_heads);
    return static_cast<unsigned>(a->row_tokens < most ? a->row_tokens : most);
}

unsigned parts_of(const struct espl_cuda_attention *a)
{
    return static_cast<unsigned>((a->cache.max_tokens + KEYS - 1) / KEYS);
}

/* Blocks that share a counter. */
size_t tiles_of(const struct espl_cuda_attention *a)
{
    const unsigned rows = tile_rows_of(a);
    return a->sequences * ((a->row_tokens + rows - 1) / rows) * a->kv_heads;
}

size_t counter_bytes(const struct espl_cuda_attention *a)
{
    return (tiles_of(a) * sizeof(unsigned) + 255) / 256 * 256;
}

struct attention_args args_of(const struct espl_cuda_attention *a)
{
    struct attention_args args = {};
    args.qkv = a->qkv;
    args.cache = a->cache;
    args.starts = a->starts;
    args.rotation = a->rotation;
    args.out = a->out;
    args.arrived = static_cast<unsigned *>(a->parts);
    if (a->parts != NULL) {
        args.partial =
            reinterpret_cast<float *>(static_cast<uint8_t *>(a->parts) + counter_bytes(a));
    }
    args.row_tokens = static_cast<unsigned>(a->row_tokens);
    args.heads = static_cast<unsigned>(a->heads);
    args.kv_heads = static_cast<unsigned>(a->kv_heads);
    args.head_dim = static_cast<unsigned>(a->head_dim);
    args.share = args.heads / args.kv_heads;
    args.key_lanes = 1;
    while (args.key_lanes * CACHE_LANE_DIMS < args.head_dim) {
        args.key_lanes *= 2;
    }
    args.tile_rows = tile_rows_of(a);
    args.tiles = (args.row_tokens + args.tile_rows - 1) / args.tile_rows;
    args.scale = a->scale;
    return args;
}

} // namespace

extern "C" size_t espl_cuda_attention_bytes(const struct espl_cuda_attention *attention)
{
    const size_t parts = parts_of(attention);
    return parts == 1 ? 0
                      : counter_bytes(attention) + tiles_of(attention) * parts * MOST_QUERIES *
                                                       (attention->head_dim + 2) * sizeof(float);
}

extern "C" enum espl_status espl_cuda_attend(const struct espl_cuda_attention *attention,
                                             bool overlap, void *stream, struct espl_error *err)
{
    enum espl_status status = check(attention, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct attention_args args = args_of(attention);
    const unsigned queries = args.tile_rows * args.share;
    const void *kernel =
        args.cache.key_scales != NULL ? kernel_of<true>(queries) : kernel_of<false>(queries);
    const size_t compiled = queries_of(queries);
    const size_t sums = WARPS * compiled * args.head_dim;
    const size_t scores = compiled * KEYS;
    const size_t shared =
        (compiled * args.head_dim + (sums > scores ? sums : scores)) * sizeof(float);
    const unsigned sequences = static_cast<unsigned>(attention->sequences);
    args.append = args.row_tokens == 1;
    const dim3 grid(sequences * args.tiles, args.kv_heads, parts_of(attention));
    const void *step = args.append && args.share == 1
                           ? decode_step_attention_of(args.head_dim, args.cache.key_scales != NULL,
                                                      args.rotation != NULL)
                           : NULL;
    if (step != NULL) {
        return decode_launch(step, grid, decode_step_attention_threads(), 0, &args, overlap, stream,
                             err);
    }
    if (!args.append) {
        status = decode_launch(
            args.cache.key_scales != NULL ? reinterpret_cast<const void *>(append_kernel<true>)
                                          : reinterpret_cast<const void *>(append_kernel<false>),
            dim3(sequences * args.row_tokens), THREADS, 0, &args, overlap, stream, err);
    }
    if (status == ESPL_OK) {
        status = decode_launch(kernel, grid, THREADS, shared, &args, overlap, stream, err);
    }
    return status;
}
