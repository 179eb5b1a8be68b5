#include "stages/calibration/block_run.h"

#include "stages/prune_common/prune_store.h"

#include <inttypes.h>
#include <math.h>

enum espl_status espl_block_run_open(struct espl_stage_ctx *ctx, struct espl_block_run *run,
                                     struct espl_error *err)
{
    run->ctx = ctx;
    enum espl_status status =
        espl_model_open(espl_ctx_input(ctx, "model"), espl_ctx_store(ctx), &run->model, err);
    if (status != ESPL_OK) {
        return status;
    }
    run->config = espl_model_get_config(run->model);
    status = espl_calibration_windows_read(ctx, run->config, &run->windows, err);
    return status == ESPL_OK ? espl_prune_open_backend(ctx, &run->backend, err) : status;
}

void espl_block_run_close(struct espl_block_run *run)
{
    espl_block_destroy(run->block);
    espl_chains_close(&run->chains);
    espl_calibration_windows_free(&run->windows);
    espl_backend_close(run->backend);
    espl_model_close(run->model);
}

/* A block that no earlier run finished. */
static enum espl_status compute_block(struct espl_block_run *run, uint64_t layer,
                                      const struct espl_block_steps *steps, void *user,
                                      struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    double output_error = 0.0;
    enum espl_status status = espl_ctx_unit_create(run->ctx, layer, &unit, err);
    if (status == ESPL_OK) {
        status = steps->compute(user, layer, unit, &output_error, err);
    }
    if (status == ESPL_OK && !isfinite(output_error)) {
        espl_fail(err, ESPL_E_NUMERIC, "output of the %s block %" PRIu64 " is not finite",
                  steps->changed, layer);
        status = espl_hint(err, "check the model: run 'evaluate' on the input of this stage");
    }
    if (status == ESPL_OK) {
        status = espl_ctx_layer_metric(run->ctx, "output_error", layer, "block", output_error, err);
    }
    /* An unpublished unit belongs to the context, which drops it. */
    return status == ESPL_OK ? espl_ctx_unit_publish(run->ctx, layer, &unit, err) : status;
}

/* Windows that must go through block `layer`: all while a block from here on is unfinished, and
 * then only those of the quality check. */
static uint64_t windows_needed(const struct espl_block_run *run, uint64_t layer)
{
    for (uint64_t i = layer; i < run->config->layers; i++) {
        if (espl_prune_selection_has_layer(run->selection, i) && !espl_ctx_unit_done(run->ctx, i)) {
            return run->windows.count;
        }
    }
    return espl_check_windows(run->windows.count);
}

static enum espl_status advance(struct espl_block_run *run, unsigned chain, uint64_t windows,
                                struct espl_error *err)
{
    const uint64_t most = run->chains.counts.chain[chain];
    return espl_chains_advance(&run->chains, chain, run->block, windows < most ? windows : most,
                               NULL, NULL, err);
}

/* A block that is finished, or that has nothing selected: hidden states only. */
static enum espl_status pass_block(struct espl_block_run *run, uint64_t layer, bool finished,
                                   const struct espl_block_steps *steps, void *user,
                                   struct espl_error *err)
{
    const uint64_t windows = windows_needed(run, layer);
    struct espl_artifact *unit = NULL;
    enum espl_status status = advance(run, 0, windows, err);
    if (status == ESPL_OK && finished) {
        status = espl_ctx_unit_open(run->ctx, layer, &unit, err);
    }
    if (status == ESPL_OK) {
        status = steps->restore(user, layer, unit, err);
    }
    espl_artifact_close(unit);
    return status == ESPL_OK ? advance(run, 1, windows, err) : status;
}

enum espl_status espl_block_run_all(struct espl_block_run *run,
                                    const struct espl_prune_selection *selection,
                                    const struct espl_chain_counts *counts,
                                    const struct espl_block_steps *steps, void *user,
                                    struct espl_error *err)
{
    const uint64_t layers = run->config->layers;
    run->selection = selection;
    enum espl_status status = espl_chains_open(run->ctx, run->model, run->backend, &run->windows,
                                               counts, &run->chains, err);
    for (uint64_t layer = 0; status == ESPL_OK && layer < layers; layer++) {
        const bool selected = espl_prune_selection_has_layer(selection, layer);
        const bool finished = selected && espl_ctx_unit_done(run->ctx, layer);
        espl_ctx_progress(run->ctx, layer, layers, "layer");
        status = espl_block_load(run->chains.forward, layer, &run->block, err);
        if (status == ESPL_OK) {
            status = selected && !finished ? compute_block(run, layer, steps, user, err)
                                           : pass_block(run, layer, finished, steps, user, err);
        }
    }
    if (status == ESPL_OK) {
        espl_ctx_progress(run->ctx, layers, layers, "layer");
    }
    return status;
}

enum espl_status espl_block_run_finish_pruned(struct espl_block_run *run, double max_ratio,
                                              const char *advice, json_t *pruning,
                                              struct espl_error *err)
{
    enum espl_status status = espl_chains_check(&run->chains, max_ratio, "pruning", advice, err);
    if (status != ESPL_OK) {
        json_decref(pruning);
        return status;
    }
    status = espl_prune_finish(run->ctx, run->model, run->selection, pruning, err);
    return status == ESPL_OK ? espl_ctx_metric(run->ctx, "calibration_windows",
                                               (double)run->windows.count, false, err)
                             : status;
}

enum espl_status espl_block_run_weight(const struct espl_block_run *run,
                                       const struct espl_tensor_spec *spec, float **w,
                                       struct espl_matrix_shape *shape, struct espl_error *err)
{
    *w = espl_block_weight(run->block, spec->role, shape);
    if (*w == NULL || shape->rows != spec->shape[0] || shape->cols != spec->shape[1]) {
        return espl_fail(err, ESPL_E_INTERNAL, "block has no weight '%s' of the expected shape",
                         spec->module);
    }
    return ESPL_OK;
}
