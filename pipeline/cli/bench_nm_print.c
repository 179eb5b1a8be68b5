/* Tables and JSON of `espalier bench nm`. */
#include "cli/bench_nm.h"
#include "cli/print.h"

#include <math.h>
#include <string.h>

static const char *const output_names[ESPL_NM_BENCH_OUTPUTS] = {"int32", "fp16", "int8"};
static const char *const form_names[] = {"compact", "element", "dense"};

/* ---- ratios ---- */

/* What a summary relates: one of our times and a baseline's, or our dense path's. */
struct ratio {
    const char *title;
    enum espl_nm_output output;
    bool overlap;
    const char *peer; /* NULL: own dense, the same output and mode */
};

static const struct ratio ratios[] = {
    {"i32 / lt-i32", ESPL_NM_INT32, false, "cublaslt-int8"},
    {"f16 / lt-i32", ESPL_NM_FP16, false, "cublaslt-int8"},
    {"f16+o / lt-i32", ESPL_NM_FP16, true, "cublaslt-int8"},
    {"i8 / lt-i8", ESPL_NM_INT8, false, "cublaslt-int8-int8"},
    {"f16 / lt-i8", ESPL_NM_FP16, false, "cublaslt-int8-int8"},
    {"i8+o / lt-i8", ESPL_NM_INT8, true, "cublaslt-int8-int8"},
    {"f16 / lt-f16", ESPL_NM_FP16, false, "cublaslt-fp16"},
    {"f16+o / lt-f16", ESPL_NM_FP16, true, "cublaslt-fp16"},
    {"i32 / splt-i32", ESPL_NM_INT32, false, "cusparselt-2:4"},
    {"f16 / splt-i32", ESPL_NM_FP16, false, "cusparselt-2:4"},
    {"i32 / own dense", ESPL_NM_INT32, false, NULL},
};
enum { RATIOS = sizeof ratios / sizeof ratios[0] };

static double our_time(const struct espl_nm_bench_result *r, const struct ratio *ratio)
{
    const struct espl_nm_bench_times *times = &r->outputs[ratio->output];
    return ratio->overlap ? times->overlap.median : times->graph.median;
}

/* How many times faster; NaN when one of the two was not measured. */
static double speedup(const struct espl_nm_bench_report *report,
                      const struct espl_nm_bench_result *r, const struct ratio *ratio)
{
    if (ratio->peer == NULL) {
        return our_time(&report->results[report->result_count - 1], ratio) / our_time(r, ratio);
    }
    for (size_t i = 0; i < report->peer_count; i++) {
        if (report->peers[i].measured && strcmp(report->peers[i].name, ratio->peer) == 0) {
            return report->peers[i].graph.median / our_time(r, ratio);
        }
    }
    return NAN;
}

size_t espl_nm_bench_ratios(void)
{
    return RATIOS;
}

const char *espl_nm_bench_ratio_name(size_t ratio)
{
    return ratios[ratio].title;
}

double espl_nm_bench_speedup(const struct espl_nm_bench_report *report, size_t index, size_t ratio)
{
    return speedup(report, &report->results[index], &ratios[ratio]);
}

void espl_nm_bench_kept_name(const struct espl_nm_bench_run *run, size_t index,
                             char text[ESPL_NM_BENCH_NAME])
{
    const struct espl_nm_bench_options *options = &run->options;
    if (index == options->kept_count) {
        (void)snprintf(text, ESPL_NM_BENCH_NAME, "dense");
    } else if (options->kept[index] == 0) {
        (void)snprintf(text, ESPL_NM_BENCH_NAME, "packed");
    } else {
        (void)snprintf(text, ESPL_NM_BENCH_NAME, "%u:8", options->kept[index]);
    }
}

struct statistic {
    size_t cases;
    double log_sum;
    double worst;
    double best;
};

static void collect(struct statistic *s, double value)
{
    if (!isfinite(value) || value <= 0.0) {
        return;
    }
    s->worst = s->cases == 0 || value < s->worst ? value : s->worst;
    s->best = s->cases == 0 || value > s->best ? value : s->best;
    s->log_sum += log(value);
    s->cases++;
}

static double mean_of(const struct statistic *s)
{
    return s->cases > 0 ? exp(s->log_sum / (double)s->cases) : NAN;
}

/* Of all cases with this set and batch, for result number `index`. */
static struct statistic statistic_of(const struct espl_nm_bench_run *run,
                                     const struct espl_nm_bench_case *like, size_t index,
                                     const struct ratio *ratio)
{
    struct statistic s = {0, 0.0, NAN, NAN};
    for (size_t i = 0; i < run->report_count; i++) {
        const struct espl_nm_bench_report *report = &run->reports[i];
        if (strcmp(report->item.set, like->set) == 0 && report->item.batch == like->batch) {
            collect(&s, speedup(report, &report->results[index], ratio));
        }
    }
    return s;
}

