/* Repeatable settings of benches: names, shapes, numbers. */
#ifndef ESPL_CLI_BENCH_SETTINGS_H
#define ESPL_CLI_BENCH_SETTINGS_H

#include "cli/command.h"

#include <stddef.h>

enum { ESPL_BENCH_MOST_SETTINGS = 64 };

struct espl_bench_size {
    size_t rows;
    size_t cols;
};

/** *texts <- the values of a repeatable option, NULL when there are none; free() the array, also
 * after an error. Errors: USAGE (more than `most`), NOMEM. */
enum espl_status espl_bench_texts_of(const struct espl_cli *cli, const char *option, size_t most,
                                     const char ***texts, size_t *count, struct espl_error *err);
/** Values of --shape (ROWSxCOLS, each 1 to most_side), or `usual` (usual_count of them) when none
 * is given. sizes: room for ESPL_BENCH_MOST_SETTINGS. Errors: USAGE, NOMEM. */
enum espl_status espl_bench_shapes_of(const struct espl_cli *cli,
                                      const struct espl_bench_size *usual, size_t usual_count,
                                      size_t most_side, struct espl_bench_size *sizes,
                                      size_t *count, struct espl_error *err);
/** Values of --sparsity, 0 to 1. Likewise. */
enum espl_status espl_bench_shares_of(const struct espl_cli *cli, const double *usual,
                                      size_t usual_count, double *shares, size_t *count,
                                      struct espl_error *err);
/** Value of --bits, one digit; 4 when it is not given. */
unsigned espl_bench_bits(const struct espl_cli *cli);
/** Values of a repeatable option of whole numbers, 1 to highest. Likewise. */
enum espl_status espl_bench_counts_of(const struct espl_cli *cli, const char *option,
                                      const size_t *usual, size_t usual_count, size_t highest,
                                      size_t *counts, size_t *count, struct espl_error *err);

#endif
