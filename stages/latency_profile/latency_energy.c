#include "stages/latency_profile/latency_energy.h"

#include "eval/energy/device_meter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Threads of the BLAS spin for a moment after a product: idle windows begin after this. */
static const double settle_s = 0.2;
/* A call on a CUDA device runs about so long: preparing it is little beside. */
static const double call_s = 0.125;

/* What is measured: an entry of the table (run == SIZE_MAX) or a run. */
struct task {
    size_t shape, run;
    unsigned n;
    size_t kernel;
    size_t count; /* how often it ran in its window */
    struct espl_energy_windows windows;
};

struct energy_run {
    struct espl_stage_ctx *ctx;
    struct espl_nm_stack *stack;
    const struct espl_latency_energy_plan *plan;
    struct espl_energy_meter *meter;
    struct espl_latency_record *record;
    struct task *tasks;
    size_t count;
};

double espl_latency_energy_seconds(const struct espl_latency_energy_plan *plan, size_t entries)
{
    const double idle_s = plan->idle_s + settle_s;
    return idle_s + (double)entries * (plan->run_s + idle_s);
}

/* ---- what to measure ---- */

static enum espl_status list_tasks(struct energy_run *run, struct espl_error *err)
{
    const struct espl_latency_table *table = &run->record->latency.table;
    const size_t entries = table->shape_count * table->m * table->kernel_count;
    run->tasks = calloc(entries + run->record->run_count, sizeof *run->tasks);
    if (run->tasks == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the energy of %zu entries", entries);
    }
    for (size_t shape = 0; shape < table->shape_count; shape++) {
        for (unsigned n = 1; n <= table->m; n++) {
            for (size_t kernel = 0; kernel < table->kernel_count; kernel++) {
                if (!isnan(table->raw[espl_latency_index(table, shape, n, kernel)])) {
                    run->tasks[run->count++] =
                        (struct task){.shape = shape, .run = SIZE_MAX, .n = n, .kernel = kernel};
                }
            }
        }
    }
    for (size_t i = 0; i < run->record->run_count; i++) {
        run->tasks[run->count++] = (struct task){.run = i};
    }
    return ESPL_OK;
}

static void describe(const struct energy_run *run, const struct task *task, char text[160])
{
    const struct espl_latency_shape *shape = &run->record->shapes[task->shape];
    if (task->run != SIZE_MAX) {
        (void)snprintf(text, 160, "whole pass %zu", task->run);
    } else {
        (void)snprintf(text, 160, "the product of %zu x %zu at %zu tokens, %u:%u, '%s'", shape->out,
                       shape->in, shape->tokens, task->n, run->record->m,
                       run->record->kernels[task->kernel]);
    }
}

/* ---- windows ---- */

static void nap(double seconds)
{
    const struct timespec pause = {(time_t)seconds, (long)(fmod(seconds, 1.0) * 1e9)};
    (void)nanosleep(&pause, NULL); /* cut short by a signal: the caller looks at the clock */
}

static double seconds_since(int64_t begin_ns)
{
    return 1e-9 * (double)(espl_energy_now() - begin_ns);
}

static enum espl_status wait_idle(const struct energy_run *run, struct espl_energy_window *window,
                                  struct espl_error *err)
{
    const double slice_s = 0.1;
    const int64_t begin_ns = espl_energy_now();
    const double whole_s = settle_s + run->plan->idle_s;
    for (double past = 0.0; past < whole_s; past = seconds_since(begin_ns)) {
        if (espl_ctx_cancelled(run->ctx)) {
            return espl_ctx_stop(run->ctx, err);
        }
        nap(fmin(slice_s, whole_s - past));
    }
    *window = (struct espl_energy_window){begin_ns + (int64_t)(1e9 * settle_s), espl_energy_now()};
    return ESPL_OK;
}

/* *seconds <- of one product or pass. */
static enum espl_status run_once(const struct energy_run *run, const struct task *task,
                                 double *seconds, struct espl_error *err)
{
    struct espl_latency_record *record = run->record;
    if (task->run != SIZE_MAX) {
        return espl_nm_stack_time_pass(run->stack, &record->latency.table, record->shape_of,
                                       record->run_n + task->run * record->layer_count, seconds,
                                       err);
    }
    return espl_nm_stack_time_product(run->stack, &record->shapes[task->shape], task->n,
                                      (int)task->kernel, seconds, err);
}

/* Repeats that fill a call, after one of one repeat, which ran `count` of `seconds` each: half of
 * them before the clock started. */
static size_t repeats_for(double seconds, size_t count)
{
    enum { MOST_REPEATS = 200 };
    const double repeat = 0.5 * seconds * (double)count;
    const double wanted = repeat > 0.0 ? call_s / repeat : (double)MOST_REPEATS;
    return wanted < 1.0 ? 1 : wanted < MOST_REPEATS ? (size_t)wanted : MOST_REPEATS;
}

