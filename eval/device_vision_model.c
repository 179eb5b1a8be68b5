/* Weights of an image model on the device: those of a model artifact. */
#include "eval/device_vision_internal.h"
#include "eval/forward_internal.h"

#include <stdlib.h>

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

/* Own kernel or library. n: what the linear is packed at, 0 = as in `packed`. */
static enum espl_status choose(struct espl_device_vision *vision,
                               const struct espl_device_vision_block *block,
                               const struct espl_nm_matrix *packed, unsigned n,
                               struct espl_device_vision_linear *linear, struct espl_error *err)
{
    struct espl_nm_layout layout = packed->layout;
    int8_t *codes = espl_eval_allocate(layout.rows, layout.cols, sizeof *codes);
    if (codes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a matrix of %zu x %zu", layout.rows,
                         layout.cols);
    }
    layout.n = n > layout.n ? n : layout.n;
    enum espl_status status = espl_nm_decode(packed, codes, err);
    if (status == ESPL_OK) {
        status = espl_device_vision_choose(vision, block, &layout, codes, linear, err);
    }
    free(codes);
    return status;
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
    const enum espl_status status =
        espl_device_vision_linear_pack(packed, n, block->rows, &block->linears[role], err);
    return status == ESPL_OK && vision->by != ESPL_DEVICE_VISION_OWN
               ? choose(vision, block, packed->nm, n, &block->linears[role], err)
               : status;
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
                                           enum espl_device_vision_by by,
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
                                    coded ? (float)scheme->activation_clip : 1.0F, by, NULL,
                                    &source, out, err);
}
