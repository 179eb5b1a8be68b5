/* Baseline: cuBLASLt, INT8 weights and activations, INT32 outputs. Times all algorithms that its
 * heuristic returns (16 at most), with cold weights, and keeps the best. */
#include "espalier/cuda_memory.h"
#include "espalier/cuda_timing.h"
#include "kernels/bench/spmm_baseline.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Values of cublasLt.h, cublas_api.h and library_types.h. */
enum {
    OP_T = 1,
    TYPE_INT8 = 3,
    TYPE_INT32 = 10,
    COMPUTE_INT32 = 72,
    DESC_TRANSA = 3,
    PREF_MAX_WORKSPACE_BYTES = 1,
    MOST_ALGORITHMS = 16,
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

struct lt_self {
    void *library;
    void *handle;
    void *operation;
    void *layout_w, *layout_x, *layout_y;
    struct heuristic results[MOST_ALGORITHMS];
    int found;
    int best;
    struct espl_spmm_peer_problem problem;
    struct espl_baseline_copies weights;
    void *x;
    void *y;
    void *work;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*operation_create)(void **operation, int compute, int scale);
    int (*operation_set)(void *operation, int attribute, const void *value, size_t bytes);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t cols, int64_t stride);
    int (*preference_create)(void **preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*heuristics)(void *handle, void *operation, void *a, void *b, void *c, void *d,
                      void *preference, int asked, struct heuristic *results, int *found);
    int (*matmul)(void *handle, void *operation, const void *alpha, const void *a, void *layout_a,
                  const void *b, void *layout_b, const void *beta, const void *c, void *layout_c,
                  void *d, void *layout_d, const void *algorithm, void *work, size_t work_bytes,
                  void *stream);
};

static void lt_destroy(void *pointer)
{
    struct lt_self *self = pointer;
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

static int load(struct lt_self *self, char *why)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                        NULL};
    void *library = espl_baseline_library(names, why);
    self->library = library;
    if (library == NULL || !espl_baseline_symbol(library, "cublasLtCreate", &self->create, why) ||
        !espl_baseline_symbol(library, "cublasLtDestroy", &self->destroy, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulDescCreate", &self->operation_create, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulDescSetAttribute", &self->operation_set,
                              why) ||
        !espl_baseline_symbol(library, "cublasLtMatrixLayoutCreate", &self->layout_create, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulPreferenceCreate", &self->preference_create,
                              why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulPreferenceSetAttribute",
                              &self->preference_set, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulAlgoGetHeuristic", &self->heuristics, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmul", &self->matmul, why)) {
        return 1;
    }
    const int code = self->create(&self->handle);
    return code == 0 ? 0 : espl_baseline_fail(why, "cuBLASLt cannot start", code);
}

static int upload(struct lt_self *self, char *why)
{
    const struct espl_spmm_peer_problem *p = &self->problem;
    int8_t *x = espl_baseline_activations(p->tokens * p->cols);
    int failed = x == NULL
                     ? espl_baseline_fail(why, "out of memory for the operands of cuBLASLt", 0)
                     : espl_baseline_copies_create(p->codes, p->rows * p->cols, p->cold_bytes,
                                                   &self->weights, why);
    if (failed == 0) {
        failed = espl_baseline_upload(x, p->tokens * p->cols, &self->x, why);
    }
    if (failed == 0) {
        failed = espl_baseline_upload(NULL, p->tokens * p->rows * sizeof(int32_t), &self->y, why);
    }
    if (failed == 0) {
        failed = espl_baseline_upload(NULL, WORK_BYTES, &self->work, why);
    }
    free(x);
    return failed;
}

