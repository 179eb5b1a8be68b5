#include "stages/atom_quantize/atom_run.h"

#include "stages/atom_quantize/atom_block.h"
#include "stages/atom_quantize/atom_linear.h"
#include "stages/encode_common/unit_counts.h"

static enum espl_status open_run(struct espl_atom_state *state, struct espl_stage_ctx *ctx,
                                 struct espl_error *err)
{
    enum espl_status status = espl_block_run_open(ctx, &state->run, err);
    state->moments.chains = &state->run.chains;
    state->hessians.chains = &state->run.chains;
    if (status == ESPL_OK) {
        json_t *description =
            json_loads(espl_artifact_description(espl_ctx_input(ctx, "model")), 0, NULL);
        status =
            espl_atom_setup_make(state->run.config, state->params, description, &state->setup, err);
        json_decref(description);
    }
    return status;
}

static void close_run(struct espl_atom_state *state)
{
    espl_atom_orders_free(state);
    espl_hessians_free(&state->hessians);
    espl_moments_free(&state->moments);
    espl_block_run_close(&state->run);
    espl_atom_setup_free(&state->setup);
}

/* ---- one block ---- */

static enum espl_status compute_block(void *user, uint64_t layer, struct espl_artifact *unit,
                                      double *output_error, struct espl_error *err)
{
    struct espl_atom_state *state = user;
    struct espl_chains *chains = &state->run.chains;
    espl_moments_reset(&state->moments, layer);
    enum espl_status status =
        espl_chains_advance(chains, 0, state->run.block, chains->counts.chain[0],
                            espl_moments_observe, &state->moments, err);
    if (status == ESPL_OK) {
        status = espl_atom_quantise_block(state, layer, unit, err);
    }
    if (status == ESPL_OK) {
        status = espl_chains_advance(chains, 1, state->run.block, chains->counts.chain[1], NULL,
                                     NULL, err);
    }
    if (status == ESPL_OK) {
        *output_error = espl_chains_distance(chains);
    }
    return status;
}

/* Puts the codes of a finished unit into the resident block. */
static enum espl_status restore_linear(void *user, const struct espl_prune_linear *selected,
                                       struct espl_artifact *unit, struct espl_error *err)
{
    struct espl_atom_state *state = user;
    const struct espl_tensor_spec *spec = &selected->spec;
    struct espl_quant_linear linear = {0};
    enum espl_status status = espl_quant_linear_read_from(
        unit, state->run.model, &state->setup.scheme, spec->layer, spec->role, false, &linear, err);
    if (status == ESPL_OK) {
        status = espl_block_set_quantised(state->run.chains.forward, state->run.block, spec->role,
                                          &state->setup.scheme, &linear, err);
    }
    espl_quant_linear_free(&linear);
    return status;
}

static enum espl_status restore_block(void *user, uint64_t layer, struct espl_artifact *unit,
                                      struct espl_error *err)
{
    struct espl_atom_state *state = user;
    const enum espl_status status = unit == NULL
                                        ? ESPL_OK
                                        : espl_prune_for_block(&state->setup.selection, layer,
                                                               restore_linear, state, unit, err);
    espl_atom_simulate_cache(state);
    return status;
}

/* ---- the output ---- */

struct totals {
    struct espl_atom_counts counts;
    uint64_t events[ESPL_ATOM_EVENTS];
};

/* What a stored linear holds. */
struct linear_count {
    const struct espl_atom_state *state;
    struct totals *totals;
};

static enum espl_status count_linear(void *user, const struct espl_prune_linear *selected,
                                     struct espl_artifact *unit, struct espl_error *err)
{
    const struct linear_count *count = user;
    struct espl_quant_linear linear = {0};
    enum espl_status status =
        espl_quant_linear_read_from(unit, count->state->run.model, &count->state->setup.scheme,
                                    selected->spec.layer, selected->spec.role, true, &linear, err);
    if (status == ESPL_OK) {
        status = espl_atom_count(&linear, &count->totals->counts, err);
    }
    espl_quant_linear_free(&linear);
    return status;
}

/* Copies a block's unit into the output and counts what it holds. */
static enum espl_status finish_layer(struct espl_atom_state *state, uint64_t layer,
                                     struct totals *totals, struct espl_error *err)
{
    struct linear_count count = {state, totals};
    struct espl_artifact *unit = NULL;
    enum espl_status status = espl_ctx_unit_open(state->run.ctx, layer, &unit, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_artifact_copy_datasets(espl_ctx_output(state->run.ctx, "model"), unit, err);
    if (status == ESPL_OK) {
        status = espl_unit_counts_add(unit, espl_atom_event_names, totals->events, ESPL_ATOM_EVENTS,
                                      err);
    }
    if (status == ESPL_OK) {
        status =
            espl_prune_for_block(&state->setup.selection, layer, count_linear, &count, unit, err);
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
        {espl_atom_event_names[ESPL_ATOM_DAMPING_RAISED],
         (double)totals->events[ESPL_ATOM_DAMPING_RAISED]},
        {espl_atom_event_names[ESPL_ATOM_RTN_FALLBACKS],
         (double)totals->events[ESPL_ATOM_RTN_FALLBACKS]},
        {"calibration_windows", (double)state->run.windows.count},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && status == ESPL_OK; i++) {
        status = espl_ctx_metric(state->run.ctx, figures[i].name, figures[i].value, false, err);
    }
    return status;
}

static enum espl_status finish_run(struct espl_atom_state *state, struct espl_error *err)
{
    struct espl_block_run *run = &state->run;
    const struct espl_calibration_info info = espl_calibration_info_of(&run->windows);
    struct totals totals = {0};
    enum espl_status status = espl_chains_check(
        &run->chains, state->params->max_perplexity_ratio, "quantisation",
        "the layer figures of the run show where the output error grows most", err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *quantisation = espl_atom_describe(state->params, &state->setup, &info);
    if (quantisation == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
    }
    status = espl_model_begin_quantised(espl_ctx_output(run->ctx, "model"), run->model,
                                        quantisation, err);
    json_decref(quantisation);
    for (uint64_t layer = 0; layer < run->config->layers && status == ESPL_OK; layer++) {
        if (espl_prune_selection_has_layer(&state->setup.selection, layer)) {
            status = finish_layer(state, layer, &totals, err);
        }
    }
    return status == ESPL_OK ? report_totals(state, &totals, err) : status;
}

enum espl_status espl_atom_run(struct espl_stage_ctx *ctx, const struct espl_atom_params *params,
                               struct espl_error *err)
{
    static const struct espl_block_steps steps = {"quantised", compute_block, restore_block};
    struct espl_atom_state state = {.params = params};
    enum espl_status status = open_run(&state, ctx, err);
    if (status == ESPL_OK) {
        const struct espl_chain_counts counts =
            espl_atom_chain_counts(&state.setup.scheme, state.run.windows.count);
        status =
            espl_block_run_all(&state.run, &state.setup.selection, &counts, &steps, &state, err);
    }
    if (status == ESPL_OK) {
        status = finish_run(&state, err);
    }
    close_run(&state);
    return status;
}
