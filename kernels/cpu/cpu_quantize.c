/* Quantising activations, keys and values: rows are independent. Same bits as the reference. */
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/vectormath.h"
#include "kernels/quant_internal.h"

#include <math.h>
#include <omp.h>

enum { FEW_ROWS = 4 };
#define INFINITY_BITS 0x7F800000u

/* The largest |x| as bits, in which order magnitudes compare; NaN is above infinity. */
ESPL_CPU_CLONES
static uint32_t largest_magnitude(const float *x, size_t count)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = espl_float_to_bits(x[i]) & 0x7FFFFFFFu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

ESPL_CPU_CLONES
static void quantize_codes(const float *restrict x, size_t count, float scale, float qmax,
                           int8_t *restrict codes)
{
    const float lowest = -qmax - 1.0F;
    for (size_t i = 0; i < count; i++) {
        float code = rintf(x[i] / scale);
        code = code < lowest ? lowest : code;
        code = code > qmax ? qmax : code;
        codes[i] = (int8_t)code;
    }
}

/* false when a value is not finite */
static bool quantize_run(const float *x, size_t count, unsigned bits, float clip, int8_t *codes,
                         float *scale)
{
    const uint32_t largest = largest_magnitude(x, count);
    const float qmax = (float)((1 << (bits - 1u)) - 1);
    const float amax = espl_bits_to_float(largest);
    if (largest >= INFINITY_BITS) {
        return false;
    }
    *scale = clip * (amax > ESPL_QUANT_LEAST_AMAX ? amax : ESPL_QUANT_LEAST_AMAX) / qmax;
    quantize_codes(x, count, *scale, qmax, codes);
    return true;
}

static bool quantize_token(const struct espl_quant_shape *shape, size_t t, const float *x,
                           float clip, const struct espl_quant_activations *a)
{
    const size_t normal = espl_quant_normal(shape);
    const size_t width = espl_quant_group_columns(shape);
    const size_t groups = espl_quant_groups(shape);
    for (size_t g = 0; g < groups; g++) {
        if (!quantize_run(x + g * width, width, shape->activation_bits, clip,
                          a->codes + t * normal + g * width, &a->scales[t * groups + g])) {
            return false;
        }
    }
    return shape->outliers == 0 ||
           quantize_run(x + normal, shape->outliers, 8, 1.0F,
                        a->outlier_codes + t * shape->outliers, &a->outlier_scales[t]);
}

/* The first bad place in reading order, whichever thread met one first. */
static enum espl_status fail_nonfinite(const float *x, size_t rows, size_t width,
                                       struct espl_error *err)
{
    size_t i = 0;
    while (i < rows * width && isfinite(x[i])) {
        i++;
    }
    return espl_quant_fail_nonfinite(i / width, i % width, err);
}

enum espl_status espl_cpu_quantize_act(struct espl_backend *backend,
                                       const struct espl_quant_shape *shape, const float *x,
                                       const int32_t *order, float clip,
                                       const struct espl_quant_activations *a,
                                       struct espl_error *err)
{
    void *rows = NULL;
    bool finite = true;
    enum espl_status status = espl_quant_shape_check(shape, err);
    if (status == ESPL_OK) {
        status = espl_quant_clip_check(clip, err);
    }
    if (status == ESPL_OK && order != NULL) {
        status = espl_backend_scratch_array(backend, backend->threads * shape->in, sizeof(float),
                                            &rows, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
#pragma omp parallel for num_threads(backend->threads) schedule(static) reduction(&& : finite) if (shape->tokens > FEW_ROWS)
    for (size_t t = 0; t < shape->tokens; t++) {
        const float *row = x + t * shape->in;
        if (order != NULL) {
            float *gathered = (float *)rows + (size_t)omp_get_thread_num() * shape->in;
            for (size_t c = 0; c < shape->in; c++) {
                gathered[c] = row[order[c]];
            }
            row = gathered;
        }
        finite = quantize_token(shape, t, row, clip, a) && finite;
    }
    return finite ? ESPL_OK : fail_nonfinite(x, shape->tokens, shape->in, err);
}

ESPL_CPU_CLONES
static void find_range(const float *x, size_t count, float *lo, float *hi)
{
    float least = 0.0F;
    float most = 0.0F;
    for (size_t i = 0; i < count; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    *lo = least;
    *hi = most;
}

ESPL_CPU_CLONES
static void fake_quantize(float *x, size_t count, float scale, float zero, float qmax)
{
    for (size_t i = 0; i < count; i++) {
        float code = rintf(x[i] / scale) + zero;
        code = code < 0.0F ? 0.0F : code;
        code = code > qmax ? qmax : code;
        x[i] = (code - zero) * scale;
    }
}

static void quantize_head(float *x, size_t count, float qmax, float clip)
{
    float lo = 0.0F;
    float hi = 0.0F;
    find_range(x, count, &lo, &hi);
    const float range = clip * (hi - lo);
    const float scale = (range > ESPL_QUANT_LEAST_AMAX ? range : ESPL_QUANT_LEAST_AMAX) / qmax;
    float zero = rintf(-(clip * lo) / scale);
    zero = zero > qmax ? qmax : zero; /* lo <= 0: never below 0 */
    fake_quantize(x, count, scale, zero, qmax);
}

enum espl_status espl_cpu_quantize_kv(struct espl_backend *backend, size_t tokens, size_t heads,
                                      size_t head_dim, unsigned bits, float clip, float *x,
                                      struct espl_error *err)
{
    const size_t width = heads * head_dim;
    const float qmax = (float)((1u << bits) - 1u);
    bool finite = true;
    const enum espl_status status = espl_quant_kv_check(head_dim, bits, clip, err);
    if (status != ESPL_OK) {
        return status;
    }
    /* All rows are looked at before one is changed, so that the message can name the first. */
#pragma omp parallel for num_threads(backend->threads) schedule(static) reduction(&& : finite) if (tokens > FEW_ROWS)
    for (size_t t = 0; t < tokens; t++) {
        finite = largest_magnitude(x + t * width, width) < INFINITY_BITS && finite;
    }
    if (!finite) {
        return fail_nonfinite(x, tokens, width, err);
    }
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (tokens > FEW_ROWS)
    for (size_t i = 0; i < tokens * heads; i++) {
        quantize_head(x + i * head_dim, head_dim, qmax, clip);
    }
    return ESPL_OK;
}
