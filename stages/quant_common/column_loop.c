#include "stages/quant_common/column_loop.h"

#include "core/checked.h"
#include "espalier/linalg.h"
#include "stages/prune_common/prune_mask.h"
#include "stages/quant_common/column_choice.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* Even, so that rows which share a scale share a panel. */
enum { PANEL_ROWS = 32, OUTLIER_BITS = 8 };

/* A panel of rows inside a block of columns. */
struct panel {
    size_t row, rows;
    size_t first, last; /* columns of the block */
    double *errors;     /* (rows, block) */
};

static const uint8_t *mask_row(const struct espl_column_loop *loop, size_t row)
{
    return loop->mask + row * espl_mask_stride(loop->shape.cols);
}

/* Largest kept |w| of a row in [first, first + count), as float32. */
static float row_amax(const struct espl_column_loop *loop, size_t row, size_t first, size_t count)
{
    const double *w = loop->w + row * loop->shape.cols;
    const uint8_t *mask = mask_row(loop, row);
    float amax = 0.0F;
    for (size_t c = first; c < first + count; c++) {
        if (espl_mask_bit(mask, c)) {
            amax = fmaxf(amax, fabsf((float)w[c]));
        }
    }
    return amax;
}

/* Scales of the group that starts at `column`, from the weights as they are now. */
static void set_group_scales(const struct espl_column_loop *loop, const struct panel *panel,
                             size_t column)
{
    struct espl_quantised *out = loop->quantised;
    for (size_t r = panel->row; r < panel->row + panel->rows; r += out->rows_per_scale) {
        float amax = row_amax(loop, r, column, out->group_size);
        if (out->rows_per_scale == 2 && r + 1 < loop->shape.rows) {
            amax = fmaxf(amax, row_amax(loop, r + 1, column, out->group_size));
        }
        out->scales[r / out->rows_per_scale * out->groups + column / out->group_size] =
            espl_quantiser_scale(loop->quantiser, amax);
    }
}

static void set_outlier_scales(const struct espl_column_loop *loop, const struct panel *panel)
{
    struct espl_quantised *out = loop->quantised;
    for (size_t r = panel->row; r < panel->row + panel->rows; r++) {
        out->outlier_scales[r] = espl_outlier_scale(row_amax(loop, r, out->normal, out->outliers));
    }
}

/* Value of a kept weight: itself, or what its code stands for (the code is stored). */
static double replace(const struct espl_column_loop *loop, size_t row, size_t column, double w)
{
    struct espl_quantised *out = loop->quantised;
    if (out == NULL) {
        return w;
    }
    if (column >= out->normal) {
        const float scale = out->outlier_scales[row];
        const int8_t code = espl_quantise_value((float)w, scale, OUTLIER_BITS);
        out->outlier_codes[row * out->outliers + column - out->normal] = code;
        return (double)scale * code;
    }
    const float scale =
        out->scales[row / out->rows_per_scale * out->groups + column / out->group_size];
    const int8_t code = espl_quantise_value((float)w, scale, loop->quantiser->bits);
    out->codes[row * out->normal + column] = code;
    return (double)scale * code;
}

/* Codes start at 0, so a removed weight needs none. */
static double replace_column(const struct espl_column_loop *loop, const struct panel *panel,
                             size_t column)
{
    const size_t cols = loop->shape.cols;
    const double diagonal = loop->factor->upper[column * cols + column];
    double loss = 0.0;
    for (size_t i = 0; i < panel->rows; i++) {
        double *w = &loop->w[(panel->row + i) * cols + column];
        double *error = &panel->errors[i * loop->block + column - panel->first];
        const bool kept = espl_mask_bit(mask_row(loop, panel->row + i), column);
        const double value = kept ? replace(loop, panel->row + i, column, *w) : 0.0;
        *error = (*w - value) / diagonal;
        if (!kept && loop->removed == ESPL_REMOVED_FREEZE) {
            *error = 0.0;
        }
        *w = value;
        loss += *error * *error / 2.0;
    }
    return loss;
}

static void prepare_column(const struct espl_column_loop *loop, const struct panel *panel,
                           size_t column)
{
    const struct espl_quantised *out = loop->quantised;
    if (loop->choice == ESPL_COLUMN_WINDOWS && column % loop->window == 0) {
        for (size_t r = panel->row; r < panel->row + panel->rows; r++) {
            espl_choose_window(loop, r, column);
        }
    }
    if (out == NULL) {
        return;
    }
    if (column < out->normal && column % out->group_size == 0) {
        set_group_scales(loop, panel, column);
    } else if (column == out->normal) {
        set_outlier_scales(loop, panel);
    }
}

static double run_panel(const struct espl_column_loop *loop, const struct panel *panel)
{
    const size_t cols = loop->shape.cols;
    const double *upper = loop->factor->upper;
    double *corner = loop->w + panel->row * cols;
    double loss = 0.0;
    for (size_t c = panel->first; c < panel->last; c++) {
        prepare_column(loop, panel, c);
        loss += replace_column(loop, panel, c);
        espl_subtract_outer(panel->rows, panel->last - c - 1, panel->errors + c - panel->first,
                            loop->block, upper + c * cols + c + 1, corner + c + 1, cols);
    }
    espl_subtract_product(panel->rows, cols - panel->last, panel->last - panel->first,
                          panel->errors, loop->block, upper + panel->first * cols + panel->last,
                          cols, corner + panel->last, cols);
    return loss;
}

