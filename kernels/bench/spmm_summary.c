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

/* Place of a subject; cases need not have the same ones. ESPL_SPMM_MAX_RESULTS: no room. */
static size_t subject_of(struct espl_spmm_summary *summary, const char *name)
{
    for (size_t i = 0; i < summary->subjects; i++) {
        if (strcmp(summary->names[i], name) == 0) {
            return i;
        }
    }
    if (summary->subjects < ESPL_SPMM_MAX_RESULTS) {
        memcpy(summary->names[summary->subjects], name, strlen(name) + 1);
        return summary->subjects++;
    }
    return ESPL_SPMM_MAX_RESULTS;
}

static void add_subject(struct espl_spmm_summary *summary, const struct espl_spmm_case *item,
                        size_t result, double chosen)
{
    const double seconds = espl_spmm_seconds(item, result);
    const char *name = item->results[result].name;
    const size_t subject = subject_of(summary, name);
    if (!isfinite(seconds) || subject == ESPL_SPMM_MAX_RESULTS) {
        return;
    }
    summary->over[subject] += log(seconds / chosen);
    summary->over_cases[subject]++;
    if (strcmp(name, "dense") == 0) {
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
    const double regret = chosen / espl_spmm_seconds(item, item->best);
    summary->cases++;
    summary->regret += log(regret);
    summary->worst_regret = fmax(summary->worst_regret, regret);
    for (size_t i = 0; i < item->count; i++) {
        add_subject(summary, item, i, chosen);
    }
    const struct espl_spmm_sweep *sweep = &item->results[item->chosen].sweep;
    if (sweep->tried > 0) {
        const double swept = sweep->chosen_seconds / espl_spmm_swept_seconds(item);
        summary->swept_cases++;
        summary->swept_regret += log(swept);
        summary->worst_swept_regret = fmax(summary->worst_swept_regret, swept);
    }
}

/* A geometric mean; NaN of nothing. */
static double mean(double sum, size_t count)
{
    return count > 0 ? exp(sum / (double)count) : (double)NAN;
}

double espl_spmm_summary_speedup(const struct espl_spmm_summary *summary, size_t subject)
{
    return mean(summary->over[subject], summary->over_cases[subject]);
}

double espl_spmm_summary_regret(const struct espl_spmm_summary *summary)
{
    return mean(summary->regret, summary->cases) - 1.0;
}

double espl_spmm_summary_swept_regret(const struct espl_spmm_summary *summary)
{
    return mean(summary->swept_regret, summary->swept_cases) - 1.0;
}
