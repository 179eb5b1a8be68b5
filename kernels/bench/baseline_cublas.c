/* Baseline: cuBLAS, FP16 weights, activations and outputs on tensor cores, default heuristic. */
#include "espalier/cuda_memory.h"
#include "kernels/bench/spmm_baseline.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Values of cublas_api.h and library_types.h. */
enum {
    OP_N = 0,
    OP_T = 1,
    TYPE_HALF = 2,
    COMPUTE_FLOAT = 68,
    ALGO_DEFAULT = -1,
    WORK_BYTES = 32 << 20
};

struct cublas_self {
    struct espl_baseline base;
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_workspace)(void *handle, void *work, size_t bytes);
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
};

static int load(struct cublas_self *self, char *why)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so", NULL};
    void *library = espl_baseline_library(names, why);
    self->base.library = library;
    if (library == NULL || !espl_baseline_symbol(library, "cublasCreate_v2", &self->create, why) ||
        !espl_baseline_symbol(library, "cublasDestroy_v2", &self->base.destroy_handle, why) ||
        !espl_baseline_symbol(library, "cublasSetStream_v2", &self->set_stream, why) ||
        !espl_baseline_symbol(library, "cublasSetWorkspace_v2", &self->set_workspace, why) ||
        !espl_baseline_symbol(library, "cublasGemmEx", &self->gemm, why)) {
        return 1;
    }
    const int code = self->create(&self->base.handle);
    return code == 0 ? 0 : espl_baseline_fail(why, "cuBLAS cannot start", code);
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
    if (failed == 0) {
        failed = espl_baseline_half_operands(base, why);
    }
    return failed != 0 ? failed : espl_baseline_upload(NULL, WORK_BYTES, &base->work, why);
}

static int prepare(void *self, char *why)
{
    return load(self, why) != 0 || upload(self, why) != 0 ? 1 : 0;
}

static int cublas_launch(void *pointer, size_t copy, void *stream)
{
    const struct cublas_self *self = pointer;
    const struct espl_baseline *base = &self->base;
    const struct espl_spmm_peer_problem *p = &base->problem;
    const float one = 1.0F;
    const float zero = 0.0F;
    int code = self->set_stream(base->handle, stream);
    if (code == 0) {
        /* cuBLAS forgets the work space when the stream is set. */
        code = self->set_workspace(base->handle, base->work, WORK_BYTES);
    }
    if (code == 0) {
        /* Row-major y (tokens, rows) is column-major (rows, tokens) = W^T' x. */
        code = self->gemm(base->handle, OP_T, OP_N, (int)p->rows, (int)p->tokens, (int)p->cols,
                          &one, base->weights.data[copy % base->weights.count], TYPE_HALF,
                          (int)p->cols, base->x, TYPE_HALF, (int)p->cols, &zero, base->y, TYPE_HALF,
                          (int)p->rows, COMPUTE_FLOAT, ALGO_DEFAULT);
    }
    return code;
}

static int cublas_create(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    return espl_baseline_create(sizeof(struct cublas_self), problem, prepare, espl_baseline_destroy,
                                out, why);
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
    .destroy = espl_baseline_destroy,
};
