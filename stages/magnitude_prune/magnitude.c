#include "stages/magnitude_prune/magnitude.h"

#include "espalier/kernels.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A pass sorts values by one digit of up to 16 bits. A 16-bit type has 15 bits of magnitude, one
 * digit; float32 has 31: the upper 16 first, then the lower 15 of the values in the chosen bin. */
enum { BINS = 1 << 16, F32_LOW_BITS = 15 };

struct espl_magnitude_select {
    enum espl_dtype dtype;
    unsigned passes;
    unsigned pass;
    uint64_t rank;   /* left among the values that share the digits found so far */
    uint32_t prefix; /* digits found so far, in place */
    uint64_t bins[BINS];
};

/* Sign-free bits of the first value that is not finite. */
static uint32_t infinity_of(enum espl_dtype dtype)
{
    switch (dtype) {
    case ESPL_DTYPE_F16:
        return 0x7c00u;
    case ESPL_DTYPE_BF16:
        return 0x7f80u;
    default:
        return 0x7f800000u;
    }
}

static uint32_t magnitude_at(enum espl_dtype dtype, const void *raw, size_t index)
{
    if (dtype == ESPL_DTYPE_F32) {
        uint32_t bits;
        memcpy(&bits, (const unsigned char *)raw + index * sizeof bits, sizeof bits);
        return bits & 0x7fffffffu;
    }
    return ((const uint16_t *)raw)[index] & 0x7fffu;
}

enum espl_status espl_magnitude_select_create(enum espl_dtype dtype, uint64_t rank,
                                              struct espl_magnitude_select **out,
                                              struct espl_error *err)
{
    if (dtype != ESPL_DTYPE_F16 && dtype != ESPL_DTYPE_BF16 && dtype != ESPL_DTYPE_F32) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "weights of type %s cannot be pruned",
                         espl_dtype_name(dtype));
    }
    struct espl_magnitude_select *select = calloc(1, sizeof *select);
    if (select == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a histogram of magnitudes");
    }
    select->dtype = dtype;
    select->passes = dtype == ESPL_DTYPE_F32 ? 2 : 1;
    select->rank = rank;
    *out = select;
    return ESPL_OK;
}

void espl_magnitude_select_destroy(struct espl_magnitude_select *select)
{
    free(select);
}

unsigned espl_magnitude_select_passes(const struct espl_magnitude_select *select)
{
    return select->passes;
}

size_t espl_magnitude_select_add(struct espl_magnitude_select *select, const void *raw,
                                 size_t count)
{
    const enum espl_dtype dtype = select->dtype;
    const uint32_t infinity = infinity_of(dtype);
    const bool upper = dtype == ESPL_DTYPE_F32 && select->pass == 0;
    const bool lower = dtype == ESPL_DTYPE_F32 && select->pass == 1;
    for (size_t i = 0; i < count; i++) {
        const uint32_t magnitude = magnitude_at(dtype, raw, i);
        if (magnitude >= infinity) {
            return i;
        }
        if (upper) {
            select->bins[magnitude >> F32_LOW_BITS]++;
        } else if (!lower) {
            select->bins[magnitude]++;
        } else if (magnitude >> F32_LOW_BITS == select->prefix >> F32_LOW_BITS) {
            select->bins[magnitude & ((1u << F32_LOW_BITS) - 1u)]++;
        }
    }
    return count;
}

void espl_magnitude_select_end_pass(struct espl_magnitude_select *select)
{
    uint32_t digit = 0;
    while (digit < BINS - 1 && select->rank >= select->bins[digit]) {
        select->rank -= select->bins[digit];
        digit++;
    }
    assert(select->rank < select->bins[digit]);
    const bool upper = select->dtype == ESPL_DTYPE_F32 && select->pass == 0;
    select->prefix |= upper ? digit << F32_LOW_BITS : digit;
    select->pass++;
    memset(select->bins, 0, sizeof select->bins);
}

uint32_t espl_magnitude_select_threshold(const struct espl_magnitude_select *select)
{
    assert(select->pass == select->passes);
    return select->prefix;
}

uint64_t espl_magnitude_mask(enum espl_dtype dtype, const void *raw, size_t rows, size_t cols,
                             uint32_t threshold, uint8_t *mask)
{
    const size_t stride = espl_mask_stride(cols);
    uint64_t kept = 0;
    memset(mask, 0, rows * stride);
    for (size_t row = 0; row < rows; row++) {
        for (size_t col = 0; col < cols; col++) {
            const unsigned keep = magnitude_at(dtype, raw, row * cols + col) > threshold;
            mask[row * stride + col / 8] |= (uint8_t)(keep << (col % 8));
            kept += keep;
        }
    }
    return kept;
}
