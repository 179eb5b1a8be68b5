/* Weights on the device: upload and copies. */
#include "kernels/cuda/spmm_matrix.cuh"

#include "espalier/cuda_memory.h"
#include "kernels/cuda/cuda_support.cuh"
#include "kernels/cuda/spmm_args.cuh"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

namespace
{

enum espl_status check_shape(size_t rows, size_t cols, struct espl_error *err)
{
    if (rows == 0 || cols == 0 || rows > INT_MAX - SPMM_STRIPE || cols > ESPL_CUDA_SPMM_MAX_COLS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the CUDA kernels take 1 to %d rows and 1 to %d columns, not %zu x %zu",
                         INT_MAX - SPMM_STRIPE, ESPL_CUDA_SPMM_MAX_COLS, rows, cols);
    }
    return ESPL_OK;
}

/* Copies data (and index) into device memory of their own. */
enum espl_status fill_device(struct espl_cuda_matrix *matrix, const void *data,
                             const uint32_t *index, cudaMemcpyKind kind, struct espl_error *err)
{
    const size_t chunks = static_cast<size_t>(matrix->stripes) * matrix->depth;
    const size_t index_bytes = chunks * 2 * sizeof *index;
    void *memory = NULL;
    enum espl_status status = espl_cuda_alloc(matrix->data_bytes, &memory, err);
    if (status != ESPL_OK) {
        return status;
    }
    matrix->data = static_cast<uint8_t *>(memory);
    status = espl_cuda_check(cudaMemcpy(memory, data, matrix->data_bytes, kind),
                             "cannot copy weights to the device", err);
    if (status == ESPL_OK && index != NULL) {
        status = espl_cuda_alloc(index_bytes, &memory, err);
        if (status == ESPL_OK) {
            matrix->index = static_cast<uint32_t *>(memory);
            status = espl_cuda_check(cudaMemcpy(memory, index, index_bytes, kind),
                                     "cannot copy an index to the device", err);
        }
    }
    return status;
}

/* What the index of a sparse layout says: where stripes start, and the largest chunk. */
void read_index(struct espl_cuda_matrix *matrix, const struct espl_iebme_device *layout)
{
    for (size_t stripe = 0; stripe < matrix->stripes; stripe++) {
        uint64_t units = 0;
        for (size_t c = 0; c < matrix->depth; c++) {
            const uint32_t length =
                espl_iebme_device_length(layout->index[2 * (stripe * matrix->depth + c) + 1]);
            const unsigned bytes = length * ESPL_IEBME_DEVICE_UNIT;
            units += length;
            matrix->chunk_bytes = bytes > matrix->chunk_bytes ? bytes : matrix->chunk_bytes;
        }
        matrix->stripe_start[stripe + 1] = matrix->stripe_start[stripe] + units;
    }
}

enum espl_status allocate(const struct espl_cuda_matrix *facts, struct espl_cuda_matrix **out,
                          struct espl_error *err)
{
    *out = static_cast<struct espl_cuda_matrix *>(malloc(sizeof **out));
    uint64_t *starts =
        static_cast<uint64_t *>(calloc(static_cast<size_t>(facts->stripes) + 1, sizeof *starts));
    if (*out == NULL || starts == NULL) {
        free(*out);
        free(starts);
        *out = NULL;
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a matrix of the device");
    }
    **out = *facts;
    (*out)->stripe_start = starts;
    return ESPL_OK;
}

/* Dense weights: the same number of units in every stripe. */
enum espl_status create_dense(struct espl_cuda_matrix *facts, const uint8_t *data,
                              struct espl_cuda_matrix **out, struct espl_error *err)
{
    struct espl_cuda_matrix *matrix = NULL;
    facts->unit = ESPL_IEBME_DENSE;
    enum espl_status status = check_shape(facts->rows, facts->cols, err);
    if (status == ESPL_OK) {
        status = allocate(facts, &matrix, err);
    }
    if (status == ESPL_OK) {
        const uint64_t stripe = static_cast<uint64_t>(facts->depth) * facts->bits *
                                ESPL_DENSE_UNIT_BYTES / ESPL_IEBME_DEVICE_UNIT;
        for (unsigned s = 0; s < facts->stripes; s++) {
            matrix->stripe_start[s + 1] = matrix->stripe_start[s] + stripe;
        }
        status = fill_device(matrix, data, NULL, cudaMemcpyHostToDevice, err);
    }
    if (status != ESPL_OK) {
        espl_cuda_matrix_destroy(matrix);
        return status;
    }
    *out = matrix;
    return ESPL_OK;
}

unsigned ceil_div(size_t a, size_t b)
{
    return static_cast<unsigned>(a / b + (a % b != 0 ? 1 : 0));
}

} // namespace

