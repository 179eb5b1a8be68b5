#include "model/element.h"

#include <string.h>

/* Powers of two that move between the exponent ranges of half (bias 15) and single (bias 127). */
static const float half_to_single = 0x1.0p+112f;

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Exponent and mantissa of a half, shifted into a single's place, are its value times 2^-112; the
 * product is exact, for subnormal halves too. Exponent 31 (infinity, NaN) gets single's 255. */
static float single_of_half(uint16_t half)
{
    const uint32_t magnitude = (uint32_t)(half & 0x7fffu) << 13;
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;
    return float_of(bits_of(float_of(magnitude) * half_to_single) | special | sign);
}

static void half_to_f32(const uint16_t *src, size_t count, float *dst)
{
    for (size_t i = 0; i < count; i++) {
        dst[i] = single_of_half(src[i]);
    }
}

static void bf16_to_f32(const uint16_t *src, size_t count, float *dst)
{
    for (size_t i = 0; i < count; i++) {
        dst[i] = float_of((uint32_t)src[i] << 16);
    }
}

void espl_element_to_f32(enum espl_dtype dtype, const void *src, size_t count, float *dst)
{
    if (dtype == ESPL_DTYPE_F16) {
        half_to_f32(src, count, dst);
    } else if (dtype == ESPL_DTYPE_BF16) {
        bf16_to_f32(src, count, dst);
    } else {
        memcpy(dst, src, count * sizeof *dst);
    }
}

/* Rounds on the integer pattern, where ties to even need only the bit above the cut. */
static uint16_t half_of_single(float value)
{
    const uint32_t bits = bits_of(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;

    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu)); /* NaN, made quiet */
    }
    if (magnitude >= 0x47800000u) { /* 2^16 and above, infinity included */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude >= 0x38800000u) { /* 2^-14 and above: a normal half */
        const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
        return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
    }
    /* Subnormal: the single's unit in the last place becomes 2^-24 when 0.5 is added, so the
     * addition itself rounds, to nearest even. */
    return (uint16_t)(sign | (bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u));
}

static uint16_t bf16_of_single(float value)
{
    const uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) | 0x40u); /* NaN, made quiet */
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void espl_element_from_f32(enum espl_dtype dtype, const float *src, size_t count, void *dst,
                           struct espl_element_loss *loss)
{
    if (dtype == ESPL_DTYPE_F32) {
        memcpy(dst, src, count * sizeof *src);
        return;
    }
    uint16_t *words = dst;
    const uint32_t infinity = dtype == ESPL_DTYPE_F16 ? 0x7c00u : 0x7f80u;
    for (size_t i = 0; i < count; i++) {
        words[i] = dtype == ESPL_DTYPE_F16 ? half_of_single(src[i]) : bf16_of_single(src[i]);
        const uint32_t before = bits_of(src[i]) & 0x7fffffffu;
        const uint32_t after = words[i] & 0x7fffu;
        loss->overflow += after == infinity && before < 0x7f800000u ? 1u : 0u;
        loss->flushed += after == 0 && before != 0 ? 1u : 0u;
    }
}

static void count_words(const uint16_t *src, size_t count, uint16_t infinity, uint64_t *nan,
                        uint64_t *infinite)
{
    for (size_t i = 0; i < count; i++) {
        const uint16_t magnitude = src[i] & 0x7fffu;
        *nan += magnitude > infinity ? 1u : 0u;
        *infinite += magnitude == infinity ? 1u : 0u;
    }
}

void espl_element_count_odd(enum espl_dtype dtype, const void *src, size_t count, uint64_t *nan,
                            uint64_t *infinite)
{
    uint64_t nans = 0;
    uint64_t infinities = 0;
    if (dtype == ESPL_DTYPE_F32) {
        const uint32_t *words = src;
        for (size_t i = 0; i < count; i++) {
            const uint32_t magnitude = words[i] & 0x7fffffffu;
            nans += magnitude > 0x7f800000u ? 1u : 0u;
            infinities += magnitude == 0x7f800000u ? 1u : 0u;
        }
    } else {
        count_words(src, count, dtype == ESPL_DTYPE_F16 ? 0x7c00u : 0x7f80u, &nans, &infinities);
    }
    *nan += nans;
    *infinite += infinities;
}

/* All ones where the column stays, else 0. */
static uint32_t keep_bits(const uint8_t *mask, size_t col)
{
    return 0u - (((uint32_t)mask[col / 8] >> (col % 8)) & 1u);
}

void espl_element_mask_row(enum espl_dtype dtype, void *row, size_t cols, const uint8_t *mask)
{
    if (dtype == ESPL_DTYPE_F32) {
        uint32_t *words = row;
        for (size_t c = 0; c < cols; c++) {
            words[c] &= keep_bits(mask, c);
        }
    } else {
        uint16_t *words = row;
        for (size_t c = 0; c < cols; c++) {
            words[c] = (uint16_t)(words[c] & keep_bits(mask, c));
        }
    }
}
