#include "kernels/kernel_oracle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void linear(const struct espl_kernel_problem *p, double *y)
{
    const size_t in = p->item->size[1];
    const size_t out = p->item->size[2];
    for (size_t i = 0; i < p->output_count; i++) {
        const float *x = p->inputs[0] + i / out * in;
        const float *w = p->inputs[1] + i % out * in;
        double sum = 0.0;
        for (size_t j = in; j-- > 0;) {
            sum += (double)x[j] * (double)w[j];
        }
        y[i] = sum + (p->inputs[2] != NULL ? (double)p->inputs[2][i % out] : 0.0);
    }
}

/* Both norms as: subtract a centre, divide by the root of mean square + eps. */
static void norm(const struct espl_kernel_problem *p, double *y)
{
    const size_t width = p->item->size[1];
    const bool centred = strcmp(p->item->op, "layernorm") == 0;
    for (size_t t = 0; t < p->item->size[0]; t++) {
        const float *x = p->inputs[0] + t * width;
        double centre = 0.0;
        double square = 0.0;
        for (size_t i = 0; centred && i < width; i++) {
            centre += (double)x[i] / (double)width;
        }
        for (size_t i = 0; i < width; i++) {
            square += pow((double)x[i] - centre, 2.0) / (double)width;
        }
        for (size_t i = 0; i < width; i++) {
            const double gain = p->inputs[1] != NULL ? (double)p->inputs[1][i] : 1.0;
            const double bias = p->inputs[2] != NULL ? (double)p->inputs[2][i] : 0.0;
            y[t * width + i] = ((double)x[i] - centre) / sqrt(square + (double)1e-5F) * gain + bias;
        }
    }
}

/* A rotation of the pair (x[i], x[i + half]) by position * inv_freq[i], as complex numbers. */
static void rotary(const struct espl_kernel_problem *p, double *y)
{
    const size_t head_dim = p->item->size[3];
    const size_t half = head_dim / 2;
    const size_t width = p->item->size[2] * head_dim;
    for (size_t i = 0; i < p->output_count; i++) {
        const size_t position = i / width % p->item->size[1];
        const size_t within = i % head_dim;
        const double angle = (double)((float)position * p->inputs[1][within % half]);
        const double x = (double)p->inputs[0][i];
        y[i] = within < half
                   ? 1.25 * (x * cos(angle) - (double)p->inputs[0][i + half] * sin(angle))
                   : 1.25 * (x * cos(angle) + (double)p->inputs[0][i - half] * sin(angle));
    }
}

static void attention(const struct espl_kernel_problem *p, double *y)
{
    const size_t tokens = p->item->size[1];
    const size_t heads = p->item->size[2];
    const size_t kv_heads = p->item->size[3];
    const size_t dim = p->item->size[4];
    memset(y, 0, p->output_count * sizeof *y);
    for (size_t row = 0; row < p->item->size[0] * tokens; row++) {
        for (size_t h = 0; h < heads; h++) {
            const size_t shared = h * kv_heads / heads;
            double total = 0.0;
            double *out = y + (row * heads + h) * dim;
            for (size_t key = row - row % tokens; key <= row; key++) {
                double dot = 0.0;
                for (size_t d = 0; d < dim; d++) {
                    dot += (double)p->inputs[0][(row * heads + h) * dim + d] *
                           (double)p->inputs[1][(key * kv_heads + shared) * dim + d];
                }
                const double weight = exp(dot / sqrt((double)dim));
                total += weight;
                for (size_t d = 0; d < dim; d++) {
                    out[d] += weight * (double)p->inputs[2][(key * kv_heads + shared) * dim + d];
                }
            }
            for (size_t d = 0; d < dim; d++) {
                out[d] /= total;
            }
        }
    }
}

static void elementwise(const struct espl_kernel_problem *p, double *y)
{
    const char *op = p->item->op;
    for (size_t i = 0; i < p->output_count; i++) {
        const double x = (double)p->inputs[0][i];
        const double other = p->inputs[1] != NULL ? (double)p->inputs[1][i] : 0.0;
        if (strcmp(op, "silu_mul") == 0) {
            y[i] = x * other / (1.0 + exp(-x));
        } else if (strcmp(op, "relu") == 0) {
            y[i] = fmax(x, 0.0);
        } else if (strcmp(op, "gelu") == 0) {
            y[i] = x / 2.0 * erfc(-x / sqrt(2.0));
        } else {
            y[i] = (double)((float)x + (float)other);
        }
    }
}

/* log softmax of a row without subtracting the maximum: the inputs stay below 25. */
static double log_probability(const float *row, size_t vocab, size_t index)
{
    double sum = 0.0;
    for (size_t i = 0; i < vocab; i++) {
        sum += exp((double)row[i]);
    }
    return (double)row[index] - log(sum);
}

static void loss(const struct espl_kernel_problem *p, double *y)
{
    const size_t vocab = p->item->size[1];
    const bool kl = strcmp(p->item->op, "kl_divergence") == 0;
    for (size_t t = 0; t < p->item->size[0]; t++) {
        const float *row = p->inputs[0] + t * vocab;
        const float *other = p->inputs[1] + t * vocab;
        if (!kl) {
            y[t] = p->targets[t] < 0 ? 0.0 : -log_probability(row, vocab, (size_t)p->targets[t]);
            continue;
        }
        const double shift = log_probability(row, vocab, 0) - (double)row[0];
        const double other_shift = log_probability(other, vocab, 0) - (double)other[0];
        y[t] = 0.0;
        for (size_t i = 0; i < vocab; i++) {
            const double log_p = (double)row[i] + shift;
            y[t] += exp(log_p) * (log_p - ((double)other[i] + other_shift));
        }
    }
}

