/* Reading and writing quantised linears. */
#include "core/checked.h"
#include "core/codes.h"
#include "model/model_internal.h"
#include "model/quantised.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void espl_quant_linear_free(struct espl_quant_linear *linear)
{
    free(linear->codes);
    free(linear->scales);
    free(linear->outlier_codes);
    free(linear->outlier_scales);
    free(linear->mask);
    free(linear->bias);
    free(linear->order);
    free(linear->row_order);
    *linear = (struct espl_quant_linear){0};
}

uint64_t espl_quant_linear_bytes(const struct espl_quant_linear *linear)
{
    const uint64_t scale_rows = espl_ceil_div(linear->out, linear->rows_per_scale);
    uint64_t bytes = (uint64_t)linear->out * espl_codes_stride(linear->normal, linear->weight_bits);
    bytes += scale_rows * linear->groups * sizeof(float);
    if (linear->outliers > 0) {
        bytes += (uint64_t)linear->out * (linear->outliers + sizeof(float));
    }
    return bytes;
}

/* ---- datasets ---- */

/* "/layers/003/fc1/codes" */
static void part_path(const struct espl_tensor_spec *weight, const char *part,
                      char out[ESPL_TENSOR_PATH])
{
    const char *slash = strrchr(weight->path, '/');
    (void)snprintf(out, ESPL_TENSOR_PATH, "%.*s/%s", (int)(slash - weight->path), weight->path,
                   part);
}

static void order_path(int64_t layer, enum espl_quant_site site, char out[ESPL_TENSOR_PATH])
{
    (void)snprintf(out, ESPL_TENSOR_PATH, "/layers/%03lld/%s", (long long)layer,
                   espl_quant_order_name(site));
}

bool espl_quant_is_stored(const struct espl_artifact *artifact,
                          const struct espl_tensor_spec *weight)
{
    char path[ESPL_TENSOR_PATH];
    if (weight->is_bias || !espl_role_is_block_linear(weight->role)) {
        return false;
    }
    part_path(weight, "codes", path);
    return espl_artifact_find(artifact, path) != NULL;
}

static struct espl_tensor_info codes_info(const struct espl_tensor_spec *weight,
                                          const struct espl_quant_linear *linear)
{
    char path[ESPL_TENSOR_PATH];
    const uint64_t shape[2] = {linear->out, espl_codes_stride(linear->normal, linear->weight_bits)};
    part_path(weight, "codes", path);
    struct espl_tensor_info info = espl_tensor_info_make(path, ESPL_DTYPE_U8, 2, shape);
    (void)snprintf(info.packing, sizeof info.packing, "int%u-lsb0", linear->weight_bits);
    info.logical_shape[0] = linear->out;
    info.logical_shape[1] = linear->normal;
    return info;
}

static struct espl_tensor_info plain_info(const char *path, enum espl_dtype dtype, uint64_t rows,
                                          uint64_t cols)
{
    const uint64_t shape[2] = {rows, cols};
    return espl_tensor_info_make(path, dtype, cols > 0 ? 2 : 1, shape);
}

/* ---- reading ---- */

/* What one read needs to know. */
struct source {
    struct espl_artifact *artifact;
    struct espl_model *model;
    const struct espl_tensor_spec *weight;
};

/* Reads a dataset that must be exactly as `expected` says. *data: malloc'ed. */
static enum espl_status read_part(const struct source *source,
                                  const struct espl_tensor_info *expected, void **data,
                                  struct espl_error *err)
{
    const struct espl_tensor_info *info = espl_artifact_find(source->artifact, expected->path);
    size_t bytes = 0;
    if (info == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' has no dataset '%s'",
                         espl_artifact_path(source->artifact), expected->path);
    }
    bool same = info->dtype == expected->dtype && info->rank == expected->rank &&
                strcmp(info->packing, expected->packing) == 0;
    for (unsigned i = 0; same && i < info->rank; i++) {
        same = info->shape[i] == expected->shape[i] &&
               info->logical_shape[i] == expected->logical_shape[i];
    }
    if (!same) {
        return espl_fail(err, ESPL_E_CORRUPT, "dataset '%s' of '%s' does not fit its layer",
                         expected->path, espl_artifact_path(source->artifact));
    }
    const enum espl_status status = espl_artifact_read(source->artifact, expected->path,
                                                       (size_t)info->bytes, data, &bytes, err);
    return status != ESPL_OK || *data != NULL
               ? status
               : espl_fail(err, ESPL_E_CORRUPT, "dataset '%s' of '%s' is empty", expected->path,
                           espl_artifact_path(source->artifact));
}

