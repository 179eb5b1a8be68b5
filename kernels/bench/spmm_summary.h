/* Means over the cases of an SpMM bench: speed-ups of the automatic choice, its regret, what scales
 * and outliers cost. */
#ifndef ESPL_BENCH_SPMM_SUMMARY_H
#define ESPL_BENCH_SPMM_SUMMARY_H

#include "kernels/bench/spmm_results.h"

/** Of ratios of times. */
struct espl_spmm_mean {
    double logs;  /* sum of logarithms */
    double worst; /* the largest ratio; 0 without cases */
    size_t cases;
};
/** Geometric mean; NaN without cases. */
double espl_spmm_mean_of(const struct espl_spmm_mean *mean);
/** The same less 1, and the worst less 1: a regret. */
double espl_spmm_mean_regret(const struct espl_spmm_mean *mean);
double espl_spmm_worst_regret(const struct espl_spmm_mean *mean);

/** Of the cases with one number of tokens (and one sparsity). */
struct espl_spmm_summary {
    size_t tokens;
    double sparsity; /* NaN: of all sparsities */
    size_t cases;
    size_t subjects;
    char names[ESPL_SPMM_MAX_RESULTS][ESPL_SPMM_NAME];
    struct espl_spmm_mean over[ESPL_SPMM_MAX_RESULTS]; /* products over the automatic choice */
    struct espl_spmm_mean
        layer[ESPL_SPMM_MAX_RESULTS];                 /* layers over the products of their codes */
    struct espl_spmm_mean cut[ESPL_SPMM_MAX_RESULTS]; /* of a sweep: the cut in use over the best */
    struct espl_spmm_mean regret;                     /* of the form: choice over best */
    struct espl_spmm_mean swept; /* of form and cut: choice over the best cut of the best form */
    double worst_dense;          /* largest ratio of the choice to dense; 0 without dense */
};

enum { ESPL_SPMM_MAX_SUMMARIES = 256 };

struct espl_spmm_summaries {
    struct espl_spmm_summary items[ESPL_SPMM_MAX_SUMMARIES];
    size_t count;
};

/** Adds a case to the summary of its tokens and, unless over_sparsities, its sparsity. A case whose
 *  choice was not measured, and one that would be the 257th setting, adds nothing. */
void espl_spmm_summaries_add(struct espl_spmm_summaries *summaries,
                             const struct espl_spmm_case *item, bool over_sparsities);
/** Place of a subject; summary->subjects when no case had it. */
size_t espl_spmm_summary_subject(const struct espl_spmm_summary *summary, const char *name);

#endif
