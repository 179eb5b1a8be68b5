/* Linears of image models that are packed N:M: loading and running them. */
#include "eval/vision_packed.h"

#include "eval/packed_linear.h"

#include <string.h>

/* Rows and columns of the widest input of any linear, for all images. */
static void widest_input(const struct espl_vision *vision, size_t *tokens, size_t *values)
{
    *tokens = 0;
    *values =
        vision->widths.values > vision->widths.inner ? vision->widths.values : vision->widths.inner;
    for (uint64_t b = 0; b < vision->config.layers; b++) {
        struct espl_vision_place place;
        espl_vision_get_place(&vision->config, b, &place);
        const size_t here = (size_t)espl_vision_place_tokens(&vision->config, &place);
        *tokens = here > *tokens ? here : *tokens;
    }
}

/* Room for the codes of an input; once. */
static enum espl_status reserve(struct espl_vision *vision, struct espl_error *err)
{
    size_t tokens = 0;
    size_t values = 0;
    if (vision->codes.codes != NULL) {
        return ESPL_OK;
    }
    widest_input(vision, &tokens, &values);
    vision->codes.codes = espl_eval_allocate(vision->max_images, values, sizeof(int8_t));
    vision->codes.scales = espl_eval_allocate(vision->max_images, tokens, sizeof(float));
    return vision->codes.codes != NULL && vision->codes.scales != NULL
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM,
                           "out of memory for the activation codes of %zu images",
                           vision->max_images);
}

enum espl_status espl_vision_load_packed(struct espl_vision *vision, uint64_t block,
                                         enum espl_role role, bool *packed, struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(vision->model);
    const struct espl_tensor_spec *spec =
        espl_model_find(vision->model, (int64_t)block, role, false);
    struct espl_quant_linear *linear = &vision->blocks[block].packed[role];
    *packed = false;
    if (scheme == NULL || scheme->activation_bits == ESPL_QUANT_FLOAT_BITS || spec == NULL ||
        !espl_model_is_quantised(vision->model, spec)) {
        return ESPL_OK;
    }
    enum espl_status status =
        espl_quant_linear_read_stored(vision->model, (int64_t)block, role, linear, err);
    if (status == ESPL_OK && linear->nm == NULL) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED,
                           "image models run with float weights or codes packed N:M, but '%s' is "
                           "quantised otherwise",
                           spec->module);
    }
    if (status == ESPL_OK) {
        status = reserve(vision, err);
    }
    *packed = status == ESPL_OK;
    return status;
}

enum espl_status espl_vision_run_packed(struct espl_vision *vision,
                                        const struct espl_quant_linear *linear,
                                        enum espl_epilogue epilogue, size_t tokens, const float *x,
                                        float *y, struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(vision->model);
    const struct espl_quant_shape shape = {
        .tokens = tokens,
        .in = linear->in,
        .out = linear->out,
        .group_size = linear->group_size,
        .rows_per_scale = linear->rows_per_scale,
        .weight_bits = linear->weight_bits,
        .activation_bits = scheme->activation_bits,
    };
    /* What is added to y is made in the work buffer that holds neither input nor output. */
    float *result = epilogue != ESPL_EPILOGUE_ADD ? y
                    : x == vision->inner          ? vision->normed
                                                  : vision->inner;
    enum espl_status status = vision->ops->quantize_act(
        vision->backend, &shape, x, NULL, (float)scheme->activation_clip, &vision->codes, err);
    if (status == ESPL_OK) {
        status = espl_packed_multiply(vision->backend, linear, &vision->codes, tokens,
                                      (int32_t *)(void *)result, result, err);
    }
    if (status == ESPL_OK && epilogue == ESPL_EPILOGUE_GELU) {
        status = vision->ops->gelu(vision->backend, tokens * linear->out, y, err);
    } else if (status == ESPL_OK && epilogue == ESPL_EPILOGUE_ADD) {
        status = vision->ops->add(vision->backend, tokens * linear->out, result, y, err);
    }
    return status;
}
