/* The decoding of spmm_decode.cuh for the INT4 matrix instruction: fragments of 8 nibbles a
 * register, 64 columns a product, nothing is expanded to bytes. A register of x as it is packed
 * holds columns 8 t + i of a block in its low nibbles and 8 t + 4 + i in its high ones; fragments
 * of weights follow it. */
#ifndef ESPL_CUDA_SPMM_DECODE_INT4_CUH
#define ESPL_CUDA_SPMM_DECODE_INT4_CUH

#include "kernels/cuda/spmm_decode.cuh"

/* Nibbles for this instruction: selectors of positions 0-3, and of 4-7. Byte 7 of the permutes'
 * sources has a clear top bit: its sign (selector 15) is the 0 of positions without a one. */
struct clear_nibble_table {
    static __device__ __forceinline__ unsigned selectors(unsigned mask)
    {
        return selectors_of<true, 15>(mask);
    }
    static __device__ __forceinline__ uint2 entry(unsigned selectors, unsigned)
    {
        return make_uint2(selectors, selectors >> 16);
    }
};

template <espl_iebme_areas UNIT> struct int4_table {
    using type = std::conditional_t<UNIT == ESPL_IEBME_1X1, clear_nibble_table, byte_table>;
};

/* Eight nibbles to one fragment register. The permutes leave what is beside a nibble in its byte.
 */
__device__ __forceinline__ unsigned spread_eight(unsigned window, uint2 entry)
{
    const unsigned odd = window >> 4;
    const unsigned first = permute(window, odd, entry.x);
    const unsigned last = permute(window, odd, entry.y);
    return join_nibbles(first, last << 4);
}

/* int32 sums over a chunk. Decoders call multiply() once for every 64 columns, in ascending order,
 * with the four registers of a fragment; x: the two of theirs. */
template <int TILES> struct int4_sums {
    const uint2 (&x)[8][TILES];
    int (&acc)[TILES][4];

    __device__ __forceinline__ void multiply(int pair, unsigned a0, unsigned a1, unsigned a2,
                                             unsigned a3)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            spmm_mma_int4(acc[j], a0, a1, a2, a3, x[pair][j].x, x[pair][j].y);
        }
    }
};

/* x of 64 columns, two blocks, for weights of the given areas. 1x2: its bytes hold columns k and
 * k + 32; they are fragments as they stand when those of x are the same pairs. */
template <espl_iebme_areas UNIT>
__device__ __forceinline__ uint2 pair_activations(unsigned block, unsigned next)
{
    return UNIT == ESPL_IEBME_1X2
               ? make_uint2(join_nibbles(block, next << 4), join_nibbles(block >> 4, next))
               : make_uint2(block, next);
}

/* 1x1. A mask word: two blocks, in each row g then row g + 8. */
template <int TILES>
__device__ __forceinline__ void decode_single_int4(unsigned masks, int pair, table_place place,
                                                   lane_stream &s, int4_sums<TILES> &sums)
{
    const unsigned n1 = bits_before<1>(masks);
    const unsigned n2 = bits_before<2>(masks);
    const unsigned n3 = bits_before<3>(masks);
    unsigned low, high;
    stream_window<1, 0>(s, 0, low, high);
    const unsigned a0 = spread_eight(low, look_up<0>(masks, place));
    const unsigned a1 = spread_eight(__funnelshift_rc(low, high, 4 * n1), look_up<1>(masks, place));
    stream_window<1, 0>(s, n2, low, high);
    const unsigned a2 = spread_eight(low, look_up<2>(masks, place));
    const unsigned a3 =
        spread_eight(__funnelshift_rc(low, high, 4 * (n3 - n2)), look_up<3>(masks, place));
    sums.multiply(pair, a0, a1, a2, a3);
    stream_skip<1>(s, __popc(masks));
}

/* The pairs of byte BYTE of a word of masks, whose stream starts `skip` positions from here. */
template <int STREAMS, int WHICH, int BYTE>
__device__ __forceinline__ uint2 decode_pairs(unsigned masks, unsigned skip, table_place place,
                                              const lane_stream &s)
{
    unsigned low, high;
    stream_window<STREAMS, WHICH>(s, 2 * skip, low, high);
    return spread_pairs(low, high, look_up<BYTE>(masks, place));
}

