/* Linears of a block on the device: codes as one matrix where they can be put together, or dense
 * FP16 and INT8 weights made from them. */
#include "core/checked.h"
#include "core/codes.h"
#include "core/rng.h"
#include "espalier/cuda_memory.h"
#include "eval/device_decode_internal.h"
#include "eval/device_memory.h"
#include "eval/quant_shape.h"
#include "model/element.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ACTIVATION_BITS = 4 };

/* The linears of a site as the model has them. */
struct site_parts {
    struct espl_quant_linear linears[ESPL_DEVICE_MOST_PARTS];
    const enum espl_role *roles;
    size_t count;
};

static enum espl_status fail_memory(struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NOMEM, "out of memory for a block's linears");
}

static void free_parts(struct site_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        espl_quant_linear_free(&parts->linears[i]);
    }
}

/* stored: an encoded linear stays so, with the row order that makes its areas small. */
static enum espl_status read_parts(struct espl_model *model, size_t block, bool stored,
                                   struct site_parts *parts, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (parts->count = 0; status == ESPL_OK && parts->roles[parts->count] != ESPL_ROLE_NONE;) {
        struct espl_quant_linear *linear = &parts->linears[parts->count];
        const enum espl_role role = parts->roles[parts->count++];
        status = stored ? espl_quant_linear_read_stored(model, (int64_t)block, role, linear, err)
                        : espl_quant_linear_read(model, (int64_t)block, role, false, linear, err);
    }
    return status;
}

/* ---- codes ---- */

/* Rows that share scales must not fall into two linears. */
static bool can_join(const struct site_parts *parts)
{
    for (size_t i = 0; i + 1 < parts->count; i++) {
        if (parts->linears[i].out % parts->linears[i].rows_per_scale != 0) {
            return false;
        }
    }
    return true;
}

static void append(void *to, size_t *at, const void *from, size_t bytes)
{
    memcpy((char *)to + *at, from, bytes);
    *at += bytes;
}

/* *all <- the rows of all parts, one after the other. Freed by the caller. */
static enum espl_status join(const struct site_parts *parts, struct espl_quant_linear *all,
                             struct espl_error *err)
{
    const struct espl_quant_linear *first = &parts->linears[0];
    const size_t stride = espl_codes_stride(first->normal, first->weight_bits);
    size_t codes = 0;
    size_t scales = 0;
    size_t outlier_codes = 0;
    size_t outlier_scales = 0;
    *all = *first;
    all->out = 0;
    for (size_t i = 0; i < parts->count; i++) {
        all->out += parts->linears[i].out;
    }
    const size_t scale_rows = espl_ceil_div(all->out, first->rows_per_scale);
    all->encoded = NULL; /* sizes are the first part's, arrays are not */
    all->nm = NULL;
    all->mask = NULL;
    all->order = NULL;
    all->row_order = NULL;
    all->codes = espl_eval_allocate(all->out, stride, 1);
    all->scales = espl_eval_allocate(scale_rows, first->groups, sizeof(float));
    all->outlier_codes =
        first->outliers > 0 ? espl_eval_allocate(all->out, first->outliers, 1) : NULL;
    all->outlier_scales =
        first->outliers > 0 ? espl_eval_allocate(all->out, 1, sizeof(float)) : NULL;
    all->bias = calloc(all->out, sizeof(float));
    if (all->codes == NULL || all->scales == NULL || all->bias == NULL ||
        (first->outliers > 0 && (all->outlier_codes == NULL || all->outlier_scales == NULL))) {
        return fail_memory(err);
    }
    for (size_t i = 0, row = 0; i < parts->count; row += parts->linears[i++].out) {
        const struct espl_quant_linear *part = &parts->linears[i];
        append(all->codes, &codes, part->codes, part->out * stride);
        append(all->scales, &scales, part->scales,
               espl_ceil_div(part->out, part->rows_per_scale) * part->groups * sizeof(float));
        if (part->outliers > 0) {
            append(all->outlier_codes, &outlier_codes, part->outlier_codes,
                   part->out * part->outliers);
            append(all->outlier_scales, &outlier_scales, part->outlier_scales,
                   part->out * sizeof(float));
        }
        if (part->bias != NULL) {
            memcpy(all->bias + row, part->bias, part->out * sizeof(float));
        }
    }
    return ESPL_OK;
}

