/* From an encoded chunk in shared memory to MMA fragments in registers (docs/formats/ie-bme.md,
 * device layout). A lane reads its own stream; masks say how far. No lane waits for another.
 *
 * A segment is 8 mask positions. A table with one entry a mask holds the selectors of two byte
 * permutes that put the next stored values where the mask has ones; places without a one take slot
 * 7, which no value needs unless the mask is full. The table is replicated for all 32 lanes, so
 * that lanes with different masks never meet in a bank. */
#ifndef ESPL_CUDA_SPMM_DECODE_CUH
#define ESPL_CUDA_SPMM_DECODE_CUH

#include "espalier/iebme.h"
#include "kernels/cuda/shared_memory.cuh"
#include "kernels/cuda/spmm_args.cuh"

#include <type_traits>

enum { TABLE_MASKS = 256, TABLE_BYTES = TABLE_MASKS * SPMM_WARP * 8 };

constexpr unsigned SPMM_HIGH_NIBBLES = 0xF0F0F0F0u;

/* Byte permute whose selector is known to have no sign bits: __byte_perm() would clear them. */
__device__ __forceinline__ unsigned permute(unsigned low, unsigned high, unsigned selector)
{
    unsigned v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(low), "r"(high), "r"(selector));
    return v;
}

__device__ __forceinline__ uint2 load_pair(unsigned address)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
    return v;
}

/* Selector nibbles of the 8 positions of a mask: those with a one take the slots of stored values
 * in their order, the others slot NOTHING. SPLIT: nibbles that were split into even (slots 0-3) and
 * odd ones (slots 4-7); else bytes as they are stored. */
template <bool SPLIT, unsigned NOTHING>
__device__ __forceinline__ unsigned selectors_of(unsigned mask)
{
    unsigned rank = 0;
    unsigned selectors = 0;
#pragma unroll
    for (unsigned i = 0; i < 8; i++) {
        const unsigned bit = mask >> i & 1u;
        const unsigned slot = SPLIT ? (rank & 1u) * 4 + rank / 2 : rank;
        selectors |= (bit != 0 ? slot : NOTHING) << 4 * i;
        rank += bit;
    }
    return selectors;
}

/* Entries of tables: two words for a mask. Positions without a one take slot 7, which must be
 * cleared unless the mask is full. */

/* Nibbles: selectors of all 8 positions; what to keep of the odd nibbles. */
struct nibble_table {
    static __device__ __forceinline__ unsigned selectors(unsigned mask)
    {
        return selectors_of<true, 7>(mask);
    }
    static __device__ __forceinline__ uint2 entry(unsigned selectors, unsigned mask)
    {
        return make_uint2(selectors, SPMM_HIGH_NIBBLES & (mask == 255 ? 0xFFFFFFFFu : 0x00FFFFFFu));
    }
};

/* Bytes: selectors of positions 0-3; selectors of positions 4-7 and, in the top byte, what to keep
 * of slot 7. */
struct byte_table {
    static __device__ __forceinline__ unsigned selectors(unsigned mask)
    {
        return selectors_of<false, 7>(mask);
    }
    static __device__ __forceinline__ uint2 entry(unsigned selectors, unsigned mask)
    {
        return make_uint2(selectors, selectors >> 16 | (mask == 255 ? 0xFF000000u : 0u));
    }
};

/* All threads; table (256 masks, 32 lanes). A barrier must follow. Every lane works out an entry:
 * loading them would take as long as a look into memory takes, since nothing keeps them cached. */
template <class TABLE> __device__ __forceinline__ void build_table(uint8_t *table)
{
    constexpr unsigned AT_ONCE = 16;
    const unsigned lane = threadIdx.x % SPMM_WARP;
    const unsigned warps = blockDim.x / SPMM_WARP;
    for (unsigned first = threadIdx.x / SPMM_WARP * AT_ONCE; first < TABLE_MASKS;
         first += warps * AT_ONCE) {
        const unsigned mine = TABLE::selectors(first + lane % AT_ONCE);
        uint2 *to = reinterpret_cast<uint2 *>(table) + first * SPMM_WARP + lane;
#pragma unroll
        for (unsigned i = 0; i < AT_ONCE; i++) {
            to[i * SPMM_WARP] = TABLE::entry(__shfl_sync(0xFFFFFFFFu, mine, (int)i), first + i);
        }
    }
}

