/* Attention over a cache that is cut into parts: what a block does, and how the sums of parts meet.
 * A tile is a number of new tokens of a sequence with the query heads that share a key head. */
#ifndef ESPL_CUDA_DECODE_PARTS_CUH
#define ESPL_CUDA_DECODE_PARTS_CUH

#include "kernels/cuda/decode_cache.cuh"

#include <math_constants.h>

enum { ATTENTION_KEYS = ESPL_CUDA_ATTENTION_KEYS, ATTENTION_MOST_QUERIES = 8 };

/** The kernel for one new token a sequence and one query head a key head; NULL: there is none for
 *  heads of this size. */
const void *decode_step_attention_of(unsigned head_dim, bool codes, bool turned);
/** Threads of its blocks. */
unsigned decode_step_attention_threads(void);

#ifdef __CUDACC__

/* What a block does. */
struct block_work {
    unsigned sequence, kv_head, part;
    unsigned first_row; /* of the tile, in its sequence */
    unsigned queries;   /* of them heads are innermost */
    unsigned start;     /* position of the sequence's first new token */
    unsigned first_key, keys;
    unsigned parts; /* that have keys for this tile */
};

/* Place of a query's results in y. */
__device__ __forceinline__ float *result_of(const attention_args &args, const block_work &work,
                                            unsigned query)
{
    const unsigned row = work.sequence * args.row_tokens + work.first_row + query / args.share;
    const unsigned head = work.kv_head * args.share + query % args.share;
    return args.out + ((size_t)row * args.heads + head) * args.head_dim;
}

/* Partial sums of a tile and a part: for every query head_dim sums, the largest score, the sum of
 * weights. */
__device__ __forceinline__ float *partial_of(const attention_args &args, unsigned part,
                                             unsigned query)
{
    const size_t tile = (size_t)blockIdx.x * gridDim.y + blockIdx.y;
    return args.partial +
           ((tile * gridDim.z + part) * ATTENTION_MOST_QUERIES + query) * (args.head_dim + 2);
}

/* Adds the parts of a tile in their order. */
__device__ __forceinline__ void join_parts(const attention_args &args, const block_work &work)
{
    for (unsigned i = threadIdx.x; i < work.queries * args.head_dim; i += blockDim.x) {
        const unsigned query = i / args.head_dim;
        const unsigned dim = i % args.head_dim;
        float most = -CUDART_INF_F;
        for (unsigned p = 0; p < work.parts; p++) {
            most = fmaxf(most, __ldcg(partial_of(args, p, query) + args.head_dim));
        }
        float sum = 0.0F;
        float weights = 0.0F;
        for (unsigned p = 0; p < work.parts; p++) {
            const float *part = partial_of(args, p, query);
            const float factor = expf(__ldcg(part + args.head_dim) - most);
            sum += factor * __ldcg(part + dim);
            weights += factor * __ldcg(part + args.head_dim + 1);
        }
        result_of(args, work, query)[dim] = sum / weights;
    }
}

/* All threads of a block, after its partial sums have been written: the last block of a tile to
 * arrive joins the parts. */
__device__ __forceinline__ void meet_parts(const attention_args &args, const block_work &work)
{
    __shared__ unsigned last_to_arrive;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *arrived = args.arrived + (size_t)blockIdx.x * gridDim.y + blockIdx.y;
        last_to_arrive = atomicAdd(arrived, 1u) == work.parts - 1 ? 1u : 0u;
        if (last_to_arrive != 0) {
            *arrived = 0;
        }
    }
    __syncthreads();
    if (last_to_arrive != 0) {
        __threadfence();
        join_parts(args, work);
    }
}

/* Asks for what earlier tokens left in the cache, which no kernel right before this one writes. */
template <bool CODES>
__device__ __forceinline__ void ask_for_cache(const attention_args &args, const block_work &work)
{
    constexpr unsigned LINE = 128;
    const size_t first = cache_place(args, work.sequence, work.kv_head, work.first_key);
    const unsigned bytes = CODES ? args.head_dim / 2 : args.head_dim * sizeof(__half);
    const char *keys = static_cast<const char *>(args.cache.keys) + first * bytes;
    const char *values = static_cast<const char *>(args.cache.values) + first * bytes;
#pragma unroll 1
    for (unsigned at = threadIdx.x * LINE; at < work.keys * bytes; at += blockDim.x * LINE) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(keys + at));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(values + at));
    }
    const unsigned at = threadIdx.x * LINE;
    if (CODES && at < work.keys * 2 * sizeof(float)) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(
            reinterpret_cast<const char *>(args.cache.key_scales + 2 * first) + at));
        asm volatile("prefetch.global.L2 [%0];" ::"l"(
            reinterpret_cast<const char *>(args.cache.value_scales + 2 * first) + at));
    }
}

#endif
#endif