static void statistics(const struct espl_kernel_problem *p, double *y)
{
    const size_t width = p->item->size[1];
    for (size_t c = 0; c < width; c++) {
        y[c] = 0.0;
        for (size_t t = 0; t < p->item->size[0]; t++) {
            y[c] += pow((double)p->inputs[0][t * width + c], 2.0);
        }
    }
}

static void score(const struct espl_kernel_problem *p, double *y)
{
    for (size_t i = 0; i < p->output_count; i++) {
        y[i] = (double)(fabsf(p->inputs[0][i]) * p->inputs[1][i % p->item->size[1]]);
    }
}

/* How many of columns [first, first + count) come before column j when sorted by (score, column).
 */
static size_t rank_of(const float *row, size_t first, size_t count, size_t j)
{
    size_t rank = 0;
    for (size_t k = first; k < first + count; k++) {
        if (row[k] < row[j] || (row[k] == row[j] && k < j)) {
            rank++;
        }
    }
    return rank;
}

static void mask(const struct espl_kernel_problem *p, double *y)
{
    const size_t cols = p->item->size[1];
    const size_t stride = espl_mask_stride(cols);
    const bool nm = strcmp(p->item->op, "nm_mask") == 0;
    const size_t window = nm ? p->item->size[3] : cols;
    const size_t removed = nm ? window - p->item->size[2] : p->item->size[2];
    memset(y, 0, p->output_count * sizeof *y);
    for (size_t i = 0; i < p->item->size[0]; i++) {
        const float *row = p->inputs[0] + i * cols;
        for (size_t j = 0; j < cols; j++) {
            const size_t first = j - j % window;
            const bool whole = first + window <= cols;
            if (!whole || rank_of(row, first, window, j) >= removed) {
                y[i * stride + j / 8] += (double)(1u << (j % 8));
            }
        }
    }
}

static void masked(const struct espl_kernel_problem *p, double *y)
{
    const size_t cols = p->item->size[1];
    for (size_t i = 0; i < p->output_count; i++) {
        const uint8_t byte = p->mask[i / cols * espl_mask_stride(cols) + i % cols / 8];
        y[i] = (byte & (1u << (i % cols % 8))) != 0 ? (double)p->inputs[0][i] : 0.0;
    }
}

/* sign, exponent and fraction as IEEE 754 defines them. */
static double small_float(unsigned word, int exponent_bits, int fraction_bits)
{
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (int)(word >> fraction_bits) & ((1 << exponent_bits) - 1);
    const double fraction = ldexp((double)(word & ((1u << fraction_bits) - 1u)), -fraction_bits);
    double size = 0.0;
    if (exponent == (1 << exponent_bits) - 1) {
        size = fraction == 0.0 ? (double)INFINITY : (double)NAN;
    } else if (exponent == 0) {
        size = ldexp(fraction, 1 - bias);
    } else {
        size = ldexp(1.0 + fraction, exponent - bias);
    }
    return (word >> (exponent_bits + fraction_bits)) != 0 ? -size : size;
}

static void conversion(const struct espl_kernel_problem *p, double *y)
{
    const bool half = strcmp(p->item->op, "f16_to_f32") == 0;
    for (size_t i = 0; i < p->output_count; i++) {
        y[i] = half ? small_float(p->words[i], 5, 10) : small_float(p->words[i], 8, 7);
    }
}

static void first_bad(const struct espl_kernel_problem *p, double *y)
{
    *y = (double)p->item->size[1]; /* where the problem put it */
}

double *kernel_oracle(const struct espl_kernel_problem *problem)
{
    static const struct {
        const char *op;
        void (*compute)(const struct espl_kernel_problem *p, double *y);
    } formulas[] = {
        {"gemm_f32", linear},
        {"rmsnorm", norm},
        {"layernorm", norm},
        {"rope", rotary},
        {"attention", attention},
        {"silu_mul", elementwise},
        {"relu", elementwise},
        {"gelu", elementwise},
        {"add", elementwise},
        {"cross_entropy", loss},
        {"kl_divergence", loss},
        {"column_sumsq", statistics},
        {"wanda_score", score},
        {"row_mask", mask},
        {"nm_mask", mask},
        {"apply_mask", masked},
        {"f16_to_f32", conversion},
        {"bf16_to_f32", conversion},
        {"find_nonfinite", first_bad},
    };
    double *y = malloc(problem->output_count * sizeof *y);
    assert_non_null(y);
    for (size_t i = 0; i < sizeof formulas / sizeof formulas[0]; i++) {
        if (strcmp(formulas[i].op, problem->item->op) == 0) {
            formulas[i].compute(problem, y);
            return y;
        }
    }
    fail_msg("no formula for '%s'", problem->item->op);
    return y;
}

double *kernel_output_as_double(const struct espl_kernel_problem *problem)
{
    double *values = malloc(problem->output_count * sizeof *values);
    assert_non_null(values);
    for (size_t i = 0; i < problem->output_count; i++) {
        switch (problem->output_kind) {
        case ESPL_OUTPUT_F32:
            values[i] = (double)((const float *)problem->output)[i];
            break;
        case ESPL_OUTPUT_F64:
            values[i] = ((const double *)problem->output)[i];
            break;
        case ESPL_OUTPUT_U8:
            values[i] = (double)((const uint8_t *)problem->output)[i];
            break;
        case ESPL_OUTPUT_INDEX:
            values[i] = (double)((const size_t *)problem->output)[i];
            break;
        }
    }
    return values;
}
