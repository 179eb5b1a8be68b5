/* The N:M kernel for large products: patterns shared by 32 or 64 rows, compute capability 9.0.
 *
 * A block stays on its multiprocessor and does one tile of 128 tokens x 256 rows after the other.
 * One warp copies: activations with 16-byte copies, weights in bulk, through a ring of stages. Two
 * warpgroups multiply 64 tokens each: a lane reads its 32 activations of two tokens, gathers the
 * stored columns of each group of rows by byte permutes, and a matrix instruction of the warpgroup
 * takes them from registers and the weights from shared memory. Outputs go through shared memory,
 * and leave in bulk while the next tile is multiplied.
 *
 * A stage is given back when the products that read its weights have ended. */
#include "kernels/cuda/nm_warpgroup.cuh"
#include "kernels/cuda/nm_wide.cuh"

namespace
{

enum {
    GROUP_THREADS = 128,
    GROUP_TOKENS = 64,
    X_BYTES = NM_WIDE_TOKENS * ESPL_NM_BLOCK, /* of a stage */
    CHUNK_ROWS = 32,
    CHUNKS = ESPL_NM_WIDE_ROWS / CHUNK_ROWS,
    OUT_PITCH = ESPL_NM_WIDE_ROWS * 2 + 64, /* bytes of a token's outputs: no bank conflicts */
    OUT_BYTES = NM_WIDE_TOKENS * OUT_PITCH,
    TERMS = 2 * ESPL_NM_WIDE_ROWS /* floats of a warpgroup */
};

template <int R, int V>
constexpr unsigned stage_bytes = X_BYTES +
                                 (nm_unit_bytes<R, V, ESPL_NM_WIDE_ROWS> + 127) / 128 * 128;

#if NM_HAS_WARPGROUPS

/* Where everything is in shared memory, and the ring of stages. */
struct ring {
    unsigned stages; /* shared address */
    unsigned full;   /* of NM_WIDE_STAGES barriers each */
    unsigned empty;
    unsigned stage;
    unsigned parity;

    __device__ __forceinline__ void next()
    {
        if (++stage == NM_WIDE_STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
};

/* The copying warps: all steps of all tiles of this block. */
template <int R, int V>
__device__ __forceinline__ void copy_tiles(const nm_args &args, ring ring, unsigned tiles,
                                           unsigned row_blocks, unsigned thread)
{
    constexpr unsigned UNIT = nm_unit_bytes<R, V, ESPL_NM_WIDE_ROWS>;
    const unsigned chunk = thread % 8 * 16;
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        nm_rows<NM_WIDE_TOKENS, GROUP_THREADS> rows(args, tile / row_blocks * NM_WIDE_TOKENS,
                                                    thread);
        const uint8_t *weights = args.values + (size_t)(tile % row_blocks) * args.blocks * UNIT;
        for (unsigned block = 0; block < args.blocks; block++) {
            const unsigned to = ring.stages + ring.stage * stage_bytes<R, V>;
            const unsigned full = ring.full + 8 * ring.stage;
            const unsigned column = block * ESPL_NM_BLOCK + chunk;
            wait_parity(ring.empty + 8 * ring.stage, ring.parity ^ 1);
            if (thread == 0) {
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full),
                             "r"(UNIT)
                             : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                             "[%0], [%1], %2, [%3];" ::"r"(to + X_BYTES),
                             "l"(weights + (size_t)block * UNIT), "r"(UNIT), "r"(full)
                             : "memory");
            }
            rows.copy(to, column < args.x_stride);
            asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(full)
                         : "memory");
            ring.next();
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* What an epilogue reads, loaded while the tile is multiplied: scales and biases of two of the
 * tile's rows, and scales of the lane's two tokens. */
struct lane_terms {
    float scale[2];
    float bias[2];
    float token[2];
};

__device__ __forceinline__ lane_terms load_terms(const nm_args &args, unsigned first_row,
                                                 unsigned token)
{
    lane_terms terms;
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        const unsigned row = first_row + threadIdx.x % GROUP_THREADS + i * GROUP_THREADS;
        const bool has_row = row < args.rows;
        terms.scale[i] = has_row ? __ldg(args.row_scales + row) : 0.0f;
        terms.bias[i] = has_row && args.bias != nullptr ? __ldg(args.bias + row) : 0.0f;
        const bool has_token = args.token_scales != nullptr && token + 8 * i < args.tokens;
        terms.token[i] = has_token ? args.token_scales[token + 8 * i] : 1.0f;
    }
    return terms;
}

/* All outputs of a lane to shared memory. */
template <int V, int MODE, int BYTES>
__device__ __forceinline__ void
put_lane(const nm_args &args, const int (&sums)[ESPL_NM_WIDE_ROWS / V][V / 2],
         const float (&token_scale)[2], const float *terms, uint8_t *out)
{
    const unsigned lane_row = threadIdx.x % 4 * 8;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        float scale[8];
        float bias[8];
        const unsigned row = chunk * CHUNK_ROWS + lane_row;
        nm_load_terms(terms + row, scale);
        nm_load_terms(terms + ESPL_NM_WIDE_ROWS + row, bias);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int eight[8];
#pragma unroll
            for (int i = 0; i < 8; i++) { /* matrices of 8 rows: two outputs each */
                const int first = chunk * CHUNK_ROWS % V / 8 + i / 2;
                eight[i] = sums[chunk * CHUNK_ROWS / V][4 * first + 2 * half + i % 2];
            }
            nm_put<MODE, BYTES>(args, eight, scale, bias, token_scale[half],
                                out + 8 * half * OUT_PITCH + row * BYTES);
        }
    }
}

