#include "espalier/cuda_blas.h"

#include "espalier/cuda_memory.h"
#include "kernels/cuda_library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>

/* Values of cublas_api.h and library_types.h. */
enum {
    OP_N = 0,
    OP_T = 1,
    TYPE_FLOAT = 0,
    TYPE_HALF = 2,
    COMPUTE_FLOAT = 68,
    ALGO_DEFAULT = -1,
    WORK_BYTES = 32 << 20
};

struct espl_cuda_blas {
    void *library;
    void *handle;
    void *work; /* device, WORK_BYTES: cuBLAS takes no memory inside a graph */
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*set_workspace)(void *handle, void *work, size_t bytes);
    int (*gemm)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
    int (*gemms)(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                 const void *a, int a_type, int lda, long long a_step, const void *b, int b_type,
                 int ldb, long long b_step, const void *beta, void *c, int c_type, int ldc,
                 long long c_step, int batch, int compute, int algorithm);
};

static enum espl_status fail_code(const char *what, int code, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_MACHINE, "%s: cuBLAS answers with code %d", what, code);
}

static enum espl_status open_library(struct espl_cuda_blas *blas, struct espl_error *err)
{
    const struct espl_cuda_symbol symbols[] = {{"cublasCreate_v2", &blas->create},
                                               {"cublasDestroy_v2", &blas->destroy},
                                               {"cublasSetStream_v2", &blas->set_stream},
                                               {"cublasSetWorkspace_v2", &blas->set_workspace},
                                               {"cublasGemmEx", &blas->gemm},
                                               {"cublasGemmStridedBatchedEx", &blas->gemms}};
    return espl_cuda_library_open("cublas", "cuBLAS", symbols, sizeof symbols / sizeof symbols[0],
                                  &blas->library, err);
}

enum espl_status espl_cuda_blas_create(struct espl_cuda_blas **out, struct espl_error *err)
{
    struct espl_cuda_blas *blas = calloc(1, sizeof *blas);
    if (blas == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for cuBLAS");
    }
    enum espl_status status = espl_cuda_alloc(WORK_BYTES, &blas->work, err);
    if (status == ESPL_OK) {
        status = open_library(blas, err);
    }
    if (status == ESPL_OK) {
        const int code = blas->create(&blas->handle);
        status = code == 0 ? ESPL_OK : fail_code("cannot start", code, err);
    }
    if (status != ESPL_OK) {
        espl_cuda_blas_destroy(blas);
        return status;
    }
    *out = blas;
    return ESPL_OK;
}

void espl_cuda_blas_destroy(struct espl_cuda_blas *blas)
{
    if (blas == NULL) {
        return;
    }
    if (blas->handle != NULL) {
        (void)blas->destroy(blas->handle);
    }
    if (blas->library != NULL) {
        (void)dlclose(blas->library);
    }
    espl_cuda_free(blas->work);
    free(blas);
}

static bool fits(const struct espl_cuda_blas_product *p)
{
    const size_t sizes[] = {p->tokens,   p->in,       p->out,  p->x_stride,
                            p->w_stride, p->y_stride, p->batch};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i] == 0 || sizes[i] > INT_MAX) {
            return false;
        }
    }
    return p->x_step <= LLONG_MAX && p->w_step <= LLONG_MAX && p->y_step <= LLONG_MAX;
}

/* Row-major y (tokens, out) is column-major (out, tokens) = W' x'. */
static int multiply(const struct espl_cuda_blas *blas, const struct espl_cuda_blas_product *p)
{
    const float keep = p->add ? 1.0F : 0.0F;
    const int op = p->transposed ? OP_N : OP_T;
    const int type = p->float_result ? TYPE_FLOAT : TYPE_HALF;
    if (p->batch == 1) {
        return blas->gemm(blas->handle, op, OP_N, (int)p->out, (int)p->tokens, (int)p->in,
                          &p->scale, p->w, TYPE_HALF, (int)p->w_stride, p->x, TYPE_HALF,
                          (int)p->x_stride, &keep, p->y, type, (int)p->y_stride, COMPUTE_FLOAT,
                          ALGO_DEFAULT);
    }
    return blas->gemms(blas->handle, op, OP_N, (int)p->out, (int)p->tokens, (int)p->in, &p->scale,
                       p->w, TYPE_HALF, (int)p->w_stride, (long long)p->w_step, p->x, TYPE_HALF,
                       (int)p->x_stride, (long long)p->x_step, &keep, p->y, type, (int)p->y_stride,
                       (long long)p->y_step, (int)p->batch, COMPUTE_FLOAT, ALGO_DEFAULT);
}

enum espl_status espl_cuda_blas_run(struct espl_cuda_blas *blas,
                                    const struct espl_cuda_blas_product *product, void *stream,
                                    struct espl_error *err)
{
    if (!fits(product)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "cuBLAS cannot multiply %zu x %zu by %zu x %zu, %zu times",
                         product->tokens, product->in, product->out, product->in, product->batch);
    }
    int code = blas->set_stream(blas->handle, stream);
    if (code == 0) {
        /* cuBLAS forgets the work space when the stream is set. */
        code = blas->set_workspace(blas->handle, blas->work, WORK_BYTES);
    }
    code = code == 0 ? multiply(blas, product) : code;
    return code == 0 ? ESPL_OK : fail_code("a product failed", code, err);
}