static enum espl_status add_matrix(const struct espl_quant_linear *part,
                                   enum espl_iebme_areas areas, struct espl_device_linear *linear,
                                   struct espl_error *err)
{
    const struct espl_quant_shape shape = espl_quant_shape_of(part, 1, ACTIVATION_BITS);
    const struct espl_cuda_atom_form form = {areas, NULL};
    struct espl_cuda_matrix **to = &linear->matrices[linear->matrix_count];
    enum espl_status status = ESPL_OK;
    if (part->encoded != NULL) {
        const struct espl_iebme_weights weights = {part->encoded, part->scales, part->outlier_codes,
                                                   part->outlier_scales, part->bias};
        status = espl_cuda_matrix_create_atom_iebme(&shape, &weights, &form, to, err);
    } else {
        const struct espl_quant_weights weights = {part->codes, part->scales, part->outlier_codes,
                                                   part->outlier_scales, part->bias};
        status = espl_cuda_matrix_create_atom(&shape, &weights, &form, to, err);
    }
    if (status == ESPL_OK) {
        linear->first_row[linear->matrix_count++] = linear->out;
        linear->out += part->out;
    }
    return status;
}

static enum espl_status add_joined(const struct site_parts *parts, enum espl_iebme_areas areas,
                                   struct espl_device_linear *linear, struct espl_error *err)
{
    struct espl_quant_linear all = {0};
    enum espl_status status = join(parts, &all, err);
    if (status == ESPL_OK) {
        status = add_matrix(&all, areas, linear, err);
    }
    espl_quant_linear_free(&all);
    return status;
}

/* Areas whose linears stay apart, as they are stored. */
static bool stay_apart(enum espl_iebme_areas areas)
{
    return areas != ESPL_IEBME_DENSE && areas != ESPL_IEBME_1X1;
}

static enum espl_status make_codes(const struct site_parts *parts, enum espl_iebme_areas areas,
                                   struct espl_device_linear *linear, struct espl_error *err)
{
    const struct espl_quant_linear *first = &parts->linears[0];
    const bool one_by_one = stay_apart(areas);
    enum espl_status status = ESPL_OK;
    linear->in = first->in;
    linear->shape = espl_quant_shape_of(first, 1, ACTIVATION_BITS);
    if (first->order != NULL && !first->gathered) {
        void *order = NULL;
        status = espl_device_upload(first->order, first->in, sizeof *first->order, &order, err);
        linear->order = order;
    }
    if (status == ESPL_OK && !one_by_one && parts->count > 1 && can_join(parts)) {
        return add_joined(parts, areas, linear, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < parts->count; i++) {
        status = add_matrix(&parts->linears[i], areas, linear, err);
    }
    return status;
}

/* ---- dense ---- */

/* Rows of a linear as FP16, or as INT8 with a scale each. */
static enum espl_status to_halves(const float *values, size_t count, uint16_t *to,
                                  struct espl_error *err)
{
    struct espl_element_loss loss = {0};
    espl_element_from_f32(ESPL_DTYPE_F16, values, count, to, &loss);
    return loss.overflow == 0
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NUMERIC, "%llu weights are too large for FP16",
                           (unsigned long long)loss.overflow);
}

static void to_bytes(const float *values, size_t rows, size_t cols, int8_t *to, float *scales)
{
    const float qmax = 127.0F;
    for (size_t row = 0; row < rows; row++) {
        float amax = 0.0F;
        for (size_t c = 0; c < cols; c++) {
            amax = fmaxf(amax, fabsf(values[row * cols + c]));
        }
        scales[row] = amax > 0.0F ? amax / qmax : 1.0F;
        for (size_t c = 0; c < cols; c++) {
            to[row * cols + c] = (int8_t)rintf(values[row * cols + c] / scales[row]);
        }
    }
}

/* What the parts of a site become on their way to the device. */
struct dense_site {
    float *values; /* of one part */
    void *dense;
    float *scales, *bias; /* of all rows */
};

static void free_dense_site(struct dense_site *site)
{
    free(site->values);
    free(site->dense);
    free(site->scales);
    free(site->bias);
}

