/* Reading quantised linears: from packed codes or from their encoded form. */
#include "core/checked.h"
#include "core/codes.h"
#include "model/iebme_linear.h"
#include "model/model_internal.h"
#include "model/nm_linear.h"
#include "model/quantised_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What one read needs to know. */
struct source {
    struct espl_artifact *artifact;
    struct espl_model *model;
    const struct espl_quant_scheme *scheme;
    const struct espl_tensor_spec *weight; /* NULL when the model has no such linear */
    int64_t layer;
    enum espl_role role;
};

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
    espl_quant_part_path(source->weight, part, path);
    const struct espl_tensor_info info = espl_quant_plain_info(path, ESPL_DTYPE_F32, rows, cols);
    const enum espl_status status = espl_quant_read_part(source->artifact, &info, &data, err);
    *scales = data;
    if (status != ESPL_OK || data == NULL) {
        return status;
    }
    return check_scales(*scales, (size_t)rows * (size_t)(cols > 0 ? cols : 1), path, err);
}

/* An order is an index into other arrays, so it is checked before anyone uses it. Codes that stand
 * in an order mean nothing without it, so it is absent only where the scheme has none. */
static enum espl_status read_order(const struct source *source, enum espl_quant_site site,
                                   size_t count, int32_t **order, struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    void *data = NULL;
    espl_quant_order_path(source->weight->layer, site, path);
    if (!source->scheme->reordered && espl_artifact_find(source->artifact, path) == NULL) {
        return ESPL_OK;
    }
    const struct espl_tensor_info info = espl_quant_plain_info(path, ESPL_DTYPE_I32, count, 0);
    const enum espl_status status = espl_quant_read_part(source->artifact, &info, &data, err);
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

/* An encoded model holds its biases in original order. */
static enum espl_status permute_bias(struct espl_quant_linear *linear, struct espl_error *err)
{
    float *moved = malloc(linear->out * sizeof *moved);
    if (moved == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bias");
    }
    for (size_t i = 0; i < linear->out; i++) {
        moved[i] = linear->bias[linear->row_order[i]];
    }
    free(linear->bias);
    linear->bias = moved;
    return ESPL_OK;
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
    const bool encoded = espl_iebme_is_stored(source->artifact, source->weight);
    if (linear->row_order != NULL && !encoded) {
        void *data = NULL;
        espl_quant_part_path(source->weight, "bias", path);
        const struct espl_tensor_info info =
            espl_quant_plain_info(path, ESPL_DTYPE_F32, linear->out, 0);
        const enum espl_status status = espl_quant_read_part(source->artifact, &info, &data, err);
        linear->bias = data;
        return status;
    }
    linear->bias = malloc(linear->out * sizeof *linear->bias);
    if (linear->bias == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bias");
    }
    const enum espl_status status =
        espl_model_read_f32(source->model, bias, 0, bias->shape[0], linear->bias, err);
    return status == ESPL_OK && linear->row_order != NULL ? permute_bias(linear, err) : status;
}

static enum espl_status read_mask(const struct source *source, struct espl_quant_linear *linear,
                                  struct espl_error *err)
{
    const struct espl_tensor_info info = espl_model_mask_info(source->weight);
    void *data = NULL;
    if (espl_artifact_find(source->artifact, info.path) == NULL) {
        return ESPL_OK;
    }
    const enum espl_status status = espl_quant_read_part(source->artifact, &info, &data, err);
    linear->mask = data;
    return status;
}

static enum espl_status read_packed(const struct source *source, struct espl_quant_linear *linear,
                                    struct espl_error *err)
{
    const struct espl_tensor_info codes = espl_quant_codes_info(source->weight, linear);
    void *data = NULL;
    const enum espl_status status = espl_quant_read_part(source->artifact, &codes, &data, err);
    linear->codes = data;
    return status;
}

/* linear->codes <- what the encoded form holds, for readers that know nothing of it. */
static enum espl_status decode(struct espl_quant_linear *linear, struct espl_error *err)
{
    const size_t stride = espl_codes_stride(linear->normal, linear->weight_bits);
    int8_t *codes = malloc(linear->out * linear->normal);
    enum espl_status status = ESPL_OK;
    linear->codes = malloc(linear->out * stride);
    if (codes == NULL || linear->codes == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu x %zu codes", linear->out,
                           linear->normal);
    }
    if (status == ESPL_OK) {
        status = linear->nm != NULL ? espl_nm_decode(linear->nm, codes, err)
                                    : espl_iebme_decode(linear->encoded, codes, err);
    }
    if (status == ESPL_OK) {
        espl_codes_pack(codes, linear->out, linear->normal, linear->weight_bits, linear->codes);
        espl_quant_linear_free_encoded(linear);
    }
    free(codes);
    return status;
}

static enum espl_status read_iebme(const struct source *source, struct espl_quant_linear *linear,
                                   struct espl_error *err)
{
    const struct espl_iebme_layout layout = {
        .rows = linear->out, .cols = linear->normal, .bits = linear->weight_bits};
    linear->encoded = calloc(1, sizeof *linear->encoded);
    if (linear->encoded == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for an encoded matrix");
    }
    return espl_iebme_codes_read(source->artifact, source->weight, &layout, linear->encoded, err);
}