/* Where this lane's table entries are: byte 1 of the offset of one is its mask. */
struct table_place {
    const uint8_t *table;
    unsigned lane_bytes; /* 8 x lane */
};

/* Entry of byte BYTE of masks. */
template <int BYTE> __device__ __forceinline__ uint2 look_up(unsigned masks, table_place place)
{
    const unsigned offset = __byte_perm(masks, place.lane_bytes, 0x7604u | BYTE << 4);
    return *reinterpret_cast<const uint2 *>(place.table + offset);
}

/* Ones in the bytes of masks below BYTE. A shift, not a mask: it can use the pipe of products. */
template <int BYTE> __device__ __forceinline__ unsigned bits_before(unsigned masks)
{
    return BYTE == 0 ? 0 : (unsigned)__popc(masks << (32 - 8 * BYTE) % 32);
}

/* The stream of a lane. `bit` counts 4 a nibble; funnel shifts use its low five bits. `at` counts
 * so that a whole word is a row of 128 bytes (256 with two streams, which alternate): its multiples
 * of that are the addresses of rows. */
struct lane_stream {
    unsigned at;
    unsigned bit;
    unsigned lane_bytes;
};

__device__ __forceinline__ unsigned load_word(unsigned address)
{
    unsigned v;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
    return v;
}

/* 64 bits of stream WHICH of STREAMS from `skip` nibbles on. */
template <int STREAMS, int WHICH>
__device__ __forceinline__ void stream_window(const lane_stream &s, unsigned skip, unsigned &low,
                                              unsigned &high)
{
    constexpr unsigned STEP = STREAMS * SPMM_ROW;
    const unsigned row = ((s.at + STEP / 8 * skip) & ~(STEP - 1u)) | s.lane_bytes;
    const unsigned bit = s.bit + 4 * skip;
    const unsigned w0 = load_word(row + WHICH * SPMM_ROW);
    const unsigned w1 = load_word(row + WHICH * SPMM_ROW + STEP);
    const unsigned w2 = load_word(row + WHICH * SPMM_ROW + 2 * STEP);
    low = __funnelshift_r(w0, w1, bit);
    high = __funnelshift_r(w1, w2, bit);
}

template <int STREAMS> __device__ __forceinline__ void stream_skip(lane_stream &s, unsigned nibbles)
{
    s.at += STREAMS * SPMM_ROW / 8 * nibbles;
    s.bit += 4 * nibbles;
}

/* Eight nibbles to two fragment registers (columns 0-3 and 4-7). */
__device__ __forceinline__ void spread_nibbles(nibble_table, unsigned window, uint2 entry,
                                               unsigned &first, unsigned &last)
{
    const unsigned even = window << 4 & SPMM_HIGH_NIBBLES;
    const unsigned odd = window & entry.y;
    first = permute(even, odd, entry.x);
    last = permute(even, odd, entry.x >> 16);
}

/* Eight bytes, a pair of values each, to the positions of a mask. */
__device__ __forceinline__ uint2 spread_pairs(unsigned low, unsigned high, uint2 entry)
{
    high &= entry.y | 0x00FFFFFFu;
    return make_uint2(permute(low, high, entry.x), permute(low, high, entry.y));
}

/* Eight nibbles with a table for bytes: they become bytes first. */
__device__ __forceinline__ void spread_nibbles(byte_table, unsigned window, uint2 entry,
                                               unsigned &first, unsigned &last)
{
    const unsigned even = window << 4 & SPMM_HIGH_NIBBLES;
    const unsigned odd = window & SPMM_HIGH_NIBBLES;
    const uint2 spread =
        spread_pairs(permute(even, odd, 0x5140u), permute(even, odd, 0x7362u), entry);
    first = spread.x;
    last = spread.y;
}

/* Eight pairs as four registers: the low nibbles and the high ones. */
struct pair_fragments {
    unsigned low_first, low_last, high_first, high_last;
};

__device__ __forceinline__ pair_fragments spread_bytes(unsigned low, unsigned high, uint2 entry)
{
    const uint2 pairs = spread_pairs(low, high, entry);
    pair_fragments f;
    f.low_first = pairs.x << 4 & SPMM_HIGH_NIBBLES;
    f.low_last = pairs.y << 4 & SPMM_HIGH_NIBBLES;
    f.high_first = pairs.x & SPMM_HIGH_NIBBLES;
    f.high_last = pairs.y & SPMM_HIGH_NIBBLES;
    return f;
}

