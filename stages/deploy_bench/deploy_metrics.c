/* The figures of deploy-bench: by number of tokens over all linears, and what the report draws. */
#include "stages/deploy_bench/deploy_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum espl_status espl_deploy_metric(struct espl_stage_ctx *ctx, const char *name, double value,
                                    struct espl_error *err)
{
    char text[128];
    (void)snprintf(text, sizeof text, "%s", name);
    for (char *c = text; *c != '\0'; c++) {
        *c = (char)(*c == '-' || *c == '+' ? '_' : *c);
    }
    return isfinite(value) ? espl_ctx_metric(ctx, text, value, true, err) : ESPL_OK;
}

/* NAME_n8 */
static enum espl_status metric(struct espl_stage_ctx *ctx, const char *name, const char *subject,
                               size_t tokens, double value, struct espl_error *err)
{
    char text[96];
    (void)snprintf(text, sizeof text, "%s%s_n%zu", name, subject, tokens);
    return espl_deploy_metric(ctx, text, value, err);
}

static enum espl_status report_tokens(struct espl_stage_ctx *ctx,
                                      const struct espl_bench_record *record,
                                      const struct espl_spmm_summary *summary,
                                      struct espl_error *err)
{
    const size_t n = summary->tokens;
    const struct espl_bench_totals totals = espl_bench_record_totals(record, n);
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"linears_seconds", totals.seconds},
        {"layers_seconds", totals.layer_seconds},
        {"share_of_copy", totals.bytes / totals.seconds / record->ceiling.copy_bytes_a_second},
        {"share_of_floor", totals.floor_seconds / totals.seconds},
        {"regret", espl_spmm_mean_regret(&summary->regret)},
        {"worst_regret", espl_spmm_worst_regret(&summary->regret)},
        {"swept_regret", espl_spmm_mean_regret(&summary->swept)},
        {"worst_swept_regret", espl_spmm_worst_regret(&summary->swept)},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof figures / sizeof figures[0]; i++) {
        status = metric(ctx, figures[i].name, "", n, figures[i].value, err);
    }
    for (size_t s = 0; status == ESPL_OK && s < summary->subjects; s++) {
        status = metric(ctx, "speedup_over_", summary->names[s], n,
                        espl_spmm_mean_of(&summary->over[s]), err);
        if (status == ESPL_OK) {
            status = metric(ctx, "layer_over_codes_", summary->names[s], n,
                            espl_spmm_mean_of(&summary->layer[s]), err);
        }
    }
    return status;
}

/* Baselines that did not run are said once. */
static void warn_of_missing(struct espl_stage_ctx *ctx, const struct espl_bench_record *record)
{
    const char *names[ESPL_SPMM_MAX_RESULTS];
    const size_t count = espl_bench_record_subjects(record, names);
    for (size_t n = 0; n < count; n++) {
        const char *why = "";
        const size_t missing = espl_bench_record_missing(record, names[n], &why);
        if (missing > 0) {
            espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN,
                     "'%s' was not measured in %zu of %zu cases: %s", names[n], missing,
                     record->count, why);
        }
    }
}

static enum espl_status take_figure(void *user, const char *series, size_t tokens,
                                    const char *subject, double value, struct espl_error *err)
{
    return espl_ctx_layer_metric(user, series, tokens, subject, value, err);
}

enum espl_status espl_deploy_report(struct espl_stage_ctx *ctx,
                                    const struct espl_bench_record *record, struct espl_error *err)
{
    const struct espl_spmm_summaries *summaries = &record->summaries;
    const double per_summary = summaries->count > 0 ? (double)summaries->count : 1.0;
    enum espl_status status =
        espl_ctx_metric(ctx, "matrices", (double)record->count / per_summary, false, err);
    if (status == ESPL_OK) {
        status = espl_ctx_metric(ctx, "copy_bytes_per_second", record->ceiling.copy_bytes_a_second,
                                 true, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < summaries->count; i++) {
        status = report_tokens(ctx, record, &summaries->items[i], err);
    }
    if (status == ESPL_OK) {
        warn_of_missing(ctx, record);
        status = espl_bench_record_figures(record, take_figure, ctx, err);
    }
    return status;
}
