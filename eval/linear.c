#include "eval/linear.h"

#include "core/checked.h"
#include "eval/packed_linear.h"
#include "eval/quant_shape.h"

#include <stdlib.h>
#include <string.h>

/* Grows *block to rows x width items; its content is not kept. */
static bool grow(void **block, size_t *capacity, size_t rows, size_t width, size_t item_bytes)
{
    if (*capacity >= width && *block != NULL) {
        return true;
    }
    free(*block);
    *block = espl_eval_allocate(rows, width, item_bytes);
    *capacity = *block != NULL ? width : 0;
    return *block != NULL;
}

enum espl_status espl_linear_reserve(struct espl_forward *forward, size_t in, size_t outliers,
                                     size_t group_size, bool simulate, struct espl_error *err)
{
    struct espl_linear_scratch *scratch = &forward->scratch;
    const size_t rows = forward->max_windows * forward->tokens;
    const size_t normal = in - outliers;
    const size_t groups = group_size == 0 ? 1 : normal / group_size;
    void *codes = scratch->codes.codes;
    void *scales = scratch->codes.scales;
    void *outlier_codes = scratch->codes.outlier_codes;
    void *outlier_scales = scratch->codes.outlier_scales;
    void *simulated = scratch->simulated;
    bool good = grow(&codes, &scratch->code_width, rows, normal, sizeof(int8_t));
    good = grow(&scales, &scratch->scale_width, rows, groups, sizeof(float)) && good;
    if (outliers > 0) {
        size_t one = outlier_scales != NULL ? 1 : 0;
        good =
            grow(&outlier_codes, &scratch->outlier_width, rows, outliers, sizeof(int8_t)) && good;
        good = grow(&outlier_scales, &one, rows, 1, sizeof(float)) && good;
    }
    if (simulate) {
        good = grow(&simulated, &scratch->simulated_width, rows, in, sizeof(float)) && good;
    }
    scratch->codes = (struct espl_quant_activations){codes, scales, outlier_codes, outlier_scales};
    scratch->simulated = simulated;
    return good ? ESPL_OK
                : espl_fail(err, ESPL_E_NOMEM,
                            "out of memory for the activation codes of %zu tokens", rows);
}

void espl_linear_scratch_free(struct espl_forward *forward)
{
    struct espl_linear_scratch *scratch = &forward->scratch;
    free(scratch->codes.codes);
    free(scratch->codes.scales);
    free(scratch->codes.outlier_codes);
    free(scratch->codes.outlier_scales);
    free(scratch->simulated);
    *scratch = (struct espl_linear_scratch){0};
}

/* The scratch arrays as an op takes them: without outliers there are none. */
static struct espl_quant_activations codes_for(const struct espl_forward *forward, size_t outliers)
{
    struct espl_quant_activations codes = forward->scratch.codes;
    if (outliers == 0) {
        codes.outlier_codes = NULL;
        codes.outlier_scales = NULL;
    }
    return codes;
}

/* to (rows, width) <- the values that codes stand for, in original column order. */
static void dequantise(const struct espl_quant_shape *shape,
                       const struct espl_quant_activations *codes, const int32_t *order, float *to)
{
    const size_t normal = espl_quant_normal(shape);
    const size_t groups = espl_quant_groups(shape);
    const size_t group = normal / groups;
    for (size_t t = 0; t < shape->tokens; t++) {
        float *row = to + t * shape->in;
        for (size_t c = 0; c < normal; c++) {
            row[order != NULL ? (size_t)order[c] : c] =
                codes->scales[t * groups + c / group] * (float)codes->codes[t * normal + c];
        }
        for (size_t c = 0; c < shape->outliers; c++) {
            row[order != NULL ? (size_t)order[normal + c] : normal + c] =
                codes->outlier_scales[t] * (float)codes->outlier_codes[t * shape->outliers + c];
        }
    }
}

