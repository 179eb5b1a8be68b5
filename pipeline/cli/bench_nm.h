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
    struct espl_cuda_info device;
    size_t cache_bytes;
};

/** Tables or JSON of all reports. */
enum espl_status espl_nm_bench_print(const struct espl_nm_bench_run *run, struct espl_error *err);

#endif