static enum espl_status check_scales(const float *scales, size_t count, const char *path,
                                     struct espl_error *err)
{
    for (size_t i = 0; i < count; i++) {
        if (!(scales[i] > 0.0f) || !isfinite(scales[i])) {
            return espl_fail(err, ESPL_E_CORRUPT, "scale %zu of '%s' is %g", i, path,
                             (double)scales[i]);
        }
    }
    return ESPL_OK;
}

static enum espl_status read_scales(const struct source *source, const char *part, uint64_t rows,
                                    uint64_t cols, float **scales, struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    void *data = NULL;
    part_path(source->weight, part, path);
    const struct espl_tensor_info info = plain_info(path, ESPL_DTYPE_F32, rows, cols);
    const enum espl_status status = read_part(source, &info, &data, err);
    *scales = data;
    if (status != ESPL_OK || data == NULL) {
        return status;
    }
    return check_scales(*scales, (size_t)rows * (size_t)(cols > 0 ? cols : 1), path, err);
}

/* An order is an index into other arrays, so it is checked before anyone uses it. */
static enum espl_status read_order(const struct source *source, enum espl_quant_site site,
                                   size_t count, int32_t **order, struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    void *data = NULL;
    order_path(source->weight->layer, site, path);
    if (espl_artifact_find(source->artifact, path) == NULL) {
        return ESPL_OK;
    }
    const struct espl_tensor_info info = plain_info(path, ESPL_DTYPE_I32, count, 0);
    const enum espl_status status = read_part(source, &info, &data, err);
    *order = data;
    if (status != ESPL_OK || data == NULL) {
        return status;
    }
    bool *seen = calloc(count + 1, sizeof *seen);
    if (seen == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for an order of %zu columns", count);
    }
    size_t good = 0;
    while (good < count && (*order)[good] >= 0 && (size_t)(*order)[good] < count &&
           !seen[(*order)[good]]) {
        seen[(*order)[good++]] = true;
    }
    free(seen);
    if (good < count) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' is no permutation: entry %zu is %ld", path,
                         good, (long)(*order)[good]);
    }
    return ESPL_OK;
}

/* Rows before the last linear of a block move only when all linears concerned are quantised. */
static bool rows_are_permuted(const struct source *source)
{
    const struct espl_model_config *config = espl_model_get_config(source->model);
    const enum espl_quant_site sites[] = {ESPL_QUANT_MLP_IN, ESPL_QUANT_MLP_MID};
    for (size_t i = 0; i < 2; i++) {
        for (const enum espl_role *role = espl_quant_site_roles(config, sites[i]);
             *role != ESPL_ROLE_NONE; role++) {
            const struct espl_tensor_spec *spec =
                espl_model_find(source->model, source->weight->layer, *role, false);
            if (spec == NULL || !espl_quant_is_stored(source->artifact, spec)) {
                return false;
            }
        }
    }
    return true;
}

static enum espl_status read_orders(const struct source *source, struct espl_quant_linear *linear,
                                    struct espl_error *err)
{
    const enum espl_quant_site site = espl_quant_site_of(source->weight->role);
    enum espl_status status = read_order(source, site, linear->in, &linear->order, err);
    if (status != ESPL_OK || !rows_are_permuted(source)) {
        return status;
    }
    if (site == ESPL_QUANT_MLP_MID) {
        linear->gathered = true;
    } else if (site == ESPL_QUANT_MLP_IN) {
        status = read_order(source, ESPL_QUANT_MLP_MID, linear->out, &linear->row_order, err);
    }
    return status;
}

static enum espl_status read_bias(const struct source *source, struct espl_quant_linear *linear,
                                  struct espl_error *err)
{
    const struct espl_tensor_spec *bias =
        espl_model_find(source->model, source->weight->layer, source->weight->role, true);
    char path[ESPL_TENSOR_PATH];
    if (bias == NULL) {
        return ESPL_OK;
    }
    if (linear->row_order != NULL) {
        void *data = NULL;
        part_path(source->weight, "bias", path);
        const struct espl_tensor_info info = plain_info(path, ESPL_DTYPE_F32, linear->out, 0);
        const enum espl_status status = read_part(source, &info, &data, err);
        linear->bias = data;
        return status;
    }
    linear->bias = malloc(linear->out * sizeof *linear->bias);
    if (linear->bias == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bias");
    }
    return espl_model_read_f32(source->model, bias, 0, bias->shape[0], linear->bias, err);
}

static enum espl_status read_mask(const struct source *source, struct espl_quant_linear *linear,
                                  struct espl_error *err)
{
    const struct espl_tensor_info info = espl_model_mask_info(source->weight);
    void *data = NULL;
    if (espl_artifact_find(source->artifact, info.path) == NULL) {
        return ESPL_OK;
    }
    const enum espl_status status = read_part(source, &info, &data, err);
    linear->mask = data;
    return status;
}

