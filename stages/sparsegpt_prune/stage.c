/* sparsegpt-prune: reads a model and calibration windows, writes changed weights and masks of its
 * block linears. */
#include "engine/stage.h"
#include "stages/prune_common/prune_store.h"
#include "stages/sparsegpt_prune/sparsegpt_run.h"

static const struct espl_param params_table[] = {
    {.name = "sparsity",
     .help = "fraction of the weights to remove when no pattern is given",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "0.5",
     .min = 0.0,
     .max = 0.999999,
     .offset = offsetof(struct espl_sparsegpt_params, common.sparsity)},
    {.name = "pattern",
     .help = "N:M, keeps N of every M consecutive input columns; none = unstructured",
     .unit = "",
     .type = ESPL_PARAM_NM,
     .flags = ESPL_PARAM_NULLABLE_NM,
     .default_text = "none",
     .offset = offsetof(struct espl_sparsegpt_params, common.pattern)},
    {.name = "tail",
     .help = "columns that M does not divide: refuse them, or keep the last ones dense",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "refuse",
     .choices = espl_prune_tail_choices,
     .offset = offsetof(struct espl_sparsegpt_params, common.tail)},
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
    {.name = "damping",
     .help = "share of the mean diagonal that is added to the Hessian's diagonal",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "0.01",
     .min = 1e-6,
     .max = 10.0,
     .offset = offsetof(struct espl_sparsegpt_params, damping)},
    {.name = "targets",
     .help = "patterns over module names of block linears to prune",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[\"*\"]",
     .offset = offsetof(struct espl_sparsegpt_params, common.targets)},
    {.name = "ignore",
     .help = "patterns over module names to leave dense",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[]",
     .offset = offsetof(struct espl_sparsegpt_params, common.ignore)},
    {.name = "first_layer",
     .help = "first block to prune, counted from 0",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = 100000.0,
     .offset = offsetof(struct espl_sparsegpt_params, common.first_layer)},
    {.name = "last_layer",
     .help = "last block to prune; -1 = the model's last",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "-1",
     .min = -1.0,
     .max = 100000.0,
     .offset = offsetof(struct espl_sparsegpt_params, common.last_layer)},
    {.name = "max_perplexity_ratio",
     .help = "stops the run when pruned over dense perplexity on 8 calibration windows is above "
             "this; 0 = never",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "100",
     .min = 0.0,
     .max = 1e12,
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
    const json_t *tokens = espl_plan_input(ctx, "tokens");
    const struct espl_wanda_windows info = espl_wanda_windows_from_json(tokens);
    struct espl_prune_selection selection = {0};
    struct espl_model_config config;
    if (model == NULL) {
        return ESPL_OK;
    }
    enum espl_status status = espl_model_config_from_description(model, &config, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_sparsegpt_select(&config, params, &selection, err);
    if (status == ESPL_OK && tokens != NULL) {
        status = espl_wanda_check_windows(&config, &info, err);
    }
    if (status == ESPL_OK) {
        espl_sparsegpt_estimate(&config, &selection, &info, est);
        json_t *pruning = espl_sparsegpt_describe(params, &selection, &info);
        json_t *predicted = pruning != NULL ? espl_prune_predict(model, pruning) : NULL;
        json_decref(pruning);
        if (predicted != NULL) {
            espl_plan_set_output(ctx, "model", predicted);
        } else {
            status = espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
        }
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
