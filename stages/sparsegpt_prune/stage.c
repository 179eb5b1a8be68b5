/* sparsegpt-prune: reads a model and calibration windows, writes changed weights and masks of its
 * block linears. */
#include "engine/stage.h"
#include "stages/prune_common/model_plan.h"
#include "stages/prune_common/prune_params.h"
#include "stages/sparsegpt_prune/sparsegpt_run.h"

static const struct espl_param params_table[] = {
    {ESPL_PARAM_SPARSITY, .offset = offsetof(struct espl_sparsegpt_params, common.sparsity)},
    {ESPL_PARAM_PATTERN, .offset = offsetof(struct espl_sparsegpt_params, common.pattern)},
    {ESPL_PARAM_TAIL, .offset = offsetof(struct espl_sparsegpt_params, common.tail)},
    {ESPL_PARAM_ALIGN, .offset = offsetof(struct espl_sparsegpt_params, common.align.grid)},
    {ESPL_PARAM_ALIGN_FORM, .offset = offsetof(struct espl_sparsegpt_params, common.align.form)},
    {ESPL_PARAM_FILL, .offset = offsetof(struct espl_sparsegpt_params, common.align.fill)},
    {.name = "weight_bits",
     .help = "quantises the kept weights in the same pass, 2 to 8 bits; 0 = prune only",
     .unit = "bits",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = 8.0,
     .offset = offsetof(struct espl_sparsegpt_params, weight_bits)},
    {.name = "group_size",
     .help = "columns that share a scale; auto = the largest of 128, 64, 32 that divides the "
             "columns; 0 = one scale a row",
     .unit = "columns",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_AUTO_INT,
     .default_text = "auto",
     .min = 0.0,
     .max = 65536.0,
     .offset = offsetof(struct espl_sparsegpt_params, group_size)},
    {ESPL_PARAM_DAMPING, .offset = offsetof(struct espl_sparsegpt_params, damping)},
    {ESPL_PARAM_TARGETS("prune"),
     .offset = offsetof(struct espl_sparsegpt_params, common.layers.targets)},
    {ESPL_PARAM_IGNORE("dense"),
     .offset = offsetof(struct espl_sparsegpt_params, common.layers.ignore)},
    {ESPL_PARAM_FIRST_LAYER("prune"),
     .offset = offsetof(struct espl_sparsegpt_params, common.layers.first_layer)},
    {ESPL_PARAM_LAST_LAYER("prune"),
     .offset = offsetof(struct espl_sparsegpt_params, common.layers.last_layer)},
    {ESPL_PARAM_MAX_PERPLEXITY_RATIO,
     .offset = offsetof(struct espl_sparsegpt_params, max_perplexity_ratio)},
    {.name = NULL},
};

/* Updates of a mask's kept weights would move what another stage removed, so the input is dense. */
static const struct espl_port inputs[] = {
    {"model", "model.dense/1", 0, "the model to prune"},
    {"tokens", "tokens/1", 0, "calibration windows"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"model", "model.updated/1", 0, "changed weights and masks over the input model"},
    {NULL, NULL, 0, NULL},
};

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const struct espl_sparsegpt_params *params = stage_params;
    const json_t *model = espl_plan_input(ctx, "model");
    struct espl_prune_selection selection = {0};
    struct espl_calibration_info info;
    struct espl_model_config config;
    if (model == NULL) {
        return ESPL_OK;
    }
    enum espl_status status = espl_model_config_from_description(model, &config, err);
    if (status == ESPL_OK) {
        status = espl_sparsegpt_select(&config, params, &selection, err);
    }
    if (status == ESPL_OK) {
        status = espl_calibration_plan(ctx, &config, &info, err);
    }
    if (status == ESPL_OK) {
        espl_sparsegpt_estimate(&config, &selection, &info, est);
        status = espl_model_plan_output(ctx, model, "pruning",
                                        espl_sparsegpt_describe(params, &selection, &info), err);
    }
    espl_prune_selection_free(&selection);
    return status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    return espl_sparsegpt_run(ctx, params, err);
}

const struct espl_stage espl_stage_sparsegpt_prune = {
    .name = "sparsegpt-prune",
    .summary = "removes weights and lets the kept ones make up for them (SparseGPT)",
    .cache_version = 1,
    .flags = ESPL_STAGE_RESUMABLE,
    .params = params_table,
    .params_size = sizeof(struct espl_sparsegpt_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};