/* Where decoded fragments go: int32 sums over a whole chunk. Decoders call multiply() once a block
 * of 32 columns, in ascending order, with the fragments of rows g and g + 8. */
template <int TILES> struct plain_sums {
    const uint2 (&x)[16][TILES];
    int (&acc)[TILES][4];

    __device__ __forceinline__ void multiply(int block, unsigned a0, unsigned a1, unsigned a2,
                                             unsigned a3)
    {
#pragma unroll
        for (int j = 0; j < TILES; j++) {
            spmm_mma(acc[j], a0, a1, a2, a3, x[block][j].x, x[block][j].y);
        }
    }
};

/* 1x1. A mask word: two blocks, in each row g then row g + 8. */
template <class TABLE, class SUMS>
__device__ __forceinline__ void decode_single(unsigned masks, int block, table_place place,
                                              lane_stream &s, SUMS &sums)
{
    const unsigned n1 = bits_before<1>(masks);
    const unsigned n2 = bits_before<2>(masks);
    const unsigned n3 = bits_before<3>(masks);
    unsigned low, high, a0, a1, a2, a3;
    stream_window<1, 0>(s, 0, low, high);
    spread_nibbles(TABLE(), low, look_up<0>(masks, place), a0, a2);
    spread_nibbles(TABLE(), __funnelshift_rc(low, high, 4 * n1), look_up<1>(masks, place), a1, a3);
    sums.multiply(block, a0, a1, a2, a3);
    stream_window<1, 0>(s, n2, low, high);
    spread_nibbles(TABLE(), low, look_up<2>(masks, place), a0, a2);
    spread_nibbles(TABLE(), __funnelshift_rc(low, high, 4 * (n3 - n2)), look_up<3>(masks, place),
                   a1, a3);
    sums.multiply(block + 1, a0, a1, a2, a3);
    const unsigned n4 = __popc(masks);
    stream_skip<1>(s, n4);
}

/* 1x2. A segment: one row, columns k and k + 32 of a block of 64 in one byte. A mask word: two
 * blocks of 64, in each row g then row g + 8. */
template <class SUMS>
__device__ __forceinline__ void decode_columns(unsigned masks, int block, table_place place,
                                               lane_stream &s, SUMS &sums)
{
    const unsigned n1 = bits_before<1>(masks);
    const unsigned n2 = bits_before<2>(masks);
    const unsigned n3 = bits_before<3>(masks);
    const unsigned n4 = __popc(masks);
    unsigned low, high;
    stream_window<1, 0>(s, 0, low, high);
    pair_fragments near = spread_bytes(low, high, look_up<0>(masks, place));
    stream_window<1, 0>(s, 2 * n1, low, high);
    pair_fragments far = spread_bytes(low, high, look_up<1>(masks, place));
    sums.multiply(block, near.low_first, far.low_first, near.low_last, far.low_last);
    sums.multiply(block + 1, near.high_first, far.high_first, near.high_last, far.high_last);
    stream_window<1, 0>(s, 2 * n2, low, high);
    near = spread_bytes(low, high, look_up<2>(masks, place));
    stream_window<1, 0>(s, 2 * n3, low, high);
    far = spread_bytes(low, high, look_up<3>(masks, place));
    sums.multiply(block + 2, near.low_first, far.low_first, near.low_last, far.low_last);
    sums.multiply(block + 3, near.high_first, far.high_first, near.high_last, far.high_last);
    stream_skip<1>(s, 2 * n4);
}

/* One segment of rows g and g + 8 in one byte. */
template <int STREAMS, int WHICH, class SUMS>
__device__ __forceinline__ void decode_rows_segment(unsigned skip, int block, uint2 entry,
                                                    const lane_stream &s, SUMS &sums)
{
    unsigned low, high;
    stream_window<STREAMS, WHICH>(s, 2 * skip, low, high);
    const pair_fragments f = spread_bytes(low, high, entry);
    sums.multiply(block, f.low_first, f.high_first, f.low_last, f.high_last);
}

/* 2x1 (STREAMS = 1): a mask byte is a block. 2x2 (STREAMS = 2): a mask byte is a block of 64, whose
 * two halves have a stream each. */