/* 1x2. A mask word: two blocks of 64, in each row g then row g + 8. */
template <int TILES>
__device__ __forceinline__ void decode_columns_int4(unsigned masks, int pair, table_place place,
                                                    lane_stream &s, int4_sums<TILES> &sums)
{
    uint2 near = decode_pairs<1, 0, 0>(masks, 0, place, s);
    uint2 far = decode_pairs<1, 0, 1>(masks, bits_before<1>(masks), place, s);
    sums.multiply(pair, near.x, far.x, near.y, far.y);
    near = decode_pairs<1, 0, 2>(masks, bits_before<2>(masks), place, s);
    far = decode_pairs<1, 0, 3>(masks, bits_before<3>(masks), place, s);
    sums.multiply(pair + 1, near.x, far.x, near.y, far.y);
    stream_skip<1>(s, 2 * __popc(masks));
}

/* Two blocks whose bytes hold rows g and g + 8. */
template <int TILES>
__device__ __forceinline__ void multiply_rows(uint2 block, uint2 next, int pair,
                                              int4_sums<TILES> &sums)
{
    sums.multiply(pair, join_nibbles(block.x, block.y << 4), join_nibbles(block.x >> 4, block.y),
                  join_nibbles(next.x, next.y << 4), join_nibbles(next.x >> 4, next.y));
}

/* 2x1: a mask byte is a block. */
template <int TILES>
__device__ __forceinline__ void decode_rows_int4(unsigned masks, int pair, table_place place,
                                                 lane_stream &s, int4_sums<TILES> &sums)
{
    uint2 block = decode_pairs<1, 0, 0>(masks, 0, place, s);
    uint2 next = decode_pairs<1, 0, 1>(masks, bits_before<1>(masks), place, s);
    multiply_rows(block, next, pair, sums);
    block = decode_pairs<1, 0, 2>(masks, bits_before<2>(masks), place, s);
    next = decode_pairs<1, 0, 3>(masks, bits_before<3>(masks), place, s);
    multiply_rows(block, next, pair + 1, sums);
    stream_skip<1>(s, 2 * __popc(masks));
}

/* 2x2: byte BYTE of a mask word is a block of 64, whose halves have a stream each. */
template <int BYTE, int TILES>
__device__ __forceinline__ void decode_squares_int4(unsigned masks, int pair, table_place place,
                                                    const lane_stream &s, int4_sums<TILES> &sums)
{
    const unsigned skip = bits_before<BYTE>(masks);
    multiply_rows(decode_pairs<2, 0, BYTE>(masks, skip, place, s),
                  decode_pairs<2, 1, BYTE>(masks, skip, place, s), pair, sums);
}

template <int TILES>
__device__ __forceinline__ void decode_squares_word_int4(unsigned masks, int pair,
                                                         table_place place, lane_stream &s,
                                                         int4_sums<TILES> &sums)
{
    decode_squares_int4<0>(masks, pair, place, s, sums);
    decode_squares_int4<1>(masks, pair + 1, place, s, sums);
    decode_squares_int4<2>(masks, pair + 2, place, s, sums);
    decode_squares_int4<3>(masks, pair + 3, place, s, sums);
    stream_skip<2>(s, 2 * __popc(masks));
}

/* A whole chunk at shared address `chunk`, a multiple of 256. */
template <espl_iebme_areas UNIT, int TILES>
__device__ __forceinline__ void decode_chunk_int4(unsigned chunk, unsigned lane, table_place place,
                                                  int4_sums<TILES> &sums)
{
    lane_stream s = {chunk + chunk_masks<UNIT>::BYTES, 0, lane * 4};
    if (UNIT == ESPL_IEBME_1X1) {
#pragma unroll
        for (int q = 0; q < 2; q++) {
            const uint4 m = load_quad(chunk + q * 512 + lane * 16);
            decode_single_int4(m.x, 4 * q, place, s, sums);
            decode_single_int4(m.y, 4 * q + 1, place, s, sums);
            decode_single_int4(m.z, 4 * q + 2, place, s, sums);
            decode_single_int4(m.w, 4 * q + 3, place, s, sums);
        }
    } else if (UNIT == ESPL_IEBME_1X2) {
        const uint4 m = load_quad(chunk + lane * 16);
        decode_columns_int4(m.x, 0, place, s, sums);
        decode_columns_int4(m.y, 2, place, s, sums);
        decode_columns_int4(m.z, 4, place, s, sums);
        decode_columns_int4(m.w, 6, place, s, sums);
    } else if (UNIT == ESPL_IEBME_2X1) {
        const uint4 m = load_quad(chunk + lane * 16);
        decode_rows_int4(m.x, 0, place, s, sums);
        decode_rows_int4(m.y, 2, place, s, sums);
        decode_rows_int4(m.z, 4, place, s, sums);
        decode_rows_int4(m.w, 6, place, s, sums);
    } else {
        const uint2 m = load_pair(chunk + lane * 8);
        decode_squares_word_int4(m.x, 0, place, s, sums);
        decode_squares_word_int4(m.y, 4, place, s, sums);
    }
}

#endif
