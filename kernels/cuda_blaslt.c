#include "espalier/cuda_blaslt.h"

#include "espalier/cuda_memory.h"
#include "kernels/cuda_library.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

/* Values of cublasLt.h, cublas_api.h and library_types.h. */
enum {
    OP_T = 1,
    TYPE_FP32 = 0,
    TYPE_FP16 = 2,
    TYPE_INT8 = 3,
    TYPE_INT32 = 10,
    COMPUTE_FP32 = 68,
    COMPUTE_INT32 = 72,
    DESC_TRANSA = 3,
    PREF_MAX_WORKSPACE_BYTES = 1,
    WORK_BYTES = 32 << 20
};

/* cublasLtMatmulHeuristicResult_t: its layout is part of the library's interface. */
struct heuristic {
    uint64_t algorithm[8];
    size_t work_bytes;
    int state;
    float waves;
    int reserved[4];
};

/* INT8 results are scaled by a float, INT32 ones by an integer. */
static const struct types {
    int compute, scale, operand, output;
} all_types[] = {
    [ESPL_CUDA_BLASLT_SUMS] = {COMPUTE_INT32, TYPE_INT32, TYPE_INT8, TYPE_INT32},
    [ESPL_CUDA_BLASLT_BYTES] = {COMPUTE_INT32, TYPE_FP32, TYPE_INT8, TYPE_INT8},
    [ESPL_CUDA_BLASLT_HALVES] = {COMPUTE_FP32, TYPE_FP32, TYPE_FP16, TYPE_FP16},
};

struct espl_cuda_blaslt {
    void *library;
    void *handle;
    void *work; /* device, WORK_BYTES */
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*operation_create)(void **operation, int compute, int scale);
    int (*operation_destroy)(void *operation);
    int (*operation_set)(void *operation, int attribute, const void *value, size_t bytes);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride);
    int (*layout_destroy)(void *layout);
    int (*preference_create)(void **preference);
    int (*preference_destroy)(void *preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*heuristics)(void *handle, void *operation, void *a, void *b, void *c, void *d,
                      void *preference, int asked, struct heuristic *results, int *found);
    int (*matmul)(void *handle, void *operation, const void *alpha, const void *a, void *layout_a,
                  const void *b, void *layout_b, const void *beta, const void *c, void *layout_c,
                  void *d, void *layout_d, const void *algorithm, void *work, size_t work_bytes,
                  void *stream);
};

struct espl_cuda_blaslt_product {
    const struct espl_cuda_blaslt *library;
    const struct types *types;
    void *operation;
    void *layout_w, *layout_x, *layout_y;
    struct heuristic results[ESPL_CUDA_BLASLT_MOST_ALGORITHMS];
    size_t found;
};

static enum espl_status fail_code(const char *what, int code, struct espl_error *err)
{
    return espl_fail(err, ESPL_E_MACHINE, "%s: cuBLASLt answers with code %d", what, code);
}

static enum espl_status open_library(struct espl_cuda_blaslt *lt, struct espl_error *err)
{
    const struct espl_cuda_symbol symbols[] = {
        {"cublasLtCreate", &lt->create},
        {"cublasLtDestroy", &lt->destroy},
        {"cublasLtMatmulDescCreate", &lt->operation_create},
        {"cublasLtMatmulDescDestroy", &lt->operation_destroy},
        {"cublasLtMatmulDescSetAttribute", &lt->operation_set},
        {"cublasLtMatrixLayoutCreate", &lt->layout_create},
        {"cublasLtMatrixLayoutDestroy", &lt->layout_destroy},
        {"cublasLtMatmulPreferenceCreate", &lt->preference_create},
        {"cublasLtMatmulPreferenceDestroy", &lt->preference_destroy},
        {"cublasLtMatmulPreferenceSetAttribute", &lt->preference_set},
        {"cublasLtMatmulAlgoGetHeuristic", &lt->heuristics},
        {"cublasLtMatmul", &lt->matmul}};
    return espl_cuda_library_open("cublasLt", "cuBLASLt", symbols,
                                  sizeof symbols / sizeof symbols[0], &lt->library, err);
}

enum espl_status espl_cuda_blaslt_create(struct espl_cuda_blaslt **out, struct espl_error *err)
{
    struct espl_cuda_blaslt *lt = calloc(1, sizeof *lt);
    if (lt == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for cuBLASLt");
    }
    enum espl_status status = espl_cuda_alloc(WORK_BYTES, &lt->work, err);
    if (status == ESPL_OK) {
        status = open_library(lt, err);
    }
    if (status == ESPL_OK) {
        const int code = lt->create(&lt->handle);
        status = code == 0 ? ESPL_OK : fail_code("cannot start", code, err);
    }
    if (status != ESPL_OK) {
        espl_cuda_blaslt_destroy(lt);
        return status;
    }
    *out = lt;
    return ESPL_OK;
}

