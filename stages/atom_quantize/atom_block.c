#include "stages/atom_quantize/atom_block.h"

#include "stages/atom_quantize/atom_linear.h"
#include "stages/calibration/site_matrix.h"
#include "stages/encode_common/unit_counts.h"
#include "stages/prune_common/prune_store.h"
#include "stages/quant_common/channel_order.h"

#include <stdlib.h>

const char *const espl_atom_event_names[ESPL_ATOM_EVENTS] = {"damping_raised", "rtn_fallbacks"};

/* Rows before the last linear move only when all linears concerned are quantised. */
static bool rows_move(const struct espl_atom_state *state, uint64_t layer)
{
    const enum espl_quant_site sites[] = {ESPL_QUANT_MLP_IN, ESPL_QUANT_MLP_MID};
    for (size_t i = 0; i < 2; i++) {
        for (const enum espl_role *role = espl_quant_site_roles(state->run.config, sites[i]);
             *role != ESPL_ROLE_NONE; role++) {
            if (espl_prune_selection_find(&state->setup.selection, layer, *role) == NULL) {
                return false;
            }
        }
    }
    return true;
}

void espl_atom_orders_free(struct espl_atom_state *state)
{
    for (size_t site = 0; site < ESPL_QUANT_SITES; site++) {
        free(state->orders[site]);
        state->orders[site] = NULL;
    }
}