/* Outputs of a warpgroup to its half of `out`, and from there to y in bulk. shared_terms: room for
 * scales and biases of the tile's rows. */
template <int V, int MODE>
__device__ __forceinline__ void put_tile(const nm_args &args,
                                         const int (&sums)[ESPL_NM_WIDE_ROWS / V][V / 2],
                                         const lane_terms &terms, float *shared_terms, uint8_t *out,
                                         unsigned first_token, unsigned first_row, unsigned group)
{
    const unsigned thread = threadIdx.x % GROUP_THREADS;
    const unsigned token = thread / NM_WARP * 16 + thread % NM_WARP / 4; /* of 64; and 8 further */
    const unsigned bytes = args.output == ESPL_NM_FP16 ? 2 : 1;
    /* What left for the tile before must have been read; the barrier behind that tile's outputs
     * says the same of its terms. */
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#pragma unroll
    for (unsigned i = 0; i < 2; i++) {
        shared_terms[thread + i * GROUP_THREADS] = terms.scale[i];
        shared_terms[ESPL_NM_WIDE_ROWS + thread + i * GROUP_THREADS] = terms.bias[i];
    }
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(GROUP_THREADS) : "memory");
    if (args.output == ESPL_NM_FP16) {
        put_lane<V, MODE, 2>(args, sums, terms.token, shared_terms, out + token * OUT_PITCH);
    } else {
        put_lane<V, MODE, 1>(args, sums, terms.token, shared_terms, out + token * OUT_PITCH);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(GROUP_THREADS) : "memory");
    const unsigned width = min(args.rows - first_row, (unsigned)ESPL_NM_WIDE_ROWS) * bytes;
    if (thread < GROUP_TOKENS && first_token + thread < args.tokens) {
        uint8_t *to = static_cast<uint8_t *>(args.y) +
                      ((size_t)(first_token + thread) * args.y_stride + first_row) * bytes;
        const unsigned from = (unsigned)__cvta_generic_to_shared(out + thread * OUT_PITCH);
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                     "r"(from), "r"(width)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }
}

/* Sums straight from registers. */
template <int V>
__device__ __forceinline__ void put_sums(const nm_args &args,
                                         const int (&sums)[ESPL_NM_WIDE_ROWS / V][V / 2],
                                         unsigned first_token, unsigned first_row)
{
    const unsigned lane = threadIdx.x % NM_WARP;
    const unsigned token = threadIdx.x % GROUP_THREADS / NM_WARP * 16 + lane / 4;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++) {
        const unsigned row = first_row + chunk * CHUNK_ROWS + lane % 4 * 8;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            const unsigned at = first_token + token + 8 * half;
            const int first = 4 * (chunk * CHUNK_ROWS % V / 8) + 2 * half;
            const int(&of)[V / 2] = sums[chunk * CHUNK_ROWS / V];
            if (at < args.tokens && row < args.rows) { /* rows come in eights */
                int4 *y = reinterpret_cast<int4 *>(static_cast<int *>(args.y) +
                                                   (size_t)at * args.y_stride + row);
                y[0] = make_int4(of[first], of[first + 1], of[first + 4], of[first + 5]);
                y[1] = make_int4(of[first + 8], of[first + 9], of[first + 12], of[first + 13]);
            }
        }
    }
}

