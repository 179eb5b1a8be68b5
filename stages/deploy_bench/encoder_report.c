/* The figures of encoder mode. */
#include "stages/deploy_bench/encoder_mode.h"

#include <stdio.h>

/* NAME_RUNTIME_bBATCH */
static enum espl_status metric(struct espl_stage_ctx *ctx, const char *name,
                               enum espl_encoder_runtime runtime, size_t batch, double value,
                               struct espl_error *err)
{
    char text[96];
    (void)snprintf(text, sizeof text, "%s_%s_b%zu", name, espl_encoder_runtimes[runtime], batch);
    return espl_deploy_metric(ctx, text, value, err);
}

/* A point that the report draws. */
static enum espl_status point(struct espl_stage_ctx *ctx, const struct espl_encoder_pass *pass,
                              const char *name, const char *suffix, double value,
                              struct espl_error *err)
{
    char series[64];
    (void)snprintf(series, sizeof series, "encoder_%s%s", name, suffix);
    return espl_ctx_layer_metric(ctx, series, pass->batch, espl_encoder_runtimes[pass->runtime],
                                 value, err);
}

static enum espl_status report_points(struct espl_stage_ctx *ctx,
                                      const struct espl_encoder_pass *pass, struct espl_error *err)
{
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"images_per_second", (double)pass->batch / pass->time.median},
        {"ms_per_batch", 1e3 * pass->time.median},
        {"ms_per_batch_p95", 1e3 * pass->time.p95},
        {"device_bytes", (double)pass->device_bytes},
        {"library_linears", (double)pass->by_library},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof figures / sizeof figures[0]; i++) {
        status = point(ctx, pass, figures[i].name, "", figures[i].value, err);
    }
    for (size_t p = 0; status == ESPL_OK && p < ESPL_ENCODER_PARTS; p++) {
        status = point(ctx, pass, "us_", espl_encoder_parts[p], 1e6 * pass->parts[p], err);
    }
    return status;
}

/* Over the other runtimes, of the packed one. */
static enum espl_status report_speedups(struct espl_stage_ctx *ctx,
                                        const struct espl_encoder_record *record,
                                        const struct espl_encoder_pass *packed,
                                        struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (int r = ESPL_ENCODER_DENSE_INT8; status == ESPL_OK && r < ESPL_ENCODER_RUNTIMES; r++) {
        const struct espl_encoder_pass *other =
            espl_encoder_find(record, packed->batch, (enum espl_encoder_runtime)r);
        if (other == NULL) {
            continue;
        }
        const double speedup = other->time.median / packed->time.median;
        status =
            metric(ctx, "speedup_over", (enum espl_encoder_runtime)r, packed->batch, speedup, err);
        if (status == ESPL_OK) {
            status = point(ctx, packed, "speedup_over_", espl_encoder_runtimes[r], speedup, err);
        }
    }
    return status;
}

/* Against the predictor of the latency table. */
static enum espl_status report_prediction(struct espl_stage_ctx *ctx,
                                          const struct espl_encoder_pass *pass,
                                          struct espl_error *err)
{
    if (!(pass->predicted > 0.0)) {
        return ESPL_OK;
    }
    enum espl_status status =
        espl_ctx_layer_metric(ctx, "pass_predicted_ms", 0, "packed", 1e3 * pass->predicted, err);
    if (status == ESPL_OK) {
        status = espl_ctx_layer_metric(ctx, "pass_measured_ms", 0, "packed",
                                       1e3 * pass->time.median, err);
    }
    return status == ESPL_OK ? espl_ctx_metric(ctx, "latency_prediction_error",
                                               pass->predicted / pass->time.median - 1.0, true, err)
                             : status;
}

static enum espl_status report_pass(struct espl_stage_ctx *ctx,
                                    const struct espl_encoder_record *record,
                                    const struct espl_encoder_pass *pass, struct espl_error *err)
{
    enum espl_status status =
        metric(ctx, "seconds", pass->runtime, pass->batch, pass->time.median, err);
    if (status == ESPL_OK) {
        status = report_points(ctx, pass, err);
    }
    if (status == ESPL_OK && pass->runtime == ESPL_ENCODER_PACKED) {
        status = report_speedups(ctx, record, pass, err);
    }
    return status == ESPL_OK ? report_prediction(ctx, pass, err) : status;
}

static enum espl_status report_accuracy(struct espl_stage_ctx *ctx,
                                        const struct espl_encoder_accuracy *accuracy,
                                        struct espl_error *err)
{
    const struct {
        const char *name;
        double value;
        bool wanted;
    } figures[] = {
        {"images", (double)accuracy->images, true},
        {"top1", accuracy->top1, accuracy->labelled},
        {"top1_cpu", accuracy->top1_cpu, accuracy->labelled},
        {"agreeing", accuracy->agreeing, true},
        {"logit_difference", accuracy->difference, true},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof figures / sizeof figures[0]; i++) {
        if (figures[i].wanted) {
            status = espl_ctx_metric(ctx, figures[i].name, figures[i].value, false, err);
        }
    }
    return status;
}

enum espl_status espl_encoder_report(struct espl_stage_ctx *ctx,
                                     const struct espl_encoder_record *record,
                                     struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < record->count; i++) {
        status = report_pass(ctx, record, &record->passes[i], err);
    }
    return status == ESPL_OK && record->accuracy.images > 0
               ? report_accuracy(ctx, &record->accuracy, err)
               : status;
}
