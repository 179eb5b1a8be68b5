/* The SpMM bench of the CPU: the same forms of the same weights through the ops of a backend. */
#ifndef ESPL_BENCH_SPMM_CPU_H
#define ESPL_BENCH_SPMM_CPU_H

#include "espalier/kernels.h"
#include "kernels/bench/spmm_bench.h"

/** Name of the baseline: gemm_f32 of the same values. */
#define ESPL_SPMM_SGEMM "sgemm-f32"

/** Usual limit of the copies of a form: with caches of hundreds of megabytes, as servers have them,
 *  copies worth several caches take longer to make than to time. */
enum { ESPL_SPMM_CPU_COPIES = 32 << 20 };

struct espl_spmm_cpu_options {
    struct espl_backend *backend;
    size_t repeats;
    size_t launches;                        /* of a repeat */
    const char *forms[ESPL_SPMM_MAX_FORMS]; /* dense, 1x1, 1x2, 2x1, 2x2 */
    size_t form_count;
    bool sgemm;        /* the baseline, too */
    size_t most_bytes; /* of the copies of a form; fewer than cold caches need: results say so */
};

/** The rate at which the backend's threads read memory, and the size of the last level of cache
 *  (32 MiB where the system does not say). Errors: NOMEM. */
enum espl_status espl_spmm_cpu_ceiling(struct espl_backend *backend,
                                       struct espl_spmm_ceiling *ceiling, struct espl_error *err);
/** As espl_spmm_bench_matrix(), with weights of 2 to 8 bits: products of INT4 activation codes
 * (INT8 for 8-bit weights) with one scale a row and a token. `dense` is gemm_w4a4 on packed codes,
 * the others spmm_iebme. Modes: EAGER (cold: copies of the weights in turn) and EAGER_WARM. The
 * form with the fewest bytes counts as the automatic choice: there is no model of the CPU's time.
 */
enum espl_status espl_spmm_cpu_matrix(const struct espl_spmm_cpu_options *options,
                                      const struct espl_spmm_ceiling *ceiling,
                                      const struct espl_spmm_weights *weights, const size_t *tokens,
                                      size_t token_count, espl_spmm_case_fn *done, void *self,
                                      struct espl_error *err);

#endif
