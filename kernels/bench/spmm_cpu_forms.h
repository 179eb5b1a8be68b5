/* Forms of a weight matrix in host memory, in copies, and one product of them. */
#ifndef ESPL_BENCH_SPMM_CPU_FORMS_H
#define ESPL_BENCH_SPMM_CPU_FORMS_H

#include "espalier/iebme.h"
#include "espalier/kernels.h"
#include "kernels/bench/spmm_forms.h"

/** A form; the copies of its arrays lie one after the other in `memory`. */
struct espl_spmm_cpu_form {
    const char *name;
    bool dense; /* packed codes */
    bool sgemm; /* floats */
    bool cold;
    uint64_t bytes;                   /* of one copy */
    size_t count;                     /* of copies */
    struct espl_iebme_matrix encoded; /* of the first copy, pointers into `memory` */
    size_t stride;                    /* bytes from one copy to the next */
    uint8_t *memory;
};

/** What every product of a matrix needs beside a form. */
struct espl_spmm_cpu_operands {
    struct espl_quant_activations a; /* codes and scales of ESPL_SPMM_MAX_TOKENS tokens */
    float *x;                        /* the same codes as floats */
    float *w_scales;                 /* (rows) ones */
    float *y;
};

/** Makes an empty form: copies worth cold_bytes, but no more than most_bytes; at least one.
 *  name: dense, sgemm-f32 or areas. Errors: USAGE, NOMEM, those of the encoder. */
enum espl_status espl_spmm_cpu_form_make(struct espl_spmm_cpu_form *form, const char *name,
                                         const struct espl_spmm_weights *weights, size_t cold_bytes,
                                         size_t most_bytes, struct espl_error *err);
void espl_spmm_cpu_form_free(struct espl_spmm_cpu_form *form);
enum espl_status espl_spmm_cpu_operands_make(struct espl_spmm_cpu_operands *operands, size_t rows,
                                             size_t cols, unsigned bits, struct espl_error *err);
void espl_spmm_cpu_operands_free(struct espl_spmm_cpu_operands *operands);
/** One product with copy number `copy % count`. */
enum espl_status espl_spmm_cpu_product(struct espl_backend *backend,
                                       const struct espl_spmm_cpu_form *form,
                                       const struct espl_spmm_weights *weights, size_t tokens,
                                       const struct espl_spmm_cpu_operands *operands, size_t copy,
                                       struct espl_error *err);

#endif
