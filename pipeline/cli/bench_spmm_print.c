/* Tables of `espalier bench spmm`. */
#include "cli/bench_spmm.h"

#include "cli/print.h"
#include "kernels/bench/spmm_cpu.h"

#include <math.h>
#include <string.h>

enum { MOST_COLUMNS = ESPL_SPMM_MAX_RESULTS + 14 };

static double seconds_of(const struct espl_spmm_case *item, const char *name)
{
    const size_t at = espl_spmm_find(item, name);
    return at < item->count ? espl_spmm_seconds(item, at) : (double)NAN;
}

/* The subjects that compute products of codes: what stands side by side in a row. */
static size_t product_subjects(const struct espl_bench_record *record,
                               const char *names[ESPL_SPMM_MAX_RESULTS])
{
    const size_t all = espl_bench_record_subjects(record, names);
    size_t count = 0;
    for (size_t i = 0; i < all; i++) {
        if (espl_bench_record_kind(record, names[i]) == ESPL_SPMM_CODES) {
            names[count++] = names[i];
        }
    }
    return count;
}

/* ---- cases ---- */

static size_t case_columns(const struct espl_bench_record *record, const char *const *names,
                           size_t subjects, struct espl_column *columns)
{
    static const char *const tail[] = {"GB/s", "% copy", "% floor"};
    size_t count = 0;
    if (espl_bench_record_of_model(record)) {
        columns[count++] = (struct espl_column){.title = "linear", .max_width = 48};
        columns[count++] = (struct espl_column){.title = "linears", .right = true};
    }
    columns[count++] = (struct espl_column){.title = "shape"};
    columns[count++] = (struct espl_column){.title = "N", .right = true};
    columns[count++] = (struct espl_column){.title = "zeros %", .right = true};
    for (size_t i = 0; i < subjects; i++) {
        columns[count++] = (struct espl_column){.title = names[i], .right = true};
    }
    columns[count++] = (struct espl_column){.title = "auto"};
    for (size_t i = 0; i < sizeof tail / sizeof tail[0]; i++) {
        columns[count++] = (struct espl_column){.title = tail[i], .right = true};
    }
    if (record->swept) {
        columns[count++] = (struct espl_column){.title = "swept", .right = true};
        columns[count++] = (struct espl_column){.title = "regret %", .right = true};
    }
    return count;
}

/* Microseconds; of our other forms also how many times faster than dense, "7.24 (0.71)": true. */
static bool add_time(struct espl_table *table, const struct espl_spmm_case *item, const char *name)
{
    const size_t at = espl_spmm_find(item, name);
    const double seconds = seconds_of(item, name);
    const double gain = seconds_of(item, "dense") / seconds;
    const bool other = at < item->count && item->results[at].ours && strcmp(name, "dense") != 0;
    if (other && isfinite(gain)) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.2f (%.2f)", 1e6 * seconds, gain);
        return true;
    }
    espl_table_number(table, 2, 1e6 * seconds);
    return false;
}

/* true: it has gains over dense. */
static bool add_case(struct espl_table *table, const struct espl_bench_record *record,
                     const struct espl_bench_entry *entry, const char *const *names,
                     size_t subjects)
{
    const struct espl_spmm_case *item = &entry->item;
    const struct espl_spmm_result *chosen = &item->results[item->chosen];
    const double seconds = espl_spmm_seconds(item, item->chosen);
    const double copy = record->ceiling.copy_bytes_a_second;
    const double rate = (double)chosen->bytes / seconds;
    if (espl_bench_record_of_model(record)) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", entry->matrix.module);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", entry->matrix.modules);
    }
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zux%zu", item->rows, item->cols);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", item->tokens);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", item->sparsity * 100.0);
    bool gains = false;
    for (size_t i = 0; i < subjects; i++) {
        gains = add_time(table, item, names[i]) || gains;
    }
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", chosen->name);
    espl_table_number(table, 0, rate * 1e-9);
    espl_table_number(table, 0, 100.0 * rate / copy);
    espl_table_number(table, 0, 100.0 * espl_spmm_floor_seconds(item, copy) / seconds);
    if (record->swept) {
        const double swept = espl_spmm_swept_seconds(item);
        espl_table_number(table, 2, 1e6 * swept);
        espl_table_number(table, 1, 100.0 * (chosen->sweep.chosen_seconds / swept - 1.0));
    }
    return gains;
}

static enum espl_status print_cases(const struct espl_cli *cli,
                                    const struct espl_bench_record *record, struct espl_error *err)
{
    struct espl_column columns[MOST_COLUMNS];
    const char *names[ESPL_SPMM_MAX_RESULTS];
    struct espl_table *table = NULL;
    const size_t subjects = product_subjects(record, names);
    enum espl_status status =
        espl_table_create(columns, case_columns(record, names, subjects, columns), &table, err);
    bool gains = false;
    for (size_t i = 0; status == ESPL_OK && i < record->count; i++) {
        gains = add_case(table, record, &record->entries[i], names, subjects) || gains;
    }
    if (status == ESPL_OK) {
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    if (status == ESPL_OK && gains) {
        fprintf(cli->out, "\nin brackets: times faster than dense\n");
    }
    espl_table_destroy(table);
    return status;
}

/* ---- means ---- */

static double mean_of(const struct espl_spmm_summary *summary, const struct espl_spmm_mean *means,
                      const char *name)
{
    const size_t at = espl_spmm_summary_subject(summary, name);
    return at < summary->subjects ? espl_spmm_mean_of(&means[at]) : (double)NAN;
}

static size_t setting_columns(const char *const *names, size_t subjects,
                              struct espl_column *columns)
{
    size_t count = 0;
    columns[count++] = (struct espl_column){.title = "N", .right = true};
    columns[count++] = (struct espl_column){.title = "zeros %", .right = true};
    columns[count++] = (struct espl_column){.title = "cases", .right = true};
    for (size_t i = 0; i < subjects; i++) {
        columns[count++] = (struct espl_column){.title = names[i], .right = true};
    }
    return count;
}

static void add_setting(struct espl_table *table, const struct espl_spmm_summary *s)
{
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", s->tokens);
    if (isfinite(s->sparsity)) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", s->sparsity * 100.0);
    } else {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "all");
    }
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", s->cases);
}

