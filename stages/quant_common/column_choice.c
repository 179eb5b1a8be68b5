#include "stages/quant_common/column_choice.h"

#include "core/checked.h"
#include "stages/prune_common/prune_mask.h"

#include <stdlib.h>
#include <string.h>

static double score_of(const struct espl_column_loop *loop, size_t row, size_t column)
{
    const size_t cols = loop->shape.cols;
    const double ratio = loop->w[row * cols + column] / loop->factor->upper[column * cols + column];
    return ratio * ratio;
}

void espl_choose_window(const struct espl_column_loop *loop, size_t row, size_t column)
{
    uint8_t *mask = loop->mask + row * espl_mask_stride(loop->shape.cols);
    if (loop->shape.cols - column < loop->window) {
        return;
    }
    for (size_t removed = loop->keep; removed < loop->window; removed++) {
        size_t worst = loop->shape.cols;
        for (size_t c = column; c < column + loop->window; c++) {
            if (espl_mask_bit(mask, c) && (worst == loop->shape.cols ||
                                           score_of(loop, row, c) < score_of(loop, row, worst))) {
                worst = c;
            }
        }
        espl_mask_clear(mask, worst);
    }
}

static void swap(double *a, double *b)
{
    const double held = *a;
    *a = *b;
    *b = held;
}

/* Moves the median of the first, middle and last value to the middle. */
static double pivot_of(double *values, size_t low, size_t high)
{
    const size_t middle = low + (high - low) / 2;
    if (values[middle] < values[low]) {
        swap(&values[middle], &values[low]);
    }
    if (values[high] < values[low]) {
        swap(&values[high], &values[low]);
    }
    if (values[high] < values[middle]) {
        swap(&values[high], &values[middle]);
    }
    return values[middle];
}

double espl_select_rank(double *values, size_t count, size_t rank)
{
    size_t low = 0;
    size_t high = count - 1;
    while (low < high) {
        const double pivot = pivot_of(values, low, high);
        size_t i = low;
        size_t j = high;
        for (;;) {
            while (i < high && values[i] < pivot) {
                i++;
            }
            while (j > low && pivot < values[j]) {
                j--;
            }
            if (i >= j) {
                break;
            }
            swap(&values[i++], &values[j--]);
        }
        /* values[low..j] <= pivot <= values[j+1..high], both shorter than the whole */
        if (rank <= j) {
            high = j;
        } else {
            low = j + 1;
        }
    }
    return values[rank];
}

/* Scores of the block's weights, pooled by groups where these stand in for the single weight. */
static void score_block(const struct espl_column_loop *loop, const struct espl_matrix_shape *block,
                        size_t first, double *scores)
{
    for (size_t i = 0; i < block->rows * block->cols; i++) {
        scores[i] = score_of(loop, i / block->cols, first + i % block->cols);
    }
    if (espl_align_is_on(&loop->align) && loop->align.fill == ESPL_ALIGN_FILL_NONE) {
        espl_align_pool(&loop->align, block, false, scores);
    }
}

enum espl_status espl_choose_block(const struct espl_column_loop *loop, size_t first,
                                   struct espl_error *err)
{
    const struct espl_matrix_shape block = {loop->shape.rows,
                                            espl_column_loop_block_end(loop, first) - first};
    const size_t stride = espl_mask_stride(loop->shape.cols);
    size_t count = 0;
    size_t bytes = 0;
    double *scores = NULL;
    if (loop->sparsity <= 0.0 || block.rows == 0 || block.cols == 0) {
        return ESPL_OK;
    }
    if (espl_mul_size(block.rows, block.cols, &count) &&
        espl_mul_size(count, 2 * sizeof *scores, &bytes)) {
        scores = malloc(bytes);
    }
    if (scores == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the scores of %zu x %zu weights",
                         block.rows, block.cols);
    }
    double *ranked = scores + count;
    score_block(loop, &block, first, scores);
    memcpy(ranked, scores, count * sizeof *ranked);
    const size_t rank = (size_t)((double)count * loop->sparsity);
    const double threshold = espl_select_rank(ranked, count, rank < count ? rank : count - 1);
    if (espl_align_is_on(&loop->align) && loop->align.fill == ESPL_ALIGN_FILL_UNION) {
        espl_align_pool(&loop->align, &block, true, scores);
    }
    for (size_t i = 0; i < count; i++) {
        if (scores[i] <= threshold) {
            espl_mask_clear(loop->mask + i / block.cols * stride, first + i % block.cols);
        }
    }
    free(scores);
    return ESPL_OK;
}
