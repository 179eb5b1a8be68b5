#include "stages/sparsegpt_prune/sparsegpt_run.h"

#include "core/checked.h"
#include "stages/calibration/hessians.h"
#include "stages/prune_common/prune_store.h"
#include "stages/quant_common/sparsegpt.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Everything a run holds. */
struct sparsegpt_run {
    struct espl_stage_ctx *ctx;
    const struct espl_sparsegpt_params *params;
    struct espl_prune_selection selection;
    struct espl_backend *backend;
    struct espl_model *model;
    const struct espl_model_config *config;
    struct espl_calibration_windows windows;
    struct espl_chains chains; /* 0: dense, 1: pruned */
    struct espl_hessians hessians;
    struct espl_block *block;
};

static enum espl_status open_run(struct sparsegpt_run *run, struct espl_error *err)
{
    enum espl_status status = espl_model_open(espl_ctx_input(run->ctx, "model"),
                                              espl_ctx_store(run->ctx), &run->model, err);
    if (status != ESPL_OK) {
        return status;
    }
    run->config = espl_model_get_config(run->model);
    status = espl_sparsegpt_select(run->config, run->params, &run->selection, err);
    if (status == ESPL_OK) {
        status = espl_calibration_windows_read(run->ctx, run->config, &run->windows, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_open_backend(run->ctx, &run->backend, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const uint64_t counts[ESPL_CHAINS] = {espl_check_windows(run->windows.count),
                                          run->windows.count};
    run->hessians.chains = &run->chains;
    return espl_chains_open(run->ctx, run->model, run->backend, &run->windows, counts, &run->chains,
                            err);
}

static void close_run(struct sparsegpt_run *run)
{
    espl_block_destroy(run->block);
    espl_hessians_free(&run->hessians);
    espl_chains_close(&run->chains);
    free(run->windows.ids);
    espl_backend_close(run->backend);
    espl_prune_selection_free(&run->selection);
    espl_model_close(run->model);
}

/* ---- one linear ---- */

static enum espl_status write_weight(struct espl_artifact *unit,
                                     const struct espl_tensor_spec *spec, const float *w,
                                     struct espl_error *err)
{
    const struct espl_tensor_info info =
        espl_tensor_info_make(spec->path, ESPL_DTYPE_F32, spec->rank, spec->shape);
    return espl_artifact_write(unit, &info, w, err);
}

/* Prunes w in place of the resident block; mask and pruned: room for the result. */
static enum espl_status prune_matrix(struct sparsegpt_run *run, const float *w,
                                     const struct espl_matrix_shape *shape,
                                     const struct espl_inverse_factor *factor, uint8_t *mask,
                                     float *pruned, struct espl_error *err)
{
    const struct espl_prune_params *common = &run->params->common;
    const struct espl_quantiser quantiser = espl_sparsegpt_quantiser(run->params, shape->cols);
    const bool joint = run->params->weight_bits > 0;
    const struct espl_sparsegpt_task task = {
        .shape = *shape,
        .w = w,
        .factor = factor,
        .sparsity = common->sparsity,
        .keep = common->pattern.n,
        .window = common->pattern.m,
        .keep_tail = common->tail == ESPL_PRUNE_TAIL_DENSE,
        .quantiser = joint ? &quantiser : NULL,
        .threads = espl_backend_threads(run->backend),
    };
    struct espl_quantised quantised = {0};
    enum espl_status status = ESPL_OK;
    if (joint) {
        status = espl_quantised_create(&quantiser, shape, &quantised, err);
    }
    if (status == ESPL_OK) {
        status = espl_sparsegpt(&task, mask, pruned, joint ? &quantised : NULL, NULL, err);
    }
    espl_quantised_free(&quantised);
    return status;
}

static enum espl_status prune_linear(struct sparsegpt_run *run,
                                     const struct espl_prune_linear *linear, const double *hessian,
                                     const struct espl_inverse_factor *factor,
                                     struct espl_artifact *unit, struct espl_error *err)
{
    const struct espl_tensor_spec *spec = &linear->spec;
    struct espl_matrix_shape shape = {0, 0};
    float *w = espl_block_weight(run->block, spec->role, &shape);
    size_t mask_bytes = 0;
    uint8_t *mask = NULL;
    float *pruned = NULL;
    double absolute = 0.0;
    double relative = 0.0;
    enum espl_status status = espl_prune_mask_bytes(spec, &mask_bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (w == NULL || shape.rows != spec->shape[0] || shape.cols != spec->shape[1]) {
        return espl_fail(err, ESPL_E_INTERNAL, "block has no weight '%s' of the expected shape",
                         spec->module);
    }
    const size_t count = shape.rows * shape.cols;
    mask = malloc(mask_bytes > 0 ? mask_bytes : 1);
    pruned = malloc(count > 0 ? count * sizeof *pruned : 1);
    if (mask == NULL || pruned == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for a second copy of %zu weights", count);
        goto cleanup;
    }
    status = prune_matrix(run, w, &shape, factor, mask, pruned, err);
    if (status == ESPL_OK) {
        status = espl_output_error(shape.rows, shape.cols, w, pruned, hessian,
                                   espl_backend_threads(run->backend), &absolute, &relative, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_layer_metric(run->ctx, "prune_error", (uint64_t)spec->layer, spec->module,
                                       relative, err);
    }
    if (status == ESPL_OK) {
        status = write_weight(unit, spec, pruned, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_store_mask(run->ctx, run->model, linear, unit, mask, err);
    }
    if (status == ESPL_OK) {
        memcpy(w, pruned, count * sizeof *w);
    }

cleanup:
    free(mask);
    free(pruned);
    return status == ESPL_OK ? status : espl_context(err, "while pruning '%s'", spec->module);
}

/* ---- one input ---- */

static void note_damping(const struct sparsegpt_run *run, uint64_t layer, enum espl_role first,
                         const struct espl_inverse_factor *factor)
{
    if (factor->identity) {
        espl_log(espl_ctx_log(run->ctx), ESPL_LOG_WARN,
                 "block %" PRIu64 ": the Hessian at the input of '%s' has no inverse at any "
                 "damping: pruning by magnitude there, without updates",
                 layer, espl_role_name(first));
    } else if (factor->attempts > 1) {
        espl_log(espl_ctx_log(run->ctx), ESPL_LOG_WARN,
                 "block %" PRIu64 ": the Hessian at the input of '%s' needed damping %g", layer,
                 espl_role_name(first), factor->damp);
    }
}

static enum espl_status prune_site(struct sparsegpt_run *run, uint64_t layer,
                                   enum espl_quant_site site, struct espl_artifact *unit,
                                   struct espl_error *err)
{
    const enum espl_role *roles = espl_quant_site_roles(run->config, site);
    struct espl_hessian *collected = run->hessians.sites[site];
    struct espl_inverse_factor factor = {0};
    double *hessian = NULL;
    size_t values = 0;
    if (collected == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "no Hessian was collected for '%s'",
                         espl_role_name(roles[0]));
    }
    const size_t width = espl_hessian_width(collected);
    if (width > 0 && espl_mul_size(width, width, &values) && values <= SIZE_MAX / sizeof *hessian) {
        hessian = malloc(values * sizeof *hessian);
    }
    if (hessian == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a Hessian of %zu channels", width);
    }
    espl_hessian_matrix(collected, NULL, hessian);
    /* The sums are not needed any more; wide layers need the room. */
    espl_hessian_destroy(collected);
    run->hessians.sites[site] = NULL;
    enum espl_status status =
        espl_inverse_factor_create(hessian, width, run->params->damping, &factor, err);
    if (status == ESPL_OK) {
        note_damping(run, layer, roles[0], &factor);
    }
    for (; *roles != ESPL_ROLE_NONE && status == ESPL_OK; roles++) {
        const struct espl_prune_linear *linear =
            espl_prune_selection_find(&run->selection, layer, *roles);
        if (linear != NULL) {
            status = prune_linear(run, linear, hessian, &factor, unit, err);
        }
    }
    free(hessian);
    espl_inverse_factor_free(&factor);
    return status;
}

static bool site_selected(const struct sparsegpt_run *run, uint64_t layer,
                          enum espl_quant_site site)
{
    const enum espl_role *roles = espl_quant_site_roles(run->config, site);
    while (*roles != ESPL_ROLE_NONE &&
           espl_prune_selection_find(&run->selection, layer, *roles) == NULL) {
        roles++;
    }
    return *roles != ESPL_ROLE_NONE;
}

/* ---- one block ---- */

static enum espl_status prune_block(struct sparsegpt_run *run, uint64_t layer,
                                    struct espl_artifact *unit, struct espl_error *err)
{
    run->hessians.layer = layer;
    for (int site = 0; site < ESPL_QUANT_SITES; site++) {
        run->hessians.wanted[site] = site_selected(run, layer, (enum espl_quant_site)site);
    }
    enum espl_status status = espl_chains_peek(&run->chains, 1, run->block, run->chains.counts[1],
                                               espl_hessians_observe, &run->hessians, err);
    for (int site = 0; site < ESPL_QUANT_SITES && status == ESPL_OK; site++) {
        if (run->hessians.wanted[site]) {
            status = prune_site(run, layer, (enum espl_quant_site)site, unit, err);
        }
    }
    espl_hessians_free(&run->hessians);
    return status;
}

static enum espl_status compute_block(struct sparsegpt_run *run, uint64_t layer,
                                      struct espl_error *err)
{
    struct espl_chains *chains = &run->chains;
    struct espl_artifact *unit = NULL;
    enum espl_status status =
        espl_chains_advance(chains, 0, run->block, chains->counts[0], NULL, NULL, err);
    if (status == ESPL_OK) {
        status = espl_ctx_unit_create(run->ctx, layer, &unit, err);
    }
    if (status == ESPL_OK) {
        status = prune_block(run, layer, unit, err);
    }
    if (status == ESPL_OK) {
        status = espl_chains_advance(chains, 1, run->block, chains->counts[1], NULL, NULL, err);
    }
    const double distance = status == ESPL_OK ? espl_chains_distance(chains) : 0.0;
    if (!isfinite(distance)) {
        status = espl_fail(err, ESPL_E_NUMERIC,
                           "output of the pruned block %" PRIu64 " is not finite", layer);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_layer_metric(run->ctx, "output_error", layer, "block", distance, err);
    }
    /* An unpublished unit belongs to the context, which drops it. */
    return status == ESPL_OK ? espl_ctx_unit_publish(run->ctx, layer, &unit, err) : status;
}

/* Puts the weights of a finished unit into the resident block. */
static enum espl_status load_unit(struct sparsegpt_run *run, uint64_t layer, struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    enum espl_status status = espl_ctx_unit_open(run->ctx, layer, &unit, err);
    for (const enum espl_role *role = espl_forward_block_roles(run->config);
         *role != ESPL_ROLE_NONE && status == ESPL_OK; role++) {
        const struct espl_prune_linear *linear =
            espl_prune_selection_find(&run->selection, layer, *role);
        struct espl_matrix_shape shape = {0, 0};
        float *w = espl_block_weight(run->block, *role, &shape);
        if (linear != NULL) {
            status = espl_artifact_read_rows(unit, linear->spec.path, 0, shape.rows, w,
                                             shape.rows * shape.cols * sizeof *w, err);
        }
    }
    espl_artifact_close(unit);
    return status;
}

/* Windows that must go through block `layer`: all while a block from here on is unfinished, and
 * then only those of the quality check. */
static uint64_t windows_needed(const struct sparsegpt_run *run, uint64_t layer)
{
    for (uint64_t i = layer; i < run->config->layers; i++) {
        if (espl_prune_selection_has_layer(&run->selection, i) &&
            !espl_ctx_unit_done(run->ctx, i)) {
            return run->windows.count;
        }
    }
    return run->chains.counts[0];
}

static enum espl_status run_block(struct sparsegpt_run *run, uint64_t layer, struct espl_error *err)
{
    struct espl_chains *chains = &run->chains;
    const bool selected = espl_prune_selection_has_layer(&run->selection, layer);
    const bool finished = selected && espl_ctx_unit_done(run->ctx, layer);
    enum espl_status status = espl_block_load(chains->forward, layer, &run->block, err);
    if (status != ESPL_OK || (selected && !finished)) {
        return status == ESPL_OK ? compute_block(run, layer, err) : status;
    }
    status = espl_chains_advance(chains, 0, run->block, chains->counts[0], NULL, NULL, err);
    if (status == ESPL_OK && finished) {
        status = load_unit(run, layer, err);
    }
    return status == ESPL_OK ? espl_chains_advance(chains, 1, run->block,
                                                   windows_needed(run, layer), NULL, NULL, err)
                             : status;
}

static enum espl_status finish_run(struct sparsegpt_run *run, struct espl_error *err)
{
    const struct espl_wanda_windows info = {.windows = run->windows.count,
                                            .tokens = run->windows.tokens};
    json_t *pruning = espl_sparsegpt_describe(run->params, &run->selection, &info);
    if (pruning == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
    }
    const enum espl_status status =
        espl_prune_finish(run->ctx, run->model, &run->selection, pruning, err);
    json_decref(pruning);
    return status == ESPL_OK ? espl_ctx_metric(run->ctx, "calibration_windows",
                                               (double)run->windows.count, false, err)
                             : status;
}

enum espl_status espl_sparsegpt_run(struct espl_stage_ctx *ctx,
                                    const struct espl_sparsegpt_params *params,
                                    struct espl_error *err)
{
    struct sparsegpt_run state = {.ctx = ctx, .params = params};
    enum espl_status status = open_run(&state, err);
    for (uint64_t layer = 0; status == ESPL_OK && layer < state.config->layers; layer++) {
        espl_ctx_progress(ctx, layer, state.config->layers, "layer");
        status = run_block(&state, layer, err);
    }
    if (status == ESPL_OK) {
        espl_ctx_progress(ctx, state.config->layers, state.config->layers, "layer");
        status = espl_chains_check(&state.chains, params->max_perplexity_ratio, "pruning", err);
    }
    if (status == ESPL_OK) {
        status = finish_run(&state, err);
    }
    close_run(&state);
    return status;
}
