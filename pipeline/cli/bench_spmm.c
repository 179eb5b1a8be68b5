/* espalier bench spmm: products of few tokens on the CUDA device, ours beside other libraries'. */
#include "cli/bench.h"
#include "cli/bench_settings.h"
#include "cli/options.h"
#include "cli/print.h"
#include "espalier/cuda_probe.h"
#include "kernels/bench/spmm_bench.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 131071, MOST_TOKENS = 64, REPEATS = 11, LAUNCHES = 24, MOST_SUMMARIES = 256 };

/* Weight shapes of LLaMA2-7B and 13B, OPT-13B, Qwen2-7B and LLaMA3-8B, each once. */
static const struct espl_bench_size corpus[] = {
    {4096, 4096},  {11008, 4096}, {4096, 11008}, {5120, 5120},  {13824, 5120},
    {5120, 13824}, {20480, 5120}, {5120, 20480}, {3584, 3584},  {512, 3584},
    {18944, 3584}, {3584, 18944}, {1024, 4096},  {14336, 4096}, {4096, 14336},
};
static const double usual_sparsities[] = {0.4, 0.5, 0.6, 0.7};
static const size_t usual_tokens[] = {1, 2, 4, 8, 16, 32};
static const char *const usual_forms[] = {"dense", "1x1", "1x2"};

/* Logarithms of speed-ups of the automatic choice, for one number of tokens and one sparsity. */
struct summary {
    size_t tokens;
    double sparsity;
    size_t cases;
    double over[ESPL_SPMM_MAX_RESULTS];       /* over each subject, sums of logarithms */
    size_t over_cases[ESPL_SPMM_MAX_RESULTS]; /* cases that have this subject */
    double regret;                            /* the choice over the best, likewise */
    double worst_dense;                       /* largest ratio to dense */
};

struct spmm_bench {
    struct espl_cli *cli;
    struct espl_bench_size sizes[ESPL_BENCH_MOST_SETTINGS];
    double sparsities[ESPL_BENCH_MOST_SETTINGS];
    size_t tokens[ESPL_BENCH_MOST_SETTINGS];
    size_t size_count, sparsity_count, token_count;
    struct espl_spmm_bench_options options;
    struct espl_spmm_ceiling ceiling;
    struct espl_cuda_info device;
    void *plug_in; /* of --peer */
    struct espl_table *table;
    json_t *rows;
    struct summary summaries[MOST_SUMMARIES];
    size_t summary_count;
};

/* ---- what was asked for ---- */

static enum espl_status read_forms(struct spmm_bench *bench, struct espl_error *err)
{
    const char **given = NULL;
    size_t count = 0;
    const enum espl_status status =
        espl_bench_texts_of(bench->cli, "form", ESPL_SPMM_MAX_FORMS, &given, &count, err);
    if (status == ESPL_OK) {
        const char *const *names = count > 0 ? given : usual_forms;
        bench->options.form_count = count > 0 ? count : sizeof usual_forms / sizeof usual_forms[0];
        memcpy(bench->options.forms, names, bench->options.form_count * sizeof names[0]);
    }
    free(given);
    return status;
}

/* The parser knows the names: anything but a baseline is "none". */
static enum espl_status read_baselines(struct spmm_bench *bench, struct espl_error *err)
{
    static const struct espl_spmm_peer *const known[] = {
        &espl_spmm_peer_cublaslt_int8, &espl_spmm_peer_cublas_fp16, &espl_spmm_peer_cusparse_csr};
    const size_t known_count = sizeof known / sizeof known[0];
    const char **given = NULL;
    size_t count = 0;
    const enum espl_status status =
        espl_bench_texts_of(bench->cli, "baseline", known_count, &given, &count, err);
    for (size_t k = 0; status == ESPL_OK && k < known_count; k++) {
        bool wanted = count == 0;
        for (size_t i = 0; i < count; i++) {
            wanted = wanted || strcmp(given[i], known[k]->name) == 0;
        }
        if (wanted) {
            bench->options.peers[bench->options.peer_count++] = known[k];
        }
    }
    free(given);
    return status;
}

