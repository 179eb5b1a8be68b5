/* Reference norms, activations, additions and conversions. */
#include "kernels/backend_internal.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>
#include <string.h>

enum espl_status espl_ref_rmsnorm(struct espl_backend *backend, size_t tokens, size_t width,
                                  const float *x, const float *gain, float eps, float *y,
                                  struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t t = 0; t < tokens; t++) {
        const float *row = x + t * width;
        double sum = 0.0;
        for (size_t i = 0; i < width; i++) {
            sum += (double)row[i] * (double)row[i];
        }
        const double scale = 1.0 / sqrt(sum / (double)width + (double)eps);
        for (size_t i = 0; i < width; i++) {
            y[t * width + i] = (float)((double)row[i] * scale * (double)gain[i]);
        }
    }
    return ESPL_OK;
}

enum espl_status espl_ref_layernorm(struct espl_backend *backend, size_t tokens, size_t width,
                                    const float *x, const float *gain, const float *bias, float eps,
                                    float *y, struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t t = 0; t < tokens; t++) {
        const float *row = x + t * width;
        double mean = 0.0;
        for (size_t i = 0; i < width; i++) {
            mean += (double)row[i];
        }
        mean /= (double)width;
        double variance = 0.0;
        for (size_t i = 0; i < width; i++) {
            variance += ((double)row[i] - mean) * ((double)row[i] - mean);
        }
        const double scale = 1.0 / sqrt(variance / (double)width + (double)eps);
        for (size_t i = 0; i < width; i++) {
            double value = ((double)row[i] - mean) * scale;
            value = gain != NULL ? value * (double)gain[i] : value;
            value = bias != NULL ? value + (double)bias[i] : value;
            y[t * width + i] = (float)value;
        }
    }
    return ESPL_OK;
}

enum espl_status espl_ref_silu_mul(struct espl_backend *backend, size_t count, float *gate,
                                   const float *up, struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t i = 0; i < count; i++) {
        const double value = (double)gate[i];
        gate[i] = (float)(value / (1.0 + exp(-value)) * (double)up[i]);
    }
    return ESPL_OK;
}

enum espl_status espl_ref_relu(struct espl_backend *backend, size_t count, float *x,
                               struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t i = 0; i < count; i++) {
        x[i] = x[i] < 0.0F ? 0.0F : x[i]; /* NaN stays NaN */
    }
    return ESPL_OK;
}

enum espl_status espl_ref_gelu(struct espl_backend *backend, size_t count, float *x,
                               struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t i = 0; i < count; i++) {
        const double value = (double)x[i];
        /* erfc keeps the left tail, which 1 + erf would cancel. */
        x[i] = (float)(0.5 * value * erfc(-value * 0.70710678118654752440));
    }
    return ESPL_OK;
}

enum espl_status espl_ref_add(struct espl_backend *backend, size_t count, const float *x, float *y,
                              struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t i = 0; i < count; i++) {
        y[i] = y[i] + x[i];
    }
    return ESPL_OK;
}

enum espl_status espl_ref_f16_to_f32(struct espl_backend *backend, size_t count, const uint16_t *x,
                                     float *y, struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t i = 0; i < count; i++) {
        const uint32_t sign = (uint32_t)(x[i] & 0x8000u) << 16;
        const uint32_t exponent = (x[i] >> 10) & 0x1Fu;
        const uint32_t fraction = x[i] & 0x3FFu;
        uint32_t bits = 0;
        if (exponent == 0x1Fu) { /* infinity and NaN, payload kept */
            bits = sign | 0x7F800000u | (fraction << 13);
        } else if (exponent != 0) {
            bits = sign | ((exponent + 112u) << 23) | (fraction << 13);
        } else { /* zero and subnormals: fraction times 2^-24 */
            const float magnitude = (float)fraction * 0x1p-24F;
            memcpy(&bits, &magnitude, sizeof bits);
            bits |= sign;
        }
        memcpy(&y[i], &bits, sizeof bits);
    }
    return ESPL_OK;
}

enum espl_status espl_ref_bf16_to_f32(struct espl_backend *backend, size_t count, const uint16_t *x,
                                      float *y, struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)x[i] << 16;
        memcpy(&y[i], &bits, sizeof bits);
    }
    return ESPL_OK;
}

enum espl_status espl_ref_find_nonfinite(struct espl_backend *backend, size_t count, const float *x,
                                         size_t *index, struct espl_error *err)
{
    (void)backend;
    (void)err;
    size_t i = 0;
    while (i < count && isfinite(x[i])) {
        i++;
    }
    *index = i;
    return ESPL_OK;
}
