/* iebme-encode: reads a quantised model and, when given, its row orders, writes a model of its own
 * whose codes are encoded. */
#include "engine/stage.h"
#include "espalier/iebme.h"
#include "stages/encode_common/coded_linear.h"
#include "stages/iebme_encode/encode_run.h"

#include <inttypes.h>
#include <stdio.h>

static const struct espl_param params_table[] = {
    {.name = "areas",
     .help =
         "areas that share a mask bit, rows x columns; auto = the fewest bytes, by matrix or by "
         "tile; auto-matrix = by matrix; dense = no masks",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "auto",
     .choices = espl_encode_area_choices,
     .offset = offsetof(struct espl_encode_params, areas)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", "model.quant/1", 0, "the quantised model to encode"},
    {"order", "order.rows/1", ESPL_PORT_OPTIONAL,
     "row orders of the same model, used where they save bytes"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"model", "model.iebme/1", 0, "the encoded model, complete in one file"},
    {NULL, NULL, 0, NULL},
};

static enum espl_status check_bits(const struct espl_coded_model *model, struct espl_error *err)
{
    const unsigned bits = model->scheme.weight_bits;
    if (bits == 2 || bits == 4 || bits == 8) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_JOB, "IE-BME holds codes of 2, 4 or 8 bits, but the model has %u", bits);
    espl_hint(err, "quantise with weight_bits: 2, 4 or 8");
    return espl_blame(err, "input:model");
}

/* A row order is worth nothing to areas that are as high as the tile, or to no areas. */
static enum espl_status check_order(struct espl_plan_ctx *ctx,
                                    const struct espl_encode_params *params, const json_t *order,
                                    struct espl_error *err)
{
    const char *name = espl_encode_area_choices[params->areas];
    enum espl_iebme_areas areas = ESPL_IEBME_AUTO;
    unsigned rows = 0;
    unsigned cols = 0;
    if (!espl_iebme_areas_parse(name, &areas) || areas > ESPL_IEBME_DENSE) {
        return ESPL_OK; /* automatic: takes the order where it saves bytes */
    }
    espl_iebme_areas_grid(areas, &rows, &cols);
    if (rows == 1 || areas == ESPL_IEBME_DENSE) {
        espl_fail(err, ESPL_E_JOB, "areas '%s' gain nothing from a row order", name);
        espl_hint(err, "leave the input 'order' out, or choose areas with 2 or 4 rows, or auto");
        return espl_blame(err, "input:order");
    }
    const json_int_t made_rows = json_integer_value(json_object_get(order, "rows"));
    const json_int_t made_cols = json_integer_value(json_object_get(order, "cols"));
    if (made_rows != (json_int_t)rows || made_cols != (json_int_t)cols) {
        espl_plan_warn(ctx,
                       "the row order is the best one for %" JSON_INTEGER_FORMAT
                       "x%" JSON_INTEGER_FORMAT " areas, but 'areas' is %s",
                       made_rows, made_cols, name);
    }
    return ESPL_OK;
}

/* Description of the output, for stages downstream. NULL when out of memory. */
static json_t *predict(const json_t *model, json_t *encoding)
{
    return json_pack("{s:O*, s:O*, s:O*, s:O*, s:O}", "architecture",
                     json_object_get(model, "architecture"), "config",
                     json_object_get(model, "config"), "pruning", json_object_get(model, "pruning"),
                     "quantisation", json_object_get(model, "quantisation"), "encoding", encoding);
}

static void estimate(const struct espl_coded_model *model, const struct espl_encode_params *params,
                     bool ordered, struct espl_estimate *est)
{
    const uint64_t header_bytes = 4096; /* of a dataset */
    const uint64_t mask_bytes = model->tiles * (ESPL_IEBME_TILE_VALUES / 8 + sizeof(uint32_t) + 1);
    est->units = model->config.layers;
    /* No more than dense codes and, with fixed areas, a mask; auto stays below dense. */
    est->output_bytes = model->code_bytes + mask_bytes + model->other_bytes +
                        8 * header_bytes * (model->linears + est->units) +
                        header_bytes * model->in_float + 65536;
    est->scratch_bytes = est->output_bytes + 65536 * est->units;
    /* Packed codes, codes as bytes, encoded ones; pieces of other tensors. */
    est->host_bytes = 4 * model->largest + ((uint64_t)16 << 20);
    (void)snprintf(est->note, sizeof est->note, "%" PRIu64 " linear layers, areas %s%s",
                   model->linears, espl_encode_area_choices[params->areas],
                   ordered ? ", rows in order where that saves bytes" : "");
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const struct espl_encode_params *params = stage_params;
    const json_t *description = espl_plan_input(ctx, "model");
    const json_t *order = espl_plan_input(ctx, "order");
    struct espl_coded_model model;
    enum espl_status status = order != NULL ? check_order(ctx, params, order, err) : ESPL_OK;
    if (status != ESPL_OK || description == NULL) {
        return status;
    }
    status = espl_coded_model_read(description, &model, err);
    if (status == ESPL_OK) {
        status = check_bits(&model, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    estimate(&model, params, order != NULL, est);
    json_t *encoding = espl_encode_describe(params, order);
    json_t *predicted = encoding != NULL ? predict(description, encoding) : NULL;
    json_decref(encoding);
    if (predicted == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
    }
    espl_plan_set_output(ctx, "model", predicted);
    return ESPL_OK;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    return espl_encode_run(ctx, params, err);
}

const struct espl_stage espl_stage_iebme_encode = {
    .name = "iebme-encode",
    .summary = "union masks over low-bit codes (IE-BME), in the areas that take the fewest bytes",
    .cache_version = 1,
    .flags = ESPL_STAGE_RESUMABLE,
    .params = params_table,
    .params_size = sizeof(struct espl_encode_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};
