#include "stages/evaluate/evaluate_text.h"

#include "core/checked.h"
#include "eval/perplexity.h"
#include "stages/evaluate/evaluate_metrics.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- plan ---- */

enum espl_status espl_evaluate_plan_text(struct espl_plan_ctx *ctx,
                                         const struct espl_model_config *config,
                                         const struct espl_model_config *base,
                                         const struct espl_evaluate_params *asked,
                                         struct espl_estimate *est, struct espl_error *err)
{
    struct espl_evaluate_tokens tokens;
    struct espl_evaluate_windows windows;
    espl_evaluate_read_tokens(espl_plan_input(ctx, "tokens"), &tokens);
    const enum espl_status status = espl_evaluate_choose_windows(
        config, &tokens, (uint64_t)asked->sequence_length, (uint64_t)asked->windows, &windows, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (windows.windows == 0) {
        (void)snprintf(est->note, sizeof est->note, "windows of %llu tokens",
                       (unsigned long long)windows.sequence_length);
        return ESPL_OK;
    }
    const size_t length = (size_t)windows.sequence_length;
    est->host_bytes = espl_perplexity_bytes(config, base, windows.windows, length) +
                      windows.windows * windows.sequence_length * sizeof(int32_t);
    est->flop = (double)windows.windows * espl_forward_flop(config, length);
    if (base != NULL) {
        est->flop += (double)windows.windows * espl_forward_flop(base, length);
    }
    (void)snprintf(est->note, sizeof est->note, "%llu windows of %llu tokens",
                   (unsigned long long)windows.windows,
                   (unsigned long long)windows.sequence_length);
    return ESPL_OK;
}

/* ---- run ---- */

static bool report_window(void *user, uint64_t done, uint64_t total)
{
    struct espl_stage_ctx *ctx = user;
    espl_ctx_progress(ctx, done, total, "window");
    return !espl_ctx_cancelled(ctx);
}

/* Chooses the windows and reads their ids. *ids: malloc'ed. */
static enum espl_status read_windows(struct espl_stage_ctx *ctx,
                                     const struct espl_evaluate_params *asked,
                                     const struct espl_model_config *config,
                                     struct espl_evaluate_windows *windows, int32_t **ids,
                                     struct espl_error *err)
{
    static const char path[] = "/tokens/ids";
    struct espl_artifact *artifact = espl_ctx_input(ctx, "tokens");
    const struct espl_tensor_info *info = espl_artifact_find(artifact, path);
    struct espl_evaluate_tokens tokens;
    json_t *description = json_loads(espl_artifact_description(artifact), 0, NULL);
    size_t count = 0;
    size_t bytes = 0;
    espl_evaluate_read_tokens(description, &tokens);
    json_decref(description);
    if (info == NULL || info->dtype != ESPL_DTYPE_I32 ||
        info->rank != (tokens.windows > 0 ? 2u : 1u)) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' is not an array of token ids as described",
                         path);
    }
    /* The data decide; the description is what plan had to go by. */
    tokens.count = info->shape[0] * (info->rank == 2 ? info->shape[1] : 1);
    if (info->rank == 2) {
        tokens.windows = info->shape[0];
        tokens.sequence_length = info->shape[1];
    }
    enum espl_status status = espl_evaluate_choose_windows(
        config, &tokens, (uint64_t)asked->sequence_length, (uint64_t)asked->windows, windows, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (windows->windows == 0) {
        return espl_fail(err, ESPL_E_KIND, "the tokens are empty");
    }
    if (!espl_mul_size((size_t)windows->windows, (size_t)windows->sequence_length, &count) ||
        !espl_mul_size(count, sizeof **ids, &bytes)) {
        return espl_fail(err, ESPL_E_NOMEM, "too many tokens for this machine");
    }
    *ids = malloc(bytes);
    if (*ids == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu token ids", count);
    }
    const uint64_t rows = info->rank == 2 ? windows->windows : count;
    return espl_artifact_read_rows(artifact, path, 0, rows, *ids, bytes, err);
}

static enum espl_status report(struct espl_stage_ctx *ctx, const struct espl_perplexity *result,
                               uint64_t sequence_length, bool compared, struct espl_error *err)
{
    struct espl_named_value values[8];
    size_t count = 0;
    if (compared) {
        values[count++] = (struct espl_named_value){"kl", result->kl};
    }
    values[count++] = (struct espl_named_value){"mean_nll", result->mean_nll};
    values[count++] = (struct espl_named_value){"perplexity", result->perplexity};
    if (compared) {
        values[count++] = (struct espl_named_value){"perplexity_base", result->perplexity_base};
        values[count++] = (struct espl_named_value){"perplexity_ratio",
                                                    result->perplexity / result->perplexity_base};
    }
    values[count++] = (struct espl_named_value){"sequence_length", (double)sequence_length};
    values[count++] = (struct espl_named_value){"tokens", (double)result->tokens};
    values[count++] = (struct espl_named_value){"windows", (double)result->windows};
    const struct espl_named_value rates[] = {
        {"gflops", result->flop / result->seconds * 1e-9},
        {"seconds", result->seconds},
        {"tokens_per_second", (double)result->tokens / result->seconds},
    };
    enum espl_status status =
        espl_evaluate_write_metrics(espl_ctx_output(ctx, "metrics"), values, count, err);
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = espl_ctx_metric(ctx, values[i].name, values[i].value, false, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < sizeof rates / sizeof rates[0]; i++) {
        status = espl_ctx_metric(ctx, rates[i].name, rates[i].value, true, err);
    }
    return status;
}

enum espl_status espl_evaluate_run_text(struct espl_stage_ctx *ctx, struct espl_model *model,
                                        struct espl_model *base, struct espl_backend *backend,
                                        const struct espl_evaluate_params *asked,
                                        struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    struct espl_evaluate_windows windows = {0};
    struct espl_perplexity result;
    int32_t *ids = NULL;
    enum espl_status status = read_windows(ctx, asked, config, &windows, &ids, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    espl_ctx_progress(ctx, 0, windows.windows, "window");
    status =
        espl_perplexity_measure(model, base, backend, ids, windows.windows,
                                (size_t)windows.sequence_length, report_window, ctx, &result, err);
    if (status == ESPL_E_CANCELLED) {
        status = espl_ctx_stop(ctx, err);
        goto cleanup;
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    if (result.perplexity > (double)config->vocab) {
        espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN,
                 "perplexity %.6g is above the vocabulary of %llu: worse than guessing; a damaged "
                 "model, or tokens of another tokenizer",
                 result.perplexity, (unsigned long long)config->vocab);
    }
    status = report(ctx, &result, windows.sequence_length, base != NULL, err);

cleanup:
    free(ids);
    return status;
}
