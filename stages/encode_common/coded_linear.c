#include "stages/encode_common/coded_linear.h"

#include "core/checked.h"
#include "core/codes.h"
#include "model/arch.h"

#include <stdlib.h>

uint64_t espl_coded_tiles(const struct espl_quant_linear *linear)
{
    const struct espl_iebme_layout layout = {.rows = linear->out, .cols = linear->normal};
    return (uint64_t)espl_iebme_stripes(&layout) * espl_iebme_tile_cols(&layout);
}

static void add_linear(struct espl_coded_model *model, const struct espl_tensor_spec *spec,
                       const struct espl_quant_width *width)
{
    const struct espl_quant_linear sizes =
        espl_quant_linear_sizes(&model->scheme, width, (size_t)spec->shape[0]);
    const uint64_t codes = (uint64_t)sizes.out * sizes.normal;
    model->linears++;
    model->weights += spec->shape[0] * spec->shape[1];
    model->stripes += espl_ceil_div(sizes.out, ESPL_IEBME_TILE_ROWS);
    model->tiles += espl_coded_tiles(&sizes);
    model->code_bytes += espl_quant_linear_bytes(&sizes);
    model->largest = codes > model->largest ? codes : model->largest;
}

static void add_sizes(struct espl_coded_model *model, const struct espl_tensor_spec *specs,
                      size_t count)
{
    enum espl_dtype dtype = ESPL_DTYPE_F32;
    (void)espl_dtype_parse(model->config.dtype, &dtype); /* float32 when it is not said */
    for (size_t i = 0; i < count; i++) {
        const struct espl_tensor_spec *spec = &specs[i];
        const struct espl_quant_width *width =
            spec->rank == 2 && !spec->is_bias && espl_role_is_block_linear(spec->role)
                ? espl_quant_scheme_width(&model->scheme, (size_t)spec->shape[1])
                : NULL;
        if (width != NULL) {
            add_linear(model, spec, width);
        } else {
            model->other_bytes +=
                spec->shape[0] * (spec->rank == 2 ? spec->shape[1] : 1) * espl_dtype_size(dtype);
        }
    }
}

/* A selected part of the linears has codes; the others are copied as they are. */
static void add_floats(struct espl_coded_model *model, const json_t *description,
                       const struct espl_tensor_spec *specs, size_t count)
{
    const json_int_t coded = json_integer_value(
        json_object_get(json_object_get(description, "quantisation"), "linears"));
    uint64_t largest = 0;
    if (coded <= 0 || (uint64_t)coded >= model->linears) {
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const uint64_t weights = specs[i].rank == 2 ? specs[i].shape[0] * specs[i].shape[1] : 0;
        if (espl_role_is_block_linear(specs[i].role) && weights > largest) {
            largest = weights;
        }
    }
    model->in_float = model->linears - (uint64_t)coded;
    model->linears = (uint64_t)coded;
    model->float_bytes = model->in_float * largest * sizeof(float);
    model->other_bytes += model->float_bytes;
}

enum espl_status espl_coded_model_read(const json_t *description, struct espl_coded_model *model,
                                       struct espl_error *err)
{
    struct espl_tensor_spec *specs = NULL;
    size_t count = 0;
    *model = (struct espl_coded_model){.linears = 0};
    enum espl_status status = espl_model_config_from_description(description, &model->config, err);
    if (status == ESPL_OK) {
        status = espl_quant_scheme_from_json(json_object_get(description, "quantisation"),
                                             &model->scheme, err);
    }
    if (status == ESPL_OK) {
        status = espl_arch_tensors(&model->config, &specs, &count, err);
    }
    if (status == ESPL_OK) {
        add_sizes(model, specs, count);
        add_floats(model, description, specs, count);
    }
    free(specs);
    return status;
}

const struct espl_tensor_spec *espl_coded_next(const struct espl_model *model, uint64_t layer,
                                               size_t *index)
{
    while (*index < espl_model_tensor_count(model)) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, (*index)++);
        if (spec->layer == (int64_t)layer && espl_model_is_quantised(model, spec)) {
            return spec;
        }
    }
    return NULL;
}

enum espl_status espl_coded_unpack(const struct espl_quant_linear *linear, int8_t **codes,
                                   struct espl_error *err)
{
    size_t count = 0;
    *codes = espl_mul_size(linear->out, linear->normal, &count) ? malloc(count) : NULL;
    if (*codes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu x %zu codes", linear->out,
                         linear->normal);
    }
    espl_codes_unpack(linear->codes, linear->out, linear->normal, linear->weight_bits, *codes);
    return ESPL_OK;
}
