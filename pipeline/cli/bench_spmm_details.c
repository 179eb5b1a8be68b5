/* The long table of `espalier bench spmm`: a row for every result. */
#include "cli/bench_spmm.h"

#include "cli/print.h"

#include <math.h>

enum { MOST_COLUMNS = 20 };

/* What there is to tell. */
struct details {
    enum espl_spmm_mode usual;
    bool mode[ESPL_SPMM_MODES]; /* was measured */
    bool layers;
    bool swept;
    bool model; /* cases are its linears */
};

static struct details details_of(const struct espl_bench_record *record)
{
    struct details details = {.usual = ESPL_SPMM_GRAPH,
                              .swept = record->swept,
                              .model = espl_bench_record_of_model(record)};
    for (size_t e = 0; e < record->count; e++) {
        const struct espl_spmm_case *item = &record->entries[e].item;
        details.usual = item->usual;
        for (size_t i = 0; i < item->count; i++) {
            const struct espl_spmm_result *r = &item->results[i];
            for (int mode = 0; mode < ESPL_SPMM_MODES; mode++) {
                details.mode[mode] = details.mode[mode] || r->times[mode].median > 0.0;
            }
            details.layers = details.layers || r->kind == ESPL_SPMM_LAYER;
        }
    }
    return details;
}

static bool has_more_modes(const struct details *details)
{
    bool more = false;
    for (int mode = 0; mode < ESPL_SPMM_MODES; mode++) {
        more = more || (details->mode[mode] && mode != (int)details->usual);
    }
    return more;
}

/* ---- results ---- */

static void add_column(struct espl_column *columns, size_t *count, const char *title)
{
    columns[(*count)++] = (struct espl_column){.title = title, .right = true};
}

static size_t detail_columns(const struct details *details, struct espl_column *columns)
{
    static const char *const titles[ESPL_SPMM_MODES] = {"graph", "eager", "warm", "eager warm",
                                                        "overlap"};
    size_t count = 0;
    if (details->model) {
        columns[count++] = (struct espl_column){.title = "linear", .max_width = 48};
    }
    columns[count++] = (struct espl_column){.title = "shape"};
    add_column(columns, &count, "N");
    add_column(columns, &count, "zeros %");
    columns[count++] = (struct espl_column){.title = "what"};
    add_column(columns, &count, "bits/weight");
    add_column(columns, &count, titles[details->usual]);
    add_column(columns, &count, "p95");
    for (int mode = 0; mode < ESPL_SPMM_MODES; mode++) {
        if (details->mode[mode] && mode != (int)details->usual) {
            add_column(columns, &count, titles[mode]);
        }
    }
    add_column(columns, &count, "GB/s");
    add_column(columns, &count, "% copy");
    add_column(columns, &count, "% floor");
    add_column(columns, &count, "x dense");
    if (details->layers) {
        add_column(columns, &count, "over codes %");
    }
    if (details->swept) {
        add_column(columns, &count, "best cut");
        add_column(columns, &count, "regret %");
    }
    return count;
}

static void add_rates(struct espl_table *table, const struct espl_bench_record *record,
                      const struct espl_spmm_case *item, size_t result)
{
    const struct espl_spmm_result *r = &item->results[result];
    const double seconds = espl_spmm_seconds(item, result);
    const double copy = record->ceiling.copy_bytes_a_second;
    const bool weights = r->kind != ESPL_SPMM_QUANTISER;
    const double rate = weights ? (double)r->bytes / seconds : (double)NAN;
    const size_t dense = espl_spmm_find(item, "dense");
    const double over =
        weights && dense < item->count ? espl_spmm_seconds(item, dense) / seconds : (double)NAN;
    espl_table_number(table, 0, rate * 1e-9);
    espl_table_number(table, 0, 100.0 * rate / copy);
    espl_table_number(
        table, 0, weights ? 100.0 * espl_spmm_floor_seconds(item, copy) / seconds : (double)NAN);
    espl_table_number(table, 2, over);
}

