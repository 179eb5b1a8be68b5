/* Baseline: cuSPARSE, CSR with 32-bit columns and FP16 values, FP16 activations and outputs. Times
 * the algorithms for CSR and keeps the best. */
#include "espalier/cuda_memory.h"
#include "kernels/bench/spmm_baseline.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Values of cusparse.h and library_types.h. */
enum { OP_N = 0, INDEX_32 = 2, BASE_0 = 0, TYPE_HALF = 2, TYPE_FLOAT = 0, ORDER_COL = 1 };
static const int algorithms[] = {0, 4, 6, 12}; /* default, CSR 1, 2, 3 */
enum { ALGORITHMS = 4 };

struct csr_self {
    struct espl_baseline base;
    struct espl_baseline_copies row_starts, columns;
    void *matrices[ESPL_BASELINE_MAX_COPIES]; /* descriptors of the copies */
    void *x_descriptor, *y_descriptor;
    int best; /* of algorithms */
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    int (*create_csr)(void **matrix, int64_t rows, int64_t cols, int64_t nonzeros, void *starts,
                      void *columns, void *values, int start_type, int column_type, int base,
                      int value_type);
    int (*destroy_csr)(void *matrix);
    int (*create_dense)(void **matrix, int64_t rows, int64_t cols, int64_t stride, void *values,
                        int type, int order);
    int (*destroy_dense)(void *matrix);
    int (*work_bytes)(void *handle, int op_a, int op_b, const void *alpha, void *a, void *b,
                      const void *beta, void *c, int compute, int algorithm, size_t *bytes);
    int (*spmm)(void *handle, int op_a, int op_b, const void *alpha, void *a, void *b,
                const void *beta, void *c, int compute, int algorithm, void *work);
};

static void csr_destroy(void *pointer)
{
    struct csr_self *self = pointer;
    void *const operands[] = {self->x_descriptor, self->y_descriptor};
    for (size_t i = 0; i < ESPL_BASELINE_MAX_COPIES; i++) {
        if (self->matrices[i] != NULL) {
            (void)self->destroy_csr(self->matrices[i]);
        }
    }
    for (size_t i = 0; i < sizeof operands / sizeof operands[0]; i++) {
        if (operands[i] != NULL) {
            (void)self->destroy_dense(operands[i]);
        }
    }
    espl_baseline_copies_free(&self->row_starts);
    espl_baseline_copies_free(&self->columns);
    espl_baseline_destroy(self);
}

static int load(struct csr_self *self, char *why)
{
    static const char *const names[] = {"libcusparse.so.12", "libcusparse.so", NULL};
    void *library = espl_baseline_library(names, why);
    self->base.library = library;
    if (library == NULL || !espl_baseline_symbol(library, "cusparseCreate", &self->create, why) ||
        !espl_baseline_symbol(library, "cusparseDestroy", &self->base.destroy_handle, why) ||
        !espl_baseline_symbol(library, "cusparseSetStream", &self->set_stream, why) ||
        !espl_baseline_symbol(library, "cusparseCreateCsr", &self->create_csr, why) ||
        !espl_baseline_symbol(library, "cusparseDestroySpMat", &self->destroy_csr, why) ||
        !espl_baseline_symbol(library, "cusparseDestroyDnMat", &self->destroy_dense, why) ||
        !espl_baseline_symbol(library, "cusparseCreateDnMat", &self->create_dense, why) ||
        !espl_baseline_symbol(library, "cusparseSpMM_bufferSize", &self->work_bytes, why) ||
        !espl_baseline_symbol(library, "cusparseSpMM", &self->spmm, why)) {
        return 1;
    }
    const int code = self->create(&self->base.handle);
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
    struct espl_baseline *base = &self->base;
    const struct espl_spmm_peer_problem *p = &base->problem;
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
                                                       &base->weights, why);
    free(values);
    for (size_t i = 0; failed == 0 && i < base->weights.count; i++) {
        const int code = self->create_csr(&self->matrices[i], (int64_t)p->rows, (int64_t)p->cols,
                                          (int64_t)host->nonzeros, self->row_starts.data[i],
                                          self->columns.data[i], base->weights.data[i], INDEX_32,
                                          INDEX_32, BASE_0, TYPE_HALF);
        failed = code != 0 ? espl_baseline_fail(why, "cuSPARSE refuses the weights", code) : 0;
    }
    return failed;
}

