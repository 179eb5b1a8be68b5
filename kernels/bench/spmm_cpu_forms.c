#include "kernels/bench/spmm_cpu_forms.h"

#include "core/checked.h"
#include "core/codes.h"
#include "kernels/bench/spmm_baseline.h"
#include "kernels/bench/spmm_bench.h"
#include "kernels/bench/spmm_cpu.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

/* Places of the arrays of an encoded matrix within a copy, each on a cache line. */
struct places {
    size_t masks, offsets, values, tags, orders, stride;
};

static size_t take(size_t *used, size_t bytes)
{
    const size_t at = *used;
    *used += espl_ceil_div(bytes, ALIGNMENT) * ALIGNMENT;
    return at;
}

static struct places lay_out(const struct espl_iebme_matrix *m)
{
    struct places at = {.stride = 0};
    at.masks = take(&at.stride, m->mask_words * sizeof *m->masks);
    at.offsets = take(&at.stride, m->offset_count * sizeof *m->offsets);
    at.values = take(&at.stride, m->value_bytes);
    at.tags = take(&at.stride, m->tag_count);
    at.orders = take(&at.stride, m->order_count * sizeof *m->orders);
    return at;
}

static void put(uint8_t *to, const void *from, size_t bytes)
{
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
}

/* The matrix whose arrays lie in a copy. */
static struct espl_iebme_matrix encoded_at(const struct espl_spmm_cpu_form *form, size_t copy)
{
    struct espl_iebme_matrix m = form->encoded;
    const struct places at = lay_out(&m);
    uint8_t *base = form->memory + copy % form->count * form->stride;
    m.masks = (uint64_t *)(void *)(base + at.masks);
    m.offsets = (uint32_t *)(void *)(base + at.offsets);
    m.values = base + at.values;
    m.tags = base + at.tags;
    m.orders = (uint64_t *)(void *)(base + at.orders);
    return m;
}

/* Room for the copies; the caller fills the first, espl_spmm_cpu_form_make() repeats it. */
static enum espl_status make_room(struct espl_spmm_cpu_form *form, size_t stride, size_t cold_bytes,
                                  size_t most_bytes, struct espl_error *err)
{
    const size_t wanted = cold_bytes / stride + 1;
    const size_t most = most_bytes / stride > 0 ? most_bytes / stride : 1;
    size_t bytes = 0;
    form->stride = stride;
    form->count = wanted < most ? wanted : most;
    form->cold = form->count == wanted;
    form->memory =
        espl_mul_size(form->count, stride, &bytes) ? aligned_alloc(ALIGNMENT, bytes) : NULL;
    return form->memory != NULL
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu copies of %zu bytes",
                           form->count, stride);
}

static enum espl_status make_plain(struct espl_spmm_cpu_form *form,
                                   const struct espl_spmm_weights *weights, size_t cold_bytes,
                                   size_t most_bytes, struct espl_error *err)
{
    const size_t count = weights->rows * weights->cols;
    form->bytes = form->dense ? weights->rows * espl_codes_stride(weights->cols, weights->bits)
                              : count * sizeof(float);
    const enum espl_status status =
        make_room(form, espl_ceil_div((size_t)form->bytes, ALIGNMENT) * ALIGNMENT, cold_bytes,
                  most_bytes, err);
    if (status == ESPL_OK && form->dense) {
        espl_codes_pack(weights->codes, weights->rows, weights->cols, weights->bits, form->memory);
    } else if (status == ESPL_OK) {
        float *values = (float *)(void *)form->memory;
        for (size_t i = 0; i < count; i++) {
            values[i] = (float)weights->codes[i];
        }
    }
    return status;
}

static enum espl_status make_encoded(struct espl_spmm_cpu_form *form,
                                     const struct espl_spmm_weights *weights,
                                     enum espl_iebme_areas areas, size_t cold_bytes,
                                     size_t most_bytes, struct espl_error *err)
{
    const struct espl_iebme_layout layout = {weights->rows, weights->cols, weights->bits, areas,
                                             ESPL_IEBME_SCOPE_NONE};
    struct espl_iebme_plan plan;
    struct espl_iebme_matrix made = {.masks = NULL};
    enum espl_status status = espl_iebme_plan(weights->codes, &layout, NULL, &plan, err);
    if (status == ESPL_OK) {
        status = espl_iebme_encode(weights->codes, NULL, &plan, &made, err);
    }
    if (status == ESPL_OK) {
        form->encoded = made;
        form->bytes = plan.bytes;
        status = make_room(form, lay_out(&made).stride, cold_bytes, most_bytes, err);
    }
    if (status == ESPL_OK) {
        const struct places at = lay_out(&made);
        put(form->memory + at.masks, made.masks, made.mask_words * sizeof *made.masks);
        put(form->memory + at.offsets, made.offsets, made.offset_count * sizeof *made.offsets);
        put(form->memory + at.values, made.values, made.value_bytes);
        put(form->memory + at.tags, made.tags, made.tag_count);
        put(form->memory + at.orders, made.orders, made.order_count * sizeof *made.orders);
        form->encoded = encoded_at(form, 0);
    }
    espl_iebme_matrix_free(&made);
    return status;
}

