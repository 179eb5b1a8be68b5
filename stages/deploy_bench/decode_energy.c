/* Energy of decoding: a run of whole sequences between idle windows. */
#include "eval/energy/device_meter.h"
#include "stages/deploy_bench/decode_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The GPU's clocks fall some time after its last kernel: idle windows begin after this. */
static const double settle_s = 0.5;

enum espl_status espl_decode_energy_open(const struct espl_deploy_params *params, bool cpu,
                                         struct espl_decode_record *record,
                                         struct espl_energy_meter **meter, struct espl_error *err)
{
    (void)snprintf(record->meter, sizeof record->meter, "%s", espl_energy_choices[params->energy]);
    const enum espl_status status = espl_energy_open_choice(params->energy, !cpu, 0.0, meter, err);
    if (status != ESPL_OK || *meter == NULL) {
        return status;
    }
    (void)snprintf(record->meter, sizeof record->meter, "%s", espl_energy_name(*meter));
    (void)snprintf(record->boundary, sizeof record->boundary, "%s",
                   espl_energy_total_at(*meter, 0)->boundary);
    return ESPL_OK;
}

static double seconds_since(int64_t begin_ns)
{
    return 1e-9 * (double)(espl_energy_now() - begin_ns);
}

static enum espl_status wait_idle(struct espl_stage_ctx *ctx, double seconds,
                                  struct espl_energy_window *window, struct espl_error *err)
{
    const struct timespec slice = {0, 100000000};
    const int64_t begin_ns = espl_energy_now();
    while (seconds_since(begin_ns) < settle_s + seconds) {
        if (espl_ctx_cancelled(ctx)) {
            return espl_ctx_stop(ctx, err);
        }
        (void)nanosleep(&slice, NULL); /* cut short by a signal: the clock is looked at */
    }
    *window = (struct espl_energy_window){begin_ns + (int64_t)(1e9 * settle_s), espl_energy_now()};
    return ESPL_OK;
}

static enum espl_status run_sequences(struct espl_decode_bench *bench,
                                      const struct espl_decode_runner *runner, const int32_t *ids,
                                      struct espl_decode_cell *cell,
                                      struct espl_energy_window *window, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    window->begin_ns = espl_energy_now();
    while (status == ESPL_OK && seconds_since(window->begin_ns) < bench->params->energy_seconds) {
        if (espl_ctx_cancelled(bench->ctx)) {
            return espl_ctx_stop(bench->ctx, err);
        }
        status = runner->read_prompt(runner->self, ids, err);
        if (status == ESPL_OK) {
            status = runner->decode(runner->self, cell->output - 1, NULL, err);
        }
        cell->energy.sequences += (double)cell->sequences;
    }
    window->end_ns = espl_energy_now();
    cell->energy.tokens = cell->energy.sequences * (double)cell->output;
    return status;
}

static void take_figures(const struct espl_energy_meter *meter,
                         const struct espl_energy_result *result, struct espl_decode_energy *energy)
{
    const struct espl_energy_figure *figure = &result->totals[0];
    energy->other_ratio = (double)NAN;
    energy->measured = figure->state != ESPL_FIGURE_UNRESOLVED;
    (void)snprintf(energy->why, sizeof energy->why, "%.*s", ESPL_DECODE_WHY - 1, figure->why);
    if (!energy->measured) {
        return;
    }
    energy->seconds = figure->seconds;
    energy->watts = figure->mean_w;
    energy->idle_watts = figure->idle_w;
    energy->gross_j = figure->gross_j;
    energy->net_j = figure->net_j;
    energy->deviation_j = figure->net_error_j;
    /* Only of nvml are both totals the same energy, by its counter and by its power readings. */
    if (strcmp(espl_energy_name(meter), "nvml") == 0 && espl_energy_total_count(meter) > 1 &&
        result->totals[1].state == ESPL_FIGURE_OK) {
        energy->other_ratio = figure->gross_j / result->totals[1].gross_j;
    }
}

enum espl_status espl_decode_measure_energy(struct espl_decode_bench *bench,
                                            const struct espl_decode_runner *runner,
                                            const int32_t *ids, struct espl_decode_cell *cell,
                                            struct espl_error *err)
{
    const double idle = bench->params->energy_idle_seconds;
    struct espl_energy_meter *meter = bench->meter;
    struct espl_energy_windows windows;
    struct espl_energy_result result;
    memset(&windows, 0, sizeof windows);
    enum espl_status status = espl_energy_start(meter, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = wait_idle(bench->ctx, idle, &windows.idle_before, err);
    if (status == ESPL_OK) {
        status = run_sequences(bench, runner, ids, cell, &windows.run, err);
    }
    if (status == ESPL_OK) {
        status = wait_idle(bench->ctx, idle, &windows.idle_after, err);
    }
    espl_energy_stop(meter);
    if (status == ESPL_OK) {
        status = espl_energy_measure(meter, &windows, &result, err);
    }
    if (status == ESPL_OK) {
        take_figures(meter, &result, &cell->energy);
    }
    return status;
}
