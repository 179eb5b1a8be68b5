/* The N:M kernel for large products whose weights fit into shared memory: compute capability 9.0.
 *
 * A block keeps all columns of 192 rows in shared memory and does one tile of 64 tokens after the
 * other with them; only activations move. Three warpgroups have tiles and a ring of stages each, so
 * that one or two multiply while the others gather, wait or write outputs. Tiles are in the order
 * of their rows, and a block has a share of neighbouring ones, so it changes weights once or twice.
 *
 * A warpgroup copies for itself, a ring of stages ahead, across the ends of its tiles. A stage is
 * filled again when all four warps have gathered what was in it: each gathers before it comes to
 * the barrier of the next step, and copies behind it. Weights are changed when no warpgroup has a
 * tile left for them.
 */
#include "kernels/cuda/nm_stay.cuh"
#include "kernels/cuda/nm_warpgroup.cuh"
#include "kernels/cuda/nm_wide.cuh"

namespace
{

enum {
    GROUP_THREADS = 128,
    GROUPS = NM_STAY_GROUPS,
    ROWS = ESPL_NM_STAY_ROWS,
    STAGE_BYTES = NM_STAY_TOKENS * ESPL_NM_BLOCK,
    TERMS = 2 * ROWS,   /* floats of a warpgroup: scales and biases of the rows */
    MOST_BLOCKS = 1024, /* of columns: the largest that is looked at */
};

/* Of a unit of weights in shared memory. */
__host__ __device__ constexpr unsigned pitch_of(unsigned unit)
{
    return (unit + 127) / 128 * 128;
}

/* Shared memory of a block beside the stages: weights and terms. */
__host__ __device__ constexpr unsigned fixed_bytes(unsigned blocks, unsigned unit)
{
    return blocks * pitch_of(unit) + GROUPS * TERMS * (unsigned)sizeof(float);
}

/* Stages of a group that have room beside that. */
__host__ __device__ constexpr unsigned stages_beside(unsigned fixed)
{
    return fixed >= NM_STAY_MOST_SHARED ? 0
           : (NM_STAY_MOST_SHARED - fixed) / (GROUPS * STAGE_BYTES) < NM_STAY_MOST_STAGES
               ? (NM_STAY_MOST_SHARED - fixed) / (GROUPS * STAGE_BYTES)
               : (unsigned)NM_STAY_MOST_STAGES;
}

#if NM_HAS_WARPGROUPS

/* Tiles are numbered by rows first; a block has those from first on. */
struct share {
    unsigned first;
    unsigned end;
    unsigned token_tiles;

    __device__ __forceinline__ share(const nm_args &args)
    {
        const unsigned row_blocks = (args.rows + ROWS - 1) / ROWS;
        token_tiles = (args.tokens + NM_STAY_TOKENS - 1) / NM_STAY_TOKENS;
        const unsigned long long tiles = (unsigned long long)token_tiles * row_blocks;
        first = (unsigned)(tiles * blockIdx.x / gridDim.x);
        end = (unsigned)(tiles * (blockIdx.x + 1) / gridDim.x);
    }
};

/* A warpgroup's ring of stages, as addresses in shared memory, and what it copies next. */
struct ring {
    unsigned stages;
    unsigned full;  /* barriers, NM_STAY_MOST_STAGES */
    unsigned count; /* of stages */
    unsigned stage; /* that is read next */
    unsigned parity;
    unsigned to; /* stage that is filled next */
    unsigned tile;
    unsigned block;
    nm_rows<NM_STAY_TOKENS, GROUP_THREADS> rows; /* of the tile */

    __device__ __forceinline__ void next()
    {
        if (++stage == count) {
            stage = 0;
            parity ^= 1;
        }
    }
    /* The next step of this warpgroup's tiles, if there is one. */
    __device__ __forceinline__ void copy(const nm_args &args, const share &share, unsigned thread)
    {
        if (tile >= share.end) {
            return;
        }
        const unsigned column = block * ESPL_NM_BLOCK + thread % 8 * 16;
        rows.copy(stages + to * STAGE_BYTES, column < args.x_stride);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full + 8 * to)
                     : "memory");
        to = to + 1 == count ? 0 : to + 1;
        if (++block == args.blocks) {
            block = 0;
            tile += GROUPS;
            rows = nm_rows<NM_STAY_TOKENS, GROUP_THREADS>(
                args, tile % share.token_tiles * NM_STAY_TOKENS, thread);
        }
    }
};

