/* Baseline: cuBLAS, FP16 weights, activations and outputs on tensor cores, default heuristic. */
#include "espalier/cuda_blas.h"
#include "kernels/bench/spmm_baseline.h"

#include <stdio.h>
#include <stdlib.h>

struct cublas_self {
    struct espl_baseline base;
    struct espl_cuda_blas *blas;
};

static int start(struct cublas_self *self, char *why)
{
    struct espl_error err;
    if (espl_cuda_blas_create(&self->blas, &err) == ESPL_OK) {
        return 0;
    }
    (void)snprintf(why, ESPL_SPMM_PEER_TEXT, "%.*s", ESPL_SPMM_PEER_TEXT - 1, err.message);
    return 1;
}

static int upload(struct cublas_self *self, char *why)
{
    struct espl_baseline *base = &self->base;
    const size_t count = base->problem.rows * base->problem.cols;
    uint16_t *w = espl_baseline_halves(base->problem.codes, count);
    int failed = w == NULL
                     ? espl_baseline_fail(why, "out of memory for the weights of cuBLAS", 0)
                     : espl_baseline_copies_create(w, count * sizeof *w, base->problem.cold_bytes,
                                                   &base->weights, why);
    free(w);
    return failed != 0 ? failed : espl_baseline_half_operands(base, why);
}

static int prepare(void *self, char *why)
{
    return start(self, why) != 0 || upload(self, why) != 0 ? 1 : 0;
}

static int cublas_launch(void *pointer, size_t copy, void *stream)
{
    const struct cublas_self *self = pointer;
    const struct espl_baseline *base = &self->base;
    const struct espl_spmm_peer_problem *p = &base->problem;
    const struct espl_cuda_blas_product product = {
        .x = base->x,
        .w = base->weights.data[copy % base->weights.count],
        .y = base->y,
        .tokens = p->tokens,
        .in = p->cols,
        .out = p->rows,
        .x_stride = p->cols,
        .w_stride = p->cols,
        .y_stride = p->rows,
        .batch = 1,
        .scale = 1.0F,
    };
    struct espl_error err;
    return espl_cuda_blas_run(self->blas, &product, stream, &err) == ESPL_OK ? 0 : 1;
}

static void cublas_destroy(void *pointer)
{
    struct cublas_self *self = pointer;
    espl_cuda_blas_destroy(self->blas);
    espl_baseline_destroy(self);
}

static int cublas_create(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    return espl_baseline_create(sizeof(struct cublas_self), problem, prepare, cublas_destroy, out,
                                why);
}

static uint64_t cublas_weight_bytes(void *pointer)
{
    const struct cublas_self *self = pointer;
    return self->base.weights.bytes;
}

const struct espl_spmm_peer espl_spmm_peer_cublas_fp16 = {
    .version = ESPL_SPMM_PEER_VERSION,
    .name = "cublas-fp16",
    .create = cublas_create,
    .launch = cublas_launch,
    .weight_bytes = cublas_weight_bytes,
    .destroy = cublas_destroy,
};
