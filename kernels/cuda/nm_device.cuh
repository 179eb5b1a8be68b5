/* Pieces of device code of the N:M kernels: gathering, expanding, epilogue. */
#ifndef ESPL_CUDA_NM_DEVICE_CUH
#define ESPL_CUDA_NM_DEVICE_CUH

#include "kernels/cuda/nm_args.cuh"

#include <cuda_fp16.h>

/* d = the bytes of (a, b) that the low four nibbles of `selector` name. __byte_perm() would clear
 * bits of the selector first. */
__device__ __forceinline__ unsigned nm_permute(unsigned a, unsigned b, unsigned selector)
{
    unsigned d;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(selector));
    return d;
}

/* c (16 tokens x 8 rows) += a (16 x 32) * b (32 x 8). a: words of tokens g and g + 8. */
__device__ __forceinline__ void nm_multiply(int (&c)[4], unsigned a0, unsigned a1, unsigned a2,
                                            unsigned a3, unsigned b0, unsigned b1)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* The same over 16 columns. */
__device__ __forceinline__ void nm_multiply_half(int (&c)[4], unsigned a0, unsigned a1, unsigned b0)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b0));
}

/* Launched over the end of its predecessor, a kernel may read weights, but not activations. */
__device__ __forceinline__ void nm_wait_for_predecessor()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__device__ __forceinline__ void nm_let_successor_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* Register r of the stream of N of 8: bytes 4 r to 4 r + 3, byte s from window s / N. x: the lane's
 * 32 activations of a token, two words a window. selectors: those of registers r and r ^ 1. */
template <int N>
__device__ __forceinline__ unsigned nm_gather(const unsigned (&x)[8], int r, unsigned selector)
{
    const int first = 4 * r / N;
    const int last = (4 * r + 3) / N;
    unsigned word = nm_permute(x[2 * first], x[2 * first + 1], selector);
#pragma unroll
    for (int w = first + 1; w <= last; w++) {
        const int kept = w * N - 4 * r; /* bytes of earlier windows */
        const unsigned other = nm_permute(x[2 * w], x[2 * w + 1], selector);
        word = nm_permute(word, other, kept == 1 ? 0x7650u : kept == 2 ? 0x7610u : 0x7210u);
    }
    return word;
}

/* Selectors of the permutes that expand stored values to a window of 8, from its mask: columns 0 to
 * 3 in the low, 4 to 7 in the high half. A kept column takes the byte of its rank, another one a
 * byte 4 to 7, which are zero. The mask must have 4 bits at most. */
__device__ __forceinline__ unsigned nm_expand_selector(unsigned mask)
{
    unsigned bits = mask; /* one bit a nibble */
    bits = (bits | bits << 12) & 0x000F000Fu;
    bits = (bits | bits << 6) & 0x03030303u;
    bits = (bits | bits << 3) & 0x11111111u;
    const unsigned rank = bits * 0x11111110u; /* kept columns before each */
    return rank | (~bits & 0x11111111u) << 2;
}

/* Window w of the 32 columns of a lane from N stored values each; mask: a byte a window. */
template <int N>
__device__ __forceinline__ void nm_expand(const unsigned (&stream)[N], unsigned mask, int w,
                                          unsigned &low, unsigned &high)
{
    const int from = N * w / 4;
    const int shift = 8 * (N * w % 4);
    const unsigned selector = nm_expand_selector(mask >> (8 * w) & 0xFFu);
    const unsigned next = from + 1 < N ? stream[from + 1] : 0u;
    const unsigned values = shift == 0 ? stream[from] : __funnelshift_r(stream[from], next, shift);
    low = nm_permute(values, 0u, selector);
    high = nm_permute(values, 0u, selector >> 16);
}

/* ---- outputs ---- */

/* What an instance makes of its sums. Branches on what an epilogue lacks are cheap; instructions
 * that are not needed are not: a short launch waits for each of them to come from memory. */
enum { NM_SUMS, NM_LINEAR_OUTPUT, NM_ANY_OUTPUT };

__device__ __forceinline__ float nm_activate(unsigned activation, float v)
{
    if (activation == ESPL_NM_RELU) {
        return fmaxf(v, 0.0f);
    }
    if (activation == ESPL_NM_GELU) {
        /* As in the host's gelu: what is missing to x on the right and all there is on the left. */
        const float tail = 0.5f * fabsf(v) * erfcf(fabsf(v) * 0.70710678f);
        return fmaxf(v, 0.0f) - tail;
    }
    return v;
}

/* Scales and biases of a tile's rows and scales of its tokens. Lanes load them before the products,
 * and put them into shared memory after these. */
