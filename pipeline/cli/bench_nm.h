/* The state of `espalier bench nm`, for its two files. */
#ifndef ESPL_CLI_BENCH_NM_H
#define ESPL_CLI_BENCH_NM_H

#include "cli/bench.h"
#include "espalier/cuda_probe.h"
#include "kernels/bench/nm_bench.h"

struct espl_nm_bench_run {
    struct espl_cli *cli;
    struct espl_nm_bench_options options;
    struct espl_nm_bench_case *cases;
    size_t case_count;
    struct espl_nm_bench_report *reports; /* one a case */
    size_t report_count;
    struct espl_nm_bench_model *model; /* whose linears are the cases; NULL without */
    struct espl_cuda_info device;
    size_t cache_bytes;
};

/** Packed linears of a model, one of each shape and pattern. */
struct espl_nm_bench_model;

/** Cases <- the linears of the packed model `text` at each number of tokens. run->model owns what
 *  they refer to. Errors: those of finding and reading it; KIND for a model that is not packed. */
enum espl_status espl_nm_bench_read_model(struct espl_nm_bench_run *run, const char *text,
                                          const size_t *tokens, size_t token_count,
                                          size_t most_cases, struct espl_error *err);
void espl_nm_bench_free_model(struct espl_nm_bench_model *model);

/** Tables or JSON of all reports. */
enum espl_status espl_nm_bench_print(const struct espl_nm_bench_run *run, struct espl_error *err);
/** Box plots of the speed-ups and all figures behind them, as files in `folder`. */
enum espl_status espl_nm_bench_plot(const struct espl_nm_bench_run *run, const char *folder,
                                    struct espl_error *err);

/** Speed-ups that are summed up: one of our times and a baseline's, or our dense path's. */
size_t espl_nm_bench_ratios(void);
const char *espl_nm_bench_ratio_name(size_t ratio);
/** How many times faster result `index` of a case is; NaN when one of the two was not measured. */
double espl_nm_bench_speedup(const struct espl_nm_bench_report *report, size_t index, size_t ratio);
/** "4:8", "packed" or "dense" of result `index` of every case. */
void espl_nm_bench_kept_name(const struct espl_nm_bench_run *run, size_t index,
                             char text[ESPL_NM_BENCH_NAME]);

#endif
