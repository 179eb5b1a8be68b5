/* The N:M kernel for outputs of few tiles: activations and weights go from memory to registers as
 * fragments, nothing is staged. A template over form, N, tile and outputs; the .cu files beside it
 * make the instances. */
#ifndef ESPL_CUDA_NM_SMALL_CUH
#define ESPL_CUDA_NM_SMALL_CUH

#include "kernels/cuda/nm_device.cuh"

/* What a lane holds of the weights of a stripe in a block. R: registers of a row's stream. */
template <int FORM, int R> struct nm_fragment {
    unsigned word[R][2];                                              /* register, tile of 8 rows */
    unsigned pattern[FORM == ESPL_CUDA_NM_COMPACT ? (R + 1) / 2 : 2]; /* selectors, or masks */
};

template <int FORM, int R>
__device__ __forceinline__ void nm_load_fragment(const nm_args &args, unsigned stripe,
                                                 unsigned block, unsigned lane,
                                                 nm_fragment<FORM, R> &f)
{
    const unsigned unit = stripe * args.blocks + block;
    const uint8_t *values = args.values + (size_t)unit * (256u * R) + 16u * lane;
#pragma unroll
    for (int v = 0; v < R / 2; v++) {
        const uint4 four = __ldg(reinterpret_cast<const uint4 *>(values + 512 * v));
        f.word[2 * v][0] = four.x;
        f.word[2 * v][1] = four.y;
        f.word[2 * v + 1][0] = four.z;
        f.word[2 * v + 1][1] = four.w;
    }
    if constexpr (R % 2 != 0) {
        const uint2 two =
            __ldg(reinterpret_cast<const uint2 *>(values + 512 * (R / 2) - 8u * lane));
        f.word[R - 1][0] = two.x;
        f.word[R - 1][1] = two.y;
    }
    if constexpr (FORM == ESPL_CUDA_NM_ELEMENT) {
        const uint2 masks =
            __ldg(reinterpret_cast<const uint2 *>(args.patterns + (size_t)unit * 256u) + lane);
        f.pattern[0] = masks.x;
        f.pattern[1] = masks.y;
    }
    if constexpr (FORM == ESPL_CUDA_NM_COMPACT) {
        const unsigned shared = (stripe >> args.group) * args.blocks + block;
        const uint8_t *selectors =
            args.patterns + ((size_t)shared * NM_QUAD + lane % NM_QUAD) * (2u * R);
        if (R == 4) {
            const uint2 two = __ldg(reinterpret_cast<const uint2 *>(selectors));
            f.pattern[0] = two.x;
            f.pattern[1] = two.y;
        } else if (R % 2 == 0) {
#pragma unroll
            for (int i = 0; i < R / 2; i++) {
                f.pattern[i] = __ldg(reinterpret_cast<const unsigned *>(selectors) + i);
            }
        } else { /* aligned to two bytes only */
            const unsigned short *halves = reinterpret_cast<const unsigned short *>(selectors);
#pragma unroll
            for (int i = 0; i < (R + 1) / 2; i++) {
                const unsigned high = 2 * i + 1 < R ? __ldg(halves + 2 * i + 1) : 0u;
                f.pattern[i] = __ldg(halves + 2 * i) | high << 16;
            }
        }
    }
}

/* x <- the lane's 32 activations of a token in a block; those beyond its row are 0. Plain loads:
 * the compiler may move __ldg() above the wait for the kernel that writes them. */
__device__ __forceinline__ void nm_load_activations(const int8_t *row, unsigned column,
                                                    unsigned stride, unsigned (&x)[8])
{
    uint4 early = make_uint4(0u, 0u, 0u, 0u);
    uint4 late = early;
    if (column < stride) {
        early = *reinterpret_cast<const uint4 *>(row + column);
    }
    if (column + 64u < stride) {
        late = *reinterpret_cast<const uint4 *>(row + column + 64u);
    }
    x[0] = early.x;
    x[1] = early.y;
    x[2] = early.z;
    x[3] = early.w;
    x[4] = late.x;
    x[5] = late.y;
    x[6] = late.z;
    x[7] = late.w;
}

