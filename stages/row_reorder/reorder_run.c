#include "stages/row_reorder/reorder_run.h"

#include "core/log.h"
#include "espalier/kernels.h"
#include "espalier/row_reorder.h"
#include "model/iebme_linear.h"
#include "stages/encode_common/coded_linear.h"
#include "stages/encode_common/unit_counts.h"

#include <inttypes.h>
#include <stdlib.h>

const char *const espl_reorder_scope_choices[] = {"stripe", "tile", NULL};

/* What is counted of a linear, a block and the model; names of attributes and metrics. */
enum count { TILES, POSITIONS, ONES_BEFORE, ONES_AFTER, COUNTS };
static const char *const count_names[COUNTS] = {"tiles", "mask_positions", "mask_ones_before",
                                                "mask_ones_after"};

struct state {
    struct espl_stage_ctx *ctx;
    const struct espl_reorder_params *params;
    struct espl_model *model;
    struct espl_backend *backend; /* for its number of threads */
    struct espl_reorder *reorder;
    enum espl_iebme_areas areas;
    double seconds; /* of solving, in this process */
    uint64_t solved_tiles;
};

json_t *espl_reorder_describe(const struct espl_reorder_params *params, const char *base)
{
    json_t *description =
        json_pack("{s:I, s:I, s:s}", "rows", (json_int_t)params->rows, "cols",
                  (json_int_t)params->cols, "scope", espl_reorder_scope_choices[params->scope]);
    if (description != NULL && base != NULL &&
        json_object_set_new(description, "base", json_pack("{s:s}", "content_sha256", base)) != 0) {
        json_decref(description);
        return NULL;
    }
    return description;
}

static enum espl_iebme_scope scope_of(const struct espl_reorder_params *params)
{
    return params->scope == ESPL_REORDER_TILE ? ESPL_IEBME_SCOPE_TILE : ESPL_IEBME_SCOPE_STRIPE;
}