static size_t summary_columns(const struct espl_bench_record *record, const char *const *names,
                              size_t subjects, struct espl_column *columns)
{
    size_t count = setting_columns(names, subjects, columns);
    if (espl_bench_record_of_model(record)) {
        columns[count++] = (struct espl_column){.title = "all linears", .right = true};
        columns[count++] = (struct espl_column){.title = "as layers", .right = true};
    }
    columns[count++] = (struct espl_column){.title = "regret %", .right = true};
    columns[count++] = (struct espl_column){.title = "worst %", .right = true};
    columns[count++] = (struct espl_column){.title = "worst/dense", .right = true};
    if (record->swept) {
        columns[count++] = (struct espl_column){.title = "swept regret %", .right = true};
        columns[count++] = (struct espl_column){.title = "worst %", .right = true};
    }
    return count;
}

static void add_summary(struct espl_table *table, const struct espl_bench_record *record,
                        const struct espl_spmm_summary *s, const char *const *names,
                        size_t subjects)
{
    add_setting(table, s);
    for (size_t k = 0; k < subjects; k++) {
        espl_table_number(table, 2, mean_of(s, s->over, names[k]));
    }
    if (espl_bench_record_of_model(record)) {
        const struct espl_bench_totals totals = espl_bench_record_totals(record, s->tokens);
        espl_table_number(table, 1, 1e6 * totals.seconds);
        espl_table_number(table, 1, 1e6 * totals.layer_seconds);
    }
    espl_table_number(table, 1, 100.0 * espl_spmm_mean_regret(&s->regret));
    espl_table_number(table, 1, 100.0 * espl_spmm_worst_regret(&s->regret));
    espl_table_number(table, 3, s->worst_dense > 0.0 ? s->worst_dense : (double)NAN);
    if (record->swept) {
        espl_table_number(table, 1, 100.0 * espl_spmm_mean_regret(&s->swept));
        espl_table_number(table, 1, 100.0 * espl_spmm_worst_regret(&s->swept));
    }
}

static enum espl_status print_summary(const struct espl_cli *cli,
                                      const struct espl_bench_record *record,
                                      struct espl_error *err)
{
    struct espl_column columns[MOST_COLUMNS];
    const char *names[ESPL_SPMM_MAX_RESULTS];
    struct espl_table *table = NULL;
    const size_t subjects = product_subjects(record, names);
    enum espl_status status =
        espl_table_create(columns, summary_columns(record, names, subjects, columns), &table, err);
    for (size_t i = 0; status == ESPL_OK && i < record->summaries.count; i++) {
        add_summary(table, record, &record->summaries.items[i], names, subjects);
    }
    if (status == ESPL_OK) {
        fprintf(cli->out,
                "\nspeed-up of the automatic choice over each, geometric mean over the shapes; "
                "regret against the best form%s%s\n\n",
                record->swept ? ", swept: against the best cut of it" : "",
                espl_bench_record_of_model(record)
                    ? "; microseconds of one pass through all linears"
                    : "");
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

/* What was asked for and could not be measured. */
static void print_missing(const struct espl_cli *cli, const struct espl_bench_record *record)
{
    const char *names[ESPL_SPMM_MAX_RESULTS];
    const size_t count = espl_bench_record_subjects(record, names);
    for (size_t i = 0; i < count; i++) {
        const char *why = "";
        const size_t missing = espl_bench_record_missing(record, names[i], &why);
        if (missing > 0) {
            espl_print_warning(cli, "'%s' was not measured in %zu of %zu cases: %s", names[i],
                               missing, record->count, why);
        }
    }
}

enum espl_status espl_spmm_print(const struct espl_cli *cli, const struct espl_bench_record *record,
                                 struct espl_error *err)
{
    if (cli->json) {
        return espl_print_json_take(cli, espl_bench_record_json(record), err);
    }
    const bool graph = record->count > 0 && record->entries[0].item.usual == ESPL_SPMM_GRAPH;
    const double rate = record->ceiling.copy_bytes_a_second * 1e-9;
    const double cache = (double)record->ceiling.cache_bytes * 1e-6;
    if (graph) {
        fprintf(
            cli->out,
            "%s; copy %.0f GB/s; microseconds of a product in a CUDA graph, cold caches (copies "
            "of the weights worth %dx the %.0f MB cache); median of %zu\n\n",
            record->device, rate, (int)ESPL_SPMM_COLD_FACTOR, cache, record->repeats);
    } else {
        fprintf(cli->out,
                "%s; reading %.0f GB/s; microseconds of a product, copies of the weights in turn "
                "(worth %dx the %.0f MB cache, at most %d MB); median of %zu\n\n",
                record->device, rate, (int)ESPL_SPMM_COLD_FACTOR, cache,
                (int)(ESPL_SPMM_CPU_COPIES / 1000000), record->repeats);
    }
    enum espl_status status = print_cases(cli, record, err);
    if (status == ESPL_OK) {
        status = espl_spmm_print_details(cli, record, err);
    }
    if (status == ESPL_OK) {
        status = print_summary(cli, record, err);
    }
    if (status == ESPL_OK) {
        print_missing(cli, record);
    }
    return status;
}
