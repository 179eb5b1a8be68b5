/* From a mask row and packed values to a row of bytes: the inner loop of every decoder. Four ways
 * with one result: plain C eight values at a time, BMI2 bit deposit, AVX-512 byte expansion, and
 * table look-ups with NEON. */
#include "kernels/formats/iebme_internal.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define EVERY_BYTE UINT64_C(0x0101010101010101)

/* Up to 64 bits from a bit position on; bits behind the end are 0. With codes of 2 and 4 bits the
 * first is followed by at least 57 - 7 more, which is more than eight codes take. */
static inline uint64_t load_bits(const struct espl_iebme_stream *stream, uint64_t first)
{
    const uint64_t bit = first * stream->bits;
    const size_t at = (size_t)(bit / 8);
    uint64_t word = 0;
    if (at + sizeof word <= stream->size) {
        memcpy(&word, stream->bytes + at, sizeof word);
    } else if (at < stream->size) {
        memcpy(&word, stream->bytes + at, stream->size - at);
    }
    return word >> (bit % 8);
}

/* Sign extension of eight `bits`-wide fields, one in the low end of each byte, without carries. */
static inline uint64_t extend_signs(uint64_t fields, unsigned bits)
{
    const uint64_t half = UINT64_C(1) << (bits - 1u);
    return ((fields ^ half * EVERY_BYTE) + (0x80u - half) * EVERY_BYTE) ^ 0x80u * EVERY_BYTE;
}

/* The first eight packed codes of a word, one a byte. */
static inline uint64_t spread_plain(uint64_t word, unsigned bits)
{
    if (bits == 8) {
        return word;
    }
    if (bits == 4) {
        word &= UINT64_C(0xFFFFFFFF);
        word = (word | word << 16) & UINT64_C(0x0000FFFF0000FFFF);
        word = (word | word << 8) & UINT64_C(0x00FF00FF00FF00FF);
        word = (word | word << 4) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    } else {
        word &= UINT64_C(0xFFFF);
        word = (word | word << 24) & UINT64_C(0x000000FF000000FF);
        word = (word | word << 12) & UINT64_C(0x000F000F000F000F);
        word = (word | word << 6) & UINT64_C(0x0303030303030303);
    }
    return extend_signs(word, bits);
}

static void expand_plain(const struct espl_iebme_stream *stream, uint64_t first, uint64_t mask,
                         unsigned width, int8_t *out)
{
    for (unsigned c = 0; c < width; c += 8) {
        unsigned eight = (unsigned)(mask >> c) & 0xFFu;
        uint64_t bytes = spread_plain(load_bits(stream, first), stream->bits);
        uint64_t placed = 0;
        first += (unsigned)__builtin_popcount(eight);
        if (eight == 0xFFu) {
            placed = bytes;
            eight = 0;
        }
        while (eight != 0) {
            placed |= (bytes & 0xFFu) << (8 * (unsigned)__builtin_ctz(eight));
            bytes >>= 8;
            eight &= eight - 1;
        }
        memcpy(out + c, &placed, sizeof placed);
    }
}

#if defined(__x86_64__)
__attribute__((target("bmi2,popcnt"))) static void
expand_bmi2(const struct espl_iebme_stream *stream, uint64_t first, uint64_t mask, unsigned width,
            int8_t *out)
{
    const unsigned bits = stream->bits;
    const uint64_t low = ((1u << bits) - 1u) * EVERY_BYTE;
    for (unsigned c = 0; c < width; c += 8) {
        const uint64_t eight = mask >> c & 0xFFu;
        const uint64_t word = load_bits(stream, first);
        const uint64_t bytes = bits == 8 ? word : extend_signs(_pdep_u64(word, low), bits);
        const uint64_t places = _pdep_u64(eight, EVERY_BYTE) * 0xFFu;
        const uint64_t placed = _pdep_u64(bytes, places);
        memcpy(out + c, &placed, sizeof placed);
        first += (unsigned)__builtin_popcountll(eight);
    }
}

#define ESPL_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi2,popcnt,bmi2")))

/* Masks of the first `count` of 64 and of 32 bytes, for loads that stay inside the stream. */
static inline uint64_t first_bytes(size_t count)
{
    return count >= 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1;
}

/* The next 64 codes, one a byte. Codes of 4 bits come as 32 bytes in 16-bit lanes, of 2 bits as 16
 * bytes in 32-bit lanes; the byte after each is merged in where the first code is not at bit 0. */