static int upload_operands(struct csr_self *self, char *why)
{
    struct espl_baseline *base = &self->base;
    const struct espl_spmm_peer_problem *p = &base->problem;
    if (espl_baseline_half_operands(base, why) != 0) {
        return 1;
    }
    /* Row-major (tokens, n) is column-major (n, tokens): y = W x. */
    int code = self->create_dense(&self->x_descriptor, (int64_t)p->cols, (int64_t)p->tokens,
                                  (int64_t)p->cols, base->x, TYPE_HALF, ORDER_COL);
    code = code != 0 ? code
                     : self->create_dense(&self->y_descriptor, (int64_t)p->rows, (int64_t)p->tokens,
                                          (int64_t)p->rows, base->y, TYPE_HALF, ORDER_COL);
    return code == 0 ? 0 : espl_baseline_fail(why, "cuSPARSE refuses the activations", code);
}

static int csr_launch(void *pointer, size_t copy, void *stream)
{
    const struct csr_self *self = pointer;
    const struct espl_baseline *base = &self->base;
    const float one = 1.0F;
    const float zero = 0.0F;
    const int code = self->set_stream(base->handle, stream);
    return code != 0
               ? code
               : self->spmm(base->handle, OP_N, OP_N, &one,
                            self->matrices[copy % base->weights.count], self->x_descriptor, &zero,
                            self->y_descriptor, TYPE_FLOAT, algorithms[self->best], base->work);
}

static int take_work_space(struct csr_self *self, char *why)
{
    const float one = 1.0F;
    const float zero = 0.0F;
    size_t most = 256;
    for (int i = 0; i < ALGORITHMS; i++) {
        size_t bytes = 0;
        if (self->work_bytes(self->base.handle, OP_N, OP_N, &one, self->matrices[0],
                             self->x_descriptor, &zero, self->y_descriptor, TYPE_FLOAT,
                             algorithms[i], &bytes) == 0) {
            most = bytes > most ? bytes : most;
        }
    }
    return espl_baseline_upload(NULL, most, &self->base.work, why);
}

static int prepare_weights(struct csr_self *self, char *why)
{
    struct csr_host host = {.starts = NULL};
    const bool failed =
        compress(&self->base.problem, &host, why) != 0 || upload_weights(self, &host, why) != 0;
    free(host.starts);
    free(host.columns);
    free(host.codes);
    return failed ? 1 : 0;
}

static int pick_best(struct csr_self *self, char *why)
{
    const struct espl_cuda_timing_options options = {.launches = 2, .repeats = 1};
    const struct espl_baseline_subject subject = {&espl_spmm_peer_cusparse_csr, self};
    return espl_baseline_pick(&subject, &options, ALGORITHMS, &self->best, why);
}

static int prepare(void *self, char *why)
{
    return load(self, why) != 0 || prepare_weights(self, why) != 0 ||
                   upload_operands(self, why) != 0 || take_work_space(self, why) != 0 ||
                   pick_best(self, why) != 0
               ? 1
               : 0;
}

static int csr_create(const struct espl_spmm_peer_problem *problem, void **out, char *why)
{
    return espl_baseline_create(sizeof(struct csr_self), problem, prepare, csr_destroy, out, why);
}

static uint64_t csr_weight_bytes(void *pointer)
{
    const struct csr_self *self = pointer;
    return self->row_starts.bytes + self->columns.bytes + self->base.weights.bytes;
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
