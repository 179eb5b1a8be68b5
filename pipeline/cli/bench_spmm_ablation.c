/* espalier bench spmm --ablation. */
#include "cli/bench_spmm.h"

#include "cli/print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Against dense, which is the first variant. */
static double over_dense(const struct espl_spmm_ablation *ablation,
                         const struct espl_spmm_variant *variant)
{
    return variant->measured ? variant->time.median / ablation->variants[0].time.median
                             : (double)NAN;
}

static double bits_a_weight(const struct espl_spmm_ablation *ablation,
                            const struct espl_spmm_variant *variant)
{
    return 8.0 * (double)variant->bytes / ((double)ablation->rows * (double)ablation->cols);
}

static json_t *variant_json(const struct espl_spmm_ablation *ablation,
                            const struct espl_spmm_variant *v)
{
    json_t *row = json_pack("{s:s, s:b, s:b, s:i, s:b, s:I, s:f}", "form", v->form, "reordered",
                            (int)v->reordered, "producer", (int)v->producer, "stages",
                            (int)v->stages, "measured", (int)v->measured, "weight_bytes",
                            (json_int_t)v->bytes, "bits_per_weight", bits_a_weight(ablation, v));
    if (v->measured) {
        (void)json_object_set_new(row, "median_seconds", json_real(v->time.median));
        (void)json_object_set_new(row, "p95_seconds", json_real(v->time.p95));
        (void)json_object_set_new(row, "over_dense", json_real(over_dense(ablation, v)));
    } else {
        (void)json_object_set_new(row, "why", json_string(v->why));
    }
    return row;
}

static void add_json(json_t *cases, const struct espl_spmm_ablation *ablation)
{
    json_t *variants = json_array();
    for (size_t i = 0; i < ablation->count; i++) {
        (void)json_array_append_new(variants, variant_json(ablation, &ablation->variants[i]));
    }
    (void)json_array_append_new(
        cases, json_pack("{s:I, s:I, s:I, s:f, s:o}", "rows", (json_int_t)ablation->rows, "cols",
                         (json_int_t)ablation->cols, "tokens", (json_int_t)ablation->tokens,
                         "sparsity", ablation->sparsity, "variants", variants));
}

static void add_rows(struct espl_table *table, const struct espl_spmm_ablation *ablation)
{
    for (size_t i = 0; i < ablation->count; i++) {
        const struct espl_spmm_variant *v = &ablation->variants[i];
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zux%zu", ablation->rows, ablation->cols);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", ablation->tokens);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", 100.0 * ablation->sparsity);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s%s%s", v->form,
                        v->reordered ? ", rows in order" : "",
                        v->producer ? ", dedicated producer" : "");
        espl_table_cell(table, ESPL_STYLE_PLAIN, v->stages > 0 ? "%u" : "-", v->stages);
        espl_table_number(table, 2, bits_a_weight(ablation, v));
        espl_table_number(table, 2, v->measured ? 1e6 * v->time.median : (double)NAN);
        espl_table_number(table, 2, over_dense(ablation, v));
    }
}

/* A shape and a number of tokens at all sparsities; panels: room for those. */
static enum espl_status ablate_panels(const struct espl_cli *cli,
                                      const struct espl_spmm_settings *settings,
                                      const struct espl_spmm_ceiling *ceiling,
                                      const struct espl_bench_size *size, size_t tokens,
                                      struct espl_spmm_ablation *panels, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t s = 0; status == ESPL_OK && s < settings->sparsity_count; s++) {
        if (*cli->stop_signal != 0) {
            return espl_fail(err, ESPL_E_CANCELLED, "stopped before the ablation was done");
        }
        status = espl_spmm_ablate(&settings->options, ceiling, size->rows, size->cols, tokens,
                                  settings->sparsities[s], &panels[s], err);
    }
    return status == ESPL_OK && settings->plot_folder != NULL
               ? espl_spmm_ablation_plot(panels, settings->sparsity_count, settings->plot_folder,
                                         err)
               : status;
}

static enum espl_status ablate_all(const struct espl_cli *cli,
                                   const struct espl_spmm_settings *settings,
                                   const struct espl_spmm_ceiling *ceiling,
                                   struct espl_table *table, json_t *cases, struct espl_error *err)
{
    const size_t count = settings->size_count * settings->token_count;
    struct espl_spmm_ablation *panels = calloc(settings->sparsity_count, sizeof *panels);
    enum espl_status status =
        panels != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for an ablation");
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = ablate_panels(cli, settings, ceiling, &settings->sizes[i / settings->token_count],
                               settings->tokens[i % settings->token_count], panels, err);
        for (size_t s = 0; status == ESPL_OK && s < settings->sparsity_count; s++) {
            add_rows(table, &panels[s]);
            add_json(cases, &panels[s]);
        }
    }
    free(panels);
    return status;
}

enum espl_status espl_spmm_ablation_run(const struct espl_cli *cli,
                                        const struct espl_spmm_settings *settings,
                                        const char *device, const struct espl_spmm_ceiling *ceiling,
                                        struct espl_error *err)
{
    static const struct espl_column columns[] = {
        {.title = "shape"},
        {.title = "N", .right = true},
        {.title = "zeros %", .right = true},
        {.title = "form"},
        {.title = "stages", .right = true},
        {.title = "bits/weight", .right = true},
        {.title = "us", .right = true},
        {.title = "x dense", .right = true},
    };
    struct espl_table *table = NULL;
    json_t *cases = json_array();
    enum espl_status status =
        espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    if (status == ESPL_OK) {
        status = ablate_all(cli, settings, ceiling, table, cases, err);
    }
    if (status == ESPL_OK && cli->json) {
        status = espl_print_json_take(cli,
                                      json_pack("{s:s, s:s, s:f, s:O}", "schema",
                                                "espalier.bench-spmm-ablation/1", "device", device,
                                                "copy_bytes_per_second",
                                                ceiling->copy_bytes_a_second, "cases", cases),
                                      err);
    } else if (status == ESPL_OK) {
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    espl_table_destroy(table);
    json_decref(cases);
    return status;
}
