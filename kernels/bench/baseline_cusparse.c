/* Baseline: cuSPARSE, CSR with 32-bit columns and FP16 values, FP16 activations and outputs. Times
 * the algorithms for CSR and keeps the best. */
#include "espalier/cuda_memory.h"
#include "espalier/cuda_timing.h"
#include "kernels/bench/spmm_baseline.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Values of cusparse.h and library_types.h. */
enum { OP_N = 0, INDEX_32 = 2, BASE_0 = 0, TYPE_HALF = 2, TYPE_FLOAT = 0, ORDER_COL = 1 };
static const int algorithms[] = {0, 4, 6, 12}; /* default, CSR 1, 2, 3 */
enum { ALGORITHMS = 4 };

struct csr_self {
    void *library;
    void *handle;
    struct espl_spmm_peer_problem problem;
    struct espl_baseline_copies row_starts, columns, values;
    void *weights[ESPL_BASELINE_MAX_COPIES]; /* descriptors */
    size_t copies;
    void *x, *y;
    void *x_descriptor, *y_descriptor;
    void *work;
    int best;
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, void *stream);
    int (*create_csr)(void **matrix, int64_t rows, int64_t cols, int64_t nonzeros, void *starts,
                      void *columns, void *values, int start_type, int column_type, int base,
                      int value_type);
    int (*create_dense)(void **matrix, int64_t rows, int64_t cols, int64_t stride, void *values,
                        int type, int order);
    int (*work_bytes)(void *handle, int op_a, int op_b, const void *alpha, void *a, void *b,
                      const void *beta, void *c, int compute, int algorithm, size_t *bytes);
    int (*spmm)(void *handle, int op_a, int op_b, const void *alpha, void *a, void *b,
                const void *beta, void *c, int compute, int algorithm, void *work);
};

static void csr_destroy(void *pointer)
{
    struct csr_self *self = pointer;
    if (self == NULL) {
        return;
    }
    if (self->handle != NULL) {
        (void)self->destroy(self->handle);
    }
    espl_baseline_copies_free(&self->row_starts);
    espl_baseline_copies_free(&self->columns);
    espl_baseline_copies_free(&self->values);
    espl_cuda_free(self->x);
    espl_cuda_free(self->y);
    espl_cuda_free(self->work);
    if (self->library != NULL) {
        (void)dlclose(self->library);
    }
    free(self);
}

static int load(struct csr_self *self, char *why)
{
    static const char *const names[] = {"libcusparse.so.12", "libcusparse.so", NULL};
    void *library = espl_baseline_library(names, why);
    self->library = library;
    if (library == NULL || !espl_baseline_symbol(library, "cusparseCreate", &self->create, why) ||
        !espl_baseline_symbol(library, "cusparseDestroy", &self->destroy, why) ||
        !espl_baseline_symbol(library, "cusparseSetStream", &self->set_stream, why) ||
        !espl_baseline_symbol(library, "cusparseCreateCsr", &self->create_csr, why) ||
        !espl_baseline_symbol(library, "cusparseCreateDnMat", &self->create_dense, why) ||
        !espl_baseline_symbol(library, "cusparseSpMM_bufferSize", &self->work_bytes, why) ||
        !espl_baseline_symbol(library, "cusparseSpMM", &self->spmm, why)) {
        return 1;
    }
    const int code = self->create(&self->handle);
    return code == 0 ? 0 : espl_baseline_fail(why, "cuSPARSE cannot start", code);
}

/* Host arrays of a CSR matrix. */
struct csr_host {
    int32_t *starts;
    int32_t *columns;
    int8_t *codes;
    size_t nonzeros;
};

static int compress(const struct espl_spmm_peer_problem *p, struct csr_host *host, char *why)
{
    size_t count = 0;
    for (size_t i = 0; i < p->rows * p->cols; i++) {
        count += p->codes[i] != 0 ? 1 : 0;
    }
    host->starts = malloc((p->rows + 1) * sizeof *host->starts);
    host->columns = malloc((count + 1) * sizeof *host->columns);
    host->codes = malloc(count + 1);
    if (count > INT32_MAX || host->starts == NULL || host->columns == NULL || host->codes == NULL) {
        return espl_baseline_fail(why, "out of memory for a CSR matrix", 0);
    }
    for (size_t r = 0; r < p->rows; r++) {
        host->starts[r] = (int32_t)host->nonzeros;
        for (size_t c = 0; c < p->cols; c++) {
            const int8_t code = p->codes[r * p->cols + c];
            host->columns[host->nonzeros] = (int32_t)c;
            host->codes[host->nonzeros] = code;
            host->nonzeros += code != 0 ? 1 : 0;
        }
    }
    host->starts[p->rows] = (int32_t)host->nonzeros;
    return 0;
}

static int upload_weights(struct csr_self *self, const struct csr_host *host, char *why)
{
    const struct espl_spmm_peer_problem *p = &self->problem;
    const size_t count = host->nonzeros > 0 ? host->nonzeros : 1;
    const size_t bytes = count * (sizeof(int32_t) + sizeof(uint16_t));
    const size_t copies = p->cold_bytes / bytes + 1;
    uint16_t *values = espl_baseline_halves(host->codes, count);
    if (values == NULL) {
        return espl_baseline_fail(why, "out of memory for a CSR matrix", 0);
    }
    int failed = espl_baseline_copies_create(host->starts, (p->rows + 1) * sizeof(int32_t),
                                             copies * (p->rows + 1) * sizeof(int32_t),
                                             &self->row_starts, why);
    failed = failed != 0 ? failed
                         : espl_baseline_copies_create(host->columns, count * sizeof(int32_t),
                                                       copies * count * sizeof(int32_t),
                                                       &self->columns, why);
    failed = failed != 0 ? failed
                         : espl_baseline_copies_create(values, count * sizeof(uint16_t),
                                                       copies * count * sizeof(uint16_t),
                                                       &self->values, why);
    free(values);
    self->copies = self->values.count;
    for (size_t i = 0; failed == 0 && i < self->copies; i++) {
        const int code = self->create_csr(&self->weights[i], (int64_t)p->rows, (int64_t)p->cols,
                                          (int64_t)host->nonzeros, self->row_starts.data[i],
                                          self->columns.data[i], self->values.data[i], INDEX_32,
                                          INDEX_32, BASE_0, TYPE_HALF);
        failed = code != 0 ? espl_baseline_fail(why, "cuSPARSE refuses the weights", code) : 0;
    }
    return failed;
}

