/* The N:M kernel for large products whose weights fit into shared memory: patterns shared by 64
 * rows, N of 1 or 2, compute capability 9.0.
 *
 * A block keeps all columns of 256 rows in shared memory and does one tile of 64 tokens after the
 * other with them; only activations move. Two warpgroups multiply, each with tiles and a ring of
 * stages of its own: while one writes outputs, the other multiplies. A third one copies, half of it
 * for each ring. Tiles are in the order of their rows, and a block has a share of neighbouring
 * ones, so it changes weights once or twice.
 *
 * A stage is given back when its activations have been gathered. Weights are given back when a
 * warpgroup has no tile left for them.
 */
#include "kernels/cuda/nm_stay.cuh"
#include "kernels/cuda/nm_warpgroup.cuh"
#include "kernels/cuda/nm_wide.cuh"

namespace
{

enum {
    GROUP_THREADS = 128,
    GROUPS = 2,
    COPY_THREADS = GROUP_THREADS / GROUPS, /* of a ring */
    STAGE_BYTES = NM_STAY_TOKENS * ESPL_NM_BLOCK,
    CHUNK_ROWS = 32,
    CHUNKS = ESPL_NM_WIDE_ROWS / CHUNK_ROWS,
    TERMS = 2 * ESPL_NM_WIDE_ROWS, /* floats of a warpgroup: scales and biases of the rows */
    MOST_BLOCKS = 1024,            /* of columns: the largest that is looked at */
    MOST_SHARED = 226 * 1024 /* of the 227 KiB that a block can have there; barriers take some */
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
    return fixed >= MOST_SHARED ? 0
           : (MOST_SHARED - fixed) / (GROUPS * STAGE_BYTES) < NM_STAY_MOST_STAGES
               ? (MOST_SHARED - fixed) / (GROUPS * STAGE_BYTES)
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
        const unsigned row_blocks = (args.rows + ESPL_NM_WIDE_ROWS - 1) / ESPL_NM_WIDE_ROWS;
        token_tiles = (args.tokens + NM_STAY_TOKENS - 1) / NM_STAY_TOKENS;
        const unsigned long long tiles = (unsigned long long)token_tiles * row_blocks;
        first = (unsigned)(tiles * blockIdx.x / gridDim.x);
        end = (unsigned)(tiles * (blockIdx.x + 1) / gridDim.x);
    }
    /* The first tile of this warpgroup at or after `tile`. */
    __device__ __forceinline__ unsigned own(unsigned tile, unsigned group) const
    {
        return tile + ((tile - first) % GROUPS != group ? 1u : 0u);
    }
};

/* Addresses in shared memory. */
struct places {
    unsigned weights;
    unsigned stages; /* of this ring */
    unsigned count;  /* of them */
    unsigned full;   /* barriers of this ring, NM_STAY_MOST_STAGES each */
    unsigned empty;
    unsigned weights_full;
    unsigned weights_empty;
};

struct position {
    unsigned stage;
    unsigned parity;

    __device__ __forceinline__ void next(unsigned stages)
    {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* All columns of a block of rows, by one thread. */
__device__ __forceinline__ void copy_weights(const nm_args &args, const places &at,
                                             unsigned row_block, unsigned unit)
{
    const uint8_t *from = args.values + (size_t)row_block * args.blocks * unit;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at.weights_full),
                 "r"(args.blocks * unit)
                 : "memory");
    for (unsigned block = 0; block < args.blocks; block++) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                     "[%0], [%1], %2, [%3];" ::"r"(at.weights + block * pitch_of(unit)),
                     "l"(from + (size_t)block * unit), "r"(unit), "r"(at.weights_full)
                     : "memory");
    }
}

/* The activations of a tile, by the threads of a ring. */
__device__ __forceinline__ void copy_tile(const nm_args &args, const places &at, position &position,
                                          unsigned first_token, unsigned thread)
{
    const unsigned chunk = thread % 8 * 16;
    nm_rows<NM_STAY_TOKENS, COPY_THREADS> rows(args, first_token, thread);
    for (unsigned block = 0; block < args.blocks; block++) {
        const unsigned to = at.stages + position.stage * STAGE_BYTES;
        const unsigned column = block * ESPL_NM_BLOCK + chunk;
        wait_parity(at.empty + 8 * position.stage, position.parity ^ 1);
        rows.copy(to, column < args.x_stride);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(
                         at.full + 8 * position.stage)
                     : "memory");
        position.next(at.count);
    }
}

