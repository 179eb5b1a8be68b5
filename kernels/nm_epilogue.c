#include "kernels/nm_epilogue.h"

#include <math.h>
#include <string.h>

/* IEEE half of a float32, ties to even. */
static uint16_t half_of(float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t size = bits & 0x7FFFFFFFu;
    uint32_t half = 0;
    if (size > 0x7F800000u) {
        half = 0x7E00u; /* NaN */
    } else if (size >= 0x477FF000u) {
        half = 0x7C00u; /* 65520 and more */
    } else if (size < 0x38800000u) {
        half = (uint32_t)lrintf(fabsf(value) * 0x1p24F); /* subnormal: steps of 2^-24 */
    } else {
        half = (size - 0x38000000u + 0xFFFu + (size >> 13 & 1u)) >> 13;
    }
    return (uint16_t)(sign | half);
}

static float activate(enum espl_nm_activation activation, float value)
{
    if (activation == ESPL_NM_RELU) {
        return value > 0.0F ? value : 0.0F;
    }
    if (activation == ESPL_NM_GELU) {
        return (float)(0.5 * (double)value * erfc(-(double)value * 0.70710678118654752));
    }
    return value;
}

void espl_nm_store(const struct espl_nm_epilogue *epilogue, size_t rows, size_t token, size_t row,
                   int32_t sum, void *y)
{
    const size_t at = token * rows + row;
    if (epilogue->output == ESPL_NM_INT32) {
        ((int32_t *)y)[at] = sum;
        return;
    }
    const float token_scale = epilogue->token_scales != NULL ? epilogue->token_scales[token] : 1.0F;
    float value = (float)sum * (epilogue->row_scales[row] * token_scale);
    value = epilogue->bias != NULL ? value + epilogue->bias[row] : value;
    value = activate(epilogue->activation, value);
    if (epilogue->output == ESPL_NM_FP16) {
        ((uint16_t *)y)[at] = half_of(value);
        return;
    }
    const float code = rintf(value * epilogue->multiplier);
    ((int8_t *)y)[at] = (int8_t)(code < -128.0F ? -128.0F : code > 127.0F ? 127.0F : code);
}
