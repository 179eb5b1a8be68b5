/* Rotary embedding: cos and sin of every position once per shape, then rows in parallel. */
#include "core/checked.h"
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/vectormath.h"

#include <math.h>
#include <stdlib.h>

enum { TABLE_STEP = 256 };

static bool table_matches(const struct espl_rope_table *table, size_t tokens, size_t half,
                          const float *inv_freq, float magnitude)
{
    return table->tokens >= tokens && table->half == half &&
           espl_float_to_bits(table->magnitude) == espl_float_to_bits(magnitude) &&
           memcmp(table->inv_freq, inv_freq, half * sizeof *inv_freq) == 0;
}

static bool grow(float **data, size_t *capacity, size_t count)
{
    if (*capacity >= count) {
        return true;
    }
    size_t bytes = 0;
    float *fresh = espl_mul_size(count, sizeof(float), &bytes) ? malloc(bytes) : NULL;
    if (fresh == NULL) {
        return false;
    }
    free(*data);
    *data = fresh;
    *capacity = count;
    return true;
}

static enum espl_status fill_table(struct espl_backend *backend, size_t tokens, size_t half,
                                   const float *inv_freq, float magnitude, struct espl_error *err)
{
    struct espl_rope_table *table = &backend->rope;
    size_t count = 0;
    if (table_matches(table, tokens, half, inv_freq, magnitude)) {
        return ESPL_OK;
    }
    /* Windows that grow token by token must not fill a table for each. */
    tokens = espl_ceil_div(tokens, TABLE_STEP) * TABLE_STEP;
    table->tokens = 0;
    if (!espl_mul_size(tokens, 2 * half, &count) ||
        !grow(&table->inv_freq, &table->inv_freq_capacity, half) ||
        !grow(&table->values, &table->values_capacity, count)) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the rotary table of %zu positions",
                         tokens);
    }
    memcpy(table->inv_freq, inv_freq, half * sizeof *inv_freq);
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (count > 4096)
    for (size_t t = 0; t < tokens; t++) {
        float *cosines = table->values + t * 2 * half;
        for (size_t i = 0; i < half; i++) {
            /* The angle is rounded to float32 as the models were trained with. */
            const float angle = (float)t * inv_freq[i];
            cosines[i] = (float)(cos((double)angle) * (double)magnitude);
            cosines[half + i] = (float)(sin((double)angle) * (double)magnitude);
        }
    }
    table->tokens = tokens;
    table->half = half;
    table->magnitude = magnitude;
    return ESPL_OK;
}

ESPL_CPU_CLONES
static void rotate_row(float *restrict row, const float *restrict cosines, size_t heads,
                       size_t half)
{
    const float *restrict sines = cosines + half;
    for (size_t h = 0; h < heads; h++) {
        float *restrict low = row + h * 2 * half;
        float *restrict high = low + half;
        for (size_t i = 0; i < half; i++) {
            const float a = low[i];
            const float b = high[i];
            low[i] = a * cosines[i] - b * sines[i];
            high[i] = b * cosines[i] + a * sines[i];
        }
    }
}

enum espl_status espl_cpu_rope(struct espl_backend *backend, size_t windows, size_t tokens,
                               size_t past, size_t heads, size_t head_dim, const float *inv_freq,
                               float magnitude, float *x, struct espl_error *err)
{
    const size_t half = head_dim / 2;
    const enum espl_status status =
        fill_table(backend, past + tokens, half, inv_freq, magnitude, err);
    if (status != ESPL_OK) {
        return status;
    }
    const float *values = backend->rope.values + past * 2 * half;
    const size_t rows = windows * tokens;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (rows > 64)
    for (size_t row = 0; row < rows; row++) {
        rotate_row(x + row * heads * head_dim, values + row % tokens * 2 * half, heads, half);
    }
    return ESPL_OK;
}