static enum espl_status open_run(struct state *state, struct espl_error *err)
{
    enum espl_status status = espl_model_open(espl_ctx_input(state->ctx, "model"),
                                              espl_ctx_store(state->ctx), &state->model, err);
    if (status == ESPL_OK) {
        status = espl_backend_open("cpu", 0, &state->backend, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const struct espl_reorder_options options = {
        .row_areas = (unsigned)state->params->rows,
        .col_areas = (unsigned)state->params->cols,
        .scope = scope_of(state->params),
        .threads = espl_backend_threads(state->backend),
    };
    (void)espl_iebme_areas_from_grid(options.row_areas, options.col_areas,
                                     &state->areas); /* create refuses what does not exist */
    return espl_reorder_create(&options, &state->reorder, err);
}

/* ---- one linear ---- */

/* Mask bits that are 1, counted by the encoder's planner, not by the solver. */
static enum espl_status count_ones(const struct state *state,
                                   const struct espl_quant_linear *linear, const int8_t *codes,
                                   enum espl_iebme_scope scope, const uint64_t *orders,
                                   uint64_t *ones, struct espl_error *err)
{
    /* Any codes fit 8 bits, and the masks are the same. */
    const struct espl_iebme_layout layout = {linear->out, linear->normal, 8, state->areas, scope};
    struct espl_iebme_plan plan;
    const enum espl_status status = espl_iebme_plan(codes, &layout, orders, &plan, err);
    *ones = status == ESPL_OK ? plan.mask_ones : 0;
    return status;
}

static enum espl_status report_linear(const struct state *state,
                                      const struct espl_tensor_spec *spec,
                                      const uint64_t counts[COUNTS], struct espl_error *err)
{
    const double positions = (double)counts[POSITIONS];
    const enum espl_status status =
        espl_ctx_layer_metric(state->ctx, "active_before", (uint64_t)spec->layer, spec->module,
                              (double)counts[ONES_BEFORE] / positions, err);
    return status == ESPL_OK
               ? espl_ctx_layer_metric(state->ctx, "active_after", (uint64_t)spec->layer,
                                       spec->module, (double)counts[ONES_AFTER] / positions, err)
               : status;
}

static enum espl_status solve(struct state *state, const struct espl_tensor_spec *spec,
                              const struct espl_quant_linear *linear, const int8_t *codes,
                              uint64_t *orders, uint64_t counts[COUNTS], struct espl_error *err)
{
    const enum espl_iebme_scope scope = scope_of(state->params);
    const double start = espl_clock_monotonic();
    espl_reorder_codes(state->reorder, codes, linear->out, linear->normal, orders, NULL);
    state->seconds += espl_clock_monotonic() - start;
    state->solved_tiles += counts[TILES];
    enum espl_status status =
        count_ones(state, linear, codes, ESPL_IEBME_SCOPE_NONE, NULL, &counts[ONES_BEFORE], err);
    if (status == ESPL_OK) {
        status = count_ones(state, linear, codes, scope, orders, &counts[ONES_AFTER], err);
    }
    if (status == ESPL_OK && counts[ONES_AFTER] > counts[ONES_BEFORE]) {
        status = espl_fail(err, ESPL_E_INTERNAL,
                           "the new order of '%s' has %" PRIu64 " mask bits, the old one %" PRIu64,
                           spec->module, counts[ONES_AFTER], counts[ONES_BEFORE]);
    }
    return status;
}

static enum espl_status reorder_linear(struct state *state, const struct espl_tensor_spec *spec,
                                       struct espl_artifact *unit, uint64_t counts[COUNTS],
                                       struct espl_error *err)
{
    struct espl_quant_linear linear = {0};
    uint64_t own[COUNTS] = {0};
    int8_t *codes = NULL;
    uint64_t *orders = NULL;
    enum espl_status status =
        espl_quant_linear_read(state->model, spec->layer, spec->role, false, &linear, err);
    if (status == ESPL_OK) {
        status = espl_coded_unpack(&linear, &codes, err);
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    const struct espl_iebme_layout layout = {
        .rows = linear.out, .cols = linear.normal, .scope = scope_of(state->params)};
    own[TILES] = espl_coded_tiles(&linear);
    own[POSITIONS] =
        own[TILES] * ESPL_IEBME_TILE_VALUES / (uint64_t)(state->params->rows * state->params->cols);
    orders = calloc((size_t)own[TILES], sizeof *orders);
    if (orders == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for the orders of %" PRIu64 " tiles",
                           own[TILES]);
        goto cleanup;
    }
    status = solve(state, spec, &linear, codes, orders, own, err);
    if (status == ESPL_OK) {
        status = espl_iebme_order_write(unit, spec, &layout, orders, err);
    }
    if (status == ESPL_OK) {
        status = report_linear(state, spec, own, err);
    }
    for (size_t i = 0; i < COUNTS; i++) {
        counts[i] += own[i];
    }

cleanup:
    free(orders);
    free(codes);
    espl_quant_linear_free(&linear);
    return status;
}

/* ---- blocks ---- */

static enum espl_status run_block(struct state *state, uint64_t layer, struct espl_error *err)
{
    struct espl_artifact *unit = NULL;
    uint64_t counts[COUNTS] = {0};
    size_t index = 0;
    const struct espl_tensor_spec *spec;
    enum espl_status status = espl_ctx_unit_create(state->ctx, layer, &unit, err);
    while (status == ESPL_OK && (spec = espl_coded_next(state->model, layer, &index)) != NULL) {
        status = espl_ctx_cancelled(state->ctx) ? espl_ctx_stop(state->ctx, err)
                                                : reorder_linear(state, spec, unit, counts, err);
    }
    if (status == ESPL_OK) {
        status = espl_unit_counts_write(unit, count_names, counts, COUNTS, err);
    }
    /* An unpublished unit belongs to the context, which drops it. */
    return status == ESPL_OK ? espl_ctx_unit_publish(state->ctx, layer, &unit, err) : status;
}

static bool has_coded(const struct state *state, uint64_t layer)
{
    size_t index = 0;
    return espl_coded_next(state->model, layer, &index) != NULL;
}

/* ---- the output ---- */

static enum espl_status begin_output(struct state *state, struct espl_error *err)
{
    json_t *description = espl_reorder_describe(
        state->params, espl_artifact_content_sha256(espl_ctx_input(state->ctx, "model")));
    char *text =
        description != NULL ? json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const enum espl_status status =
        text == NULL
            ? espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output")
            : espl_artifact_set_description(espl_ctx_output(state->ctx, "order"), text, err);
    free(text);
    json_decref(description);
    return status;
}

static enum espl_status report_counts(const struct state *state, const uint64_t counts[COUNTS],
                                      struct espl_error *err)
{
    const double before = (double)counts[ONES_BEFORE];
    const double saved = (double)(counts[ONES_BEFORE] - counts[ONES_AFTER]);
    const struct {
        const char *name;
        double value;
        bool is_volatile;
    } figures[] = {
        {"tiles", (double)counts[TILES], false},
        {"mask_positions", (double)counts[POSITIONS], false},
        {"mask_ones_before", before, false},
        {"mask_ones_after", (double)counts[ONES_AFTER], false},
        {"mask_ones_saved", before > 0.0 ? saved / before : 0.0, false},
        {"tiles_per_second",
         state->seconds > 0.0 ? (double)state->solved_tiles / state->seconds : 0.0, true},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && status == ESPL_OK; i++) {
        status = espl_ctx_metric(state->ctx, figures[i].name, figures[i].value,
                                 figures[i].is_volatile, err);
    }
    return status;
}

static enum espl_status finish_run(struct state *state, uint64_t layers, struct espl_error *err)
{
    uint64_t counts[COUNTS] = {0};
    enum espl_status status = begin_output(state, err);
    for (uint64_t layer = 0; layer < layers && status == ESPL_OK; layer++) {
        struct espl_artifact *unit = NULL;
        if (!has_coded(state, layer)) {
            continue;
        }
        status = espl_ctx_unit_open(state->ctx, layer, &unit, err);
        if (status == ESPL_OK) {
            status = espl_artifact_copy_datasets(espl_ctx_output(state->ctx, "order"), unit, err);
        }
        if (status == ESPL_OK) {
            status = espl_unit_counts_add(unit, count_names, counts, COUNTS, err);
        }
        espl_artifact_close(unit);
    }
    return status == ESPL_OK ? report_counts(state, counts, err) : status;
}

enum espl_status espl_reorder_run(struct espl_stage_ctx *ctx,
                                  const struct espl_reorder_params *params, struct espl_error *err)
{
    struct state state = {.ctx = ctx, .params = params};
    uint64_t layers = 0;
    enum espl_status status = open_run(&state, err);
    if (status == ESPL_OK) {
        layers = espl_model_get_config(state.model)->layers;
    }
    for (uint64_t layer = 0; layer < layers && status == ESPL_OK; layer++) {
        espl_ctx_progress(ctx, layer, layers, "layer");
        if (has_coded(&state, layer) && !espl_ctx_unit_done(ctx, layer)) {
            status = run_block(&state, layer, err);
        }
    }
    if (status == ESPL_OK) {
        espl_ctx_progress(ctx, layers, layers, "layer");
        status = finish_run(&state, layers, err);
    }
    espl_reorder_destroy(state.reorder);
    espl_backend_close(state.backend);
    espl_model_close(state.model);
    return status;
}
