/* Attention of image models: scores, softmax and values in one kernel, nothing of it stored.
 *
 * A block does 64 queries of one head of one window, a warp 16 of them; keys and values come in
 * tiles through two buffers of shared memory. Softmax is made on the way: sums so far are scaled
 * down when a larger score turns up [Milakov and Gimelshein 2018; Dao et al. 2022], but not before
 * it is larger by some powers of two. */
#include "espalier/cuda_vision.h"
#include "kernels/cuda/vision_device.cuh"

#include <cuda_fp16.h>
#include <float.h>
#include <limits.h>

namespace
{

enum {
    WARPS = 4,
    WARP = 32,
    THREADS = WARPS * WARP,
    UNIT = 16,  /* queries, keys and dimensions of a product */
    HALVES = 8, /* that are copied at once */
    STAGES = 2,
    MOST_GRID = 65535
};

constexpr float LOG2_E = 1.4426950408889634F;
constexpr float FAR_ABOVE = 8.0F; /* powers of two: weights reach 256, halves 65504 */
constexpr unsigned EVERYONE = 0xFFFFFFFFu;

/* d (16 queries x 8) += a (16 x 16) b (16 x 8) */
__device__ __forceinline__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                         unsigned b1)
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void load_matrices(unsigned (&m)[4], const __half *row)
{
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

__device__ __forceinline__ void load_transposed(unsigned (&m)[4], const __half *row)
{
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(address)
                 : "memory");
}