ESPL_AVX512 static inline __m512i load_codes(const struct espl_iebme_stream *stream, uint64_t first)
{
    const uint64_t bit = first * stream->bits;
    const size_t at = (size_t)(bit / 8);
    const size_t left = at < stream->size ? stream->size - at : 0;
    const size_t left_after = left > 0 ? left - 1 : 0;
    const uint8_t *bytes = stream->bytes + (left > 0 ? at : 0);
    const uint8_t *after = bytes + (left > 0 ? 1 : 0);
    const __m128i shift = _mm_cvtsi32_si128((int)(bit % 8));
    const __m128i back = _mm_cvtsi32_si128(8 - (int)(bit % 8));
    if (stream->bits == 8) {
        return _mm512_maskz_loadu_epi8(first_bytes(left), bytes);
    }
    const __m512i half = _mm512_set1_epi8((char)(1 << (stream->bits - 1u)));
    __m512i codes;
    if (stream->bits == 4) {
        const __m512i lanes =
            _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8((__mmask32)first_bytes(left), bytes));
        const __m512i next = _mm512_cvtepu8_epi16(
            _mm256_maskz_loadu_epi8((__mmask32)first_bytes(left_after), after));
        const __m512i eight = _mm512_and_si512(
            _mm512_or_si512(_mm512_srl_epi16(lanes, shift), _mm512_sll_epi16(next, back)),
            _mm512_set1_epi16(0xFF));
        codes = _mm512_and_si512(_mm512_or_si512(eight, _mm512_slli_epi16(eight, 4)),
                                 _mm512_set1_epi8(0x0F));
    } else {
        const __m512i lanes =
            _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8((__mmask16)first_bytes(left), bytes));
        const __m512i next =
            _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8((__mmask16)first_bytes(left_after), after));
        const __m512i eight = _mm512_and_si512(
            _mm512_or_si512(_mm512_srl_epi32(lanes, shift), _mm512_sll_epi32(next, back)),
            _mm512_set1_epi32(0xFF));
        const __m512i pairs = _mm512_or_si512(eight, _mm512_slli_epi32(eight, 12));
        codes = _mm512_and_si512(_mm512_or_si512(pairs, _mm512_slli_epi32(pairs, 6)),
                                 _mm512_set1_epi8(0x03));
    }
    return _mm512_sub_epi8(_mm512_xor_si512(codes, half), half);
}

ESPL_AVX512 static void expand_avx512(const struct espl_iebme_stream *stream, uint64_t first,
                                      uint64_t mask, unsigned width, int8_t *out)
{
    const __m512i placed = _mm512_maskz_expand_epi8(mask, load_codes(stream, first));
    if (width == 64) {
        _mm512_storeu_si512(out, placed);
    } else {
        _mm512_mask_storeu_epi8(out, first_bytes(width), placed);
    }
}
#endif

#if defined(__aarch64__)
/* A byte of the result is the code whose number is the count of mask bits below it: a sum over the
 * bytes of the spread mask, which one multiplication gives. Look-ups out of range are 0. */
static void expand_neon(const struct espl_iebme_stream *stream, uint64_t first, uint64_t mask,
                        unsigned width, int8_t *out)
{
    const uint8x8_t place = vcreate_u8(UINT64_C(0x8040201008040201));
    const uint8x8_t one = vdup_n_u8(1);
    for (unsigned c = 0; c < width; c += 8) {
        const uint8x8_t there = vtst_u8(vdup_n_u8((uint8_t)(mask >> c)), place);
        const uint64_t spread = vget_lane_u64(vreinterpret_u64_u8(vand_u8(there, one)), 0);
        const uint64_t counts = spread * EVERY_BYTE; /* ones up to and with each byte */
        const uint8x8_t number = vorn_u8(vsub_u8(vcreate_u8(counts), one), there);
        const int8x8_t codes = vcreate_s8(spread_plain(load_bits(stream, first), stream->bits));
        vst1_s8(out + c, vtbl1_s8(codes, vreinterpret_s8_u8(number)));
        first += counts >> 56;
    }
}
#endif

espl_iebme_expand_fn *espl_iebme_expander(enum espl_iebme_path path)
{
    if (path == ESPL_IEBME_PLAIN) {
        return expand_plain;
    }
#if defined(__x86_64__)
    /* Zen 1 and 2 have bit deposit in microcode, slower than plain C. */
    if (path == ESPL_IEBME_BMI2 && __builtin_cpu_supports("bmi2") && !__builtin_cpu_is("znver1") &&
        !__builtin_cpu_is("znver2")) {
        return expand_bmi2;
    }
    if (path == ESPL_IEBME_AVX512 && __builtin_cpu_supports("avx512vbmi2") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
        return expand_avx512;
    }
#elif defined(__aarch64__)
    if (path == ESPL_IEBME_NEON) {
        return expand_neon; /* part of every 64-bit Arm */
    }
#endif
    return NULL;
}

espl_iebme_expand_fn *espl_iebme_best_expander(void)
{
    static const enum espl_iebme_path by_speed[] = {ESPL_IEBME_AVX512, ESPL_IEBME_BMI2,
                                                    ESPL_IEBME_NEON};
    for (size_t i = 0; i < sizeof by_speed / sizeof by_speed[0]; i++) {
        espl_iebme_expand_fn *expand = espl_iebme_expander(by_speed[i]);
        if (expand != NULL) {
            return expand;
        }
    }
    return expand_plain;
}