enum espl_status espl_linear_begin(struct espl_forward *forward, const struct espl_block *block,
                                   enum espl_quant_site site, const float *x, size_t rows,
                                   size_t width, struct espl_linear_input *input,
                                   struct espl_error *err)
{
    const struct espl_input_quantiser *quantiser = &block->simulate[site];
    *input = (struct espl_linear_input){.x = x, .rows = rows, .width = width};
    if (quantiser->bits == 0) {
        return ESPL_OK;
    }
    const struct espl_quant_shape shape = {
        .tokens = rows,
        .in = width,
        .out = 1,
        .group_size = quantiser->group_size,
        .outliers = quantiser->outliers,
        .rows_per_scale = 1,
        .weight_bits = quantiser->bits,
        .activation_bits = quantiser->bits,
    };
    const struct espl_quant_activations codes = codes_for(forward, shape.outliers);
    const enum espl_status status = forward->ops->quantize_act(
        forward->backend, &shape, x, quantiser->order, quantiser->clip, &codes, err);
    if (status == ESPL_OK) {
        dequantise(&shape, &codes, quantiser->order, forward->scratch.simulated);
        input->simulated = forward->scratch.simulated;
    }
    espl_forward_lap(forward, &forward->times.elementwise);
    return status;
}

/* Packed and encoded codes give the same bits. */
static enum espl_status multiply(struct espl_forward *forward, const struct espl_quant_shape *shape,
                                 const struct espl_quant_activations *codes,
                                 const struct espl_quant_linear *linear, float *y,
                                 struct espl_error *err)
{
    if (linear->nm != NULL) {
        return espl_packed_multiply(forward->backend, linear, codes, shape->tokens,
                                    (int32_t *)(void *)y, y, err);
    }
    if (linear->encoded != NULL) {
        const struct espl_iebme_weights weights = {linear->encoded, linear->scales,
                                                   linear->outlier_codes, linear->outlier_scales,
                                                   linear->bias};
        return forward->ops->spmm_iebme(forward->backend, shape, codes, &weights, y, err);
    }
    const struct espl_quant_weights weights = {linear->codes, linear->scales, linear->outlier_codes,
                                               linear->outlier_scales, linear->bias};
    return forward->ops->gemm_w4a4(forward->backend, shape, codes, &weights, y, err);
}

static enum espl_status run_coded(struct espl_forward *forward,
                                  const struct espl_coded_linear *coded,
                                  struct espl_linear_input *input, float *y, struct espl_error *err)
{
    const struct espl_quant_linear *linear = &coded->linear;
    const struct espl_quant_shape shape =
        espl_quant_shape_of(linear, input->rows, coded->activation_bits);
    const struct espl_quant_activations codes = codes_for(forward, shape.outliers);
    enum espl_status status = ESPL_OK;
    if (!input->coded) {
        status = forward->ops->quantize_act(forward->backend, &shape, input->x,
                                            linear->gathered ? NULL : linear->order,
                                            coded->activation_clip, &codes, err);
        input->coded = status == ESPL_OK;
        espl_forward_lap(forward, &forward->times.elementwise);
    }
    if (status == ESPL_OK) {
        status = multiply(forward, &shape, &codes, linear, y, err);
    }
    espl_forward_lap(forward, &forward->times.gemm);
    return status;
}

enum espl_status espl_linear_run(struct espl_forward *forward, const struct espl_block *block,
                                 enum espl_role role, struct espl_linear_input *input, float *y,
                                 struct espl_error *err)
{
    const struct espl_coded_linear *coded = &block->coded[role];
    enum espl_status status = ESPL_OK;
    if (espl_coded_is_present(coded)) {
        status = run_coded(forward, coded, input, y, err);
    } else {
        const bool simulated = block->simulated[role] && input->simulated != NULL;
        status = espl_forward_linear(forward, &block->parts[role], input->rows,
                                     simulated ? input->simulated : input->x, y, err);
    }
    if (status != ESPL_OK) {
        espl_context(err, "in linear '%s'", espl_role_name(role));
    }
    return status;
}
