/* magnitude-prune: reads a model, writes the masks of its block linears. Weights pass by in pieces
 * of a few MiB; only one linear's mask is in memory. */
#include "engine/stage.h"
#include "core/checked.h"
#include "stages/magnitude_prune/magnitude.h"
#include "stages/prune_common/model_plan.h"
#include "stages/prune_common/prune_params.h"
#include "stages/prune_common/prune_store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum scope { SCOPE_MATRIX, SCOPE_ROW };

struct magnitude_params {
    struct espl_prune_params common;
    int scope; /* enum scope */
};

/* Bytes of one piece of a weight matrix. */
enum { PIECE_BYTES = 8 << 20 };

static const char *const scope_choices[] = {"matrix", "row", NULL};

static const struct espl_param params_table[] = {
    {ESPL_PARAM_SPARSITY, .offset = offsetof(struct magnitude_params, common.sparsity)},
    {ESPL_PARAM_PATTERN, .offset = offsetof(struct magnitude_params, common.pattern)},
    {ESPL_PARAM_VECTOR, .offset = offsetof(struct magnitude_params, common.vector)},
    {ESPL_PARAM_TAIL, .offset = offsetof(struct magnitude_params, common.tail)},
    {.name = "scope",
     .help = "unstructured: weights compete within their matrix, or within their output row",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "matrix",
     .choices = scope_choices,
     .offset = offsetof(struct magnitude_params, scope)},
    {ESPL_PARAM_ALIGN, .offset = offsetof(struct magnitude_params, common.align.grid)},
    {ESPL_PARAM_ALIGN_FORM, .offset = offsetof(struct magnitude_params, common.align.form)},
    {ESPL_PARAM_FILL, .offset = offsetof(struct magnitude_params, common.align.fill)},
    {ESPL_PARAM_TARGETS("prune"),
     .offset = offsetof(struct magnitude_params, common.layers.targets)},
    {ESPL_PARAM_IGNORE("dense"), .offset = offsetof(struct magnitude_params, common.layers.ignore)},
    {ESPL_PARAM_FIRST_LAYER("prune"),
     .offset = offsetof(struct magnitude_params, common.layers.first_layer)},
    {ESPL_PARAM_LAST_LAYER("prune"),
     .offset = offsetof(struct magnitude_params, common.layers.last_layer)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", ESPL_MODEL_FLOAT_KINDS, 0, "the model to prune"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"model", "model.masked/1", 0, "masks over the input model"},
    {NULL, NULL, 0, NULL},
};

static json_t *describe(const struct magnitude_params *params,
                        const struct espl_prune_selection *selection)
{
    const char *scope = params->common.pattern.m > 0 ? "window" : scope_choices[params->scope];
    return espl_json_join(espl_prune_describe("magnitude", &params->common, selection),
                          json_pack("{s:s}", "scope", scope));
}

static enum espl_status check_scope(const struct magnitude_params *params, struct espl_error *err)
{
    if (params->scope == SCOPE_ROW && params->common.pattern.m > 0) {
        espl_fail(err, ESPL_E_JOB, "scope 'row' cannot be combined with pattern %u:%u",
                  (unsigned)params->common.pattern.n, (unsigned)params->common.pattern.m);
        espl_hint(err, "N:M compares the M weights of a window; leave 'scope' or 'pattern' out");
        return espl_blame(err, "param:scope");
    }
    if (params->scope == SCOPE_MATRIX && espl_align_is_on(&params->common.align)) {
        espl_fail(err, ESPL_E_JOB, "'align' cannot be combined with scope 'matrix'");
        espl_hint(err, "groups compete within the rows that they span: add 'scope: row'");
        return espl_blame(err, "param:align");
    }
    return ESPL_OK;
}

/* Bytes of the two buffers beyond the usual pieces: rows that share a pattern stay together. */
static uint64_t span_bytes(const struct espl_prune_params *common,
                           const struct espl_prune_selection *selection)
{
    uint64_t cols = 0;
    for (size_t i = 0; i < selection->count; i++) {
        const uint64_t here = selection->linears[i].spec.shape[1];
        cols = selection->linears[i].selected && here > cols ? here : cols;
    }
    const uint64_t bytes = cols * sizeof(float) * espl_prune_row_span(common);
    return bytes > PIECE_BYTES ? 2 * (bytes - PIECE_BYTES) : 0;
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const struct magnitude_params *params = stage_params;
    const json_t *model = espl_plan_input(ctx, "model");
    struct espl_prune_selection selection = {0};
    struct espl_model_config config;
    enum espl_status status = check_scope(params, err);
    if (status != ESPL_OK || model == NULL) {
        return status;
    }
    status = espl_model_config_from_description(model, &config, err);
    if (status == ESPL_OK) {
        status = espl_prune_select(&config, &params->common, &selection, err);
    }
    if (status == ESPL_OK) {
        est->units = selection.selected_layers;
        est->output_bytes = selection.selected_mask_bytes + 65536;
        est->scratch_bytes = selection.selected_mask_bytes + 65536 * selection.selected_layers;
        /* Pieces of weights, the masks of one layer, and what the libraries keep; measured peak of
         * an 8B model: 37 MB. */
        est->host_bytes = 3 * (uint64_t)PIECE_BYTES + ((uint64_t)32 << 20) +
                          selection.selected_mask_bytes / (selection.selected_layers + 1) +
                          span_bytes(&params->common, &selection);
        est->flop = 3.0 * (double)selection.selected_elements;
        (void)snprintf(est->note, sizeof est->note, "%zu of %zu linear layers", selection.selected,
                       selection.all_linears);
        status = espl_model_plan_output(ctx, model, "pruning", describe(params, &selection), err);
    }
    espl_prune_selection_free(&selection);
    return status;
}

/* What a run holds: two buffers for pieces, whatever the size of the model. */
struct magnitude_run {
    struct espl_stage_ctx *ctx;
    const struct magnitude_params *params;
    struct espl_model *model;
    struct espl_backend *backend;
    struct espl_prune_selection selection;
    void *piece;    /* weights, at least one row */
    float *score;   /* |W| of a piece */
    float *ones;    /* norms that leave |W| as it is */
    size_t buf_len; /* bytes of piece and of score */
    size_t cols;    /* most columns of a selected linear */
};

static enum espl_status open_run(struct magnitude_run *run, struct espl_error *err)
{
    enum espl_status status = check_scope(run->params, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_model_open(espl_ctx_input(run->ctx, "model"), espl_ctx_store(run->ctx),
                             &run->model, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_prune_select(espl_model_get_config(run->model), &run->params->common,
                               &run->selection, err);
    if (status == ESPL_OK) {
        status = espl_prune_open_backend(run->ctx, &run->backend, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < run->selection.count; i++) {
        const size_t cols = (size_t)run->selection.linears[i].spec.shape[1];
        run->cols = cols > run->cols ? cols : run->cols;
    }
    if (!espl_mul_size(run->cols, sizeof(float), &run->buf_len)) {
        return espl_fail(err, ESPL_E_NOMEM, "rows of %zu columns do not fit in memory", run->cols);
    }
    run->ones = malloc(run->buf_len);
    if (!espl_mul_size(run->buf_len, espl_prune_row_span(&run->params->common), &run->buf_len)) {
        return espl_fail(err, ESPL_E_NOMEM, "rows of %zu columns do not fit in memory", run->cols);
    }
    run->buf_len = run->buf_len > PIECE_BYTES ? run->buf_len : PIECE_BYTES;
    run->piece = malloc(run->buf_len);
    run->score = malloc(run->buf_len);
    if (run->ones == NULL || run->piece == NULL || run->score == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for pieces of %zu bytes", run->buf_len);
    }
    for (size_t i = 0; i < run->cols; i++) {
        run->ones[i] = 1.0f;
    }
    return ESPL_OK;
}

static void close_run(struct magnitude_run *run)
{
    free(run->piece);
    free(run->score);
    free(run->ones);
    espl_backend_close(run->backend);
    espl_prune_selection_free(&run->selection);
    espl_model_close(run->model);
}

static enum espl_status fail_weight(const struct espl_tensor_spec *spec, uint64_t row, size_t col,
                                    struct espl_error *err)
{
    espl_fail(err, ESPL_E_NUMERIC, "weight of '%s' at row %" PRIu64 ", column %zu is not finite",
              spec->module, row, col);
    return espl_hint(err, "the checkpoint is damaged or was saved after a diverged training run");
}

/* Threshold T = sorted |W| at position int(numel * sparsity) of a linear. */
static enum espl_status find_threshold(struct magnitude_run *run,
                                       const struct espl_tensor_spec *spec, enum espl_dtype dtype,
                                       size_t rows_per_piece, uint32_t *threshold,
                                       struct espl_error *err)
{
    const size_t cols = (size_t)spec->shape[1];
    const double elements = (double)spec->shape[0] * (double)spec->shape[1];
    struct espl_magnitude_select *select = NULL;
    enum espl_status status = espl_magnitude_select_create(
        dtype, (uint64_t)(elements * run->params->common.sparsity), &select, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (unsigned pass = 0; pass < espl_magnitude_select_passes(select); pass++) {
        for (uint64_t row = 0; row < spec->shape[0]; row += rows_per_piece) {
            const uint64_t left = spec->shape[0] - row;
            const size_t rows = left < rows_per_piece ? (size_t)left : rows_per_piece;
            status = espl_model_read_raw(run->model, spec, row, rows, run->piece,
                                         rows * cols * espl_dtype_size(dtype), err);
            if (status != ESPL_OK) {
                goto cleanup;
            }
            const size_t bad = espl_magnitude_select_add(select, run->piece, rows * cols);
            if (bad < rows * cols) {
                status = fail_weight(spec, row + bad / cols, bad % cols, err);
                goto cleanup;
            }
        }
        espl_magnitude_select_end_pass(select);
    }
    *threshold = espl_magnitude_select_threshold(select);

cleanup:
    espl_magnitude_select_destroy(select);
    return status;
}

static enum espl_status mask_matrix(struct magnitude_run *run, const struct espl_tensor_spec *spec,
                                    uint8_t *mask, struct espl_error *err)
{
    const size_t cols = (size_t)spec->shape[1];
    const size_t stride = espl_mask_stride(cols);
    const enum espl_dtype dtype = espl_model_dtype(run->model, spec);
    const size_t row_bytes = cols * espl_dtype_size(dtype);
    const size_t rows_per_piece = run->buf_len / row_bytes;
    uint32_t threshold = 0;
    enum espl_status status = find_threshold(run, spec, dtype, rows_per_piece, &threshold, err);
    for (uint64_t row = 0; row < spec->shape[0] && status == ESPL_OK; row += rows_per_piece) {
        const uint64_t left = spec->shape[0] - row;
        const size_t rows = left < rows_per_piece ? (size_t)left : rows_per_piece;
        status =
            espl_model_read_raw(run->model, spec, row, rows, run->piece, rows * row_bytes, err);
        if (status == ESPL_OK) {
            (void)espl_magnitude_mask(dtype, run->piece, rows, cols, threshold,
                                      mask + row * stride); /* counted later, as stored */
        }
    }
    return status;
}

static enum espl_status mask_piece(struct magnitude_run *run, const struct espl_tensor_spec *spec,
                                   uint64_t row, size_t rows, uint8_t *mask, struct espl_error *err)
{
    const struct espl_prune_params *common = &run->params->common;
    const struct espl_ops *ops = espl_backend_ops(run->backend);
    const struct espl_matrix_shape shape = {rows, (size_t)spec->shape[1]};
    const size_t count = shape.rows * shape.cols;
    size_t bad = count;
    enum espl_status status = espl_model_read_f32(run->model, spec, row, rows, run->piece, err);
    if (status == ESPL_OK) {
        status = ops->find_nonfinite(run->backend, count, run->piece, &bad, err);
    }
    if (status == ESPL_OK && bad < count) {
        status = fail_weight(spec, row + bad / shape.cols, bad % shape.cols, err);
    }
    if (status == ESPL_OK) {
        status = ops->wanda_score(run->backend, &shape, run->piece, run->ones, run->score, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (common->pattern.m > 0) {
        const struct espl_nm_choice choice = espl_prune_nm_choice(common);
        return espl_align_nm_mask(run->backend, &choice, &shape, run->score, mask, err);
    }
    return espl_align_row_mask(run->backend, &common->align, &shape, run->score, common->sparsity,
                               mask, err);
}

static enum espl_status mask_rows(struct magnitude_run *run, const struct espl_tensor_spec *spec,
                                  uint8_t *mask, struct espl_error *err)
{
    const size_t cols = (size_t)spec->shape[1];
    const size_t span = espl_prune_row_span(&run->params->common);
    const size_t rows_per_piece = run->buf_len / (cols * sizeof(float)) / span * span;
    enum espl_status status = ESPL_OK;
    for (uint64_t row = 0; row < spec->shape[0] && status == ESPL_OK; row += rows_per_piece) {
        const uint64_t left = spec->shape[0] - row;
        const size_t rows = left < rows_per_piece ? (size_t)left : rows_per_piece;
        status = mask_piece(run, spec, row, rows, mask + row * espl_mask_stride(cols), err);
    }
    return status;
}

static enum espl_status prune_linear(void *user, const struct espl_prune_linear *linear,
                                     struct espl_artifact *unit, struct espl_error *err)
{
    struct magnitude_run *run = user;
    const struct espl_prune_params *common = &run->params->common;
    const struct espl_tensor_spec *spec =
        espl_model_find(run->model, linear->spec.layer, linear->spec.role, false);
    const bool by_matrix = common->pattern.m == 0 && run->params->scope == SCOPE_MATRIX;
    size_t bytes = 0;
    if (espl_ctx_cancelled(run->ctx)) {
        return espl_ctx_stop(run->ctx, err);
    }
    enum espl_status status = espl_prune_mask_bytes(spec, &bytes, err);
    if (status != ESPL_OK) {
        return status;
    }
    uint8_t *mask = malloc(bytes);
    if (mask == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a mask of %zu bytes", bytes);
    }
    /* T would remove the smallest weight even when nothing is asked for. */
    if (by_matrix && common->sparsity > 0.0) {
        status = mask_matrix(run, spec, mask, err);
    } else {
        status = mask_rows(run, spec, mask, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_store_mask(run->ctx, run->model, linear, unit, mask, err);
    }
    free(mask);
    return status == ESPL_OK ? status : espl_context(err, "while pruning '%s'", spec->module);
}

static enum espl_status prune_layer(struct magnitude_run *run, uint64_t layer,
                                    struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    enum espl_status status = espl_ctx_unit_create(run->ctx, layer, &unit, err);
    if (status == ESPL_OK) {
        status = espl_prune_for_block(&run->selection, layer, prune_linear, run, unit, err);
    }
    /* An unpublished unit belongs to the context, which drops it. */
    return status == ESPL_OK ? espl_ctx_unit_publish(run->ctx, layer, &unit, err) : status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    struct magnitude_run state = {.ctx = ctx, .params = params};
    enum espl_status status = open_run(&state, err);
    for (uint64_t layer = 0; status == ESPL_OK && layer < state.selection.layers; layer++) {
        espl_ctx_progress(ctx, layer, state.selection.layers, "layer");
        if (espl_prune_selection_has_layer(&state.selection, layer) &&
            !espl_ctx_unit_done(ctx, layer)) {
            status = prune_layer(&state, layer, err);
        }
    }
    if (status == ESPL_OK) {
        espl_ctx_progress(ctx, state.selection.layers, state.selection.layers, "layer");
        status = espl_prune_finish(ctx, state.model, &state.selection,
                                   describe(state.params, &state.selection), err);
    }
    close_run(&state);
    return status;
}

const struct espl_stage espl_stage_magnitude_prune = {
    .name = "magnitude-prune",
    .summary = "removes the weights with the smallest magnitude",
    .cache_version = 1,
    .flags = ESPL_STAGE_RESUMABLE,
    .params = params_table,
    .params_size = sizeof(struct magnitude_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};