static enum espl_status read_arrays(const struct source *source, struct espl_quant_linear *linear,
                                    struct espl_error *err)
{
    const struct espl_tensor_info codes = codes_info(source->weight, linear);
    void *data = NULL;
    enum espl_status status = read_part(source, &codes, &data, err);
    linear->codes = data;
    if (status == ESPL_OK) {
        status = read_scales(source, "scales", espl_ceil_div(linear->out, linear->rows_per_scale),
                             linear->groups, &linear->scales, err);
    }
    if (status == ESPL_OK && linear->outliers > 0) {
        char path[ESPL_TENSOR_PATH];
        part_path(source->weight, "outlier_codes", path);
        const struct espl_tensor_info info =
            plain_info(path, ESPL_DTYPE_I8, linear->out, linear->outliers);
        data = NULL;
        status = read_part(source, &info, &data, err);
        linear->outlier_codes = data;
    }
    if (status == ESPL_OK && linear->outliers > 0) {
        status =
            read_scales(source, "outlier_scales", linear->out, 0, &linear->outlier_scales, err);
    }
    return status;
}

enum espl_status espl_quant_linear_read_from(struct espl_artifact *artifact,
                                             struct espl_model *model,
                                             const struct espl_quant_scheme *scheme, int64_t layer,
                                             enum espl_role role, bool with_mask,
                                             struct espl_quant_linear *linear,
                                             struct espl_error *err)
{
    const struct source source = {artifact, model, espl_model_find(model, layer, role, false)};
    *linear = (struct espl_quant_linear){0};
    if (source.weight == NULL || !espl_quant_is_stored(artifact, source.weight)) {
        return espl_fail(err, ESPL_E_NOTFOUND, "'%s' of layer %lld is not quantised in '%s'",
                         espl_role_name(role), (long long)layer, espl_artifact_path(artifact));
    }
    const struct espl_quant_width *width =
        espl_quant_scheme_width(scheme, (size_t)source.weight->shape[1]);
    if (width == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' does not say how '%s' is quantised",
                         espl_artifact_path(artifact), source.weight->module);
    }
    linear->out = (size_t)source.weight->shape[0];
    linear->in = width->columns;
    linear->outliers = width->outliers;
    linear->normal = linear->in - linear->outliers;
    linear->group_size = width->group_size != 0 ? width->group_size : linear->normal;
    linear->groups = linear->normal / linear->group_size;
    linear->rows_per_scale = scheme->rows_per_scale;
    linear->weight_bits = scheme->weight_bits;
    enum espl_status status = read_arrays(&source, linear, err);
    if (status == ESPL_OK) {
        status = read_orders(&source, linear, err);
    }
    if (status == ESPL_OK) {
        status = read_bias(&source, linear, err);
    }
    if (status == ESPL_OK && with_mask) {
        status = read_mask(&source, linear, err);
    }
    if (status != ESPL_OK) {
        espl_quant_linear_free(linear);
    }
    return status;
}

enum espl_status espl_quant_linear_read(struct espl_model *model, int64_t layer,
                                        enum espl_role role, bool with_mask,
                                        struct espl_quant_linear *linear, struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(model);
    *linear = (struct espl_quant_linear){0};
    if (scheme == NULL) {
        return espl_fail(err, ESPL_E_NOTFOUND, "'%s' is not a quantised model",
                         espl_artifact_path(model->chain[0]));
    }
    return espl_quant_linear_read_from(model->chain[0], model, scheme, layer, role, with_mask,
                                       linear, err);
}

/* ---- writing ---- */

static enum espl_status write_plain(struct espl_artifact *artifact,
                                    const struct espl_tensor_spec *weight, const char *part,
                                    enum espl_dtype dtype, uint64_t rows, uint64_t cols,
                                    const void *data, struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    part_path(weight, part, path);
    const struct espl_tensor_info info = plain_info(path, dtype, rows, cols);
    return espl_artifact_write(artifact, &info, data, err);
}

enum espl_status espl_quant_linear_write(struct espl_artifact *artifact,
                                         const struct espl_tensor_spec *weight,
                                         const struct espl_quant_linear *linear,
                                         struct espl_error *err)
{
    const struct espl_tensor_info codes = codes_info(weight, linear);
    const uint64_t scale_rows = espl_ceil_div(linear->out, linear->rows_per_scale);
    enum espl_status status = espl_artifact_write(artifact, &codes, linear->codes, err);
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
    if (status == ESPL_OK && linear->row_order != NULL && linear->bias != NULL) {
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
    order_path(layer, site, path);
    const struct espl_tensor_info info = plain_info(path, ESPL_DTYPE_I32, count, 0);
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
