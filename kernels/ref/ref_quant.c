/* Reference quantised ops: the contracts of espalier/kernels.h read aloud. */
#include "core/codes.h"
#include "kernels/backend_internal.h"
#include "kernels/quant_internal.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>
#include <stdlib.h>

/* Symmetric codes of `count` values that stand at x[order[i]], and their scale. */
static float quantize_run(const float *x, const int32_t *order, size_t first, size_t count,
                          unsigned bits, float clip, int8_t *codes)
{
    const float qmax = (float)((1 << (bits - 1u)) - 1);
    float amax = ESPL_QUANT_LEAST_AMAX;
    for (size_t i = first; i < first + count; i++) {
        amax = fmaxf(amax, fabsf(x[order != NULL ? (size_t)order[i] : i]));
    }
    const float scale = clip * amax / qmax;
    for (size_t i = first; i < first + count; i++) {
        const float code = rintf(x[order != NULL ? (size_t)order[i] : i] / scale);
        codes[i - first] = (int8_t)fminf(fmaxf(code, -qmax - 1.0F), qmax);
    }
    return scale;
}

enum espl_status espl_ref_quantize_act(struct espl_backend *backend,
                                       const struct espl_quant_shape *shape, const float *x,
                                       const int32_t *order, float clip,
                                       const struct espl_quant_activations *a,
                                       struct espl_error *err)
{
    (void)backend;
    const size_t normal = espl_quant_normal(shape);
    const size_t width = espl_quant_group_columns(shape);
    enum espl_status status = espl_quant_shape_check(shape, err);
    if (status == ESPL_OK) {
        status = espl_quant_clip_check(clip, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t t = 0; t < shape->tokens; t++) {
        const float *row = x + t * shape->in;
        for (size_t c = 0; c < shape->in; c++) {
            if (!isfinite(row[c])) {
                return espl_quant_fail_nonfinite(t, c, err);
            }
        }
        for (size_t g = 0; g < espl_quant_groups(shape); g++) {
            a->scales[t * espl_quant_groups(shape) + g] =
                quantize_run(row, order, g * width, width, shape->activation_bits, clip,
                             a->codes + t * normal + g * width);
        }
        if (shape->outliers > 0) {
            a->outlier_scales[t] = quantize_run(row, order, normal, shape->outliers, 8, 1.0F,
                                                a->outlier_codes + t * shape->outliers);
        }
    }
    return ESPL_OK;
}

static int32_t dot(const int8_t *a, const int8_t *w, size_t count)
{
    int32_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (int32_t)a[i] * (int32_t)w[i];
    }
    return sum;
}

enum espl_status espl_ref_gemm_w4a4(struct espl_backend *backend,
                                    const struct espl_quant_shape *shape,
                                    const struct espl_quant_activations *a,
                                    const struct espl_quant_weights *w, float *y,
                                    struct espl_error *err)
{
    const size_t normal = espl_quant_normal(shape);
    const size_t width = espl_quant_group_columns(shape);
    const size_t groups = espl_quant_groups(shape);
    void *row = NULL;
    enum espl_status status = espl_quant_shape_check(shape, err);
    if (status == ESPL_OK) {
        status = espl_backend_scratch_array(backend, normal, 1, &row, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t o = 0; o < shape->out; o++) {
        const float *w_scales = w->scales + o / shape->rows_per_scale * groups;
        espl_codes_unpack(w->codes + o * espl_codes_stride(normal, shape->weight_bits), 1, normal,
                          shape->weight_bits, row);
        for (size_t t = 0; t < shape->tokens; t++) {
            float sum = 0.0F;
            for (size_t g = 0; g < groups; g++) {
                const int32_t acc =
                    dot(a->codes + t * normal + g * width, (const int8_t *)row + g * width, width);
                sum += (float)acc * (w_scales[g] * a->scales[t * groups + g]);
            }
            if (shape->outliers > 0) {
                const int32_t acc = dot(a->outlier_codes + t * shape->outliers,
                                        w->outlier_codes + o * shape->outliers, shape->outliers);
                sum += (float)acc * (w->outlier_scales[o] * a->outlier_scales[t]);
            }
            y[t * shape->out + o] = w->bias != NULL ? sum + w->bias[o] : sum;
        }
    }
    return ESPL_OK;
}

static void quantize_head(float *x, size_t count, float qmax, float clip)
{
    float lo = 0.0F;
    float hi = 0.0F;
    for (size_t i = 0; i < count; i++) {
        lo = fminf(lo, x[i]);
        hi = fmaxf(hi, x[i]);
    }
    const float scale = fmaxf(clip * (hi - lo), ESPL_QUANT_LEAST_AMAX) / qmax;
    const float zero = fminf(fmaxf(rintf(-(clip * lo) / scale), 0.0F), qmax);
    for (size_t i = 0; i < count; i++) {
        x[i] = (fminf(fmaxf(rintf(x[i] / scale) + zero, 0.0F), qmax) - zero) * scale;
    }
}

enum espl_status espl_ref_quantize_kv(struct espl_backend *backend, size_t tokens, size_t heads,
                                      size_t head_dim, unsigned bits, float clip, float *x,
                                      struct espl_error *err)
{
    (void)backend;
    const enum espl_status status = espl_quant_kv_check(head_dim, bits, clip, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < tokens * heads * head_dim; i++) {
        if (!isfinite(x[i])) {
            return espl_quant_fail_nonfinite(i / (heads * head_dim), i % (heads * head_dim), err);
        }
    }
    for (size_t i = 0; i < tokens * heads; i++) {
        quantize_head(x + i * head_dim, head_dim, (float)((1u << bits) - 1u), clip);
    }
    return ESPL_OK;
}
