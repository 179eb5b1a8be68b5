#include "stages/calibration/calibration_windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { IDS_LIMIT = 1 << 30 };

static uint64_t json_count(const json_t *object, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(object, name));
    return value > 0 ? (uint64_t)value : 0;
}

struct espl_calibration_info espl_calibration_info_from_json(const json_t *description)
{
    return (struct espl_calibration_info){json_count(description, "windows"),
                                          json_count(description, "sequence_length"),
                                          json_count(description, "vocab_size")};
}

enum espl_status espl_calibration_check(const struct espl_model_config *config,
                                        const struct espl_calibration_info *info,
                                        struct espl_error *err)
{
    if (espl_model_config_is_vision(config)) {
        (void)espl_fail(err, ESPL_E_KIND, "architecture '%s' reads images, not tokens",
                        config->architecture);
        return espl_blame(err, "input:tokens");
    }
    if (info->windows == 0) {
        espl_fail(err, ESPL_E_JOB,
                  "input 'tokens' is one long text, but calibration needs windows");
        espl_hint(err,
                  "set 'samples' and 'sequence_length' of the tokens stage, for example "
                  "{samples: 128, sequence_length: %" PRIu64 "}",
                  config->max_positions < 2048 ? config->max_positions : 2048);
        return espl_blame(err, "input:tokens");
    }
    if (info->tokens < 2) {
        espl_fail(err, ESPL_E_JOB, "calibration windows of %" PRIu64 " tokens are too short",
                  info->tokens);
        espl_hint(err, "'sequence_length' of the tokens stage must be at least 2");
        return espl_blame(err, "input:tokens");
    }
    if (info->tokens > config->max_positions && config->rope.type == ESPL_ROPE_NONE) {
        espl_fail(err, ESPL_E_KIND,
                  "calibration windows have %" PRIu64 " tokens, but the model has %" PRIu64
                  " positions",
                  info->tokens, config->max_positions);
        espl_hint(err, "set 'sequence_length' of the tokens stage to at most %" PRIu64,
                  config->max_positions);
        return espl_blame(err, "input:tokens");
    }
    if (info->vocab > config->vocab) {
        espl_fail(err, ESPL_E_KIND,
                  "the tokenizer of input 'tokens' has %" PRIu64
                  " entries, but the model's vocabulary has %" PRIu64,
                  info->vocab, config->vocab);
        espl_hint(err, "take the tokenizer from the model's own checkpoint folder");
        return espl_blame(err, "input:tokens");
    }
    return ESPL_OK;
}

enum espl_status espl_calibration_plan(struct espl_plan_ctx *ctx,
                                       const struct espl_model_config *config,
                                       struct espl_calibration_info *info, struct espl_error *err)
{
    const json_t *tokens = espl_plan_input(ctx, "tokens");
    *info = espl_calibration_info_from_json(tokens);
    if (tokens == NULL) {
        return ESPL_OK;
    }
    const enum espl_status status = espl_calibration_check(config, info, err);
    if (status == ESPL_OK && info->tokens > config->max_positions) {
        espl_plan_warn(ctx,
                       "calibration windows of %" PRIu64 " tokens are longer than the model's "
                       "%" PRIu64 " positions",
                       info->tokens, config->max_positions);
    }
    return status;
}

enum espl_status espl_calibration_windows_read(struct espl_stage_ctx *ctx,
                                               const struct espl_model_config *config,
                                               struct espl_calibration_windows *windows,
                                               struct espl_error *err)
{
    struct espl_artifact *tokens = espl_ctx_input(ctx, "tokens");
    const struct espl_tensor_info *ids = espl_artifact_find(tokens, "/tokens/ids");
    json_t *description = json_loads(espl_artifact_description(tokens), 0, NULL);
    struct espl_calibration_info info = espl_calibration_info_from_json(description);
    void *data = NULL;
    size_t bytes = 0;
    json_decref(description);
    memset(windows, 0, sizeof *windows);
    if (ids == NULL || ids->dtype != ESPL_DTYPE_I32 || ids->rank < 1 || ids->rank > 2) {
        return espl_fail(err, ESPL_E_KIND, "input 'tokens' has no int32 token ids");
    }
    /* The data decide; the description is what plan had to go by. */
    info.windows = ids->rank == 2 ? ids->shape[0] : 0;
    info.tokens = ids->rank == 2 ? ids->shape[1] : ids->shape[0];
    enum espl_status status = espl_calibration_check(config, &info, err);
    if (status == ESPL_OK) {
        status = espl_artifact_read(tokens, ids->path, IDS_LIMIT, &data, &bytes, err);
    }
    windows->ids = data;
    windows->count = info.windows;
    windows->tokens = (size_t)info.tokens;
    return status;
}

void espl_calibration_windows_free(struct espl_calibration_windows *windows)
{
    free(windows->ids);
    windows->ids = NULL;
}

struct espl_calibration_info
espl_calibration_info_of(const struct espl_calibration_windows *windows)
{
    return (struct espl_calibration_info){.windows = windows->count, .tokens = windows->tokens};
}