__device__ __forceinline__ void meet(unsigned group)
{
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"((unsigned)GROUP_THREADS) : "memory");
}

/* All columns of a block of rows, by one thread. */
__device__ __forceinline__ void copy_weights(const nm_args &args, unsigned to, unsigned full,
                                             unsigned row_block, unsigned unit)
{
    const uint8_t *from = args.values + (size_t)row_block * args.blocks * unit;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                 "r"(args.blocks * unit)
                 : "memory");
    for (unsigned block = 0; block < args.blocks; block++) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1], %2, [%3];" ::"r"(to + block * pitch_of(unit)),
                     "l"(from + (size_t)block * unit), "r"(unit), "r"(full)
                     : "memory");
    }
}

/* Scales and biases of a block of rows to the warpgroup's part of shared memory. */
__device__ __forceinline__ void load_rows(const nm_args &args, unsigned first_row, float *terms,
                                          unsigned group)
{
    meet(group);
    for (unsigned at = threadIdx.x % GROUP_THREADS; at < ROWS; at += GROUP_THREADS) {
        const bool has_row = first_row + at < args.rows;
        terms[at] = has_row ? __ldg(args.row_scales + first_row + at) : 0.0f;
        terms[ROWS + at] =
            has_row && args.bias != nullptr ? __ldg(args.bias + first_row + at) : 0.0f;
    }
    meet(group);
}

/* Rows of a chunk lie so that a lane has neighbouring outputs, a quarter of them. */
template <int V> constexpr int CHUNK_ROWS = V < 32 ? V : 32;

/* A lane's sums of a chunk: half 0 of its first token, 1 of its second. */
template <int V>
__device__ __forceinline__ void take_sums(const int (&sums)[ROWS / V][V / 2], int chunk, int half,
                                          int (&some)[CHUNK_ROWS<V> / 4])
{
#pragma unroll
    for (int i = 0; i < CHUNK_ROWS<V> / 4; i++) { /* matrices of 8 rows: two outputs each */
        const int first = chunk * CHUNK_ROWS<V> % V / 8 + i / 2;
        some[i] = sums[chunk * CHUNK_ROWS<V> / V][4 * first + 2 * half + i % 2];
    }
}

/* Of 16 neighbouring sums of two lanes the first gets 0 to 3 and 8 to 11, the second the others: so
 * both write whole sectors of memory at a time. All lanes must come here. */
__device__ __forceinline__ void trade_sums(int (&some)[8])
{
    const bool second = threadIdx.x % 2 != 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int got = __shfl_xor_sync(0xFFFFFFFFu, second ? some[i] : some[4 + i], 1);
        some[i] = second ? got : some[i];
        some[4 + i] = second ? some[4 + i] : got;
    }
}

/* Four sums, or eight after trade_sums(); to: the place of the lane's own first one. */
template <int COUNT> __device__ __forceinline__ void put_sums(int *to, const int (&some)[COUNT])
{
    int *at = to - (COUNT == 8 && threadIdx.x % 2 != 0 ? 4 : 0);
#pragma unroll
    for (int i = 0; i < COUNT / 4; i++) {
        *reinterpret_cast<int4 *>(at + 8 * i) =
            make_int4(some[4 * i], some[4 * i + 1], some[4 * i + 2], some[4 * i + 3]);
    }
}

