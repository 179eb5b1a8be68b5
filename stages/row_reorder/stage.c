/* row-reorder: reads a quantised model, writes for every linear the order of rows that leaves the
 * fewest union mask bits. */
#include "engine/stage.h"
#include "stages/encode_common/coded_linear.h"
#include "stages/row_reorder/reorder_run.h"

#include <inttypes.h>
#include <stdio.h>

static const struct espl_param params_table[] = {
    {.name = "rows",
     .help = "rows that share a mask bit (R_A of the areas): 1, 2 or 4",
     .unit = "rows",
     .type = ESPL_PARAM_INT,
     .default_text = "2",
     .min = 1.0,
     .max = 4.0,
     .offset = offsetof(struct espl_reorder_params, rows)},
    {.name = "cols",
     .help = "columns that share a mask bit (C_A of the areas): 1, 2 or 4",
     .unit = "columns",
     .type = ESPL_PARAM_INT,
     .default_text = "2",
     .min = 1.0,
     .max = 4.0,
     .offset = offsetof(struct espl_reorder_params, cols)},
    {.name = "scope",
     .help = "stripe = one order for 16 rows of the matrix; tile = one for every 16 x 64 tile, "
             "undone when it is decoded",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "stripe",
     .choices = espl_reorder_scope_choices,
     .offset = offsetof(struct espl_reorder_params, scope)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", "model.quant/1", 0, "the quantised model whose rows are ordered"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"order", "order.rows/1", 0, "row orders, for the encoder"},
    {NULL, NULL, 0, NULL},
};

static enum espl_status check_area(const char *name, int64_t value, struct espl_error *err)
{
    char blamed[32];
    if (value != 3) {
        return ESPL_OK;
    }
    (void)snprintf(blamed, sizeof blamed, "param:%s", name);
    espl_fail(err, ESPL_E_JOB, "'%s' must be 1, 2 or 4, got %" PRId64, name, value);
    espl_hint(err, "a tile of 16 x 64 is cut into 1, 2 or 4 areas a side");
    return espl_blame(err, blamed);
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const struct espl_reorder_params *params = stage_params;
    const json_t *description = espl_plan_input(ctx, "model");
    struct espl_coded_model model;
    enum espl_status status = check_area("rows", params->rows, err);
    if (status == ESPL_OK) {
        status = check_area("cols", params->cols, err);
    }
    if (status != ESPL_OK || description == NULL) {
        return status;
    }
    if (params->rows == 1) {
        espl_plan_warn(ctx, "with 1 row in a group no order of rows changes any mask");
    }
    status = espl_coded_model_read(description, &model, err);
    if (status != ESPL_OK) {
        return status;
    }
    const uint64_t header_bytes = 4096; /* of a dataset */
    const uint64_t order_bytes =
        (params->scope == ESPL_REORDER_TILE ? model.tiles : model.stripes) * sizeof(uint64_t);
    est->units = model.config.layers;
    est->output_bytes = order_bytes + model.linears * header_bytes + 65536;
    est->scratch_bytes = est->output_bytes + 65536 * est->units;
    /* Packed codes, codes as bytes, orders, and the work space of the solver. */
    est->host_bytes = 2 * model.largest + order_bytes + ((uint64_t)64 << 20);
    (void)snprintf(est->note, sizeof est->note, "%" PRIu64 " tiles in %" PRIu64 " linear layers",
                   model.tiles, model.linears);
    json_t *predicted = espl_reorder_describe(params, NULL);
    if (predicted == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
    }
    espl_plan_set_output(ctx, "order", predicted);
    return ESPL_OK;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    return espl_reorder_run(ctx, params, err);
}

const struct espl_stage espl_stage_row_reorder = {
    .name = "row-reorder",
    .summary = "exact order of rows with the fewest union mask bits, by stripe or tile",
    .cache_version = 1,
    .flags = ESPL_STAGE_RESUMABLE,
    .params = params_table,
    .params_size = sizeof(struct espl_reorder_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};
