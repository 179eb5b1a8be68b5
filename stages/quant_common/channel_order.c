#include "stages/quant_common/channel_order.h"

#include "stages/prune_common/prune_mask.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns of a GPTQ block; groups divide it or are whole blocks. */
enum { BLOCK = 128, SMALLEST_LISTED = 8, LARGEST_LISTED = 1024, LIST_TEXT = 128 };

struct ranked {
    double statistic;
    size_t channel;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *left = a;
    const struct ranked *right = b;
    if (left->statistic != right->statistic) {
        return left->statistic < right->statistic ? -1 : 1;
    }
    return (left->channel > right->channel) - (left->channel < right->channel);
}

enum espl_status espl_reorder_ascending(const double *statistic, size_t count, int32_t *order,
                                        struct espl_error *err)
{
    if (count > INT32_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "%zu channels are too many to order", count);
    }
    struct ranked *ranked = calloc(count != 0 ? count : 1, sizeof *ranked);
    if (ranked == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for an order of %zu channels", count);
    }
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(statistic[i])) {
            free(ranked);
            return espl_fail(err, ESPL_E_NUMERIC, "statistic of channel %zu is not finite", i);
        }
        ranked[i].statistic = statistic[i];
        ranked[i].channel = i;
    }
    qsort(ranked, count, sizeof *ranked, compare_ranked);
    for (size_t i = 0; i < count; i++) {
        order[i] = (int32_t)ranked[i].channel;
    }
    free(ranked);
    return ESPL_OK;
}

void espl_reorder_identity(size_t count, int32_t *order)
{
    for (size_t i = 0; i < count; i++) {
        order[i] = (int32_t)i;
    }
}

void espl_reorder_invert(const int32_t *order, size_t count, int32_t *inverse)
{
    for (size_t i = 0; i < count; i++) {
        inverse[order[i]] = (int32_t)i;
    }
}

enum espl_status espl_reorder_check(const int32_t *order, size_t count, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    bool *seen = calloc(count != 0 ? count : 1, sizeof *seen);
    if (seen == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for checking %zu channels", count);
    }
    for (size_t i = 0; i < count && status == ESPL_OK; i++) {
        if (order[i] < 0 || (size_t)order[i] >= count || seen[order[i]]) {
            status = espl_fail(
                err, ESPL_E_CORRUPT, "place %zu of an order of %zu channels holds %d, which is %s",
                i, count, (int)order[i],
                order[i] < 0 || (size_t)order[i] >= count ? "out of range" : "there already");
        } else {
            seen[order[i]] = true;
        }
    }
    free(seen);
    return status;
}

void espl_reorder_columns(const struct espl_matrix_shape *shape, const float *from,
                          const int32_t *order, float *to)
{
    for (size_t r = 0; r < shape->rows; r++) {
        for (size_t c = 0; c < shape->cols; c++) {
            to[r * shape->cols + c] = from[r * shape->cols + (size_t)order[c]];
        }
    }
}

void espl_reorder_rows(const struct espl_matrix_shape *shape, const float *from,
                       const int32_t *order, float *to)
{
    for (size_t r = 0; r < shape->rows; r++) {
        memcpy(to + r * shape->cols, from + (size_t)order[r] * shape->cols,
               shape->cols * sizeof *to);
    }
}

void espl_reorder_mask(const struct espl_matrix_shape *shape, const uint8_t *from,
                       const int32_t *column_order, const int32_t *row_order, uint8_t *to)
{
    const size_t stride = espl_mask_stride(shape->cols);
    memset(to, 0, shape->rows * stride);
    for (size_t r = 0; r < shape->rows; r++) {
        const uint8_t *row = from + (row_order != NULL ? (size_t)row_order[r] : r) * stride;
        for (size_t c = 0; c < shape->cols; c++) {
            const size_t column = column_order != NULL ? (size_t)column_order[c] : c;
            if (espl_mask_bit(row, column)) {
                espl_mask_set(to + r * stride, c);
            }
        }
    }
}

static const size_t usual_sizes[] = {128, 64, 32};

size_t espl_outliers_auto(size_t cols)
{
    for (size_t i = 0; i < sizeof usual_sizes / sizeof usual_sizes[0]; i++) {
        if (usual_sizes[i] <= cols / 8) {
            return usual_sizes[i];
        }
    }
    return 0;
}

size_t espl_group_auto(size_t normal)
{
    for (size_t i = 0; i < sizeof usual_sizes / sizeof usual_sizes[0]; i++) {
        if (espl_group_is_legal(normal, usual_sizes[i])) {
            return usual_sizes[i];
        }
    }
    return 0;
}

bool espl_group_is_legal(size_t normal, size_t group)
{
    return group == 0 ||
           (normal >= group && normal % group == 0 && (BLOCK % group == 0 || group % BLOCK == 0));
}

void espl_group_list(size_t normal, char text[LIST_TEXT])
{
    size_t used = 0;
    (void)snprintf(text, LIST_TEXT, "none of %d or more", SMALLEST_LISTED);
    for (size_t group = LARGEST_LISTED; group >= SMALLEST_LISTED; group--) {
        if (espl_group_is_legal(normal, group) && used < LIST_TEXT) {
            const int more =
                snprintf(text + used, LIST_TEXT - used, "%s%zu", used > 0 ? ", " : "", group);
            used += more > 0 ? (size_t)more : 0;
        }
    }
}
