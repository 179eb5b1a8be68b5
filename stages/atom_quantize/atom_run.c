#include "stages/atom_quantize/atom_run.h"

#include "stages/atom_quantize/atom_block.h"
#include "stages/atom_quantize/atom_linear.h"
#include "stages/prune_common/prune_store.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

static enum espl_status open_run(struct espl_atom_state *state, struct espl_error *err)
{
    struct espl_artifact *input = espl_ctx_input(state->ctx, "model");
    uint64_t counts[ESPL_CHAINS];
    enum espl_status status =
        espl_model_open(input, espl_ctx_store(state->ctx), &state->model, err);
    if (status != ESPL_OK) {
        return status;
    }
    state->config = espl_model_get_config(state->model);
    json_t *description = json_loads(espl_artifact_description(input), 0, NULL);
    status = espl_atom_setup_make(state->config, state->params, description, &state->setup, err);
    json_decref(description);
    if (status == ESPL_OK) {
        status = espl_calibration_windows_read(state->ctx, state->config, &state->windows, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_open_backend(state->ctx, &state->backend, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    espl_atom_windows(&state->setup.scheme, state->windows.count, counts);
    state->moments.chains = &state->chains;
    state->hessians.chains = &state->chains;
    return espl_chains_open(state->ctx, state->model, state->backend, &state->windows, counts,
                            &state->chains, err);
}

static void close_run(struct espl_atom_state *state)
{
    espl_block_destroy(state->block);
    espl_atom_orders_free(state);
    espl_hessians_free(&state->hessians);
    espl_moments_free(&state->moments);
    espl_chains_close(&state->chains);
    free(state->windows.ids);
    espl_backend_close(state->backend);
    espl_atom_setup_free(&state->setup);
    espl_model_close(state->model);
}

/* ---- one block ---- */

/* How far the quantised model's hidden states have moved by now. */
static enum espl_status report_distance(struct espl_atom_state *state, uint64_t layer,
                                        struct espl_error *err)
{
    const double distance = espl_chains_distance(&state->chains);
    if (!isfinite(distance)) {
        return espl_fail(err, ESPL_E_NUMERIC,
                         "output of the quantised block %" PRIu64 " is not finite", layer);
    }
    return espl_ctx_layer_metric(state->ctx, "output_error", layer, "block", distance, err);
}

static enum espl_status compute_block(struct espl_atom_state *state, uint64_t layer,
                                      struct espl_error *err)
{
    struct espl_chains *chains = &state->chains;
    struct espl_artifact *unit = NULL;
    espl_moments_reset(&state->moments, layer);
    enum espl_status status = espl_chains_advance(chains, 0, state->block, chains->counts[0],
                                                  espl_moments_observe, &state->moments, err);
    if (status == ESPL_OK) {
        status = espl_ctx_unit_create(state->ctx, layer, &unit, err);
    }
    if (status == ESPL_OK) {
        status = espl_atom_quantise_block(state, layer, unit, err);
    }
    if (status == ESPL_OK) {
        status = espl_chains_advance(chains, 1, state->block, chains->counts[1], NULL, NULL, err);
    }
    if (status == ESPL_OK) {
        status = report_distance(state, layer, err);
    }
    /* An unpublished unit belongs to the context, which drops it. */
    return status == ESPL_OK ? espl_ctx_unit_publish(state->ctx, layer, &unit, err) : status;
}

/* Puts the codes of a finished unit into the resident block. */
static enum espl_status load_unit(struct espl_atom_state *state, uint64_t layer,
                                  struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    enum espl_status status = espl_ctx_unit_open(state->ctx, layer, &unit, err);
    for (const enum espl_role *role = espl_forward_block_roles(state->config);
         *role != ESPL_ROLE_NONE && status == ESPL_OK; role++) {
        struct espl_quant_linear linear = {0};
        if (espl_prune_selection_find(&state->setup.selection, layer, *role) == NULL) {
            continue;
        }
        status = espl_quant_linear_read_from(unit, state->model, &state->setup.scheme,
                                             (int64_t)layer, *role, false, &linear, err);
        if (status == ESPL_OK) {
            status = espl_block_set_quantised(state->chains.forward, state->block, *role,
                                              &state->setup.scheme, &linear, err);
        }
        espl_quant_linear_free(&linear);
    }
    espl_artifact_close(unit);
    return status;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* A block that is finished, or that nothing is quantised in: hidden states only. */
static enum espl_status pass_block(struct espl_atom_state *state, uint64_t layer, bool finished,
                                   uint64_t windows, struct espl_error *err)
{
    struct espl_chains *chains = &state->chains;
    enum espl_status status = espl_chains_advance(
        chains, 0, state->block, smaller(windows, chains->counts[0]), NULL, NULL, err);
    if (status == ESPL_OK && finished) {
        status = load_unit(state, layer, err);
    }
    espl_atom_simulate_cache(state);
    return status == ESPL_OK
               ? espl_chains_advance(chains, 1, state->block, smaller(windows, chains->counts[1]),
                                     NULL, NULL, err)
               : status;
}

/* Windows that must go through block `layer`: all while a block from here on is unfinished, and
 * then only those of the quality check. */
static uint64_t windows_needed(const struct espl_atom_state *state, uint64_t layer)
{
    for (uint64_t i = layer; i < state->config->layers; i++) {
        if (espl_prune_selection_has_layer(&state->setup.selection, i) &&
            !espl_ctx_unit_done(state->ctx, i)) {
            return state->windows.count;
        }
    }
    return espl_check_windows(state->windows.count);
}

static enum espl_status run_block(struct espl_atom_state *state, uint64_t layer,
                                  struct espl_error *err)
{
    const bool selected = espl_prune_selection_has_layer(&state->setup.selection, layer);
    const bool finished = selected && espl_ctx_unit_done(state->ctx, layer);
    const enum espl_status status =
        espl_block_load(state->chains.forward, layer, &state->block, err);
    if (status != ESPL_OK) {
        return status;
    }
    return selected && !finished
               ? compute_block(state, layer, err)
               : pass_block(state, layer, finished, windows_needed(state, layer), err);
}

/* ---- the output ---- */

struct totals {
    struct espl_atom_counts counts;
    uint64_t damping_raised;
    uint64_t rtn_fallbacks;
};

static uint64_t attribute_count(const struct espl_artifact *unit, const char *name)
{
    int64_t value = 0;
    return espl_parse_int(espl_artifact_attribute(unit, name), &value) && value > 0
               ? (uint64_t)value
               : 0;
}

/* Copies a block's unit into the output and counts what it holds. */
static enum espl_status finish_layer(struct espl_atom_state *state, uint64_t layer,
                                     struct totals *totals, struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    enum espl_status status = espl_ctx_unit_open(state->ctx, layer, &unit, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_artifact_copy_datasets(espl_ctx_output(state->ctx, "model"), unit, err);
    totals->damping_raised += attribute_count(unit, "damping_raised");
    totals->rtn_fallbacks += attribute_count(unit, "rtn_fallbacks");
    for (size_t i = 0; i < state->setup.selection.count && status == ESPL_OK; i++) {
        const struct espl_prune_linear *selected = &state->setup.selection.linears[i];
        struct espl_quant_linear linear = {0};
        if (!selected->selected || (uint64_t)selected->spec.layer != layer) {
            continue;
        }
        status = espl_quant_linear_read_from(unit, state->model, &state->setup.scheme,
                                             selected->spec.layer, selected->spec.role, true,
                                             &linear, err);
        if (status == ESPL_OK) {
            status = espl_atom_count(&linear, &totals->counts, err);
        }
        espl_quant_linear_free(&linear);
    }
    espl_artifact_close(unit);
    return status;
}

static enum espl_status report_totals(struct espl_atom_state *state, const struct totals *totals,
                                      struct espl_error *err)
{
    const double weights = (double)totals->counts.weights;
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"mask_sparsity", (double)totals->counts.removed / weights},
        {"quantised_sparsity", (double)totals->counts.zeros / weights},
        {"bits_per_weight", 8.0 * (double)totals->counts.bytes / weights},
        {"quantised_bytes", (double)totals->counts.bytes},
        {"damping_raised", (double)totals->damping_raised},
        {"rtn_fallbacks", (double)totals->rtn_fallbacks},
        {"calibration_windows", (double)state->windows.count},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && status == ESPL_OK; i++) {
        status = espl_ctx_metric(state->ctx, figures[i].name, figures[i].value, false, err);
    }
    return status;
}

static enum espl_status finish_run(struct espl_atom_state *state, struct espl_error *err)
{
    const struct espl_wanda_windows info = {.windows = state->windows.count,
                                            .tokens = state->windows.tokens};
    struct totals totals = {0};
    json_t *quantisation = espl_atom_describe(state->params, &state->setup, &info);
    if (quantisation == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
    }
    enum espl_status status = espl_model_begin_quantised(espl_ctx_output(state->ctx, "model"),
                                                         state->model, quantisation, err);
    json_decref(quantisation);
    for (uint64_t layer = 0; layer < state->config->layers && status == ESPL_OK; layer++) {
        if (espl_prune_selection_has_layer(&state->setup.selection, layer)) {
            status = finish_layer(state, layer, &totals, err);
        }
    }
    return status == ESPL_OK ? report_totals(state, &totals, err) : status;
}

enum espl_status espl_atom_run(struct espl_stage_ctx *ctx, const struct espl_atom_params *params,
                               struct espl_error *err)
{
    struct espl_atom_state state = {.ctx = ctx, .params = params};
    enum espl_status status = open_run(&state, err);
    for (uint64_t layer = 0; status == ESPL_OK && layer < state.config->layers; layer++) {
        espl_ctx_progress(ctx, layer, state.config->layers, "layer");
        status = run_block(&state, layer, err);
    }
    if (status == ESPL_OK) {
        espl_ctx_progress(ctx, state.config->layers, state.config->layers, "layer");
        status =
            espl_chains_check(&state.chains, params->max_perplexity_ratio, "quantisation", err);
    }
    if (status == ESPL_OK) {
        status = finish_run(&state, err);
    }
    close_run(&state);
    return status;
}
