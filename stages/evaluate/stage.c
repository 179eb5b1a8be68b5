/* evaluate: perplexity of a language model over a text, accuracy of an image model on pictures, and
 * the divergence from a base model. */
#include "engine/stage.h"
#include "stages/calibration/input_choice.h"
#include "stages/evaluate/evaluate_images.h"
#include "stages/evaluate/evaluate_text.h"

#include <string.h>

static const struct espl_param params_table[] = {
    {.name = "sequence_length",
     .help = "window length; 0 = that of the tokens, else min(2048, model's positions)",
     .unit = "tokens",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = 1048576.0,
     .offset = offsetof(struct espl_evaluate_params, sequence_length)},
    {.name = "windows",
     .help = "how many windows from the start; 0 = all",
     .unit = "windows",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = 1e9,
     .offset = offsetof(struct espl_evaluate_params, windows)},
    {.name = "images",
     .help = "how many pictures from the start; 0 = all",
     .unit = "images",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = 1e9,
     .offset = offsetof(struct espl_evaluate_params, images)},
    {.name = NULL},
};

static const struct espl_port inputs_table[] = {
    {.name = "model", .kind = ESPL_MODEL_KINDS, .help = "the model to evaluate"},
    {.name = "tokens",
     .kind = "tokens/1",
     .flags = ESPL_PORT_OPTIONAL,
     .help = "for a language model: a whole text, or windows"},
    {.name = "images",
     .kind = "images/1",
     .flags = ESPL_PORT_OPTIONAL,
     .help = "for an image model: pictures with labels"},
    {.name = "base",
     .kind = ESPL_MODEL_KINDS,
     .flags = ESPL_PORT_OPTIONAL,
     .help = "model to compare with: perplexity_base or top1_base, and kl"},
    {.name = NULL},
};

static const struct espl_port outputs_table[] = {
    {.name = "metrics", .kind = "metrics/1", .help = "the figures"},
    {.name = NULL},
};

/* ---- plan ---- */

static enum espl_status plan_config(const struct espl_plan_ctx *ctx, const char *port,
                                    struct espl_model_config *config, bool *known,
                                    struct espl_error *err)
{
    const json_t *description = espl_plan_input(ctx, port);
    *known = description != NULL;
    return *known ? espl_model_config_from_description(description, config, err) : ESPL_OK;
}

static enum espl_status check_base(const struct espl_model_config *config,
                                   const struct espl_model_config *base, struct espl_error *err)
{
    if (base == NULL || base->vocab == config->vocab) {
        return ESPL_OK;
    }
    if (espl_model_config_is_vision(config)) {
        espl_fail(err, ESPL_E_KIND, "the base model has %llu classes, the model has %llu",
                  (unsigned long long)base->vocab, (unsigned long long)config->vocab);
    } else {
        espl_fail(err, ESPL_E_KIND,
                  "the base model has a vocabulary of %llu, the model one of %llu",
                  (unsigned long long)base->vocab, (unsigned long long)config->vocab);
    }
    return espl_blame(err, "input:base");
}

static enum espl_status evaluate_plan(struct espl_plan_ctx *ctx, const void *params,
                                      struct espl_estimate *est, struct espl_error *err)
{
    enum { OUTPUT_BYTES = 16 * 1024 };
    const struct espl_evaluate_params *asked = params;
    struct espl_model_config config;
    struct espl_model_config base;
    bool known = false;
    bool base_known = false;
    est->output_bytes = OUTPUT_BYTES;
    enum espl_status status = plan_config(ctx, "model", &config, &known, err);
    if (status == ESPL_OK) {
        status = plan_config(ctx, "base", &base, &base_known, err);
    }
    if (status == ESPL_OK) {
        status = espl_input_choice_plan(ctx, "evaluate", known ? &config : NULL, err);
    }
    if (status == ESPL_OK && known) {
        status = check_base(&config, base_known ? &base : NULL, err);
    }
    if (status != ESPL_OK || !known) {
        return status;
    }
    return espl_model_config_is_vision(&config)
               ? espl_evaluate_plan_images(ctx, &config, base_known ? &base : NULL,
                                           (uint64_t)asked->images, est, err)
               : espl_evaluate_plan_text(ctx, &config, base_known ? &base : NULL, asked, est, err);
}

/* ---- run ---- */

static enum espl_status open_port(struct espl_stage_ctx *ctx, const char *port,
                                  struct espl_model **model, struct espl_error *err)
{
    struct espl_artifact *artifact = espl_ctx_input(ctx, port);
    if (artifact == NULL) {
        return ESPL_OK;
    }
    const enum espl_status status = espl_model_open(artifact, espl_ctx_store(ctx), model, err);
    if (status != ESPL_OK) {
        espl_context(err, "opening input '%s'", port);
    }
    return status;
}

/* Backend of the job's device. The forward pass runs on the CPU only. */
static enum espl_status open_backend(struct espl_stage_ctx *ctx, struct espl_backend **backend,
                                     struct espl_error *err)
{
    const char *device = espl_ctx_device(ctx);
    if (strncmp(device, "cuda", 4) == 0) {
        espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN,
                 "evaluate runs on the CPU: this build has no forward pass for device '%s'",
                 device);
    }
    return espl_backend_open("cpu", 0, backend, err);
}

static enum espl_status evaluate_run(struct espl_stage_ctx *ctx, const void *params,
                                     struct espl_error *err)
{
    const struct espl_evaluate_params *asked = params;
    struct espl_model *model = NULL;
    struct espl_model *base = NULL;
    struct espl_backend *backend = NULL;
    enum espl_status status = open_port(ctx, "model", &model, err);
    if (status == ESPL_OK) {
        status = open_port(ctx, "base", &base, err);
    }
    if (status == ESPL_OK) {
        status = espl_input_choice_run(ctx, espl_model_get_config(model), err);
    }
    if (status == ESPL_OK) {
        status = open_backend(ctx, &backend, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_model_config_is_vision(espl_model_get_config(model))
                ? espl_evaluate_run_images(ctx, model, base, backend, (uint64_t)asked->images, err)
                : espl_evaluate_run_text(ctx, model, base, backend, asked, err);
    }
    espl_backend_close(backend);
    espl_model_close(base);
    espl_model_close(model);
    return status;
}

const struct espl_stage espl_stage_evaluate = {
    .name = "evaluate",
    .summary = "perplexity over a text or accuracy on images, and KL divergence from a base model",
    .cache_version = 2,
    .flags = 0,
    .params = params_table,
    .params_size = sizeof(struct espl_evaluate_params),
    .inputs = inputs_table,
    .outputs = outputs_table,
    .plan = evaluate_plan,
    .run = evaluate_run,
};
