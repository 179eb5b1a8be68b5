/* What the parts of the sparse kernel are worth [UnionSparse, Table III]: stages of the ring, who
 * fills it, union masks, rows in order. */
#ifndef ESPL_BENCH_SPMM_ABLATION_H
#define ESPL_BENCH_SPMM_ABLATION_H

#include "kernels/bench/spmm_bench.h"

enum { ESPL_SPMM_MAX_VARIANTS = 32 };

/** One way to multiply by the same weights. */
struct espl_spmm_variant {
    const char *form; /* dense, 1x1, 1x2, 2x1, 2x2 */
    bool reordered;   /* rows of every stripe of 16 in the order that leaves the fewest mask bits */
    bool producer;    /* one warp of a block fills the rings of all others */
    unsigned stages;  /* of a warp's ring: 2 = double buffer; 0 = dense, which has none */
    bool measured;
    char why[ESPL_SPMM_PEER_TEXT];
    uint64_t bytes;
    struct espl_cuda_time time; /* cold caches, CUDA graph */
};

struct espl_spmm_ablation {
    size_t rows;
    size_t cols;
    size_t tokens;
    double sparsity;
    struct espl_spmm_variant variants[ESPL_SPMM_MAX_VARIANTS];
    size_t count;
};

/** *ordered (16 * ceil(rows / 16), cols) <- codes (rows, cols) with the rows of every stripe in the
 *  order that leaves the fewest bits in masks of row_areas x col_areas; missing rows are 0.
 * malloc'ed. Errors: NOMEM, those of the reorder. */
enum espl_status espl_spmm_order_rows(const int8_t *codes, size_t rows, size_t cols,
                                      unsigned row_areas, unsigned col_areas, int8_t **ordered,
                                      struct espl_error *err);
/** Random weights of one shape and sparsity: dense, then 1x1, 1x2, 2x1 and 2x2 with 2, 3 and 4
 *  stages, by warps that fill their own rings and with a producer warp; 2x1 and 2x2 also reordered.
 *  The outputs of a reordered product stand in the order of its rows; putting them back is not
 *  timed. options: repeats and launches. Errors: those of the bench. */
enum espl_status espl_spmm_ablate(const struct espl_spmm_bench_options *options,
                                  const struct espl_spmm_ceiling *ceiling, size_t rows, size_t cols,
                                  size_t tokens, double sparsity, struct espl_spmm_ablation *out,
                                  struct espl_error *err);

#endif
