/* Baselines: cuBLASLt, INT8 weights and activations with INT32 or INT8 outputs, or all FP16. Times
 * all algorithms that its heuristic returns (16 at most) and keeps the best. */
#include "espalier/cuda_blaslt.h"
#include "kernels/bench/spmm_baseline.h"

#include <stdio.h>
#include <stdlib.h>

struct lt_self {
    struct espl_baseline base;
    const struct espl_spmm_peer *peer;
    enum espl_cuda_blaslt_types types;
    struct espl_cuda_blaslt *library;
    struct espl_cuda_blaslt_product *product;
    int best;
};

static void lt_destroy(void *pointer)
{
    struct lt_self *self = pointer;
    espl_cuda_blaslt_product_destroy(self->product);
    espl_cuda_blaslt_destroy(self->library);
    espl_baseline_destroy(self);
}

static int start(struct lt_self *self, char *why)
{
    const struct espl_spmm_peer_problem *p = &self->base.problem;
    struct espl_error err;
    enum espl_status status = espl_cuda_blaslt_create(&self->library, &err);
    if (status == ESPL_OK) {
        status = espl_cuda_blaslt_product_create(self->library, self->types, p->tokens, p->cols,
                                                 p->rows, &self->product, &err);
    }
    if (status != ESPL_OK) {
        (void)snprintf(why, ESPL_SPMM_PEER_TEXT, "%.*s", ESPL_SPMM_PEER_TEXT - 1, err.message);
    }
    return status == ESPL_OK ? 0 : 1;
}

static int upload_bytes(struct lt_self *self, char *why)
{
    struct espl_baseline *base = &self->base;
    const struct espl_spmm_peer_problem *p = &base->problem;
    const size_t result_bytes = self->types == ESPL_CUDA_BLASLT_SUMS ? sizeof(int32_t) : 1;
    int8_t *x = espl_baseline_activations(p->tokens * p->cols);
    int failed = x == NULL
                     ? espl_baseline_fail(why, "out of memory for the operands of cuBLASLt", 0)
                     : espl_baseline_copies_create(p->codes, p->rows * p->cols, p->cold_bytes,
                                                   &base->weights, why);
    if (failed == 0) {
        failed = espl_baseline_upload(x, p->tokens * p->cols, &base->x, why);
    }
    if (failed == 0) {
        failed = espl_baseline_upload(NULL, p->tokens * p->rows * result_bytes, &base->y, why);
    }
    free(x);
    return failed;
}

static int upload_halves(struct lt_self *self, char *why)
{
    struct espl_baseline *base = &self->base;
    const struct espl_spmm_peer_problem *p = &base->problem;
    const size_t bytes = p->rows * p->cols * sizeof(uint16_t);
    uint16_t *w = espl_baseline_halves(p->codes, p->rows * p->cols);
    int failed = w == NULL
                     ? espl_baseline_fail(why, "out of memory for the operands of cuBLASLt", 0)
                     : espl_baseline_copies_create(w, bytes, p->cold_bytes, &base->weights, why);
    free(w);
    return failed != 0 ? failed : espl_baseline_half_operands(base, why);
}

static int lt_launch(void *pointer, size_t copy, void *stream)
{
    const struct lt_self *self = pointer;
    const struct espl_baseline *base = &self->base;
    struct espl_error err;
    const enum espl_status status = espl_cuda_blaslt_run(
        self->product, (size_t)self->best, base->weights.data[copy % base->weights.count], base->x,
        base->y, stream, &err);
    return status == ESPL_OK ? 0 : 1;
}

static int pick_best(struct lt_self *self, char *why)
{
    const size_t copies = self->base.weights.count;
    const struct espl_cuda_timing_options options = {
        .graph = true, .launches = copies < 8 ? 8 : copies, .repeats = 3};
    const struct espl_baseline_subject subject = {self->peer, self};
    return espl_baseline_pick(&subject, &options, (int)espl_cuda_blaslt_algorithms(self->product),
                              &self->best, why);
}

static int prepare(struct lt_self *self, const struct espl_spmm_peer *peer,
                   enum espl_cuda_blaslt_types types, char *why)
{
    const bool halves = types == ESPL_CUDA_BLASLT_HALVES;
    self->peer = peer;
    self->types = types;
    return start(self, why) != 0 ||
                   (halves ? upload_halves(self, why) : upload_bytes(self, why)) != 0 ||
                   pick_best(self, why) != 0
               ? 1
               : 0;
}

static int prepare_sums(void *self, char *why)
{
    return prepare(self, &espl_spmm_peer_cublaslt_int8, ESPL_CUDA_BLASLT_SUMS, why);
}

static int prepare_codes(void *self, char *why)
{
    return prepare(self, &espl_spmm_peer_cublaslt_int8_int8, ESPL_CUDA_BLASLT_BYTES, why);
}

static int prepare_halves(void *self, char *why)
{
    return prepare(self, &espl_spmm_peer_cublaslt_fp16, ESPL_CUDA_BLASLT_HALVES, why);
}

static int create_sums(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    return espl_baseline_create(sizeof(struct lt_self), problem, prepare_sums, lt_destroy, out,
                                why);
}

static int create_codes(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    return espl_baseline_create(sizeof(struct lt_self), problem, prepare_codes, lt_destroy, out,
                                why);
}

static int create_halves(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    return espl_baseline_create(sizeof(struct lt_self), problem, prepare_halves, lt_destroy, out,
                                why);
}

static uint64_t lt_weight_bytes(void *pointer)
{
    const struct lt_self *self = pointer;
    return self->base.weights.bytes;
}

const struct espl_spmm_peer espl_spmm_peer_cublaslt_int8 = {
    .version = ESPL_SPMM_PEER_VERSION,
    .name = "cublaslt-int8",
    .create = create_sums,
    .launch = lt_launch,
    .weight_bytes = lt_weight_bytes,
    .destroy = lt_destroy,
};

const struct espl_spmm_peer espl_spmm_peer_cublaslt_int8_int8 = {
    .version = ESPL_SPMM_PEER_VERSION,
    .name = "cublaslt-int8-int8",
    .create = create_codes,
    .launch = lt_launch,
    .weight_bytes = lt_weight_bytes,
    .destroy = lt_destroy,
};

const struct espl_spmm_peer espl_spmm_peer_cublaslt_fp16 = {
    .version = ESPL_SPMM_PEER_VERSION,
    .name = "cublaslt-fp16",
    .create = create_halves,
    .launch = lt_launch,
    .weight_bytes = lt_weight_bytes,
    .destroy = lt_destroy,
};