void espl_cuda_blaslt_destroy(struct espl_cuda_blaslt *lt)
{
    if (lt == NULL) {
        return;
    }
    if (lt->handle != NULL) {
        (void)lt->destroy(lt->handle);
    }
    if (lt->library != NULL) {
        (void)dlclose(lt->library);
    }
    espl_cuda_free(lt->work);
    free(lt);
}

/* Row-major y (tokens, out) is column-major (out, tokens) = W^T' x. */
static int describe(struct espl_cuda_blaslt_product *p, size_t tokens, size_t in, size_t out)
{
    const struct espl_cuda_blaslt *lt = p->library;
    const struct types *types = p->types;
    const int transpose = OP_T;
    int code = lt->operation_create(&p->operation, types->compute, types->scale);
    if (code == 0) {
        code = lt->operation_set(p->operation, DESC_TRANSA, &transpose, sizeof transpose);
    }
    if (code == 0) {
        code = lt->layout_create(&p->layout_w, types->operand, in, out, (int64_t)in);
    }
    if (code == 0) {
        code = lt->layout_create(&p->layout_x, types->operand, in, tokens, (int64_t)in);
    }
    if (code == 0) {
        code = lt->layout_create(&p->layout_y, types->output, out, tokens, (int64_t)out);
    }
    return code;
}

static int find_algorithms(struct espl_cuda_blaslt_product *p)
{
    const struct espl_cuda_blaslt *lt = p->library;
    const size_t work_bytes = WORK_BYTES;
    void *preference = NULL;
    int found = 0;
    int code = lt->preference_create(&preference);
    if (code == 0) {
        code = lt->preference_set(preference, PREF_MAX_WORKSPACE_BYTES, &work_bytes,
                                  sizeof work_bytes);
    }
    if (code == 0) {
        code = lt->heuristics(lt->handle, p->operation, p->layout_w, p->layout_x, p->layout_y,
                              p->layout_y, preference, ESPL_CUDA_BLASLT_MOST_ALGORITHMS, p->results,
                              &found);
    }
    if (preference != NULL) {
        (void)lt->preference_destroy(preference);
    }
    for (int i = 0; code == 0 && i < found; i++) {
        if (p->results[i].state == 0) {
            p->results[p->found++] = p->results[i];
        }
    }
    return code;
}

enum espl_status espl_cuda_blaslt_product_create(struct espl_cuda_blaslt *library,
                                                 enum espl_cuda_blaslt_types types, size_t tokens,
                                                 size_t in, size_t out,
                                                 struct espl_cuda_blaslt_product **product,
                                                 struct espl_error *err)
{
    struct espl_cuda_blaslt_product *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a product of cuBLASLt");
    }
    p->library = library;
    p->types = &all_types[types];
    int code = describe(p, tokens, in, out);
    if (code == 0) {
        code = find_algorithms(p);
    }
    if (p->found == 0) {
        espl_cuda_blaslt_product_destroy(p);
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "cuBLASLt has no algorithm for this shape (code %d)", code);
    }
    *product = p;
    return ESPL_OK;
}

void espl_cuda_blaslt_product_destroy(struct espl_cuda_blaslt_product *product)
{
    if (product == NULL) {
        return;
    }
    void *const layouts[] = {product->layout_w, product->layout_x, product->layout_y};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        if (layouts[i] != NULL) {
            (void)product->library->layout_destroy(layouts[i]);
        }
    }
    if (product->operation != NULL) {
        (void)product->library->operation_destroy(product->operation);
    }
    free(product);
}

size_t espl_cuda_blaslt_algorithms(const struct espl_cuda_blaslt_product *product)
{
    return product->found;
}

enum espl_status espl_cuda_blaslt_run(const struct espl_cuda_blaslt_product *p, size_t algorithm,
                                      const void *w, const void *x, void *y, void *stream,
                                      struct espl_error *err)
{
    const struct espl_cuda_blaslt *lt = p->library;
    const int32_t whole[2] = {1, 0};
    const float real[2] = {p->types->output == TYPE_INT8 ? 0.001F : 1.0F, 0.0F};
    const bool integers = p->types->scale == TYPE_INT32;
    const void *alpha = integers ? (const void *)&whole[0] : (const void *)&real[0];
    const void *beta = integers ? (const void *)&whole[1] : (const void *)&real[1];
    const int code = lt->matmul(lt->handle, p->operation, alpha, w, p->layout_w, x, p->layout_x,
                                beta, y, p->layout_y, y, p->layout_y,
                                p->results[algorithm].algorithm, lt->work, WORK_BYTES, stream);
    return code == 0 ? ESPL_OK : fail_code("cannot multiply", code, err);
}
