/* Reference losses over logit rows. */
#include "kernels/backend_internal.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>

/* log(sum(exp(row))) without overflow. */
static double log_sum_exp(const float *row, size_t count)
{
    double highest = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        highest = (double)row[i] > highest ? (double)row[i] : highest;
    }
    double sum = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += exp((double)row[i] - highest);
    }
    return highest + log(sum);
}

enum espl_status espl_ref_cross_entropy(struct espl_backend *backend, size_t tokens, size_t vocab,
                                        const float *logits, const int32_t *targets, double *nll,
                                        struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t t = 0; t < tokens; t++) {
        const float *row = logits + t * vocab;
        nll[t] = targets[t] < 0 ? 0.0 : log_sum_exp(row, vocab) - (double)row[targets[t]];
    }
    return ESPL_OK;
}

enum espl_status espl_ref_kl_divergence(struct espl_backend *backend, size_t tokens, size_t vocab,
                                        const float *logits_p, const float *logits_q, double *kl,
                                        struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t t = 0; t < tokens; t++) {
        const float *p = logits_p + t * vocab;
        const float *q = logits_q + t * vocab;
        const double norm_p = log_sum_exp(p, vocab);
        const double norm_q = log_sum_exp(q, vocab);
        double sum = 0.0;
        for (size_t i = 0; i < vocab; i++) {
            const double log_p = (double)p[i] - norm_p;
            const double log_q = (double)q[i] - norm_q;
            sum += exp(log_p) * (log_p - log_q);
        }
        kl[t] = sum;
    }
    return ESPL_OK;
}