/* Row-major y (tokens, rows) is column-major (rows, tokens) = W^T' x. */
static int describe(struct lt_self *self, char *why)
{
    const struct espl_spmm_peer_problem *p = &self->problem;
    const int transpose = OP_T;
    const size_t work_bytes = WORK_BYTES;
    void *preference = NULL;
    int code = self->operation_create(&self->operation, COMPUTE_INT32, TYPE_INT32);
    code = code != 0
               ? code
               : self->operation_set(self->operation, DESC_TRANSA, &transpose, sizeof transpose);
    code = code != 0 ? code
                     : self->layout_create(&self->layout_w, TYPE_INT8, p->cols, p->rows,
                                           (int64_t)p->cols);
    code = code != 0 ? code
                     : self->layout_create(&self->layout_x, TYPE_INT8, p->cols, p->tokens,
                                           (int64_t)p->cols);
    code = code != 0 ? code
                     : self->layout_create(&self->layout_y, TYPE_INT32, p->rows, p->tokens,
                                           (int64_t)p->rows);
    code = code != 0 ? code : self->preference_create(&preference);
    code = code != 0 ? code
                     : self->preference_set(preference, PREF_MAX_WORKSPACE_BYTES, &work_bytes,
                                            sizeof work_bytes);
    code = code != 0 ? code
                     : self->heuristics(self->handle, self->operation, self->layout_w,
                                        self->layout_x, self->layout_y, self->layout_y, preference,
                                        MOST_ALGORITHMS, self->results, &self->found);
    if (code != 0 || self->found == 0) {
        return espl_baseline_fail(why, "cuBLASLt has no algorithm for this shape", code);
    }
    return 0;
}

static int launch_algorithm(const struct lt_self *self, int which, size_t copy, void *stream)
{
    const int32_t one = 1;
    const int32_t zero = 0;
    return self->matmul(self->handle, self->operation, &one,
                        self->weights.data[copy % self->weights.count], self->layout_w, self->x,
                        self->layout_x, &zero, self->y, self->layout_y, self->y, self->layout_y,
                        self->results[which].algorithm, self->work, WORK_BYTES, stream);
}

static int lt_launch(void *pointer, size_t copy, void *stream)
{
    const struct lt_self *self = pointer;
    return launch_algorithm(self, self->best, copy, stream);
}

static enum espl_status launch_best(void *pointer, size_t copy, bool overlap, void *stream,
                                    struct espl_error *err)
{
    (void)overlap;
    const int code = lt_launch(pointer, copy, stream);
    return code == 0 ? ESPL_OK : espl_fail(err, ESPL_E_MACHINE, "cuBLASLt failed (%d)", code);
}

/* Times every algorithm; self->best is the fastest. */
static int pick_best(struct lt_self *self, char *why)
{
    const struct espl_cuda_timing_options options = {
        .graph = true, .launches = self->weights.count < 8 ? 8 : self->weights.count, .repeats = 3};
    double best = 0.0;
    int chosen = -1;
    for (int i = 0; i < self->found; i++) {
        struct espl_cuda_time time;
        struct espl_error err;
        const struct espl_cuda_subject subject = {self, launch_best};
        self->best = i;
        if (self->results[i].state == 0 &&
            espl_cuda_time_launches(&subject, &options, &time, &err) == ESPL_OK &&
            (chosen < 0 || time.median < best)) {
            best = time.median;
            chosen = i;
        }
    }
    self->best = chosen;
    return chosen >= 0 ? 0 : espl_baseline_fail(why, "no algorithm of cuBLASLt runs", 0);
}

static int lt_create(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    struct lt_self *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return espl_baseline_fail(why, "out of memory for cuBLASLt", 0);
    }
    self->problem = *problem;
    if (load(self, why) != 0 || upload(self, why) != 0 || describe(self, why) != 0 ||
        pick_best(self, why) != 0) {
        lt_destroy(self);
        return 1;
    }
    self->problem.codes = NULL; /* borrowed for the time of this call */
    *out = self;
    return 0;
}

static uint64_t lt_weight_bytes(void *pointer)
{
    const struct lt_self *self = pointer;
    return self->weights.bytes;
}

const struct espl_spmm_peer espl_spmm_peer_cublaslt_int8 = {
    .version = ESPL_SPMM_PEER_VERSION,
    .name = "cublaslt-int8",
    .create = lt_create,
    .launch = lt_launch,
    .weight_bytes = lt_weight_bytes,
    .destroy = lt_destroy,
};
