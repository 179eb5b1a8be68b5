#include "stages/deploy_bench/deploy_matrices.h"

#include "espalier/formats.h"
#include "eval/quant_shape.h"
#include "model/quantised.h"
#include "stages/encode_common/coded_linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct espl_deploy_matrix *find_like(struct espl_deploy_matrices *matrices,
                                            const struct espl_deploy_matrix *fresh)
{
    for (size_t i = 0; i < matrices->count; i++) {
        struct espl_deploy_matrix *known = &matrices->items[i];
        if (known->rows == fresh->rows && known->cols == fresh->cols &&
            strcmp(known->note.stored_as, fresh->note.stored_as) == 0) {
            return known;
        }
    }
    return NULL;
}

static enum espl_status add_matrix(struct espl_model *model, const struct espl_tensor_spec *spec,
                                   struct espl_deploy_matrices *matrices, struct espl_error *err)
{
    struct espl_quant_linear linear = {0};
    struct espl_deploy_matrix fresh = {.spec = spec};
    enum espl_status status =
        espl_quant_linear_read_stored(model, spec->layer, spec->role, &linear, err);
    if (status != ESPL_OK) {
        return status;
    }
    fresh.rows = linear.out;
    fresh.cols = linear.normal;
    fresh.note.modules = 1;
    (void)snprintf(fresh.note.module, sizeof fresh.note.module, "%s", spec->module);
    (void)snprintf(fresh.note.stored_as, sizeof fresh.note.stored_as, "%s",
                   linear.encoded != NULL ? espl_iebme_areas_name(linear.encoded->layout.areas)
                                          : "dense");
    espl_quant_linear_free(&linear);
    struct espl_deploy_matrix *known = find_like(matrices, &fresh);
    if (known != NULL) {
        known->note.modules++;
        return ESPL_OK;
    }
    if (matrices->count == ESPL_DEPLOY_MAX_MATRICES) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "the model has more than %d different matrices",
                         (int)ESPL_DEPLOY_MAX_MATRICES);
    }
    matrices->items[matrices->count++] = fresh;
    return ESPL_OK;
}

enum espl_status espl_deploy_find(struct espl_model *model, struct espl_deploy_matrices *matrices,
                                  struct espl_error *err)
{
    const uint64_t layers = espl_model_get_config(model)->layers;
    enum espl_status status = ESPL_OK;
    matrices->count = 0;
    for (uint64_t layer = 0; status == ESPL_OK && layer < layers; layer++) {
        const struct espl_tensor_spec *spec = NULL;
        size_t index = 0;
        while (status == ESPL_OK && (spec = espl_coded_next(model, layer, &index)) != NULL) {
            status = add_matrix(model, spec, matrices, err);
        }
    }
    if (status == ESPL_OK && matrices->count == 0) {
        status = espl_fail(err, ESPL_E_KIND, "no linear of the model is quantised");
    }
    return status;
}

/* The linear as the CUDA kernels take layers. An input that already stands in its order is not
 * gathered. */
static struct espl_spmm_layer layer_of(const struct espl_quant_linear *linear,
                                       const struct espl_quant_scheme *scheme)
{
    return (struct espl_spmm_layer){.shape =
                                        espl_quant_shape_of(linear, 1, scheme->activation_bits),
                                    .weights = {.scales = linear->scales,
                                                .outlier_codes = linear->outlier_codes,
                                                .outlier_scales = linear->outlier_scales,
                                                .bias = linear->bias},
                                    .order = linear->gathered ? NULL : linear->order,
                                    .row_of = linear->row_order};
}

enum espl_status espl_deploy_read(struct espl_model *model, const struct espl_deploy_matrix *matrix,
                                  bool with_layer, struct espl_deploy_layer *layer,
                                  struct espl_error *err)
{
    struct espl_quant_linear *linear = &layer->linear;
    *layer = (struct espl_deploy_layer){.codes = NULL};
    enum espl_status status =
        espl_quant_linear_read(model, matrix->spec->layer, matrix->spec->role, false, linear, err);
    if (status == ESPL_OK) {
        status = espl_coded_unpack(linear, &layer->codes, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const size_t count = matrix->rows * matrix->cols;
    layer->layer = layer_of(linear, espl_model_quant_scheme(model));
    layer->weights = (struct espl_spmm_weights){
        .rows = matrix->rows,
        .cols = matrix->cols,
        .bits = linear->weight_bits,
        .sparsity = 1.0 - (double)espl_format_nonzeros(layer->codes, count) / (double)count,
        .codes = layer->codes,
        .layer = with_layer ? &layer->layer : NULL};
    return ESPL_OK;
}

void espl_deploy_layer_free(struct espl_deploy_layer *layer)
{
    espl_quant_linear_free(&layer->linear);
    free(layer->codes);
    layer->codes = NULL;
}
