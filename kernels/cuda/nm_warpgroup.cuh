/* Pieces of device code of the N:M kernels for large products: compute capability 9.0, a warpgroup
 * multiplies what its lanes have gathered. */
#ifndef ESPL_CUDA_NM_WARPGROUP_CUH
#define ESPL_CUDA_NM_WARPGROUP_CUH

#include "kernels/cuda/nm_device.cuh"
#include "kernels/cuda/shared_memory.cuh"
#include "kernels/formats/nm_wide.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NM_HAS_WARPGROUPS 1
#else
#define NM_HAS_WARPGROUPS 0
#endif

/** Bytes of a unit of weights: ROWS x 128 columns with their selectors. */
template <int R, int V, int ROWS>
constexpr unsigned nm_unit_bytes = ROWS * 16 * R + ROWS / V * 8 * R;

#if NM_HAS_WARPGROUPS

__device__ __forceinline__ void nm_init_barrier(unsigned barrier, unsigned count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void nm_arrive(unsigned barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* The low word of a descriptor of matrices of 8 x 16 bytes, of which two along the columns follow
 * each other. Shared memory ends before the sixteenths of an address need more than 14 bits, so 16
 * bytes further is 1 more. */
__device__ __forceinline__ unsigned nm_describe(unsigned address)
{
    return address >> 4 | (128 >> 4) << 16;
}

/* The whole: 8 rows further are 256 bytes. */
__device__ __forceinline__ unsigned long long nm_descriptor(unsigned low)
{
    return (unsigned long long)low | (unsigned long long)(256 >> 4) << 32;
}

/* d (64 tokens x 64 rows) += a (64 x 32) * weights (32 x 64) */
__device__ __forceinline__ void nm_multiply_group(int (&d)[32], const unsigned (&a)[4],
                                                  unsigned long long weights)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,"
                 "%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, 1;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]),
                   "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]),
                   "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15]), "+r"(d[16]), "+r"(d[17]),
                   "+r"(d[18]), "+r"(d[19]), "+r"(d[20]), "+r"(d[21]), "+r"(d[22]), "+r"(d[23]),
                   "+r"(d[24]), "+r"(d[25]), "+r"(d[26]), "+r"(d[27]), "+r"(d[28]), "+r"(d[29]),
                   "+r"(d[30]), "+r"(d[31])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(weights));
}

/* The same with 32 rows. */
__device__ __forceinline__ void nm_multiply_group(int (&d)[16], const unsigned (&a)[4],
                                                  unsigned long long weights)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, "
                 "1;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]),
                   "+r"(d[6]), "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]),
                   "+r"(d[12]), "+r"(d[13]), "+r"(d[14]), "+r"(d[15])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(weights));
}

/* The same with 16 rows. */
__device__ __forceinline__ void nm_multiply_group(int (&d)[8], const unsigned (&a)[4],
                                                  unsigned long long weights)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 "
                 "{%0,%1,%2,%3,%4,%5,%6,%7}, {%8,%9,%10,%11}, %12, 1;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]),
                   "+r"(d[6]), "+r"(d[7])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(weights));
}

/* Copies the activations of a tile, 128 columns a step: a thread moves 16 bytes of every token that
 * is THREADS / 8 further. Whoever copies must not fall behind those that multiply: all addresses
 * are made once a tile, and tokens beyond the last are copies of it, whose outputs nobody stores.
 */
template <int TOKENS, int THREADS> struct nm_rows {
    static constexpr int STEP = THREADS / 8;
    static constexpr int COUNT = TOKENS / STEP;

    const int8_t *from[COUNT];
    unsigned place;

    __device__ __forceinline__ nm_rows(const nm_args &args, unsigned first_token, unsigned thread)
    {
        const unsigned chunk = thread % 8 * 16;
        place = thread / 8 * ESPL_NM_BLOCK + (chunk ^ thread / 8 % 2 * 64);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const unsigned token = min(first_token + thread / 8 + STEP * i, args.tokens - 1);
            from[i] = args.x + (size_t)token * args.x_stride + chunk;
        }
    }
    /* is_there: this thread's columns are; else they become 0. */
    __device__ __forceinline__ void copy(unsigned stage, bool is_there)
    {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                             stage + place + i * (STEP * ESPL_NM_BLOCK)),
                         "l"(from[i]), "r"(is_there ? 16 : 0)
                         : "memory");
            from[i] += ESPL_NM_BLOCK;
        }
    }
};

/* All products that were started have ended, but for the last LEFT groups of them. */
template <int LEFT = 0> __device__ __forceinline__ void nm_wait_products()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

/* x <- the lane's 32 activations of a token of the tile. */
__device__ __forceinline__ void nm_load_token(unsigned stage, unsigned token, unsigned lane,
                                              unsigned (&x)[8])
{
    const unsigned at = stage + token * ESPL_NM_BLOCK + lane % 4 * 16;
    const unsigned turn = token % 2 * 64;
    const uint4 early = load_quad(at + turn);
    const uint4 late = load_quad(at + (64 - turn));
    x[0] = early.x;
    x[1] = early.y;
    x[2] = early.z;
    x[3] = early.w;
    x[4] = late.x;
    x[5] = late.y;
    x[6] = late.z;
    x[7] = late.w;
}

/* What a lane needs for a step of 128 columns: activations of two tokens, 8 apart, and the
 * selectors of all groups of rows. */