/* Outputs of the lane's two tokens straight to y; token: the first one, 8 before the second. */
template <int V, int MODE, int BYTES>
__device__ __forceinline__ void put_lane(const nm_args &args, const int (&sums)[ROWS / V][V / 2],
                                         const float (&token_scale)[2], const float *terms,
                                         unsigned token, unsigned first_row)
{
    constexpr int COUNT = CHUNK_ROWS<V> / 4;
    const unsigned lane_row = threadIdx.x % 4 * COUNT;
#pragma unroll
    for (int chunk = 0; chunk < ROWS / CHUNK_ROWS<V>; chunk++) {
        const unsigned row = chunk * CHUNK_ROWS<V> + lane_row;
        float scale[COUNT];
        float bias[COUNT];
        if constexpr (MODE != NM_SUMS) {
            nm_load_terms(terms + row, scale);
            nm_load_terms(terms + ROWS + row, bias);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int some[COUNT];
            take_sums<V>(sums, chunk, half, some);
            if constexpr (MODE == NM_SUMS && COUNT == 8) {
                trade_sums(some);
            }
            if (token + 8 * half >= args.tokens || first_row + row >= args.rows) {
                continue; /* rows come in sixteens */
            }
            uint8_t *to = static_cast<uint8_t *>(args.y) +
                          ((size_t)(token + 8 * half) * args.y_stride + first_row + row) * BYTES;
            if constexpr (MODE == NM_SUMS) {
                put_sums(reinterpret_cast<int *>(to), some);
            } else {
                nm_put<MODE, BYTES>(args, some, scale, bias, token_scale[half], to);
            }
        }
    }
}

/* weights: shared address of those of the tile's rows. */
template <int R, int V, int MODE>
__device__ __forceinline__ void
multiply_tile(const nm_args &args, const share &share, ring &ring, unsigned weights,
              const float *terms, unsigned first_token, unsigned first_row, unsigned group)
{
    constexpr unsigned PITCH = pitch_of(nm_unit_bytes<R, V, ROWS>);
    const unsigned thread = threadIdx.x % GROUP_THREADS;
    const unsigned lane = threadIdx.x % NM_WARP;
    const unsigned token = thread / NM_WARP * 16 + lane / 4; /* of the tile */
    int sums[ROWS / V][V / 2] = {};
    float token_scale[2] = {1.0f, 1.0f};
    if (MODE != NM_SUMS && args.token_scales != nullptr) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
            const unsigned which = first_token + token + 8 * half;
            token_scale[half] = which < args.tokens ? args.token_scales[which] : 0.0f;
        }
    }
    nm_step<R, V, ROWS> step;
    /* Matrix instructions of a step; for how many operands are gathered at a time, while those of
     * the other slots run. With three a step the other warpgroups fill in as well; with twelve
     * there are no registers for more. */
    constexpr int UNITS = ROWS / V * (R / 2);
    constexpr int AT_ONCE = UNITS > 6 ? 1 : 3;
    constexpr int SLOTS = UNITS > 3 ? 2 : 1;
    unsigned a[SLOTS][AT_ONCE][4];
    unsigned low = nm_describe(weights);
    for (unsigned block = 0; block < args.blocks; block++) {
        wait_parity(ring.full + 8 * ring.stage, ring.parity);
        step.load(ring.stages + ring.stage * STAGE_BYTES, weights, token, lane);
        ring.next();
        meet(group); /* all have gathered the step before */
        ring.copy(args, share, thread);
        step.multiply_on(low, a, sums);
        weights += PITCH;
        low += PITCH / 16;
    }
    nm_wait_products();
    if constexpr (MODE == NM_SUMS) {
        put_lane<V, MODE, 4>(args, sums, token_scale, terms, first_token + token, first_row);
    } else if (args.output == ESPL_NM_FP16) {
        put_lane<V, MODE, 2>(args, sums, token_scale, terms, first_token + token, first_row);
    } else {
        put_lane<V, MODE, 1>(args, sums, token_scale, terms, first_token + token, first_row);
    }
}

#endif

