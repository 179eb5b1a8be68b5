/* Baseline: cuSPARSELt, 2:4 INT8 weights, INT8 activations, INT32 outputs; the best algorithm by
 * its own search. Two of every four weights are kept, whatever the problem's are: time depends on
 * that alone. */
#include "espalier/cuda_memory.h"
#include "kernels/bench/spmm_baseline.h"

#include <stdalign.h>
#include <stdlib.h>

/* Values of cusparseLt.h, cusparse.h and library_types.h. */
enum {
    OP_N = 0,
    ORDER_COL = 1,
    ORDER_ROW = 2,
    TYPE_INT8 = 3,
    TYPE_INT32 = 10,
    COMPUTE_INT32 = 0,
    SPARSITY_50 = 0,
    ALIGNMENT = 16,
    OPAQUE_BYTES = 16384 /* the library's opaque structs have 512 to 11,024, by version */
};

struct opaque {
    alignas(16) unsigned char bytes[OPAQUE_BYTES];
};

struct sp_self {
    struct espl_baseline base;
    struct opaque handle, w, x, y, product, selection, plan;
    bool has_handle, has_plan;
    int (*create)(void *handle);
    int (*destroy)(const void *handle);
    int (*structured)(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t stride,
                      uint32_t alignment, int type, int order, int sparsity);
    int (*dense)(const void *handle, void *matrix, int64_t rows, int64_t cols, int64_t stride,
                 uint32_t alignment, int type, int order);
    int (*matmul_init)(const void *handle, void *product, int op_a, int op_b, const void *a,
                       const void *b, const void *c, const void *d, int compute);
    int (*select)(const void *handle, void *selection, const void *product, int algorithm);
    int (*plan_init)(const void *handle, void *plan, const void *product, const void *selection);
    int (*plan_destroy)(const void *plan);
    int (*compressed_size)(const void *handle, const void *plan, size_t *bytes, size_t *work);
    int (*compress)(const void *handle, const void *plan, const void *dense, void *compressed,
                    void *work, void *stream);
    int (*workspace)(const void *handle, const void *plan, size_t *bytes);
    int (*search)(const void *handle, void *plan, const void *alpha, const void *a, const void *b,
                  const void *beta, const void *c, void *d, void *work, void **streams,
                  int32_t stream_count);
    int (*matmul)(const void *handle, const void *plan, const void *alpha, const void *a,
                  const void *b, const void *beta, const void *c, void *d, void *work,
                  void **streams, int32_t stream_count);
};

static void sp_destroy(void *pointer)
{
    struct sp_self *self = pointer;
    if (self->has_plan) {
        (void)self->plan_destroy(&self->plan);
    }
    if (self->has_handle) {
        (void)self->destroy(&self->handle);
    }
    espl_baseline_destroy(self);
}

static int load(struct sp_self *self, char *why)
{
    static const char *const names[] = {"libcusparseLt.so.0", "libcusparseLt.so", NULL};
    const struct {
        const char *name;
        void *function;
    } symbols[] = {
        {"cusparseLtInit", &self->create},
        {"cusparseLtDestroy", &self->destroy},
        {"cusparseLtStructuredDescriptorInit", &self->structured},
        {"cusparseLtDenseDescriptorInit", &self->dense},
        {"cusparseLtMatmulDescriptorInit", &self->matmul_init},
        {"cusparseLtMatmulAlgSelectionInit", &self->select},
        {"cusparseLtMatmulPlanInit", &self->plan_init},
        {"cusparseLtMatmulPlanDestroy", &self->plan_destroy},
        {"cusparseLtSpMMACompressedSize", &self->compressed_size},
        {"cusparseLtSpMMACompress", &self->compress},
        {"cusparseLtMatmulGetWorkspace", &self->workspace},
        {"cusparseLtMatmulSearch", &self->search},
        {"cusparseLtMatmul", &self->matmul},
    };
    void *library = espl_baseline_library(names, why);
    self->base.library = library;
    if (library == NULL) {
        return 1;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        if (!espl_baseline_symbol(library, symbols[i].name, symbols[i].function, why)) {
            return 1;
        }
    }
    const int code = self->create(&self->handle);
    self->has_handle = code == 0;
    return code == 0 ? 0 : espl_baseline_fail(why, "cuSPARSELt cannot start", code);
}

/* Row-major y (tokens, rows) is column-major (rows, tokens) = W x. */
static int describe(struct sp_self *self, char *why)
{
    const struct espl_spmm_peer_problem *p = &self->base.problem;
    const int64_t rows = (int64_t)p->rows;
    const int64_t cols = (int64_t)p->cols;
    const int64_t tokens = (int64_t)p->tokens;
    int code = self->structured(&self->handle, &self->w, rows, cols, cols, ALIGNMENT, TYPE_INT8,
                                ORDER_ROW, SPARSITY_50);
    code = code != 0 ? code
                     : self->dense(&self->handle, &self->x, cols, tokens, cols, ALIGNMENT,
                                   TYPE_INT8, ORDER_COL);
    code = code != 0 ? code
                     : self->dense(&self->handle, &self->y, rows, tokens, rows, ALIGNMENT,
                                   TYPE_INT32, ORDER_COL);
    code = code != 0 ? code
                     : self->matmul_init(&self->handle, &self->product, OP_N, OP_N, &self->w,
                                         &self->x, &self->y, &self->y, COMPUTE_INT32);
    code = code != 0 ? code : self->select(&self->handle, &self->selection, &self->product, 0);
    code = code != 0
               ? code
               : self->plan_init(&self->handle, &self->plan, &self->product, &self->selection);
    self->has_plan = code == 0;
    return code == 0 ? 0 : espl_baseline_fail(why, "cuSPARSELt refuses this shape", code);
}