static enum espl_status make_orders(struct espl_atom_state *state, uint64_t layer,
                                    struct espl_artifact *unit, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    espl_atom_orders_free(state);
    for (int i = 0; i < ESPL_QUANT_SITES && state->setup.scheme.reordered; i++) {
        const enum espl_quant_site site = (enum espl_quant_site)i;
        const size_t width = state->moments.widths[site];
        if (!espl_site_selected(state->run.config, &state->setup.selection, layer, site)) {
            continue;
        }
        state->orders[site] = malloc(width * sizeof *state->orders[site]);
        if (state->orders[site] == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "no memory for an order of %zu channels", width);
        }
        status = espl_reorder_ascending(state->moments.sums[site], width, state->orders[site], err);
        if (status == ESPL_OK) {
            status =
                espl_quant_order_write(unit, (int64_t)layer, site, state->orders[site], width, err);
        }
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

void espl_atom_simulate_cache(struct espl_atom_state *state)
{
    const struct espl_quant_scheme *scheme = &state->setup.scheme;
    if (scheme->kv_bits != ESPL_QUANT_FLOAT_BITS) {
        espl_block_simulate_kv(state->run.block, scheme->kv_bits, (float)scheme->kv_clip);
    }
}

/* The quantisers that the finished model will have, around weights that are still float. */
static enum espl_status insert_quantisers(struct espl_atom_state *state, uint64_t layer,
                                          struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = &state->setup.scheme;
    enum espl_status status = ESPL_OK;
    espl_atom_simulate_cache(state);
    for (const enum espl_role *role = espl_forward_block_roles(state->run.config);
         *role != ESPL_ROLE_NONE && status == ESPL_OK; role++) {
        const struct espl_prune_linear *linear =
            espl_prune_selection_find(&state->setup.selection, layer, *role);
        if (linear == NULL || scheme->activation_bits == ESPL_QUANT_FLOAT_BITS) {
            continue;
        }
        const struct espl_quant_width *width =
            espl_quant_scheme_width(scheme, (size_t)linear->spec.shape[1]);
        const struct espl_input_quantiser quantiser = {
            .bits = scheme->activation_bits,
            .outliers = width->outliers,
            .group_size = width->group_size,
            .clip = (float)scheme->activation_clip,
            .order = state->orders[espl_quant_site_of(*role)],
        };
        status = espl_block_simulate_input(state->run.chains.forward, state->run.block, *role,
                                           &quantiser, err);
    }
    return status;
}

/* ---- one linear ---- */

static enum espl_status read_mask(const struct espl_atom_state *state,
                                  const struct espl_tensor_spec *spec, const float *w,
                                  uint8_t **mask, struct espl_error *err)
{
    const size_t rows = (size_t)spec->shape[0];
    const size_t cols = (size_t)spec->shape[1];
    size_t bytes = 0;
    if (!espl_model_has_mask(state->run.model, spec)) {
        const enum espl_status status = espl_atom_mask_of_zeros(rows, cols, w, mask, err);
        if (*mask != NULL) {
            espl_log(espl_ctx_log(state->run.ctx), ESPL_LOG_INFO,
                     "'%s' has no mask but zeros among its weights: they stay 0", spec->module);
        }
        return status;
    }
    enum espl_status status = espl_prune_mask_bytes(spec, &bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    *mask = malloc(bytes > 0 ? bytes : 1);
    if (*mask == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a mask of %zu bytes", bytes);
    }
    return espl_model_read_mask(state->run.model, spec, 0, spec->shape[0], *mask, err);
}

static enum espl_status read_bias(const struct espl_atom_state *state,
                                  const struct espl_tensor_spec *spec, float **bias,
                                  struct espl_error *err)
{
    const struct espl_tensor_spec *tensor =
        espl_model_find(state->run.model, spec->layer, spec->role, true);
    if (tensor == NULL) {
        return ESPL_OK;
    }
    *bias = malloc((size_t)tensor->shape[0] * sizeof **bias);
    if (*bias == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a bias");
    }
    return espl_model_read_f32(state->run.model, tensor, 0, tensor->shape[0], *bias, err);
}

/* Share of the input's energy that the outlier channels carry. */
static double outlier_share(const struct espl_atom_state *state, enum espl_quant_site site,
                            size_t outliers)
{
    const size_t width = state->moments.widths[site];
    const double *sums = state->moments.sums[site];
    const int32_t *order = state->orders[site];
    double all = 0.0;
    double share = 0.0;
    for (size_t place = 0; place < width; place++) {
        const double energy = sums[order != NULL ? (size_t)order[place] : place];
        all += energy;
        share += place + outliers >= width ? energy : 0.0;
    }
    return all > 0.0 ? share / all : 0.0;
}

static enum espl_status report_linear(struct espl_atom_state *state,
                                      const struct espl_tensor_spec *spec,
                                      const struct espl_atom_result *result, struct espl_error *err)
{
    const uint64_t layer = (uint64_t)spec->layer;
    struct espl_atom_counts counts = {0};
    enum espl_status status = espl_atom_count(&result->linear, &counts, err);
    const struct {
        const char *series;
        double value;
    } figures[] = {
        {"quant_error", result->error},
        {"outlier_share",
         outlier_share(state, espl_quant_site_of(spec->role), result->linear.outliers)},
        {"scale_min", (double)result->smallest_scale},
        {"scale_max", (double)result->largest_scale},
        {"mask_sparsity", (double)counts.removed / (double)counts.weights},
        {"quantised_sparsity", (double)counts.zeros / (double)counts.weights},
    };
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && status == ESPL_OK; i++) {
        status = espl_ctx_layer_metric(state->run.ctx, figures[i].series, layer, spec->module,
                                       figures[i].value, err);
    }
    return status;
}

static enum espl_status quantise_linear(struct espl_atom_state *state,
                                        const struct espl_prune_linear *selected,
                                        const struct espl_site_matrix *matrix,
                                        struct espl_artifact *unit, struct espl_error *err)
{
    const struct espl_tensor_spec *spec =
        espl_model_find(state->run.model, selected->spec.layer, selected->spec.role, false);
    const enum espl_quant_site site = espl_quant_site_of(spec->role);
    const bool moved = rows_move(state, (uint64_t)spec->layer);
    struct espl_matrix_shape shape = {0, 0};
    struct espl_atom_result result = {0};
    uint8_t *mask = NULL;
    float *bias = NULL;
    float *w = NULL;
    enum espl_status status = espl_block_run_weight(&state->run, spec, &w, &shape, err);
    if (status == ESPL_OK) {
        status = read_mask(state, spec, w, &mask, err);
    }
    if (status == ESPL_OK) {
        status = read_bias(state, spec, &bias, err);
    }
    if (status == ESPL_OK) {
        const struct espl_atom_task task = {
            .rows = shape.rows,
            .cols = shape.cols,
            .w = w,
            .mask = mask,
            .bias = bias,
            .order = state->orders[site],
            .row_order =
                moved && site == ESPL_QUANT_MLP_IN ? state->orders[ESPL_QUANT_MLP_MID] : NULL,
            .gathered = moved && site == ESPL_QUANT_MLP_MID,
            .hessian = matrix->hessian,
            .factor = state->setup.scheme.gptq ? &matrix->factor : NULL,
            .quantiser = espl_atom_quantiser(&state->setup.scheme, shape.cols),
            .removed = (enum espl_removed_rule)state->params->removed,
            .error_work = ESPL_ATOM_ERROR_WORK,
            .threads = espl_backend_threads(state->run.backend),
        };
        status = espl_atom_quantise(&task, &result, err);
    }
    if (status == ESPL_OK) {
        status = report_linear(state, spec, &result, err);
    }
    if (status == ESPL_OK) {
        status = espl_quant_linear_write(unit, spec, &result.linear, err);
    }
    if (status == ESPL_OK) {
        status = espl_block_set_quantised(state->run.chains.forward, state->run.block, spec->role,
                                          &state->setup.scheme, &result.linear, err);
    }
    espl_quant_linear_free(&result.linear);
    free(mask);
    free(bias);
    return status == ESPL_OK ? status : espl_context(err, "while quantising '%s'", spec->module);
}

/* ---- one input ---- */

static enum espl_status quantise_site(struct espl_atom_state *state, uint64_t layer,
                                      enum espl_quant_site site, struct espl_artifact *unit,
                                      uint64_t events[ESPL_ATOM_EVENTS], struct espl_error *err)
{
    struct espl_site_matrix matrix = {0};
    enum espl_status status =
        espl_site_matrix_take(&state->hessians, site, state->orders[site],
                              state->setup.scheme.gptq ? state->params->damping : 0.0,
                              "rounding to nearest instead", &matrix, err);
    for (const enum espl_role *role = espl_quant_site_roles(state->run.config, site);
         *role != ESPL_ROLE_NONE && status == ESPL_OK; role++) {
        const struct espl_prune_linear *selected =
            espl_prune_selection_find(&state->setup.selection, layer, *role);
        if (selected != NULL) {
            status = quantise_linear(state, selected, &matrix, unit, err);
            events[ESPL_ATOM_DAMPING_RAISED] +=
                matrix.factor.attempts > 1 && !matrix.factor.identity;
            events[ESPL_ATOM_RTN_FALLBACKS] += matrix.factor.identity;
        }
    }
    espl_site_matrix_free(&matrix);
    return status;
}

enum espl_status espl_atom_quantise_block(struct espl_atom_state *state, uint64_t layer,
                                          struct espl_artifact *unit, struct espl_error *err)
{
    uint64_t events[ESPL_ATOM_EVENTS] = {0};
    enum espl_status status = make_orders(state, layer, unit, err);
    if (status == ESPL_OK) {
        status = insert_quantisers(state, layer, err);
    }
    espl_hessians_want(&state->hessians, &state->setup.selection, layer);
    if (status == ESPL_OK) {
        status = espl_chains_peek(&state->run.chains, 1, state->run.block, espl_hessians_observe,
                                  &state->hessians, err);
    }
    for (int site = 0; site < ESPL_QUANT_SITES && status == ESPL_OK; site++) {
        if (state->hessians.wanted[site]) {
            status = quantise_site(state, layer, (enum espl_quant_site)site, unit, events, err);
        }
    }
    espl_hessians_free(&state->hessians);
    return status == ESPL_OK
               ? espl_unit_counts_write(unit, espl_atom_event_names, events, ESPL_ATOM_EVENTS, err)
               : status;
}