/* The copying warps. The first weights do not wait for the predecessor: it does not write them. */
__device__ __forceinline__ void copy_share(const nm_args &args, const places &at,
                                           const share &share, unsigned group, unsigned thread,
                                           unsigned unit)
{
    struct position position = {0, 0};
    unsigned changes = 0;
    const bool leads = group == 0 && thread == 0;
    for (unsigned next = share.first; next < share.end; changes++) {
        const unsigned row_block = next / share.token_tiles;
        const unsigned end = min(share.end, (row_block + 1) * share.token_tiles);
        if (leads) {
            if (changes > 0) {
                wait_parity(at.weights_empty, (changes - 1) % 2);
            }
            copy_weights(args, at, row_block, unit);
        }
        if (changes == 0) {
            nm_wait_for_predecessor();
        }
        for (unsigned tile = share.own(next, group); tile < end; tile += GROUPS) {
            copy_tile(args, at, position, tile % share.token_tiles * NM_STAY_TOKENS, thread);
        }
        next = end;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Scales and biases of a block of rows to the warpgroup's part of shared memory. */
__device__ __forceinline__ void load_rows(const nm_args &args, unsigned first_row, float *terms,
                                          unsigned group)
{
    const unsigned thread = threadIdx.x % GROUP_THREADS;
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"((unsigned)GROUP_THREADS) : "memory");
#pragma unroll
    for (unsigned i = 0; i < ESPL_NM_WIDE_ROWS / GROUP_THREADS; i++) {
        const unsigned at = thread + i * GROUP_THREADS;
        const bool has_row = first_row + at < args.rows;
        terms[at] = has_row ? __ldg(args.row_scales + first_row + at) : 0.0f;
        terms[ESPL_NM_WIDE_ROWS + at] =
            has_row && args.bias != nullptr ? __ldg(args.bias + first_row + at) : 0.0f;
    }
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"((unsigned)GROUP_THREADS) : "memory");
}

/* Eight neighbouring sums of a token: half 0 of the lane's first token, 1 of its second. */
template <int V>
__device__ __forceinline__ void take_eight(const int (&sums)[ESPL_NM_WIDE_ROWS / V][V / 2],
                                           int chunk, int half, int (&eight)[8])
{
#pragma unroll
    for (int i = 0; i < 8; i++) { /* matrices of 8 rows: two outputs each */
        const int first = chunk * CHUNK_ROWS % V / 8 + i / 2;
        eight[i] = sums[chunk * CHUNK_ROWS / V][4 * first + 2 * half + i % 2];
    }
}

/* Outputs of the lane's two tokens straight to y; token: the first one, 8 before the second. */
template <int V, int MODE, int BYTES>
__device__ __forceinline__ void
put_lane(const nm_args &args, const int (&sums)[ESPL_NM_WIDE_ROWS / V][V / 2],
         const float (&token_scale)[2], const float *terms, unsigned token, unsigned first_row)
{
    const unsigned lane_row = threadIdx.x % 4 * 8;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        const unsigned row = chunk * CHUNK_ROWS + lane_row;
        float scale[8];
        float bias[8];
        if constexpr (MODE != NM_SUMS) {
            nm_load_eight(terms + row, scale);
            nm_load_eight(terms + ESPL_NM_WIDE_ROWS + row, bias);
        }
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int eight[8];
            take_eight<V>(sums, chunk, half, eight);
            if (token + 8 * half >= args.tokens || first_row + row >= args.rows) {
                continue; /* rows come in eights */
            }
            uint8_t *to = static_cast<uint8_t *>(args.y) +
                          ((size_t)(token + 8 * half) * args.y_stride + first_row + row) * BYTES;
            if constexpr (MODE == NM_SUMS) {
                reinterpret_cast<int4 *>(to)[0] = make_int4(eight[0], eight[1], eight[2], eight[3]);
                reinterpret_cast<int4 *>(to)[1] = make_int4(eight[4], eight[5], eight[6], eight[7]);
            } else {
                nm_put_eight<MODE, BYTES>(args, eight, scale, bias, token_scale[half], to);
            }
        }
    }
}

template <int R, int V, int MODE>
__device__ __forceinline__ void multiply_tile(const nm_args &args, const places &at,
                                              position &position, const float *terms,
                                              unsigned first_token, unsigned first_row)
{
    constexpr unsigned PITCH = pitch_of(nm_unit_bytes<R, V>);
    const unsigned lane = threadIdx.x % NM_WARP;
    const unsigned token = threadIdx.x % GROUP_THREADS / NM_WARP * 16 + lane / 4; /* of the tile */
    int sums[ESPL_NM_WIDE_ROWS / V][V / 2] = {};
    float token_scale[2] = {1.0f, 1.0f};
    if (MODE != NM_SUMS && args.token_scales != nullptr) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) {
            const unsigned which = first_token + token + 8 * half;
            token_scale[half] = which < args.tokens ? args.token_scales[which] : 0.0f;
        }
    }
    nm_step<R, V> step;
    unsigned weights = at.weights;
    for (unsigned block = 0; block <= args.blocks; block++) {
        if (block > 0) {
            step.multiply(weights, sums);
            /* All that came from the stage was gathered, so it was read. */
            nm_arrive(at.empty + 8 * position.stage);
            position.next(at.count);
            weights += PITCH;
        }
        if (block < args.blocks) { /* while products run */
            wait_parity(at.full + 8 * position.stage, position.parity);
            step.load(at.stages + position.stage * STAGE_BYTES, weights, token, lane);
        }
        nm_wait_products();
    }
    if constexpr (MODE == NM_SUMS) {
        put_lane<V, MODE, 4>(args, sums, token_scale, terms, first_token + token, first_row);
    } else if (args.output == ESPL_NM_FP16) {
        put_lane<V, MODE, 2>(args, sums, token_scale, terms, first_token + token, first_row);
    } else {
        put_lane<V, MODE, 1>(args, sums, token_scale, terms, first_token + token, first_row);
    }
}

