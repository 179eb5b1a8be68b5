#include "stages/quant_common/quantiser.h"

#include "core/checked.h"
#include "stages/prune_common/prune_mask.h"
#include "stages/quant_common/channel_order.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const espl_quant_scale_choices[] = {"half", "full", NULL};

enum { OUTLIER_BITS = 8, GROUP_TEXT = 128 };

static enum espl_status check_numbers(const struct espl_quantiser *quantiser,
                                      struct espl_error *err)
{
    if (quantiser->bits < 2 || quantiser->bits > 8) {
        return espl_fail(err, ESPL_E_JOB, "%u bits a weight are not possible: 2 to 8 are",
                         quantiser->bits);
    }
    if (quantiser->rows_per_scale < 1 || quantiser->rows_per_scale > 2) {
        return espl_fail(err, ESPL_E_JOB, "%zu rows a scale are not possible: 1 or 2 are",
                         quantiser->rows_per_scale);
    }
    if (!(quantiser->clip > 0.0F && quantiser->clip <= 1.0F)) {
        return espl_fail(err, ESPL_E_JOB, "a clip ratio of %g is not in (0, 1]",
                         (double)quantiser->clip);
    }
    return ESPL_OK;
}

enum espl_status espl_quantiser_check(const struct espl_quantiser *quantiser,
                                      const struct espl_matrix_shape *shape, const char *name,
                                      struct espl_error *err)
{
    const enum espl_status status = check_numbers(quantiser, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (shape->rows == 0 || shape->cols == 0) {
        return espl_fail(err, ESPL_E_JOB, "'%s' is empty (%zu x %zu)", name, shape->rows,
                         shape->cols);
    }
    if (quantiser->outliers >= shape->cols) {
        espl_fail(err, ESPL_E_JOB, "%zu outlier channels leave nothing of the %zu columns of '%s'",
                  quantiser->outliers, shape->cols, name);
        return espl_hint(err, "with 'auto' this width has %zu outlier channels",
                         espl_outliers_auto(shape->cols));
    }
    const size_t normal = shape->cols - quantiser->outliers;
    if (!espl_group_is_legal(normal, quantiser->group_size)) {
        char groups[GROUP_TEXT];
        espl_group_list(normal, groups);
        espl_fail(err, ESPL_E_JOB, "groups of %zu do not fit the %zu columns of '%s'",
                  quantiser->group_size, normal, name);
        return espl_hint(err,
                         "%zu columns less %zu outliers: legal group sizes are %s, or 0 for one "
                         "scale a row",
                         shape->cols, quantiser->outliers, groups);
    }
    return ESPL_OK;
}

enum espl_status espl_quantised_create(const struct espl_quantiser *quantiser,
                                       const struct espl_matrix_shape *shape,
                                       struct espl_quantised *out, struct espl_error *err)
{
    memset(out, 0, sizeof *out);
    const enum espl_status status = espl_quantiser_check(quantiser, shape, "matrix", err);
    if (status != ESPL_OK) {
        return status;
    }
    out->shape = *shape;
    out->outliers = quantiser->outliers;
    out->normal = shape->cols - quantiser->outliers;
    out->group_size = quantiser->group_size == 0 ? out->normal : quantiser->group_size;
    out->groups = out->normal / out->group_size;
    out->rows_per_scale = quantiser->rows_per_scale;
    out->scale_rows = espl_ceil_div(shape->rows, quantiser->rows_per_scale);
    size_t scales = 0;
    size_t codes = 0;
    size_t outliers = 0;
    bool good = espl_mul_size(out->scale_rows, out->groups, &scales) &&
                espl_mul_size(shape->rows, out->normal, &codes) &&
                espl_mul_size(shape->rows, out->outliers, &outliers) && codes > 0 && scales > 0;
    if (good) {
        out->codes = calloc(codes, sizeof *out->codes);
        out->scales = calloc(scales, sizeof *out->scales);
        good = out->codes != NULL && out->scales != NULL;
    }
    if (good && out->outliers > 0) {
        out->outlier_codes = calloc(outliers, sizeof *out->outlier_codes);
        out->outlier_scales = calloc(shape->rows, sizeof *out->outlier_scales);
        good = out->outlier_codes != NULL && out->outlier_scales != NULL;
    }
    if (!good) {
        espl_quantised_free(out);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the codes of a %zu x %zu matrix",
                         shape->rows, shape->cols);
    }
    for (size_t i = 0; i < scales; i++) {
        out->scales[i] = 1.0F;
    }
    for (size_t r = 0; out->outlier_scales != NULL && r < shape->rows; r++) {
        out->outlier_scales[r] = 1.0F;
    }
    return ESPL_OK;
}

void espl_quantised_free(struct espl_quantised *quantised)
{
    if (quantised != NULL) {
        free(quantised->codes);
        free(quantised->scales);
        free(quantised->outlier_codes);
        free(quantised->outlier_scales);
        memset(quantised, 0, sizeof *quantised);
    }
}

float espl_quantiser_scale(const struct espl_quantiser *quantiser, float amax)
{
    const float clipped = quantiser->clip * amax;
    const float scale = quantiser->scale == ESPL_QUANT_SCALE_FULL
                            ? 2.0F * clipped / (float)((1u << quantiser->bits) - 1u)
                            : clipped / (float)((1u << (quantiser->bits - 1u)) - 1u);
    return scale >= FLT_MIN ? scale : 1.0F;
}

float espl_outlier_scale(float amax)
{
    const float scale = amax / 127.0F;
    return scale >= FLT_MIN ? scale : 1.0F;
}

