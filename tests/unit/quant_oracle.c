#include "quant_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double oracle_uniform(uint64_t *state)
{
    *state += UINT64_C(0x9E3779B97F4A7C15);
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

static void *room(size_t count, size_t bytes)
{
    void *memory = calloc(count + 1, bytes);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

float *oracle_weights(size_t rows, size_t cols, uint64_t seed)
{
    float *w = room(rows * cols, sizeof *w);
    for (size_t i = 0; i < rows * cols; i++) {
        const double a = oracle_uniform(&seed);
        const double b = oracle_uniform(&seed);
        const double c = oracle_uniform(&seed);
        w[i] = (float)(a + b + c - 1.5);
    }
    return w;
}

float *oracle_activations(size_t tokens, size_t cols, uint64_t seed)
{
    float *x = room(tokens * cols, sizeof *x);
    for (size_t t = 0; t < tokens; t++) {
        double v = 0.0;
        for (size_t c = 0; c < cols; c++) {
            v = (2.0 * oracle_uniform(&seed) - 1.0) + 0.75 * v;
            x[t * cols + c] = (float)(v * (0.25 + 2.0 * (double)c / (double)cols));
        }
    }
    return x;
}

uint8_t *oracle_mask(size_t rows, size_t cols, uint64_t seed)
{
    const size_t stride = (cols + 7) / 8;
    uint8_t *mask = room(rows * stride, 1);
    for (size_t i = 0; i < rows * cols; i++) {
        if (oracle_uniform(&seed) >= 0.5) {
            mask[i / cols * stride + i % cols / 8] |= (uint8_t)(1u << (i % cols % 8));
        }
    }
    return mask;
}

bool oracle_kept(const uint8_t *mask, size_t cols, size_t row, size_t column)
{
    return mask == NULL || ((mask[row * ((cols + 7) / 8) + column / 8] >> (column % 8)) & 1) != 0;
}

double *oracle_hessian(float *x, size_t tokens, size_t cols, size_t dead)
{
    double *h = room(cols * cols, sizeof *h);
    for (size_t t = 0; t < tokens && dead < cols; t++) {
        x[t * cols + dead] = 0.0F;
    }
    for (size_t r = 0; r < cols; r++) {
        for (size_t c = 0; c < cols; c++) {
            for (size_t t = 0; t < tokens; t++) {
                h[r * cols + c] += (double)x[t * cols + r] * (double)x[t * cols + c];
            }
            h[r * cols + c] *= 2.0 / 3.0;
        }
    }
    return h;
}

double *oracle_identity(size_t cols)
{
    double *h = room(cols * cols, sizeof *h);
    for (size_t c = 0; c < cols; c++) {
        h[c * cols + c] = 1.0;
    }
    return h;
}

static double *invert(const double *matrix, size_t n)
{
    double *a = room(n * n, sizeof *a);
    double *inverse = oracle_identity(n);
    memcpy(a, matrix, n * n * sizeof *a);
    for (size_t p = 0; p < n; p++) {
        const double pivot = a[p * n + p];
        for (size_t c = 0; c < n; c++) {
            a[p * n + c] /= pivot;
            inverse[p * n + c] /= pivot;
        }
        for (size_t r = 0; r < n; r++) {
            const double factor = a[r * n + p];
            for (size_t c = 0; r != p && c < n; c++) {
                a[r * n + c] -= factor * a[p * n + c];
                inverse[r * n + c] -= factor * inverse[p * n + c];
            }
        }
    }
    free(a);
    return inverse;
}

double *oracle_factor(const double *hessian, size_t cols, double damp)
{
    double *damped = room(cols * cols, sizeof *damped);
    double mean = 0.0;
    memcpy(damped, hessian, cols * cols * sizeof *damped);
    for (size_t c = 0; c < cols; c++) {
        if (damped[c * cols + c] == 0.0) {
            damped[c * cols + c] = 1.0;
        }
        mean += damped[c * cols + c] / (double)cols;
    }
    for (size_t c = 0; c < cols; c++) {
        damped[c * cols + c] += damp * mean;
    }
    double *inverse = invert(damped, cols);
    double *upper = room(cols * cols, sizeof *upper);
    for (size_t r = 0; r < cols; r++) {
        for (size_t c = r; c < cols; c++) {
            double value = inverse[r * cols + c];
            for (size_t k = 0; k < r; k++) {
                value -= upper[k * cols + r] * upper[k * cols + c];
            }
            upper[r * cols + c] = r == c ? sqrt(value) : value / upper[r * cols + r];
        }
    }
    free(damped);
    free(inverse);
    return upper;
}

float oracle_scale(const struct oracle_format *format, double amax)
{
    const float clipped = (float)((double)(float)format->clip * (double)(float)amax);
    const double levels = exp2((double)format->bits);
    const double scale = format->full ? 2.0 * (double)clipped / (levels - 1.0)
                                      : (double)clipped / (levels / 2.0 - 1.0);
    return amax == 0.0 ? 1.0F : (float)scale;
}

int oracle_code(double w, float scale, unsigned bits)
{
    const double half = exp2((double)bits - 1.0);
    const float ratio = (float)((double)(float)w / (double)scale);
    return (int)fmin(fmax(nearbyint((double)ratio), -half), half - 1.0);
}

struct work {
    size_t rows, cols;
    double *w;
    const uint8_t *mask;
};

static double amax_of(const struct work *work, size_t row, size_t first, size_t count)
{
    double amax = 0.0;
    for (size_t c = first; row < work->rows && c < first + count; c++) {
        if (oracle_kept(work->mask, work->cols, row, c)) {
            amax = fmax(amax, fabs(work->w[row * work->cols + c]));
        }
    }
    return amax;
}

static void round_outliers(const struct work *work, size_t outliers, int *codes)
{
    const size_t normal = work->cols - outliers;
    for (size_t r = 0; r < work->rows; r++) {
        const float amax = (float)amax_of(work, r, normal, outliers);
        const float scale = amax == 0.0F ? 1.0F : (float)((double)amax / 127.0);
        for (size_t c = normal; c < work->cols; c++) {
            double *w = &work->w[r * work->cols + c];
            const bool kept = oracle_kept(work->mask, work->cols, r, c);
            codes[r * work->cols + c] = kept ? oracle_code(*w, scale, 8) : 0;
            *w = (double)scale * codes[r * work->cols + c];
        }
    }
}

void oracle_gptq(size_t rows, size_t cols, const float *w, const double *hessian,
                 const double *upper, const uint8_t *mask, const struct oracle_format *format,
                 bool freeze, double *values, int *codes)
{
    const struct work work = {rows, cols, values, mask};
    const size_t normal = cols - format->outliers;
    const size_t group = format->group == 0 ? normal : format->group;
    float *scales = room(rows, sizeof *scales);
    for (size_t i = 0; i < rows * cols; i++) {
        const bool dead = hessian[i % cols * cols + i % cols] == 0.0;
        values[i] = dead || !oracle_kept(mask, cols, i / cols, i % cols) ? 0.0 : (double)w[i];
    }
    for (size_t c = 0; c < normal; c++) {
        for (size_t r = 0; c % group == 0 && r < rows; r++) {
            const size_t first = r / format->pair * format->pair;
            double amax = amax_of(&work, first, c, group);
            if (format->pair == 2) {
                amax = fmax(amax, amax_of(&work, first + 1, c, group));
            }
            scales[r] = oracle_scale(format, amax);
        }
        for (size_t r = 0; r < rows; r++) {
            const bool kept = oracle_kept(mask, cols, r, c);
            const int code = kept ? oracle_code(values[r * cols + c], scales[r], format->bits) : 0;
            const double value = (double)scales[r] * code;
            const double error = (values[r * cols + c] - value) / upper[c * cols + c];
            for (size_t k = c + 1; k < cols && !(freeze && !kept); k++) {
                values[r * cols + k] -= error * upper[c * cols + k];
            }
            values[r * cols + c] = value;
            codes[r * cols + c] = code;
        }
    }
    round_outliers(&work, format->outliers, codes);
    free(scales);
}
