/* espalier bench kernels: the cases of kernels/bench/cases.c, timed on one backend. */
#include "cli/bench.h"
#include "cli/print.h"
#include "core/log.h"
#include "core/order.h"
#include "kernels/bench/cases.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RUNS = 400 };
/* A case runs until this much time has been measured. */
static const double seconds_per_case = 0.15;

/* What one case gave. */
struct timing {
    char text[128];
    bool supported;
    size_t runs;
    double median; /* seconds */
    double p95;
    double flops; /* 0 = says nothing */
    double bytes_per_second;
    double best;
    double sgemm; /* seconds of the float product of the same shape, best; 0 = no such product */
};

static enum espl_status time_case(const struct espl_kernel_case *item, struct espl_backend *backend,
                                  struct timing *timing, struct espl_error *err)
{
    double seconds[MOST_RUNS];
    double total = 0.0;
    struct espl_kernel_problem *problem = NULL;
    memset(timing, 0, sizeof *timing);
    espl_kernel_case_describe(item, timing->text);
    enum espl_status status = espl_kernel_problem_create(item, &problem, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_kernel_problem_run(problem, backend, err); /* warm-up, and the support query */
    if (status == ESPL_E_UNSUPPORTED) {
        espl_error_clear(err);
        espl_kernel_problem_destroy(problem);
        return ESPL_OK;
    }
    while (status == ESPL_OK && timing->runs < MOST_RUNS &&
           (timing->runs < 3 || total < seconds_per_case)) {
        espl_kernel_problem_reset(problem);
        const double start = espl_clock_monotonic();
        status = espl_kernel_problem_run(problem, backend, err);
        seconds[timing->runs] = espl_clock_monotonic() - start;
        total += seconds[timing->runs++];
    }
    if (status == ESPL_OK) {
        qsort(seconds, timing->runs, sizeof seconds[0], espl_compare_doubles);
        timing->supported = true;
        timing->best = seconds[0];
        timing->median = seconds[timing->runs / 2];
        timing->p95 = seconds[timing->runs * 95 / 100];
        timing->flops = problem->flop / timing->median;
        timing->bytes_per_second = problem->bytes / timing->median;
    }
    espl_kernel_problem_destroy(problem);
    return status;
}

/* The rival of a quantised product: gemm_f32, OpenBLAS's sgemm on the CPU, on the same sizes. The
 * fastest runs are compared: on a busy machine medians say more about the other programs. */
static enum espl_status time_sgemm(const struct espl_kernel_case *item,
                                   struct espl_backend *backend, struct timing *timing,
                                   struct espl_error *err)
{
    const struct espl_kernel_case rival = {
        "gemm_f32", {item->size[0], item->size[1], item->size[2]}, item->flags};
    struct timing sgemm;
    if (!timing->supported ||
        (strcmp(item->op, "gemm_w4a4") != 0 && strcmp(item->op, "spmm_iebme") != 0)) {
        return ESPL_OK;
    }
    const enum espl_status status = time_case(&rival, backend, &sgemm, err);
    timing->sgemm = sgemm.best;
    return status;
}

static void add_row(struct espl_table *table, const struct timing *timing)
{
    char median[ESPL_UNIT_TEXT];
    char p95[ESPL_UNIT_TEXT];
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", timing->text);
    if (!timing->supported) {
        espl_table_cell(table, ESPL_STYLE_DIM, "unsupported");
        for (unsigned column = 0; column < 5; column++) {
            espl_table_cell(table, ESPL_STYLE_DIM, "-");
        }
        return;
    }
    espl_print_duration(timing->median, median);
    espl_print_duration(timing->p95, p95);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", timing->runs);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", median);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", p95);
    if (timing->flops > 0.0) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.1f", timing->flops * 1e-9);
    } else {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
    }
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.2f", timing->bytes_per_second * 1e-9);
    if (timing->sgemm > 0.0) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.2f", timing->sgemm / timing->best);
    } else {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
    }
}

static json_t *row_json(const struct timing *timing)
{
    json_t *row = json_pack("{s:s, s:b}", "case", timing->text, "supported", timing->supported);
    if (row != NULL && timing->supported) {
        (void)json_object_update_new(
            row, json_pack("{s:I, s:f, s:f, s:f, s:f}", "runs", (json_int_t)timing->runs,
                           "median_seconds", timing->median, "p95_seconds", timing->p95, "gflops",
                           timing->flops * 1e-9, "gigabytes_per_second",
                           timing->bytes_per_second * 1e-9));
    }
    if (row != NULL && timing->sgemm > 0.0) {
        (void)json_object_set_new(row, "best_seconds", json_real(timing->best));
        (void)json_object_set_new(row, "sgemm_best_seconds", json_real(timing->sgemm));
    }
    return row;
}

static bool wanted(const struct espl_cli *cli, const struct espl_kernel_case *item)
{
    const char *op = espl_args_value(cli->args, "op", item->op);
    const bool reference = strcmp(espl_args_value(cli->args, "backend", "cpu"), "ref") == 0;
    if (strcmp(op, item->op) != 0 || (reference && (item->flags & ESPL_CASE_BIG) != 0)) {
        return false;
    }
    return espl_args_has(cli->args, "all") || (item->flags & ESPL_CASE_TIMED) != 0;
}

enum espl_status espl_bench_kernels(struct espl_cli *cli, struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = "case"},
                                                 {.title = "runs", .right = true},
                                                 {.title = "median", .right = true},
                                                 {.title = "p95", .right = true},
                                                 {.title = "GFLOP/s", .right = true},
                                                 {.title = "GB/s", .right = true},
                                                 {.title = "x sgemm", .right = true}};
    struct espl_backend *backend = NULL;
    struct espl_table *table = NULL;
    json_t *rows = json_array();
    size_t shown = 0;
    enum espl_status status = espl_bench_open_backend(cli, &backend, err);
    if (status == ESPL_OK) {
        status = espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    }
    for (const struct espl_kernel_case *item = espl_kernel_cases;
         status == ESPL_OK && item->op != NULL; item++) {
        struct timing timing = {0};
        if (!wanted(cli, item)) {
            continue;
        }
        status = *cli->stop_signal != 0
                     ? espl_fail(err, ESPL_E_CANCELLED, "stopped after %zu cases", shown)
                     : time_case(item, backend, &timing, err);
        if (status == ESPL_OK) {
            status = time_sgemm(item, backend, &timing, err);
        }
        if (status == ESPL_OK) {
            add_row(table, &timing);
            (void)json_array_append_new(rows, row_json(&timing));
            shown++;
        }
    }
    if (status == ESPL_OK && shown == 0) {
        status = espl_fail(err, ESPL_E_USAGE, "no case of op '%s' to time",
                           espl_args_value(cli->args, "op", ""));
    }
    if (status == ESPL_OK && cli->json) {
        status = espl_print_json_take(cli,
                                      json_pack("{s:s, s:s, s:i, s:O}", "schema",
                                                "espalier.bench-kernels/1", "backend",
                                                espl_backend_ops(backend)->name, "threads",
                                                (int)espl_backend_threads(backend), "cases", rows),
                                      err);
    } else if (status == ESPL_OK) {
        fprintf(
            cli->out,
            "backend %s, %u threads; warm caches; GB/s counts every operand once; x sgemm: best "
            "time against OpenBLAS's float product of the same shape\n\n",
            espl_backend_ops(backend)->name, espl_backend_threads(backend));
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    }
    json_decref(rows);
    espl_table_destroy(table);
    espl_backend_close(backend);
    return status;
}