template <int R, int V, int MODE>
__device__ __forceinline__ void multiply_share(const nm_args &args, const places &at,
                                               const share &share, float *terms, unsigned group)
{
    struct position position = {0, 0};
    unsigned changes = 0;
    for (unsigned next = share.first; next < share.end; changes++) {
        const unsigned row_block = next / share.token_tiles;
        const unsigned end = min(share.end, (row_block + 1) * share.token_tiles);
        if constexpr (MODE != NM_SUMS) {
            load_rows(args, row_block * ESPL_NM_WIDE_ROWS, terms, group);
        }
        if (changes == 0) {
            nm_wait_for_predecessor(); /* scales of tokens */
        }
        wait_parity(at.weights_full, changes % 2);
        for (unsigned tile = share.own(next, group); tile < end; tile += GROUPS) {
            multiply_tile<R, V, MODE>(args, at, position, terms,
                                      tile % share.token_tiles * NM_STAY_TOKENS,
                                      row_block * ESPL_NM_WIDE_ROWS);
        }
        nm_arrive(at.weights_empty);
        next = end;
    }
}

#endif

template <int R, int V, int MODE>
__global__ void __launch_bounds__(NM_STAY_THREADS, 1) nm_stay_kernel(const nm_args args)
{
#if NM_HAS_WARPGROUPS
    extern __shared__ __align__(128) uint8_t nm_stay_shared[];
    /* Of both rings, then of the weights; the host looks for them. */
    __shared__ unsigned long long barriers[GROUPS * 2 * NM_STAY_MOST_STAGES + 2];
    constexpr unsigned UNIT = nm_unit_bytes<R, V>;
    const bool copies = threadIdx.x >= GROUPS * GROUP_THREADS;
    const unsigned group =
        copies ? threadIdx.x % GROUP_THREADS / COPY_THREADS : threadIdx.x / GROUP_THREADS;
    const unsigned weight_bytes = args.blocks * pitch_of(UNIT);
    const unsigned first_barrier = (unsigned)__cvta_generic_to_shared(barriers);
    const share share(args);
    places at;
    at.weights = (unsigned)__cvta_generic_to_shared(nm_stay_shared);
    at.count = stages_beside(fixed_bytes(args.blocks, UNIT));
    at.stages = at.weights + weight_bytes + group * at.count * STAGE_BYTES;
    at.full = first_barrier + group * 16 * NM_STAY_MOST_STAGES;
    at.empty = at.full + 8 * NM_STAY_MOST_STAGES;
    at.weights_full = first_barrier + GROUPS * 16 * NM_STAY_MOST_STAGES;
    at.weights_empty = at.weights_full + 8;
    nm_let_successor_start();
    if (threadIdx.x == 0) {
        for (unsigned ring = 0; ring < GROUPS; ring++) {
            for (unsigned s = 0; s < NM_STAY_MOST_STAGES; s++) {
                const unsigned barrier = first_barrier + ring * 16 * NM_STAY_MOST_STAGES + 8 * s;
                nm_init_barrier(barrier, COPY_THREADS);
                nm_init_barrier(barrier + 8 * NM_STAY_MOST_STAGES, GROUP_THREADS);
            }
        }
        nm_init_barrier(at.weights_full, 1);
        nm_init_barrier(at.weights_empty, GROUPS * GROUP_THREADS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (copies) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
        copy_share(args, at, share, group, threadIdx.x % COPY_THREADS, UNIT);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
        float *terms = reinterpret_cast<float *>(nm_stay_shared + weight_bytes +
                                                 GROUPS * at.count * STAGE_BYTES) +
                       group * TERMS;
        multiply_share<R, V, MODE>(args, at, share, terms, group);
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

unsigned nm_stay_stages(const struct espl_cuda_nm_matrix *matrix)
{
    return matrix->blocks < MOST_BLOCKS
               ? stages_beside(fixed_bytes(matrix->blocks, matrix->wide_unit))
               : 0;
}

size_t nm_stay_shared_bytes(const struct espl_cuda_nm_matrix *matrix)
{
    return fixed_bytes(matrix->blocks, matrix->wide_unit) +
           (size_t)nm_stay_stages(matrix) * GROUPS * STAGE_BYTES;
}

const void *nm_stay_kernel_of(const struct espl_cuda_nm_matrix *matrix, unsigned mode)
{
    const unsigned shared = ESPL_NM_STRIPE << matrix->group;
    /* With N = 4 or V = 32 a lane needs more registers than it can have here: they would go through
     * local memory in the main loop. */
    if (matrix->wide == NULL || matrix->wide_registers != 2 || shared != 64) {
        return NULL;
    }
    const void *kernel = mode_kernel<2, 64>(mode);
    return nm_has_code(kernel) ? kernel : NULL;
}
