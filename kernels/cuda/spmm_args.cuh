/* What a launch of an SpMM kernel is told, and the pieces of device code that the kernels share. */
#ifndef ESPL_CUDA_SPMM_ARGS_CUH
#define ESPL_CUDA_SPMM_ARGS_CUH

#include <cuda_runtime_api.h>
#include <stdint.h>

enum {
    SPMM_MAX_PARTS = 4096, /* row parts of a launch */
    SPMM_WARP = 32,
    SPMM_STRIPE = 16,   /* rows of an MMA tile */
    SPMM_COLUMNS = 8,   /* tokens of an MMA tile */
    SPMM_WARPS = 16,    /* of a block of the sparse kernel */
    SPMM_PRODUCER = 15, /* the warp of such a block that fills the rings of all others */
    SPMM_SUMS_PAD = 4,  /* words between the sums of two tokens: keeps lanes in different banks */
    SPMM_SLICE = 512,   /* columns of a sparse chunk */
    SPMM_ROW = 128,     /* bytes of one stream word of every lane */
    SPMM_X_BLOCK = 512, /* bytes of 128 columns of 8 tokens of x: 16 for every lane */
    SPMM_X_SHIFT = 4    /* activations are expanded to 16 x code */
};

/* Work is cut into parts (ranges of stripes), splits (ranges of columns) and groups of tokens; a
 * block of the grid does one of each: blockIdx.x = part, blockIdx.y = group, blockIdx.z = split.
 * Shares of `total` over `n` are given as quotient and remainder: the first `rest` get one more. */
struct spmm_share {
    unsigned each;
    unsigned rest;
};

struct spmm_args {
    const uint8_t *data;
    const uint2 *index;     /* of sparse chunks: start and length in 128-byte units */
    const uint8_t *x;       /* INT4, in the order of espl_cuda_pack_activations() */
    int32_t *y;             /* (tokens, y_stride) */
    int32_t *partial;       /* (tokens, stripes * 16) of zeros between launches; for splits */
    unsigned *arrived;      /* (groups of tokens, stripes) of zeros between launches */
    const unsigned *bounds; /* (parts + 1): first stripe of every part; NULL: even shares */
    unsigned x_tile_bytes;  /* of 8 tokens of x */
    unsigned y_stride;
    unsigned rows;
    unsigned tokens;
    unsigned stripes;
    unsigned depth; /* units (dense) or slices (sparse) of a stripe */
    struct spmm_share part_stripes;
    struct spmm_share split_depth;
    unsigned window;      /* of depth: dense: units of x in shared memory; sparse: slices at once */
    unsigned window_rows; /* sparse: stripes that it does at once */
    unsigned tile_stripes; /* stripes whose sums have room in shared memory */
    unsigned stage_bytes;  /* sparse: room of a chunk */
    unsigned stages;
    unsigned x_ready; /* the kernel does not start before x has been written */
};

/* Bytes of the sums of a tile in shared memory. */
inline size_t spmm_sums_bytes(const spmm_args *args, unsigned tiles)
{
    return static_cast<size_t>(tiles) * SPMM_COLUMNS *
           (args->tile_stripes * SPMM_STRIPE + SPMM_SUMS_PAD) * sizeof(int);
}

/* Blocks do all columns of even shares of the stripes, and their sums fit at once. */
inline bool spmm_is_whole(const spmm_args *args, unsigned splits)
{
    const unsigned most = args->part_stripes.each + (args->part_stripes.rest > 0 ? 1 : 0);
    return splits == 1 && args->bounds == NULL && most <= args->tile_stripes;
}

#ifdef __CUDACC__

