#include "stages/atom_quantize/atom_linear.h"

#include "core/checked.h"
#include "core/codes.h"
#include "stages/prune_common/prune_mask.h"
#include "stages/quant_common/channel_order.h"

#include <stdlib.h>
#include <string.h>

/* malloc of rows x cols items, never of 0 bytes. */
static void *allocate(size_t rows, size_t cols, size_t item)
{
    size_t count = 0;
    size_t bytes = 0;
    return espl_mul_size(rows, cols, &count) && espl_mul_size(count, item, &bytes)
               ? malloc(bytes > 0 ? bytes : 1)
               : NULL;
}

/* The linear in the order it is stored in. */
struct ordered {
    float *w;
    float *spare; /* of the same size */
    uint8_t *mask;
};

static void ordered_free(struct ordered *ordered)
{
    free(ordered->w);
    free(ordered->spare);
    free(ordered->mask);
}

static enum espl_status put_in_order(const struct espl_atom_task *task, struct ordered *ordered,
                                     struct espl_error *err)
{
    const struct espl_matrix_shape shape = {task->rows, task->cols};
    const size_t stride = espl_mask_stride(task->cols);
    ordered->w = allocate(task->rows, task->cols, sizeof(float));
    ordered->spare = allocate(task->rows, task->cols, sizeof(float));
    ordered->mask = task->mask != NULL ? allocate(task->rows, stride, 1) : NULL;
    if (ordered->w == NULL || ordered->spare == NULL ||
        (task->mask != NULL && ordered->mask == NULL)) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for two copies of %zu x %zu weights",
                         task->rows, task->cols);
    }
    const float *from = task->w;
    if (task->row_order != NULL) {
        espl_reorder_rows(&shape, from, task->row_order, ordered->spare);
        from = ordered->spare;
    }
    if (task->order != NULL) {
        espl_reorder_columns(&shape, from, task->order, ordered->w);
    } else {
        memcpy(ordered->w, from, task->rows * task->cols * sizeof(float));
    }
    if (ordered->mask != NULL && task->order != NULL) {
        espl_reorder_mask(&shape, task->mask, task->order, task->row_order, ordered->mask);
    } else if (ordered->mask != NULL) {
        memcpy(ordered->mask, task->mask, task->rows * stride);
    }
    return ESPL_OK;
}

static enum espl_status copy_order(const int32_t *order, size_t count, int32_t **out,
                                   struct espl_error *err)
{
    if (order == NULL) {
        return ESPL_OK;
    }
    *out = allocate(count, 1, sizeof(int32_t));
    if (*out == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for an order of %zu channels", count);
    }
    memcpy(*out, order, count * sizeof(int32_t));
    return ESPL_OK;
}

static enum espl_status copy_bias(const struct espl_atom_task *task,
                                  struct espl_quant_linear *linear, struct espl_error *err)
{
    const struct espl_matrix_shape shape = {task->rows, 1};
    if (task->bias == NULL) {
        return ESPL_OK;
    }
    linear->bias = allocate(task->rows, 1, sizeof(float));
    if (linear->bias == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a bias of %zu values", task->rows);
    }
    if (task->row_order != NULL) {
        espl_reorder_rows(&shape, task->bias, task->row_order, linear->bias);
    } else {
        memcpy(linear->bias, task->bias, task->rows * sizeof(float));
    }
    return ESPL_OK;
}

/* Moves what was computed into the form that is stored. */
static enum espl_status store(const struct espl_atom_task *task, struct espl_quantised *quantised,
                              struct ordered *ordered, struct espl_quant_linear *linear,
                              struct espl_error *err)
{
    *linear = (struct espl_quant_linear){
        .out = task->rows,
        .in = task->cols,
        .normal = quantised->normal,
        .outliers = quantised->outliers,
        .group_size = quantised->group_size,
        .groups = quantised->groups,
        .rows_per_scale = quantised->rows_per_scale,
        .weight_bits = task->quantiser.bits,
        .scales = quantised->scales,
        .outlier_codes = quantised->outlier_codes,
        .outlier_scales = quantised->outlier_scales,
        .mask = ordered->mask,
        .gathered = task->gathered,
    };
    quantised->scales = NULL;
    quantised->outlier_codes = NULL;
    quantised->outlier_scales = NULL;
    ordered->mask = NULL;
    linear->codes = allocate(task->rows, espl_codes_stride(linear->normal, linear->weight_bits), 1);
    if (linear->codes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu rows of codes", task->rows);
    }
    espl_codes_pack(quantised->codes, task->rows, linear->normal, linear->weight_bits,
                    linear->codes);
    enum espl_status status = copy_order(task->order, task->cols, &linear->order, err);
    if (status == ESPL_OK) {
        status = copy_order(task->row_order, task->rows, &linear->row_order, err);
    }
    return status == ESPL_OK ? copy_bias(task, linear, err) : status;
}

static void scale_range(const struct espl_quant_linear *linear, struct espl_atom_result *result)
{
    const size_t count = espl_ceil_div(linear->out, linear->rows_per_scale) * linear->groups;
    result->smallest_scale = linear->scales[0];
    result->largest_scale = linear->scales[0];
    for (size_t i = 1; i < count; i++) {
        const float scale = linear->scales[i];
        result->smallest_scale = scale < result->smallest_scale ? scale : result->smallest_scale;
        result->largest_scale = scale > result->largest_scale ? scale : result->largest_scale;
    }
}