/* 16 bytes to shared memory; zeros when there is nothing to copy. */
__device__ __forceinline__ void copy_piece(__half *to, const uint16_t *from, bool is_there)
{
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                 "r"(is_there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void end_copies()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int LEFT> __device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

__device__ __forceinline__ unsigned pack(float a, float b)
{
    const __half2 both = __floats2half2_rn(a, b);
    return *reinterpret_cast<const unsigned *>(&both);
}

/* One head of one window. */
struct window {
    const uint16_t *q; /* of the image's first row */
    const int32_t *rows;
    const float *bias; /* (tokens, tokens), NULL = 0 */
    const float *mask;
    size_t image_row; /* first row of the image */
    unsigned first;   /* row of the window's first token in its image, when rows is NULL */
    unsigned tokens;
    unsigned width; /* heads * head_dim */
    unsigned head_dim;

    __device__ __forceinline__ size_t row(unsigned token) const
    {
        return rows != NULL ? static_cast<size_t>(rows[token]) : first + token;
    }
};

__device__ __forceinline__ struct window find_window(const struct espl_cuda_vision_attention &args)
{
    struct window w;
    const unsigned windows = static_cast<unsigned>(args.windows);
    const unsigned image = blockIdx.x / windows;
    const unsigned number = blockIdx.x % windows;
    w.tokens = static_cast<unsigned>(args.tokens);
    w.head_dim = static_cast<unsigned>(args.head_dim);
    w.width = static_cast<unsigned>(args.heads) * w.head_dim;
    w.image_row = static_cast<size_t>(image) * windows * w.tokens;
    w.first = number * w.tokens;
    w.q = args.qkv + w.image_row * 3 * w.width + blockIdx.y * w.head_dim;
    w.rows = args.rows != NULL ? args.rows + static_cast<size_t>(number) * w.tokens : NULL;
    const size_t pairs = static_cast<size_t>(w.tokens) * w.tokens;
    w.bias = args.bias != NULL ? args.bias + blockIdx.y * pairs : NULL;
    w.mask = args.mask != NULL ? args.mask + number * pairs : NULL;
    return w;
}

/* KEYS rows of keys and of values, from key `first` on. */
template <int DIM, int KEYS> struct tile {
    static constexpr int STRIDE = DIM + HALVES; /* no bank conflicts: an odd number of 16 bytes */
    __half k[KEYS][STRIDE];
    __half v[KEYS][STRIDE];

    __device__ __forceinline__ void fetch(const struct window &w, unsigned first_key)
    {
        constexpr unsigned PIECES = DIM / HALVES;
        for (unsigned i = threadIdx.x; i < KEYS * PIECES; i += THREADS) {
            const unsigned key = i / PIECES;
            const unsigned dim = i % PIECES * HALVES;
            const bool there = first_key + key < w.tokens && dim < w.head_dim;
            const uint16_t *from =
                there ? w.q + w.row(first_key + key) * 3 * w.width + w.width + dim : w.q;
            copy_piece(&k[key][dim], from, there);
            copy_piece(&v[key][dim], there ? from + w.width : w.q, there);
        }
        end_copies();
    }
};

/* What a warp knows of its 16 queries; a lane has columns of rows lane / 4 and lane / 4 + 8. */
template <int DIM> struct queries {
    unsigned q[DIM / UNIT][4];
    float y[DIM / 8][4];
    float highest[2]; /* shift of the scores: the highest, or less by up to FAR_ABOVE */
    float sum[2];     /* of this lane's columns */
};

template <int DIM>
__device__ __forceinline__ void load_queries(queries<DIM> &mine, const struct window &w,
                                             unsigned first)
{
    const unsigned lane = threadIdx.x % WARP;
    const unsigned row[2] = {first + lane / 4, first + lane / 4 + 8};
    const uint16_t *from[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        from[half] = w.q + w.row(min(row[half], w.tokens - 1)) * 3 * w.width;
        mine.highest[half] = -FLT_MAX;
        mine.sum[half] = 0.0F;
    }
#pragma unroll
    for (int step = 0; step < DIM / UNIT; step++) {
#pragma unroll
        for (int i = 0; i < 4; i++) { /* rows g, g + 8, then the same 8 dimensions on */
            const unsigned dim = step * UNIT + i / 2 * 8 + lane % 4 * 2;
            mine.q[step][i] =
                dim < w.head_dim ? *reinterpret_cast<const unsigned *>(from[i % 2] + dim) : 0u;
        }
    }
#pragma unroll
    for (int column = 0; column < DIM / 8; column++) {
        mine.y[column][0] = mine.y[column][1] = mine.y[column][2] = mine.y[column][3] = 0.0F;
    }
}

/* scores (16 queries, 16 keys from `key` of the tile on), two fragments. */
template <int DIM, int KEYS>
__device__ __forceinline__ void score(float (&s)[2][4], const queries<DIM> &mine,
                                      const tile<DIM, KEYS> &in, unsigned key)
{
    const unsigned lane = threadIdx.x % WARP;
    const unsigned at = key + lane / UNIT * 8 + lane % 8;
#pragma unroll
    for (int step = 0; step < DIM / UNIT; step++) {
        unsigned k[4];
        load_matrices(k, &in.k[at][step * UNIT + lane / 8 % 2 * 8]);
        multiply(s[0], mine.q[step], k[0], k[1]);
        multiply(s[1], mine.q[step], k[2], k[3]);
    }
}

template <int DIM, int KEYS>
__device__ __forceinline__ void gather_values(queries<DIM> &mine, const float (&p)[2][4],
                                              const tile<DIM, KEYS> &in, unsigned key)
{
    const unsigned lane = threadIdx.x % WARP;
    const unsigned at = key + lane % UNIT;
    const unsigned a[4] = {pack(p[0][0], p[0][1]), pack(p[0][2], p[0][3]), pack(p[1][0], p[1][1]),
                           pack(p[1][2], p[1][3])};
#pragma unroll
    for (int column = 0; column < DIM / 8; column += 2) {
        unsigned v[4];
        load_transposed(v, &in.v[at][column * 8 + lane / UNIT * 8]);
        multiply(mine.y[column], a, v[0], v[1]);
        multiply(mine.y[column + 1], a, v[2], v[3]);
    }
}

/* 2^x; what is too small for a normal number is 0. */
__device__ __forceinline__ float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* A score in units of log2 e with its terms. */
__device__ __forceinline__ float add_terms(const struct window &w, float scale, float score,
                                           unsigned query, unsigned key)
{
    const size_t place = static_cast<size_t>(min(query, w.tokens - 1)) * w.tokens + key;
    float terms = w.bias != NULL ? w.bias[place] : 0.0F;
    if (w.mask != NULL) {
        terms += w.mask[place];
    }
    return fmaf(score, scale, terms) * LOG2_E;
}

/* The largest score of a tile for this lane's two queries, over all four lanes that have them. */
template <int PAIRS>
__device__ __forceinline__ float row_highest(const float (&s)[PAIRS][2][4], int half)
{
    float most = -FLT_MAX;
#pragma unroll
    for (int pair = 0; pair < PAIRS; pair++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            most = fmaxf(most, s[pair][i / 2][2 * half + i % 2]);
        }
    }
    most = fmaxf(most, __shfl_xor_sync(EVERYONE, most, 1));
    return fmaxf(most, __shfl_xor_sync(EVERYONE, most, 2));
}

/* Scores of a tile's keys. FULL: all keys are there; else those that are not get the lowest number.
 * TERMS: bias and mask are added, and scores are in units of log2 e; else they are not scaled. */
template <bool TERMS, bool FULL, int DIM, int KEYS>
__device__ __forceinline__ void score_tile(float (&s)[KEYS / UNIT][2][4], const queries<DIM> &mine,
                                           const tile<DIM, KEYS> &in, const struct window &w,
                                           float scale, unsigned first, unsigned first_key)
{
    const unsigned lane = threadIdx.x % WARP;
#pragma unroll
    for (int pair = 0; pair < KEYS / UNIT; pair++) {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            s[pair][i / 4][i % 4] = 0.0F;
        }
        if (FULL || first_key + pair * UNIT < w.tokens) {
            score(s[pair], mine, in, pair * UNIT);
        }
    }
#pragma unroll
    for (int i = 0; i < KEYS / UNIT * 8; i++) {
        float &value = s[i / 8][i / 4 % 2][i % 4];
        const unsigned key = first_key + i / 8 * UNIT + i / 4 % 2 * 8 + lane % 4 * 2 + i % 2;
        if (!FULL && key >= w.tokens) {
            value = -FLT_MAX;
        } else if (TERMS) {
            value = add_terms(w, scale, value, first + lane / 4 + i % 4 / 2 * 8, key);
        }
    }
}

