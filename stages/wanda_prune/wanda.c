#include "stages/wanda_prune/wanda.h"

#include "core/checked.h"
#include "stages/prune_common/prune_mask.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Scores are made for pieces of rows of about this many elements (4 MiB). */
enum { PIECE_ELEMENTS = 1 << 20 };

/* Bisection of the cumulative rule, as published. */
static const double ALPHA_START = 0.4;
static const double ALPHA_MAX = 0.8;
static const double ALPHA_TOLERANCE = 0.001;
static const double SPARSITY_TOLERANCE = 0.001;

size_t espl_wanda_norms(const double *sums, size_t count, uint64_t windows, float *norm)
{
    size_t bad = count;
    for (size_t i = 0; i < count; i++) {
        norm[i] = (float)sqrt(sums[i] / (double)windows);
        if (bad == count && !isfinite(norm[i])) {
            bad = i;
        }
    }
    return bad;
}

/* A NaN has no place in an order, so it must not reach the sort. */
static enum espl_status check_weights(struct espl_backend *backend,
                                      const struct espl_matrix_shape *shape, const float *w,
                                      struct espl_error *err)
{
    const size_t count = shape->rows * shape->cols;
    size_t bad = count;
    const enum espl_status status =
        espl_backend_ops(backend)->find_nonfinite(backend, count, w, &bad, err);
    if (status == ESPL_OK && bad < count) {
        return espl_fail(err, ESPL_E_NUMERIC, "weight at row %zu, column %zu is not finite",
                         bad / shape->cols, bad % shape->cols);
    }
    return status;
}

static enum espl_status mask_piece(struct espl_backend *backend,
                                   const struct espl_matrix_shape *piece, const float *score,
                                   const struct espl_wanda_task *task, uint8_t *mask,
                                   struct espl_error *err)
{
    if (task->nm.pattern.m > 0) {
        return espl_align_nm_mask(backend, &task->nm, piece, score, mask, err);
    }
    return espl_align_row_mask(backend, &task->align, piece, score, task->sparsity, mask, err);
}

/* Rows, or the rows that groups span, are independent: the matrix goes through in pieces and no
 * score matrix is kept. */
static enum espl_status fixed_mask(struct espl_backend *backend,
                                   const struct espl_matrix_shape *shape, const float *w,
                                   const float *norm, const struct espl_wanda_task *task,
                                   uint8_t *mask, struct espl_error *err)
{
    const size_t stride = espl_mask_stride(shape->cols);
    const size_t span = task->nm.vector > 1 ? task->nm.vector : espl_align_row_span(&task->align);
    const size_t fit = PIECE_ELEMENTS / shape->cols / span * span;
    const size_t rows_per_piece = fit > 0 ? fit : span;
    const size_t rows_most = rows_per_piece < shape->rows ? rows_per_piece : shape->rows;
    float *score = malloc(rows_most * shape->cols * sizeof *score);
    if (score == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the scores of %zu rows", rows_most);
    }
    enum espl_status status = ESPL_OK;
    for (size_t row = 0; row < shape->rows && status == ESPL_OK; row += rows_per_piece) {
        const size_t left = shape->rows - row;
        const struct espl_matrix_shape piece = {left < rows_per_piece ? left : rows_per_piece,
                                                shape->cols};
        status = espl_backend_ops(backend)->wanda_score(backend, &piece, w + row * shape->cols,
                                                        norm, score, err);
        if (status == ESPL_OK) {
            status = mask_piece(backend, &piece, score, task, mask + row * stride, err);
        }
    }
    free(score);
    return status;
}

/* Sorts a row of scores (all >= 0, so that their bits order like the numbers): radix sort on three
 * digits of 11 bits, lowest first. The result lands in `row`. */
static void sort_scores(float *row, size_t count, uint32_t *keys, uint32_t *spare)
{
    memcpy(keys, row, count * sizeof *keys);
    for (unsigned shift = 0; shift < 32; shift += 11) {
        size_t start[2048] = {0};
        for (size_t i = 0; i < count; i++) {
            start[(keys[i] >> shift) & 2047u]++;
        }
        size_t sum = 0;
        for (size_t digit = 0; digit < 2048; digit++) {
            const size_t here = start[digit];
            start[digit] = sum;
            sum += here;
        }
        for (size_t i = 0; i < count; i++) {
            spare[start[(keys[i] >> shift) & 2047u]++] = keys[i];
        }
        uint32_t *swap = keys;
        keys = spare;
        spare = swap;
    }
    memcpy(row, keys, count * sizeof *keys);
}