/* N:M codes are bytes with a scale a row, in the columns' own order. */
static enum espl_status read_nm(const struct source *source, struct espl_quant_linear *linear,
                                struct espl_error *err)
{
    if (linear->weight_bits != 8 || linear->outliers > 0 || linear->groups != 1 ||
        linear->rows_per_scale != 1 || source->scheme->reordered) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "'%s' of '%s' is packed N:M, but its codes are not bytes with a scale a "
                         "row",
                         source->weight->module, espl_artifact_path(source->artifact));
    }
    linear->nm = calloc(1, sizeof *linear->nm);
    if (linear->nm == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a packed matrix");
    }
    return espl_nm_codes_read(source->artifact, source->weight, linear->nm, err);
}

static enum espl_status read_codes(const struct source *source, bool keep_encoded,
                                   struct espl_quant_linear *linear, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (espl_nm_is_stored(source->artifact, source->weight)) {
        status = read_nm(source, linear, err);
    } else if (espl_iebme_is_stored(source->artifact, source->weight)) {
        status = read_iebme(source, linear, err);
    } else {
        return read_packed(source, linear, err);
    }
    return status == ESPL_OK && !keep_encoded ? decode(linear, err) : status;
}

static enum espl_status read_arrays(const struct source *source, bool keep_encoded,
                                    struct espl_quant_linear *linear, struct espl_error *err)
{
    enum espl_status status = read_codes(source, keep_encoded, linear, err);
    void *data = NULL;
    if (status == ESPL_OK) {
        status = read_scales(source, "scales", espl_ceil_div(linear->out, linear->rows_per_scale),
                             linear->groups, &linear->scales, err);
    }
    if (status == ESPL_OK && linear->outliers > 0) {
        char path[ESPL_TENSOR_PATH];
        espl_quant_part_path(source->weight, "outlier_codes", path);
        const struct espl_tensor_info info =
            espl_quant_plain_info(path, ESPL_DTYPE_I8, linear->out, linear->outliers);
        data = NULL;
        status = espl_quant_read_part(source->artifact, &info, &data, err);
        linear->outlier_codes = data;
    }
    if (status == ESPL_OK && linear->outliers > 0) {
        status =
            read_scales(source, "outlier_scales", linear->out, 0, &linear->outlier_scales, err);
    }
    return status;
}

/* What a reader wants beside the plain linear. */
struct wish {
    bool mask;
    bool encoded; /* encoded codes as they are */
};

static enum espl_status read_linear(const struct source *source, struct wish wish,
                                    struct espl_quant_linear *linear, struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = source->scheme;
    *linear = (struct espl_quant_linear){0};
    if (source->weight == NULL || !espl_quant_is_stored(source->artifact, source->weight)) {
        return espl_fail(err, ESPL_E_NOTFOUND, "'%s' of layer %lld is not quantised in '%s'",
                         espl_role_name(source->role), (long long)source->layer,
                         espl_artifact_path(source->artifact));
    }
    const struct espl_quant_width *width =
        espl_quant_scheme_width(scheme, (size_t)source->weight->shape[1]);
    if (width == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' does not say how '%s' is quantised",
                         espl_artifact_path(source->artifact), source->weight->module);
    }
    *linear = espl_quant_linear_sizes(scheme, width, (size_t)source->weight->shape[0]);
    enum espl_status status = read_arrays(source, wish.encoded, linear, err);
    if (status == ESPL_OK) {
        status = read_orders(source, linear, err);
    }
    if (status == ESPL_OK) {
        status = read_bias(source, linear, err);
    }
    if (status == ESPL_OK && wish.mask) {
        status = read_mask(source, linear, err);
    }
    if (status != ESPL_OK) {
        espl_quant_linear_free(linear);
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
    const struct source source = {
        artifact, model, scheme, espl_model_find(model, layer, role, false), layer, role};
    return read_linear(&source, (struct wish){.mask = with_mask}, linear, err);
}

/* Of the model itself. */
static enum espl_status read_own(struct espl_model *model, int64_t layer, enum espl_role role,
                                 struct wish wish, struct espl_quant_linear *linear,
                                 struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(model);
    const struct source source = {
        model->chain[0], model, scheme, espl_model_find(model, layer, role, false), layer, role};
    *linear = (struct espl_quant_linear){0};
    if (scheme == NULL) {
        return espl_fail(err, ESPL_E_NOTFOUND, "'%s' is not a quantised model",
                         espl_artifact_path(model->chain[0]));
    }
    return read_linear(&source, wish, linear, err);
}

enum espl_status espl_quant_linear_read(struct espl_model *model, int64_t layer,
                                        enum espl_role role, bool with_mask,
                                        struct espl_quant_linear *linear, struct espl_error *err)
{
    return read_own(model, layer, role, (struct wish){.mask = with_mask}, linear, err);
}

enum espl_status espl_quant_linear_read_stored(struct espl_model *model, int64_t layer,
                                               enum espl_role role,
                                               struct espl_quant_linear *linear,
                                               struct espl_error *err)
{
    return read_own(model, layer, role, (struct wish){.encoded = true}, linear, err);
}