static enum espl_status add_dense(struct espl_model *model, size_t block, enum espl_role role,
                                  enum espl_device_form form, struct dense_site *site,
                                  struct espl_device_linear *linear, struct espl_error *err)
{
    const struct espl_tensor_spec *weight = espl_model_find(model, (int64_t)block, role, false);
    const struct espl_tensor_spec *bias = espl_model_find(model, (int64_t)block, role, true);
    const size_t rows = (size_t)weight->shape[0];
    const size_t count = rows * linear->in;
    free(site->values);
    site->values = espl_eval_allocate(rows, linear->in, sizeof(float));
    if (site->values == NULL) {
        return fail_memory(err);
    }
    enum espl_status status = espl_model_read_f32(model, weight, 0, rows, site->values, err);
    if (status == ESPL_OK && form == ESPL_DEVICE_DENSE_FP16) {
        status =
            to_halves(site->values, count, (uint16_t *)site->dense + linear->out * linear->in, err);
    } else if (status == ESPL_OK) {
        to_bytes(site->values, rows, linear->in, (int8_t *)site->dense + linear->out * linear->in,
                 site->scales + linear->out);
    }
    if (status == ESPL_OK && bias != NULL) {
        status = espl_model_read_f32(model, bias, 0, rows, site->bias + linear->out, err);
    }
    linear->out += rows;
    return status;
}

/* Speed does not depend on values: a piece of random ones again and again, without biases. */
static enum espl_status make_random(struct espl_model *model, enum espl_device_form form,
                                    const enum espl_role *roles, struct dense_site *site,
                                    struct espl_device_linear *linear, struct espl_error *err)
{
    enum { PIECE = 1 << 20 };
    const bool halves = form == ESPL_DEVICE_DENSE_FP16;
    const size_t bytes = halves ? sizeof(uint16_t) : sizeof(int8_t);
    const double deviation = halves ? 0.02 : 32.0;
    struct espl_rng rng = espl_rng_stream(0, "dense-weights", 0);
    for (size_t i = 0; roles[i] != ESPL_ROLE_NONE; i++) {
        linear->out += (size_t)espl_model_find(model, 0, roles[i], false)->shape[0];
    }
    const size_t count = linear->out * linear->in;
    const size_t piece = count < PIECE ? count : PIECE;
    site->values = espl_eval_allocate(piece, 1, sizeof(float));
    if (site->values == NULL) {
        return fail_memory(err);
    }
    for (size_t i = 0; i < piece; i++) {
        const double v = deviation * espl_rng_normal(&rng);
        site->values[i] = (float)(halves ? v : fmin(fmax(rint(v), -127.0), 127.0));
    }
    const enum espl_status status =
        halves ? to_halves(site->values, piece, site->dense, err) : ESPL_OK;
    for (size_t i = 0; !halves && i < piece; i++) {
        ((int8_t *)site->dense)[i] = (int8_t)site->values[i];
    }
    for (size_t at = piece; at < count; at += piece) {
        memcpy((char *)site->dense + at * bytes, site->dense,
               (count - at < piece ? count - at : piece) * bytes);
    }
    for (size_t row = 0; row < linear->out; row++) {
        site->scales[row] = 0.02F / 32.0F;
    }
    return status;
}

