/* Quantised linears: sizes, writing, and values in original order. */
#include "core/checked.h"
#include "core/codes.h"
#include "model/iebme_linear.h"
#include "model/nm_linear.h"
#include "model/quantised_parts.h"

#include <stdlib.h>
#include <string.h>

void espl_quant_linear_free_encoded(struct espl_quant_linear *linear)
{
    if (linear->encoded != NULL) {
        espl_iebme_matrix_free(linear->encoded);
        free(linear->encoded);
        linear->encoded = NULL;
    }
    if (linear->nm != NULL) {
        espl_nm_free(linear->nm);
        free(linear->nm);
        linear->nm = NULL;
    }
}

void espl_quant_linear_free(struct espl_quant_linear *linear)
{
    free(linear->codes);
    espl_quant_linear_free_encoded(linear);
    free(linear->scales);
    free(linear->outlier_codes);
    free(linear->outlier_scales);
    free(linear->mask);
    free(linear->bias);
    free(linear->order);
    free(linear->row_order);
    *linear = (struct espl_quant_linear){0};
}

struct espl_quant_linear espl_quant_linear_sizes(const struct espl_quant_scheme *scheme,
                                                 const struct espl_quant_width *width, size_t out)
{
    const size_t normal = width->columns - width->outliers;
    const size_t group_size = width->group_size != 0 ? width->group_size : normal;
    return (struct espl_quant_linear){
        .out = out,
        .in = width->columns,
        .normal = normal,
        .outliers = width->outliers,
        .group_size = group_size,
        .groups = normal / group_size,
        .rows_per_scale = scheme->rows_per_scale,
        .weight_bits = scheme->weight_bits,
    };
}

uint64_t espl_quant_linear_side_bytes(const struct espl_quant_linear *linear)
{
    const uint64_t scale_rows = espl_ceil_div(linear->out, linear->rows_per_scale);
    uint64_t bytes = scale_rows * linear->groups * sizeof(float);
    if (linear->outliers > 0) {
        bytes += (uint64_t)linear->out * (linear->outliers + sizeof(float));
    }
    return bytes;
}

uint64_t espl_quant_linear_bytes(const struct espl_quant_linear *linear)
{
    const struct espl_iebme_matrix *encoded = linear->encoded;
    const uint64_t side = espl_quant_linear_side_bytes(linear);
    if (encoded == NULL) {
        return (uint64_t)linear->out * espl_codes_stride(linear->normal, linear->weight_bits) +
               side;
    }
    return encoded->mask_words * sizeof *encoded->masks +
           encoded->offset_count * sizeof *encoded->offsets + encoded->value_bytes +
           encoded->tag_count + encoded->order_count * sizeof *encoded->orders + side;
}

/* ---- writing ---- */

static enum espl_status write_plain(struct espl_artifact *artifact,
                                    const struct espl_tensor_spec *weight, const char *part,
                                    enum espl_dtype dtype, uint64_t rows, uint64_t cols,
                                    const void *data, struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    espl_quant_part_path(weight, part, path);
    const struct espl_tensor_info info = espl_quant_plain_info(path, dtype, rows, cols);
    return espl_artifact_write(artifact, &info, data, err);
}

/* Packed, or as they are encoded. */
static enum espl_status write_codes(struct espl_artifact *artifact,
                                    const struct espl_tensor_spec *weight,
                                    const struct espl_quant_linear *linear, struct espl_error *err)
{
    const struct espl_tensor_info codes = espl_quant_codes_info(weight, linear);
    if (linear->nm != NULL) {
        return espl_nm_codes_write(artifact, weight, linear->nm, err);
    }
    return linear->encoded != NULL ? espl_iebme_codes_write(artifact, weight, linear->encoded, err)
                                   : espl_artifact_write(artifact, &codes, linear->codes, err);
}

