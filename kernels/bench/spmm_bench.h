/* The SpMM bench of CUDA devices: our forms of weights and other libraries' products, timed in one
 * run. */
#ifndef ESPL_BENCH_SPMM_BENCH_H
#define ESPL_BENCH_SPMM_BENCH_H

#include "core/error.h"
#include "espalier/cuda_probe.h"
#include "kernels/bench/spmm_forms.h"
#include "kernels/bench/spmm_results.h"
#include "kernels/bench/spmm_tuning.h"

enum {
    ESPL_SPMM_COLD_FACTOR = 4, /* copies are worth that many caches */
    ESPL_SPMM_MAX_TOKENS = 64
};

struct espl_spmm_bench_options {
    size_t repeats;                         /* of a timing */
    size_t launches;                        /* of a repeat, at least */
    const char *forms[ESPL_SPMM_MAX_FORMS]; /* names as in results */
    size_t form_count;
    const struct espl_spmm_peer *peers[ESPL_SPMM_MAX_PEERS];
    size_t peer_count;
    bool all_modes;         /* every mode; otherwise graph alone */
    unsigned bits;          /* of random codes: 2, 3 or 4 */
    bool atom;              /* random weights: layers with scales and outliers, too */
    size_t group, outliers; /* of these; group 0: one scale a row */
    bool sweep;             /* try every choice of every form of ours, too */
    enum espl_cuda_instruction instruction;
    enum espl_cuda_pipeline pipeline;
    unsigned multiprocessors;              /* of the device, for the sweep */
    const struct espl_spmm_tuning *tuning; /* stored measurements of this device, or NULL */
};

/** What the measurements are related to. */
struct espl_spmm_ceiling {
    double copy_bytes_a_second; /* of a large copy, read plus written; CPU: of reading */
    size_t cache_bytes;         /* last level */
};

enum { ESPL_SPMM_DEVICE_TEXT = 320 };
/** "NVIDIA H200, cc 9.0, 132 multiprocessors, driver 13.0": what stored choices are kept for. */
void espl_spmm_device_text(const struct espl_cuda_info *info, char text[ESPL_SPMM_DEVICE_TEXT]);
enum espl_status espl_spmm_measure_ceiling(struct espl_spmm_ceiling *ceiling,
                                           struct espl_error *err);
/** Called for every case as it is done; an error ends the bench. */
typedef enum espl_status espl_spmm_case_fn(const struct espl_spmm_case *result, void *self,
                                           struct espl_error *err);
/** The cases of one matrix, one for every number of tokens (1 to ESPL_SPMM_MAX_TOKENS each); with
 *  its layer, when it has one: every form also as a layer, and the quantiser. */
enum espl_status espl_spmm_bench_matrix(const struct espl_spmm_bench_options *options,
                                        const struct espl_spmm_ceiling *ceiling,
                                        const struct espl_spmm_weights *weights,
                                        const size_t *tokens, size_t token_count,
                                        espl_spmm_case_fn *done, void *self,
                                        struct espl_error *err);
/** All cases of random weights of one shape: sparsities, and for each all numbers of tokens.
 *  Subjects that do not depend on the sparsity are timed once and repeated in the results. */
enum espl_status espl_spmm_bench_shape(const struct espl_spmm_bench_options *options,
                                       const struct espl_spmm_ceiling *ceiling, size_t rows,
                                       size_t cols, const double *sparsities, size_t sparsity_count,
                                       const size_t *tokens, size_t token_count,
                                       espl_spmm_case_fn *done, void *self, struct espl_error *err);

#endif
