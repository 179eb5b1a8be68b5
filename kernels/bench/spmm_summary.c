#include "kernels/bench/spmm_summary.h"

#include <math.h>
#include <string.h>

static bool same_sparsity(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static struct espl_spmm_summary *summary_of(struct espl_spmm_summaries *summaries, size_t tokens,
                                            double sparsity)
{
    for (size_t i = 0; i < summaries->count; i++) {
        if (summaries->items[i].tokens == tokens &&
            same_sparsity(summaries->items[i].sparsity, sparsity)) {
            return &summaries->items[i];
        }
    }
    if (summaries->count == ESPL_SPMM_MAX_SUMMARIES) {
        return NULL;
    }
    struct espl_spmm_summary *fresh = &summaries->items[summaries->count++];
    memset(fresh, 0, sizeof *fresh);
    fresh->tokens = tokens;
    fresh->sparsity = sparsity;
    return fresh;
}

size_t espl_spmm_summary_subject(const struct espl_spmm_summary *summary, const char *name)
{
    size_t at = 0;
    while (at < summary->subjects && strcmp(summary->names[at], name) != 0) {
        at++;
    }
    return at;
}

/* Place of a subject, a new one if need be: cases need not have the same ones.
 * ESPL_SPMM_MAX_RESULTS: no room. */
static size_t subject_of(struct espl_spmm_summary *summary, const char *name)
{
    const size_t at = espl_spmm_summary_subject(summary, name);
    if (at == summary->subjects && at < ESPL_SPMM_MAX_RESULTS) {
        memcpy(summary->names[at], name, strlen(name) + 1);
        summary->subjects++;
    }
    return at;
}

static void add(struct espl_spmm_mean *mean, double ratio)
{
    if (isfinite(ratio)) {
        mean->logs += log(ratio);
        mean->worst = fmax(mean->worst, ratio);
        mean->cases++;
    }
}

static void add_subject(struct espl_spmm_summary *summary, const struct espl_spmm_case *item,
                        size_t result, double chosen)
{
    const struct espl_spmm_result *r = &item->results[result];
    const double seconds = espl_spmm_seconds(item, result);
    const size_t subject = subject_of(summary, r->name);
    if (subject == ESPL_SPMM_MAX_RESULTS) {
        return;
    }
    if (r->sweep.tried > 0) {
        add(&summary->cut[subject], r->sweep.chosen_seconds / r->sweep.seconds);
    }
    if (r->kind == ESPL_SPMM_CODES) {
        add(&summary->over[subject], seconds / chosen);
    }
    if (r->kind == ESPL_SPMM_LAYER) {
        const size_t plain = espl_spmm_plain_of(item, result);
        add(&summary->layer[subject],
            plain < item->count ? seconds / espl_spmm_seconds(item, plain) : (double)NAN);
    }
    if (strcmp(r->name, "dense") == 0 && isfinite(seconds)) {
        summary->worst_dense = fmax(summary->worst_dense, chosen / seconds);
    }
}

void espl_spmm_summaries_add(struct espl_spmm_summaries *summaries,
                             const struct espl_spmm_case *item, bool over_sparsities)
{
    const double chosen = espl_spmm_seconds(item, item->chosen);
    struct espl_spmm_summary *summary =
        summary_of(summaries, item->tokens, over_sparsities ? (double)NAN : item->sparsity);
    if (summary == NULL || !isfinite(chosen)) {
        return;
    }
    summary->cases++;
    add(&summary->regret, chosen / espl_spmm_seconds(item, item->best));
    for (size_t i = 0; i < item->count; i++) {
        add_subject(summary, item, i, chosen);
    }
    const struct espl_spmm_sweep *sweep = &item->results[item->chosen].sweep;
    if (sweep->tried > 0) {
        add(&summary->swept, sweep->chosen_seconds / espl_spmm_swept_seconds(item));
    }
}

double espl_spmm_mean_of(const struct espl_spmm_mean *mean)
{
    return mean->cases > 0 ? exp(mean->logs / (double)mean->cases) : (double)NAN;
}

double espl_spmm_mean_regret(const struct espl_spmm_mean *mean)
{
    return espl_spmm_mean_of(mean) - 1.0;
}

double espl_spmm_worst_regret(const struct espl_spmm_mean *mean)
{
    return mean->cases > 0 ? mean->worst - 1.0 : (double)NAN;
}
