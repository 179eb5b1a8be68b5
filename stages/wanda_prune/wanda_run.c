#include "stages/wanda_prune/wanda_run.h"

#include "eval/forward.h"
#include "stages/prune_common/prune_store.h"
#include "stages/wanda_prune/wanda_calibrate.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A block whose output moved this far from the dense one is worth a warning. */
static const double LARGE_OUTPUT_ERROR = 0.5;
enum { NAMED_BLOCKS = 3, IDS_LIMIT = 1 << 30 };

/* Everything a run holds. */
struct wanda_run {
    struct espl_stage_ctx *ctx;
    const struct espl_wanda_params *params;
    struct espl_wanda_task task;
    struct espl_backend *backend;
    struct espl_model *model;
    const struct espl_model_config *config;
    struct espl_prune_selection selection;
    struct espl_wanda_windows info;
    int32_t *ids;
    struct espl_calibration calibration;
    struct espl_block *block;
    double *output_errors; /* one a block; 0 where nothing is pruned */
};

static enum espl_status read_windows(struct wanda_run *run, struct espl_error *err)
{
    struct espl_artifact *tokens = espl_ctx_input(run->ctx, "tokens");
    const struct espl_tensor_info *ids = espl_artifact_find(tokens, "/tokens/ids");
    json_error_t json_err;
    json_t *description = json_loads(espl_artifact_description(tokens), 0, &json_err);
    run->info = espl_wanda_windows_from_json(description);
    json_decref(description);
    if (ids == NULL || ids->dtype != ESPL_DTYPE_I32 || ids->rank < 1 || ids->rank > 2) {
        return espl_fail(err, ESPL_E_KIND, "input 'tokens' has no int32 token ids");
    }
    run->info.windows = ids->rank == 2 ? ids->shape[0] : 0;
    run->info.tokens = ids->rank == 2 ? ids->shape[1] : ids->shape[0];
    const enum espl_status status = espl_wanda_check_windows(run->config, &run->info, err);
    if (status != ESPL_OK) {
        return status;
    }
    void *data = NULL;
    size_t bytes = 0;
    const enum espl_status read =
        espl_artifact_read(tokens, ids->path, IDS_LIMIT, &data, &bytes, err);
    run->ids = data;
    return read;
}

