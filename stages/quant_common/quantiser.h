/* The weight quantiser of Atom on plain arrays: group scales, codes, round to nearest.
 *
 * Columns are already in the layer's (reordered) order; the last `outliers` of them are INT8 with
 * one scale a row, amax / 127, no clip. Everything is float32 with halves rounded to even, so that
 * codes can be compared with other implementations of the same formulas. */
#ifndef ESPL_STAGES_QUANTISER_H
#define ESPL_STAGES_QUANTISER_H

#include "core/error.h"
#include "espalier/kernels.h"

/** Both formulas of Atom's code; clip first, then the division.
 *  HALF (its round-to-nearest path): scale = (clip * amax) / (2^(bits-1) - 1).
 *  FULL (its GPTQ path): scale = (2 * (clip * amax)) / (2^bits - 1).
 *  Codes are clamp(rint(w / scale), -2^(bits-1), 2^(bits-1) - 1) in both. */
enum espl_quant_scale { ESPL_QUANT_SCALE_HALF, ESPL_QUANT_SCALE_FULL };
/** YAML words of enum espl_quant_scale: "half", "full"; ends with NULL. */
extern const char *const espl_quant_scale_choices[];

struct espl_quantiser {
    unsigned bits;         /* 2..8 */
    size_t group_size;     /* columns of a scale; 0 = all normal columns of a row */
    size_t outliers;       /* last columns kept in INT8 */
    size_t rows_per_scale; /* 1, or 2 adjacent rows; a last odd row has a scale of its own */
    enum espl_quant_scale scale;
    float clip; /* 0 < clip <= 1 */
};

/** A quantised matrix; owns its arrays. */
struct espl_quantised {
    struct espl_matrix_shape shape;
    size_t normal;     /* columns without the outliers */
    size_t group_size; /* resolved: never 0 */
    size_t groups;
    size_t rows_per_scale;
    size_t scale_rows; /* ceil(rows / rows_per_scale) */
    size_t outliers;
    int8_t *codes;         /* (rows, normal), one a byte; pack with espl_codes_pack() */
    float *scales;         /* (scale_rows, groups) */
    int8_t *outlier_codes; /* (rows, outliers) or NULL */
    float *outlier_scales; /* (rows) or NULL */
};

/** Is (rows, cols) possible with this quantiser? `name`: the layer, for the message. Errors: JOB
 *  (an empty matrix, outliers not below the columns, a group that does not divide cols - outliers
 * or does not fit the 128 columns of a GPTQ block: names the legal ones; bits, clip or
 * rows_per_scale out of range). */
enum espl_status espl_quantiser_check(const struct espl_quantiser *quantiser,
                                      const struct espl_matrix_shape *shape, const char *name,
                                      struct espl_error *err);

/** All codes 0, all scales 1. Errors: as espl_quantiser_check(), NOMEM. */
enum espl_status espl_quantised_create(const struct espl_quantiser *quantiser,
                                       const struct espl_matrix_shape *shape,
                                       struct espl_quantised *out, struct espl_error *err);
void espl_quantised_free(struct espl_quantised *quantised);

/** Scale of a group whose largest magnitude is amax: 1 when that is 0 or the scale would be below
 *  the smallest normal float (then codes are 0). Never asymmetric, whatever the signs. */
float espl_quantiser_scale(const struct espl_quantiser *quantiser, float amax);
/** Scale of an outlier row: amax / 127, 1 for an all-zero row. */
float espl_outlier_scale(float amax);
/** clamp(rint(w / scale)) to `bits` bits. */
int8_t espl_quantise_value(float w, float scale, unsigned bits);

/** Errors: NUMERIC for the first weight of w (rows, cols) that is not finite, naming its place. */
enum espl_status espl_weights_check_finite(const struct espl_matrix_shape *shape, const float *w,
                                           struct espl_error *err);

/** Round to nearest: fills *out (from espl_quantised_create() of the same quantiser and shape) from
 *  w (rows, cols). mask: NULL, or the kept weights; removed ones get code 0 and do not count for
 *  amax. Errors: NUMERIC for a weight that is not finite, naming row and column. */
enum espl_status espl_rtn(const struct espl_quantiser *quantiser, const float *w,
                          const uint8_t *mask, unsigned threads, struct espl_quantised *out,
                          struct espl_error *err);

/** w (rows, cols) <- scale * code, float32. */
void espl_quantised_dequantise(const struct espl_quantised *quantised, float *w);

/** What a quantised matrix holds; `mask` NULL = all kept. */
struct espl_quant_counts {
    uint64_t weights;
    uint64_t removed;    /* by the mask */
    uint64_t zero_codes; /* removed ones included */
    uint64_t violations; /* removed, yet not 0: a stage stops when there is one */
    uint64_t saturated;  /* codes at either end of their range */
};
struct espl_quant_counts espl_quantised_count(const struct espl_quantised *quantised,
                                              const uint8_t *mask, unsigned bits);

#endif