template <int STREAMS, int BYTE, class SUMS>
__device__ __forceinline__ void decode_rows(unsigned masks, int block, table_place place,
                                            const lane_stream &s, SUMS &sums)
{
    const unsigned skip = bits_before<BYTE>(masks);
    const uint2 entry = look_up<BYTE>(masks, place);
    decode_rows_segment<STREAMS, 0>(skip, block, entry, s, sums);
    if (STREAMS == 2) {
        decode_rows_segment<STREAMS, STREAMS - 1>(skip, block + 1, entry, s, sums);
    }
}

template <int STREAMS, class SUMS>
__device__ __forceinline__ void decode_rows_word(unsigned masks, int block, table_place place,
                                                 lane_stream &s, SUMS &sums)
{
    decode_rows<STREAMS, 0>(masks, block, place, s, sums);
    decode_rows<STREAMS, 1>(masks, block + STREAMS, place, s, sums);
    decode_rows<STREAMS, 2>(masks, block + 2 * STREAMS, place, s, sums);
    decode_rows<STREAMS, 3>(masks, block + 3 * STREAMS, place, s, sums);
    stream_skip<STREAMS>(s, 2 * __popc(masks));
}

/* Mask bytes of a chunk of 16 x 512: one bit for every Q weights; and the table that decodes it. */
template <espl_iebme_areas UNIT> struct chunk_masks {
    static constexpr unsigned Q = UNIT == ESPL_IEBME_1X1 ? 1 : UNIT == ESPL_IEBME_2X2 ? 4 : 2;
    static constexpr unsigned BYTES = SPMM_STRIPE * SPMM_SLICE / 8 / Q;
    using table = std::conditional_t<UNIT == ESPL_IEBME_1X1, nibble_table, byte_table>;
};

/* 16 x 512 dense weights: word 2 block + (row g + 8), byte i: column 8 t + i low, 8 t + 4 + i high.
 */
template <class SUMS>
__device__ __forceinline__ void decode_dense(unsigned chunk, unsigned lane, SUMS &sums)
{
    constexpr unsigned HIGH = SPMM_HIGH_NIBBLES;
#pragma unroll
    for (int q = 0; q < 8; q++) {
        const uint4 v = load_quad(chunk + q * 512 + lane * 16);
        sums.multiply(2 * q, v.x << 4 & HIGH, v.y << 4 & HIGH, v.x & HIGH, v.y & HIGH);
        sums.multiply(2 * q + 1, v.z << 4 & HIGH, v.w << 4 & HIGH, v.z & HIGH, v.w & HIGH);
    }
}

/* A whole chunk at shared address `chunk`, a multiple of 256. */
template <espl_iebme_areas UNIT, class TABLE, class SUMS>
__device__ __forceinline__ void decode_chunk(unsigned chunk, unsigned lane, table_place place,
                                             SUMS &sums)
{
    constexpr unsigned MASK_BYTES = chunk_masks<UNIT>::BYTES;
    lane_stream s = {chunk + MASK_BYTES, 0, lane * 4};
    if (UNIT == ESPL_IEBME_DENSE) {
        decode_dense(chunk, lane, sums);
    } else if (UNIT == ESPL_IEBME_1X1) {
#pragma unroll
        for (int q = 0; q < 2; q++) {
            const uint4 m = load_quad(chunk + q * 512 + lane * 16);
            decode_single<TABLE>(m.x, 8 * q, place, s, sums);
            decode_single<TABLE>(m.y, 8 * q + 2, place, s, sums);
            decode_single<TABLE>(m.z, 8 * q + 4, place, s, sums);
            decode_single<TABLE>(m.w, 8 * q + 6, place, s, sums);
        }
    } else if (UNIT == ESPL_IEBME_1X2) {
        const uint4 m = load_quad(chunk + lane * 16);
        decode_columns(m.x, 0, place, s, sums);
        decode_columns(m.y, 4, place, s, sums);
        decode_columns(m.z, 8, place, s, sums);
        decode_columns(m.w, 12, place, s, sums);
    } else if (UNIT == ESPL_IEBME_2X1) {
        const uint4 m = load_quad(chunk + lane * 16);
        decode_rows_word<1>(m.x, 0, place, s, sums);
        decode_rows_word<1>(m.y, 4, place, s, sums);
        decode_rows_word<1>(m.z, 8, place, s, sums);
        decode_rows_word<1>(m.w, 12, place, s, sums);
    } else {
        const uint2 m = load_pair(chunk + lane * 8);
        decode_rows_word<2>(m.x, 0, place, s, sums);
        decode_rows_word<2>(m.y, 8, place, s, sums);
    }
}

#endif
