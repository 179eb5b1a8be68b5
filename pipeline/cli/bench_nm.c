/* espalier bench nm: products with N:M INT8 weights on the CUDA device, ours beside cuBLASLt's. */
#include "cli/bench_nm.h"

#include "cli/bench_settings.h"
#include "cli/options.h"
#include "core/units.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_CASES = 1024,
    MOST_BATCH = 4096,
    MOST_TOKENS = 1 << 20,
    REPEATS = 11,
    LAUNCHES = 24,
    COLD_FACTOR = 4
};

static const size_t usual_kept[] = {4, 2, 1};
static const size_t usual_batches[] = {1, 8, 32, 64};
static const size_t usual_tokens[] = {197};

static enum espl_status add_set(struct espl_nm_bench_run *run, const char *set, size_t batch,
                                struct espl_error *err)
{
    const size_t count =
        espl_nm_bench_cases(set, batch, run->cases + run->case_count, MOST_CASES - run->case_count);
    if (count == 0) {
        espl_fail(err, ESPL_E_USAGE, "there is no set of layers '%s'", set);
        return espl_hint(err, "one of grid, deit-s, deit-b, swin-s");
    }
    if (count > MOST_CASES - run->case_count) {
        return espl_fail(err, ESPL_E_USAGE, "more than %d cases", (int)MOST_CASES);
    }
    run->case_count += count;
    return ESPL_OK;
}

static enum espl_status read_sets(struct espl_nm_bench_run *run, struct espl_error *err)
{
    const char **sets = NULL;
    size_t batches[ESPL_BENCH_MOST_SETTINGS];
    size_t set_count = 0;
    size_t batch_count = 0;
    enum espl_status status =
        espl_bench_texts_of(run->cli, "set", ESPL_BENCH_MOST_SETTINGS, &sets, &set_count, err);
    if (status == ESPL_OK) {
        status = espl_bench_counts_of(run->cli, "batch", usual_batches,
                                      sizeof usual_batches / sizeof usual_batches[0], MOST_BATCH,
                                      batches, &batch_count, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < set_count; i++) {
        const bool grid = strcmp(sets[i], "grid") == 0;
        for (size_t b = 0; status == ESPL_OK && b < (grid ? 1 : batch_count); b++) {
            status = add_set(run, sets[i], batches[b], err);
        }
    }
    if (status == ESPL_OK && set_count == 0 &&
        espl_args_value(run->cli->args, "shape", NULL) == NULL) {
        status = add_set(run, "grid", 1, err);
    }
    free(sets);
    return status;
}

/* The packed linears of a model, instead of sets and shapes. */
static enum espl_status read_model(struct espl_nm_bench_run *run, struct espl_error *err)
{
    static const char *const others[] = {"shape", "set", "batch", "kept", "shared"};
    size_t tokens[ESPL_BENCH_MOST_SETTINGS];
    size_t count = 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        if (espl_args_value(run->cli->args, others[i], NULL) != NULL) {
            espl_fail(err, ESPL_E_USAGE, "--%s does not go with a model", others[i]);
            return espl_hint(err, "its linears are the cases; --tokens says how many tokens");
        }
    }
    const enum espl_status status =
        espl_bench_counts_of(run->cli, "tokens", usual_tokens, 1, MOST_TOKENS, tokens, &count, err);
    run->options.kept_count = 1; /* the packed weights themselves */
    run->options.shared = ESPL_NM_SHARED;
    return status == ESPL_OK ? espl_nm_bench_read_model(run, run->cli->args->positional[1], tokens,
                                                        count, MOST_CASES, err)
                             : status;
}