/* c (16 x 8, int32) += a (16 x 32, int8) * b (32 x 8, int8) */
__device__ __forceinline__ void spmm_mma(int (&c)[4], unsigned a0, unsigned a1, unsigned a2,
                                         unsigned a3, unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* From compute capability 9.0 there is no INT4 matrix instruction: kernels that use it have no code
 * there, since the assembler would replace it by a long sequence. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
constexpr bool SPMM_HAS_INT4 = false;
#else
constexpr bool SPMM_HAS_INT4 = true;
#endif

/* Before compute capability 9.0 there are no bulk copies: kernels with a producer warp, whose lanes
 * start one each, have no code there. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool SPMM_HAS_BULK_COPIES = false;
#else
constexpr bool SPMM_HAS_BULK_COPIES = true;
#endif

/* c (16 x 8, int32) += a (16 x 64, int4) * b (64 x 8, int4). Register r of a: row g (even r) or
 * g + 8 (odd), columns 8 t .. 8 t + 7 of the first (r < 2) or second 32, in whichever order b has
 * them. */
__device__ __forceinline__ void spmm_mma_int4(int (&c)[4], unsigned a0, unsigned a1, unsigned a2,
                                              unsigned a3, unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Low nibbles of `low` and high nibbles of `high`: one instruction, of which the compiler makes
 * two.
 */
__device__ __forceinline__ unsigned join_nibbles(unsigned low, unsigned high)
{
    constexpr unsigned LOW = 0x0F0F0F0Fu;
    unsigned v;
    asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(v) : "r"(low), "r"(high), "r"(LOW));
    return v;
}

/* A word of x, columns 8 t .. 8 t + 7 of a block, to the two registers of an MMA fragment. */
__device__ __forceinline__ uint2 spmm_expand_x(unsigned word)
{
    return make_uint2(word << 4 & 0xF0F0F0F0u, word & 0xF0F0F0F0u);
}

/* Weights are read once: keep them out of L1. Predicated, so that no branch stands between loads.
 */
__device__ __forceinline__ void spmm_load_weights(uint4 &v, const uint4 *from, bool wanted)
{
    asm volatile("{\n .reg .pred p;\n"
                 " setp.ne.u32 p, %5, 0;\n"
                 " @p ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];\n}"
                 : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
                 : "l"(from), "r"((unsigned)wanted)
                 : "memory");
}

/* Launched over the end of its predecessor, a kernel may read weights, but not activations. */
__device__ __forceinline__ void spmm_wait_for_predecessor()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void spmm_let_successor_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* What a block does: stripes [first_stripe, end_stripe), depth [first, end), tokens. A cold launch
 * pays for every instruction before its first load: no divisions here. */
struct spmm_work {
    unsigned first_stripe, end_stripe;
    unsigned first, end;
    unsigned first_token, tokens;
};

__device__ __forceinline__ unsigned spmm_share_start(spmm_share share, unsigned i)
{
    return i * share.each + min(i, share.rest);
}

/* WHOLE: for launches that spmm_is_whole() describes. Kernels for them are shorter by what only
 * others need: with cold caches every instruction is fetched from memory. */
template <int TILES, bool WHOLE = false>
__device__ __forceinline__ spmm_work spmm_work_of(const spmm_args &args)
{
    spmm_work w;
    if (!WHOLE && args.bounds != nullptr) {
        w.first_stripe = __ldg(args.bounds + blockIdx.x);
        w.end_stripe = __ldg(args.bounds + blockIdx.x + 1);
    } else {
        w.first_stripe = spmm_share_start(args.part_stripes, blockIdx.x);
        w.end_stripe = spmm_share_start(args.part_stripes, blockIdx.x + 1);
    }
    w.first = WHOLE ? 0 : spmm_share_start(args.split_depth, blockIdx.z);
    w.end = WHOLE ? args.depth : spmm_share_start(args.split_depth, blockIdx.z + 1);
    w.first_token = blockIdx.y * TILES * SPMM_COLUMNS;
    w.tokens = min(args.tokens - w.first_token, (unsigned)(TILES * SPMM_COLUMNS));
    return w;
}

__device__ __forceinline__ unsigned spmm_shared_address(const void *pointer)
{
    return (unsigned)__cvta_generic_to_shared(pointer);
}

__device__ __forceinline__ unsigned spmm_sums_stride(const spmm_args &args)
{
    return args.tile_stripes * SPMM_STRIPE + SPMM_SUMS_PAD;
}

/* Adds the fragments of one stripe to the block's sums (tokens, stride) and clears them. */
template <int TILES>
__device__ __forceinline__ void spmm_flush(int *sums, unsigned stride, unsigned local_stripe,
                                           unsigned lane, int (&acc)[TILES][4])
{
    int *at = sums + local_stripe * SPMM_STRIPE + lane / 4 + (lane % 4) * 2 * stride;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
        atomicAdd(at, acc[j][0]);
        atomicAdd(at + stride, acc[j][1]);
        atomicAdd(at + SPMM_STRIPE / 2, acc[j][2]);
        atomicAdd(at + stride + SPMM_STRIPE / 2, acc[j][3]);
        at += SPMM_COLUMNS * stride;
        acc[j][0] = acc[j][1] = acc[j][2] = acc[j][3] = 0;
    }
}

