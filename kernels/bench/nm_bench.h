/* The N:M bench: products with packed weights, our dense path and other libraries' dense products,
 * timed in one run on the CUDA device. */
#ifndef ESPL_BENCH_NM_BENCH_H
#define ESPL_BENCH_NM_BENCH_H

#include "core/error.h"
#include "espalier/cuda_nm.h"
#include "espalier/cuda_timing.h"
#include "kernels/bench/spmm_peer.h"

#include <stdbool.h>

enum {
    ESPL_NM_BENCH_KEPT = 8,    /* different N of a bench, at most; dense comes on top */
    ESPL_NM_BENCH_OUTPUTS = 3, /* enum espl_nm_output */
    ESPL_NM_BENCH_PEERS = 4,
    ESPL_NM_BENCH_CHOICES = 64,
    ESPL_NM_BENCH_NAME = 32
};

/** A product: `tokens` rows of activations, weights (rows, cols). */
struct espl_nm_bench_case {
    const char *set;   /* "grid", "deit-b" ...: where it comes from */
    const char *layer; /* "qkv" ..., "" */
    size_t batch;      /* images, 0 where there are none */
    size_t tokens, rows, cols;
    const struct espl_nm_matrix *packed; /* weights of a model; NULL: random ones for each N */
};

/** Cases of a set: "grid" is the paper's (section 6.1), the others take a batch of images. */
struct espl_nm_bench_set {
    const char *name;
    const char *what;
};
/** The sets; ends with .name == NULL. */
extern const struct espl_nm_bench_set espl_nm_bench_sets[];
/** cases <- the cases of a set; returns how many there are, up to `most` are written. `batch` is
 *  not used by "grid". 0: there is no such set. */
size_t espl_nm_bench_cases(const char *set, size_t batch, struct espl_nm_bench_case *cases,
                           size_t most);

/** Times of one output type; 0 = not taken. */
struct espl_nm_bench_times {
    struct espl_cuda_time graph;   /* CUDA graph */
    struct espl_cuda_time overlap; /* and programmatic dependent launch */
    struct espl_cuda_time eager;   /* launched one by one */
};

/** The rule against a search over all choices, INT32 output, CUDA graph. */
struct espl_nm_bench_search {
    size_t count; /* of choices; 0 = not searched */
    struct espl_cuda_nm_choice choices[ESPL_NM_BENCH_CHOICES];
    double seconds[ESPL_NM_BENCH_CHOICES];
    double chosen;     /* seconds of the rule's choice */
    double best;       /* of the best choice */
    double best_split; /* of the best number of splits at the tile of the rule */
    size_t fastest;    /* number of the best choice */
};

/** Ours: N of 8, 8 = dense. */
struct espl_nm_bench_result {
    unsigned kept; /* of 8, rounded up where the model's M is 16 */
    bool packed;   /* the weights of the case itself */
    enum espl_cuda_nm_form form;
    uint64_t bytes; /* of the weights */
    struct espl_cuda_nm_choice choice;
    struct espl_nm_bench_times outputs[ESPL_NM_BENCH_OUTPUTS];
    struct espl_nm_bench_search search;
};

struct espl_nm_bench_peer {
    const char *name;
    bool measured;
    char why[ESPL_SPMM_PEER_TEXT]; /* not measured: why */
    struct espl_cuda_time graph;
    struct espl_cuda_time eager;
};

struct espl_nm_bench_report {
    struct espl_nm_bench_case item;
    struct espl_nm_bench_result results[ESPL_NM_BENCH_KEPT + 1];
    size_t result_count;
    struct espl_nm_bench_peer peers[ESPL_NM_BENCH_PEERS];
    size_t peer_count;
};

struct espl_nm_bench_options {
    unsigned kept[ESPL_NM_BENCH_KEPT]; /* 0: the packed weights of the case */
    size_t kept_count;
    unsigned shared; /* V */
    size_t repeats;
    size_t launches;   /* of a repeat */
    size_t cold_bytes; /* worth of copies of the weights that rotate; 0 = four copies */
    bool eager;        /* take those times too */
    bool search;       /* time every choice */
    const struct espl_spmm_peer *peers[ESPL_NM_BENCH_PEERS];
    size_t peer_count;
};

/** What is fastest for a case in a CUDA graph: "packed" (or "4:8" ...), "dense", or a baseline's
 *  name; ours with FP16 outputs, the library's with INT32 or FP16 ones. text: ESPL_NM_BENCH_NAME.
 */
void espl_nm_bench_fastest(const struct espl_nm_bench_report *report,
                           char text[ESPL_NM_BENCH_NAME]);

/** Times one case. Errors: UNSUPPORTED, NOMEM, MACHINE; a baseline that cannot run is no error. */
enum espl_status espl_nm_bench_run(const struct espl_nm_bench_options *options,
                                   const struct espl_nm_bench_case *item,
                                   struct espl_nm_bench_report *report, struct espl_error *err);

/** Random weights of N of 8, patterns shared by V rows; free() them. NULL: out of memory. */
int8_t *espl_nm_bench_weights(size_t rows, size_t cols, unsigned kept, unsigned shared);

#endif
