/* espalier bench NAME: measures this machine with this build. */
#include "cli/bench.h"
#include "cli/command.h"
#include "cli/print.h"
#include "cli/roofline_device.h"
#include "core/suggest.h"

#include <string.h>

static const struct espl_option bench_options[] = {
    {.name = "backend",
     .argument = "cpu|ref|cuda",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "forward, kernels, reorder, search, spmm: backend (default cpu; spmm: cuda)"},
    {.name = "threads",
     .argument = "N",
     .help = "forward, kernels, reorder, search, spmm: threads (default: all that OpenMP offers)"},
    {.name = "windows", .argument = "N", .help = "forward, quantize: windows (default 16, 128)"},
    {.name = "length",
     .argument = "TOKENS",
     .help = "forward, quantize: tokens of a window (default 512)"},
    {.name = "op", .argument = "NAME", .help = "kernels: only this op"},
    {.name = "all",
     .help = "kernels: also the small cases; spmm: also eager, warm, overlapped; nm: eager"},
    {.name = "shape",
     .argument = "ROWSxCOLS",
     .help = "formats, spmm, nm: size of the weights (default 4096x4096; layers of models)",
     .repeatable = true},
    {.name = "sparsity",
     .argument = "SHARE",
     .help = "formats, spmm: share of weights that are 0 (default 0.3, 0.4 to 0.7)",
     .repeatable = true},
    {.name = "bits",
     .argument = "2|3|4|8",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "formats, spmm: bits of a code (default 4)"},
    {.name = "tokens",
     .argument = "N",
     .help = "formats, spmm, nm: activation columns (default 8; 1 to 32; 197)",
     .repeatable = true},
    {.name = "set",
     .argument = "grid|deit-s|deit-b|swin-s",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "nm: products to time (default grid, unless --shape is given)",
     .repeatable = true},
    {.name = "batch",
     .argument = "IMAGES",
     .help = "nm: images at a time (default 1, 8, 32, 64)",
     .repeatable = true},
    {.name = "kept",
     .argument = "N",
     .help = "nm: weights kept of 8, 1 to 7 (default 4, 2, 1)",
     .repeatable = true},
    {.name = "shared",
     .argument = "1|8|16|32|64",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "nm: rows that share a pattern (default 16)"},
    {.name = "every-choice", .help = "nm: also time every tile and split, and judge the rule"},
    {.name = "cold", .help = "nm: rotate copies of the weights worth four times the cache"},
    {.name = "form",
     .argument = "dense|int3|int2|1x1|1x2|2x1|2x2|mixed",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "spmm: form of the weights (default dense, 1x1, 1x2)",
     .repeatable = true},
    {.name = "instruction",
     .argument = "automatic|int8|int4",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "spmm: matrix instruction (default automatic: INT4 where the device has it)"},
    {.name = "pipeline",
     .argument = "automatic|own|producer",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "spmm: each warp copies its own chunks (default), or one warp for all others"},
    {.name = "repeats", .argument = "N", .help = "spmm, nm: repeats of a timing (default 11)"},
    {.name = "baseline",
     .argument = "cublaslt-int8|cublas-fp16|cusparse-csr|sgemm-f32|none",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "spmm: only this baseline (default all of the backend); nm: cublaslt-int8 or none",
     .repeatable = true},
    {.name = "baseline-library",
     .argument = "FILE.so",
     .complete = ESPL_COMPLETE_FILE,
     .help = "spmm: one more baseline (docs/kernels/baselines.md)",
     .repeatable = true},
    {.name = "atom",
     .help = "spmm: also layers with scales, INT8 outliers and bias, and their quantiser"},
    {.name = "group",
     .argument = "COLUMNS",
     .help = "spmm --atom: columns of a scale; 0 = all (default 128)"},
    {.name = "outliers", .argument = "COLUMNS", .help = "spmm --atom: INT8 columns (default 128)"},
    {.name = "sweep", .help = "spmm: try every way to cut a product, too, and show the regret"},
    {.name = "tune",
     .argument = "FILE",
     .complete = ESPL_COMPLETE_FILE,
     .help = "spmm: sweep, and store the fastest choices there"},
    {.name = "tuning",
     .argument = "FILE",
     .complete = ESPL_COMPLETE_FILE,
     .help = "spmm: take choices stored there before the rule's"},
    {.name = "ablation",
     .help = "spmm: what stages, a producer warp and row order are worth, not cases"},
    {.name = "output",
     .argument = "FILE.h5",
     .complete = ESPL_COMPLETE_FILE,
     .help = "spmm: write the results as an artifact there, too"},
    {.name = "device",
     .argument = ESPL_ROOFLINE_DEVICES,
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "formats: whose bandwidth predicts the time (default orin-agx)"},
    {.name = "bandwidth", .argument = "GB/S", .help = "formats: this bandwidth instead"},
    {.name = "svg",
     .argument = "FOLDER",
     .complete = ESPL_COMPLETE_FILE,
     .help = "formats, spmm, nm: write plots there, each with its figures as CSV"},
    {.name = "speedup",
     .argument = "FACTOR",
     .help = "search: target (default 1.5, 2.0 and 2.5)",
     .repeatable = true},
    {.name = "seeds", .argument = "N", .help = "search: searches of each kind (default 5)"},
    {.name = "evaluations", .argument = "N", .help = "search: scores of each (default 48)"},
    {.name = "pictures", .argument = "N", .help = "search: pictures of a score (default 32)"},
    {.name = "holdout", .argument = "N", .help = "search: held-out pictures (default 500)"},
    {.name = "overshoot",
     .argument = "LAYERS",
     .help = "search: most layers that an overshoot densifies (default 1)"},
    {.name = "refine",
     .argument = "lazy|literal|latency_only",
     .complete = ESPL_COMPLETE_CHOICE,
     .help = "search: refinement of overshoot-repair-refine (default latency_only)"},
    {0}};

