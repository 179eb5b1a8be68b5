/* Stored measurements: for products that a sweep timed, the choice that was fastest. Where there is
 * one, it takes the place of the rule. */
#ifndef ESPL_BENCH_SPMM_TUNING_H
#define ESPL_BENCH_SPMM_TUNING_H

#include "kernels/bench/spmm_results.h"

/** One of one device. */
struct espl_spmm_stored {
    char form[ESPL_SPMM_NAME]; /* as in results */
    size_t rows;
    size_t cols;
    size_t tokens;
    double sparsity; /* of the codes; what is asked for takes the nearest */
    struct espl_cuda_spmm_choice choice;
    double seconds; /* cold caches, CUDA graph */
};

struct espl_spmm_tuning {
    struct espl_spmm_stored *items;
    size_t count;
    size_t room;
};

/** The choice for this form, shape and number of tokens whose sparsity is nearest (of two equally
 *  near ones the lower); NULL when there is none. tuning: NULL allowed. */
const struct espl_spmm_stored *espl_spmm_tuning_find(const struct espl_spmm_tuning *tuning,
                                                     const char *form, size_t rows, size_t cols,
                                                     size_t tokens, double sparsity);
/** Adds a choice, or replaces the one with the same form, shape, tokens and sparsity. Errors:
 * NOMEM.
 */
enum espl_status espl_spmm_tuning_put(struct espl_spmm_tuning *tuning,
                                      const struct espl_spmm_stored *stored,
                                      struct espl_error *err);
/** Adds what the sweeps of a case found. */
enum espl_status espl_spmm_tuning_take(struct espl_spmm_tuning *tuning,
                                       const struct espl_spmm_case *item, struct espl_error *err);
void espl_spmm_tuning_free(struct espl_spmm_tuning *tuning);

#endif
