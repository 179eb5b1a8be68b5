/* One warp that fills the rings of all others (compute capability 9.0): lane i those of warp i. A
 * stage has two mbarriers, one that its copy completes on, and one on which its reader arrives when
 * it is empty again. */
#ifndef ESPL_CUDA_SPMM_FEED_CUH
#define ESPL_CUDA_SPMM_FEED_CUH

#include "kernels/cuda/spmm_sparse.cuh"

enum { FEED_AHEAD = 4 }; /* index entries looked up before their turn; at least the stages */

/* What a lane of the producer knows of a ring, and where in its chunks it is. */
struct ring_feeder {
    chunk_ring ring;
    unsigned empty;  /* shared address of the mbarriers of empty stages */
    unsigned parity; /* of the phase that ends when ring.write_stage is empty */
    unsigned slice;  /* of the next look at the index */
    unsigned row;    /* of it, among the stripes of this slice */
    unsigned left;   /* chunks from there on */
    uint2 ahead[FEED_AHEAD];
};

/* Every warp, of its ring or, the producer, its lanes' rings. The producer sets the mbarriers up;
 * those of empty stages lie behind those of full ones. */
__device__ __forceinline__ void feed_init(ring_feeder &feeder, chunk_ring &ring, unsigned rings,
                                          bool feeds, unsigned lane)
{
    const unsigned count = rings * ring.stages;
    ring.write_stage = ring.read_stage = ring.parity = 0;
    feeder.ring = ring;
    feeder.empty = ring.barriers + 8 * count;
    feeder.parity = 1; /* of the phase before the first: it counts as ended */
    if (feeds) {
        const unsigned first = ring.barriers - lane * ring.stages * 8;
#pragma unroll 1
        for (unsigned i = lane; i < 2 * count; i += SPMM_WARP) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(first + 8 * i) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        __syncwarp();
    }
}

/* Index entry of the next chunk, if there is one. */
__device__ __forceinline__ uint2 feed_look_up(const spmm_args &args, const warp_work &mine,
                                              ring_feeder &feeder)
{
    uint2 entry = make_uint2(0, 0);
    if (feeder.left != 0) {
        const unsigned stripe = mine.first_stripe + feeder.row * mine.stripe_step;
        entry = __ldg(args.index + (size_t)stripe * args.depth + feeder.slice);
        feeder.left--;
        feeder.row++;
        if (feeder.row == mine.count) {
            feeder.row = 0;
            feeder.slice += mine.slice_step;
        }
    }
    return entry;
}

__device__ __forceinline__ void feed_chunk(const spmm_args &args, ring_feeder &feeder, uint2 entry)
{
    ring_put(feeder.ring, args.data + (size_t)entry.x * ESPL_IEBME_DEVICE_UNIT,
             entry.y * ESPL_IEBME_DEVICE_UNIT, 0);
    feeder.parity ^= feeder.ring.write_stage == 0 ? 1 : 0;
}

/* The chunks that stages have room for at the beginning: all are empty. */
__device__ __forceinline__ void feed_first(const spmm_args &args, const warp_work &mine,
                                           ring_feeder &feeder)
{
    feeder.slice = mine.first_slice;
    feeder.row = 0;
    feeder.left = mine.total;
#pragma unroll
    for (unsigned k = 0; k < FEED_AHEAD; k++) {
        if (k < feeder.ring.stages) {
            feeder.ahead[k] = feed_look_up(args, mine, feeder);
        }
    }
#pragma unroll
    for (unsigned k = 0; k < FEED_AHEAD; k++) {
        if (k < feeder.ring.stages && k < mine.total) {
            feed_chunk(args, feeder, feeder.ahead[k]);
        }
    }
#pragma unroll
    for (unsigned k = 0; k < FEED_AHEAD; k++) {
        feeder.ahead[k] = feed_look_up(args, mine, feeder);
    }
}

/* All others: one of every ring, in the order in which stages become empty, then the next of every
 * ring. Lane 0 serves the warp that has the most. */
__device__ __forceinline__ void feed_rest(const spmm_args &args, const warp_work &mine,
                                          ring_feeder &feeder)
{
    const unsigned most = __shfl_sync(0xFFFFFFFFu, mine.total, 0);
#pragma unroll 1
    for (unsigned first = feeder.ring.stages; first < most; first += FEED_AHEAD) {
#pragma unroll
        for (unsigned k = 0; k < FEED_AHEAD; k++) {
            const uint2 entry = feeder.ahead[k];
            bool lacks = first + k < mine.total;
            feeder.ahead[k] = feed_look_up(args, mine, feeder);
            while (__any_sync(0xFFFFFFFFu, lacks)) {
                if (lacks &&
                    phase_ended(feeder.empty + 8 * feeder.ring.write_stage, feeder.parity)) {
                    feed_chunk(args, feeder, entry);
                    lacks = false;
                }
            }
        }
    }
}

/* Instead of ring_release(): the producer may write to the stage again. empty: of this ring. */
__device__ __forceinline__ void ring_hand_back(chunk_ring &ring, unsigned empty, unsigned lane)
{
    const unsigned barrier = empty + 8 * ring.read_stage;
    ring_release(ring);
    if (lane == 0) {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    }
}

#endif
