#include "stages/wanda_prune/wanda_images.h"

#include "eval/vision_quality.h"
#include "stages/calibration/hidden_states.h"
#include "stages/prune_common/model_plan.h"
#include "stages/prune_common/prune_store.h"
#include "stages/wanda_prune/wanda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pictures that go through a block together, and those of the quality check. */
enum { BATCH = 32, CHECK_IMAGES = 256 };

/* Everything a run holds. */
struct images_run {
    struct espl_stage_ctx *ctx;
    const struct espl_wanda_params *params;
    struct espl_wanda_task task;
    struct espl_model *model;
    const struct espl_model_config *config;
    struct espl_backend *backend;
    struct espl_artifact *pictures; /* borrowed */
    struct espl_image_set set;
    struct espl_prune_selection selection;
    struct espl_vision *vision;
    struct espl_hidden_states room;          /* activations of all pictures, in place */
    double *sums[ESPL_ROLE_COUNT];           /* of squares of a linear's input channels */
    size_t widths[ESPL_ROLE_COUNT];          /* of the same; 0 = nothing seen yet */
    struct espl_vision_replacement *replace; /* (layers): pruned weights, owned */
};

/* ---- plan ---- */

static json_t *describe(const struct espl_wanda_params *params,
                        const struct espl_prune_selection *selection, uint64_t images)
{
    return espl_json_join(espl_prune_describe("wanda", &params->common, selection),
                          json_pack("{s:s, s:s, s:I}", "rule",
                                    espl_wanda_rule_choices[params->rule], "propagate",
                                    espl_wanda_propagate_choices[params->propagate],
                                    "calibration_images", (json_int_t)images));
}

/* float32 values of the widest activations of one picture: those that enter the first block. */
static uint64_t values_of(const struct espl_model_config *config)
{
    return config->max_positions * config->hidden;
}

enum espl_status espl_wanda_plan_images(struct espl_plan_ctx *ctx, const json_t *model,
                                        const struct espl_model_config *config,
                                        const struct espl_wanda_params *params,
                                        const struct espl_prune_selection *selection,
                                        struct espl_estimate *est, struct espl_error *err)
{
    const json_t *description = espl_plan_input(ctx, "images");
    struct espl_image_set set = {0};
    if (description != NULL) {
        enum espl_status status = espl_image_set_from_description(description, &set, err);
        if (status == ESPL_OK) {
            status = espl_image_set_check(&set, config, false, err);
        }
        if (status != ESPL_OK) {
            return espl_blame(err, "input:images");
        }
    }
    const uint64_t hidden = set.count * values_of(config) * sizeof(float);
    est->units = selection->selected_layers;
    est->output_bytes = selection->selected_mask_bytes + 65536;
    est->scratch_bytes = selection->selected_mask_bytes + 65536 * selection->selected_layers;
    est->host_bytes =
        espl_vision_bytes(config, BATCH) + selection->selected_elements * sizeof(float);
    *(hidden > ESPL_HIDDEN_IN_MEMORY ? &est->scratch_bytes : &est->host_bytes) += hidden;
    est->flop = espl_vision_flop(config) * (2.0 * (double)set.count + 2.0 * CHECK_IMAGES);
    (void)snprintf(est->note, sizeof est->note, "%zu of %zu linear layers", selection->selected,
                   selection->all_linears);
    return espl_model_plan_output(ctx, model, "pruning", describe(params, selection, set.count),
                                  err);
}

/* ---- opening ---- */

