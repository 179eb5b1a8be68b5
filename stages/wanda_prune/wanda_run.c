#include "stages/wanda_prune/wanda_run.h"

#include "stages/calibration/block_run.h"
#include "stages/calibration/hessians.h"
#include "stages/prune_common/prune_store.h"
#include "stages/wanda_prune/wanda.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* A block whose output moved this far from the dense one is worth a warning. */
static const double LARGE_OUTPUT_ERROR = 0.5;
enum { NAMED_BLOCKS = 3, DENSE = 0, PRUNED = 1 /* chains */ };

/* Everything a run holds. */
struct wanda_run {
    const struct espl_wanda_params *params;
    struct espl_wanda_task task;
    struct espl_block_run run;
    struct espl_prune_selection selection;
    struct espl_moments moments;
    unsigned chain;        /* the one that all windows go through */
    double *output_errors; /* one a block; 0 where nothing is pruned */
};

static enum espl_status open_run(struct wanda_run *wanda, struct espl_stage_ctx *ctx,
                                 struct espl_error *err)
{
    const struct espl_wanda_params *params = wanda->params;
    enum espl_status status = espl_block_run_open(ctx, &wanda->run, err);
    if (status == ESPL_OK) {
        status = espl_wanda_check_rule(params, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_select(wanda->run.config, &params->common, &wanda->selection, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    wanda->task = (struct espl_wanda_task){
        .sparsity = params->common.sparsity,
        .nm = espl_prune_nm_choice(&params->common),
        .rule = (enum espl_wanda_rule)params->rule,
        .align = params->common.align,
    };
    wanda->chain = params->propagate == ESPL_WANDA_PROPAGATE_DENSE ? DENSE : PRUNED;
    wanda->moments.chains = &wanda->run.chains;
    wanda->output_errors = calloc((size_t)wanda->run.config->layers, sizeof *wanda->output_errors);
    return wanda->output_errors != NULL
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "no memory for %" PRIu64 " block errors",
                           wanda->run.config->layers);
}

static void close_run(struct wanda_run *wanda)
{
    free(wanda->output_errors);
    espl_moments_free(&wanda->moments);
    espl_block_run_close(&wanda->run);
    espl_prune_selection_free(&wanda->selection);
}

/* Masks one linear of the resident block from the sums collected in the dense pass, and stores the
 * mask in the unit. */
static enum espl_status prune_linear(void *user, const struct espl_prune_linear *linear,
                                     struct espl_artifact *unit, struct espl_error *err)
{
    struct wanda_run *wanda = user;
    struct espl_block_run *run = &wanda->run;
    const struct espl_tensor_spec *spec = &linear->spec;
    struct espl_matrix_shape shape = {0, 0};
    size_t mask_bytes = 0;
    float *w = NULL;
    float *norm = NULL;
    uint8_t *mask = NULL;
    enum espl_status status = espl_prune_mask_bytes(spec, &mask_bytes, err);
    if (status == ESPL_OK) {
        status = espl_block_run_weight(run, spec, &w, &shape, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    norm = malloc(shape.cols * sizeof *norm);
    mask = malloc(mask_bytes);
    if (norm == NULL || mask == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for a mask of %zu bytes", mask_bytes);
        goto cleanup;
    }
    const double *sums = wanda->moments.sums[espl_quant_site_of(spec->role)];
    const size_t bad = espl_wanda_norms(sums, shape.cols, run->windows.count, norm);
    if (bad < shape.cols) {
        status = espl_fail(err, ESPL_E_NUMERIC,
                           "norm of input channel %zu of '%s' (layer %" PRId64 ") is not finite",
                           bad, spec->module, spec->layer);
        goto cleanup;
    }
    status = espl_wanda_mask(run->backend, &shape, w, norm, &wanda->task, mask, err);
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

/* Notes how far the pruned block's outputs are from the dense ones: for people, and in the unit for
 * the message of the quality check after a resume. */
static enum espl_status note_error(struct wanda_run *wanda, uint64_t layer, double value,
                                   struct espl_artifact *unit, struct espl_error *err)
{
    char text[ESPL_UNIT_TEXT];
    if (value > LARGE_OUTPUT_ERROR) {
        espl_log(espl_ctx_log(wanda->run.ctx), ESPL_LOG_WARN,
                 "block %" PRIu64 ": its output moved by %.0f %% of its size; a lower sparsity or "
                 "'ignore' may be needed here",
                 layer, 100.0 * value);
    }
    wanda->output_errors[layer] = value;
    espl_print_real(value, text);
    return espl_artifact_set_attribute(unit, "output_error", text, err);
}

/* The chain of all windows goes through the dense block, whose outputs are kept, and through the
 * pruned one; where the run propagates dense outputs, it takes the kept ones after that. */
static enum espl_status compute_block(void *user, uint64_t layer, struct espl_artifact *unit,
                                      double *output_error, struct espl_error *err)
{
    struct wanda_run *wanda = user;
    struct espl_chains *chains = &wanda->run.chains;
    struct espl_block *block = wanda->run.block;
    const uint64_t check = espl_check_windows(wanda->run.windows.count);
    espl_moments_reset(&wanda->moments, layer);
    enum espl_status status =
        espl_chains_peek(chains, wanda->chain, block, espl_moments_observe, &wanda->moments, err);
    if (status == ESPL_OK && wanda->chain == PRUNED) {
        status = espl_chains_advance(chains, DENSE, block, check, NULL, NULL, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_for_block(&wanda->selection, layer, prune_linear, wanda, unit, err);
    }
    if (status == ESPL_OK) {
        status = espl_chains_advance(chains, wanda->chain, block, wanda->run.windows.count, NULL,
                                     NULL, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    *output_error = espl_chains_distance_from_peeked(chains, wanda->chain);
    if (wanda->chain == DENSE) {
        espl_chains_take_peeked(chains, DENSE);
        status = espl_chains_advance(chains, PRUNED, block, check, NULL, NULL, err);
    }
    return status == ESPL_OK ? note_error(wanda, layer, *output_error, unit, err) : status;
}

/* Zeroes the weights of a linear that a finished unit removed, in the resident block. */
static enum espl_status restore_linear(void *user, const struct espl_prune_linear *linear,
                                       struct espl_artifact *unit, struct espl_error *err)
{
    const struct espl_block_run *run = &((struct wanda_run *)user)->run;
    struct espl_matrix_shape shape = {0, 0};
    uint8_t *mask = NULL;
    float *w = NULL;
    enum espl_status status = espl_block_run_weight(run, &linear->spec, &w, &shape, err);
    if (status == ESPL_OK) {
        status = espl_prune_read_unit_mask(unit, &linear->spec, &mask, err);
    }
    if (status == ESPL_OK) {
        status = espl_backend_ops(run->backend)->apply_mask(run->backend, &shape, mask, w, err);
    }
    free(mask);
    return status;
}

static enum espl_status restore_block(void *user, uint64_t layer, struct espl_artifact *unit,
                                      struct espl_error *err)
{
    struct wanda_run *wanda = user;
    double value = 0.0;
    if (unit == NULL) {
        return ESPL_OK;
    }
    if (espl_parse_real(espl_artifact_attribute(unit, "output_error"), &value)) {
        wanda->output_errors[layer] = value;
    }
    return espl_prune_for_block(&wanda->selection, layer, restore_linear, wanda, unit, err);
}

/* Advice that names the blocks with the largest output errors, worst first. */
static void name_worst_blocks(const struct wanda_run *wanda, char *text, size_t size)
{
    const uint64_t layers = wanda->run.config->layers;
    double below = INFINITY;
    int n = snprintf(text, size, "lower the sparsity");
    size_t len = n > 0 ? (size_t)n : 0;
    for (int named = 0; named < NAMED_BLOCKS; named++) {
        uint64_t worst = layers;
        for (uint64_t i = 0; i < layers; i++) {
            const double value = wanda->output_errors[i];
            if (value > 0.0 && value < below &&
                (worst == layers || value > wanda->output_errors[worst])) {
                worst = i;
            }
        }
        if (worst == layers || len >= size) {
            return;
        }
        below = wanda->output_errors[worst];
        n = snprintf(text + len, size - len, "%sblock %" PRIu64 " (%.2f)",
                     named > 0 ? ", " : "; largest output errors: ", worst, below);
        len += n > 0 ? (size_t)n : 0;
    }
}

static enum espl_status finish_run(struct wanda_run *wanda, struct espl_error *err)
{
    const struct espl_calibration_info info = espl_calibration_info_of(&wanda->run.windows);
    char worst[200];
    name_worst_blocks(wanda, worst, sizeof worst);
    return espl_block_run_finish_pruned(
        &wanda->run, wanda->params->max_perplexity_ratio, worst,
        espl_wanda_describe(wanda->params, &wanda->selection, &info), err);
}

enum espl_status espl_wanda_run(struct espl_stage_ctx *ctx, const struct espl_wanda_params *params,
                                struct espl_error *err)
{
    static const struct espl_block_steps steps = {"pruned", compute_block, restore_block};
    struct wanda_run wanda = {.params = params};
    enum espl_status status = open_run(&wanda, ctx, err);
    if (status == ESPL_OK) {
        const struct espl_chain_counts counts =
            espl_wanda_chain_counts(params, wanda.run.windows.count);
        status = espl_block_run_all(&wanda.run, &wanda.selection, &counts, &steps, &wanda, err);
    }
    if (status == ESPL_OK) {
        status = finish_run(&wanda, err);
    }
    close_run(&wanda);
    return status;
}
