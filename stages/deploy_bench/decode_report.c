/* The figures of mode decode: of the encoded model by place of the grid, and what the report draws
 * of all runtimes. */
#include "stages/deploy_bench/decode_record.h"
#include "stages/deploy_bench/deploy_run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is known of a cell under which name. */
struct figure {
    const char *name;
    double value;
};
enum { MOST_FIGURES = 20 };

static size_t figures_of(const struct espl_decode_cell *cell, struct figure figures[MOST_FIGURES])
{
    const struct espl_decode_energy *energy = &cell->energy;
    const double tokens = energy->measured ? energy->tokens : (double)NAN;
    const struct figure all[] = {
        {"decode_tokens_per_second", cell->tokens_per_second},
        {"decode_ms_per_token", 1e3 * cell->step_median},
        {"decode_ms_per_token_p95", 1e3 * cell->step_p95},
        {"decode_ms_first_token", 1e3 * cell->first_token_seconds},
        {"decode_us_products", 1e6 * cell->times.products},
        {"decode_us_attention", 1e6 * cell->times.attention},
        {"decode_us_norms", 1e6 * cell->times.norms},
        {"decode_us_head", 1e6 * cell->times.head},
        {"decode_us_gaps", 1e6 * cell->times.gaps},
        {"decode_device_bytes", (double)cell->device_bytes},
        {"decode_planned_bytes", (double)cell->planned_bytes},
        {"decode_j_per_token", energy->gross_j / tokens},
        {"decode_j_per_token_net", energy->net_j / tokens},
        {"decode_j_per_token_deviation", energy->deviation_j / tokens},
        {"decode_watts", energy->measured ? energy->watts : (double)NAN},
        {"decode_energy_counter_over_power", energy->measured ? energy->other_ratio : (double)NAN},
    };
    memcpy(figures, all, sizeof all);
    return sizeof all / sizeof all[0];
}

/* NAME_b8_p64_o128 */
static enum espl_status metric(struct espl_stage_ctx *ctx, const struct espl_decode_cell *cell,
                               const struct figure *figure, struct espl_error *err)
{
    char name[128];
    (void)snprintf(name, sizeof name, "%s_b%zu_p%zu_o%zu", figure->name, cell->sequences,
                   cell->prompt, cell->output);
    return espl_deploy_metric(ctx, name, figure->value, err);
}

/* The report's series; the encoded model's are metrics, too. */
static enum espl_status report_figure(struct espl_stage_ctx *ctx,
                                      const struct espl_decode_cell *cell,
                                      const struct figure *figure, struct espl_error *err)
{
    char module[64];
    if (!isfinite(figure->value)) {
        return ESPL_OK;
    }
    (void)snprintf(module, sizeof module, "%s %zu/%zu", espl_device_form_name(cell->runtime),
                   cell->prompt, cell->output);
    enum espl_status status =
        espl_ctx_layer_metric(ctx, figure->name, cell->sequences, module, figure->value, err);
    if (status == ESPL_OK && cell->runtime == ESPL_DEVICE_ENCODED) {
        status = metric(ctx, cell, figure, err);
    }
    return status;
}

static double joules_a_token(const struct espl_decode_cell *cell)
{
    return cell->energy.gross_j / cell->energy.tokens;
}

/* How many times faster, and the share of the energy. */
static enum espl_status report_ratios(const struct espl_decode_record *record,
                                      struct espl_stage_ctx *ctx,
                                      const struct espl_decode_cell *cell, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (int form = ESPL_DEVICE_DENSE_INT4; status == ESPL_OK && form < ESPL_DEVICE_FORMS; form++) {
        const struct espl_decode_cell *other =
            espl_decode_record_find(record, cell, (enum espl_device_form)form);
        char name[64];
        if (other == NULL) {
            continue;
        }
        (void)snprintf(name, sizeof name, "decode_speedup_over_%s",
                       espl_device_form_name((enum espl_device_form)form));
        const struct figure faster = {name, cell->tokens_per_second / other->tokens_per_second};
        status = report_figure(ctx, cell, &faster, err);
        if (status == ESPL_OK && cell->energy.measured && other->energy.measured) {
            (void)snprintf(name, sizeof name, "decode_energy_over_%s",
                           espl_device_form_name((enum espl_device_form)form));
            const struct figure less = {name, joules_a_token(cell) / joules_a_token(other)};
            status = report_figure(ctx, cell, &less, err);
        }
    }
    return status;
}

