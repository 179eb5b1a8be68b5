/* Timing one of our products on the CUDA device: what bench and sweep share. */
#ifndef ESPL_BENCH_SPMM_TIME_H
#define ESPL_BENCH_SPMM_TIME_H

#include "kernels/bench/spmm_bench.h"

/** Activations and outputs of a shape on the device, for ESPL_SPMM_MAX_TOKENS tokens. */
struct espl_spmm_operands {
    void *codes, *x, *y;
    struct espl_spmm_activations layer; /* of the layer, when there is one */
};

/** Codes are drawn and uploaded; x is packed by espl_cuda_pack_activations(). layer: borrowed;
 * NULL: none. Errors: NOMEM, MACHINE. */
enum espl_status espl_spmm_operands_make(struct espl_spmm_operands *operands, size_t rows,
                                         size_t cols, const struct espl_spmm_layer *layer,
                                         struct espl_error *err);
void espl_spmm_operands_free(struct espl_spmm_operands *operands);

/** A product of a form; launch() reads the copies in turn. */
struct espl_spmm_product {
    const struct espl_spmm_form *form;
    struct espl_cuda_spmm *spmm;
    const struct espl_spmm_operands *operands;
    size_t rows;
    size_t tokens;
};

/** launch() of struct espl_cuda_subject; self: a struct espl_spmm_product. */
enum espl_status espl_spmm_launch(void *self, size_t copy, bool overlap, void *stream,
                                  struct espl_error *err);
/** Fills result->sweep for a product with cold caches: every choice is timed shortly, the few
 *  fastest and the one in use (result->choice) then as long as results are. */
enum espl_status espl_spmm_sweep(const struct espl_spmm_bench_options *options,
                                 const struct espl_spmm_product *product,
                                 const struct espl_spmm_case *item, struct espl_spmm_result *result,
                                 struct espl_error *err);

#endif