static enum espl_status load_plug_in(struct spmm_bench *bench, const char *path,
                                     struct espl_error *err)
{
    const struct espl_spmm_peer *(*get)(void) = NULL;
    bench->plug_in = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = bench->plug_in != NULL ? dlsym(bench->plug_in, "espl_spmm_peer_get") : NULL;
    if (symbol == NULL) {
        return espl_fail(err, ESPL_E_USAGE, "cannot use '%s' as a baseline: %s", path, dlerror());
    }
    memcpy(&get, &symbol, sizeof symbol); /* C has no cast from object to function pointers */
    const struct espl_spmm_peer *peer = get();
    if (peer == NULL || peer->version != ESPL_SPMM_PEER_VERSION) {
        return espl_fail(err, ESPL_E_VERSION, "'%s' is a baseline of version %u, expected %d", path,
                         peer != NULL ? peer->version : 0, (int)ESPL_SPMM_PEER_VERSION);
    }
    bench->options.peers[bench->options.peer_count++] = peer;
    return ESPL_OK;
}

static enum espl_status read_options(struct spmm_bench *bench, struct espl_error *err)
{
    const struct espl_cli *cli = bench->cli;
    uint64_t repeats = 0;
    enum espl_status status =
        espl_bench_shapes_of(cli, corpus, sizeof corpus / sizeof corpus[0], MOST_SIDE, bench->sizes,
                             &bench->size_count, err);
    if (status == ESPL_OK) {
        status = espl_bench_shares_of(cli, usual_sparsities,
                                      sizeof usual_sparsities / sizeof usual_sparsities[0],
                                      bench->sparsities, &bench->sparsity_count, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_counts_of(cli, "tokens", usual_tokens,
                                      sizeof usual_tokens / sizeof usual_tokens[0], MOST_TOKENS,
                                      bench->tokens, &bench->token_count, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_count(cli, "repeats", REPEATS, ESPL_CUDA_MAX_REPEATS, &repeats, err);
    }
    if (status == ESPL_OK) {
        status = read_forms(bench, err);
    }
    bench->options.repeats = (size_t)repeats;
    bench->options.launches = LAUNCHES;
    bench->options.all_modes = espl_args_has(cli->args, "all");
    if (status == ESPL_OK) {
        status = read_baselines(bench, err);
    }
    const char *plug_in = espl_args_value(cli->args, "peer", NULL);
    return status == ESPL_OK && plug_in != NULL ? load_plug_in(bench, plug_in, err) : status;
}

/* ---- results ---- */

static struct summary *summary_of(struct spmm_bench *bench, size_t tokens, double sparsity)
{
    for (size_t i = 0; i < bench->summary_count; i++) {
        if (bench->summaries[i].tokens == tokens && bench->summaries[i].sparsity == sparsity) {
            return &bench->summaries[i];
        }
    }
    if (bench->summary_count == MOST_SUMMARIES) {
        return NULL; /* more settings than a summary shows */
    }
    struct summary *fresh = &bench->summaries[bench->summary_count++];
    *fresh = (struct summary){.tokens = tokens, .sparsity = sparsity};
    return fresh;
}

static void summarise(struct spmm_bench *bench, const struct espl_spmm_case *item)
{
    struct summary *s = summary_of(bench, item->tokens, item->sparsity);
    const double chosen = item->results[item->chosen].graph.median;
    if (s == NULL || chosen <= 0.0) {
        return;
    }
    s->cases++;
    s->regret += log(chosen / item->results[item->best].graph.median);
    for (size_t i = 0; i < item->count; i++) {
        const struct espl_spmm_result *r = &item->results[i];
        if (r->measured) {
            s->over[i] += log(r->graph.median / chosen);
            s->over_cases[i]++;
            if (strcmp(r->name, "dense") == 0 && chosen / r->graph.median > s->worst_dense) {
                s->worst_dense = chosen / r->graph.median;
            }
        }
    }
}

static json_t *time_json(const struct espl_cuda_time *time)
{
    return time->median > 0.0
               ? json_pack("{s:f, s:f}", "median_seconds", time->median, "p95_seconds", time->p95)
               : json_null();
}

static json_t *result_json(const struct spmm_bench *bench, const struct espl_spmm_case *item,
                           const struct espl_spmm_result *r)
{
    if (!r->measured) {
        return json_pack("{s:s, s:b, s:s}", "name", r->name, "measured", 0, "why", r->why);
    }
    const double rate = (double)r->bytes / r->graph.median;
    json_t *row = json_pack("{s:s, s:b, s:I, s:f, s:f, s:f, s:o, s:o, s:o, s:o}", "name", r->name,
                            "measured", 1, "weight_bytes", (json_int_t)r->bytes, "bits_per_weight",
                            8.0 * (double)r->bytes / ((double)item->rows * (double)item->cols),
                            "bytes_per_second", rate, "share_of_copy",
                            rate / bench->ceiling.copy_bytes_a_second, "graph",
                            time_json(&r->graph), "eager", time_json(&r->eager), "warm",
                            time_json(&r->warm), "overlap", time_json(&r->overlap));
    if (row != NULL && r->ours) {
        (void)json_object_update_new(
            row, json_pack("{s:f, s:{s:i, s:i, s:i, s:i, s:i}}", "expected_seconds", r->expected,
                           "choice", "warps", (int)r->choice.warps, "splits", (int)r->choice.splits,
                           "window", (int)r->choice.window, "stages", (int)r->choice.stages,
                           "parts", (int)r->choice.parts));
    }
    return row;
}

static void add_json(struct spmm_bench *bench, const struct espl_spmm_case *item)
{
    json_t *results = json_array();
    for (size_t i = 0; i < item->count; i++) {
        (void)json_array_append_new(results, result_json(bench, item, &item->results[i]));
    }
    (void)json_array_append_new(
        bench->rows,
        json_pack("{s:I, s:I, s:I, s:f, s:s, s:s, s:o}", "rows", (json_int_t)item->rows, "cols",
                  (json_int_t)item->cols, "tokens", (json_int_t)item->tokens, "sparsity",
                  item->sparsity, "chosen", item->results[item->chosen].name, "best",
                  item->results[item->best].name, "results", results));
}

static enum espl_status add_case(const struct espl_spmm_case *item, void *self,
                                 struct espl_error *err)
{
    struct spmm_bench *bench = self;
    const struct espl_spmm_result *chosen = &item->results[item->chosen];
    if (*bench->cli->stop_signal != 0) {
        return espl_fail(err, ESPL_E_CANCELLED, "stopped after %zu cases",
                         json_array_size(bench->rows));
    }
    summarise(bench, item);
    add_json(bench, item);
    espl_table_cell(bench->table, ESPL_STYLE_PLAIN, "%zux%zu", item->rows, item->cols);
    espl_table_cell(bench->table, ESPL_STYLE_PLAIN, "%zu", item->tokens);
    espl_table_cell(bench->table, ESPL_STYLE_PLAIN, "%.0f", item->sparsity * 100.0);
    for (size_t i = 0; i < item->count; i++) {
        const double seconds = item->results[i].measured ? item->results[i].graph.median : NAN;
        espl_table_number(bench->table, 2, seconds * 1e6);
    }
    espl_table_cell(bench->table, ESPL_STYLE_PLAIN, "%s", chosen->name);
    espl_table_number(bench->table, 0, (double)chosen->bytes / chosen->graph.median * 1e-9);
    espl_table_number(bench->table, 0,
                      100.0 * (double)chosen->bytes / chosen->graph.median /
                          bench->ceiling.copy_bytes_a_second);
    return ESPL_OK;
}

static enum espl_status make_table(struct spmm_bench *bench, struct espl_column *columns,
                                   struct espl_error *err)
{
    size_t count = 0;
    columns[count++] = (struct espl_column){.title = "shape"};
    columns[count++] = (struct espl_column){.title = "N", .right = true};
    columns[count++] = (struct espl_column){.title = "zeros %", .right = true};
    for (size_t i = 0; i < bench->options.form_count; i++) {
        columns[count++] = (struct espl_column){.title = bench->options.forms[i], .right = true};
    }
    for (size_t i = 0; i < bench->options.peer_count; i++) {
        columns[count++] =
            (struct espl_column){.title = bench->options.peers[i]->name, .right = true};
    }
    columns[count++] = (struct espl_column){.title = "auto"};
    columns[count++] = (struct espl_column){.title = "GB/s", .right = true};
    columns[count++] = (struct espl_column){.title = "% copy", .right = true};
    return espl_table_create(columns, count, &bench->table, err);
}

/* ---- the summary ---- */

static const char *subject_name(const struct spmm_bench *bench, size_t i)
{
    return i < bench->options.form_count
               ? bench->options.forms[i]
               : bench->options.peers[i - bench->options.form_count]->name;
}

static size_t subject_count(const struct spmm_bench *bench)
{
    return bench->options.form_count + bench->options.peer_count;
}

static enum espl_status print_summary(const struct spmm_bench *bench, struct espl_error *err)
{
    struct espl_column columns[ESPL_SPMM_MAX_RESULTS + 5];
    struct espl_table *table = NULL;
    size_t count = 0;
    columns[count++] = (struct espl_column){.title = "N", .right = true};
    columns[count++] = (struct espl_column){.title = "zeros %", .right = true};
    columns[count++] = (struct espl_column){.title = "cases", .right = true};
    for (size_t i = 0; i < subject_count(bench); i++) {
        columns[count++] = (struct espl_column){.title = subject_name(bench, i), .right = true};
    }
    columns[count++] = (struct espl_column){.title = "regret %", .right = true};
    columns[count++] = (struct espl_column){.title = "worst/dense", .right = true};
    enum espl_status status = espl_table_create(columns, count, &table, err);
    for (size_t i = 0; status == ESPL_OK && i < bench->summary_count; i++) {
        const struct summary *s = &bench->summaries[i];
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", s->tokens);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", s->sparsity * 100.0);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", s->cases);
        for (size_t k = 0; k < subject_count(bench); k++) {
            espl_table_number(table, 2, exp(s->over[k] / (double)s->over_cases[k]));
        }
        espl_table_number(table, 1, 100.0 * (exp(s->regret / (double)s->cases) - 1.0));
        espl_table_number(table, 3, s->worst_dense);
    }
    if (status == ESPL_OK) {
        fprintf(bench->cli->out,
                "\nspeed-up of the automatic choice over each, geometric mean over the shapes\n\n");
        status = espl_table_print(table, bench->cli->out, 0, bench->cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

static json_t *summary_json(const struct spmm_bench *bench)
{
    json_t *list = json_array();
    for (size_t i = 0; i < bench->summary_count; i++) {
        const struct summary *s = &bench->summaries[i];
        json_t *over = json_object();
        for (size_t k = 0; k < subject_count(bench); k++) {
            if (s->over_cases[k] > 0) {
                (void)json_object_set_new(over, subject_name(bench, k),
                                          json_real(exp(s->over[k] / (double)s->over_cases[k])));
            }
        }
        (void)json_array_append_new(
            list,
            json_pack("{s:I, s:f, s:I, s:o, s:f, s:f}", "tokens", (json_int_t)s->tokens, "sparsity",
                      s->sparsity, "cases", (json_int_t)s->cases, "speedup_over", over, "regret",
                      exp(s->regret / (double)s->cases) - 1.0, "worst_over_dense", s->worst_dense));
    }
    return list;
}

static enum espl_status print_results(const struct spmm_bench *bench, struct espl_error *err)
{
    const struct espl_cli *cli = bench->cli;
    if (cli->json) {
        return espl_print_json_take(
            cli,
            json_pack("{s:s, s:s, s:f, s:I, s:i, s:i, s:O, s:o}", "schema", "espalier.bench-spmm/1",
                      "device", bench->device.devices[0].name, "copy_bytes_per_second",
                      bench->ceiling.copy_bytes_a_second, "cache_bytes",
                      (json_int_t)bench->ceiling.cache_bytes, "repeats",
                      (int)bench->options.repeats, "launches", (int)bench->options.launches,
                      "cases", bench->rows, "summary", summary_json(bench)),
            err);
    }
    fprintf(cli->out,
            "%s; copy %.0f GB/s; microseconds of a product in a CUDA graph, cold caches (copies of "
            "the weights worth 4x the %.0f MB cache); median of %zu\n\n",
            bench->device.devices[0].name, bench->ceiling.copy_bytes_a_second * 1e-9,
            (double)bench->ceiling.cache_bytes * 1e-6, bench->options.repeats);
    enum espl_status status = espl_table_print(bench->table, cli->out, 0, cli->colour_out, err);
    return status == ESPL_OK ? print_summary(bench, err) : status;
}

enum espl_status espl_bench_spmm(struct espl_cli *cli, struct espl_error *err)
{
    struct espl_column columns[ESPL_SPMM_MAX_RESULTS + 6];
    struct spmm_bench *bench = calloc(1, sizeof *bench);
    if (bench == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench");
    }
    bench->cli = cli;
    bench->rows = json_array();
    enum espl_status status = read_options(bench, err);
    if (status == ESPL_OK) {
        status = espl_cuda_probe(&bench->device, err);
    }
    if (status == ESPL_OK) {
        status = espl_spmm_measure_ceiling(&bench->ceiling, err);
    }
    if (status == ESPL_OK) {
        status = make_table(bench, columns, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < bench->size_count; i++) {
        status =
            espl_spmm_bench_shape(&bench->options, &bench->ceiling, bench->sizes[i].rows,
                                  bench->sizes[i].cols, bench->sparsities, bench->sparsity_count,
                                  bench->tokens, bench->token_count, add_case, bench, err);
    }
    if (status == ESPL_OK) {
        status = print_results(bench, err);
    }
    json_decref(bench->rows);
    espl_table_destroy(bench->table);
    if (bench->plug_in != NULL) {
        (void)dlclose(bench->plug_in);
    }
    free(bench);
    return status;
}
