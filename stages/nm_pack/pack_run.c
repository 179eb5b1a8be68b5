#include "stages/nm_pack/pack_run.h"

#include "core/checked.h"
#include "espalier/kernels.h"
#include "stages/encode_common/encoded_output.h"
#include "stages/encode_common/unit_counts.h"
#include "stages/nm_pack/pack_linear.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct state {
    struct espl_stage_ctx *ctx;
    const struct espl_pack_params *params;
    struct espl_model *model;
    struct espl_pack_setup setup;
};

static enum espl_status open_run(struct state *state, struct espl_error *err)
{
    struct espl_artifact *artifact = espl_ctx_input(state->ctx, "model");
    json_t *description = json_loads(espl_artifact_description(artifact), 0, NULL);
    enum espl_status status =
        espl_model_open(artifact, espl_ctx_store(state->ctx), &state->model, err);
    if (status == ESPL_OK) {
        status = espl_pack_setup_make(espl_model_get_config(state->model), state->params,
                                      description, &state->setup, err);
    }
    json_decref(description);
    return status;
}

/* ---- one linear ---- */

static enum espl_status report_linear(const struct state *state,
                                      const struct espl_tensor_spec *spec,
                                      const struct espl_nm_layout *layout,
                                      const uint64_t counts[ESPL_PACK_COUNTS],
                                      struct espl_error *err)
{
    char kept[32];
    (void)snprintf(kept, sizeof kept, "kept_of_%u", layout->m);
    const struct {
        const char *name;
        double value;
        bool wanted;
    } figures[] = {
        {kept, (double)layout->n, true},
        {"shared_rows", (double)layout->v, layout->n != layout->m},
        {"packed_bytes", (double)counts[ESPL_PACK_BYTES], true},
        {"bits_per_weight",
         8.0 * (double)counts[ESPL_PACK_BYTES] / (double)counts[ESPL_PACK_WEIGHTS], true},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && status == ESPL_OK; i++) {
        if (figures[i].wanted) {
            status = espl_ctx_layer_metric(state->ctx, figures[i].name, (uint64_t)spec->layer,
                                           spec->module, figures[i].value, err);
        }
    }
    return status;
}

/* weights (rows, cols), masked, and their mask; mask NULL when the model has none. */
static enum espl_status read_weights(struct state *state, const struct espl_tensor_spec *spec,
                                     float **weights, uint8_t **mask, struct espl_error *err)
{
    const size_t rows = (size_t)spec->shape[0];
    const size_t cols = (size_t)spec->shape[1];
    const bool masked = espl_model_has_mask(state->model, spec);
    size_t count = 0;
    size_t bytes = 0;
    const bool fits = espl_mul_size(rows, cols, &count) && espl_mul_size(count, 4, &bytes);
    *weights = fits ? malloc(bytes) : NULL;
    *mask = masked ? malloc(rows * espl_mask_stride(cols)) : NULL;
    if (*weights == NULL || (masked && *mask == NULL)) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu x %zu weights", rows, cols);
    }
    enum espl_status status = espl_model_read_f32(state->model, spec, 0, rows, *weights, err);
    if (status == ESPL_OK && masked) {
        status = espl_model_read_mask(state->model, spec, 0, rows, *mask, err);
    }
    return status;
}

static enum espl_status pack_linear(struct state *state, const struct espl_tensor_spec *spec,
                                    struct espl_artifact *unit, uint64_t totals[ESPL_PACK_COUNTS],
                                    struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = &state->setup.scheme;
    struct espl_quant_linear linear = espl_quant_linear_sizes(
        scheme, espl_quant_scheme_width(scheme, (size_t)spec->shape[1]), (size_t)spec->shape[0]);
    float *weights = NULL;
    uint8_t *mask = NULL;
    uint64_t counts[ESPL_PACK_COUNTS];
    enum espl_status status = read_weights(state, spec, &weights, &mask, err);
    if (status == ESPL_OK) {
        status = espl_pack_linear(&state->setup, weights, mask, state->params->verify, &linear,
                                  counts, err);
    }
    if (status == ESPL_OK) {
        status = espl_quant_linear_write(unit, spec, &linear, err);
    }
    if (status == ESPL_OK) {
        status = report_linear(state, spec, &linear.nm->layout, counts, err);
    }
    for (size_t i = 0; i < ESPL_PACK_COUNTS && status == ESPL_OK; i++) {
        espl_unit_count_add(&totals[i], counts[i]);
    }
    if (status != ESPL_OK) {
        espl_context(err, "packing '%s'", spec->module);
    }
    free(weights);
    free(mask);
    espl_quant_linear_free(&linear);
    return status;
}

