/* Copies of encoded chunks into shared memory, a ring of stages for each warp: bulk copies that
 * complete on an mbarrier from compute capability 9.0, 16-byte cp.async before. */
#ifndef ESPL_CUDA_SPMM_COPY_CUH
#define ESPL_CUDA_SPMM_COPY_CUH

#include "kernels/cuda/shared_memory.cuh"
#include "kernels/cuda/spmm_args.cuh"

#if __CUDA_ARCH__ >= 900
/* The second-level cache's policy "evict first": chunks are read once, and must not push out what
 * every launch reads, x, instructions and the index. */
constexpr unsigned long long READ_ONCE = 0x12F0000000000000ull;
#endif

#if __CUDA_ARCH__ < 900
/* The 16-byte pieces of a lane, one in 512 bytes, as far as they begin before `bytes`. Most chunks
 * take one round, whose copies differ in constants only. */
__device__ __forceinline__ void put_pieces(unsigned to, const uint8_t *from, int bytes)
{
    constexpr int STEP = SPMM_WARP * 16, AT_ONCE = 8;
#pragma unroll 1
    for (int left = bytes; left > 0; left -= AT_ONCE * STEP) {
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            asm volatile("{\n .reg .pred p;\n"
                         " setp.lt.s32 p, %2, %3;\n"
                         " @p cp.async.cg.shared.global [%0], [%1], 16;\n}" ::"r"(to + i * STEP),
                         "l"(from + i * STEP), "r"(i * STEP), "r"(left)
                         : "memory");
        }
        to += AT_ONCE * STEP;
        from += AT_ONCE * STEP;
    }
}
#endif

/* One warp's ring. All lanes call everything together. */
struct chunk_ring {
    unsigned slots;    /* shared address of stage 0 */
    unsigned barriers; /* shared address of the mbarriers, 8 bytes a stage (9.0) */
    unsigned stage_bytes;
    unsigned stages;
    unsigned write_stage;
    unsigned read_stage;
    unsigned parity; /* of read_stage */
};

__device__ __forceinline__ void ring_init(chunk_ring &ring, unsigned lane)
{
    ring.write_stage = ring.read_stage = ring.parity = 0;
#if __CUDA_ARCH__ >= 900
    if (lane <
        ring.stages) { /* a loop over stages would be unrolled into hundreds of instructions */
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(ring.barriers + 8 * lane)
                     : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncwarp();
#endif
}

/* Starts the copy of a chunk into the next stage, which all lanes have finished reading. Before
 * 9.0 an empty chunk (bytes == 0) must be put for every one that is missing at the end, since
 * waiting counts copies. */
__device__ __forceinline__ void ring_put(chunk_ring &ring, const uint8_t *from, unsigned bytes,
                                         unsigned lane)
{
    const unsigned to = ring.slots + ring.write_stage * ring.stage_bytes;
#if __CUDA_ARCH__ >= 900
    if (lane == 0 && bytes != 0) {
        const unsigned barrier = ring.barriers + 8 * ring.write_stage;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                     "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
                     "l"(from), "r"(bytes), "r"(barrier), "l"(READ_ONCE)
                     : "memory");
    }
#else
    put_pieces(to + lane * 16, from + lane * 16, (int)bytes - (int)lane * 16);
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
    ring.write_stage = ring.write_stage + 1 == ring.stages ? 0 : ring.write_stage + 1;
}

/* Waits for the oldest chunk; returns its shared address. */
__device__ __forceinline__ unsigned ring_wait(const chunk_ring &ring)
{
#if __CUDA_ARCH__ >= 900
    wait_parity(ring.barriers + 8 * ring.read_stage, ring.parity);
#else
    if (ring.stages == 2) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else if (ring.stages == 3) {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    } else {
        asm volatile("cp.async.wait_group 3;" ::: "memory");
    }
    __syncwarp();
#endif
    return ring.slots + ring.read_stage * ring.stage_bytes;
}

/* The oldest chunk has been read by this lane. */
__device__ __forceinline__ void ring_release(chunk_ring &ring)
{
    __syncwarp();
    if (++ring.read_stage == ring.stages) {
        ring.read_stage = 0;
        ring.parity ^= 1;
    }
}

#endif
