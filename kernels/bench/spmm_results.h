/* What the SpMM benches measure: one case is a shape, a number of tokens and a sparsity; a result
 * is one way to compute its product. Plain data, the same for CUDA devices and the CPU. */
#ifndef ESPL_BENCH_SPMM_RESULTS_H
#define ESPL_BENCH_SPMM_RESULTS_H

#include "espalier/cuda_spmm.h"
#include "espalier/cuda_timing.h"
#include "kernels/bench/spmm_peer.h"

#include <stdbool.h>

enum {
    ESPL_SPMM_NAME = 24,
    ESPL_SPMM_MAX_RESULTS = 32,
    ESPL_SPMM_MAX_PEERS = 8,
    ESPL_SPMM_MAX_FORMS = 8
};

/** How a product was timed. */
enum espl_spmm_mode {
    ESPL_SPMM_GRAPH,      /* cold caches, one CUDA graph of all launches */
    ESPL_SPMM_EAGER,      /* cold caches, launched one by one; the CPU's usual mode */
    ESPL_SPMM_WARM,       /* the same copy of the weights always, CUDA graph */
    ESPL_SPMM_EAGER_WARM, /* the same copy, one by one */
    ESPL_SPMM_OVERLAP,    /* cold, CUDA graph, programmatic dependent launch */
    ESPL_SPMM_MODES
};
/** "graph", "eager", "warm", "eager_warm", "overlap". */
extern const char *const espl_spmm_mode_names[ESPL_SPMM_MODES];

/** What a sweep over all cuts of the work found. */
struct espl_spmm_sweep {
    size_t tried;                        /* choices that the kernels accept; 0 = no sweep */
    struct espl_cuda_spmm_choice choice; /* the fastest of them */
    double seconds;                      /* of that one */
    double chosen_seconds;               /* of the choice in use, timed beside it in the same way */
};

/** What a result computes: times are compared within one kind. */
enum espl_spmm_kind {
    ESPL_SPMM_CODES,    /* int32 sums of INT4 activations and codes of few bits; or a baseline */
    ESPL_SPMM_LAYER,    /* the layer as Atom has it: scales, INT8 outliers, bias, FP16 results */
    ESPL_SPMM_QUANTISER /* what makes its activations from FP16 */
};
/** "codes", "layer", "quantiser". */
extern const char *const espl_spmm_kind_names[];
#define ESPL_SPMM_LAYER_SUFFIX   "+atom"    /* of a layer's name, behind that of its form */
#define ESPL_SPMM_QUANTISER_NAME "quantise" /* of the quantiser */

/** One subject of a case. A time of 0 was not taken. */
struct espl_spmm_result {
    char name[ESPL_SPMM_NAME]; /* dense, int3, int2, 1x1, 1x2, 2x1, 2x2, mixed, these with +atom,
                                  quantise, or a baseline's */
    enum espl_spmm_kind kind;
    bool ours;
    bool lossless; /* ours: holds the case's codes; others are rivals with fewer bits */
    bool measured;
    bool stored;                   /* ours: the choice came from stored measurements */
    bool cold;                     /* copies were worth what the cold modes ask for */
    char why[ESPL_SPMM_PEER_TEXT]; /* not measured: why */
    uint64_t bytes;                /* of the weights, all that is read of them */
    double expected;               /* ours: seconds that rule or stored measurement promise */
    struct espl_cuda_spmm_choice choice;
    struct espl_cuda_time times[ESPL_SPMM_MODES];
    struct espl_spmm_sweep sweep;
};

struct espl_spmm_case {
    size_t rows;
    size_t cols;
    size_t tokens;
    unsigned bits;             /* of a code: what `dense` stores of each */
    double sparsity;           /* share of the codes that are 0 */
    enum espl_spmm_mode usual; /* the mode that results are compared in */
    struct espl_spmm_result results[ESPL_SPMM_MAX_RESULTS];
    size_t count;
    size_t chosen;       /* the automatic choice among ours that hold the weights without loss */
    size_t best;         /* the fastest of these */
    size_t chosen_layer; /* the automatic choice among the layers; count: there is none */
};

/** Seconds of a result in the usual mode of its case, median; NaN when it was not measured. */
double espl_spmm_seconds(const struct espl_spmm_case *item, size_t result);
/** Sets `chosen` (least expected time) and `best` (least measured time) among measured products of
 *  ours without loss, both 0 when there is none; and `chosen_layer`. */
void espl_spmm_choose(struct espl_spmm_case *item);
/** The result with this name; item->count when there is none. */
size_t espl_spmm_find(const struct espl_spmm_case *item, const char *name);
/** Of a layer: the product of codes in the same form; item->count when there is none. */
size_t espl_spmm_plain_of(const struct espl_spmm_case *item, size_t layer);
/** Bytes that the product moves besides its weights: x in 4-bit codes, y in int32. */
double espl_spmm_operand_bytes(const struct espl_spmm_case *item);
/** The byte floor: seconds that the fewest bytes of any measured form of ours without loss, with x
 *  and y, take at `bytes_a_second`. NaN when none was measured. */
double espl_spmm_floor_seconds(const struct espl_spmm_case *item, double bytes_a_second);
/** Of a sweep, seconds of the best cut of the best form without loss; NaN without sweeps. */
double espl_spmm_swept_seconds(const struct espl_spmm_case *item);

/** Operations a byte of a result: 2 x rows x cols x tokens, zeros counted, over weights, x and y.
 */
double espl_spmm_intensity(const struct espl_spmm_case *item, size_t result);
/** Operations a second, likewise. */
double espl_spmm_rate(const struct espl_spmm_case *item, size_t result);

#endif