static enum espl_status load_dense(struct espl_model *model,
                                   const struct espl_device_weights *weights, size_t block,
                                   const enum espl_role *roles, struct espl_device_linear *linear,
                                   struct espl_error *err)
{
    const enum espl_device_form form = weights->form;
    const size_t bytes = form == ESPL_DEVICE_DENSE_FP16 ? sizeof(uint16_t) : sizeof(int8_t);
    struct dense_site site = {0};
    size_t out = 0;
    for (size_t i = 0; roles[i] != ESPL_ROLE_NONE; i++) {
        const struct espl_tensor_spec *weight =
            espl_model_find(model, (int64_t)block, roles[i], false);
        out += (size_t)weight->shape[0];
        linear->in = (size_t)weight->shape[1];
    }
    site.dense = espl_eval_allocate(out, linear->in, bytes);
    site.scales = espl_eval_allocate(out, 1, sizeof(float));
    site.bias = calloc(out, sizeof(float));
    enum espl_status status =
        site.dense != NULL && site.scales != NULL && site.bias != NULL ? ESPL_OK : fail_memory(err);
    if (status == ESPL_OK && weights->alike) {
        status = make_random(model, form, roles, &site, linear, err);
    }
    for (size_t i = 0; status == ESPL_OK && !weights->alike && roles[i] != ESPL_ROLE_NONE; i++) {
        status = add_dense(model, block, roles[i], form, &site, linear, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_upload(site.dense, out * linear->in, bytes, &linear->dense, err);
    }
    if (status == ESPL_OK && form == ESPL_DEVICE_DENSE_INT8) {
        status = espl_device_upload_floats(site.scales, out, &linear->row_scales, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_upload_floats(site.bias, out, &linear->bias, err);
    }
    free_dense_site(&site);
    return status;
}

/* ---- both ---- */

/* Reading is one thread's; codes are turned into the kernels' order for all sites at once. */
static enum espl_status load_codes(struct espl_model *model,
                                   const struct espl_device_weights *weights, size_t block,
                                   struct espl_device_linear *linears, struct espl_error *err)
{
    struct site_parts parts[ESPL_QUANT_SITES] = {0};
    enum espl_status made[ESPL_QUANT_SITES] = {ESPL_OK};
    struct espl_error errors[ESPL_QUANT_SITES];
    enum espl_status status = ESPL_OK;
    for (int site = 0; status == ESPL_OK && site < ESPL_QUANT_SITES; site++) {
        parts[site].roles = espl_quant_site_roles(&weights->config, (enum espl_quant_site)site);
        status = read_parts(model, block, stay_apart(weights->areas), &parts[site], err);
    }
    if (status == ESPL_OK) {
#pragma omp parallel for num_threads(ESPL_QUANT_SITES) schedule(static, 1)
        for (int site = 0; site < ESPL_QUANT_SITES; site++) {
            made[site] = make_codes(&parts[site], weights->areas, &linears[site], &errors[site]);
        }
    }
    for (int site = 0; site < ESPL_QUANT_SITES; site++) {
        if (status == ESPL_OK && made[site] != ESPL_OK) {
            status = made[site];
            *err = errors[site];
        }
        free_parts(&parts[site]);
    }
    return status;
}

enum espl_status espl_device_linears_load(struct espl_model *model,
                                          const struct espl_device_weights *weights, size_t block,
                                          struct espl_device_linear linears[ESPL_QUANT_SITES],
                                          struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (espl_device_form_has_codes(weights->form)) {
        return load_codes(model, weights, block, linears, err);
    }
    for (int site = 0; status == ESPL_OK && site < ESPL_QUANT_SITES; site++) {
        const enum espl_role *roles =
            espl_quant_site_roles(&weights->config, (enum espl_quant_site)site);
        status = load_dense(model, weights, block, roles, &linears[site], err);
    }
    return status;
}

static enum espl_status copy(const void *from, size_t bytes, void **to, struct espl_error *err)
{
    if (from == NULL) {
        return ESPL_OK;
    }
    enum espl_status status = espl_cuda_alloc(bytes, to, err);
    return status == ESPL_OK ? espl_cuda_copy(*to, from, bytes, err) : status;
}

enum espl_status espl_device_linear_clone(const struct espl_device_linear *from,
                                          enum espl_device_form form, struct espl_device_linear *to,
                                          struct espl_error *err)
{
    const size_t bytes = form == ESPL_DEVICE_DENSE_FP16 ? sizeof(uint16_t) : sizeof(int8_t);
    void *order = NULL;
    void *scales = NULL;
    void *bias = NULL;
    *to = (struct espl_device_linear){.in = from->in, .out = from->out, .shape = from->shape};
    memcpy(to->first_row, from->first_row, sizeof to->first_row);
    enum espl_status status = copy(from->order, from->in * sizeof *from->order, &order, err);
    to->order = order;
    for (size_t i = 0; status == ESPL_OK && i < from->matrix_count; i++) {
        status = espl_cuda_matrix_clone(from->matrices[i], &to->matrices[i], err);
        to->matrix_count += status == ESPL_OK ? 1 : 0;
    }
    if (status == ESPL_OK) {
        status = copy(from->dense, from->out * from->in * bytes, &to->dense, err);
    }
    if (status == ESPL_OK) {
        status = copy(from->row_scales, from->out * sizeof(float), &scales, err);
        to->row_scales = scales;
    }
    if (status == ESPL_OK) {
        status = copy(from->bias, from->out * sizeof(float), &bias, err);
        to->bias = bias;
    }
    return status;
}

void espl_device_linear_free(struct espl_device_linear *linear)
{
    for (size_t i = 0; i < linear->matrix_count; i++) {
        espl_cuda_matrix_destroy(linear->matrices[i]);
    }
    espl_cuda_free(linear->order);
    espl_cuda_free(linear->dense);
    espl_cuda_free(linear->row_scales);
    espl_cuda_free(linear->bias);
    *linear = (struct espl_device_linear){0};
}