/* sums += 16 tokens times a stripe, 128 columns. low, high: activations of tokens g and g + 8. */
template <int FORM, int R>
__device__ __forceinline__ void nm_multiply_block(const nm_fragment<FORM, R> &f,
                                                  const unsigned (&low)[8],
                                                  const unsigned (&high)[8], int (&sums)[2][4])
{
    if constexpr (FORM == ESPL_CUDA_NM_ELEMENT) {
#pragma unroll
        for (int tile = 0; tile < 2; tile++) {
            unsigned stream[R];
#pragma unroll
            for (int r = 0; r < R; r++) {
                stream[r] = f.word[r][tile];
            }
#pragma unroll
            for (int w = 0; w < 4; w++) {
                unsigned b0;
                unsigned b1;
                nm_expand<R>(stream, f.pattern[tile], w, b0, b1);
                nm_multiply(sums[tile], low[2 * w], high[2 * w], low[2 * w + 1], high[2 * w + 1],
                            b0, b1);
            }
        }
    } else {
        unsigned a[R][2];
#pragma unroll
        for (int r = 0; r < R; r++) {
            if (FORM == ESPL_CUDA_NM_DENSE) {
                a[r][0] = low[r % 8];
                a[r][1] = high[r % 8];
            } else {
                const unsigned selector = r % 2 == 0 ? f.pattern[r / 2 % ((R + 1) / 2)]
                                                     : f.pattern[r / 2 % ((R + 1) / 2)] >> 16;
                a[r][0] = nm_gather<R>(low, r, selector);
                a[r][1] = nm_gather<R>(high, r, selector);
            }
        }
#pragma unroll
        for (int r = 0; r + 1 < R; r += 2) {
            nm_multiply(sums[0], a[r][0], a[r][1], a[r + 1][0], a[r + 1][1], f.word[r][0],
                        f.word[r + 1][0]);
            nm_multiply(sums[1], a[r][0], a[r][1], a[r + 1][0], a[r + 1][1], f.word[r][1],
                        f.word[r + 1][1]);
        }
        if constexpr (R % 2 != 0) {
            nm_multiply_half(sums[0], a[R - 1][0], a[R - 1][1], f.word[R - 1][0]);
            nm_multiply_half(sums[1], a[R - 1][0], a[R - 1][1], f.word[R - 1][1]);
        }
    }
}

/* Of the four outputs that a lane holds of a stripe: tokens g (half 0) and g + 8. */
__device__ __forceinline__ int4 nm_four(const int (&sums)[2][4], int half)
{
    return make_int4(sums[0][2 * half], sums[0][2 * half + 1], sums[1][2 * half],
                     sums[1][2 * half + 1]);
}