/* Largest score that a row loses at `alpha`, or -1 when it loses none: the last sorted score whose
 * running sum is not above alpha times the row's total. */
static float row_threshold(const float *sorted, size_t cols, double alpha)
{
    double total = 0.0;
    for (size_t i = 0; i < cols; i++) {
        total += (double)sorted[i];
    }
    double sum = 0.0;
    float threshold = -1.0f;
    for (size_t i = 0; i < cols; i++) {
        sum += (double)sorted[i];
        if (sum > alpha * total) {
            break;
        }
        threshold = sorted[i];
    }
    return threshold;
}

/* Thresholds of all rows at `alpha`, and the sparsity they give. */
static double set_thresholds(const struct espl_matrix_shape *shape, const float *sorted,
                             double alpha, float *thresholds)
{
    uint64_t removed = 0;
    for (size_t row = 0; row < shape->rows; row++) {
        const float *line = sorted + row * shape->cols;
        thresholds[row] = row_threshold(line, shape->cols, alpha);
        for (size_t i = 0; i < shape->cols && line[i] <= thresholds[row]; i++) {
            removed++;
        }
    }
    return (double)removed / ((double)shape->rows * (double)shape->cols);
}

static void bisect_alpha(const struct espl_matrix_shape *shape, const float *sorted,
                         double sparsity, float *thresholds)
{
    double low = 0.0, high = ALPHA_MAX, alpha = ALPHA_START;
    double reached = set_thresholds(shape, sorted, alpha, thresholds);
    while (fabs(reached - sparsity) > SPARSITY_TOLERANCE && high - low >= ALPHA_TOLERANCE) {
        if (reached > sparsity) {
            high = alpha;
        } else {
            low = alpha;
        }
        alpha = (low + high) / 2.0;
        reached = set_thresholds(shape, sorted, alpha, thresholds);
    }
}

static void threshold_mask(const struct espl_matrix_shape *shape, const float *score,
                           const float *thresholds, uint8_t *mask)
{
    const size_t stride = espl_mask_stride(shape->cols);
    memset(mask, 0, shape->rows * stride);
    for (size_t row = 0; row < shape->rows; row++) {
        for (size_t col = 0; col < shape->cols; col++) {
            if (score[row * shape->cols + col] > thresholds[row]) {
                espl_mask_set(mask + row * stride, col);
            }
        }
    }
}

static enum espl_status cumulative_mask(struct espl_backend *backend,
                                        const struct espl_matrix_shape *shape, const float *w,
                                        const float *norm, const struct espl_wanda_task *task,
                                        uint8_t *mask, struct espl_error *err)
{
    const size_t count = shape->rows * shape->cols;
    float *score = malloc(count * sizeof *score);
    float *sorted = malloc(count * sizeof *sorted);
    float *thresholds = malloc(shape->rows * sizeof *thresholds);
    uint32_t *keys = malloc(2 * shape->cols * sizeof *keys);
    enum espl_status status = ESPL_OK;
    if (score == NULL || sorted == NULL || thresholds == NULL || keys == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for the scores of a %zu x %zu matrix",
                           shape->rows, shape->cols);
        goto cleanup;
    }
    status = espl_backend_ops(backend)->wanda_score(backend, shape, w, norm, score, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    memcpy(sorted, score, count * sizeof *sorted);
    for (size_t row = 0; row < shape->rows; row++) {
        sort_scores(sorted + row * shape->cols, shape->cols, keys, keys + shape->cols);
    }
    bisect_alpha(shape, sorted, task->sparsity, thresholds);
    threshold_mask(shape, score, thresholds, mask);

cleanup:
    free(score);
    free(sorted);
    free(thresholds);
    free(keys);
    return status;
}

enum espl_status espl_wanda_mask(struct espl_backend *backend,
                                 const struct espl_matrix_shape *shape, const float *w,
                                 const float *norm, const struct espl_wanda_task *task,
                                 uint8_t *mask, struct espl_error *err)
{
    size_t elements = 0, bytes = 0;
    if (shape->rows == 0 || shape->cols == 0 ||
        !espl_mul_size(shape->rows, shape->cols, &elements) ||
        !espl_mul_size(elements, sizeof(float), &bytes)) {
        return espl_fail(err, ESPL_E_KIND, "a weight matrix of %zu x %zu cannot be pruned",
                         shape->rows, shape->cols);
    }
    const enum espl_status status = check_weights(backend, shape, w, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (task->rule == ESPL_WANDA_CUMULATIVE) {
        return cumulative_mask(backend, shape, w, norm, task, mask, err);
    }
    return fixed_mask(backend, shape, w, norm, task, mask, err);
}