enum espl_status atom_attach(struct espl_cuda_matrix *matrix, const struct spmm_atom *facts,
                             cudaMemcpyKind kind, struct espl_error *err)
{
    void *memory = NULL;
    struct spmm_atom *atom = static_cast<struct spmm_atom *>(malloc(sizeof *atom));
    if (atom == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the scales of a matrix");
    }
    *atom = *facts;
    atom->memory = NULL;
    matrix->atom = atom; /* freed with the matrix from here on */
    enum espl_status status = espl_cuda_alloc(facts->memory_bytes, &memory, err);
    if (status == ESPL_OK) {
        atom->memory = static_cast<uint8_t *>(memory);
        status = espl_cuda_check(cudaMemcpy(memory, facts->memory, facts->memory_bytes, kind),
                                 "cannot copy scales to the device", err);
    }
    return status;
}

extern "C" enum espl_status espl_cuda_matrix_create_dense(const struct espl_dense_device *layout,
                                                          struct espl_cuda_matrix **out,
                                                          struct espl_error *err)
{
    struct espl_cuda_matrix facts = {};
    facts.rows = layout->rows;
    facts.cols = layout->cols;
    facts.bits = layout->bits;
    facts.stripes = static_cast<unsigned>(layout->stripes);
    facts.depth = static_cast<unsigned>(layout->depth);
    facts.data_bytes = layout->data_bytes;
    return create_dense(&facts, layout->data, out, err);
}

extern "C" enum espl_status espl_cuda_matrix_create_iebme(const struct espl_iebme_device *layout,
                                                          struct espl_cuda_matrix **out,
                                                          struct espl_error *err)
{
    struct espl_cuda_matrix facts = {};
    struct espl_cuda_matrix *matrix = NULL;
    enum espl_status status = check_shape(layout->rows, layout->cols, err);
    if (status != ESPL_OK) {
        return status;
    }
    facts.rows = layout->rows;
    facts.cols = layout->cols;
    facts.bits = 4;
    facts.unit = layout->unit;
    facts.stripes = ceil_div(layout->rows, SPMM_STRIPE);
    facts.depth = ceil_div(layout->cols, layout->slice);
    facts.data_bytes = layout->data_bytes;
    if (layout->unit == ESPL_IEBME_DENSE) {
        espl_fail(err, ESPL_E_UNSUPPORTED, "the CUDA kernels read dense weights in another layout");
        return espl_hint(err, "use espl_dense_device_encode()");
    }
    if (layout->slice != SPMM_SLICE) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "the CUDA kernels read sparse chunks of %d columns, not %zu", SPMM_SLICE,
                         layout->slice);
    }
    status = allocate(&facts, &matrix, err);
    if (status == ESPL_OK) {
        read_index(matrix, layout);
        status = fill_device(matrix, layout->data, layout->index, cudaMemcpyHostToDevice, err);
    }
    if (status != ESPL_OK) {
        espl_cuda_matrix_destroy(matrix);
        return status;
    }
    *out = matrix;
    return ESPL_OK;
}

extern "C" enum espl_status espl_cuda_matrix_clone(const struct espl_cuda_matrix *matrix,
                                                   struct espl_cuda_matrix **out,
                                                   struct espl_error *err)
{
    struct espl_cuda_matrix *copy = NULL;
    enum espl_status status = allocate(matrix, &copy, err);
    if (status != ESPL_OK) {
        return status;
    }
    copy->data = NULL;
    copy->index = NULL;
    copy->atom = NULL;
    memcpy(copy->stripe_start, matrix->stripe_start,
           (static_cast<size_t>(matrix->stripes) + 1) * sizeof *copy->stripe_start);
    status = fill_device(copy, matrix->data, matrix->index, cudaMemcpyDeviceToDevice, err);
    if (status == ESPL_OK && matrix->atom != NULL) {
        status = atom_attach(copy, matrix->atom, cudaMemcpyDeviceToDevice, err);
    }
    if (status != ESPL_OK) {
        espl_cuda_matrix_destroy(copy);
        return status;
    }
    *out = copy;
    return ESPL_OK;
}

extern "C" void espl_cuda_matrix_destroy(struct espl_cuda_matrix *matrix)
{
    if (matrix == NULL) {
        return;
    }
    espl_cuda_free(matrix->data);
    espl_cuda_free(matrix->index);
    if (matrix->atom != NULL) {
        espl_cuda_free(matrix->atom->memory);
    }
    free(matrix->atom);
    free(matrix->stripe_start);
    free(matrix);
}

extern "C" uint64_t espl_cuda_matrix_bytes(const struct espl_cuda_matrix *matrix)
{
    const uint64_t chunks = static_cast<uint64_t>(matrix->stripes) * matrix->depth;
    return matrix->stripe_start[matrix->stripes] * ESPL_IEBME_DEVICE_UNIT +
           (matrix->index != NULL ? chunks * 2 * sizeof *matrix->index : 0) +
           (matrix->atom != NULL ? matrix->atom->memory_bytes : 0);
}