const struct espl_bench espl_benches[] = {
    {"formats", "bytes, PMR, intensity and roofline time of every sparse format", "", 0,
     "shape sparsity bits tokens device bandwidth svg", espl_bench_formats},
    {"forward", "arithmetic rate of a model's evaluation beside that of a large product",
     "[FILE|KEY|JOB:STAGE]", 1, "backend threads windows length", espl_bench_forward},
    {"kernels", "time and rate of every kernel op", "", 0, "backend threads op all",
     espl_bench_kernels},
    {"nm", "products with N:M INT8 weights on a CUDA device beside cuBLASLt's",
     "[FILE|KEY|JOB:STAGE]", 1,
     "shape tokens set batch kept shared every-choice cold repeats baseline all svg",
     espl_bench_nm},
    {"quantize", "atom-quantize on a model: time, memory, share of BLAS", "[FILE|KEY|JOB:STAGE]", 1,
     "windows length", espl_bench_quantize},
    {"reorder", "row reorder: tiles a second on every instruction set", "", 0, "backend threads",
     espl_bench_reorder},
    {"search", "strategies of budget-search compared on the artifacts of a job", "[JOB]", 1,
     "backend threads speedup seeds evaluations pictures holdout overshoot refine",
     espl_bench_search},
    {"spmm", "products of few tokens on a CUDA device beside other libraries'",
     "[FILE|KEY|JOB:STAGE]", 1,
     "backend threads shape sparsity bits tokens form instruction pipeline repeats "
     "baseline baseline-library all atom group outliers sweep tune tuning ablation output svg",
     espl_bench_spmm},
    {NULL, NULL, NULL, 0, NULL, NULL},
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

static bool takes(const struct espl_bench *bench, const char *option)
{
    const size_t len = strlen(option);
    for (const char *name = bench->options; *name != '\0';) {
        const size_t name_len = strcspn(name, " ");
        if (name_len == len && strncmp(name, option, len) == 0) {
            return true;
        }
        name += name_len;
        name += strspn(name, " ");
    }
    return false;
}

/* The options of all benches stand in one table, but none of them means something to every one. */
static enum espl_status check_options(const struct espl_cli *cli, const struct espl_bench *bench,
                                      struct espl_error *err)
{
    for (size_t i = 0; i < cli->args->count; i++) {
        const struct espl_option *given = cli->args->items[i].option;
        const struct espl_option *own = bench_options;
        while (own->name != NULL && own != given) {
            own++;
        }
        if (own->name == NULL || takes(bench, own->name)) {
            continue; /* one that every verb has, or its own */
        }
        espl_fail(err, ESPL_E_USAGE, "'bench %s' does not take --%s", bench->name, own->name);
        return espl_hint(err, "its options: %s", bench->options);
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
        const enum espl_status status = check_options(cli, bench, err);
        return status == ESPL_OK ? bench->run(cli, err) : status;
    }
    espl_fail(err, ESPL_E_USAGE, "unknown bench '%s'", asked);
    const char *near = espl_suggest(asked, names, count);
    return near != NULL ? espl_hint(err, "did you mean '%s'?", near)
                        : espl_hint(err, "`espalier bench` lists them");
}

const struct espl_command espl_command_bench = {
    .name = "bench",
    .summary = "measure this machine, and the bytes of sparse formats",
    .positional = "[NAME [ARGUMENT]]",
    .complete = ESPL_COMPLETE_NONE,
    .min_positional = 0,
    .max_positional = 2,
    .options = bench_options,
    .description =
        "Without NAME: lists the benches. `bench forward`, `bench quantize`, `bench spmm` and "
        "`bench nm`\ntake a model artifact; without one they use random weights, in the "
        "shape of a sample model or in\nthose of --shape and --set. Nothing is stored but "
        "what an option names.",
    .run = run_bench,
};