/* Outliers that pass no errors on: rounded to their codes. */
static void round_outliers(const struct espl_column_loop *loop, struct panel *panel)
{
    set_outlier_scales(loop, panel);
    for (size_t r = panel->row; r < panel->row + panel->rows; r++) {
        for (size_t c = loop->quantised->normal; c < loop->shape.cols; c++) {
            double *w = &loop->w[r * loop->shape.cols + c];
            *w = espl_mask_bit(mask_row(loop, r), c) ? replace(loop, r, c, *w) : 0.0;
        }
    }
}

size_t espl_column_loop_block_end(const struct espl_column_loop *loop, size_t first)
{
    const size_t left = loop->loop_columns - first;
    const size_t end = first + (left < loop->block ? left : loop->block);
    const bool crosses =
        loop->quantised != NULL && first < loop->quantised->normal && end > loop->quantised->normal;
    return crosses ? loop->quantised->normal : end;
}

static struct panel make_panel(const struct espl_column_loop *loop, size_t index, size_t first,
                               double *errors)
{
    const size_t row = index * PANEL_ROWS;
    const size_t rows_left = loop->shape.rows - row;
    const struct panel panel = {
        .row = row,
        .rows = rows_left < PANEL_ROWS ? rows_left : PANEL_ROWS,
        .first = first,
        .last = espl_column_loop_block_end(loop, first),
        .errors = errors + (size_t)omp_get_thread_num() * PANEL_ROWS * loop->block,
    };
    return panel;
}

enum espl_status espl_column_loop_run(struct espl_column_loop *loop, struct espl_error *err)
{
    const size_t panels = espl_ceil_div(loop->shape.rows, PANEL_ROWS);
    double *errors = malloc((size_t)loop->threads * PANEL_ROWS * loop->block * sizeof *errors);
    double *losses = calloc(panels != 0 ? panels : 1, sizeof *losses);
    enum espl_status status = ESPL_OK;
    if (errors == NULL || losses == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for the errors of a block");
        goto cleanup;
    }
    espl_blas_use_one_thread();
    for (size_t first = 0; first < loop->loop_columns;
         first = espl_column_loop_block_end(loop, first)) {
        if (loop->choice == ESPL_COLUMN_UNSTRUCTURED) {
            status = espl_choose_block(loop, first, err);
            if (status != ESPL_OK) {
                goto cleanup;
            }
        }
#pragma omp parallel for num_threads(loop->threads) schedule(dynamic) if (panels > 1)
        for (size_t p = 0; p < panels; p++) {
            const struct panel panel = make_panel(loop, p, first, errors);
            losses[p] += run_panel(loop, &panel);
        }
    }
    if (loop->loop_columns < loop->shape.cols) {
        for (size_t p = 0; p < panels; p++) {
            struct panel panel = make_panel(loop, p, 0, errors);
            round_outliers(loop, &panel);
        }
    }
    loop->loss = 0.0;
    for (size_t p = 0; p < panels; p++) {
        loop->loss += losses[p];
    }

cleanup:
    free(errors);
    free(losses);
    return status;
}

enum espl_status espl_column_loop_weights(const struct espl_matrix_shape *shape, const float *w,
                                          const uint8_t *mask,
                                          const struct espl_inverse_factor *factor, double **out,
                                          struct espl_error *err)
{
    const size_t stride = espl_mask_stride(shape->cols);
    size_t count = 0;
    size_t bytes = 0;
    int checked = 0;
    if (factor->cols != shape->cols) {
        return espl_fail(err, ESPL_E_KIND, "a factor of %zu columns does not fit a matrix of %zu",
                         factor->cols, shape->cols);
    }
    if (!espl_mul_size(shape->rows, shape->cols, &count) ||
        !espl_mul_size(count, sizeof **out, &bytes) || !espl_size_to_int(shape->cols, &checked)) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "a matrix of %zu x %zu is too large", shape->rows,
                         shape->cols);
    }
    const enum espl_status status = espl_weights_check_finite(shape, w, err);
    if (status != ESPL_OK) {
        return status;
    }
    double *copy = malloc(bytes != 0 ? bytes : 1);
    if (copy == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a copy of %zu x %zu weights",
                         shape->rows, shape->cols);
    }
    for (size_t r = 0; r < shape->rows; r++) {
        for (size_t c = 0; c < shape->cols; c++) {
            const bool kept =
                !factor->dead[c] && (mask == NULL || espl_mask_bit(mask + r * stride, c));
            copy[r * shape->cols + c] = kept ? (double)w[r * shape->cols + c] : 0.0;
        }
    }
    *out = copy;
    return ESPL_OK;
}

uint8_t *espl_column_loop_full_mask(const struct espl_matrix_shape *shape)
{
    const size_t stride = espl_mask_stride(shape->cols);
    uint8_t *mask = calloc(shape->rows != 0 ? shape->rows : 1, stride != 0 ? stride : 1);
    for (size_t r = 0; mask != NULL && r < shape->rows; r++) {
        for (size_t c = 0; c < shape->cols; c++) {
            espl_mask_set(mask + r * stride, c);
        }
    }
    return mask;
}
