/* Tables of `espalier bench spmm`. */
#include "cli/bench_spmm.h"

#include "cli/print.h"
#include "kernels/bench/spmm_cpu.h"

#include <math.h>
#include <string.h>

enum { MOST_COLUMNS = ESPL_SPMM_MAX_RESULTS + 10 };

static const struct espl_spmm_result *result_of(const struct espl_spmm_case *item, const char *name)
{
    for (size_t i = 0; i < item->count; i++) {
        if (strcmp(item->results[i].name, name) == 0) {
            return &item->results[i];
        }
    }
    return NULL;
}

/* ---- cases ---- */

static size_t case_columns(const struct espl_bench_record *record, const char *const *names,
                           size_t subjects, struct espl_column *columns)
{
    static const char *const tail[] = {"GB/s", "% copy", "% floor"};
    size_t count = 0;
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

static void add_case(struct espl_table *table, const struct espl_bench_record *record,
                     const struct espl_spmm_case *item, const char *const *names, size_t subjects)
{
    const struct espl_spmm_result *chosen = &item->results[item->chosen];
    const double seconds = espl_spmm_seconds(item, item->chosen);
    const double copy = record->ceiling.copy_bytes_a_second;
    const double rate = (double)chosen->bytes / seconds;
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zux%zu", item->rows, item->cols);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", item->tokens);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", item->sparsity * 100.0);
    for (size_t i = 0; i < subjects; i++) {
        const struct espl_spmm_result *r = result_of(item, names[i]);
        espl_table_number(table, 2,
                          r != NULL ? 1e6 * espl_spmm_seconds(item, (size_t)(r - item->results))
                                    : (double)NAN);
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
}

static enum espl_status print_cases(const struct espl_cli *cli,
                                    const struct espl_bench_record *record, struct espl_error *err)
{
    struct espl_column columns[MOST_COLUMNS];
    const char *names[ESPL_SPMM_MAX_RESULTS];
    struct espl_table *table = NULL;
    const size_t subjects = espl_bench_record_subjects(record, names);
    enum espl_status status =
        espl_table_create(columns, case_columns(record, names, subjects, columns), &table, err);
    for (size_t i = 0; status == ESPL_OK && i < record->count; i++) {
        add_case(table, record, &record->entries[i].item, names, subjects);
    }
    if (status == ESPL_OK) {
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

/* ---- means ---- */

static double speedup_over(const struct espl_spmm_summary *summary, const char *name)
{
    for (size_t i = 0; i < summary->subjects; i++) {
        if (strcmp(summary->names[i], name) == 0) {
            return espl_spmm_summary_speedup(summary, i);
        }
    }
    return (double)NAN;
}

static size_t summary_columns(const struct espl_bench_record *record, const char *const *names,
                              size_t subjects, struct espl_column *columns)
{
    size_t count = 0;
    columns[count++] = (struct espl_column){.title = "N", .right = true};
    columns[count++] = (struct espl_column){.title = "zeros %", .right = true};
    columns[count++] = (struct espl_column){.title = "cases", .right = true};
    for (size_t i = 0; i < subjects; i++) {
        columns[count++] = (struct espl_column){.title = names[i], .right = true};
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
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", s->tokens);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", s->sparsity * 100.0);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", s->cases);
    for (size_t k = 0; k < subjects; k++) {
        espl_table_number(table, 2, speedup_over(s, names[k]));
    }
    espl_table_number(table, 1, 100.0 * espl_spmm_summary_regret(s));
    espl_table_number(table, 1, s->cases > 0 ? 100.0 * (s->worst_regret - 1.0) : (double)NAN);
    espl_table_number(table, 3, s->worst_dense > 0.0 ? s->worst_dense : (double)NAN);
    if (record->swept) {
        espl_table_number(table, 1, 100.0 * espl_spmm_summary_swept_regret(s));
        espl_table_number(table, 1,
                          s->swept_cases > 0 ? 100.0 * (s->worst_swept_regret - 1.0) : (double)NAN);
    }
}

static enum espl_status print_summary(const struct espl_cli *cli,
                                      const struct espl_bench_record *record,
                                      struct espl_error *err)
{
    struct espl_column columns[MOST_COLUMNS];
    const char *names[ESPL_SPMM_MAX_RESULTS];
    struct espl_table *table = NULL;
    const size_t subjects = espl_bench_record_subjects(record, names);
    enum espl_status status =
        espl_table_create(columns, summary_columns(record, names, subjects, columns), &table, err);
    for (size_t i = 0; status == ESPL_OK && i < record->summaries.count; i++) {
        add_summary(table, record, &record->summaries.items[i], names, subjects);
    }
    if (status == ESPL_OK) {
        fprintf(cli->out,
                "\nspeed-up of the automatic choice over each, geometric mean over the shapes; "
                "regret against the best form%s\n\n",
                record->swept ? ", swept: against the best cut of it" : "");
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
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
    const enum espl_status status = print_cases(cli, record, err);
    return status == ESPL_OK ? print_summary(cli, record, err) : status;
}