/* Whether one of the lane's scores is so far above its row's shift that powers might not fit. */
template <int PAIRS>
__device__ __forceinline__ bool is_above(const float (&s)[PAIRS][2][4], const float (&highest)[2],
                                         float reach)
{
    bool above = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = -FLT_MAX;
#pragma unroll
        for (int i = 0; i < PAIRS * 4; i++) {
            most = fmaxf(most, s[i / 4][i / 2 % 2][2 * half + i % 2]);
        }
        above = above || most > highest[half] + reach;
    }
    return above;
}

/* The shift of both rows becomes their largest score so far, and what was summed is scaled down. */
template <int DIM, int PAIRS>
__device__ __forceinline__ void raise_shift(queries<DIM> &mine, const float (&s)[PAIRS][2][4],
                                            float unit)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float highest = fmaxf(mine.highest[half], row_highest<PAIRS>(s, half));
        const float shrink = power_of_two((mine.highest[half] - highest) * unit);
        mine.highest[half] = highest;
        mine.sum[half] *= shrink;
#pragma unroll
        for (int column = 0; column < DIM / 8; column++) {
            mine.y[column][2 * half] *= shrink;
            mine.y[column][2 * half + 1] *= shrink;
        }
    }
}

template <bool TERMS, bool FULL, int DIM, int KEYS>
__device__ __forceinline__ void attend_tile(queries<DIM> &mine, const tile<DIM, KEYS> &in,
                                            const struct window &w, float scale, unsigned first,
                                            unsigned first_key)
{
    constexpr int PAIRS = KEYS / UNIT;
    const float unit = TERMS ? 1.0F : scale * LOG2_E; /* of a score, as a power of two */
    float s[PAIRS][2][4];
    score_tile<TERMS, FULL>(s, mine, in, w, scale, first, first_key);
    /* Any shift gives the same quotients. It follows the scores when one is far above it: then all
     * rows of the warp do, which takes more instructions than a tile has otherwise. */
    if (__any_sync(EVERYONE, is_above<PAIRS>(s, mine.highest, FAR_ABOVE / unit))) {
        raise_shift<DIM, PAIRS>(mine, s, unit);
    }
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const float shift = mine.highest[half] * unit;
#pragma unroll
        for (int i = 0; i < PAIRS * 4; i++) {
            float &value = s[i / 4][i / 2 % 2][2 * half + i % 2];
            value = power_of_two(fmaf(value, unit, -shift));
            mine.sum[half] += value;
        }
    }