__device__ __forceinline__ int4 nm_add(int4 a, int4 b)
{
    return make_int4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

/* Sums of SPLITS warps, written to `shared` by all of them: each adds and stores some of the tile's
 * units of 8 tokens x 16 rows. With activations the code is long and therefore a loop. */
template <int TOKENS, int ROWS, int MODE, int SPLITS>
__device__ __forceinline__ void nm_reduce(const nm_args &args, const int4 *shared,
                                          const float *terms, unsigned split, unsigned lane,
                                          unsigned first_token, unsigned first_row)
{
    constexpr int UNITS = 2 * TOKENS * ROWS;
    constexpr int TURNS = (UNITS + SPLITS - 1) / SPLITS;
#pragma unroll(MODE == NM_ANY_OUTPUT ? 1 : TURNS)
    for (int i = 0; i < TURNS; i++) {
        const unsigned unit = split + i * SPLITS;
        if (UNITS % SPLITS != 0 && unit >= UNITS) {
            return;
        }
        const unsigned token = unit / (2 * ROWS) * NM_TOKENS + unit % 2 * 8 + lane / 4;
        const unsigned row = unit / 2 % ROWS * ESPL_NM_STRIPE + lane % 4 * 4;
        int4 sum = shared[unit * NM_WARP + lane];
#pragma unroll
        for (int s = 1; s < SPLITS; s++) {
            sum = nm_add(sum, shared[(s * UNITS + unit) * NM_WARP + lane]);
        }
        nm_store<MODE>(args, first_token + token, first_row + row, sum, terms + row,
                       terms + 2 * NM_TERM_ROWS + token);
    }
}

template <int FORM, int R, int TOKENS, int ROWS, int MODE>
__global__ void __launch_bounds__(NM_MAX_WARPS *NM_WARP, 1) nm_small_kernel(const nm_args args)
{
    extern __shared__ int4 nm_shared[];
    constexpr unsigned UNITS = 2 * TOKENS * ROWS;
    const unsigned lane = threadIdx.x % NM_WARP;
    const unsigned warp = threadIdx.x / NM_WARP;
    const unsigned splits = 1u << args.split_shift;
    const unsigned split = warp & (splits - 1u);
    const unsigned in_block = warp >> args.split_shift;
    const unsigned first_stripe = ((blockIdx.y << args.tile_shift) + in_block) * ROWS;
    const unsigned first_token = blockIdx.x * (TOKENS * NM_TOKENS);
    const unsigned first_row = first_stripe * ESPL_NM_STRIPE;
    nm_let_successor_start();

    /* Weights first: a launch that overlaps its predecessor may read them already. */
    nm_fragment<FORM, R> f[ROWS];
    unsigned block = split;
#pragma unroll
    for (int n = 0; n < ROWS; n++) { /* beyond the last stripe: that one again, not stored */
        nm_load_fragment(args, min(first_stripe + n, args.stripes - 1u),
                         min(block, args.blocks - 1u), lane, f[n]);
    }
    nm_terms<TOKENS, ROWS> terms;
    if constexpr (MODE != NM_SUMS) {
        terms.load_rows(args, first_row, lane);
    }
    const int8_t *rows[TOKENS][2];
#pragma unroll
    for (int m = 0; m < TOKENS; m++) {
        const unsigned token = first_token + m * NM_TOKENS + lane / 4;
        rows[m][0] = args.x + (size_t)min(token, args.tokens - 1u) * args.x_stride;
        rows[m][1] = args.x + (size_t)min(token + 8u, args.tokens - 1u) * args.x_stride;
    }
    int sums[TOKENS][ROWS][2][4] = {};
    nm_wait_for_predecessor();
    if constexpr (MODE != NM_SUMS) {
        terms.load_tokens(args, first_token, lane);
    }
    while (block < args.blocks) {
        const unsigned column = block * ESPL_NM_BLOCK + lane % 4 * 16u;
        unsigned x[TOKENS][2][8];
#pragma unroll
        for (int i = 0; i < 2 * TOKENS; i++) {
            nm_load_activations(rows[i / 2][i % 2], column, args.x_stride, x[i / 2][i % 2]);
        }
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
#pragma unroll
            for (int m = 0; m < TOKENS; m++) {
                nm_multiply_block<FORM, R>(f[n], x[m][0], x[m][1], sums[m][n]);
            }
        }
        block += splits;
        if (block >= args.blocks) {
            break;
        }
#pragma unroll
        for (int n = 0; n < ROWS; n++) {
            nm_load_fragment(args, min(first_stripe + n, args.stripes - 1u), block, lane, f[n]);
        }
    }

    /* Of a tile: its terms, then the sums of its warps. */
    constexpr unsigned TERM_WORDS = MODE == NM_SUMS ? 0 : NM_TERMS / 4;
    const bool alone = MODE != NM_ANY_OUTPUT && splits == 1; /* its sums stay in registers */
    int4 *own = nm_shared + in_block * (TERM_WORDS + (alone ? 0 : UNITS * NM_WARP * splits));
    float *shared_terms = reinterpret_cast<float *>(own);
    int4 *shared_sums = own + TERM_WORDS;
    if constexpr (MODE != NM_SUMS) {
        if (split == 0) {
            terms.publish(shared_terms, lane);
        }
    }
    if (alone) {
        __syncwarp();
#pragma unroll
        for (unsigned unit = 0; unit < UNITS; unit++) {
            const unsigned token = unit / (2 * ROWS) * NM_TOKENS + unit % 2 * 8 + lane / 4;
            const unsigned row = unit / 2 % ROWS * ESPL_NM_STRIPE + lane % 4 * 4;
            nm_store<MODE>(args, first_token + token, first_row + row,
                           nm_four(sums[unit / (2 * ROWS)][unit / 2 % ROWS], unit % 2),
                           shared_terms + row, shared_terms + 2 * NM_TERM_ROWS + token);
        }
        return;
    }
#pragma unroll
    for (unsigned unit = 0; unit < UNITS; unit++) {
        shared_sums[(split * UNITS + unit) * NM_WARP + lane] =
            nm_four(sums[unit / (2 * ROWS)][unit / 2 % ROWS], unit % 2);
    }
    __syncthreads();
    if (args.split_shift == 1) {
        nm_reduce<TOKENS, ROWS, MODE, 2>(args, shared_sums, shared_terms, split, lane, first_token,
                                         first_row);
    } else if (args.split_shift == 2) {
        nm_reduce<TOKENS, ROWS, MODE, 4>(args, shared_sums, shared_terms, split, lane, first_token,
                                         first_row);
    } else if (args.split_shift == 3) {
        nm_reduce<TOKENS, ROWS, MODE, 8>(args, shared_sums, shared_terms, split, lane, first_token,
                                         first_row);
    } else {
        nm_reduce<TOKENS, ROWS, MODE, 1>(args, shared_sums, shared_terms, split, lane, first_token,
                                         first_row);
    }
}

