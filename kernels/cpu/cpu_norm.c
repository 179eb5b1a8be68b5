/* Norms: rows in parallel, each by one thread. Sums in double: then only the roundings of the
 * elements themselves are left, on every instruction set. */
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/vectormath.h"

#include <math.h>

/* Rows below which waking the threads costs more than the work. */
enum { ROWS_WORTH_THREADS = 16 };

/* sum of (x - shift)^2 over a row. */
ESPL_CPU_CLONES
static double sum_squares(const float *x, size_t count, double shift)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        const double value = (double)x[i] - shift;
        sum += value * value;
    }
    return sum;
}

ESPL_CPU_CLONES
static double sum_row(const float *x, size_t count)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        sum += (double)x[i];
    }
    return sum;
}

ESPL_CPU_CLONES
static void scale_row(const float *x, const float *gain, float scale, size_t count, float *y)
{
#pragma omp simd /* y may be x, but nothing else overlaps */
    for (size_t i = 0; i < count; i++) {
        y[i] = x[i] * scale * gain[i];
    }
}

ESPL_CPU_CLONES
static void standardise_row(const float *x, const float *gain, const float *bias, float mean,
                            float scale, size_t count, float *y)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        y[i] = (x[i] - mean) * scale;
    }
    if (gain != NULL) {
#pragma omp simd
        for (size_t i = 0; i < count; i++) {
            y[i] *= gain[i];
        }
    }
    if (bias != NULL) {
#pragma omp simd
        for (size_t i = 0; i < count; i++) {
            y[i] += bias[i];
        }
    }
}

enum espl_status espl_cpu_rmsnorm(struct espl_backend *backend, size_t tokens, size_t width,
                                  const float *x, const float *gain, float eps, float *y,
                                  struct espl_error *err)
{
    (void)err;
    const size_t threads_from = ROWS_WORTH_THREADS;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (tokens > threads_from)
    for (size_t t = 0; t < tokens; t++) {
        const double mean = sum_squares(x + t * width, width, 0.0) / (double)width;
        const float scale = (float)(1.0 / sqrt(mean + (double)eps));
        scale_row(x + t * width, gain, scale, width, y + t * width);
    }
    return ESPL_OK;
}

enum espl_status espl_cpu_layernorm(struct espl_backend *backend, size_t tokens, size_t width,
                                    const float *x, const float *gain, const float *bias, float eps,
                                    float *y, struct espl_error *err)
{
    (void)err;
    const size_t threads_from = ROWS_WORTH_THREADS;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (tokens > threads_from)
    for (size_t t = 0; t < tokens; t++) {
        const float *row = x + t * width;
        const double mean = sum_row(row, width) / (double)width;
        const double variance = sum_squares(row, width, mean) / (double)width;
        const float scale = (float)(1.0 / sqrt(variance + (double)eps));
        standardise_row(row, gain, bias, (float)mean, scale, width, y + t * width);
    }
    return ESPL_OK;
}
