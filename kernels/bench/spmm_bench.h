/* The SpMM bench: our forms of the same random weights and other libraries' products, timed in one
 * run on the CUDA device. */
#ifndef ESPL_BENCH_SPMM_BENCH_H
#define ESPL_BENCH_SPMM_BENCH_H

#include "core/error.h"
#include "espalier/cuda_spmm.h"
#include "espalier/cuda_timing.h"
#include "kernels/bench/spmm_peer.h"

#include <stdbool.h>

enum {
    ESPL_SPMM_NAME = 24,
    ESPL_SPMM_MAX_RESULTS = 16,
    ESPL_SPMM_MAX_PEERS = 8,
    ESPL_SPMM_MAX_FORMS = 8
};

/** One subject of a case. A time of 0 was not taken. */
struct espl_spmm_result {
    char name[ESPL_SPMM_NAME]; /* dense, int3, int2, 1x1, 1x2, 2x1, 2x2, or a baseline's */
    bool ours;
    bool measured;
    char why[ESPL_SPMM_PEER_TEXT]; /* not measured: why */
    uint64_t bytes;                /* of the weights, all that is read of them */
    double expected;               /* ours: seconds that the rule expects */
    struct espl_cuda_spmm_choice choice;
    struct espl_cuda_time graph;   /* cold caches, CUDA graph */
    struct espl_cuda_time eager;   /* cold caches, launched one by one */
    struct espl_cuda_time warm;    /* the same copy always, CUDA graph */
    struct espl_cuda_time overlap; /* cold, CUDA graph, programmatic dependent launch */
};

/** A shape, a number of tokens and a sparsity. Without sparse forms the sparsity is that of the
 *  codes all the same. */
struct espl_spmm_case {
    size_t rows;
    size_t cols;
    size_t tokens;
    double sparsity;
    struct espl_spmm_result results[ESPL_SPMM_MAX_RESULTS];
    size_t count;
    size_t chosen; /* the automatic choice among ours that hold the weights without loss */
    size_t best;   /* the fastest of these */
};

struct espl_spmm_bench_options {
    size_t repeats;                         /* of a timing */
    size_t launches;                        /* of a repeat, at least */
    const char *forms[ESPL_SPMM_MAX_FORMS]; /* names as in results */
    size_t form_count;
    const struct espl_spmm_peer *peers[ESPL_SPMM_MAX_PEERS];
    size_t peer_count;
    bool all_modes; /* also eager, warm and overlap; otherwise graph alone */
};

/** What the measurements are related to. */
struct espl_spmm_ceiling {
    double copy_bytes_a_second; /* of a large copy, read plus written */
    size_t cache_bytes;
};

enum espl_status espl_spmm_measure_ceiling(struct espl_spmm_ceiling *ceiling,
                                           struct espl_error *err);
/** Called for every case as it is done; an error ends the bench. */
typedef enum espl_status espl_spmm_case_fn(const struct espl_spmm_case *result, void *self,
                                           struct espl_error *err);
/** All cases of one shape: sparsities, and for each all numbers of tokens. Subjects that do not
 *  depend on the sparsity are timed once and repeated in the results. */
enum espl_status espl_spmm_bench_shape(const struct espl_spmm_bench_options *options,
                                       const struct espl_spmm_ceiling *ceiling, size_t rows,
                                       size_t cols, const double *sparsities, size_t sparsity_count,
                                       const size_t *tokens, size_t token_count,
                                       espl_spmm_case_fn *done, void *self, struct espl_error *err);

#endif