/* The instance for an output mode. */
template <int FORM, int R, int TOKENS, int ROWS> inline const void *nm_mode_kernel(unsigned mode)
{
    return mode == NM_SUMS ? (const void *)nm_small_kernel<FORM, R, TOKENS, ROWS, NM_SUMS>
           : mode == NM_LINEAR_OUTPUT
               ? (const void *)nm_small_kernel<FORM, R, TOKENS, ROWS, NM_LINEAR_OUTPUT>
               : (const void *)nm_small_kernel<FORM, R, TOKENS, ROWS, NM_ANY_OUTPUT>;
}

/* The instance of a tile, out of those that every N has; NULL: another tile. */
template <int FORM, int R>
inline const void *nm_common_kernel(unsigned tokens, unsigned rows, unsigned mode)
{
    if (tokens == 1 && rows == 1) {
        return nm_mode_kernel<FORM, R, 1, 1>(mode);
    }
    if (tokens == 1 && rows == 2) {
        return nm_mode_kernel<FORM, R, 1, 2>(mode);
    }
    if (tokens == 2 && rows == 2) {
        return nm_mode_kernel<FORM, R, 2, 2>(mode);
    }
    return NULL;
}

/* And of the wide ones, where registers suffice. */
template <int FORM, int R>
inline const void *nm_wide_kernel(unsigned tokens, unsigned rows, unsigned mode)
{
    if (tokens == 1 && rows == 4) {
        return nm_mode_kernel<FORM, R, 1, 4>(mode);
    }
    if (tokens == 2 && rows == 4) {
        return nm_mode_kernel<FORM, R, 2, 4>(mode);
    }
    return nm_common_kernel<FORM, R>(tokens, rows, mode);
}

#endif
