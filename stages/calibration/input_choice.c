#include "stages/calibration/input_choice.h"

enum espl_status espl_input_choice_plan(const struct espl_plan_ctx *ctx, const char *stage,
                                        const struct espl_model_config *config,
                                        struct espl_error *err)
{
    const bool tokens = espl_plan_is_connected(ctx, "tokens");
    const bool images = espl_plan_is_connected(ctx, "images");
    const bool vision = config != NULL && espl_model_config_is_vision(config);
    if (tokens == images) {
        (void)espl_fail(err, ESPL_E_JOB,
                        tokens ? "%s takes 'tokens' or 'images', not both"
                               : "%s needs 'tokens' or 'images'",
                        stage);
        return espl_hint(err, "in: {model: ..., tokens: ...} for a language model, in: {model: "
                              "..., images: ...} for an image model");
    }
    if (config != NULL && vision != images) {
        (void)espl_fail(err, ESPL_E_KIND, "architecture '%s' reads %s, not %s",
                        config->architecture, vision ? "images" : "tokens",
                        vision ? "tokens" : "images");
        return espl_blame(err, vision ? "input:tokens" : "input:images");
    }
    return ESPL_OK;
}

enum espl_status espl_input_choice_run(struct espl_stage_ctx *ctx,
                                       const struct espl_model_config *config,
                                       struct espl_error *err)
{
    const char *port = espl_model_config_is_vision(config) ? "images" : "tokens";
    return espl_ctx_input(ctx, port) != NULL
               ? ESPL_OK
               : espl_fail(err, ESPL_E_JOB, "architecture '%s' needs input '%s'",
                           config->architecture, port);
}