enum espl_status espl_quant_linear_write(struct espl_artifact *artifact,
                                         const struct espl_tensor_spec *weight,
                                         const struct espl_quant_linear *linear,
                                         struct espl_error *err)
{
    const uint64_t scale_rows = espl_ceil_div(linear->out, linear->rows_per_scale);
    enum espl_status status = write_codes(artifact, weight, linear, err);
    if (status == ESPL_OK) {
        status = write_plain(artifact, weight, "scales", ESPL_DTYPE_F32, scale_rows, linear->groups,
                             linear->scales, err);
    }
    if (status == ESPL_OK && linear->outliers > 0) {
        status = write_plain(artifact, weight, "outlier_codes", ESPL_DTYPE_I8, linear->out,
                             linear->outliers, linear->outlier_codes, err);
    }
    if (status == ESPL_OK && linear->outliers > 0) {
        status = write_plain(artifact, weight, "outlier_scales", ESPL_DTYPE_F32, linear->out, 0,
                             linear->outlier_scales, err);
    }
    if (status == ESPL_OK && linear->mask != NULL) {
        status = espl_model_write_mask(artifact, weight, linear->mask, err);
    }
    if (status == ESPL_OK && linear->row_order != NULL && linear->bias != NULL &&
        linear->codes != NULL) {
        status = write_plain(artifact, weight, "bias", ESPL_DTYPE_F32, linear->out, 0, linear->bias,
                             err);
    }
    return status;
}

enum espl_status espl_quant_order_write(struct espl_artifact *artifact, int64_t layer,
                                        enum espl_quant_site site, const int32_t *order,
                                        size_t count, struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    espl_quant_order_path(layer, site, path);
    const struct espl_tensor_info info = espl_quant_plain_info(path, ESPL_DTYPE_I32, count, 0);
    return espl_artifact_write(artifact, &info, order, err);
}

/* ---- in original order ---- */

static size_t original_row(const struct espl_quant_linear *linear, size_t row)
{
    return linear->row_order != NULL ? (size_t)linear->row_order[row] : row;
}

static size_t original_column(const struct espl_quant_linear *linear, size_t column)
{
    return linear->order != NULL ? (size_t)linear->order[column] : column;
}

static void dequantise_row(const struct espl_quant_linear *linear, size_t row, int8_t *codes,
                           float *dst)
{
    const float *scales = linear->scales + row / linear->rows_per_scale * linear->groups;
    const size_t stride = espl_codes_stride(linear->normal, linear->weight_bits);
    espl_codes_unpack(linear->codes + row * stride, 1, linear->normal, linear->weight_bits, codes);
    for (size_t c = 0; c < linear->normal; c++) {
        dst[original_column(linear, c)] = scales[c / linear->group_size] * (float)codes[c];
    }
    for (size_t c = 0; c < linear->outliers; c++) {
        dst[original_column(linear, linear->normal + c)] =
            linear->outlier_scales[row] * (float)linear->outlier_codes[row * linear->outliers + c];
    }
}

enum espl_status espl_quant_linear_dequantise(const struct espl_quant_linear *linear, size_t row,
                                              size_t rows, float *dst, struct espl_error *err)
{
    int8_t *codes = malloc(linear->normal);
    if (codes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a row of codes");
    }
    for (size_t stored = 0; stored < linear->out; stored++) {
        const size_t original = original_row(linear, stored);
        if (original >= row && original - row < rows) {
            dequantise_row(linear, stored, codes, dst + (original - row) * linear->in);
        }
    }
    free(codes);
    return ESPL_OK;
}

void espl_quant_linear_original_mask(const struct espl_quant_linear *linear, size_t row,
                                     size_t rows, uint8_t *mask)
{
    const size_t stride = espl_ceil_div(linear->in, 8);
    memset(mask, 0, rows * stride);
    for (size_t stored = 0; stored < linear->out; stored++) {
        const size_t original = original_row(linear, stored);
        if (original < row || original - row >= rows) {
            continue;
        }
        uint8_t *to = mask + (original - row) * stride;
        for (size_t c = 0; c < linear->in; c++) {
            const bool kept =
                linear->mask == NULL ||
                ((unsigned)linear->mask[stored * stride + c / 8] >> (c % 8) & 1u) != 0;
            const size_t at = original_column(linear, c);
            to[at / 8] = (uint8_t)(to[at / 8] | (kept ? 1u << (at % 8) : 0u));
        }
    }
}
