/* The products of a model's linears, measured: what the stage and `espalier bench spmm MODEL`
 * share. */
#ifndef ESPL_STAGES_DEPLOY_MEASURE_H
#define ESPL_STAGES_DEPLOY_MEASURE_H

#include "kernels/bench/spmm_cpu.h"
#include "stages/deploy_bench/deploy_matrices.h"

/** Called for every case; an error ends the bench. */
typedef enum espl_status espl_deploy_case_fn(const struct espl_spmm_case *item,
                                             const struct espl_bench_matrix *matrix, void *self,
                                             struct espl_error *err);

struct espl_deploy_bench {
    const struct espl_spmm_bench_options *cuda; /* NULL: the CPU; atom: layers, too */
    const struct espl_spmm_cpu_options *cpu;
    const struct espl_spmm_ceiling *ceiling;
    const size_t *tokens;
    size_t token_count;
    espl_deploy_case_fn *done;
    void *self;
};

/** Can a device measure codes of so many bits? dense_only: no other form is wanted. Errors:
 *  UNSUPPORTED, with a hint. */
enum espl_status espl_deploy_check_bits(unsigned bits, bool cpu, bool dense_only,
                                        struct espl_error *err);
/** Measures all matrices, in their order. Errors: those of reading and of the bench. */
enum espl_status espl_deploy_measure(const struct espl_deploy_bench *bench,
                                     struct espl_model *model,
                                     const struct espl_deploy_matrices *matrices,
                                     struct espl_error *err);

#endif