enum espl_status espl_spmm_cpu_form_make(struct espl_spmm_cpu_form *form, const char *name,
                                         const struct espl_spmm_weights *weights, size_t cold_bytes,
                                         size_t most_bytes, struct espl_error *err)
{
    enum espl_iebme_areas areas = ESPL_IEBME_1X1;
    enum espl_status status = ESPL_OK;
    *form = (struct espl_spmm_cpu_form){.name = name,
                                        .dense = strcmp(name, "dense") == 0,
                                        .sgemm = strcmp(name, ESPL_SPMM_SGEMM) == 0};
    if (form->dense || form->sgemm) {
        status = make_plain(form, weights, cold_bytes, most_bytes, err);
    } else if (espl_iebme_areas_parse(name, &areas) && areas < ESPL_IEBME_DENSE) {
        status = make_encoded(form, weights, areas, cold_bytes, most_bytes, err);
    } else {
        return espl_fail(err, ESPL_E_USAGE, "the CPU has no form '%s' of weights", name);
    }
    for (size_t i = 1; status == ESPL_OK && i < form->count; i++) {
        memcpy(form->memory + i * form->stride, form->memory, form->stride);
    }
    if (status != ESPL_OK) {
        espl_spmm_cpu_form_free(form);
    }
    return status;
}

void espl_spmm_cpu_form_free(struct espl_spmm_cpu_form *form)
{
    free(form->memory);
    form->memory = NULL;
    form->count = 0;
}

enum espl_status espl_spmm_cpu_operands_make(struct espl_spmm_cpu_operands *operands, size_t rows,
                                             size_t cols, unsigned bits, struct espl_error *err)
{
    const size_t tokens = ESPL_SPMM_MAX_TOKENS;
    const size_t ones = rows > tokens ? rows : tokens;
    *operands = (struct espl_spmm_cpu_operands){.x = NULL};
    operands->a.codes = espl_baseline_activations(tokens * cols);
    operands->a.scales = malloc(ones * sizeof(float));
    operands->x = malloc(tokens * cols * sizeof(float));
    operands->w_scales = malloc(ones * sizeof(float));
    operands->y = malloc(tokens * rows * sizeof(float));
    if (operands->a.codes == NULL || operands->a.scales == NULL || operands->x == NULL ||
        operands->w_scales == NULL || operands->y == NULL) {
        espl_spmm_cpu_operands_free(operands);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for activations");
    }
    for (size_t i = 0; i < tokens * cols; i++) {
        /* 8-bit activations: the same codes over the whole range */
        operands->a.codes[i] = (int8_t)(operands->a.codes[i] * (bits == 8 ? 16 : 1));
        operands->x[i] = (float)operands->a.codes[i];
    }
    for (size_t i = 0; i < ones; i++) {
        operands->a.scales[i] = 1.0F;
        operands->w_scales[i] = 1.0F;
    }
    return ESPL_OK;
}

void espl_spmm_cpu_operands_free(struct espl_spmm_cpu_operands *operands)
{
    free(operands->a.codes);
    free(operands->a.scales);
    free(operands->x);
    free(operands->w_scales);
    free(operands->y);
    *operands = (struct espl_spmm_cpu_operands){.x = NULL};
}

enum espl_status espl_spmm_cpu_product(struct espl_backend *backend,
                                       const struct espl_spmm_cpu_form *form,
                                       const struct espl_spmm_weights *weights, size_t tokens,
                                       const struct espl_spmm_cpu_operands *operands, size_t copy,
                                       struct espl_error *err)
{
    const struct espl_ops *ops = espl_backend_ops(backend);
    uint8_t *base = form->memory + copy % form->count * form->stride;
    const struct espl_quant_shape shape = {.tokens = tokens,
                                           .in = weights->cols,
                                           .out = weights->rows,
                                           .rows_per_scale = 1,
                                           .weight_bits = weights->bits,
                                           .activation_bits = weights->bits == 8 ? 8 : 4};
    if (form->sgemm) {
        const struct espl_gemm_shape plain = {tokens, weights->cols, weights->rows};
        return ops->gemm_f32(backend, &plain, operands->x, (const float *)(const void *)base, NULL,
                             operands->y, err);
    }
    if (form->dense) {
        const struct espl_quant_weights w = {.codes = base, .scales = operands->w_scales};
        return ops->gemm_w4a4(backend, &shape, &operands->a, &w, operands->y, err);
    }
    const struct espl_iebme_matrix encoded = encoded_at(form, copy);
    const struct espl_iebme_weights w = {.codes = &encoded, .scales = operands->w_scales};
    return ops->spmm_iebme(backend, &shape, &operands->a, &w, operands->y, err);
}