static void add_result(struct espl_table *table, const struct details *details,
                       const struct espl_bench_record *record, const struct espl_bench_entry *entry,
                       size_t result)
{
    const struct espl_spmm_case *item = &entry->item;
    const struct espl_spmm_result *r = &item->results[result];
    const double seconds = espl_spmm_seconds(item, result);
    const double bits = 8.0 * (double)r->bytes / ((double)item->rows * (double)item->cols);
    if (details->model) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", entry->matrix.module);
    }
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zux%zu", item->rows, item->cols);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", item->tokens);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", 100.0 * item->sparsity);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", r->name);
    espl_table_number(table, 2, r->kind != ESPL_SPMM_QUANTISER ? bits : (double)NAN);
    espl_table_number(table, 2, 1e6 * seconds);
    espl_table_number(table, 2, 1e6 * r->times[details->usual].p95);
    for (int mode = 0; mode < ESPL_SPMM_MODES; mode++) {
        if (details->mode[mode] && mode != (int)details->usual) {
            const double median = r->times[mode].median;
            espl_table_number(table, 2, median > 0.0 ? 1e6 * median : (double)NAN);
        }
    }
    add_rates(table, record, item, result);
    if (details->layers) {
        const size_t plain =
            r->kind == ESPL_SPMM_LAYER ? espl_spmm_plain_of(item, result) : item->count;
        espl_table_number(table, 1,
                          plain < item->count
                              ? 100.0 * (seconds / espl_spmm_seconds(item, plain) - 1.0)
                              : (double)NAN);
    }
    if (details->swept) {
        const bool swept = r->sweep.tried > 0;
        espl_table_number(table, 2, swept ? 1e6 * r->sweep.seconds : (double)NAN);
        espl_table_number(table, 1,
                          swept ? 100.0 * (r->sweep.chosen_seconds / r->sweep.seconds - 1.0)
                                : (double)NAN);
    }
}

static enum espl_status print_results(const struct espl_cli *cli, const struct details *details,
                                      const struct espl_bench_record *record,
                                      struct espl_error *err)
{
    struct espl_column columns[MOST_COLUMNS];
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, detail_columns(details, columns), &table, err);
    for (size_t e = 0; status == ESPL_OK && e < record->count; e++) {
        const struct espl_spmm_case *item = &record->entries[e].item;
        for (size_t i = 0; i < item->count; i++) {
            if (item->results[i].measured) {
                add_result(table, details, record, &record->entries[e], i);
            }
        }
    }
    if (status == ESPL_OK) {
        fprintf(cli->out, "\nevery result, microseconds; x dense: times faster than it%s%s\n\n",
                details->layers ? "; +atom: with scales, INT8 outliers and bias, FP16 results" : "",
                details->swept ? "; regret: of the cut in use against the best" : "");
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

/* ---- means ---- */

static void add_means(struct espl_table *table, const struct espl_spmm_summary *s, bool swept)
{
    for (size_t k = 0; k < s->subjects; k++) {
        if (s->layer[k].cases == 0 && s->cut[k].cases == 0) {
            continue;
        }
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", s->tokens);
        if (isfinite(s->sparsity)) {
            espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", s->sparsity * 100.0);
        } else {
            espl_table_cell(table, ESPL_STYLE_PLAIN, "all");
        }
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", s->names[k]);
        espl_table_number(table, 1, 100.0 * espl_spmm_mean_regret(&s->layer[k]));
        espl_table_number(table, 1, 100.0 * espl_spmm_worst_regret(&s->layer[k]));
        if (swept) {
            espl_table_number(table, 1, 100.0 * espl_spmm_mean_regret(&s->cut[k]));
            espl_table_number(table, 1, 100.0 * espl_spmm_worst_regret(&s->cut[k]));
        }
    }
}

static enum espl_status print_means(const struct espl_cli *cli, const struct details *details,
                                    const struct espl_bench_record *record, struct espl_error *err)
{
    static const struct espl_column columns[] = {
        {.title = "N", .right = true},
        {.title = "zeros %", .right = true},
        {.title = "what"},
        {.title = "over codes %", .right = true},
        {.title = "worst %", .right = true},
        {.title = "regret %", .right = true},
        {.title = "worst %", .right = true},
    };
    const size_t count = sizeof columns / sizeof columns[0];
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, details->swept ? count : count - 2, &table, err);
    for (size_t i = 0; status == ESPL_OK && i < record->summaries.count; i++) {
        add_means(table, &record->summaries.items[i], details->swept);
    }
    if (status == ESPL_OK) {
        fprintf(cli->out, "\ngeometric means over the shapes%s%s\n\n",
                details->layers ? "; over codes: a layer's time over that of its codes' product"
                                : "",
                details->swept ? "; regret: of the cut in use against the best" : "");
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

enum espl_status espl_spmm_print_details(const struct espl_cli *cli,
                                         const struct espl_bench_record *record,
                                         struct espl_error *err)
{
    const struct details details = details_of(record);
    enum espl_status status = ESPL_OK;
    if (has_more_modes(&details) || details.layers || details.swept) {
        status = print_results(cli, &details, record, err);
    }
    if (status == ESPL_OK && (details.layers || details.swept)) {
        status = print_means(cli, &details, record, err);
    }
    return status;
}
