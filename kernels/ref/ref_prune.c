/* Reference pruning ops: statistics, scores and masks. */
#include "kernels/backend_internal.h"
#include "kernels/ref/ref_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum espl_status espl_ref_column_sumsq(struct espl_backend *backend, size_t tokens, size_t width,
                                       const float *x, double *sums, struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t t = 0; t < tokens; t++) {
        for (size_t i = 0; i < width; i++) {
            sums[i] += (double)x[t * width + i] * (double)x[t * width + i];
        }
    }
    return ESPL_OK;
}

enum espl_status espl_ref_wanda_score(struct espl_backend *backend,
                                      const struct espl_matrix_shape *shape, const float *w,
                                      const float *norm, float *score, struct espl_error *err)
{
    (void)backend;
    (void)err;
    for (size_t i = 0; i < shape->rows; i++) {
        for (size_t j = 0; j < shape->cols; j++) {
            score[i * shape->cols + j] = fabsf(w[i * shape->cols + j]) * norm[j];
        }
    }
    return ESPL_OK;
}

struct ranked {
    float score;
    size_t column;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *left = a;
    const struct ranked *right = b;
    if (left->score != right->score) {
        return left->score < right->score ? -1 : 1;
    }
    return (left->column > right->column) - (left->column < right->column);
}

/* Sets the bits of the window's columns except of its `remove` smallest scores. */
static void keep_largest(const float *score, size_t first, size_t count, size_t remove,
                         struct ranked *order, uint8_t *mask)
{
    for (size_t j = 0; j < count; j++) {
        order[j].score = score[first + j];
        order[j].column = first + j;
    }
    qsort(order, count, sizeof *order, compare_ranked);
    for (size_t j = remove; j < count; j++) {
        const size_t column = order[j].column;
        mask[column / 8] = (uint8_t)(mask[column / 8] | (1u << (column % 8)));
    }
}

enum espl_status espl_ref_row_mask(struct espl_backend *backend,
                                   const struct espl_matrix_shape *shape, const float *score,
                                   size_t prune, uint8_t *mask, struct espl_error *err)
{
    if (prune > shape->cols) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "cannot remove %zu of %zu columns", prune,
                         shape->cols);
    }
    void *order = NULL;
    const enum espl_status status =
        espl_backend_scratch_array(backend, shape->cols, sizeof(struct ranked), &order, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t stride = espl_mask_stride(shape->cols);
    memset(mask, 0, shape->rows * stride);
    for (size_t i = 0; i < shape->rows; i++) {
        keep_largest(score + i * shape->cols, 0, shape->cols, prune, order, mask + i * stride);
    }
    return ESPL_OK;
}

enum espl_status espl_ref_nm_mask(struct espl_backend *backend,
                                  const struct espl_matrix_shape *shape, const float *score,
                                  size_t n, size_t m, bool keep_tail, uint8_t *mask,
                                  struct espl_error *err)
{
    enum espl_status status = espl_nm_mask_check(shape, n, m, keep_tail, err);
    if (status != ESPL_OK) {
        return status;
    }
    void *order = NULL;
    status = espl_backend_scratch_array(backend, m, sizeof(struct ranked), &order, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t stride = espl_mask_stride(shape->cols);
    memset(mask, 0, shape->rows * stride);
    for (size_t i = 0; i < shape->rows; i++) {
        for (size_t first = 0; first < shape->cols; first += m) {
            const size_t left = shape->cols - first;
            keep_largest(score + i * shape->cols, first, left < m ? left : m, left < m ? 0 : m - n,
                         order, mask + i * stride);
        }
    }
    return ESPL_OK;
}

enum espl_status espl_ref_apply_mask(struct espl_backend *backend,
                                     const struct espl_matrix_shape *shape, const uint8_t *mask,
                                     float *w, struct espl_error *err)
{
    (void)backend;
    (void)err;
    const size_t stride = espl_mask_stride(shape->cols);
    for (size_t i = 0; i < shape->rows; i++) {
        for (size_t j = 0; j < shape->cols; j++) {
            if ((mask[i * stride + j / 8] & (1u << (j % 8))) == 0) {
                w[i * shape->cols + j] = 0.0F;
            }
        }
    }
    return ESPL_OK;
}
