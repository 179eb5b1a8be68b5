/* espalier bench NAME: measures this machine with this build. */
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/print.h"
#include "core/suggest.h"

#include <string.h>

static const struct espl_option bench_options[] = {
    {.name = "backend",
     .argument = "cpu|ref",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "kernel backend (default cpu)"},
    {.name = "threads",
     .argument = "N",
     .help = "threads to use (default: all that OpenMP offers)"},
    {.name = "windows", .argument = "N", .help = "forward: windows to evaluate (default 16)"},
    {.name = "length", .argument = "TOKENS", .help = "forward: tokens of a window (default 512)"},
    {.name = "op", .argument = "NAME", .help = "kernels: only this op"},
    {.name = "all", .help = "kernels: also the small cases that tests use"},
    {0}};

const struct espl_bench espl_benches[] = {
    {"forward", "arithmetic rate of a model's evaluation beside that of a large product",
     "[FILE|KEY|JOB:STAGE]", 1, espl_bench_forward},
    {"kernels", "time and rate of every kernel op", "", 0, espl_bench_kernels},
    {"reorder", "row reorder: tiles a second on every instruction set", "", 0, espl_bench_reorder},
    {NULL, NULL, NULL, 0, NULL},
};

enum espl_status espl_bench_count(const struct espl_cli *cli, const char *option, uint64_t fallback,
                                  uint64_t highest, uint64_t *out, struct espl_error *err)
{
    const char *text = espl_args_value(cli->args, option, NULL);
    int64_t value = 0;
    *out = fallback;
    if (text == NULL) {
        return ESPL_OK;
    }
    if (!espl_parse_int(text, &value) || value < 1 || (uint64_t)value > highest) {
        return espl_fail(err, ESPL_E_USAGE, "--%s must be an integer from 1 to %llu, got '%s'",
                         option, (unsigned long long)highest, text);
    }
    *out = (uint64_t)value;
    return ESPL_OK;
}

enum espl_status espl_bench_open_backend(const struct espl_cli *cli, struct espl_backend **backend,
                                         struct espl_error *err)
{
    uint64_t threads = 0;
    enum espl_status status =
        espl_bench_count(cli, "threads", 0, ESPL_BACKEND_MAX_THREADS, &threads, err);
    if (status == ESPL_OK) {
        status = espl_backend_open(espl_args_value(cli->args, "backend", "cpu"), (unsigned)threads,
                                   backend, err);
    }
    return status;
}

static enum espl_status list_benches(const struct espl_cli *cli, struct espl_error *err)
{
    if (cli->json) {
        json_t *list = json_array();
        for (const struct espl_bench *bench = espl_benches; bench->name != NULL; bench++) {
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s}", "name", bench->name, "summary", bench->summary));
        }
        return espl_print_json_take(
            cli, json_pack("{s:s, s:o}", "schema", "espalier.benches/1", "benches", list), err);
    }
    for (const struct espl_bench *bench = espl_benches; bench->name != NULL; bench++) {
        fprintf(cli->out, "%-9s %s\n", bench->name, bench->summary);
    }
    return ESPL_OK;
}

static enum espl_status run_bench(struct espl_cli *cli, struct espl_error *err)
{
    const char *names[8];
    size_t count = 0;
    if (cli->args->positional_count == 0) {
        return list_benches(cli, err);
    }
    const char *asked = cli->args->positional[0];
    for (const struct espl_bench *bench = espl_benches; bench->name != NULL; bench++) {
        if (strcmp(bench->name, asked) != 0) {
            names[count++] = bench->name;
            continue;
        }
        if (cli->args->positional_count > 1 + bench->most_arguments) {
            espl_fail(err, ESPL_E_USAGE, "too many arguments for 'bench %s'", asked);
            return espl_hint(err, "usage: espalier bench %s %s", bench->name, bench->positional);
        }
        return bench->run(cli, err);
    }
    espl_fail(err, ESPL_E_USAGE, "unknown bench '%s'", asked);
    const char *near = espl_suggest(asked, names, count);
    return near != NULL ? espl_hint(err, "did you mean '%s'?", near)
                        : espl_hint(err, "`espalier bench` lists them");
}

const struct espl_command espl_command_bench = {
    .name = "bench",
    .summary = "measure this machine: the forward pass, the kernels",
    .positional = "[NAME [ARGUMENT]]",
    .complete = ESPL_COMPLETE_NONE,
    .min_positional = 0,
    .max_positional = 2,
    .options = bench_options,
    .description =
        "Without NAME: lists the benches. `bench forward` takes a model artifact; without one it "
        "builds a model\nwith random weights in the shape of the sample model llama-6m. Nothing is "
        "stored.",
    .run = run_bench,
};