/* Adds the tile's sums of one split to the work space. When all splits have arrived: true, and sums
 * holds those of all. */
template <int TILES>
__device__ __forceinline__ bool spmm_gather_splits(const spmm_args &args, const spmm_work &work,
                                                   int *sums, unsigned first, unsigned height)
{
    __shared__ unsigned last_to_arrive;
    const unsigned stride = spmm_sums_stride(args);
    const unsigned padded_rows = args.stripes * SPMM_STRIPE;
    int32_t *partial = args.partial + (size_t)work.first_token * padded_rows + first * SPMM_STRIPE;
    for (unsigned token = 0; token < work.tokens; token++) {
        for (unsigned row = threadIdx.x; row < height; row += blockDim.x) {
            atomicAdd(partial + (size_t)token * padded_rows + row, sums[token * stride + row]);
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned *arrived = args.arrived + (size_t)blockIdx.y * args.stripes + first;
        last_to_arrive = atomicAdd(arrived, 1u) == gridDim.z - 1 ? 1u : 0u;
        if (last_to_arrive != 0) {
            *arrived = 0;
        }
    }
    __syncthreads();
    if (last_to_arrive == 0) {
        return false;
    }
    __threadfence();
    for (unsigned token = 0; token < work.tokens; token++) {
        for (unsigned row = threadIdx.x; row < height; row += blockDim.x) {
            int32_t *at = partial + (size_t)token * padded_rows + row;
            sums[token * stride + row] = __ldcg(at);
            *at = 0;
        }
    }
    __syncthreads();
    return true;
}

/* Sum of a token's activations: the packing puts those of 8 tokens behind their codes. */
__device__ __forceinline__ int spmm_activation_sum(const spmm_args &args, unsigned token)
{
    const uint8_t *end = args.x + (size_t)(token / SPMM_COLUMNS + 1) * args.x_tile_bytes;
    return __ldg(reinterpret_cast<const int *>(end - SPMM_X_BLOCK) + token % SPMM_COLUMNS);
}

/* Goes over the sums of a tile, which it leaves zero; with `store`, writes y. Kernels call it at
 * one place, in a loop, before the first product and after the last: so it clears the sums, and
 * brings the instructions of the end into their cache while weights are still on their way. Warps
 * take tokens, and the warps of a token its rows by turns. */
template <int TILES, int X_SHIFT, int SHIFT, bool BIASED>
__device__ __forceinline__ void spmm_sweep(const spmm_args &args, const spmm_work &work, int *sums,
                                           unsigned first, unsigned count, bool store)
{
    constexpr unsigned TOKENS = TILES * SPMM_COLUMNS;
    constexpr unsigned TURNS = SPMM_WARPS / TOKENS > 0 ? SPMM_WARPS / TOKENS : 1;
    const unsigned stride = spmm_sums_stride(args);
    const unsigned height = count * SPMM_STRIPE;
    const unsigned warp = threadIdx.x / SPMM_WARP;
    const unsigned turn = warp / TOKENS;
    const unsigned left = args.rows - first * SPMM_STRIPE;
    if (turn >= TURNS) { /* warps beyond 16 */
        return;
    }
#pragma unroll 1
    for (unsigned token = warp - turn * TOKENS; token < TOKENS; token += SPMM_WARPS) {
        const unsigned stored = store && token < work.tokens ? left : 0;
        const int x_sum = BIASED ? spmm_activation_sum(args, work.first_token + token) : 0;
        int32_t *y =
            args.y + (size_t)(work.first_token + token) * args.y_stride + first * SPMM_STRIPE;
        int *from = sums + token * stride;
#pragma unroll 1
        for (unsigned row = turn * SPMM_WARP + threadIdx.x % SPMM_WARP; row < height;
             row += TURNS * SPMM_WARP) {
            const int sum = from[row] >> X_SHIFT;
            from[row] = 0;
            if (row < stored) {
                /* Biased: rows 0 to 7 of a stripe are sums of code + 8, not multiplied. */
                y[row] =
                    BIASED && row % SPMM_STRIPE < SPMM_STRIPE / 2 ? sum - 8 * x_sum : sum >> SHIFT;
            }
        }
    }
}

#endif
#endif
