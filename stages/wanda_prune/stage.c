/* wanda-prune: reads a model and calibration windows, writes the masks of its block linears. */
#include "engine/stage.h"
#include "stages/prune_common/prune_store.h"
#include "stages/wanda_prune/wanda_run.h"

#include <inttypes.h>

static const struct espl_param params_table[] = {
    {.name = "sparsity",
     .help = "fraction of the weights to remove when no pattern is given",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "0.5",
     .min = 0.0,
     .max = 0.999999,
     .offset = offsetof(struct espl_wanda_params, common.sparsity)},
    {.name = "pattern",
     .help = "N:M, keeps N of every M consecutive input columns; none = unstructured per row",
     .unit = "",
     .type = ESPL_PARAM_NM,
     .flags = ESPL_PARAM_NULLABLE_NM,
     .default_text = "none",
     .offset = offsetof(struct espl_wanda_params, common.pattern)},
    {.name = "tail",
     .help = "columns that M does not divide: refuse them, or keep the last ones dense",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "refuse",
     .choices = espl_prune_tail_choices,
     .offset = offsetof(struct espl_wanda_params, common.tail)},
    {.name = "rule",
     .help = "unstructured: the same count in every row, or a share of each row's summed score",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "fixed",
     .choices = espl_wanda_rule_choices,
     .offset = offsetof(struct espl_wanda_params, rule)},
    {.name = "targets",
     .help = "patterns over module names of block linears to prune",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[\"*\"]",
     .offset = offsetof(struct espl_wanda_params, common.targets)},
    {.name = "ignore",
     .help = "patterns over module names to leave dense",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[]",
     .offset = offsetof(struct espl_wanda_params, common.ignore)},
    {.name = "first_layer",
     .help = "first block to prune, counted from 0",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = 100000.0,
     .offset = offsetof(struct espl_wanda_params, common.first_layer)},
    {.name = "last_layer",
     .help = "last block to prune; -1 = the model's last",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "-1",
     .min = -1.0,
     .max = 100000.0,
     .offset = offsetof(struct espl_wanda_params, common.last_layer)},
    {.name = "propagate",
     .help = "what the next block sees: outputs of the pruned block, or of the dense one",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "pruned",
     .choices = espl_wanda_propagate_choices,
     .offset = offsetof(struct espl_wanda_params, propagate)},
    {.name = "max_perplexity_ratio",
     .help = "stops the run when pruned over dense perplexity on 8 calibration windows is above "
             "this; 0 = never",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "100",
     .min = 0.0,
     .max = 1e12,
     .offset = offsetof(struct espl_wanda_params, max_perplexity_ratio)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", ESPL_MODEL_FLOAT_KINDS, 0, "the model to prune"},
    {"tokens", "tokens/1", 0, "calibration windows"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"model", "model.masked/1", 0, "masks over the input model"},
    {NULL, NULL, 0, NULL},
};

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const struct espl_wanda_params *params = stage_params;
    const json_t *model = espl_plan_input(ctx, "model");
    const json_t *tokens = espl_plan_input(ctx, "tokens");
    struct espl_prune_selection selection = {0};
    struct espl_model_config config;
    enum espl_status status = espl_wanda_check_rule(params, err);
    if (status != ESPL_OK || model == NULL) {
        return status;
    }
    status = espl_model_config_from_description(model, &config, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_prune_select(&config, &params->common, &selection, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    const struct espl_wanda_windows info = espl_wanda_windows_from_json(tokens);
    if (tokens != NULL) {
        status = espl_wanda_check_windows(&config, &info, err);
        if (status != ESPL_OK) {
            goto cleanup;
        }
        if (info.tokens > config.max_positions) {
            espl_plan_warn(ctx,
                           "calibration windows of %" PRIu64 " tokens are longer than the model's "
                           "%" PRIu64 " positions",
                           info.tokens, config.max_positions);
        }
        espl_wanda_estimate(&config, params, &selection, &info, est);
    }
    json_t *pruning = espl_wanda_describe(params, &selection, &info);
    json_t *predicted = pruning != NULL ? espl_prune_predict(model, pruning) : NULL;
    json_decref(pruning);
    if (predicted == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the output");
        goto cleanup;
    }
    espl_plan_set_output(ctx, "model", predicted);

cleanup:
    espl_prune_selection_free(&selection);
    return status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    return espl_wanda_run(ctx, params, err);
}

const struct espl_stage espl_stage_wanda_prune = {
    .name = "wanda-prune",
    .summary = "removes the weights with the smallest |W| times input norm (Wanda)",
    .cache_version = 1,
    .flags = ESPL_STAGE_RESUMABLE,
    .params = params_table,
    .params_size = sizeof(struct espl_wanda_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};
