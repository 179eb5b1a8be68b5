/* Baselines: cuBLASLt, INT8 weights and activations with INT32 or INT8 outputs, or all FP16. Times
 * all algorithms that its heuristic returns (16 at most) and keeps the best. */
#include "espalier/cuda_memory.h"
#include "kernels/bench/spmm_baseline.h"

#include <dlfcn.h>
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

/* What a product is made of. INT8 outputs are scaled by a float, INT32 ones by an integer. */
struct lt_types {
    const struct espl_spmm_peer *peer;
    int compute, scale, operand, output;
    size_t output_bytes;
};

struct lt_self {
    struct espl_baseline base;
    const struct lt_types *types;
    void *operation;
    void *layout_w, *layout_x, *layout_y;
    struct heuristic results[MOST_ALGORITHMS];
    int found;
    int best;
    int (*create)(void **handle);
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

static void lt_destroy(void *pointer)
{
    struct lt_self *self = pointer;
    void *const layouts[] = {self->layout_w, self->layout_x, self->layout_y};
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        if (layouts[i] != NULL) {
            (void)self->layout_destroy(layouts[i]);
        }
    }
    if (self->operation != NULL) {
        (void)self->operation_destroy(self->operation);
    }
    espl_baseline_destroy(self);
}

static int load(struct lt_self *self, char *why)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so",
                                        NULL};
    void *library = espl_baseline_library(names, why);
    self->base.library = library;
    if (library == NULL || !espl_baseline_symbol(library, "cublasLtCreate", &self->create, why) ||
        !espl_baseline_symbol(library, "cublasLtDestroy", &self->base.destroy_handle, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulDescCreate", &self->operation_create, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulDescDestroy", &self->operation_destroy,
                              why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulDescSetAttribute", &self->operation_set,
                              why) ||
        !espl_baseline_symbol(library, "cublasLtMatrixLayoutCreate", &self->layout_create, why) ||
        !espl_baseline_symbol(library, "cublasLtMatrixLayoutDestroy", &self->layout_destroy, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulPreferenceDestroy", &self->preference_destroy,
                              why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulPreferenceCreate", &self->preference_create,
                              why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulPreferenceSetAttribute",
                              &self->preference_set, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmulAlgoGetHeuristic", &self->heuristics, why) ||
        !espl_baseline_symbol(library, "cublasLtMatmul", &self->matmul, why)) {
        return 1;
    }
    const int code = self->create(&self->base.handle);
    return code == 0 ? 0 : espl_baseline_fail(why, "cuBLASLt cannot start", code);
}

