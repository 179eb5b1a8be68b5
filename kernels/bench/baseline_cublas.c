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
    void *library;
    void *handle;
    struct espl_spmm_peer_problem problem;
    struct espl_baseline_copies weights;
    void *x;
    void *y;
    void *work;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_workspace)(void *handle, void *work, size_t bytes);
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
};

static void cublas_destroy(void *pointer)
{
    struct cublas_self *self = pointer;
    if (self == NULL) {
        return;
    }
    if (self->handle != NULL) {
        (void)self->destroy(self->handle);
    }
    espl_baseline_copies_free(&self->weights);
    espl_cuda_free(self->x);
    espl_cuda_free(self->y);
    espl_cuda_free(self->work);
    if (self->library != NULL) {
        (void)dlclose(self->library);
    }
    free(self);
}

static int load(struct cublas_self *self, char *why)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so", NULL};
    self->library = espl_baseline_library(names, why);
    if (self->library == NULL ||
        !espl_baseline_symbol(self->library, "cublasCreate_v2", &self->create, why) ||
        !espl_baseline_symbol(self->library, "cublasDestroy_v2", &self->destroy, why) ||
        !espl_baseline_symbol(self->library, "cublasSetStream_v2", &self->set_stream, why) ||
        !espl_baseline_symbol(self->library, "cublasSetWorkspace_v2", &self->set_workspace, why) ||
        !espl_baseline_symbol(self->library, "cublasGemmEx", &self->gemm, why)) {
        return 1;
    }
    const int code = self->create(&self->handle);
    return code == 0 ? 0 : espl_baseline_fail(why, "cuBLAS cannot start", code);
}

static int upload(struct cublas_self *self, char *why)
{
    const struct espl_spmm_peer_problem *p = &self->problem;
    int8_t *codes = espl_baseline_activations(p->tokens * p->cols);
    uint16_t *x = codes != NULL ? espl_baseline_halves(codes, p->tokens * p->cols) : NULL;
    uint16_t *w = espl_baseline_halves(p->codes, p->rows * p->cols);
    int failed = w == NULL || x == NULL
                     ? espl_baseline_fail(why, "out of memory for the operands of cuBLAS", 0)
                     : espl_baseline_copies_create(w, p->rows * p->cols * sizeof *w, p->cold_bytes,
                                                   &self->weights, why);
    if (failed == 0) {
        failed = espl_baseline_upload(x, p->tokens * p->cols * sizeof *x, &self->x, why);
    }
    if (failed == 0) {
        failed = espl_baseline_upload(NULL, p->tokens * p->rows * sizeof(uint16_t), &self->y, why);
    }
    if (failed == 0) {
        failed = espl_baseline_upload(NULL, WORK_BYTES, &self->work, why);
    }
    free(codes);
    free(x);
    free(w);
    return failed;
}

static int cublas_launch(void *pointer, size_t copy, void *stream)
{
    const struct cublas_self *self = pointer;
    const struct espl_spmm_peer_problem *p = &self->problem;
    const float one = 1.0F;
    const float zero = 0.0F;
    int code = self->set_stream(self->handle, stream);
    if (code == 0) {
        /* cuBLAS forgets the work space when the stream is set. */
        code = self->set_workspace(self->handle, self->work, WORK_BYTES);
    }
    if (code == 0) {
        /* Row-major y (tokens, rows) is column-major (rows, tokens) = W^T' x. */
        code = self->gemm(self->handle, OP_T, OP_N, (int)p->rows, (int)p->tokens, (int)p->cols,
                          &one, self->weights.data[copy % self->weights.count], TYPE_HALF,
                          (int)p->cols, self->x, TYPE_HALF, (int)p->cols, &zero, self->y, TYPE_HALF,
                          (int)p->rows, COMPUTE_FLOAT, ALGO_DEFAULT);
    }
    return code;
}

static int cublas_create(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    struct cublas_self *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return espl_baseline_fail(why, "out of memory for cuBLAS", 0);
    }
    self->problem = *problem;
    if (load(self, why) != 0 || upload(self, why) != 0) {
        cublas_destroy(self);
        return 1;
    }
    self->problem.codes = NULL; /* borrowed for the time of this call */
    *out = self;
    return 0;
}

static uint64_t cublas_weight_bytes(void *pointer)
{
    const struct cublas_self *self = pointer;
    return self->weights.bytes;
}

const struct espl_spmm_peer espl_spmm_peer_cublas_fp16 = {
    .version = ESPL_SPMM_PEER_VERSION,
    .name = "cublas-fp16",
    .create = cublas_create,
    .launch = cublas_launch,
    .weight_bytes = cublas_weight_bytes,
    .destroy = cublas_destroy,
};