size_t espl_atom_error_rows(size_t rows, size_t cols, uint64_t work)
{
    const size_t fewest = 256; /* rows of equal kind: within 1 % or so */
    const size_t affordable = (size_t)(work / cols / cols);
    const size_t sampled = affordable > fewest ? affordable : fewest;
    return rows < sampled ? rows : sampled;
}

/* Of large matrices that are rounded the error is that of some rows, evenly spread: all of them
 * would take many times what the rounding takes. GPTQ takes as long itself, so there all count.
 * Changes ordered->w and ->spare. */
static enum espl_status measure_error(const struct espl_atom_task *task, struct ordered *ordered,
                                      double *relative, struct espl_error *err)
{
    const size_t count = task->factor != NULL
                             ? task->rows
                             : espl_atom_error_rows(task->rows, task->cols, task->error_work);
    double absolute = 0.0;
    for (size_t i = 0; count < task->rows && i < count; i++) {
        const size_t row =
            (size_t)((uint64_t)i * task->rows / count); /* >= i: read before written */
        memmove(ordered->w + i * task->cols, ordered->w + row * task->cols,
                task->cols * sizeof(float));
        memmove(ordered->spare + i * task->cols, ordered->spare + row * task->cols,
                task->cols * sizeof(float));
    }
    return espl_output_error(count, task->cols, ordered->w, ordered->spare, task->hessian,
                             task->threads, &absolute, relative, err);
}

enum espl_status espl_atom_quantise(const struct espl_atom_task *task,
                                    struct espl_atom_result *result, struct espl_error *err)
{
    const struct espl_matrix_shape shape = {task->rows, task->cols};
    struct ordered ordered = {0};
    struct espl_quantised quantised = {0};
    struct espl_atom_counts counts = {0};
    *result = (struct espl_atom_result){0};
    /* Before anything moves: the message names row and column of the model. */
    enum espl_status status = espl_weights_check_finite(&shape, task->w, err);
    if (status == ESPL_OK) {
        status = put_in_order(task, &ordered, err);
    }
    if (status == ESPL_OK) {
        status = espl_quantised_create(&task->quantiser, &shape, &quantised, err);
    }
    if (status == ESPL_OK && task->factor != NULL) {
        const struct espl_gptq_task gptq = {shape,        ordered.w,       ordered.mask,
                                            task->factor, task->quantiser, task->removed,
                                            task->threads};
        status = espl_gptq(&gptq, &quantised, NULL, err);
    } else if (status == ESPL_OK) {
        status =
            espl_rtn(&task->quantiser, ordered.w, ordered.mask, task->threads, &quantised, err);
    }
    if (status == ESPL_OK) {
        espl_quantised_dequantise(&quantised, ordered.spare);
        status = measure_error(task, &ordered, &result->error, err);
    }
    if (status == ESPL_OK) {
        status = store(task, &quantised, &ordered, &result->linear, err);
    }
    if (status == ESPL_OK) {
        status = espl_atom_count(&result->linear, &counts, err);
    }
    if (status == ESPL_OK && counts.violations > 0) {
        status = espl_fail(err, ESPL_E_NUMERIC, "%llu removed weights are not 0 after quantisation",
                           (unsigned long long)counts.violations);
    }
    if (status == ESPL_OK) {
        scale_range(&result->linear, result);
    } else {
        espl_quant_linear_free(&result->linear);
    }
    espl_quantised_free(&quantised);
    ordered_free(&ordered);
    return status;
}

enum espl_status espl_atom_count(const struct espl_quant_linear *linear,
                                 struct espl_atom_counts *counts, struct espl_error *err)
{
    const size_t code_stride = espl_codes_stride(linear->normal, linear->weight_bits);
    const size_t mask_stride = espl_mask_stride(linear->in);
    int8_t *row = allocate(1, linear->in, 1);
    if (row == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a row of codes");
    }
    for (size_t r = 0; r < linear->out; r++) {
        const uint8_t *mask = linear->mask != NULL ? linear->mask + r * mask_stride : NULL;
        espl_codes_unpack(linear->codes + r * code_stride, 1, linear->normal, linear->weight_bits,
                          row);
        if (linear->outliers > 0) {
            memcpy(row + linear->normal, linear->outlier_codes + r * linear->outliers,
                   linear->outliers);
        }
        for (size_t c = 0; c < linear->in; c++) {
            const bool kept = mask == NULL || espl_mask_bit(mask, c);
            counts->removed += !kept;
            counts->zeros += row[c] == 0;
            counts->violations += !kept && row[c] != 0;
        }
    }
    free(row);
    counts->weights += (uint64_t)linear->out * linear->in;
    counts->bytes += espl_quant_linear_bytes(linear);
    return ESPL_OK;
}

enum espl_status espl_atom_mask_of_zeros(size_t rows, size_t cols, const float *w, uint8_t **mask,
                                         struct espl_error *err)
{
    const size_t stride = espl_mask_stride(cols);
    size_t zeros = 0;
    *mask = NULL;
    for (size_t i = 0; i < rows * cols; i++) {
        zeros += w[i] == 0.0f;
    }
    if (zeros * 100 < rows * cols) {
        return ESPL_OK;
    }
    *mask = calloc(rows, stride);
    if (*mask == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a mask of %zu rows", rows);
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            if (w[r * cols + c] != 0.0f) {
                espl_mask_set(*mask + r * stride, c);
            }
        }
    }
    return ESPL_OK;
}