static enum espl_status run_task(const struct energy_run *run, struct task *task,
                                 struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    espl_nm_stack_repeat(run->stack, 1);
    task->windows.run.begin_ns = espl_energy_now();
    while (status == ESPL_OK && seconds_since(task->windows.run.begin_ns) < run->plan->run_s) {
        double seconds = 0.0;
        const bool first = task->count == 0;
        status = espl_ctx_cancelled(run->ctx) ? espl_ctx_stop(run->ctx, err)
                                              : run_once(run, task, &seconds, err);
        task->count += espl_nm_stack_ran(run->stack);
        if (first) {
            espl_nm_stack_repeat(run->stack, repeats_for(seconds, espl_nm_stack_ran(run->stack)));
        }
    }
    task->windows.run.end_ns = espl_energy_now();
    espl_nm_stack_repeat(run->stack, 1);
    return status;
}

/* One series of readings for all: the idle window after a task is the one before the next. */
static enum espl_status run_tasks(struct energy_run *run, struct espl_error *err)
{
    struct espl_energy_window idle;
    enum espl_status status = wait_idle(run, &idle, err);
    for (size_t i = 0; status == ESPL_OK && i < run->count; i++) {
        struct task *task = &run->tasks[i];
        espl_ctx_progress(run->ctx, i, run->count, "energy");
        task->windows.idle_before = idle;
        status = run_task(run, task, err);
        if (status == ESPL_OK) {
            status = wait_idle(run, &idle, err);
        }
        task->windows.idle_after = idle;
    }
    return status;
}

/* ---- figures ---- */

static enum espl_status take_figure(struct energy_run *run, const struct task *task,
                                    struct espl_error *err)
{
    struct espl_latency_cost_record *energy = &run->record->energy;
    struct espl_energy_result result;
    char text[160];
    const enum espl_status status = espl_energy_measure(run->meter, &task->windows, &result, err);
    const struct espl_energy_figure *figure = &result.totals[0];
    if (status != ESPL_OK) {
        return status;
    }
    if (figure->state != ESPL_FIGURE_OK || !(figure->net_j > 0.0)) {
        describe(run, task, text);
        espl_fail(err, ESPL_E_NUMERIC, "the energy of %s is not resolved: %.200s", text,
                  figure->state != ESPL_FIGURE_OK ? figure->why : "no more than idle");
        espl_hint(err, "a longer 'energy_run', a machine without other work, or 'energy: none'");
        return espl_blame(err, "param:energy");
    }
    const double count = (double)task->count;
    if (task->run != SIZE_MAX) {
        energy->measured[task->run] = figure->net_j / count;
        return ESPL_OK;
    }
    const size_t entry = espl_latency_index(&energy->table, task->shape, task->n, task->kernel);
    energy->table.raw[entry] = figure->net_j / count;
    energy->table.spread[entry] = figure->net_error_j / count;
    return ESPL_OK;
}

static enum espl_status take_figures(struct energy_run *run, struct espl_error *err)
{
    struct espl_latency_record *record = run->record;
    enum espl_status status = espl_latency_table_create(
        record->shape_count, record->m, record->kernel_count, &record->energy.table, err);
    record->energy.measured = calloc(record->run_count + 1, sizeof(double));
    if (status == ESPL_OK && record->energy.measured == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for %zu energies", record->run_count);
    }
    if (status == ESPL_OK) {
        memcpy(record->energy.table.shapes, record->shapes,
               record->shape_count * sizeof *record->shapes);
        record->energy.present = true;
    }
    for (size_t i = 0; status == ESPL_OK && i < run->count; i++) {
        status = take_figure(run, &run->tasks[i], err);
    }
    return status == ESPL_OK ? espl_latency_table_close(&record->energy.table, err) : status;
}

enum espl_status espl_latency_measure_energy(struct espl_stage_ctx *ctx,
                                             struct espl_nm_stack *stack,
                                             const struct espl_latency_energy_plan *plan,
                                             struct espl_energy_meter *meter,
                                             struct espl_latency_record *record,
                                             struct espl_error *err)
{
    struct energy_run run = {
        .ctx = ctx, .stack = stack, .plan = plan, .meter = meter, .record = record};
    enum espl_status status = list_tasks(&run, err);
    if (status == ESPL_OK) {
        espl_log(espl_ctx_log(ctx), ESPL_LOG_INFO,
                 "measuring energy by %s, %s, for %.0f s: keep the machine free of other work",
                 espl_energy_name(meter), espl_energy_total_at(meter, 0)->boundary,
                 espl_latency_energy_seconds(plan, run.count));
        status = espl_energy_start(meter, err);
    }
    if (status == ESPL_OK) {
        status = run_tasks(&run, err);
        espl_energy_stop(meter);
    }
    if (status == ESPL_OK) {
        status = take_figures(&run, err);
    }
    free(run.tasks);
    return status;
}
