/* The benches behind `espalier bench NAME`: to add one, write cli/bench_<name>.c and a row in
 * cmd_bench.c. */
#ifndef ESPL_CLI_BENCH_H
#define ESPL_CLI_BENCH_H

#include "cli/command.h"
#include "core/units.h"
#include "espalier/kernels.h"

struct espl_bench {
    const char *name;
    const char *summary;
    const char *positional; /* arguments after NAME, for the usage line */
    size_t most_arguments;
    const char *options; /* names of those that it takes, separated by blanks */
    enum espl_status (*run)(struct espl_cli *cli, struct espl_error *err);
};

/** The table; ends with .name == NULL. */
extern const struct espl_bench espl_benches[];

enum espl_status espl_bench_formats(struct espl_cli *cli, struct espl_error *err);
enum espl_status espl_bench_forward(struct espl_cli *cli, struct espl_error *err);
enum espl_status espl_bench_kernels(struct espl_cli *cli, struct espl_error *err);
enum espl_status espl_bench_nm(struct espl_cli *cli, struct espl_error *err);
enum espl_status espl_bench_quantize(struct espl_cli *cli, struct espl_error *err);
enum espl_status espl_bench_reorder(struct espl_cli *cli, struct espl_error *err);
enum espl_status espl_bench_search(struct espl_cli *cli, struct espl_error *err);
enum espl_status espl_bench_spmm(struct espl_cli *cli, struct espl_error *err);

/** Value of a count option, 1 to highest, or fallback. Errors: USAGE. */
enum espl_status espl_bench_count(const struct espl_cli *cli, const char *option, uint64_t fallback,
                                  uint64_t highest, uint64_t *out, struct espl_error *err);
/** The backend that --backend and --threads ask for. */
enum espl_status espl_bench_open_backend(const struct espl_cli *cli, struct espl_backend **backend,
                                         struct espl_error *err);

#endif
