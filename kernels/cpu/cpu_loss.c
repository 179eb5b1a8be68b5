/* Losses over logit rows: a row is read twice (maximum, then sum of exponentials); float32 terms
 * are summed within a run and in double across runs. */
#include "kernels/backend_internal.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/vectormath.h"

#include <math.h>

/* Terms that add up in float32 before they go into the double sum. */
enum { RUN = 512 };

ESPL_CPU_CLONES
static float max_row(const float *x, size_t count)
{
    float highest = -FLT_MAX;
#pragma omp simd reduction(max : highest)
    for (size_t i = 0; i < count; i++) {
        highest = x[i] > highest ? x[i] : highest;
    }
    return highest;
}

ESPL_CPU_CLONES
static float exp_sum_run(const float *x, size_t count, float highest)
{
    float sum = 0.0F;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        sum += espl_exp_f32(x[i] - highest);
    }
    return sum;
}

static size_t run_length(size_t count, size_t first)
{
    return count - first < RUN ? count - first : RUN;
}

/* log(sum(exp(row))). NaN in the row gives NaN. */
static double log_sum_exp(const float *row, size_t count)
{
    const float highest = max_row(row, count);
    double sum = 0.0;
    for (size_t first = 0; first < count; first += RUN) {
        sum += (double)exp_sum_run(row + first, run_length(count, first), highest);
    }
    return (double)highest + log(sum);
}

/* Sum over a run of p (log p - log q). Both log terms are small differences of large numbers, so
 * they are formed in double; their difference is what float32 would lose. */
ESPL_CPU_CLONES
static double kl_run(const float *p, const float *q, size_t count, double norm_p, double norm_q)
{
    double sum = 0.0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        const double log_p = (double)p[i] - norm_p;
        const double log_q = (double)q[i] - norm_q;
        sum += (double)espl_exp_f32((float)log_p) * (log_p - log_q);
    }
    return sum;
}

enum espl_status espl_cpu_cross_entropy(struct espl_backend *backend, size_t tokens, size_t vocab,
                                        const float *logits, const int32_t *targets, double *nll,
                                        struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (tokens > 1)
    for (size_t t = 0; t < tokens; t++) {
        const float *row = logits + t * vocab;
        nll[t] = targets[t] < 0 ? 0.0 : log_sum_exp(row, vocab) - (double)row[targets[t]];
    }
    return ESPL_OK;
}

enum espl_status espl_cpu_kl_divergence(struct espl_backend *backend, size_t tokens, size_t vocab,
                                        const float *logits_p, const float *logits_q, double *kl,
                                        struct espl_error *err)
{
    (void)err;
#pragma omp parallel for num_threads(backend->threads) schedule(static) if (tokens > 1)
    for (size_t t = 0; t < tokens; t++) {
        const float *p = logits_p + t * vocab;
        const float *q = logits_q + t * vocab;
        const double norm_p = log_sum_exp(p, vocab);
        const double norm_q = log_sum_exp(q, vocab);
        kl[t] = kl_run(p, q, vocab, norm_p, norm_q);
    }
    return ESPL_OK;
}
