/* wanda-prune: reads a model and calibration windows or images, writes the masks of its block
 * linears. */
#include "engine/stage.h"
#include "stages/calibration/input_choice.h"
#include "stages/prune_common/model_plan.h"
#include "stages/prune_common/prune_params.h"
#include "stages/wanda_prune/wanda_images.h"
#include "stages/wanda_prune/wanda_run.h"

static const struct espl_param params_table[] = {
    {ESPL_PARAM_SPARSITY, .offset = offsetof(struct espl_wanda_params, common.sparsity)},
    {ESPL_PARAM_PATTERN, .offset = offsetof(struct espl_wanda_params, common.pattern)},
    {ESPL_PARAM_VECTOR, .offset = offsetof(struct espl_wanda_params, common.vector)},
    {ESPL_PARAM_TAIL, .offset = offsetof(struct espl_wanda_params, common.tail)},
    {.name = "rule",
     .help = "unstructured: the same count in every row, or a share of each row's summed score",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "fixed",
     .choices = espl_wanda_rule_choices,
     .offset = offsetof(struct espl_wanda_params, rule)},
    {ESPL_PARAM_ALIGN, .offset = offsetof(struct espl_wanda_params, common.align.grid)},
    {ESPL_PARAM_ALIGN_FORM, .offset = offsetof(struct espl_wanda_params, common.align.form)},
    {ESPL_PARAM_FILL, .offset = offsetof(struct espl_wanda_params, common.align.fill)},
    {ESPL_PARAM_TARGETS("prune"),
     .offset = offsetof(struct espl_wanda_params, common.layers.targets)},
    {ESPL_PARAM_IGNORE("dense"),
     .offset = offsetof(struct espl_wanda_params, common.layers.ignore)},
    {ESPL_PARAM_FIRST_LAYER("prune"),
     .offset = offsetof(struct espl_wanda_params, common.layers.first_layer)},
    {ESPL_PARAM_LAST_LAYER("prune"),
     .offset = offsetof(struct espl_wanda_params, common.layers.last_layer)},
    {.name = "propagate",
     .help = "what the next block sees: outputs of the pruned block, or of the dense one",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "pruned",
     .choices = espl_wanda_propagate_choices,
     .offset = offsetof(struct espl_wanda_params, propagate)},
    {ESPL_PARAM_MAX_PERPLEXITY_RATIO,
     .offset = offsetof(struct espl_wanda_params, max_perplexity_ratio)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", ESPL_MODEL_FLOAT_KINDS, 0, "the model to prune"},
    {"tokens", "tokens/1", ESPL_PORT_OPTIONAL, "for a language model: calibration windows"},
    {"images", "images/1", ESPL_PORT_OPTIONAL, "for an image model: calibration pictures"},
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
    struct espl_prune_selection selection = {0};
    struct espl_calibration_info info;
    struct espl_model_config config;
    enum espl_status status = espl_wanda_check_rule(params, err);
    if (status == ESPL_OK && model == NULL) {
        return espl_input_choice_plan(ctx, "wanda-prune", NULL, err);
    }
    if (status == ESPL_OK) {
        status = espl_model_config_from_description(model, &config, err);
    }
    if (status == ESPL_OK) {
        status = espl_input_choice_plan(ctx, "wanda-prune", &config, err);
    }
    if (status == ESPL_OK) {
        status = espl_prune_select(&config, &params->common, &selection, err);
    }
    if (status == ESPL_OK && espl_model_config_is_vision(&config)) {
        status = espl_wanda_plan_images(ctx, model, &config, params, &selection, est, err);
    } else if (status == ESPL_OK) {
        status = espl_calibration_plan(ctx, &config, &info, err);
        if (status == ESPL_OK) {
            espl_wanda_estimate(&config, params, &selection, &info, est);
            status = espl_model_plan_output(ctx, model, "pruning",
                                            espl_wanda_describe(params, &selection, &info), err);
        }
    }
    espl_prune_selection_free(&selection);
    return status;
}

/* The model's own description tells which of the two runs this is. */
static enum espl_status run(struct espl_stage_ctx *ctx, const void *params, struct espl_error *err)
{
    struct espl_model_config config;
    json_t *description =
        json_loads(espl_artifact_description(espl_ctx_input(ctx, "model")), 0, NULL);
    enum espl_status status = espl_model_config_from_description(description, &config, err);
    json_decref(description);
    if (status == ESPL_OK) {
        status = espl_input_choice_run(ctx, &config, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    return espl_model_config_is_vision(&config) ? espl_wanda_run_images(ctx, params, err)
                                                : espl_wanda_run(ctx, params, err);
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
