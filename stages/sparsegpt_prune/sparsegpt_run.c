#include "stages/sparsegpt_prune/sparsegpt_run.h"

#include "stages/calibration/block_run.h"
#include "stages/calibration/site_matrix.h"
#include "stages/prune_common/prune_store.h"
#include "stages/quant_common/sparsegpt.h"

#include <stdlib.h>
#include <string.h>

enum { DENSE = 0, PRUNED = 1 /* chains */ };

/* Everything a run holds. */
struct sparsegpt_run {
    const struct espl_sparsegpt_params *params;
    struct espl_block_run run;
    struct espl_prune_selection selection;
    struct espl_hessians hessians;
};

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
static enum espl_status prune_matrix(const struct sparsegpt_run *sparsegpt, const float *w,
                                     const struct espl_matrix_shape *shape,
                                     const struct espl_inverse_factor *factor, uint8_t *mask,
                                     float *pruned, struct espl_error *err)
{
    const struct espl_prune_params *common = &sparsegpt->params->common;
    const struct espl_quantiser quantiser =
        espl_sparsegpt_quantiser(sparsegpt->params, shape->cols);
    const bool joint = sparsegpt->params->weight_bits > 0;
    const struct espl_sparsegpt_task task = {
        .shape = *shape,
        .w = w,
        .factor = factor,
        .sparsity = common->sparsity,
        .align = common->align,
        .keep = common->pattern.n,
        .window = common->pattern.m,
        .keep_tail = common->tail == ESPL_PRUNE_TAIL_DENSE,
        .quantiser = joint ? &quantiser : NULL,
        .threads = espl_backend_threads(sparsegpt->run.backend),
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

static enum espl_status prune_linear(struct sparsegpt_run *sparsegpt,
                                     const struct espl_prune_linear *linear,
                                     const struct espl_site_matrix *matrix,
                                     struct espl_artifact *unit, struct espl_error *err)
{
    const struct espl_block_run *run = &sparsegpt->run;
    const struct espl_tensor_spec *spec = &linear->spec;
    struct espl_matrix_shape shape = {0, 0};
    float *w = NULL;
    size_t mask_bytes = 0;
    uint8_t *mask = NULL;
    float *pruned = NULL;
    double absolute = 0.0;
    double relative = 0.0;
    enum espl_status status = espl_prune_mask_bytes(spec, &mask_bytes, err);
    if (status == ESPL_OK) {
        status = espl_block_run_weight(run, spec, &w, &shape, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const size_t count = shape.rows * shape.cols;
    mask = malloc(mask_bytes > 0 ? mask_bytes : 1);
    pruned = malloc(count > 0 ? count * sizeof *pruned : 1);
    if (mask == NULL || pruned == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for a second copy of %zu weights", count);
        goto cleanup;
    }
    status = prune_matrix(sparsegpt, w, &shape, &matrix->factor, mask, pruned, err);
    if (status == ESPL_OK) {
        status = espl_output_error(shape.rows, shape.cols, w, pruned, matrix->hessian,
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

/* Prunes the linears that read one input. */
static enum espl_status prune_site(struct sparsegpt_run *sparsegpt, uint64_t layer,
                                   enum espl_quant_site site, struct espl_artifact *unit,
                                   struct espl_error *err)
{
    struct espl_site_matrix matrix = {0};
    enum espl_status status =
        espl_site_matrix_take(&sparsegpt->hessians, site, NULL, sparsegpt->params->damping,
                              "pruning by magnitude there, without updates", &matrix, err);
    for (const enum espl_role *role = espl_quant_site_roles(sparsegpt->run.config, site);
         *role != ESPL_ROLE_NONE && status == ESPL_OK; role++) {
        const struct espl_prune_linear *linear =
            espl_prune_selection_find(&sparsegpt->selection, layer, *role);
        if (linear != NULL) {
            status = prune_linear(sparsegpt, linear, &matrix, unit, err);
        }
    }
    espl_site_matrix_free(&matrix);
    return status;
}

/* ---- one block ---- */

static enum espl_status prune_block(struct sparsegpt_run *sparsegpt, uint64_t layer,
                                    struct espl_artifact *unit, struct espl_error *err)
{
    struct espl_hessians *hessians = &sparsegpt->hessians;
    espl_hessians_want(hessians, &sparsegpt->selection, layer);
    enum espl_status status = espl_chains_peek(&sparsegpt->run.chains, PRUNED, sparsegpt->run.block,
                                               espl_hessians_observe, hessians, err);
    for (int site = 0; site < ESPL_QUANT_SITES && status == ESPL_OK; site++) {
        if (hessians->wanted[site]) {
            status = prune_site(sparsegpt, layer, (enum espl_quant_site)site, unit, err);
        }
    }
    espl_hessians_free(hessians);
    return status;
}

static enum espl_status compute_block(void *user, uint64_t layer, struct espl_artifact *unit,
                                      double *output_error, struct espl_error *err)
{
    struct sparsegpt_run *sparsegpt = user;
    struct espl_block_run *run = &sparsegpt->run;
    struct espl_chains *chains = &run->chains;
    enum espl_status status = espl_chains_advance(chains, DENSE, run->block,
                                                  chains->counts.chain[DENSE], NULL, NULL, err);
    if (status == ESPL_OK) {
        status = prune_block(sparsegpt, layer, unit, err);
    }
    if (status == ESPL_OK) {
        status = espl_chains_advance(chains, PRUNED, run->block, chains->counts.chain[PRUNED], NULL,
                                     NULL, err);
    }
    if (status == ESPL_OK) {
        *output_error = espl_chains_distance(chains);
    }
    return status;
}

/* Puts a weight of a finished unit into the resident block. */
static enum espl_status restore_linear(void *user, const struct espl_prune_linear *linear,
                                       struct espl_artifact *unit, struct espl_error *err)
{
    const struct espl_block_run *run = &((struct sparsegpt_run *)user)->run;
    struct espl_matrix_shape shape = {0, 0};
    float *w = NULL;
    const enum espl_status status = espl_block_run_weight(run, &linear->spec, &w, &shape, err);
    return status == ESPL_OK ? espl_artifact_read_rows(unit, linear->spec.path, 0, shape.rows, w,
                                                       shape.rows * shape.cols * sizeof *w, err)
                             : status;
}

static enum espl_status restore_block(void *user, uint64_t layer, struct espl_artifact *unit,
                                      struct espl_error *err)
{
    const struct sparsegpt_run *sparsegpt = user;
    return unit == NULL ? ESPL_OK
                        : espl_prune_for_block(&sparsegpt->selection, layer, restore_linear, user,
                                               unit, err);
}

static enum espl_status finish_run(struct sparsegpt_run *sparsegpt, struct espl_error *err)
{
    const struct espl_calibration_info info = espl_calibration_info_of(&sparsegpt->run.windows);
    return espl_block_run_finish_pruned(
        &sparsegpt->run, sparsegpt->params->max_perplexity_ratio,
        "the layer figures of the run show where the output error grows most",
        espl_sparsegpt_describe(sparsegpt->params, &sparsegpt->selection, &info), err);
}

enum espl_status espl_sparsegpt_run(struct espl_stage_ctx *ctx,
                                    const struct espl_sparsegpt_params *params,
                                    struct espl_error *err)
{
    static const struct espl_block_steps steps = {"pruned", compute_block, restore_block};
    struct sparsegpt_run sparsegpt = {.params = params};
    struct espl_block_run *run = &sparsegpt.run;
    enum espl_status status = espl_block_run_open(ctx, run, err);
    sparsegpt.hessians.chains = &run->chains;
    if (status == ESPL_OK) {
        status = espl_sparsegpt_select(run->config, params, &sparsegpt.selection, err);
    }
    if (status == ESPL_OK) {
        const struct espl_chain_counts counts = espl_sparsegpt_chain_counts(run->windows.count);
        status = espl_block_run_all(run, &sparsegpt.selection, &counts, &steps, &sparsegpt, err);
    }
    if (status == ESPL_OK) {
        status = finish_run(&sparsegpt, err);
    }
    espl_block_run_close(run);
    espl_prune_selection_free(&sparsegpt.selection);
    return status;
}
