#include "stages/latency_profile/latency_measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARM_UP = 3 /* untimed calls before an entry */ };

/* Adds the shape of a layer unless it is there; returns its index. */
static size_t add_shape(struct espl_latency_record *record, const struct espl_latency_shape *shape)
{
    size_t index = 0;
    while (index < record->shape_count &&
           (record->shapes[index].tokens != shape->tokens ||
            record->shapes[index].in != shape->in || record->shapes[index].out != shape->out)) {
        index++;
    }
    if (index == record->shape_count) {
        record->shapes[record->shape_count++] = *shape;
    }
    return index;
}

enum espl_status espl_latency_record_begin(const struct espl_nm_layers *layers,
                                           const struct espl_latency_plan *plan, const char *device,
                                           const char *const *kernels,
                                           struct espl_latency_record *record,
                                           struct espl_error *err)
{
    memset(record, 0, sizeof *record);
    (void)snprintf(record->device, sizeof record->device, "%s", device);
    record->batch = plan->batch;
    record->m = plan->m;
    record->vector = plan->vector > 0 ? plan->vector : 1;
    for (size_t k = 0; kernels[k] != NULL && (k == 0 || plan->vector > 0); k++) {
        (void)snprintf(record->kernels[k], ESPL_LATENCY_NAME, "%s", kernels[k]);
        record->kernel_count = k + 1;
    }
    record->layer_count = layers->count;
    record->run_count = plan->runs;
    record->shapes = calloc(layers->count, sizeof *record->shapes);
    record->modules = calloc(layers->count, sizeof *record->modules);
    record->shape_of = calloc(layers->count, sizeof *record->shape_of);
    record->run_n = calloc(plan->runs * layers->count + 1, 1);
    record->latency.measured = calloc(plan->runs + 1, sizeof(double));
    if (record->shapes == NULL || record->modules == NULL || record->shape_of == NULL ||
        record->run_n == NULL || record->latency.measured == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the latencies of %zu layers",
                         layers->count);
    }
    for (size_t i = 0; i < layers->count; i++) {
        const struct espl_latency_shape shape = espl_nm_layer_shape(&layers->items[i], plan->batch);
        (void)snprintf(record->modules[i], ESPL_LATENCY_NAME, "%s", layers->items[i].spec.module);
        record->shape_of[i] = add_shape(record, &shape);
    }
    record->latency.present = true;
    return espl_latency_table_create(record->shape_count, record->m, record->kernel_count,
                                     &record->latency.table, err);
}

static enum espl_status measure_entry(struct espl_nm_stack *stack, size_t repeats,
                                      struct espl_latency_table *table, size_t shape, unsigned n,
                                      int kernel, double *times, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    double ignored = 0.0;
    for (size_t i = 0; status == ESPL_OK && i < WARM_UP + repeats; i++) {
        status = espl_nm_stack_time_product(stack, &table->shapes[shape], n, kernel,
                                            i < WARM_UP ? &ignored : &times[i - WARM_UP], err);
    }
    const size_t entry = espl_latency_index(table, shape, n, (size_t)kernel);
    if (status == ESPL_OK) {
        espl_latency_summarise(times, repeats, &table->raw[entry], &table->spread[entry]);
    }
    if (status == ESPL_OK && table->raw[entry] <= 0.0) { /* there is no such kernel */
        table->raw[entry] = table->spread[entry] = (double)NAN;
    }
    return status;
}

static enum espl_status measure_table(struct espl_stage_ctx *ctx, struct espl_nm_stack *stack,
                                      const struct espl_latency_plan *plan,
                                      struct espl_latency_record *record, double *times,
                                      struct espl_error *err)
{
    struct espl_latency_table *table = &record->latency.table;
    enum espl_status status = ESPL_OK;
    memcpy(table->shapes, record->shapes, record->shape_count * sizeof *record->shapes);
    for (size_t shape = 0; status == ESPL_OK && shape < table->shape_count; shape++) {
        for (unsigned n = 1; status == ESPL_OK && n <= table->m; n++) {
            espl_ctx_progress(ctx, shape * table->m + n - 1, table->shape_count * table->m,
                              "table entry");
            if (espl_ctx_cancelled(ctx)) {
                return espl_ctx_stop(ctx, err);
            }
            if (n == table->m) {
                status = measure_entry(stack, plan->repeats, table, shape, n, ESPL_NM_KERNEL_DENSE,
                                       times, err);
                if (status == ESPL_OK && table->kernel_count > ESPL_NM_KERNEL_LIBRARY) {
                    status = measure_entry(stack, plan->repeats, table, shape, n,
                                           ESPL_NM_KERNEL_LIBRARY, times, err);
                }
            } else if (plan->vector > 0) {
                status = measure_entry(stack, plan->repeats, table, shape, n, ESPL_NM_KERNEL_SPARSE,
                                       times, err);
            }
        }
    }
    return status == ESPL_OK ? espl_latency_table_close(table, err) : status;
}

enum espl_status espl_latency_measure_pass(struct espl_stage_ctx *ctx, struct espl_nm_stack *stack,
                                           size_t repeats, const struct espl_latency_record *record,
                                           const uint8_t *n, double *times, double *seconds,
                                           struct espl_error *err)
{
    double spread = 0.0;
    double warm_up = 0.0;
    if (espl_ctx_cancelled(ctx)) {
        return espl_ctx_stop(ctx, err);
    }
    enum espl_status status =
        espl_nm_stack_time_pass(stack, &record->latency.table, record->shape_of, n, &warm_up, err);
    for (size_t i = 0; status == ESPL_OK && i < repeats; i++) {
        status = espl_nm_stack_time_pass(stack, &record->latency.table, record->shape_of, n,
                                         &times[i], err);
    }
    if (status == ESPL_OK) {
        espl_latency_summarise(times, repeats, seconds, &spread);
    }
    return status;
}

static enum espl_status measure_runs(struct espl_stage_ctx *ctx, struct espl_nm_stack *stack,
                                     const struct espl_latency_plan *plan,
                                     struct espl_latency_record *record, double *times,
                                     struct espl_error *err)
{
    const size_t layers = record->layer_count;
    enum espl_status status = ESPL_OK;
    for (size_t run = 0; status == ESPL_OK && run < record->run_count; run++) {
        uint8_t *n = record->run_n + run * layers;
        espl_ctx_progress(ctx, run, record->run_count, "whole pass");
        espl_predictor_design(layers, record->shape_of, record->shape_count, record->m,
                              record->run_count, run, 0, n);
        for (size_t layer = 0; layer < layers; layer++) {
            n[layer]++; /* level 0 keeps one */
        }
        status = espl_latency_measure_pass(ctx, stack, plan->run_repeats, record, n, times,
                                           &record->latency.measured[run], err);
    }
    return status;
}

enum espl_status espl_latency_measure(struct espl_stage_ctx *ctx, struct espl_nm_stack *stack,
                                      const struct espl_latency_plan *plan,
                                      struct espl_latency_record *record, struct espl_error *err)
{
    const size_t most = plan->repeats > plan->run_repeats ? plan->repeats : plan->run_repeats;
    double *times = calloc(most, sizeof *times);
    if (times == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu timings", most);
    }
    enum espl_status status = measure_table(ctx, stack, plan, record, times, err);
    if (status == ESPL_OK) {
        status = measure_runs(ctx, stack, plan, record, times, err);
    }
    free(times);
    return status;
}
