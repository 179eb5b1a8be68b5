#include "stages/prune_common/prune_store.h"

#include "core/checked.h"
#include "stages/prune_common/prune_mask.h"

#include <stdlib.h>
#include <string.h>

struct totals {
    uint64_t targeted_removed;
    uint64_t block_removed;
};

enum espl_status espl_prune_open_backend(const struct espl_stage_ctx *ctx,
                                         struct espl_backend **backend, struct espl_error *err)
{
    const char *device = espl_ctx_device(ctx);
    if (strcmp(device, "cpu") != 0 && strcmp(device, "auto") != 0) {
        espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN,
                 "'%s' runs on the CPU: it has no code for device '%s'", espl_ctx_stage_id(ctx),
                 device);
    }
    return espl_backend_open("cpu", 0, backend, err);
}

enum espl_status espl_prune_mask_bytes(const struct espl_tensor_spec *weight, size_t *bytes,
                                       struct espl_error *err)
{
    if (!espl_mul_size((size_t)weight->shape[0], espl_mask_stride((size_t)weight->shape[1]),
                       bytes)) {
        return espl_fail(err, ESPL_E_NOMEM, "the mask of '%s' does not fit in memory",
                         weight->module);
    }
    return ESPL_OK;
}

static double removed_fraction(uint64_t removed, uint64_t elements)
{
    return elements > 0 ? (double)removed / (double)elements : 0.0;
}

/* The model's own row of a linear: a view takes no other. */
static const struct espl_tensor_spec *spec_in_model(const struct espl_model *model,
                                                    const struct espl_prune_linear *linear)
{
    return espl_model_find(model, linear->spec.layer, linear->spec.role, false);
}

/* mask <- mask AND the mask that the input model already has. */
static enum espl_status join_existing(struct espl_model *model,
                                      const struct espl_tensor_spec *weight, uint8_t *mask,
                                      size_t bytes, struct espl_error *err)
{
    if (!espl_model_has_mask(model, weight)) {
        return ESPL_OK;
    }
    uint8_t *existing = malloc(bytes > 0 ? bytes : 1);
    if (existing == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a mask of %zu bytes", bytes);
    }
    const enum espl_status status =
        espl_model_read_mask(model, weight, 0, weight->shape[0], existing, err);
    if (status == ESPL_OK) {
        espl_prune_mask_intersect(mask, existing, bytes);
    }
    free(existing);
    return status;
}