/* What is not known of an energy is left out. */
static void say_energy(const struct espl_decode_cell *cell, struct espl_stage_ctx *ctx)
{
    const struct espl_decode_energy *energy = &cell->energy;
    char net[96] = "";
    char counter[64] = "";
    if (isfinite(energy->net_j)) {
        (void)snprintf(net, sizeof net, ", net %.4f +- %.4f", energy->net_j / energy->tokens,
                       energy->deviation_j / energy->tokens);
    }
    if (isfinite(energy->other_ratio)) {
        (void)snprintf(counter, sizeof counter, "; counter over integrated power %.4f",
                       energy->other_ratio);
    }
    espl_log(espl_ctx_log(ctx), ESPL_LOG_INFO,
             "energy of %s, %zu sequence%s: %.1f W (idle %.1f), %.4f J a token%s%s; %.1f s",
             espl_device_form_name(cell->runtime), cell->sequences, cell->sequences == 1 ? "" : "s",
             energy->watts, energy->idle_watts, energy->gross_j / energy->tokens, net, counter,
             energy->seconds);
}

void espl_decode_cell_say(const struct espl_decode_cell *cell, struct espl_stage_ctx *ctx)
{
    const struct espl_device_step_times *times = &cell->times;
    espl_log(espl_ctx_log(ctx), ESPL_LOG_INFO,
             "%s%s%s, %zu sequence%s, %zu/%zu tokens: %.0f tokens/s, %.3f ms a token (p95 %.3f), "
             "first after %.2f ms; step %.0f us = products %.0f + attention %.0f + norms %.0f + "
             "head %.0f + gaps %.0f; %.2f GiB (planned %.2f)",
             espl_device_form_name(cell->runtime), cell->runtime == ESPL_DEVICE_ENCODED ? " " : "",
             cell->runtime == ESPL_DEVICE_ENCODED ? espl_iebme_areas_name(cell->areas) : "",
             cell->sequences, cell->sequences == 1 ? "" : "s", cell->prompt, cell->output,
             cell->tokens_per_second, 1e3 * cell->step_median, 1e3 * cell->step_p95,
             1e3 * cell->first_token_seconds, 1e6 * times->step, 1e6 * times->products,
             1e6 * times->attention, 1e6 * times->norms, 1e6 * times->head, 1e6 * times->gaps,
             (double)cell->device_bytes / 1073741824.0, (double)cell->planned_bytes / 1073741824.0);
    if (cell->energy.why[0] != '\0') {
        espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN, "energy of %s, %zu sequence%s: %s",
                 espl_device_form_name(cell->runtime), cell->sequences,
                 cell->sequences == 1 ? "" : "s", cell->energy.why);
    }
    if (cell->energy.measured) {
        say_energy(cell, ctx);
    }
}

enum espl_status espl_decode_record_report(const struct espl_decode_record *record,
                                           struct espl_stage_ctx *ctx, struct espl_error *err)
{
    enum espl_status status =
        espl_ctx_metric(ctx, "copy_bytes_per_second", record->copy_bytes_a_second, true, err);
    for (size_t i = 0; status == ESPL_OK && i < record->count; i++) {
        const struct espl_decode_cell *cell = &record->cells[i];
        struct figure figures[MOST_FIGURES];
        const size_t count = figures_of(cell, figures);
        for (size_t f = 0; status == ESPL_OK && f < count; f++) {
            status = report_figure(ctx, cell, &figures[f], err);
        }
        if (status == ESPL_OK && cell->runtime == ESPL_DEVICE_ENCODED) {
            status = report_ratios(record, ctx, cell, err);
        }
    }
    return status;
}