template <int R, int V, int MODE>
__device__ __forceinline__ void multiply_tiles(const nm_args &args, ring ring, uint8_t *out,
                                               unsigned tiles, unsigned row_blocks)
{
    const unsigned group = threadIdx.x / GROUP_THREADS;
    const unsigned lane = threadIdx.x % NM_WARP;
    const unsigned token =
        group * GROUP_TOKENS + threadIdx.x % GROUP_THREADS / NM_WARP * 16 + lane / 4;
    float *shared_terms = reinterpret_cast<float *>(out + OUT_BYTES) + group * TERMS;
    for (unsigned tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const unsigned first_token = tile / row_blocks * NM_WIDE_TOKENS + group * GROUP_TOKENS;
        const unsigned first_row = tile % row_blocks * ESPL_NM_WIDE_ROWS;
        int sums[ESPL_NM_WIDE_ROWS / V][V / 2] = {};
        lane_terms terms;
        if constexpr (MODE != NM_SUMS) {
            terms = load_terms(args, first_row, first_token + token % GROUP_TOKENS);
        }
        nm_step<R, V, ESPL_NM_WIDE_ROWS> step;
        unsigned before = 0; /* the stage before, and the barrier that gives it back */
        unsigned freed = 0;
        for (unsigned block = 0; block <= args.blocks; block++) {
            const unsigned stage = ring.stages + ring.stage * stage_bytes<R, V>;
            if (block > 0) {
                step.multiply(nm_describe(before + X_BYTES), sums);
            }
            if (block < args.blocks) { /* while products run */
                wait_parity(ring.full + 8 * ring.stage, ring.parity);
                step.load(stage, stage + X_BYTES, token, lane);
            }
            nm_wait_products();
            if (block > 0) {
                nm_arrive(freed);
            }
            before = stage;
            freed = ring.empty + 8 * ring.stage;
            if (block < args.blocks) {
                ring.next();
            }
        }
        if constexpr (MODE == NM_SUMS) {
            put_sums<V>(args, sums, first_token, first_row);
        } else {
            put_tile<V, MODE>(args, sums, terms, shared_terms,
                              out + group * GROUP_TOKENS * OUT_PITCH, first_token, first_row,
                              group);
        }
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

#endif

template <int R, int V, int MODE>
__global__ void __launch_bounds__(NM_WIDE_THREADS, 1) nm_wide_kernel(const nm_args args)
{
#if NM_HAS_WARPGROUPS
    extern __shared__ __align__(128) uint8_t nm_wide_shared[];
    __shared__ unsigned long long barriers[2 * NM_WIDE_STAGES]; /* the host looks for it */
    const unsigned row_blocks = (args.rows + ESPL_NM_WIDE_ROWS - 1) / ESPL_NM_WIDE_ROWS;
    const unsigned tiles = (args.tokens + NM_WIDE_TOKENS - 1) / NM_WIDE_TOKENS * row_blocks;
    ring ring;
    ring.full = (unsigned)__cvta_generic_to_shared(barriers);
    ring.empty = ring.full + 8 * NM_WIDE_STAGES;
    ring.stages = (unsigned)__cvta_generic_to_shared(nm_wide_shared);
    ring.stage = 0;
    ring.parity = 0;
    nm_let_successor_start();
    if (threadIdx.x == 0) {
        for (unsigned s = 0; s < NM_WIDE_STAGES; s++) {
            nm_init_barrier(ring.full + 8 * s, GROUP_THREADS + 1);
            nm_init_barrier(ring.empty + 8 * s, 2 * GROUP_THREADS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    nm_wait_for_predecessor();
    if (threadIdx.x >= 2 * GROUP_THREADS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        copy_tiles<R, V>(args, ring, tiles, row_blocks, threadIdx.x % GROUP_THREADS);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        multiply_tiles<R, V, MODE>(args, ring, nm_wide_shared + NM_WIDE_STAGES * stage_bytes<R, V>,
                                   tiles, row_blocks);
    }
#endif
}

template <int R, int V> const void *mode_kernel(unsigned mode)
{
    return mode == NM_SUMS            ? (const void *)nm_wide_kernel<R, V, NM_SUMS>
           : mode == NM_LINEAR_OUTPUT ? (const void *)nm_wide_kernel<R, V, NM_LINEAR_OUTPUT>
                                      : (const void *)nm_wide_kernel<R, V, NM_ANY_OUTPUT>;
}

} // namespace

bool nm_has_code(const void *kernel)
{
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, kernel) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.sharedSizeBytes > 0;
}

const void *nm_wide_kernel_of(const struct espl_cuda_nm_matrix *matrix, unsigned mode)
{
    const unsigned shared = ESPL_NM_STRIPE << matrix->group;
    const void *kernel = NULL;
    if (matrix->wide == NULL || matrix->wide_rows != ESPL_NM_WIDE_ROWS) {
        return NULL;
    }
    if (matrix->wide_registers == 2) {
        kernel = shared == 32 ? mode_kernel<2, 32>(mode) : mode_kernel<2, 64>(mode);
    } else {
        kernel = shared == 32 ? mode_kernel<4, 32>(mode) : mode_kernel<4, 64>(mode);
    }
    return nm_has_code(kernel) ? kernel : NULL;
}

size_t nm_wide_shared_bytes(const struct espl_cuda_nm_matrix *matrix)
{
    const unsigned unit = matrix->wide_unit;
    return NM_WIDE_STAGES * (X_BYTES + (unit + 127) / 128 * 128) + OUT_BYTES +
           2 * TERMS * sizeof(float);
}
