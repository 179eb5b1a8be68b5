/* Cases of the quantised ops: building and running them, for the op table of problem.c. */
#ifndef ESPL_KERNELS_BENCH_PROBLEM_QUANT_H
#define ESPL_KERNELS_BENCH_PROBLEM_QUANT_H

#include "espalier/iebme.h"
#include "kernels/bench/cases.h"

/** Operands of a quantised linear; size of the case: tokens, in, out, group, weight bits. The
 *  activations have 8 bits when the weights have 8, else 4; two rows share a scale; 128 columns are
 *  outliers, or an eighth of the columns where that is less. */
struct espl_quant_problem {
    struct espl_quant_shape shape;
    struct espl_quant_activations a;
    struct espl_quant_weights w;
    struct espl_iebme_matrix encoded; /* spmm_iebme: half of the codes are 0, areas are chosen */
    void *memory;                     /* holds all arrays but the problem's own inputs */
};

/** false when out of memory. For gemm_w4a4, quantize_act and spmm_iebme. */
bool espl_quant_problem_build(struct espl_kernel_problem *problem);
void espl_quant_problem_destroy(struct espl_quant_problem *quant);
enum espl_status espl_quant_problem_gemm(struct espl_kernel_problem *problem,
                                         const struct espl_ops *ops, struct espl_backend *backend,
                                         struct espl_error *err);
enum espl_status espl_quant_problem_act(struct espl_kernel_problem *problem,
                                        const struct espl_ops *ops, struct espl_backend *backend,
                                        struct espl_error *err);
enum espl_status espl_quant_problem_spmm(struct espl_kernel_problem *problem,
                                         const struct espl_ops *ops, struct espl_backend *backend,
                                         struct espl_error *err);
/** size: tokens, heads, head_dim, bits */
enum espl_status espl_quant_problem_kv(struct espl_kernel_problem *problem,
                                       const struct espl_ops *ops, struct espl_backend *backend,
                                       struct espl_error *err);

#endif