static enum espl_status open_inputs(struct images_run *run, struct espl_error *err)
{
    enum espl_status status = espl_model_open(espl_ctx_input(run->ctx, "model"),
                                              espl_ctx_store(run->ctx), &run->model, err);
    if (status != ESPL_OK) {
        return status;
    }
    run->config = espl_model_get_config(run->model);
    run->pictures = espl_ctx_input(run->ctx, "images");
    status = espl_image_set_open(run->pictures, &run->set, err);
    if (status == ESPL_OK) {
        status = espl_image_set_check(&run->set, run->config, false, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_select(run->config, &run->params->common, &run->selection, err);
    }
    return status == ESPL_OK ? espl_prune_open_backend(run->ctx, &run->backend, err) : status;
}

static enum espl_status open_run(struct images_run *run, struct espl_error *err)
{
    const struct espl_prune_params *common = &run->params->common;
    enum espl_status status = open_inputs(run, err);
    if (status == ESPL_OK) {
        status =
            espl_vision_create(run->model, run->backend, BATCH, &run->set.scale, &run->vision, err);
    }
    if (status == ESPL_OK) {
        status = espl_hidden_states_create(espl_ctx_store(run->ctx),
                                           espl_artifact_content_sha256(run->pictures),
                                           (size_t)(run->set.count * values_of(run->config)),
                                           ESPL_HIDDEN_IN_MEMORY, &run->room, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    run->task = (struct espl_wanda_task){
        .sparsity = common->sparsity,
        .nm = espl_prune_nm_choice(common),
        .rule = (enum espl_wanda_rule)run->params->rule,
        .align = common->align,
    };
    run->replace = calloc((size_t)run->config->layers, sizeof *run->replace);
    return run->replace != NULL ? ESPL_OK
                                : espl_fail(err, ESPL_E_NOMEM, "no memory for pruned blocks");
}

static void close_run(struct images_run *run)
{
    for (uint64_t b = 0; run->replace != NULL && b < run->config->layers; b++) {
        for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
            free((void *)run->replace[b].weight[role]); /* all of them were made here */
        }
    }
    for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
        free(run->sums[role]);
    }
    free(run->replace);
    espl_hidden_states_destroy(&run->room);
    espl_vision_destroy(run->vision);
    espl_prune_selection_free(&run->selection);
    espl_backend_close(run->backend);
    espl_model_close(run->model);
}

/* ---- activations ---- */

/* Embeds all pictures. */
static enum espl_status embed_all(struct images_run *run, struct espl_error *err)
{
    uint8_t *pixels = malloc(BATCH * espl_image_set_bytes(&run->set));
    enum espl_status status =
        pixels != NULL ? ESPL_OK
                       : espl_fail(err, ESPL_E_NOMEM, "no memory for %d pictures", (int)BATCH);
    for (uint64_t i = 0; status == ESPL_OK && i < run->set.count; i += BATCH) {
        const uint64_t left = run->set.count - i;
        const uint64_t images = left < BATCH ? left : BATCH;
        status = espl_image_set_read(run->pictures, &run->set, i, images, pixels, NULL, err);
        if (status == ESPL_OK) {
            status =
                espl_vision_embed(run->vision, pixels, (size_t)images,
                                  run->room.data + i * espl_vision_values(run->vision, 0), err);
        }
    }
    free(pixels);
    return status;
}

/* Adds the squares of a linear's input, channel by channel. */
static enum espl_status add_squares(void *user, uint64_t block, enum espl_role role, float *x,
                                    size_t rows, size_t in, struct espl_error *err)
{
    struct images_run *run = user;
    (void)block;
    if (run->sums[role] == NULL || run->widths[role] < in) {
        free(run->sums[role]);
        run->sums[role] = calloc(in, sizeof *run->sums[role]);
    }
    if (run->sums[role] == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu channel sums", in);
    }
    run->widths[role] = in;
    return espl_backend_ops(run->backend)
        ->column_sumsq(run->backend, rows, in, x, run->sums[role], err);
}

/* All pictures through one block. in_place: their activations become its output; otherwise the
 * output is dropped. A later stage's maps are smaller, so what is written never passes what is
 * still to be read. */
static enum espl_status pass_block(struct images_run *run, uint64_t block,
                                   const struct espl_vision_replacement *replace, bool in_place,
                                   espl_vision_input_fn observe, struct espl_error *err)
{
    const size_t in = espl_vision_values(run->vision, block);
    const size_t out = espl_vision_values(run->vision, block + 1);
    float *dropped = in_place ? NULL : malloc(BATCH * in * sizeof *dropped);
    enum espl_status status = ESPL_OK;
    if (!in_place && dropped == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %d pictures", (int)BATCH);
    }
    for (uint64_t i = 0; status == ESPL_OK && i < run->set.count; i += BATCH) {
        const uint64_t left = run->set.count - i;
        const size_t images = left < BATCH ? (size_t)left : BATCH;
        float *from = run->room.data + i * in;
        if (espl_ctx_cancelled(run->ctx)) {
            status = espl_ctx_stop(run->ctx, err);
            break;
        }
        status = espl_vision_block(run->vision, block, replace, images, from,
                                   in_place ? from : dropped, observe, run, err);
        if (status == ESPL_OK && in_place && in != out) {
            memmove(run->room.data + i * out, from, images * out * sizeof(float));
        }
    }
    free(dropped);
    return status;
}

/* ---- masks ---- */

/* The masked weight of a linear, kept for the rest of the run. */
static enum espl_status keep_masked(struct images_run *run, const struct espl_tensor_spec *spec,
                                    const uint8_t *mask, struct espl_error *err)
{
    struct espl_matrix_shape shape;
    const float *own = espl_vision_weight(run->vision, (uint64_t)spec->layer, spec->role, &shape);
    float *masked = malloc(shape.rows * shape.cols * sizeof *masked);
    if (masked == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the pruned '%s'", spec->module);
    }
    memcpy(masked, own, shape.rows * shape.cols * sizeof *masked);
    run->replace[spec->layer].weight[spec->role] = masked;
    return espl_backend_ops(run->backend)->apply_mask(run->backend, &shape, mask, masked, err);
}

static enum espl_status prune_linear(void *user, const struct espl_prune_linear *linear,
                                     struct espl_artifact *unit, struct espl_error *err)
{
    struct images_run *run = user;
    const struct espl_tensor_spec *spec = &linear->spec;
    struct espl_matrix_shape shape;
    size_t mask_bytes = 0;
    const float *w = espl_vision_weight(run->vision, (uint64_t)spec->layer, spec->role, &shape);
    enum espl_status status = espl_prune_mask_bytes(spec, &mask_bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    float *norm = malloc(shape.cols * sizeof *norm);
    uint8_t *mask = malloc(mask_bytes);
    if (norm == NULL || mask == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for a mask of %zu bytes", mask_bytes);
        goto cleanup;
    }
    const size_t bad = espl_wanda_norms(run->sums[spec->role], shape.cols, run->set.count, norm);
    if (bad < shape.cols) {
        status = espl_fail(err, ESPL_E_NUMERIC, "norm of input channel %zu of '%s' is not finite",
                           bad, spec->module);
        goto cleanup;
    }
    status = espl_wanda_mask(run->backend, &shape, w, norm, &run->task, mask, err);
    if (status == ESPL_OK) {
        status = espl_prune_store_mask(run->ctx, run->model, linear, unit, mask, err);
    }
    if (status == ESPL_OK) {
        status = keep_masked(run, spec, mask, err);
    }

cleanup:
    free(norm);
    free(mask);
    return status == ESPL_OK ? status : espl_context(err, "while pruning '%s'", spec->module);
}

static enum espl_status restore_linear(void *user, const struct espl_prune_linear *linear,
                                       struct espl_artifact *unit, struct espl_error *err)
{
    struct images_run *run = user;
    uint8_t *mask = NULL;
    enum espl_status status = espl_prune_read_unit_mask(unit, &linear->spec, &mask, err);
    if (status == ESPL_OK) {
        status = keep_masked(run, &linear->spec, mask, err);
    }
    free(mask);
    return status;
}

/* ---- blocks ---- */

/* A block that no earlier run finished: statistics from its dense form, then masks. */
static enum espl_status compute_block(struct images_run *run, uint64_t block, bool dense,
                                      struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    for (size_t role = 0; role < ESPL_ROLE_COUNT; role++) {
        if (run->sums[role] != NULL) {
            memset(run->sums[role], 0, run->widths[role] * sizeof *run->sums[role]);
        }
    }
    enum espl_status status = espl_ctx_unit_create(run->ctx, block, &unit, err);
    if (status == ESPL_OK) {
        status = pass_block(run, block, NULL, dense, add_squares, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_for_block(&run->selection, block, prune_linear, run, unit, err);
    }
    /* An unpublished unit belongs to the context, which drops it. */
    return status == ESPL_OK ? espl_ctx_unit_publish(run->ctx, block, &unit, err) : status;
}

static enum espl_status restore_block(struct images_run *run, uint64_t block,
                                      struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    enum espl_status status = espl_ctx_unit_open(run->ctx, block, &unit, err);
    if (status == ESPL_OK) {
        status = espl_prune_for_block(&run->selection, block, restore_linear, run, unit, err);
    }
    espl_artifact_close(unit);
    return status;
}

static enum espl_status run_block(struct images_run *run, uint64_t block, struct espl_error *err)
{
    const bool dense = run->params->propagate == ESPL_WANDA_PROPAGATE_DENSE;
    const bool selected = espl_prune_selection_has_layer(&run->selection, block);
    bool moved = false; /* the activations are already this block's output */
    enum espl_status status = ESPL_OK;
    if (selected && espl_ctx_unit_done(run->ctx, block)) {
        status = restore_block(run, block, err);
    } else if (selected) {
        status = compute_block(run, block, dense, err);
        moved = dense;
    }
    if (status == ESPL_OK && !moved) {
        status = pass_block(run, block, dense ? NULL : &run->replace[block], true, NULL, err);
    }
    espl_ctx_progress(run->ctx, block + 1, run->config->layers, "block");
    return status;
}

/* ---- the quality check ---- */

static int32_t best_class(const float *logits, size_t classes)
{
    size_t best = 0;
    for (size_t c = 1; c < classes; c++) {
        best = logits[c] > logits[best] ? c : best;
    }
    return (int32_t)best;
}

/* Mean cross entropy of the first pictures; labels: their own, or the dense model's choice. */
static enum espl_status measure(struct images_run *run,
                                const struct espl_vision_replacement *replace, uint64_t count,
                                bool choose, int32_t *labels, double *loss, struct espl_error *err)
{
    const size_t classes = espl_vision_classes(run->vision);
    uint8_t *pixels = malloc(BATCH * espl_image_set_bytes(&run->set));
    float *logits = malloc(BATCH * classes * sizeof *logits);
    struct espl_vision_tally tally = {0};
    enum espl_status status =
        pixels == NULL || logits == NULL
            ? espl_fail(err, ESPL_E_NOMEM, "no memory for %d pictures", (int)BATCH)
            : ESPL_OK;
    for (uint64_t i = 0; status == ESPL_OK && i < count; i += BATCH) {
        const size_t images = count - i < BATCH ? (size_t)(count - i) : BATCH;
        status = espl_image_set_read(run->pictures, &run->set, i, images, pixels,
                                     run->set.classes != 0 ? labels + i : NULL, err);
        if (status == ESPL_OK) {
            status = espl_vision_logits(run->vision, replace, pixels, images, logits, err);
        }
        for (size_t n = 0; status == ESPL_OK && choose && n < images; n++) {
            labels[i + n] = best_class(logits + n * classes, classes);
        }
        if (status == ESPL_OK) {
            status = espl_vision_tally_add(&tally, run->backend, logits, NULL, labels + i, images,
                                           classes, err);
        }
    }
    *loss = tally.images > 0 ? tally.loss / (double)tally.images : 0.0;
    free(pixels);
    free(logits);
    return status;
}

static enum espl_status judge(struct images_run *run, double base, double loss,
                              struct espl_error *err)
{
    const double most = run->params->max_perplexity_ratio;
    const double ratio = exp(loss - base);
    enum espl_status status = espl_ctx_metric(run->ctx, "check_loss_base", base, false, err);
    if (status == ESPL_OK) {
        status = espl_ctx_metric(run->ctx, "check_loss", loss, false, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_metric(run->ctx, "check_perplexity_ratio", ratio, false, err);
    }
    if (status == ESPL_OK && most > 0.0 && !(ratio <= most)) {
        (void)espl_fail(err, ESPL_E_NUMERIC,
                        "pruning raised the loss on %d calibration pictures from %.3f to %.3f, a "
                        "ratio of %.3g where at most %.3g is allowed",
                        (int)CHECK_IMAGES, base, loss, ratio, most);
        (void)espl_hint(err, "lower the sparsity, or raise max_perplexity_ratio");
        return espl_blame(err, "param:max_perplexity_ratio");
    }
    return status;
}

static enum espl_status check_quality(struct images_run *run, struct espl_error *err)
{
    const uint64_t count = run->set.count < CHECK_IMAGES ? run->set.count : CHECK_IMAGES;
    int32_t *labels = calloc(CHECK_IMAGES, sizeof *labels);
    double base = 0.0;
    double loss = 0.0;
    if (labels == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for labels");
    }
    enum espl_status status = measure(run, NULL, count, run->set.classes == 0, labels, &base, err);
    if (status == ESPL_OK) {
        status = measure(run, run->replace, count, false, labels, &loss, err);
    }
    free(labels);
    return status == ESPL_OK ? judge(run, base, loss, err) : status;
}

enum espl_status espl_wanda_run_images(struct espl_stage_ctx *ctx,
                                       const struct espl_wanda_params *params,
                                       struct espl_error *err)
{
    struct images_run run = {.ctx = ctx, .params = params};
    enum espl_status status = espl_wanda_check_rule(params, err);
    if (status == ESPL_OK) {
        status = open_run(&run, err);
    }
    if (status == ESPL_OK) {
        status = embed_all(&run, err);
    }
    for (uint64_t b = 0; status == ESPL_OK && b < run.config->layers; b++) {
        status = run_block(&run, b, err);
    }
    if (status == ESPL_OK) {
        status = check_quality(&run, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_finish(ctx, run.model, &run.selection,
                                   describe(params, &run.selection, run.set.count), err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_metric(ctx, "calibration_images", (double)run.set.count, false, err);
    }
    close_run(&run);
    return status;
}
