/* atom-quantize: reads a model and calibration windows, writes integer codes, scales and orders of
 * its block linears. */
#include "engine/stage.h"
#include "stages/atom_quantize/atom_run.h"
#include "stages/prune_common/model_plan.h"
#include "stages/prune_common/prune_params.h"

#include <inttypes.h>

static const struct espl_param params_table[] = {
    {.name = "weight_bits",
     .help = "bits of a weight code",
     .unit = "bits",
     .type = ESPL_PARAM_INT,
     .default_text = "4",
     .min = 2.0,
     .max = 8.0,
     .offset = offsetof(struct espl_atom_params, weight_bits)},
    {.name = "activation_bits",
     .help = "bits of an activation code, 4 to 8; 16 = activations stay in float",
     .unit = "bits",
     .type = ESPL_PARAM_INT,
     .default_text = "4",
     .min = 4.0,
     .max = 16.0,
     .offset = offsetof(struct espl_atom_params, activation_bits)},
    {.name = "group_size",
     .help = "columns that share a scale; auto = the largest of 128, 64, 32 that divides the "
             "columns without outliers; 0 = one scale a row",
     .unit = "columns",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_AUTO_INT,
     .default_text = "auto",
     .min = 0.0,
     .max = 65536.0,
     .offset = offsetof(struct espl_atom_params, group_size)},
    {.name = "outlier_channels",
     .help = "channels with the largest inputs, kept in INT8; auto = 128, 64 or 32 by the width "
             "of the layer, 0 without a reorder",
     .unit = "channels",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_AUTO_INT,
     .default_text = "auto",
     .min = 0.0,
     .max = 65536.0,
     .offset = offsetof(struct espl_atom_params, outlier_channels)},
    {.name = "rows_per_scale",
     .help = "adjacent output rows that share a weight scale",
     .unit = "rows",
     .type = ESPL_PARAM_INT,
     .default_text = "2",
     .min = 1.0,
     .max = 2.0,
     .offset = offsetof(struct espl_atom_params, rows_per_scale)},
    {.name = "kv_bits",
     .help = "bits of a cached key or value, 4 to 8; 16 = they stay in float",
     .unit = "bits",
     .type = ESPL_PARAM_INT,
     .default_text = "4",
     .min = 4.0,
     .max = 16.0,
     .offset = offsetof(struct espl_atom_params, kv_bits)},
    {.name = "method",
     .help = "gptq = later columns make up for the error of earlier ones; rtn = round to nearest",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "gptq",
     .choices = espl_atom_method_choices,
     .offset = offsetof(struct espl_atom_params, method)},
    {.name = "scale",
     .help = "formula of weight scales; auto = full with gptq, half with rtn, as published",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "auto",
     .choices = espl_atom_scale_choices,
     .offset = offsetof(struct espl_atom_params, scale)},
    {.name = "reorder",
     .help = "hessian = columns by ascending second moment of their input; none = as they are",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "hessian",
     .choices = espl_atom_reorder_choices,
     .offset = offsetof(struct espl_atom_params, reorder)},
    {.name = "remask",
     .help = "removed weights: remask = what gptq moved them by flows on; freeze = it is dropped",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "remask",
     .choices = espl_atom_removed_choices,
     .offset = offsetof(struct espl_atom_params, removed)},
    {.name = "weight_clip",
     .help = "share of a group's largest weight that its scale spans",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "0.85",
     .min = 0.01,
     .max = 1.0,
     .offset = offsetof(struct espl_atom_params, weight_clip)},
    {.name = "activation_clip",
     .help = "share of a group's largest activation that its scale spans",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "0.9",
     .min = 0.01,
     .max = 1.0,
     .offset = offsetof(struct espl_atom_params, activation_clip)},
    {.name = "kv_clip",
     .help = "share of the range of a head's key or value that its scale spans",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "1",
     .min = 0.01,
     .max = 1.0,
     .offset = offsetof(struct espl_atom_params, kv_clip)},
    {ESPL_PARAM_DAMPING, .offset = offsetof(struct espl_atom_params, damping)},
    {ESPL_PARAM_TARGETS("quantise"), .offset = offsetof(struct espl_atom_params, layers.targets)},
    {ESPL_PARAM_IGNORE("in float"), .offset = offsetof(struct espl_atom_params, layers.ignore)},
    {ESPL_PARAM_FIRST_LAYER("quantise"),
     .offset = offsetof(struct espl_atom_params, layers.first_layer)},
    {ESPL_PARAM_LAST_LAYER("quantise"),
     .offset = offsetof(struct espl_atom_params, layers.last_layer)},
    {ESPL_PARAM_MAX_PERPLEXITY_RATIO,
     .offset = offsetof(struct espl_atom_params, max_perplexity_ratio)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", ESPL_MODEL_FLOAT_KINDS, 0, "the model to quantise, pruned or not"},
    {"tokens", "tokens/1", 0, "calibration windows"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"model", "model.quant/1", 0, "codes and scales over the input model"},
    {NULL, NULL, 0, NULL},
};

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const struct espl_atom_params *params = stage_params;
    const json_t *model = espl_plan_input(ctx, "model");
    struct espl_atom_setup setup = {0};
    struct espl_calibration_info info;
    struct espl_model_config config;
    if (model == NULL) {
        return ESPL_OK;
    }
    enum espl_status status = espl_model_config_from_description(model, &config, err);
    if (status == ESPL_OK) {
        status = espl_atom_setup_make(&config, params, model, &setup, err);
    }
    if (status == ESPL_OK) {
        status = espl_calibration_plan(ctx, &config, &info, err);
    }
    if (status == ESPL_OK) {
        if (params->reorder == ESPL_ATOM_REORDER_NONE && params->outlier_channels > 0) {
            espl_plan_warn(ctx,
                           "without a reorder the last %" PRId64 " columns of each layer are kept "
                           "in INT8, whatever their inputs",
                           params->outlier_channels);
        }
        espl_atom_estimate(&config, &setup, &info, est);
        status = espl_model_plan_output(ctx, model, "quantisation",
                                        espl_atom_describe(params, &setup, &info), err);
    }
    espl_atom_setup_free(&setup);
    return status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    return espl_atom_run(ctx, params, err);
}

const struct espl_stage espl_stage_atom_quantize = {
    .name = "atom-quantize",
    .summary = "integer weights, activations and cache with INT8 outlier channels (Atom, GPTQ)",
    .cache_version = 1,
    .flags = ESPL_STAGE_RESUMABLE,
    .params = params_table,
    .params_size = sizeof(struct espl_atom_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};