template <int R, int V, int MODE>
__global__ void __launch_bounds__(NM_STAY_THREADS, 1) nm_stay_kernel(const nm_args args)
{
#if NM_HAS_WARPGROUPS
    extern __shared__ __align__(128) uint8_t nm_stay_shared[];
    /* Of the rings, then of the weights; the host looks for them. */
    __shared__ unsigned long long barriers[GROUPS * NM_STAY_MOST_STAGES + 1];
    constexpr unsigned UNIT = nm_unit_bytes<R, V, ROWS>;
    const unsigned group = __shfl_sync(0xFFFFFFFFu, threadIdx.x / GROUP_THREADS, 0);
    const unsigned thread = threadIdx.x % GROUP_THREADS;
    const unsigned first_barrier = (unsigned)__cvta_generic_to_shared(barriers);
    const unsigned weights_full = first_barrier + 8 * GROUPS * NM_STAY_MOST_STAGES;
    const unsigned weights = (unsigned)__cvta_generic_to_shared(nm_stay_shared);
    const unsigned weight_bytes = args.blocks * pitch_of(UNIT);
    const unsigned count = stages_beside(fixed_bytes(args.blocks, UNIT));
    const share share(args);
    const unsigned first_tile = share.first + group;
    float *terms =
        reinterpret_cast<float *>(nm_stay_shared + weight_bytes + GROUPS * count * STAGE_BYTES) +
        group * TERMS;
    ring ring = {weights + weight_bytes + group * count * STAGE_BYTES,
                 first_barrier + group * 8 * NM_STAY_MOST_STAGES,
                 count,
                 0,
                 0,
                 0,
                 first_tile,
                 0,
                 nm_rows<NM_STAY_TOKENS, GROUP_THREADS>(
                     args, first_tile % share.token_tiles * NM_STAY_TOKENS, thread)};
    nm_let_successor_start();
    if (threadIdx.x == 0) {
        for (unsigned b = 0; b < GROUPS * NM_STAY_MOST_STAGES; b++) {
            nm_init_barrier(first_barrier + 8 * b, GROUP_THREADS);
        }
        nm_init_barrier(weights_full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    unsigned changes = 0;
    for (unsigned next = share.first; next < share.end; changes++) {
        const unsigned row_block = next / share.token_tiles;
        const unsigned end = min(share.end, (row_block + 1) * share.token_tiles);
        if (changes > 0) {
            __syncthreads(); /* nobody has a tile left for the weights before */
        }
        if (threadIdx.x == 0) {
            copy_weights(args, weights, weights_full, row_block, UNIT);
        }
        if constexpr (MODE != NM_SUMS) {
            load_rows(args, row_block * ROWS, terms, group);
        }
        if (changes == 0) { /* it writes activations and their scales, not the weights */
            nm_wait_for_predecessor();
            for (unsigned i = 0; i + 1 < count; i++) {
                ring.copy(args, share, thread);
            }
        }
        wait_parity(weights_full, changes % 2);
        for (unsigned tile = next + (group + GROUPS - (next - share.first) % GROUPS) % GROUPS;
             tile < end; tile += GROUPS) {
            multiply_tile<R, V, MODE>(args, share, ring, weights, terms,
                                      tile % share.token_tiles * NM_STAY_TOKENS, row_block * ROWS,
                                      group);
        }
        next = end;
    }
#endif
}

template <int R, int V> const void *mode_kernel(unsigned mode)
{
    return mode == NM_SUMS            ? (const void *)nm_stay_kernel<R, V, NM_SUMS>
           : mode == NM_LINEAR_OUTPUT ? (const void *)nm_stay_kernel<R, V, NM_LINEAR_OUTPUT>
                                      : (const void *)nm_stay_kernel<R, V, NM_ANY_OUTPUT>;
}

} // namespace

bool nm_stay_fits(unsigned registers, unsigned shared, unsigned blocks)
{
    const unsigned unit = ROWS * 16 * registers + ROWS / shared * 8 * registers;
    const bool exists = shared >= (registers == 2 ? 16 : 32); /* else too many selectors */
    return exists && blocks < MOST_BLOCKS &&
           stages_beside(fixed_bytes(blocks, unit)) >= NM_STAY_LEAST_STAGES;
}

size_t nm_stay_shared_bytes(const struct espl_cuda_nm_matrix *matrix)
{
    const unsigned fixed = fixed_bytes(matrix->blocks, matrix->wide_unit);
    return fixed + (size_t)stages_beside(fixed) * GROUPS * STAGE_BYTES;
}

const void *nm_stay_kernel_of(const struct espl_cuda_nm_matrix *matrix, unsigned mode)
{
    if (matrix->wide == NULL || matrix->wide_rows != ROWS) {
        return NULL;
    }
    const unsigned shared = ESPL_NM_STRIPE << matrix->group;
    const void *kernel = NULL;
    if (matrix->wide_registers == 4) {
        kernel = shared == 64 ? mode_kernel<4, 64>(mode) : mode_kernel<4, 32>(mode);
    } else {
        kernel = shared == 64   ? mode_kernel<2, 64>(mode)
                 : shared == 32 ? mode_kernel<2, 32>(mode)
                                : mode_kernel<2, 16>(mode);
    }
    return nm_has_code(kernel) ? kernel : NULL;
}