template <int R, int V, int ROWS> struct nm_step {
    static constexpr int GROUPS = ROWS / V;
    static constexpr int PAIRS = R / 2;

    unsigned low[8];
    unsigned high[8];
    unsigned selector[GROUPS][PAIRS];

    __device__ __forceinline__ void load(unsigned activations, unsigned weights, unsigned token,
                                         unsigned lane)
    {
        const unsigned selectors = weights + ROWS * 16 * R + lane % 4 * (2 * R);
        nm_load_token(activations, token, lane, low);
        nm_load_token(activations, token + 8, lane, high);
#pragma unroll
        for (int i = 0; i < GROUPS * PAIRS; i++) {
            asm volatile("ld.shared.u32 %0, [%1];"
                         : "=r"(selector[i / PAIRS][i % PAIRS])
                         : "r"(selectors + i / PAIRS * (8 * R) + i % PAIRS * 4));
        }
    }

    /* Operands of the product that is number `unit` of a step. */
    __device__ __forceinline__ void gather(int unit, unsigned (&a)[4]) const
    {
        const int p = unit % PAIRS;
        const unsigned chosen = selector[unit / PAIRS][p];
        a[0] = nm_gather<R>(low, 2 * p, chosen);
        a[1] = nm_gather<R>(high, 2 * p, chosen);
        a[2] = nm_gather<R>(low, 2 * p + 1, chosen >> 16);
        a[3] = nm_gather<R>(high, 2 * p + 1, chosen >> 16);
    }

    /* Starts the products with a unit of weights, described by its low word, COUNT at a time.
     * a: operands of those that run; the oldest have ended before theirs are gathered again. */
    template <int SLOTS, int COUNT>
    __device__ __forceinline__ void multiply_on(unsigned weights, unsigned (&a)[SLOTS][COUNT][4],
                                                int (&sums)[ROWS / V][V / 2]) const
    {
        constexpr int BATCHES = GROUPS * PAIRS / COUNT;
        static_assert(GROUPS * PAIRS % COUNT == 0 && BATCHES % SLOTS == 0,
                      "a step begins with the slot that the step before used first");
#pragma unroll
        for (int batch = 0; batch < BATCHES; batch++) {
            nm_wait_products<SLOTS - 1>();
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                gather(batch * COUNT + i, a[batch % SLOTS][i]);
            }
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int i = 0; i < COUNT; i++) {
                const int unit = batch * COUNT + i;
                nm_multiply_group(
                    sums[unit / PAIRS], a[batch % SLOTS][i],
                    nm_descriptor(weights + unit / PAIRS * (V * R) + unit % PAIRS * (V * 2)));
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        }
    }

    /* Starts the products with a unit of weights, described by its low word; those before must have
     * ended, since operands are gathered into the same registers. Returns with those of the last
     * batch running. */
    __device__ __forceinline__ void multiply(unsigned weights, int (&sums)[ROWS / V][V / 2]) const
    {
        constexpr int BATCH = 8 / PAIRS < GROUPS ? 8 / PAIRS : GROUPS; /* 32 registers */
#pragma unroll
        for (int first = 0; first < GROUPS; first += BATCH) {
            unsigned a[BATCH][PAIRS][4];
            if (first > 0) {
                nm_wait_products();
            }
#pragma unroll
            for (int i = 0; i < BATCH * PAIRS; i++) {
                gather(first * PAIRS + i, a[i / PAIRS][i % PAIRS]);
            }
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int i = 0; i < BATCH * PAIRS; i++) {
                const int group = first + i / PAIRS;
                nm_multiply_group(sums[group], a[i / PAIRS][i % PAIRS],
                                  nm_descriptor(weights + group * (V * R) + i % PAIRS * (V * 2)));
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        }
    }
};

/* COUNT neighbouring outputs of a token, 8 or 4, as halves or codes of BYTES. */
template <int MODE, int BYTES, int COUNT>
__device__ __forceinline__ void nm_put(const nm_args &args, const int (&sum)[COUNT],
                                       const float (&scale)[COUNT], const float (&bias)[COUNT],
                                       float token_scale, uint8_t *to)
{
    constexpr int WORDS = COUNT * BYTES / 4;
    float v[COUNT];
    unsigned word[WORDS];
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        v[i] = nm_value<MODE>(args, sum[i], scale[i], bias[i], token_scale);
    }
#pragma unroll
    for (int i = 0; i < WORDS; i++) {
        if constexpr (BYTES == 2) {
            const __half2 pair = __floats2half2_rn(v[2 * i], v[2 * i + 1]);
            word[i] = reinterpret_cast<const unsigned &>(pair);
        } else {
            word[i] = nm_pack(nm_code(args, v[4 * i]), nm_code(args, v[4 * i + 1]),
                              nm_code(args, v[4 * i + 2]), nm_code(args, v[4 * i + 3]));
        }
    }
    if constexpr (WORDS == 4) {
        *reinterpret_cast<uint4 *>(to) = make_uint4(word[0], word[1], word[2], word[3]);
    } else if constexpr (WORDS == 2) {
        *reinterpret_cast<uint2 *>(to) = make_uint2(word[0], word[1]);
    } else {
        *reinterpret_cast<unsigned *>(to) = word[0];
    }
}

/* Scales or biases from shared memory, 8 or 4. */
template <int COUNT>
__device__ __forceinline__ void nm_load_terms(const float *terms, float (&some)[COUNT])
{
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
        const float4 four = reinterpret_cast<const float4 *>(terms)[i];
        some[4 * i] = four.x;
        some[4 * i + 1] = four.y;
        some[4 * i + 2] = four.z;
        some[4 * i + 3] = four.w;
    }
}

#endif

#endif