enum espl_status espl_prune_store_mask(struct espl_stage_ctx *ctx, struct espl_model *model,
                                       const struct espl_prune_linear *linear,
                                       struct espl_artifact *unit, uint8_t *mask,
                                       struct espl_error *err)
{
    const struct espl_tensor_spec *weight = spec_in_model(model, linear);
    size_t bytes = 0;
    enum espl_status status = espl_prune_mask_bytes(weight, &bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = join_existing(model, weight, mask, bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_model_write_mask(unit, weight, mask, err);
    if (status != ESPL_OK) {
        return status;
    }
    const uint64_t elements = weight->shape[0] * weight->shape[1];
    const uint64_t removed = elements - espl_prune_mask_kept(mask, bytes);
    return espl_ctx_layer_metric(ctx, "sparsity", (uint64_t)weight->layer, weight->module,
                                 removed_fraction(removed, elements), err);
}

/* Dataset of a linear's mask: its weight's path with the last part changed. */
static bool mask_path(const struct espl_tensor_spec *weight, char out[ESPL_TENSOR_PATH])
{
    const char *slash = strrchr(weight->path, '/');
    const size_t stem = slash != NULL ? (size_t)(slash - weight->path) + 1 : 0;
    if (stem + sizeof "mask" > ESPL_TENSOR_PATH) {
        return false;
    }
    memcpy(out, weight->path, stem);
    memcpy(out + stem, "mask", sizeof "mask");
    return true;
}

enum espl_status espl_prune_read_unit_mask(struct espl_artifact *unit,
                                           const struct espl_tensor_spec *weight, uint8_t **mask,
                                           struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    size_t bytes = 0, expected = 0;
    void *data = NULL;
    if (!mask_path(weight, path)) {
        return espl_fail(err, ESPL_E_INTERNAL, "path of '%s' is too long", weight->module);
    }
    enum espl_status status = espl_prune_mask_bytes(weight, &expected, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_artifact_read(unit, path, expected, &data, &bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (bytes != expected) {
        free(data);
        return espl_fail(err, ESPL_E_CORRUPT, "mask '%s' has %zu bytes, expected %zu", path, bytes,
                         expected);
    }
    *mask = data;
    return ESPL_OK;
}

/* Removed weights of a selected linear, counted in the stored mask. */
static enum espl_status count_stored(struct espl_artifact *unit,
                                     const struct espl_tensor_spec *weight, uint64_t *removed,
                                     struct espl_error *err)
{
    uint8_t *mask = NULL;
    const enum espl_status status = espl_prune_read_unit_mask(unit, weight, &mask, err);
    if (status == ESPL_OK) {
        const size_t bytes = (size_t)weight->shape[0] * espl_mask_stride((size_t)weight->shape[1]);
        *removed = weight->shape[0] * weight->shape[1] - espl_prune_mask_kept(mask, bytes);
    }
    free(mask);
    return status;
}

/* A linear that was not selected keeps the mask it came with: the output stands for the whole
 * model. */
static enum espl_status keep_existing(struct espl_artifact *output, struct espl_model *model,
                                      const struct espl_tensor_spec *weight, uint64_t *removed,
                                      struct espl_error *err)
{
    size_t bytes = 0;
    *removed = 0;
    if (!espl_model_has_mask(model, weight)) {
        return ESPL_OK;
    }
    enum espl_status status = espl_prune_mask_bytes(weight, &bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    uint8_t *mask = malloc(bytes > 0 ? bytes : 1);
    if (mask == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a mask of %zu bytes", bytes);
    }
    status = espl_model_read_mask(model, weight, 0, weight->shape[0], mask, err);
    if (status == ESPL_OK) {
        *removed = weight->shape[0] * weight->shape[1] - espl_prune_mask_kept(mask, bytes);
        status = espl_model_write_mask(output, weight, mask, err);
    }
    free(mask);
    return status;
}

static enum espl_status finish_layer(struct espl_stage_ctx *ctx, struct espl_model *model,
                                     const struct espl_prune_selection *selection, uint64_t layer,
                                     struct totals *totals, struct espl_error *err)
{
    struct espl_artifact *output = espl_ctx_output(ctx, "model");
    struct espl_artifact *unit = NULL;
    enum espl_status status = ESPL_OK;
    if (espl_prune_selection_has_layer(selection, layer)) {
        status = espl_ctx_unit_open(ctx, layer, &unit, err);
        if (status == ESPL_OK) {
            status = espl_artifact_copy_datasets(output, unit, err);
        }
    }
    for (size_t i = 0; i < selection->count && status == ESPL_OK; i++) {
        const struct espl_prune_linear *linear = &selection->linears[i];
        if ((uint64_t)linear->spec.layer != layer) {
            continue;
        }
        uint64_t removed = 0;
        if (linear->selected) {
            status = count_stored(unit, &linear->spec, &removed, err);
            totals->targeted_removed += removed;
        } else {
            status = keep_existing(output, model, spec_in_model(model, linear), &removed, err);
        }
        totals->block_removed += removed;
    }
    espl_artifact_close(unit);
    if (status != ESPL_OK) {
        espl_context(err, "while storing the masks of block %llu", (unsigned long long)layer);
    }
    return status;
}

enum espl_status espl_prune_finish(struct espl_stage_ctx *ctx, struct espl_model *model,
                                   const struct espl_prune_selection *selection, json_t *pruning,
                                   struct espl_error *err)
{
    struct totals totals = {0, 0};
    if (pruning == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
    }
    enum espl_status status =
        espl_model_begin_masked(espl_ctx_output(ctx, "model"), model, pruning, err);
    json_decref(pruning);
    for (uint64_t layer = 0; layer < selection->layers && status == ESPL_OK; layer++) {
        status = finish_layer(ctx, model, selection, layer, &totals, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_ctx_metric(
        ctx, "sparsity_targeted",
        removed_fraction(totals.targeted_removed, selection->selected_elements), false, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_ctx_metric(ctx, "sparsity_block_linears",
                             removed_fraction(totals.block_removed, selection->block_elements),
                             false, err);
    if (status != ESPL_OK) {
        return status;
    }
    return espl_ctx_metric(ctx, "sparsity_all",
                           removed_fraction(totals.block_removed, selection->parameters), false,
                           err);
}

static json_t *pattern_list(const struct espl_list *list)
{
    json_t *array = json_array();
    for (size_t i = 0; i < list->count && array != NULL; i++) {
        if (json_array_append_new(array, json_string(((const char *const *)list->items)[i])) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

/* Nothing when every weight stands by itself. */
static bool describe_align(json_t *object, const struct espl_align *align)
{
    if (!espl_align_is_on(align)) {
        return true;
    }
    json_t *value = json_pack("{s:i, s:i, s:s, s:s}", "rows", (int)align->grid.rows, "cols",
                              (int)align->grid.cols, "form", espl_align_form_choices[align->form],
                              "fill", espl_align_fill_choices[align->fill]);
    return json_object_set_new(object, "align", value) == 0;
}

/* Adds what the parameters say; false when out of memory. */
static bool describe_params(json_t *object, const struct espl_prune_params *params)
{
    if (params->pattern.m > 0) {
        json_t *pattern =
            json_sprintf("%u:%u", (unsigned)params->pattern.n, (unsigned)params->pattern.m);
        return json_object_set_new(object, "pattern", pattern) == 0 &&
               (params->vector <= 1 ||
                json_object_set_new(object, "vector", json_integer(params->vector)) == 0) &&
               json_object_set_new(object, "convention", json_string("N kept of M")) == 0 &&
               json_object_set_new(object, "tail",
                                   json_string(espl_prune_tail_choices[params->tail])) == 0;
    }
    return json_object_set_new(object, "pattern", json_string("none")) == 0 &&
           json_object_set_new(object, "sparsity", json_real(params->sparsity)) == 0 &&
           describe_align(object, &params->align);
}

json_t *espl_prune_describe(const char *method, const struct espl_prune_params *params,
                            const struct espl_prune_selection *selection)
{
    json_t *object = json_object();
    const int64_t last =
        params->layers.last_layer < 0 ? (int64_t)selection->layers - 1 : params->layers.last_layer;
    if (object == NULL || json_object_set_new(object, "method", json_string(method)) != 0 ||
        !describe_params(object, params) ||
        json_object_set_new(object, "targets", pattern_list(&params->layers.targets)) != 0 ||
        json_object_set_new(object, "ignore", pattern_list(&params->layers.ignore)) != 0 ||
        json_object_set_new(object, "first_layer", json_integer(params->layers.first_layer)) != 0 ||
        json_object_set_new(object, "last_layer", json_integer(last)) != 0 ||
        json_object_set_new(object, "linears", json_integer((json_int_t)selection->selected)) !=
            0) {
        json_decref(object);
        return NULL;
    }
    return object;
}
