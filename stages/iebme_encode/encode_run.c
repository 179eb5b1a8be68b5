#include "stages/iebme_encode/encode_run.h"

#include "model/iebme_linear.h"
#include "stages/encode_common/coded_linear.h"
#include "stages/encode_common/encoded_output.h"
#include "stages/encode_common/unit_counts.h"
#include "stages/iebme_encode/encode_linear.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const espl_encode_area_choices[] = {"auto", "auto-matrix", "1x1", "1x2", "1x4",
                                                "2x1",  "2x2",         "2x4", "4x1", "4x2",
                                                "4x4",  "dense",       NULL};

struct state {
    struct espl_stage_ctx *ctx;
    struct espl_model *model;
    struct espl_artifact *order; /* NULL without */
    enum espl_iebme_areas areas;
};

json_t *espl_encode_describe(const struct espl_encode_params *params, const json_t *order)
{
    json_t *encoding = json_pack("{s:s, s:s}", "format", "ie-bme/1", "areas",
                                 espl_encode_area_choices[params->areas]);
    if (encoding != NULL && order != NULL &&
        json_object_set_new(encoding, "order",
                            json_pack("{s:O*, s:O*, s:O*}", "rows", json_object_get(order, "rows"),
                                      "cols", json_object_get(order, "cols"), "scope",
                                      json_object_get(order, "scope"))) != 0) {
        json_decref(encoding);
        return NULL;
    }
    return encoding;
}

/* An order of other codes would decode rightly and save nothing. */
static enum espl_status check_order(const struct state *state, struct espl_error *err)
{
    const struct espl_artifact *model = espl_ctx_input(state->ctx, "model");
    json_t *description = json_loads(espl_artifact_description(state->order), 0, NULL);
    const char *base =
        json_string_value(json_object_get(json_object_get(description, "base"), "content_sha256"));
    const bool same = base != NULL && strcmp(base, espl_artifact_content_sha256(model)) == 0;
    json_decref(description);
    if (same) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_KIND, "the row order was made for another model than '%s'",
              espl_artifact_path(model));
    espl_hint(err, "give row-reorder the same model as iebme-encode");
    return espl_blame(err, "input:order");
}

static enum espl_status open_run(struct state *state, const struct espl_encode_params *params,
                                 struct espl_error *err)
{
    if (!espl_iebme_areas_parse(espl_encode_area_choices[params->areas], &state->areas)) {
        return espl_fail(err, ESPL_E_INTERNAL, "no areas '%s'",
                         espl_encode_area_choices[params->areas]);
    }
    state->order = espl_ctx_input(state->ctx, "order");
    const enum espl_status status = espl_model_open(espl_ctx_input(state->ctx, "model"),
                                                    espl_ctx_store(state->ctx), &state->model, err);
    return status == ESPL_OK && state->order != NULL ? check_order(state, err) : status;
}

/* ---- one linear ---- */

static enum espl_status read_order(const struct state *state, const struct espl_tensor_spec *spec,
                                   const struct espl_quant_linear *linear,
                                   struct espl_encode_order *order, struct espl_error *err)
{
    struct espl_iebme_layout layout = {.rows = linear->out, .cols = linear->normal};
    size_t count = 0;
    *order = (struct espl_encode_order){ESPL_IEBME_SCOPE_NONE, NULL};
    if (state->order == NULL) {
        return ESPL_OK;
    }
    const enum espl_status status =
        espl_iebme_order_read(state->order, spec, &layout, &order->words, &count, err);
    order->scope = layout.scope;
    if (status == ESPL_OK && order->scope == ESPL_IEBME_SCOPE_NONE) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' has no order for '%s'",
                         espl_artifact_path(state->order), spec->module);
    }
    return status;
}

struct figure {
    const char *name;
    double value; /* infinite ones are left out: nothing to divide by */
};

static enum espl_status report_linear(const struct state *state,
                                      const struct espl_tensor_spec *spec,
                                      const struct espl_quant_linear *linear,
                                      const uint64_t counts[ESPL_ENCODE_COUNTS],
                                      struct espl_error *err)
{
    const uint64_t layer = (uint64_t)spec->layer;
    const struct espl_traffic traffic =
        espl_encode_traffic(counts, linear->out, linear->normal, linear->weight_bits);
    const double pmr = espl_traffic_pmr(&traffic);
    const struct figure figures[] = {
        {"bits_per_weight",
         8.0 * (double)counts[ESPL_ENCODE_BYTES] / (double)counts[ESPL_ENCODE_WEIGHTS]},
        {"pmr", pmr},
        {"pmr_effective", espl_traffic_pmr_effective(&traffic)},
        {"intensity", espl_traffic_intensity(&traffic, 1.0, pmr)},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && status == ESPL_OK; i++) {
        if (isfinite(figures[i].value)) {
            status = espl_ctx_layer_metric(state->ctx, figures[i].name, layer, spec->module,
                                           figures[i].value, err);
        }
    }
    for (size_t i = ESPL_ENCODE_BYTES; i <= ESPL_ENCODE_TILED_CSL && status == ESPL_OK; i++) {
        if (counts[i] != ESPL_UNIT_COUNT_NONE) {
            status = espl_ctx_layer_metric(state->ctx, espl_encode_names[i], layer, spec->module,
                                           (double)counts[i], err);
        }
    }
    return status;
}