template <int TOKENS, int ROWS> struct nm_terms {
    static constexpr int SLOTS = (ROWS * ESPL_NM_STRIPE + NM_WARP - 1) / NM_WARP;
    float scale[SLOTS];
    float bias[SLOTS];
    float token;

    __device__ __forceinline__ void load_rows(const nm_args &args, unsigned first_row,
                                              unsigned lane)
    {
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            const unsigned row = first_row + i * NM_WARP + lane;
            const bool is_there = row < args.rows;
            scale[i] = is_there ? __ldg(args.row_scales + row) : 0.0f;
            bias[i] = is_there && args.bias != nullptr ? __ldg(args.bias + row) : 0.0f;
        }
    }
    __device__ __forceinline__ void load_tokens(const nm_args &args, unsigned first_token,
                                                unsigned lane)
    {
        const unsigned at = first_token + lane;
        const bool is_there = args.token_scales != nullptr && at < args.tokens;
        token = is_there ? args.token_scales[at] : 1.0f; /* may be the predecessor's work */
    }
    __device__ __forceinline__ void publish(float *shared, unsigned lane) const
    {
#pragma unroll
        for (int i = 0; i < SLOTS; i++) {
            shared[i * NM_WARP + lane] = scale[i];
            shared[NM_TERM_ROWS + i * NM_WARP + lane] = bias[i];
        }
        shared[2 * NM_TERM_ROWS + lane] = token;
    }
};

template <int MODE>
__device__ __forceinline__ float nm_value(const nm_args &args, int sum, float row_scale, float bias,
                                          float token_scale)
{
    float v = __fmul_rn(__int2float_rn(sum), __fmul_rn(row_scale, token_scale));
    v = args.bias != nullptr ? __fadd_rn(v, bias) : v;
    return MODE == NM_ANY_OUTPUT ? nm_activate(args.activation, v) : v;
}

/* A float32 from 1.5 x 2^23 on counts in ones: adding it rounds to the nearest integer, ties to
 * even, and leaves that in the low bits. Conversion instructions would be slower. */
__device__ __forceinline__ unsigned nm_code(const nm_args &args, float v)
{
    const float code = fminf(fmaxf(__fmul_rn(v, args.multiplier), -128.0f), 127.0f);
    return __float_as_uint(__fadd_rn(code, 12582912.0f));
}

/* The lowest bytes of four words. */
__device__ __forceinline__ unsigned nm_pack(unsigned a, unsigned b, unsigned c, unsigned d)
{
    return nm_permute(nm_permute(a, b, 0x0040u), nm_permute(c, d, 0x0040u), 0x5410u);
}

/* Up to `count` elements one by one. */
template <typename ELEMENT, typename WORDS>
__device__ __forceinline__ void nm_store_some(ELEMENT *y, const WORDS &words, unsigned count)
{
    const ELEMENT *from = reinterpret_cast<const ELEMENT *>(&words);
#pragma unroll
    for (unsigned i = 0; i < 4; i++) {
        if (i < count) {
            y[i] = from[i];
        }
    }
}

/* Four sums of a token to y; terms: those of the tile in shared memory, at the token (token_scale)
 * and the row (scale, bias). */
template <int MODE>
__device__ __forceinline__ void nm_store(const nm_args &args, unsigned token, unsigned row,
                                         int4 sums, const float *row_terms, const float *token_term)
{
    if (token >= args.tokens || row >= args.rows) {
        return;
    }
    const size_t at = (size_t)token * args.y_stride + row;
    const unsigned left = args.rows - row;
    if constexpr (MODE == NM_SUMS) {
        int *y = static_cast<int *>(args.y) + at;
        if (args.whole) {
            *reinterpret_cast<int4 *>(y) = sums;
        } else {
            nm_store_some(y, sums, left);
        }
    } else {
        const float4 scale = *reinterpret_cast<const float4 *>(row_terms);
        const float4 bias = *reinterpret_cast<const float4 *>(row_terms + NM_TERM_ROWS);
        const float v[4] = {nm_value<MODE>(args, sums.x, scale.x, bias.x, *token_term),
                            nm_value<MODE>(args, sums.y, scale.y, bias.y, *token_term),
                            nm_value<MODE>(args, sums.z, scale.z, bias.z, *token_term),
                            nm_value<MODE>(args, sums.w, scale.w, bias.w, *token_term)};
        if (args.output == ESPL_NM_FP16) {
            const __half2 low = __floats2half2_rn(v[0], v[1]);
            const __half2 high = __floats2half2_rn(v[2], v[3]);
            const uint2 words = make_uint2(reinterpret_cast<const unsigned &>(low),
                                           reinterpret_cast<const unsigned &>(high));
            unsigned short *y = static_cast<unsigned short *>(args.y) + at;
            if (args.whole) {
                *reinterpret_cast<uint2 *>(y) = words;
            } else {
                nm_store_some(y, words, left);
            }
        } else {
            const unsigned word = nm_pack(nm_code(args, v[0]), nm_code(args, v[1]),
                                          nm_code(args, v[2]), nm_code(args, v[3]));
            unsigned char *y = static_cast<unsigned char *>(args.y) + at;
            if (args.whole) {
                *reinterpret_cast<unsigned *>(y) = word;
            } else {
                nm_store_some(y, word, left);
            }
        }
    }
}

#endif