static int upload_bytes(struct lt_self *self, char *why)
{
    struct espl_baseline *base = &self->base;
    const struct espl_spmm_peer_problem *p = &base->problem;
    int8_t *x = espl_baseline_activations(p->tokens * p->cols);
    int failed = x == NULL
                     ? espl_baseline_fail(why, "out of memory for the operands of cuBLASLt", 0)
                     : espl_baseline_copies_create(p->codes, p->rows * p->cols, p->cold_bytes,
                                                   &base->weights, why);
    if (failed == 0) {
        failed = espl_baseline_upload(x, p->tokens * p->cols, &base->x, why);
    }
    if (failed == 0) {
        failed = espl_baseline_upload(NULL, p->tokens * p->rows * self->types->output_bytes,
                                      &base->y, why);
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

static int upload(struct lt_self *self, char *why)
{
    const int failed =
        self->types->operand == TYPE_FP16 ? upload_halves(self, why) : upload_bytes(self, why);
    return failed != 0 ? failed : espl_baseline_upload(NULL, WORK_BYTES, &self->base.work, why);
}

/* Row-major y (tokens, rows) is column-major (rows, tokens) = W^T' x. */
static int describe(struct lt_self *self, char *why)
{
    const struct espl_spmm_peer_problem *p = &self->base.problem;
    const struct lt_types *types = self->types;
    const int transpose = OP_T;
    const size_t work_bytes = WORK_BYTES;
    void *preference = NULL;
    int code = self->operation_create(&self->operation, types->compute, types->scale);
    code = code != 0
               ? code
               : self->operation_set(self->operation, DESC_TRANSA, &transpose, sizeof transpose);
    code = code != 0 ? code
                     : self->layout_create(&self->layout_w, types->operand, p->cols, p->rows,
                                           (int64_t)p->cols);
    code = code != 0 ? code
                     : self->layout_create(&self->layout_x, types->operand, p->cols, p->tokens,
                                           (int64_t)p->cols);
    code = code != 0 ? code
                     : self->layout_create(&self->layout_y, types->output, p->rows, p->tokens,
                                           (int64_t)p->rows);
    code = code != 0 ? code : self->preference_create(&preference);
    code = code != 0 ? code
                     : self->preference_set(preference, PREF_MAX_WORKSPACE_BYTES, &work_bytes,
                                            sizeof work_bytes);
    code = code != 0 ? code
                     : self->heuristics(self->base.handle, self->operation, self->layout_w,
                                        self->layout_x, self->layout_y, self->layout_y, preference,
                                        MOST_ALGORITHMS, self->results, &self->found);
    if (preference != NULL) {
        (void)self->preference_destroy(preference);
    }
    int usable = 0;
    for (int i = 0; code == 0 && i < self->found; i++) {
        if (self->results[i].state == 0) {
            self->results[usable++] = self->results[i];
        }
    }
    self->found = usable;
    return usable > 0 ? 0
                      : espl_baseline_fail(why, "cuBLASLt has no algorithm for this shape", code);
}

static int lt_launch(void *pointer, size_t copy, void *stream)
{
    const struct lt_self *self = pointer;
    const struct espl_baseline *base = &self->base;
    const int32_t whole[2] = {1, 0};
    const float real[2] = {self->types->output == TYPE_INT8 ? 0.001F : 1.0F, 0.0F};
    const bool integers = self->types->scale == TYPE_INT32;
    const void *alpha = integers ? (const void *)&whole[0] : (const void *)&real[0];
    const void *beta = integers ? (const void *)&whole[1] : (const void *)&real[1];
    return self->matmul(base->handle, self->operation, alpha,
                        base->weights.data[copy % base->weights.count], self->layout_w, base->x,
                        self->layout_x, beta, base->y, self->layout_y, base->y, self->layout_y,
                        self->results[self->best].algorithm, base->work, WORK_BYTES, stream);
}

static int pick_best(struct lt_self *self, char *why)
{
    const size_t copies = self->base.weights.count;
    const struct espl_cuda_timing_options options = {
        .graph = true, .launches = copies < 8 ? 8 : copies, .repeats = 3};
    const struct espl_baseline_subject subject = {self->types->peer, self};
    return espl_baseline_pick(&subject, &options, self->found, &self->best, why);
}

static int prepare(struct lt_self *self, const struct lt_types *types, char *why)
{
    self->types = types;
    return load(self, why) != 0 || upload(self, why) != 0 || describe(self, why) != 0 ||
                   pick_best(self, why) != 0
               ? 1
               : 0;
}

static int prepare_sums(void *self, char *why)
{
    static const struct lt_types types = {&espl_spmm_peer_cublaslt_int8,
                                          COMPUTE_INT32,
                                          TYPE_INT32,
                                          TYPE_INT8,
                                          TYPE_INT32,
                                          sizeof(int32_t)};
    return prepare(self, &types, why);
}

static int prepare_codes(void *self, char *why)
{
    static const struct lt_types types = {
        &espl_spmm_peer_cublaslt_int8_int8, COMPUTE_INT32, TYPE_FP32, TYPE_INT8, TYPE_INT8, 1};
    return prepare(self, &types, why);
}

static int prepare_halves(void *self, char *why)
{
    static const struct lt_types types = {&espl_spmm_peer_cublaslt_fp16,
                                          COMPUTE_FP32,
                                          TYPE_FP32,
                                          TYPE_FP16,
                                          TYPE_FP16,
                                          sizeof(uint16_t)};
    return prepare(self, &types, why);
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