/* base->weights <- compressed copies of 2:4 weights. */
static int compress(struct sp_self *self, const int8_t *dense, char *why)
{
    struct espl_baseline *base = &self->base;
    const struct espl_spmm_peer_problem *p = &base->problem;
    size_t bytes = 0;
    size_t work_bytes = 0;
    void *from = NULL;
    void *work = NULL;
    int code = self->compressed_size(&self->handle, &self->plan, &bytes, &work_bytes);
    if (code != 0) {
        return espl_baseline_fail(why, "cuSPARSELt cannot compress the weights", code);
    }
    void *empty = calloc(bytes, 1);
    int failed = empty == NULL ? espl_baseline_fail(why, "out of memory for 2:4 weights", 0)
                               : espl_baseline_copies_create(empty, bytes, p->cold_bytes,
                                                             &base->weights, why);
    if (failed == 0) {
        failed = espl_baseline_upload(dense, p->rows * p->cols, &from, why);
    }
    if (failed == 0) {
        failed = espl_baseline_upload(NULL, work_bytes + 256, &work, why);
    }
    for (size_t i = 0; failed == 0 && i < base->weights.count; i++) {
        code = self->compress(&self->handle, &self->plan, from, base->weights.data[i], work, NULL);
        failed =
            code == 0 ? 0 : espl_baseline_fail(why, "cuSPARSELt cannot compress the weights", code);
    }
    espl_cuda_free(from);
    espl_cuda_free(work);
    free(empty);
    return failed;
}

static int prepare_weights(struct sp_self *self, char *why)
{
    const struct espl_spmm_peer_problem *p = &self->base.problem;
    int8_t *dense = malloc(p->rows * p->cols);
    if (dense == NULL) {
        return espl_baseline_fail(why, "out of memory for 2:4 weights", 0);
    }
    for (size_t i = 0; i < p->rows * p->cols; i++) {
        dense[i] = i % p->cols % 4 < 2 ? p->codes[i] : (int8_t)0;
    }
    const int failed = compress(self, dense, why);
    free(dense);
    return failed;
}

static int prepare_operands(struct sp_self *self, char *why)
{
    struct espl_baseline *base = &self->base;
    const struct espl_spmm_peer_problem *p = &base->problem;
    int8_t *x = espl_baseline_activations(p->tokens * p->cols);
    int failed = x == NULL ? espl_baseline_fail(why, "out of memory for activations", 0)
                           : espl_baseline_upload(x, p->tokens * p->cols, &base->x, why);
    if (failed == 0) {
        failed = espl_baseline_upload(NULL, p->tokens * p->rows * sizeof(int32_t), &base->y, why);
    }
    free(x);
    return failed;
}

/* The library's own search, and the work space of what it finds. */
static int pick_best(struct sp_self *self, char *why)
{
    struct espl_baseline *base = &self->base;
    const float one = 1.0F;
    const float zero = 0.0F;
    size_t bytes = 0;
    const int code = self->search(&self->handle, &self->plan, &one, base->weights.data[0], base->x,
                                  &zero, base->y, base->y, NULL, NULL, 0);
    if (code != 0 || self->workspace(&self->handle, &self->plan, &bytes) != 0) {
        return espl_baseline_fail(why, "cuSPARSELt finds no algorithm for this shape", code);
    }
    return espl_baseline_upload(NULL, bytes + 256, &base->work, why);
}

static int sp_launch(void *pointer, size_t copy, void *stream)
{
    struct sp_self *self = pointer;
    const struct espl_baseline *base = &self->base;
    const float one = 1.0F;
    const float zero = 0.0F;
    void *streams[1] = {stream};
    return self->matmul(&self->handle, &self->plan, &one,
                        base->weights.data[copy % base->weights.count], base->x, &zero, base->y,
                        base->y, base->work, streams, 1);
}

static int prepare(void *self, char *why)
{
    return load(self, why) != 0 || describe(self, why) != 0 || prepare_weights(self, why) != 0 ||
                   prepare_operands(self, why) != 0 || pick_best(self, why) != 0
               ? 1
               : 0;
}

static int sp_create(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    return espl_baseline_create(sizeof(struct sp_self), problem, prepare, sp_destroy, out, why);
}

static uint64_t sp_weight_bytes(void *pointer)
{
    const struct sp_self *self = pointer;
    return self->base.weights.bytes;
}

const struct espl_spmm_peer espl_spmm_peer_cusparselt_2_4 = {
    .version = ESPL_SPMM_PEER_VERSION,
    .name = "cusparselt-2:4",
    .sparse = 1,
    .create = sp_create,
    .launch = sp_launch,
    .weight_bytes = sp_weight_bytes,
    .destroy = sp_destroy,
};
