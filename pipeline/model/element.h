/* Conversions between the element types of weights (f16, bf16, f32) and a look for values that no
 * weight should have. Words are 16-bit bit patterns in memory. */
#ifndef ESPL_MODEL_ELEMENT_H
#define ESPL_MODEL_ELEMENT_H

#include "artifact/artifact.h"

/** Is this a type weights may have? */
static inline bool espl_element_is_weight(enum espl_dtype dtype)
{
    return dtype == ESPL_DTYPE_F16 || dtype == ESPL_DTYPE_BF16 || dtype == ESPL_DTYPE_F32;
}

/** dst[i] <- src[i], exact. dtype: F16, BF16 or F32. No overlap. */
void espl_element_to_f32(enum espl_dtype dtype, const void *src, size_t count, float *dst);

/** What a narrowing conversion did beyond ordinary rounding. */
struct espl_element_loss {
    uint64_t overflow; /* finite values that became infinite */
    uint64_t flushed;  /* non-zero values that became zero */
};
/** dst[i] <- src[i] rounded to nearest, ties to even; NaN stays NaN. loss: counts are added. No
 * overlap. */
void espl_element_from_f32(enum espl_dtype dtype, const float *src, size_t count, void *dst,
                           struct espl_element_loss *loss);

/** Adds the numbers of NaNs and infinities among count elements. */
void espl_element_count_odd(enum espl_dtype dtype, const void *src, size_t count, uint64_t *nan,
                            uint64_t *infinite);

/** Sets element c of `row` to +0 where bit c of mask is 0 (bit 0 of a byte first). */
void espl_element_mask_row(enum espl_dtype dtype, void *row, size_t cols, const uint8_t *mask);

#endif
