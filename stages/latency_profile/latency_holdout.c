#include "stages/latency_profile/latency_holdout.h"

#include "core/rng.h"

#include <math.h>
#include <stdlib.h>

void espl_latency_holdout_draw(size_t layers, unsigned m, size_t run, uint8_t *n)
{
    struct espl_rng rng = espl_rng_stream(0, "latency-holdout", run);
    const bool anything = run % 2 == 0;
    const unsigned centre = 1 + (unsigned)(run / 2 % m);
    for (size_t layer = 0; layer < layers; layer++) {
        const unsigned drawn = (unsigned)espl_rng_below(&rng, anything ? m : 3);
        const unsigned level = anything ? 1 + drawn : centre + drawn - 1;
        n[layer] = (uint8_t)(level < 1 ? 1 : level > m ? m : level);
    }
}

enum espl_status espl_latency_measure_holdout(struct espl_stage_ctx *ctx,
                                              struct espl_nm_stack *stack,
                                              const struct espl_latency_plan *plan,
                                              struct espl_latency_record *record,
                                              struct espl_error *err)
{
    double *times = calloc(plan->run_repeats, sizeof *times);
    record->holdout_n = calloc(plan->holdout_runs * record->layer_count + 1, 1);
    record->holdout_measured = calloc(plan->holdout_runs + 1, sizeof(double));
    enum espl_status status =
        times != NULL && record->holdout_n != NULL && record->holdout_measured != NULL
            ? ESPL_OK
            : espl_fail(err, ESPL_E_NOMEM, "no memory for %zu passes", plan->holdout_runs);
    for (size_t run = 0; status == ESPL_OK && run < plan->holdout_runs; run++) {
        uint8_t *n = record->holdout_n + run * record->layer_count;
        espl_ctx_progress(ctx, run, plan->holdout_runs, "held-out pass");
        espl_latency_holdout_draw(record->layer_count, record->m, run, n);
        status = espl_latency_measure_pass(ctx, stack, plan->run_repeats, record, n, times,
                                           &record->holdout_measured[run], err);
        record->holdout_count += status == ESPL_OK;
    }
    free(times);
    return status;
}

static double predict(const struct espl_latency_record *record, size_t run)
{
    return espl_latency_record_predict(record, &record->latency,
                                       record->holdout_n + run * record->layer_count);
}

struct espl_latency_holdout_errors
espl_latency_holdout_errors(const struct espl_latency_record *record)
{
    struct espl_latency_holdout_errors errors = {0.0, 0.0};
    for (size_t run = 0; run < record->holdout_count; run++) {
        const double error = fabs(predict(record, run) / record->holdout_measured[run] - 1.0);
        errors.mean += error / (double)record->holdout_count;
        errors.worst = fmax(errors.worst, error);
    }
    return errors;
}

/* Says it in the log, and gives the report its point. */
static enum espl_status report_pass(struct espl_stage_ctx *ctx,
                                    const struct espl_latency_record *record, size_t run,
                                    struct espl_error *err)
{
    const double predicted = predict(record, run);
    const double measured = record->holdout_measured[run];
    espl_log(espl_ctx_log(ctx), ESPL_LOG_INFO,
             "held-out pass %zu: predicted %.4g ms, measured %.4g ms, %+.2f %%", run,
             1e3 * predicted, 1e3 * measured, 1e2 * (predicted / measured - 1.0));
    const enum espl_status status =
        espl_ctx_layer_metric(ctx, "pass_predicted_ms", run, "", 1e3 * predicted, err);
    return status == ESPL_OK
               ? espl_ctx_layer_metric(ctx, "pass_measured_ms", run, "", 1e3 * measured, err)
               : status;
}

enum espl_status espl_latency_report_holdout(struct espl_stage_ctx *ctx,
                                             const struct espl_latency_record *record,
                                             struct espl_error *err)
{
    if (record->holdout_count == 0) {
        return ESPL_OK;
    }
    const struct espl_latency_holdout_errors errors = espl_latency_holdout_errors(record);
    enum espl_status status = ESPL_OK;
    for (size_t run = 0; status == ESPL_OK && run < record->holdout_count; run++) {
        status = report_pass(ctx, record, run, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_ctx_metric(ctx, "latency_holdout_runs", (double)record->holdout_count, false, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_metric(ctx, "latency_holdout_mean_error", errors.mean, true, err);
    }
    return status == ESPL_OK
               ? espl_ctx_metric(ctx, "latency_holdout_worst_error", errors.worst, true, err)
               : status;
}
