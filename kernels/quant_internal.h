/* What the quantised ops of all backends share: refusals and the smallest scale. */
#ifndef ESPL_KERNELS_QUANT_INTERNAL_H
#define ESPL_KERNELS_QUANT_INTERNAL_H

#include "espalier/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Columns whose products of two 8-bit codes are sure to fit int32: (2^31 - 1) / 128^2. */
enum { ESPL_QUANT_MOST_COLUMNS = 131071 };

/** Magnitudes below this count as this, so that no scale is 0 [Atom's code]. */
#define ESPL_QUANT_LEAST_AMAX 1e-5F

static inline size_t espl_quant_group_columns(const struct espl_quant_shape *shape)
{
    return shape->group_size == 0 ? espl_quant_normal(shape) : shape->group_size;
}

/** Errors: UNSUPPORTED. */
enum espl_status espl_quant_shape_check(const struct espl_quant_shape *shape,
                                        struct espl_error *err);
enum espl_status espl_quant_clip_check(float clip, struct espl_error *err);
enum espl_status espl_quant_kv_check(size_t head_dim, unsigned bits, float clip,
                                     struct espl_error *err);
/** Shape, and that the encoded weights are of that shape. Errors: UNSUPPORTED. */
enum espl_status espl_quant_encoded_check(const struct espl_quant_shape *shape,
                                          const struct espl_iebme_weights *w,
                                          struct espl_error *err);
/** NUMERIC, naming the place. */
enum espl_status espl_quant_fail_nonfinite(size_t row, size_t column, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