static enum espl_status open_run(struct wanda_run *run, struct espl_error *err)
{
    enum espl_status status = espl_model_open(espl_ctx_input(run->ctx, "model"),
                                              espl_ctx_store(run->ctx), &run->model, err);
    if (status != ESPL_OK) {
        return status;
    }
    run->config = espl_model_get_config(run->model);
    status = espl_wanda_check_rule(run->params, err);
    if (status == ESPL_OK) {
        status = espl_prune_select(run->config, &run->params->common, &run->selection, err);
    }
    if (status == ESPL_OK) {
        status = read_windows(run, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_open_backend(run->ctx, &run->backend, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    run->output_errors = calloc((size_t)run->config->layers, sizeof *run->output_errors);
    if (run->output_errors == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %" PRIu64 " block errors",
                         run->config->layers);
    }
    return espl_calibration_open(run->ctx, run->model, run->backend, &run->selection, run->ids,
                                 run->info.windows, (size_t)run->info.tokens, &run->calibration,
                                 err);
}

static void close_run(struct wanda_run *run)
{
    espl_block_destroy(run->block);
    espl_calibration_close(&run->calibration);
    free(run->output_errors);
    free(run->ids);
    espl_backend_close(run->backend);
    espl_prune_selection_free(&run->selection);
    espl_model_close(run->model);
}

/* Masks one linear of the resident block from the sums collected in the dense pass, and stores the
 * mask in the unit. */
static enum espl_status prune_linear(struct wanda_run *run, const struct espl_prune_linear *linear,
                                     struct espl_artifact *unit, struct espl_error *err)
{
    const struct espl_tensor_spec *spec = &linear->spec;
    struct espl_matrix_shape shape = {0, 0};
    float *w = espl_block_weight(run->block, spec->role, &shape);
    size_t mask_bytes = 0;
    float *norm = NULL;
    uint8_t *mask = NULL;
    enum espl_status status = espl_prune_mask_bytes(spec, &mask_bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (w == NULL || shape.rows != spec->shape[0] || shape.cols != spec->shape[1]) {
        return espl_fail(err, ESPL_E_INTERNAL, "block has no weight '%s' of the expected shape",
                         spec->module);
    }
    norm = malloc(shape.cols * sizeof *norm);
    mask = malloc(mask_bytes);
    if (norm == NULL || mask == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for a mask of %zu bytes", mask_bytes);
        goto cleanup;
    }
    const size_t bad = espl_wanda_norms(espl_calibration_sums(&run->calibration, spec->role),
                                        shape.cols, run->info.windows, norm);
    if (bad < shape.cols) {
        status = espl_fail(err, ESPL_E_NUMERIC,
                           "norm of input channel %zu of '%s' (layer %" PRId64 ") is not finite",
                           bad, spec->module, spec->layer);
        goto cleanup;
    }
    status = espl_wanda_mask(run->backend, &shape, w, norm, &run->task, mask, err);
    if (status == ESPL_OK) {
        status = espl_prune_store_mask(run->ctx, run->model, linear, unit, mask, err);
    }
    if (status == ESPL_OK) {
        status = espl_backend_ops(run->backend)->apply_mask(run->backend, &shape, mask, w, err);
    }

cleanup:
    free(norm);
    free(mask);
    return status == ESPL_OK ? status : espl_context(err, "while pruning '%s'", spec->module);
}

static enum espl_status prune_block(struct wanda_run *run, uint64_t layer,
                                    struct espl_artifact *unit, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (const enum espl_role *role = espl_forward_block_roles(run->config);
         *role != ESPL_ROLE_NONE && status == ESPL_OK; role++) {
        const struct espl_prune_linear *linear =
            espl_prune_selection_find(&run->selection, layer, *role);
        if (linear != NULL) {
            status = prune_linear(run, linear, unit, err);
        }
    }
    return status;
}

/* Records how far the pruned block's outputs are from the dense ones: as a layer metric, and in the
 * unit for the message of the quality check after a resume. */
static enum espl_status report_error(struct wanda_run *run, uint64_t layer, double value,
                                     struct espl_artifact *unit, struct espl_error *err)
{
    char text[ESPL_UNIT_TEXT];
    if (!isfinite(value)) {
        espl_fail(err, ESPL_E_NUMERIC, "output of the pruned block %" PRIu64 " is not finite",
                  layer);
        return espl_hint(err, "check the checkpoint: run 'evaluate' on the model before pruning");
    }
    if (value > LARGE_OUTPUT_ERROR) {
        espl_log(espl_ctx_log(run->ctx), ESPL_LOG_WARN,
                 "block %" PRIu64 ": its output moved by %.0f %% of its size; a lower sparsity or "
                 "'ignore' may be needed here",
                 layer, 100.0 * value);
    }
    run->output_errors[layer] = value;
    espl_print_real(value, text);
    const enum espl_status status = espl_artifact_set_attribute(unit, "output_error", text, err);
    if (status != ESPL_OK) {
        return status;
    }
    return espl_ctx_layer_metric(run->ctx, "output_error", layer, "block", value, err);
}

/* A block that no earlier run finished. */
static enum espl_status compute_block(struct wanda_run *run, uint64_t layer, struct espl_error *err)
{
    struct espl_calibration *calibration = &run->calibration;
    const bool dense = run->params->propagate == ESPL_WANDA_PROPAGATE_DENSE;
    struct espl_wanda_distance distance = {0.0, 0.0};
    struct espl_artifact *unit = NULL;
    enum espl_status status = espl_calibration_observe(calibration, run->block, layer, err);
    if (status == ESPL_OK && !dense) {
        status = espl_calibration_advance_check(calibration, run->block, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_unit_create(run->ctx, layer, &unit, err);
    }
    if (status == ESPL_OK) {
        status = prune_block(run, layer, unit, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_calibration_advance(calibration, run->block, run->info.windows, &distance, err);
    }
    if (status == ESPL_OK && dense) {
        espl_calibration_take_outputs(calibration);
        status = espl_calibration_advance_check(calibration, run->block, err);
    }
    if (status == ESPL_OK) {
        status = report_error(run, layer, espl_wanda_distance_value(&distance), unit, err);
    }
    /* An unpublished unit belongs to the context, which drops it. */
    return status == ESPL_OK ? espl_ctx_unit_publish(run->ctx, layer, &unit, err) : status;
}

/* Zeroes the weights that a finished unit removed, in the resident block. */
static enum espl_status apply_unit(struct wanda_run *run, uint64_t layer, struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    enum espl_status status = espl_ctx_unit_open(run->ctx, layer, &unit, err);
    if (status != ESPL_OK) {
        return status;
    }
    double value = 0.0;
    if (espl_parse_real(espl_artifact_attribute(unit, "output_error"), &value)) {
        run->output_errors[layer] = value;
    }
    for (const enum espl_role *role = espl_forward_block_roles(run->config);
         *role != ESPL_ROLE_NONE && status == ESPL_OK; role++) {
        const struct espl_prune_linear *linear =
            espl_prune_selection_find(&run->selection, layer, *role);
        if (linear == NULL) {
            continue;
        }
        uint8_t *mask = NULL;
        struct espl_matrix_shape shape = {0, 0};
        float *w = espl_block_weight(run->block, *role, &shape);
        status = espl_prune_read_unit_mask(unit, &linear->spec, &mask, err);
        if (status == ESPL_OK) {
            status = espl_backend_ops(run->backend)->apply_mask(run->backend, &shape, mask, w, err);
        }
        free(mask);
    }
    espl_artifact_close(unit);
    return status;
}

/* A block that an earlier run finished: the same hidden states, from the stored masks. */
static enum espl_status replay_block(struct wanda_run *run, uint64_t layer, uint64_t windows,
                                     struct espl_error *err)
{
    struct espl_calibration *calibration = &run->calibration;
    const bool dense = run->params->propagate == ESPL_WANDA_PROPAGATE_DENSE;
    enum espl_status status =
        dense ? espl_calibration_advance(calibration, run->block, windows, NULL, err)
              : espl_calibration_advance_check(calibration, run->block, err);
    if (status == ESPL_OK) {
        status = apply_unit(run, layer, err);
    }
    if (status == ESPL_OK) {
        status = dense ? espl_calibration_advance_check(calibration, run->block, err)
                       : espl_calibration_advance(calibration, run->block, windows, NULL, err);
    }
    return status;
}

/* Windows that must go through block `layer`: all while a block from here on is unfinished, and
 * then only those of the quality check. */
static uint64_t windows_needed(const struct wanda_run *run, uint64_t layer)
{
    for (uint64_t i = layer; i < run->config->layers; i++) {
        if (espl_prune_selection_has_layer(&run->selection, i) &&
            !espl_ctx_unit_done(run->ctx, i)) {
            return run->info.windows;
        }
    }
    return run->calibration.check_windows;
}

static enum espl_status run_block(struct wanda_run *run, uint64_t layer, struct espl_error *err)
{
    const uint64_t windows = windows_needed(run, layer);
    enum espl_status status = espl_block_load(run->calibration.forward, layer, &run->block, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (!espl_prune_selection_has_layer(&run->selection, layer)) {
        status = espl_calibration_advance(&run->calibration, run->block, windows, NULL, err);
        return status == ESPL_OK
                   ? espl_calibration_advance_check(&run->calibration, run->block, err)
                   : status;
    }
    if (espl_ctx_unit_done(run->ctx, layer)) {
        return replay_block(run, layer, windows, err);
    }
    return compute_block(run, layer, err);
}

/* Names the blocks with the largest output errors, worst first. */
static void name_worst_blocks(const struct wanda_run *run, char *text, size_t size)
{
    size_t len = 0;
    double below = INFINITY;
    for (int named = 0; named < NAMED_BLOCKS; named++) {
        uint64_t worst = run->config->layers;
        for (uint64_t i = 0; i < run->config->layers; i++) {
            const double value = run->output_errors[i];
            if (value > 0.0 && value < below &&
                (worst == run->config->layers || value > run->output_errors[worst])) {
                worst = i;
            }
        }
        if (worst == run->config->layers || len >= size) {
            return;
        }
        below = run->output_errors[worst];
        const int n = snprintf(text + len, size - len, "%sblock %" PRIu64 " (%.2f)",
                               named > 0 ? ", " : "", worst, below);
        len += n > 0 ? (size_t)n : 0;
    }
}

static enum espl_status check_quality(struct wanda_run *run, struct espl_error *err)
{
    struct espl_calibration *calibration = &run->calibration;
    const bool dense = run->params->propagate == ESPL_WANDA_PROPAGATE_DENSE;
    double pruned_ppl = 0.0, dense_ppl = 0.0;
    enum espl_status status =
        espl_calibration_perplexity(calibration, dense ? calibration->check : calibration->inputs,
                                    run->config->vocab, &pruned_ppl, err);
    if (status == ESPL_OK) {
        status = espl_calibration_perplexity(calibration,
                                             dense ? calibration->inputs : calibration->check,
                                             run->config->vocab, &dense_ppl, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const double ratio = pruned_ppl / dense_ppl;
    if (!isfinite(dense_ppl) || !isfinite(pruned_ppl)) {
        espl_fail(
            err, ESPL_E_NUMERIC,
            "perplexity on the calibration windows is not finite: %g before, %g after pruning",
            dense_ppl, pruned_ppl);
        return espl_hint(err, "check the checkpoint: run 'evaluate' on the model before pruning");
    }
    if (run->params->max_perplexity_ratio > 0.0 && ratio > run->params->max_perplexity_ratio) {
        char worst[160] = "";
        name_worst_blocks(run, worst, sizeof worst);
        espl_fail(err, ESPL_E_NUMERIC,
                  "perplexity on %" PRIu64 " calibration windows rose from %.4g to %.4g: %.3g "
                  "times, above max_perplexity_ratio %g",
                  calibration->check_windows, dense_ppl, pruned_ppl, ratio,
                  run->params->max_perplexity_ratio);
        espl_hint(err,
                  "largest output errors: %s; lower the sparsity, or leave these blocks out "
                  "with 'ignore', 'first_layer' or 'last_layer'",
                  worst);
        return espl_blame(err, "param:max_perplexity_ratio");
    }
    status = espl_ctx_metric(run->ctx, "check_perplexity_base", dense_ppl, false, err);
    if (status == ESPL_OK) {
        status = espl_ctx_metric(run->ctx, "check_perplexity", pruned_ppl, false, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_metric(run->ctx, "check_perplexity_ratio", ratio, false, err);
    }
    return status;
}

static enum espl_status finish_run(struct wanda_run *run, struct espl_error *err)
{
    json_t *pruning = espl_wanda_describe(run->params, &run->selection, &run->info);
    if (pruning == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
    }
    enum espl_status status =
        espl_prune_finish(run->ctx, run->model, &run->selection, pruning, err);
    json_decref(pruning);
    if (status == ESPL_OK) {
        status =
            espl_ctx_metric(run->ctx, "calibration_windows", (double)run->info.windows, false, err);
    }
    return status;
}

enum espl_status espl_wanda_run(struct espl_stage_ctx *ctx, const struct espl_wanda_params *params,
                                struct espl_error *err)
{
    struct wanda_run state = {.ctx = ctx, .params = params};
    state.task.sparsity = params->common.sparsity;
    state.task.pattern = params->common.pattern;
    state.task.keep_tail = params->common.tail == ESPL_PRUNE_TAIL_DENSE;
    state.task.rule = (enum espl_wanda_rule)params->rule;
    enum espl_status status = open_run(&state, err);
    for (uint64_t layer = 0; status == ESPL_OK && layer < state.config->layers; layer++) {
        espl_ctx_progress(ctx, layer, state.config->layers, "layer");
        status = run_block(&state, layer, err);
    }
    if (status == ESPL_OK) {
        espl_ctx_progress(ctx, state.config->layers, state.config->layers, "layer");
        status = check_quality(&state, err);
    }
    if (status == ESPL_OK) {
        status = finish_run(&state, err);
    }
    close_run(&state);
    return status;
}