int8_t espl_quantise_value(float w, float scale, unsigned bits)
{
    const float lowest = -(float)(1u << (bits - 1u));
    const float highest = -lowest - 1.0F;
    float code = rintf(w / scale);
    code = code < lowest ? lowest : code;
    code = code > highest ? highest : code;
    return (int8_t)code;
}

static bool kept(const uint8_t *mask, size_t stride, size_t row, size_t column)
{
    return mask == NULL || espl_mask_bit(mask + row * stride, column);
}

/* One run of columns of one row. */
struct run {
    const float *w;
    const uint8_t *mask; /* NULL or of the whole matrix */
    size_t cols;
    size_t row, first, count;
};

static float run_amax(const struct run *run)
{
    float amax = 0.0F;
    for (size_t c = run->first; c < run->first + run->count; c++) {
        if (kept(run->mask, espl_mask_stride(run->cols), run->row, c)) {
            amax = fmaxf(amax, fabsf(run->w[run->row * run->cols + c]));
        }
    }
    return amax;
}

static void run_codes(const struct run *run, float scale, unsigned bits, int8_t *codes)
{
    for (size_t i = 0; i < run->count; i++) {
        const size_t c = run->first + i;
        codes[i] = kept(run->mask, espl_mask_stride(run->cols), run->row, c)
                       ? espl_quantise_value(run->w[run->row * run->cols + c], scale, bits)
                       : 0;
    }
}

/* The rows that share scales. */
static void round_scale_row(const struct espl_quantiser *quantiser, const float *w,
                            const uint8_t *mask, size_t scale_row, struct espl_quantised *out)
{
    const size_t first_row = scale_row * out->rows_per_scale;
    const size_t rows_left = out->shape.rows - first_row;
    const size_t rows = rows_left < out->rows_per_scale ? rows_left : out->rows_per_scale;
    struct run run = {w, mask, out->shape.cols, first_row, 0, out->group_size};
    for (size_t g = 0; g < out->groups; g++) {
        float amax = 0.0F;
        run.first = g * out->group_size;
        for (size_t i = 0; i < rows; i++) {
            run.row = first_row + i;
            amax = fmaxf(amax, run_amax(&run));
        }
        const float scale = espl_quantiser_scale(quantiser, amax);
        out->scales[scale_row * out->groups + g] = scale;
        for (size_t i = 0; i < rows; i++) {
            run.row = first_row + i;
            run_codes(&run, scale, quantiser->bits, out->codes + run.row * out->normal + run.first);
        }
    }
    run.first = out->normal;
    run.count = out->outliers;
    for (size_t i = 0; out->outliers > 0 && i < rows; i++) {
        run.row = first_row + i;
        out->outlier_scales[run.row] = espl_outlier_scale(run_amax(&run));
        run_codes(&run, out->outlier_scales[run.row], OUTLIER_BITS,
                  out->outlier_codes + run.row * out->outliers);
    }
}

enum espl_status espl_weights_check_finite(const struct espl_matrix_shape *shape, const float *w,
                                           struct espl_error *err)
{
    for (size_t i = 0; i < shape->rows * shape->cols; i++) {
        if (!isfinite(w[i])) {
            return espl_fail(err, ESPL_E_NUMERIC, "weight of row %zu, column %zu is not finite",
                             i / shape->cols, i % shape->cols);
        }
    }
    return ESPL_OK;
}

enum espl_status espl_rtn(const struct espl_quantiser *quantiser, const float *w,
                          const uint8_t *mask, unsigned threads, struct espl_quantised *out,
                          struct espl_error *err)
{
    const enum espl_status status = espl_weights_check_finite(&out->shape, w, err);
    if (status != ESPL_OK) {
        return status;
    }
#pragma omp parallel for num_threads(threads) schedule(static) if (out->scale_rows > 1)
    for (size_t s = 0; s < out->scale_rows; s++) {
        round_scale_row(quantiser, w, mask, s, out);
    }
    return ESPL_OK;
}

void espl_quantised_dequantise(const struct espl_quantised *quantised, float *w)
{
    const size_t cols = quantised->shape.cols;
    for (size_t r = 0; r < quantised->shape.rows; r++) {
        const float *scales = quantised->scales + r / quantised->rows_per_scale * quantised->groups;
        for (size_t c = 0; c < quantised->normal; c++) {
            w[r * cols + c] = scales[c / quantised->group_size] *
                              (float)quantised->codes[r * quantised->normal + c];
        }
        for (size_t i = 0; i < quantised->outliers; i++) {
            w[r * cols + quantised->normal + i] =
                quantised->outlier_scales[r] *
                (float)quantised->outlier_codes[r * quantised->outliers + i];
        }
    }
}

struct espl_quant_counts espl_quantised_count(const struct espl_quantised *quantised,
                                              const uint8_t *mask, unsigned bits)
{
    struct espl_quant_counts counts = {0};
    const size_t stride = espl_mask_stride(quantised->shape.cols);
    for (size_t r = 0; r < quantised->shape.rows; r++) {
        for (size_t c = 0; c < quantised->shape.cols; c++) {
            const bool normal = c < quantised->normal;
            const int code =
                normal ? quantised->codes[r * quantised->normal + c]
                       : quantised->outlier_codes[r * quantised->outliers + c - quantised->normal];
            const int top = 1 << ((normal ? bits : OUTLIER_BITS) - 1u);
            const bool removed = !kept(mask, stride, r, c);
            counts.weights++;
            counts.removed += removed ? 1u : 0u;
            counts.zero_codes += code == 0 ? 1u : 0u;
            counts.violations += removed && code != 0 ? 1u : 0u;
            counts.saturated += code == -top || code == top - 1 ? 1u : 0u;
        }
    }
    return counts;
}
