/* What every quantised op refuses. */
#include "kernels/quant_internal.h"

#include "espalier/iebme.h"

enum espl_status espl_quant_shape_check(const struct espl_quant_shape *shape,
                                        struct espl_error *err)
{
    if (shape->in == 0 || shape->outliers >= shape->in) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "%zu outlier columns leave nothing of %zu",
                         shape->outliers, shape->in);
    }
    const size_t normal = espl_quant_normal(shape);
    if (shape->group_size != 0 && normal % shape->group_size != 0) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "%zu columns are not a multiple of a group of %zu", normal,
                         shape->group_size);
    }
    const size_t longest = espl_quant_group_columns(shape) > shape->outliers
                               ? espl_quant_group_columns(shape)
                               : shape->outliers;
    if (longest > ESPL_QUANT_MOST_COLUMNS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the sum of %zu products does not fit 32 bits (at most %d)", longest,
                         ESPL_QUANT_MOST_COLUMNS);
    }
    if (shape->weight_bits < 2 || shape->weight_bits > 8 || shape->activation_bits < 4 ||
        shape->activation_bits > 8 || shape->rows_per_scale < 1 || shape->rows_per_scale > 2) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "%u-bit weights, %u-bit activations and %zu rows a scale are not possible",
                         shape->weight_bits, shape->activation_bits, shape->rows_per_scale);
    }
    return ESPL_OK;
}

enum espl_status espl_quant_encoded_check(const struct espl_quant_shape *shape,
                                          const struct espl_iebme_weights *w,
                                          struct espl_error *err)
{
    const struct espl_iebme_layout *layout = &w->codes->layout;
    const enum espl_status status = espl_quant_shape_check(shape, err);
    if (status == ESPL_OK &&
        (layout->rows != shape->out || layout->cols != espl_quant_normal(shape) ||
         layout->bits != shape->weight_bits)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "encoded weights are %zu x %zu of %u bits, the layer has %zu x %zu of %u",
                         layout->rows, layout->cols, layout->bits, shape->out,
                         espl_quant_normal(shape), shape->weight_bits);
    }
    return status;
}

enum espl_status espl_quant_clip_check(float clip, struct espl_error *err)
{
    return clip > 0.0F && clip <= 1.0F
               ? ESPL_OK
               : espl_fail(err, ESPL_E_UNSUPPORTED, "a clip ratio of %g is not in (0, 1]",
                           (double)clip);
}

enum espl_status espl_quant_kv_check(size_t head_dim, unsigned bits, float clip,
                                     struct espl_error *err)
{
    if (head_dim == 0 || bits < 2 || bits > 8) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "cannot store heads of %zu values with %u bits a value", head_dim, bits);
    }
    return espl_quant_clip_check(clip, err);
}

enum espl_status espl_quant_fail_nonfinite(size_t row, size_t column, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NUMERIC, "value of token %zu, channel %zu is not finite", row,
                     column);
}