#pragma unroll
    for (int pair = 0; pair < PAIRS; pair++) {
        if (FULL || first_key + pair * UNIT < w.tokens) {
            gather_values(mine, s[pair], in, pair * UNIT);
        }
    }
}

template <int DIM>
__device__ __forceinline__ void store_values(queries<DIM> &mine, const struct window &w,
                                             uint16_t *y, unsigned first)
{
    const unsigned lane = threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const unsigned query = first + lane / 4 + half * 8;
        float sum = mine.sum[half];
        sum += __shfl_xor_sync(EVERYONE, sum, 1);
        sum += __shfl_xor_sync(EVERYONE, sum, 2);
        const float part = 1.0F / sum;
        if (query >= w.tokens) {
            continue;
        }
        uint16_t *to = y + (w.image_row + w.row(query)) * w.width + blockIdx.y * w.head_dim;
#pragma unroll
        for (int column = 0; column < DIM / 8; column++) {
            const unsigned dim = column * 8 + lane % 4 * 2;
            if (dim < w.head_dim) {
                *reinterpret_cast<unsigned *>(to + dim) =
                    pack(mine.y[column][2 * half] * part, mine.y[column][2 * half + 1] * part);
            }
        }
    }
}

template <bool TERMS, int DIM, int KEYS>
__global__ void __launch_bounds__(THREADS, 3)
    attention_kernel(const struct espl_cuda_vision_attention args)
{
    __shared__ __align__(16) tile<DIM, KEYS> tiles[STAGES];
    const struct window w = find_window(args);
    const unsigned first = (blockIdx.z * WARPS + threadIdx.x / WARP) * UNIT;
    const unsigned count = (w.tokens + KEYS - 1) / KEYS;
    queries<DIM> mine;
    vision_wait();
    tiles[0].fetch(w, 0);
    load_queries(mine, w, first);
    for (unsigned i = 0; i < count; i++) {
        if (i + 1 < count) {
            tiles[(i + 1) % STAGES].fetch(w, (i + 1) * KEYS);
            wait_copies<1>();
        } else {
            wait_copies<0>();
        }
        __syncthreads();
        if (first < w.tokens && (i + 1) * KEYS <= w.tokens) {
            attend_tile<TERMS, true>(mine, tiles[i % STAGES], w, args.scale, first, i * KEYS);
        } else if (first < w.tokens) {
            attend_tile<TERMS, false>(mine, tiles[i % STAGES], w, args.scale, first, i * KEYS);
        }
        __syncthreads(); /* the tile may be filled again */
    }
    store_values(mine, w, args.y, first);
}

using attention_function = void (*)(const struct espl_cuda_vision_attention);

attention_function choose(const struct espl_cuda_vision_attention *a)
{
    const bool terms = a->bias != NULL || a->mask != NULL;
    if (a->head_dim > 64) {
        return attention_kernel<true, 128, 32>;
    }
    if (a->head_dim > 32) {
        return terms ? attention_kernel<true, 64, 32> : attention_kernel<false, 64, 32>;
    }
    return terms ? attention_kernel<true, 32, 64> : attention_kernel<false, 32, 64>;
}

} // namespace

extern "C" enum espl_status
espl_cuda_vision_attend(const struct espl_cuda_vision_attention *attention, void *stream,
                        struct espl_error *err)
{
    const struct espl_cuda_vision_attention *a = attention;
    const size_t windows = a->images * a->windows;
    const size_t blocks = (a->tokens + WARPS * UNIT - 1) / (WARPS * UNIT); /* of a head */
    if (a->head_dim == 0 || a->head_dim % ESPL_CUDA_VISION_HEAD_STEP != 0 ||
        a->head_dim > ESPL_CUDA_VISION_MOST_HEAD || a->tokens == 0 || windows == 0 ||
        windows > INT_MAX || a->heads > MOST_GRID || blocks > MOST_GRID) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "no CUDA kernel for attention over %zu tokens with %zu heads of %zu",
                         a->tokens, a->heads, a->head_dim);
    }
    const dim3 grid(static_cast<unsigned>(windows), static_cast<unsigned>(a->heads),
                    static_cast<unsigned>(blocks));
    return vision_launch(choose(a), grid, THREADS, *a, stream, "cannot launch attention", err);
}
