/* Weights of an image model on the device: those of a model artifact. */
#include "eval/device_vision_internal.h"

enum { CODE_BITS = 8 };

struct stored {
    struct espl_model *model;
    espl_device_vision_level_fn level;
    void *user;
};

static enum espl_status read_floats(void *user, int64_t layer, enum espl_role role,
                                    struct espl_layer_weights *weights, struct espl_error *err)
{
    const struct stored *stored = user;
    return espl_layer_weights_load(weights, stored->model, layer, role, true, err);
}

static enum espl_status make_packed(const struct stored *stored, struct espl_device_vision *vision,
                                    uint64_t number, enum espl_role role,
                                    const struct espl_quant_linear *packed, struct espl_error *err)
{
    struct espl_device_vision_block *block = &vision->blocks[number];
    if (packed->nm == NULL) {
        return espl_fail(
            err, ESPL_E_UNSUPPORTED,
            "image models run on a CUDA device with float weights or codes packed N:M");
    }
    const unsigned n =
        stored->level != NULL ? stored->level(stored->user, number, role, &packed->nm->layout) : 0;
    return espl_device_vision_linear_pack(packed, n, block->rows, &block->linears[role], err);
}

static enum espl_status read_linear(void *user, struct espl_device_vision *vision, uint64_t block,
                                    enum espl_role role, bool *made, struct espl_error *err)
{
    const struct stored *stored = user;
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(stored->model);
    const struct espl_tensor_spec *spec =
        espl_model_find(stored->model, (int64_t)block, role, false);
    struct espl_quant_linear packed = {0};
    if (scheme == NULL || scheme->activation_bits == ESPL_QUANT_FLOAT_BITS || spec == NULL ||
        !espl_model_is_quantised(stored->model, spec)) {
        return ESPL_OK;
    }
    enum espl_status status =
        espl_quant_linear_read_stored(stored->model, (int64_t)block, role, &packed, err);
    if (status == ESPL_OK) {
        status = make_packed(stored, vision, block, role, &packed, err);
    }
    espl_quant_linear_free(&packed);
    *made = status == ESPL_OK;
    return status;
}

enum espl_status espl_device_vision_create(struct espl_model *model, size_t images,
                                           const struct espl_pixel_scale *scale,
                                           espl_device_vision_level_fn level, void *user,
                                           struct espl_device_vision **out, struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(model);
    struct stored stored = {model, level, user};
    const struct espl_device_vision_source source = {&stored, read_floats, read_linear};
    const bool coded = scheme != NULL && scheme->activation_bits != ESPL_QUANT_FLOAT_BITS;
    if (coded && scheme->activation_bits != CODE_BITS) {
        return espl_fail(err, ESPL_E_UNSUPPORTED,
                         "image models run on a CUDA device with activations of %d bits, not %u",
                         CODE_BITS, scheme->activation_bits);
    }
    return espl_device_vision_build(espl_model_get_config(model), images, scale,
                                    coded ? (float)scheme->activation_clip : 1.0F, NULL, &source,
                                    out, err);
}