static enum espl_status encode_linear(struct state *state, const struct espl_tensor_spec *spec,
                                      struct espl_artifact *unit,
                                      bool orders_written[ESPL_QUANT_SITES],
                                      uint64_t totals[ESPL_ENCODE_COUNTS], struct espl_error *err)
{
    const enum espl_quant_site site = espl_quant_site_of(spec->role);
    struct espl_quant_linear linear = {0};
    struct espl_encode_order order = {ESPL_IEBME_SCOPE_NONE, NULL};
    uint64_t counts[ESPL_ENCODE_COUNTS];
    enum espl_status status =
        espl_quant_linear_read(state->model, spec->layer, spec->role, false, &linear, err);
    if (status == ESPL_OK) {
        status = read_order(state, spec, &linear, &order, err);
    }
    if (status == ESPL_OK) {
        status = espl_encode_linear(&linear, state->areas, &order, counts, err);
    }
    if (status == ESPL_OK) {
        status = espl_quant_linear_write(unit, spec, &linear, err);
    }
    if (status == ESPL_OK && linear.order != NULL && !orders_written[site]) {
        orders_written[site] = true;
        status = espl_quant_order_write(unit, spec->layer, site, linear.order, linear.in, err);
    }
    if (status == ESPL_OK) {
        status = report_linear(state, spec, &linear, counts, err);
    }
    for (size_t i = 0; i < ESPL_ENCODE_COUNTS && status == ESPL_OK; i++) {
        espl_unit_count_add(&totals[i], counts[i]);
    }
    if (status != ESPL_OK) {
        espl_context(err, "encoding '%s'", spec->module);
    }
    free(order.words);
    espl_quant_linear_free(&linear);
    return status;
}

/* ---- blocks ---- */

static enum espl_status run_block(void *user, uint64_t layer, struct espl_error *err)
{
    struct state *state = user;
    struct espl_artifact *unit = NULL;
    uint64_t totals[ESPL_ENCODE_COUNTS] = {0};
    bool orders_written[ESPL_QUANT_SITES] = {false};
    enum espl_status status = espl_ctx_unit_create(state->ctx, layer, &unit, err);
    for (size_t i = 0; status == ESPL_OK && i < espl_model_tensor_count(state->model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(state->model, i);
        if (spec->layer != (int64_t)layer) {
            continue;
        }
        if (espl_ctx_cancelled(state->ctx)) {
            return espl_ctx_stop(state->ctx, err);
        }
        status = espl_model_is_quantised(state->model, spec)
                     ? encode_linear(state, spec, unit, orders_written, totals, err)
                     : espl_model_copy_tensor(unit, state->model, spec, err);
    }
    if (status == ESPL_OK) {
        status = espl_unit_counts_write(unit, espl_encode_names, totals, ESPL_ENCODE_COUNTS, err);
    }
    /* An unpublished unit belongs to the context, which drops it. */
    return status == ESPL_OK ? espl_ctx_unit_publish(state->ctx, layer, &unit, err) : status;
}

/* ---- the output ---- */

static enum espl_status begin_output(const struct state *state,
                                     const struct espl_encode_params *params,
                                     struct espl_error *err)
{
    json_t *order =
        state->order != NULL ? json_loads(espl_artifact_description(state->order), 0, NULL) : NULL;
    json_t *encoding = espl_encode_describe(params, order);
    const enum espl_status status =
        encoding == NULL ? espl_fail(err, ESPL_E_NOMEM, "no memory for a description")
                         : espl_model_begin_encoded(espl_ctx_output(state->ctx, "model"),
                                                    state->model, encoding, NULL, err);
    json_decref(encoding);
    json_decref(order);
    return status;
}

static enum espl_status report_totals(const struct state *state,
                                      const uint64_t totals[ESPL_ENCODE_COUNTS],
                                      struct espl_error *err)
{
    const double weights = (double)totals[ESPL_ENCODE_WEIGHTS];
    const struct espl_traffic traffic = espl_encode_traffic(
        totals, 1, (size_t)weights, espl_model_quant_scheme(state->model)->weight_bits);
    const struct figure figures[] = {
        {"bits_per_weight", 8.0 * (double)totals[ESPL_ENCODE_BYTES] / weights},
        {"bits_per_weight_dense", 8.0 * (double)totals[ESPL_ENCODE_DENSE] / weights},
        {"pmr", espl_traffic_pmr(&traffic)},
        {"pmr_effective", espl_traffic_pmr_effective(&traffic)},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < sizeof figures / sizeof figures[0] && status == ESPL_OK; i++) {
        if (isfinite(figures[i].value)) {
            status = espl_ctx_metric(state->ctx, figures[i].name, figures[i].value, false, err);
        }
    }
    for (size_t i = 0; i < ESPL_ENCODE_COUNTS && status == ESPL_OK; i++) {
        if (totals[i] == ESPL_UNIT_COUNT_NONE) {
            espl_log(espl_ctx_log(state->ctx), ESPL_LOG_INFO,
                     "no '%s' in all: the format cannot hold every linear", espl_encode_names[i]);
        } else if (i < ESPL_ENCODE_AREAS || totals[i] > 0) {
            /* Areas that no linear has are not worth a line. */
            status =
                espl_ctx_metric(state->ctx, espl_encode_names[i], (double)totals[i], false, err);
        }
    }
    return status;
}

enum espl_status espl_encode_run(struct espl_stage_ctx *ctx,
                                 const struct espl_encode_params *params, struct espl_error *err)
{
    struct state state = {.ctx = ctx};
    uint64_t totals[ESPL_ENCODE_COUNTS] = {0};
    enum espl_status status = open_run(&state, params, err);
    if (status == ESPL_OK) {
        status = espl_encoded_blocks(ctx, state.model, run_block, &state, err);
    }
    if (status == ESPL_OK) {
        status = begin_output(&state, params, err);
    }
    if (status == ESPL_OK) {
        status = espl_encoded_assemble(ctx, state.model, espl_encode_names, totals,
                                       ESPL_ENCODE_COUNTS, err);
    }
    if (status == ESPL_OK) {
        status = report_totals(&state, totals, err);
    }
    espl_model_close(state.model);
    return status;
}