/* ---- blocks ---- */

static bool is_selected(const struct state *state, const struct espl_tensor_spec *spec)
{
    return !spec->is_bias && espl_prune_selection_find(&state->setup.selection,
                                                       (uint64_t)spec->layer, spec->role) != NULL;
}

static enum espl_status run_block(void *user, uint64_t layer, struct espl_error *err)
{
    struct state *state = user;
    struct espl_artifact *unit = NULL;
    uint64_t totals[ESPL_PACK_COUNTS] = {0};
    enum espl_status status = espl_ctx_unit_create(state->ctx, layer, &unit, err);
    for (size_t i = 0; status == ESPL_OK && i < espl_model_tensor_count(state->model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(state->model, i);
        if (spec->layer != (int64_t)layer) {
            continue;
        }
        if (espl_ctx_cancelled(state->ctx)) {
            return espl_ctx_stop(state->ctx, err);
        }
        status = is_selected(state, spec) ? pack_linear(state, spec, unit, totals, err)
                                          : espl_model_copy_tensor(unit, state->model, spec, err);
    }
    if (status == ESPL_OK) {
        status = espl_unit_counts_write(unit, espl_pack_names, totals, ESPL_PACK_COUNTS, err);
    }
    /* An unpublished unit belongs to the context, which drops it. */
    return status == ESPL_OK ? espl_ctx_unit_publish(state->ctx, layer, &unit, err) : status;
}

/* ---- the output ---- */

static enum espl_status begin_output(const struct state *state, struct espl_error *err)
{
    json_t *encoding = espl_pack_encoding(&state->setup);
    json_t *quantisation = espl_pack_quantisation(&state->setup);
    const enum espl_status status =
        encoding == NULL || quantisation == NULL
            ? espl_fail(err, ESPL_E_NOMEM, "no memory for a description")
            : espl_model_begin_encoded(espl_ctx_output(state->ctx, "model"), state->model, encoding,
                                       quantisation, err);
    json_decref(encoding);
    json_decref(quantisation);
    return status;
}

static enum espl_status report_totals(const struct state *state,
                                      const uint64_t totals[ESPL_PACK_COUNTS],
                                      struct espl_error *err)
{
    const double weights = (double)totals[ESPL_PACK_WEIGHTS];
    enum espl_status status = espl_ctx_metric(
        state->ctx, "bits_per_weight", 8.0 * (double)totals[ESPL_PACK_BYTES] / weights, false, err);
    for (size_t i = 0; i < ESPL_PACK_COUNTS && status == ESPL_OK; i++) {
        if (i < ESPL_PACK_DENSE || totals[i] > 0) { /* a V that no linear has is not worth a line */
            status = espl_ctx_metric(state->ctx, espl_pack_names[i], (double)totals[i], false, err);
        }
    }
    return status;
}

enum espl_status espl_pack_run(struct espl_stage_ctx *ctx, const struct espl_pack_params *params,
                               struct espl_error *err)
{
    struct state state = {.ctx = ctx, .params = params};
    uint64_t totals[ESPL_PACK_COUNTS] = {0};
    enum espl_status status = open_run(&state, err);
    if (status == ESPL_OK) {
        status = espl_encoded_blocks(ctx, state.model, run_block, &state, err);
    }
    if (status == ESPL_OK) {
        status = begin_output(&state, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_encoded_assemble(ctx, state.model, espl_pack_names, totals, ESPL_PACK_COUNTS, err);
    }
    if (status == ESPL_OK) {
        status = report_totals(&state, totals, err);
    }
    espl_pack_setup_free(&state.setup);
    espl_model_close(state.model);
    return status;
}
