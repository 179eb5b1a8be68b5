/* The figures of deploy-bench: by number of tokens over all linears, and what the report draws. */
#include "stages/deploy_bench/deploy_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Of one pass through all linears of the model with the automatic choice. */
struct totals {
    double seconds;
    double floor_seconds;
    double bytes;
};

static struct totals add_up(const struct espl_bench_record *record, size_t tokens)
{
    struct totals totals = {0.0, 0.0, 0.0};
    for (size_t e = 0; e < record->count; e++) {
        const struct espl_spmm_case *item = &record->entries[e].item;
        const double modules = (double)record->entries[e].matrix.modules;
        if (item->tokens == tokens) {
            totals.seconds += modules * espl_spmm_seconds(item, item->chosen);
            totals.floor_seconds +=
                modules * espl_spmm_floor_seconds(item, record->ceiling.copy_bytes_a_second);
            totals.bytes += modules * (double)item->results[item->chosen].bytes;
        }
    }
    return totals;
}

/* NAME_n8; '-' of baselines becomes '_'. What could not be measured is left out. */
static enum espl_status metric(struct espl_stage_ctx *ctx, const char *name, const char *subject,
                               size_t tokens, double value, struct espl_error *err)
{
    char text[96];
    (void)snprintf(text, sizeof text, "%s%s_n%zu", name, subject, tokens);
    for (char *c = text; *c != '\0'; c++) {
        *c = (char)(*c == '-' ? '_' : *c);
    }
    return isfinite(value) ? espl_ctx_metric(ctx, text, value, true, err) : ESPL_OK;
}

static enum espl_status report_tokens(struct espl_stage_ctx *ctx,
                                      const struct espl_bench_record *record,
                                      const struct espl_spmm_summary *summary,
                                      struct espl_error *err)
{
    const size_t n = summary->tokens;
    const struct totals totals = add_up(record, n);
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"linears_seconds", totals.seconds},
        {"share_of_copy", totals.bytes / totals.seconds / record->ceiling.copy_bytes_a_second},
        {"share_of_floor", totals.floor_seconds / totals.seconds},
        {"regret", espl_spmm_summary_regret(summary)},
        {"worst_regret", summary->cases > 0 ? summary->worst_regret - 1.0 : (double)NAN},
        {"swept_regret", espl_spmm_summary_swept_regret(summary)},
        {"worst_swept_regret",
         summary->swept_cases > 0 ? summary->worst_swept_regret - 1.0 : (double)NAN},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof figures / sizeof figures[0]; i++) {
        status = metric(ctx, figures[i].name, "", n, figures[i].value, err);
    }
    for (size_t s = 0; status == ESPL_OK && s < summary->subjects; s++) {
        status = metric(ctx, "speedup_over_", summary->names[s], n,
                        espl_spmm_summary_speedup(summary, s), err);
    }
    return status;
}

/* Baselines that did not run are said once. */
static void warn_of_missing(struct espl_stage_ctx *ctx, const struct espl_bench_record *record)
{
    const char *names[ESPL_SPMM_MAX_RESULTS];
    const size_t count = espl_bench_record_subjects(record, names);
    for (size_t n = 0; n < count; n++) {
        size_t missing = 0;
        const char *why = "";
        for (size_t e = 0; e < record->count; e++) {
            const struct espl_spmm_case *item = &record->entries[e].item;
            for (size_t i = 0; i < item->count; i++) {
                if (strcmp(item->results[i].name, names[n]) == 0 && !item->results[i].measured) {
                    missing++;
                    why = item->results[i].why;
                }
            }
        }
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