/* --shape with --tokens, beside or instead of sets. */
static enum espl_status read_shapes(struct espl_nm_bench_run *run, struct espl_error *err)
{
    struct espl_bench_size sizes[ESPL_BENCH_MOST_SETTINGS];
    size_t tokens[ESPL_BENCH_MOST_SETTINGS];
    size_t size_count = 0;
    size_t token_count = 0;
    enum espl_status status =
        espl_bench_shapes_of(run->cli, sizes, 0, ESPL_NM_MAX_COLS, sizes, &size_count, err);
    if (status == ESPL_OK) {
        status = espl_bench_counts_of(run->cli, "tokens", usual_tokens, 1, MOST_TOKENS, tokens,
                                      &token_count, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < size_count * token_count; i++) {
        if (run->case_count == MOST_CASES) {
            return espl_fail(err, ESPL_E_USAGE, "more than %d cases", (int)MOST_CASES);
        }
        run->cases[run->case_count++] =
            (struct espl_nm_bench_case){.set = "shape",
                                        .layer = "",
                                        .tokens = tokens[i % token_count],
                                        .rows = sizes[i / token_count].rows,
                                        .cols = sizes[i / token_count].cols};
    }
    return status;
}

static enum espl_status read_kept(struct espl_nm_bench_run *run, struct espl_error *err)
{
    size_t kept[ESPL_BENCH_MOST_SETTINGS];
    size_t count = 0;
    uint64_t shared = 0;
    enum espl_status status =
        espl_bench_counts_of(run->cli, "kept", usual_kept, sizeof usual_kept / sizeof usual_kept[0],
                             7, kept, &count, err);
    if (status == ESPL_OK && count > ESPL_NM_BENCH_KEPT) {
        status = espl_fail(err, ESPL_E_USAGE, "--kept is given %zu times, expected at most %d",
                           count, (int)ESPL_NM_BENCH_KEPT);
    }
    if (status == ESPL_OK) {
        status = espl_bench_count(run->cli, "shared", 16, 64, &shared, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        run->options.kept[i] = (unsigned)kept[i];
    }
    run->options.kept_count = count;
    run->options.shared = (unsigned)shared;
    return status;
}

static enum espl_status read_products(struct espl_nm_bench_run *run, struct espl_error *err)
{
    enum espl_status status = read_sets(run, err);
    if (status == ESPL_OK) {
        status = read_shapes(run, err);
    }
    return status == ESPL_OK ? read_kept(run, err) : status;
}

static enum espl_status read_baselines(struct espl_nm_bench_run *run, struct espl_error *err)
{
    static const struct espl_spmm_peer *const all[] = {
        &espl_spmm_peer_cublaslt_int8, &espl_spmm_peer_cublaslt_int8_int8,
        &espl_spmm_peer_cublaslt_fp16, &espl_spmm_peer_cusparselt_2_4};
    const char *given = espl_args_value(run->cli->args, "baseline", NULL);
    const size_t count = given == NULL                         ? ESPL_NM_BENCH_PEERS
                         : strcmp(given, "cublaslt-int8") == 0 ? 2
                                                               : 0;
    if (count == 0 && strcmp(given, "none") != 0) {
        return espl_fail(err, ESPL_E_USAGE,
                         "bench nm has no baseline '%s', expected cublaslt-int8 or none", given);
    }
    memcpy(run->options.peers, all, count * sizeof all[0]);
    run->options.peer_count = count;
    return ESPL_OK;
}

static enum espl_status read_options(struct espl_nm_bench_run *run, struct espl_error *err)
{
    const struct espl_args *args = run->cli->args;
    uint64_t repeats = 0;
    enum espl_status status = ESPL_OK;
    if (args->positional_count > 1) {
        status = read_model(run, err);
    } else {
        status = read_products(run, err);
    }
    if (status == ESPL_OK) {
        status = read_baselines(run, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_bench_count(run->cli, "repeats", REPEATS, ESPL_CUDA_MAX_REPEATS, &repeats, err);
    }
    run->options.repeats = (size_t)repeats;
    run->options.launches = LAUNCHES;
    run->options.eager = espl_args_has(args, "all");
    run->options.search = espl_args_has(args, "every-choice");
    return status;
}

static enum espl_status find_device(struct espl_nm_bench_run *run, struct espl_error *err)
{
    enum espl_status status = espl_cuda_probe(&run->device, err);
    if (status == ESPL_OK) {
        status = espl_cuda_cache_bytes(&run->cache_bytes, err);
    }
    if (status == ESPL_OK && espl_args_has(run->cli->args, "cold")) {
        run->options.cold_bytes = COLD_FACTOR * run->cache_bytes;
    }
    return status;
}

static enum espl_status run_all(struct espl_nm_bench_run *run, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    /* Baselines open and close the library for each case: this keeps it loaded. */
    void *library = dlopen("libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; status == ESPL_OK && i < run->case_count; i++) {
        if (*run->cli->stop_signal != 0) {
            status = espl_fail(err, ESPL_E_CANCELLED, "stopped after %zu cases", i);
            break;
        }
        status = espl_nm_bench_run(&run->options, &run->cases[i], &run->reports[i], err);
        run->report_count += status == ESPL_OK ? 1 : 0;
        if (status != ESPL_OK) {
            espl_context(err, "while timing %zu tokens by %zu x %zu", run->cases[i].tokens,
                         run->cases[i].rows, run->cases[i].cols);
        }
    }
    if (library != NULL) {
        (void)dlclose(library);
    }
    return status;
}

enum espl_status espl_bench_nm(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_nm_bench_run run = {.cli = cli};
    const char *plots = espl_args_value(cli->args, "svg", NULL);
    enum espl_status status = ESPL_OK;
    run.cases = calloc(MOST_CASES, sizeof *run.cases);
    if (run.cases == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench");
    }
    status = read_options(&run, err);
    if (status == ESPL_OK) {
        run.reports = calloc(run.case_count, sizeof *run.reports);
        status = run.reports != NULL ? find_device(&run, err)
                                     : espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench");
    }
    if (status == ESPL_OK) {
        status = run_all(&run, err);
    }
    if (status == ESPL_OK) {
        status = espl_nm_bench_print(&run, err);
    }
    if (status == ESPL_OK && plots != NULL) {
        status = espl_nm_bench_plot(&run, plots, err);
    }
    espl_nm_bench_free_model(run.model);
    free(run.cases);
    free(run.reports);
    return status;
}