/* Whether no earlier case has this set and batch. */
static bool opens_group(const struct espl_nm_bench_run *run, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (strcmp(run->cases[i].set, run->cases[index].set) == 0 &&
            run->cases[i].batch == run->cases[index].batch) {
            return false;
        }
    }
    return true;
}

/* ---- the rule against all choices: Table 1 of the paper ---- */

struct table_1 {
    size_t cases;
    size_t hits;
    double sum;
    double worst;
};

/* all: over tiles and splits; otherwise over the splits of the chosen tile. */
static struct table_1 table_1_of(const struct espl_nm_bench_run *run, size_t index, bool all)
{
    struct table_1 t = {0, 0, 0.0, 1.0};
    for (size_t i = 0; i < run->report_count; i++) {
        const struct espl_nm_bench_search *s = &run->reports[i].results[index].search;
        if (s->count == 0 || s->chosen <= 0.0) {
            continue;
        }
        const double performance = (all ? s->best : s->best_split) / s->chosen;
        t.cases++;
        t.hits += performance >= 1.0 ? 1 : 0;
        t.sum += performance;
        t.worst = performance < t.worst ? performance : t.worst;
    }
    return t;
}

static enum espl_status print_table_1(const struct espl_nm_bench_run *run, struct espl_error *err)
{
    static const struct espl_column columns[] = {
        {.title = "kept", .right = true},    {.title = "against"},
        {.title = "cases", .right = true},   {.title = "top-1 hits", .right = true},
        {.title = "average", .right = true}, {.title = "worst", .right = true}};
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    for (size_t k = 0; status == ESPL_OK && k < 2 * (run->options.kept_count + 1); k++) {
        const struct table_1 t = table_1_of(run, k / 2, k % 2 != 0);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%u", run->reports[0].results[k / 2].kept);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", k % 2 != 0 ? "tiles and splits" : "splits");
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", t.cases);
        espl_table_number(table, 3, (double)t.hits / (double)t.cases);
        espl_table_number(table, 3, t.sum / (double)t.cases);
        espl_table_number(table, 3, t.worst);
    }
    if (status == ESPL_OK) {
        fprintf(run->cli->out, "\nthe rule's choice: best time / its time\n\n");
        status = espl_table_print(table, run->cli->out, 0, run->cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

/* ---- tables ---- */

static void title_of(const struct espl_nm_bench_case *item, char *text, size_t bytes)
{
    if (item->batch > 0) {
        (void)snprintf(text, bytes, "%s %s x%zu", item->set, item->layer, item->batch);
    } else {
        (void)snprintf(text, bytes, "%s", item->packed != NULL ? item->layer : item->set);
    }
}

static enum espl_status print_cases(const struct espl_nm_bench_run *run, struct espl_error *err)
{
    struct espl_column columns[4 + 2 * (ESPL_NM_BENCH_KEPT + 1) + ESPL_NM_BENCH_PEERS];
    char titles[2 * (ESPL_NM_BENCH_KEPT + 1)][ESPL_NM_BENCH_NAME + 8];
    struct espl_table *table = NULL;
    size_t count = 0;
    columns[count++] = (struct espl_column){.title = "case"};
    columns[count++] = (struct espl_column){.title = "tokens", .right = true};
    columns[count++] = (struct espl_column){.title = "rows x cols"};
    for (size_t k = 0; k < 2 * (run->options.kept_count + 1); k++) {
        char name[ESPL_NM_BENCH_NAME];
        espl_nm_bench_kept_name(run, k / 2, name);
        (void)snprintf(titles[k], sizeof titles[k], "%s %s", name, k % 2 != 0 ? "f16+o" : "i32");
        columns[count++] = (struct espl_column){.title = titles[k], .right = true};
    }
    for (size_t i = 0; i < run->options.peer_count; i++) {
        columns[count++] =
            (struct espl_column){.title = run->options.peers[i]->name, .right = true};
    }
    columns[count++] = (struct espl_column){.title = "fastest"};
    enum espl_status status = espl_table_create(columns, count, &table, err);
    for (size_t i = 0; status == ESPL_OK && i < run->report_count; i++) {
        const struct espl_nm_bench_report *report = &run->reports[i];
        char title[256];
        char fastest[ESPL_NM_BENCH_NAME];
        title_of(&report->item, title, sizeof title);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", title);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", report->item.tokens);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zux%zu", report->item.rows, report->item.cols);
        for (size_t k = 0; k < report->result_count; k++) {
            const struct espl_nm_bench_times *times = report->results[k].outputs;
            espl_table_number(table, 2, times[ESPL_NM_INT32].graph.median * 1e6);
            espl_table_number(table, 2, times[ESPL_NM_FP16].overlap.median * 1e6);
        }
        for (size_t k = 0; k < report->peer_count; k++) {
            const struct espl_nm_bench_peer *peer = &report->peers[k];
            espl_table_number(table, 2, peer->measured ? peer->graph.median * 1e6 : NAN);
        }
        espl_nm_bench_fastest(report, fastest);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", fastest);
    }
    if (status == ESPL_OK) {
        status = espl_table_print(table, run->cli->out, 0, run->cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

static enum espl_status print_summary(const struct espl_nm_bench_run *run, struct espl_error *err)
{
    struct espl_column columns[4 + RATIOS];
    struct espl_table *table = NULL;
    size_t count = 0;
    columns[count++] = (struct espl_column){.title = "set"};
    columns[count++] = (struct espl_column){.title = "images", .right = true};
    columns[count++] = (struct espl_column){.title = "kept", .right = true};
    for (size_t k = 0; k < RATIOS; k++) {
        columns[count++] = (struct espl_column){.title = ratios[k].title, .right = true};
    }
    columns[count++] = (struct espl_column){.title = "worst", .right = true};
    enum espl_status status = espl_table_create(columns, count, &table, err);
    for (size_t i = 0; status == ESPL_OK && i < run->report_count; i++) {
        for (size_t k = 0; opens_group(run, i) && k <= run->options.kept_count; k++) {
            char name[ESPL_NM_BENCH_NAME];
            espl_nm_bench_kept_name(run, k, name);
            espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", run->cases[i].set);
            espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", run->cases[i].batch);
            espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", name);
            for (size_t r = 0; r < RATIOS; r++) {
                const struct statistic s = statistic_of(run, &run->cases[i], k, &ratios[r]);
                espl_table_number(table, 2, mean_of(&s));
            }
            espl_table_number(table, 2, statistic_of(run, &run->cases[i], k, &ratios[0]).worst);
        }
    }
    if (status == ESPL_OK) {
        fprintf(run->cli->out, "\nspeed-up, geometric mean over the shapes (ours / theirs; o: "
                               "dependent launch; worst: of the first)\n\n");
        status = espl_table_print(table, run->cli->out, 0, run->cli->colour_out, err);
    }
    espl_table_destroy(table);
    return status;
}

/* ---- JSON ---- */

static json_t *time_json(const struct espl_cuda_time *time)
{
    return time->median > 0.0
               ? json_pack("{s:f, s:f}", "median_seconds", time->median, "p95_seconds", time->p95)
               : json_null();
}

static json_t *choice_json(const struct espl_cuda_nm_choice *choice)
{
    return json_pack("{s:i, s:i, s:i, s:i}", "tile_tokens", (int)choice->tile_tokens, "tile_rows",
                     (int)choice->tile_rows, "splits", (int)choice->splits, "tiles",
                     (int)choice->tiles);
}

static json_t *search_json(const struct espl_nm_bench_search *search)
{
    json_t *choices = json_array();
    if (search->count == 0) {
        json_decref(choices);
        return json_null();
    }
    for (size_t i = 0; i < search->count; i++) {
        (void)json_array_append_new(choices, json_pack("{s:o, s:f}", "choice",
                                                       choice_json(&search->choices[i]), "seconds",
                                                       search->seconds[i]));
    }
    return json_pack("{s:f, s:f, s:f, s:o, s:o}", "chosen_seconds", search->chosen, "best_seconds",
                     search->best, "best_split_seconds", search->best_split, "fastest",
                     choice_json(&search->choices[search->fastest]), "choices", choices);
}

static json_t *result_json(const struct espl_nm_bench_result *r)
{
    json_t *outputs = json_object();
    for (size_t o = 0; o < ESPL_NM_BENCH_OUTPUTS; o++) {
        const struct espl_nm_bench_times *times = &r->outputs[o];
        (void)json_object_set_new(outputs, output_names[o],
                                  json_pack("{s:o, s:o, s:o}", "graph", time_json(&times->graph),
                                            "overlap", time_json(&times->overlap), "eager",
                                            time_json(&times->eager)));
    }
    return json_pack("{s:i, s:b, s:s, s:I, s:o, s:o, s:o}", "kept", (int)r->kept, "packed",
                     (int)r->packed, "form", form_names[r->form], "weight_bytes",
                     (json_int_t)r->bytes, "choice", choice_json(&r->choice), "outputs", outputs,
                     "search", search_json(&r->search));
}

static json_t *report_json(const struct espl_nm_bench_report *report)
{
    json_t *results = json_array();
    json_t *peers = json_array();
    for (size_t i = 0; i < report->result_count; i++) {
        (void)json_array_append_new(results, result_json(&report->results[i]));
    }
    for (size_t i = 0; i < report->peer_count; i++) {
        const struct espl_nm_bench_peer *p = &report->peers[i];
        (void)json_array_append_new(
            peers,
            p->measured
                ? json_pack("{s:s, s:b, s:o, s:o}", "name", p->name, "measured", 1, "graph",
                            time_json(&p->graph), "eager", time_json(&p->eager))
                : json_pack("{s:s, s:b, s:s}", "name", p->name, "measured", 0, "why", p->why));
    }
    char fastest[ESPL_NM_BENCH_NAME];
    espl_nm_bench_fastest(report, fastest);
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "fastest", fastest, "set",
                     report->item.set, "layer", report->item.layer, "batch",
                     (json_int_t)report->item.batch, "tokens", (json_int_t)report->item.tokens,
                     "rows", (json_int_t)report->item.rows, "cols", (json_int_t)report->item.cols,
                     "results", results, "baselines", peers);
}

static json_t *summary_json(const struct espl_nm_bench_run *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->report_count; i++) {
        for (size_t k = 0; opens_group(run, i) && k <= run->options.kept_count; k++) {
            json_t *speedups = json_object();
            for (size_t r = 0; r < RATIOS; r++) {
                const struct statistic s = statistic_of(run, &run->cases[i], k, &ratios[r]);
                if (s.cases > 0) {
                    (void)json_object_set_new(speedups, ratios[r].title,
                                              json_pack("{s:f, s:f, s:f}", "mean", mean_of(&s),
                                                        "worst", s.worst, "best", s.best));
                }
            }
            (void)json_array_append_new(
                list, json_pack("{s:s, s:I, s:i, s:o}", "set", run->cases[i].set, "batch",
                                (json_int_t)run->cases[i].batch, "kept",
                                (int)run->reports[i].results[k].kept, "speedups", speedups));
        }
    }
    return list;
}

static json_t *table_1_json(const struct espl_nm_bench_run *run)
{
    json_t *list = json_array();
    for (size_t k = 0; run->options.search && k < 2 * (run->options.kept_count + 1); k++) {
        const struct table_1 t = table_1_of(run, k / 2, k % 2 != 0);
        (void)json_array_append_new(
            list, json_pack("{s:i, s:s, s:I, s:o, s:o, s:f}", "kept",
                            (int)run->reports[0].results[k / 2].kept, "against",
                            k % 2 != 0 ? "tiles-and-splits" : "splits", "cases",
                            (json_int_t)t.cases, "top1_hit_rate",
                            espl_print_json_number((double)t.hits / (double)t.cases), "average",
                            espl_print_json_number(t.sum / (double)t.cases), "worst", t.worst));
    }
    return list;
}

/* A baseline that never ran, and why, each once. */
static void print_absent(const struct espl_nm_bench_run *run)
{
    for (size_t p = 0; p < run->options.peer_count; p++) {
        const char *why = NULL;
        bool measured = false;
        for (size_t i = 0; i < run->report_count; i++) {
            const struct espl_nm_bench_peer *peer = &run->reports[i].peers[p];
            measured = measured || peer->measured;
            why = why == NULL ? peer->why : why;
        }
        if (!measured && why != NULL) {
            fprintf(run->cli->out, "\nnot measured: %s: %s\n", run->options.peers[p]->name, why);
        }
    }
}

enum espl_status espl_nm_bench_print(const struct espl_nm_bench_run *run, struct espl_error *err)
{
    const struct espl_cli *cli = run->cli;
    if (cli->json) {
        json_t *cases = json_array();
        for (size_t i = 0; i < run->report_count; i++) {
            (void)json_array_append_new(cases, report_json(&run->reports[i]));
        }
        return espl_print_json_take(
            cli,
            json_pack("{s:s, s:s, s:i, s:I, s:i, s:i, s:o, s:o, s:o}", "schema",
                      "espalier.bench-nm/1", "device", run->device.devices[0].name, "shared_rows",
                      (int)run->options.shared, "cold_bytes", (json_int_t)run->options.cold_bytes,
                      "repeats", (int)run->options.repeats, "launches", (int)run->options.launches,
                      "cases", cases, "summary", summary_json(run), "rule", table_1_json(run)),
            err);
    }
    fprintf(
        cli->out,
        "%s; microseconds of a product in a CUDA graph (i32: INT32 outputs, f16+o: FP16 outputs "
        "and dependent launch), %s; V = %u; median of %zu\n\n",
        run->device.devices[0].name,
        run->options.cold_bytes > 0 ? "cold caches" : "four copies of the weights, warm caches",
        run->options.shared, run->options.repeats);
    enum espl_status status = print_cases(run, err);
    if (status == ESPL_OK) {
        status = print_summary(run, err);
        print_absent(run);
    }
    return status == ESPL_OK && run->options.search ? print_table_1(run, err) : status;
}