static int upload_operands(struct csr_self *self, char *why)
{
    const struct espl_spmm_peer_problem *p = &self->problem;
    int8_t *codes = espl_baseline_activations(p->tokens * p->cols);
    uint16_t *x = codes != NULL ? espl_baseline_halves(codes, p->tokens * p->cols) : NULL;
    int failed = x == NULL
                     ? espl_baseline_fail(why, "out of memory for the operands of cuSPARSE", 0)
                     : espl_baseline_upload(x, p->tokens * p->cols * sizeof *x, &self->x, why);
    failed = failed != 0 ? failed
                         : espl_baseline_upload(NULL, p->tokens * p->rows * sizeof(uint16_t),
                                                &self->y, why);
    free(codes);
    free(x);
    if (failed != 0) {
        return failed;
    }
    /* Row-major (tokens, n) is column-major (n, tokens): y = W x. */
    int code = self->create_dense(&self->x_descriptor, (int64_t)p->cols, (int64_t)p->tokens,
                                  (int64_t)p->cols, self->x, TYPE_HALF, ORDER_COL);
    code = code != 0 ? code
                     : self->create_dense(&self->y_descriptor, (int64_t)p->rows, (int64_t)p->tokens,
                                          (int64_t)p->rows, self->y, TYPE_HALF, ORDER_COL);
    return code == 0 ? 0 : espl_baseline_fail(why, "cuSPARSE refuses the activations", code);
}

static int csr_launch(void *pointer, size_t copy, void *stream)
{
    const struct csr_self *self = pointer;
    const float one = 1.0F;
    const float zero = 0.0F;
    const int code = self->set_stream(self->handle, stream);
    return code != 0
               ? code
               : self->spmm(self->handle, OP_N, OP_N, &one, self->weights[copy % self->copies],
                            self->x_descriptor, &zero, self->y_descriptor, TYPE_FLOAT,
                            algorithms[self->best], self->work);
}

static enum espl_status launch_best(void *pointer, size_t copy, bool overlap, void *stream,
                                    struct espl_error *err)
{
    (void)overlap;
    const int code = csr_launch(pointer, copy, stream);
    return code == 0 ? ESPL_OK : espl_fail(err, ESPL_E_MACHINE, "cuSPARSE failed (%d)", code);
}

static int take_work_space(struct csr_self *self, char *why)
{
    const float one = 1.0F;
    const float zero = 0.0F;
    size_t most = 256;
    for (int i = 0; i < ALGORITHMS; i++) {
        size_t bytes = 0;
        if (self->work_bytes(self->handle, OP_N, OP_N, &one, self->weights[0], self->x_descriptor,
                             &zero, self->y_descriptor, TYPE_FLOAT, algorithms[i], &bytes) == 0) {
            most = bytes > most ? bytes : most;
        }
    }
    return espl_baseline_upload(NULL, most, &self->work, why);
}

static int pick_best(struct csr_self *self, char *why)
{
    const struct espl_cuda_timing_options options = {.launches = 2, .repeats = 1};
    double best = 0.0;
    int chosen = -1;
    for (int i = 0; i < ALGORITHMS; i++) {
        struct espl_cuda_time time;
        struct espl_error err;
        const struct espl_cuda_subject subject = {self, launch_best};
        self->best = i;
        if (espl_cuda_time_launches(&subject, &options, &time, &err) == ESPL_OK &&
            (chosen < 0 || time.median < best)) {
            best = time.median;
            chosen = i;
        }
    }
    self->best = chosen;
    return chosen >= 0 ? 0 : espl_baseline_fail(why, "no algorithm of cuSPARSE runs", 0);
}

static int csr_create(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    struct csr_host host = {.starts = NULL};
    struct csr_self *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return espl_baseline_fail(why, "out of memory for cuSPARSE", 0);
    }
    self->problem = *problem;
    const bool failed = load(self, why) != 0 || compress(problem, &host, why) != 0 ||
                        upload_weights(self, &host, why) != 0 || upload_operands(self, why) != 0 ||
                        take_work_space(self, why) != 0 || pick_best(self, why) != 0;
    free(host.starts);
    free(host.columns);
    free(host.codes);
    if (failed) {
        csr_destroy(self);
        return 1;
    }
    self->problem.codes = NULL; /* borrowed for the time of this call */
    *out = self;
    return 0;
}

static uint64_t csr_weight_bytes(void *pointer)
{
    const struct csr_self *self = pointer;
    return self->row_starts.bytes + self->columns.bytes + self->values.bytes;
}

const struct espl_spmm_peer espl_spmm_peer_cusparse_csr = {
    .version = ESPL_SPMM_PEER_VERSION,
    .name = "cusparse-csr",
    .sparse = 1,
    .create = csr_create,
    .launch = csr_launch,
    .weight_bytes = csr_weight_bytes,
    .destroy = csr_destroy,
};
