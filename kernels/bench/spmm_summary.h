/* Means over the cases of an SpMM bench: speed-ups of the automatic choice, its regret. */
#ifndef ESPL_BENCH_SPMM_SUMMARY_H
#define ESPL_BENCH_SPMM_SUMMARY_H

#include "kernels/bench/spmm_results.h"

/** Of the cases with one number of tokens (and one sparsity). */
struct espl_spmm_summary {
    size_t tokens;
    double sparsity; /* NaN: of all sparsities */
    size_t cases;
    size_t subjects;
    char names[ESPL_SPMM_MAX_RESULTS][ESPL_SPMM_NAME];
    double over[ESPL_SPMM_MAX_RESULTS];       /* sums of logarithms of speed-ups over each */
    size_t over_cases[ESPL_SPMM_MAX_RESULTS]; /* cases that measured it */
    double regret;                            /* of the form: choice over best, likewise */
    double worst_regret;                      /* the largest ratio */
    double worst_dense;                       /* largest ratio to dense; 0 without dense */
    size_t swept_cases;
    double swept_regret; /* of form and cut: choice over the best cut of the best form */
    double worst_swept_regret;
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
/** Geometric mean of the speed-up over a subject; NaN when no case measured it. */
double espl_spmm_summary_speedup(const struct espl_spmm_summary *summary, size_t subject);
/** Geometric means minus 1; NaN without cases. */
double espl_spmm_summary_regret(const struct espl_spmm_summary *summary);
double espl_spmm_summary_swept_regret(const struct espl_spmm_summary *summary);

#endif
