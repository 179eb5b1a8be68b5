/* espalier bench search: strategies of budget-search compared on the artifacts of a job, with equal
 * numbers of fitness evaluations, over several seeds and targets; accuracy on held-out pictures. */
#include "cli/bench.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/target.h"
#include "stages/budget_search/search_problem.h"
#include "stages/nm_supernet/nm_oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TARGETS = 8, STRATEGIES = 3, MOST_SEEDS = 32, OFFSPRING = 4 };

static const double default_targets[] = {1.5, 2.0, 2.5};
static const char *const strategies[STRATEGIES] = {"overshoot-repair-refine", "evopress",
                                                   "uniform"};
static const char default_job[] = "deit-cifar10-search";
static const uint64_t activation_bytes = (uint64_t)512 << 20;
static const uint64_t weight_bytes = (uint64_t)1 << 30;

/* What one search gave. */
struct outcome {
    double top1;  /* on held-out pictures */
    double score; /* fitness of the result */
    double speedup;
    double evaluations;
};

/* Work of all searches of a strategy. */
struct work {
    double asked;    /* pictures times blocks without memory and shared beginnings */
    double computed; /* the same for scores that were computed, without shared beginnings */
    double ran;      /* pictures times blocks that ran */
};

struct search_bench {
    struct espl_cli *cli;
    double targets[MOST_TARGETS]; /* speed-ups */
    size_t target_count;
    uint64_t seeds, evaluations, fitness_pictures, holdout;
    uint64_t overshoot; /* most layers */
    int refine;
    struct espl_artifact *files[4]; /* model, ranks, latencies, pictures */
    struct espl_model *model;
    struct espl_supernet supernet;
    struct espl_latency_record record;
    struct espl_nm_pictures pictures;
    struct espl_backend *backend;
    struct espl_nm_oracle *oracle;
    struct espl_search_problem problem; /* of the running target */
    uint64_t seed;                      /* of the running search */
    uint8_t *n;                         /* (moves, layers) */
    struct outcome outcomes[MOST_TARGETS][STRATEGIES][MOST_SEEDS];
    struct work work[STRATEGIES];
    double dense_top1;
};

/* ---- inputs ---- */

static const char *const stage_ids[4] = {"net", "ranks", "lut", "pictures"};

static enum espl_status open_files(struct search_bench *bench, struct espl_store *store,
                                   struct espl_error *err)
{
    const struct espl_args *args = bench->cli->args;
    const char *job = args->positional_count > 1 ? args->positional[1] : default_job;
    enum espl_status status = espl_store_open_readonly(bench->cli->store_dir, store, err);
    for (size_t i = 0; status == ESPL_OK && i < 4; i++) {
        struct espl_target target;
        char text[512];
        (void)snprintf(text, sizeof text, "%.400s:%s", job, stage_ids[i]);
        status = espl_target_artifact(bench->cli, store, text, &target, err);
        if (status != ESPL_OK) {
            return espl_hint(err,
                             "run a job with stages net (import), ranks (nm-supernet), lut "
                             "(latency-profile) and pictures (images), as jobs/%s.yaml",
                             default_job);
        }
        status = espl_artifact_open(target.path, &bench->files[i], err);
    }
    return status;
}

static enum espl_status open_record(struct search_bench *bench, struct espl_error *err)
{
    json_t *json = json_loads(espl_artifact_description(bench->files[2]), 0, NULL);
    enum espl_status status = espl_latency_record_from_json(json, &bench->record, err);
    json_decref(json);
    if (status == ESPL_OK) {
        status = espl_latency_record_fit(&bench->record, err);
    }
    if (status == ESPL_OK && !bench->record.latency.predictor.health.safe) {
        status = espl_fail(err, ESPL_E_NUMERIC, "the latency predictor is not safe: %s",
                           bench->record.latency.predictor.health.reason);
    }
    return status;
}

static enum espl_status open_oracle(struct search_bench *bench, struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(bench->model);
    const struct espl_nm_oracle_options options = {.fidelities = 1,
                                                   .pictures = {(size_t)bench->fitness_pictures},
                                                   .metric = {ESPL_NM_KL},
                                                   .activation_bytes = activation_bytes,
                                                   .weight_bytes = weight_bytes};
    struct espl_image_set set;
    enum espl_status status = espl_image_set_open(bench->files[3], &set, err);
    if (status == ESPL_OK) {
        status =
            espl_nm_pictures_open(bench->files[3], config, set.count / 2, 0, &bench->pictures, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_open_backend(bench->cli, &bench->backend, err);
    }
    return status == ESPL_OK
               ? espl_nm_oracle_create(bench->model, bench->backend, &bench->supernet,
                                       &bench->pictures, &options, &bench->oracle, err)
               : status;
}

static bool asked_to_stop(void *user)
{
    const struct search_bench *bench = user;
    return *bench->cli->stop_signal != 0;
}

static enum espl_status open_bench(struct search_bench *bench, struct espl_store *store,
                                   struct espl_error *err)
{
    enum espl_status status = open_files(bench, store, err);
    if (status == ESPL_OK) {
        status = espl_model_open(bench->files[0], store, &bench->model, err);
    }
    if (status == ESPL_OK) {
        status = espl_supernet_open(bench->files[1], espl_artifact_content_sha256(bench->files[0]),
                                    &bench->supernet, err);
    }
    if (status == ESPL_OK) {
        status = open_record(bench, err);
    }
    if (status == ESPL_OK) {
        status = open_oracle(bench, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    espl_nm_oracle_set_stop(bench->oracle, asked_to_stop, bench);
    const size_t layers = bench->supernet.layers.count;
    const size_t most = layers > ESPL_SEARCH_MAX_OFFSPRING ? layers : ESPL_SEARCH_MAX_OFFSPRING;
    bench->n = calloc(most + 1, layers);
    return bench->n != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory");
}

static void close_bench(struct search_bench *bench)
{
    espl_search_problem_free(&bench->problem);
    espl_nm_oracle_destroy(bench->oracle);
    espl_backend_close(bench->backend);
    espl_nm_pictures_free(&bench->pictures);
    espl_latency_record_free(&bench->record);
    espl_supernet_free(&bench->supernet);
    espl_model_close(bench->model);
    for (size_t i = 0; i < 4; i++) {
        espl_artifact_close(bench->files[i]);
    }
    free(bench->n);
}

/* ---- searches ---- */

/* Every seed has pictures of its own, the same for all strategies: epoch = seed + 1. */
static enum espl_status score(void *user, uint64_t epoch, unsigned fidelity, size_t count,
                              const uint8_t *levels, double *scores, struct espl_error *err)
{
    struct search_bench *bench = user;
    const size_t layers = bench->problem.space.layers;
    (void)epoch;
    for (size_t i = 0; i < count; i++) {
        espl_search_problem_levels(&bench->problem, levels + i * layers, bench->n + i * layers);
    }
    return espl_nm_oracle_score(bench->oracle, bench->seed + 1, fidelity, count, bench->n, scores,
                                err);
}

static enum espl_status hold_out(struct search_bench *bench, double *top1, struct espl_error *err)
{
    struct espl_vision_tally tally;
    const enum espl_status status =
        espl_nm_oracle_hold_out(bench->oracle, NULL, bench->holdout, bench->n, &tally, err);
    if (status == ESPL_OK) {
        *top1 = (double)tally.top1 / (double)tally.images;
    }
    return status;
}

static void book_work(struct search_bench *bench, struct work *work,
                      const struct espl_search *search, uint64_t ran_before)
{
    const double whole = (double)bench->fitness_pictures *
                         (double)espl_nm_oracle_blocks(bench->oracle); /* of one score */
    work->asked += whole * (double)espl_search_asked(search, 0);
    work->computed += whole * (double)espl_search_computed(search);
    work->ran += (double)(espl_nm_oracle_get_work(bench->oracle)->block_pictures - ran_before);
}

static enum espl_status run_search(struct search_bench *bench, size_t strategy, struct outcome *out,
                                   struct espl_error *err)
{
    struct espl_search_options options;
    struct espl_search *search = NULL;
    const uint64_t ran = espl_nm_oracle_get_work(bench->oracle)->block_pictures;
    espl_search_default_options(&options);
    options.seed = bench->seed;
    options.offspring = OFFSPRING;
    options.overshoot_max = (unsigned)bench->overshoot;
    options.refine = bench->refine;
    options.max_evaluations = bench->evaluations;
    options.generations = bench->evaluations * 100; /* evaluations decide */
    options.patience = 0;
    enum espl_status status = espl_search_create(&bench->problem.space, &options,
                                                 espl_search_strategy_find(strategies[strategy]),
                                                 score, bench, &search, err);
    while (status == ESPL_OK && !espl_search_finished(search)) {
        status = espl_search_step(search, err);
    }
    if (status == ESPL_OK) {
        const uint8_t *best = espl_search_best(search);
        out->score = espl_search_best_score(search);
        out->evaluations = (double)espl_search_computed(search);
        out->speedup = bench->problem.dense[0] / espl_search_cost(&bench->problem.space, 0, best);
        book_work(bench, &bench->work[strategy], search, ran);
        espl_search_problem_levels(&bench->problem, best, bench->n);
        status = hold_out(bench, &out->top1, err);
    }
    espl_search_destroy(search);
    return status;
}

static enum espl_status run_target(struct search_bench *bench, size_t target,
                                   struct espl_error *err)
{
    const struct espl_budget budget = {.kind = ESPL_BUDGET_LATENCY,
                                       .speedup = bench->targets[target]};
    espl_search_problem_free(&bench->problem);
    enum espl_status status =
        espl_search_problem_make(&bench->record, &bench->supernet.facts, &bench->supernet.layers,
                                 &budget, &bench->problem, err);
    for (bench->seed = 0; status == ESPL_OK && bench->seed < bench->seeds; bench->seed++) {
        for (size_t s = 0; status == ESPL_OK && s < STRATEGIES; s++) {
            struct outcome *out = &bench->outcomes[target][s][bench->seed];
            const bool once = strcmp(strategies[s], "uniform") == 0 && bench->seed > 0;
            if (once) { /* no chance in it: the first seed's result stands for all */
                *out = bench->outcomes[target][s][0];
                continue;
            }
            status = run_search(bench, s, out, err);
            if (status == ESPL_OK && !bench->cli->quiet) {
                fprintf(bench->cli->err_stream,
                        "%.1fx seed %llu %s: holdout %.2f %%, fitness %.5f, %.0f evaluations\n",
                        bench->targets[target], (unsigned long long)bench->seed, strategies[s],
                        100.0 * out->top1, out->score, out->evaluations);
            }
        }
    }
    return status;
}

static enum espl_status run_all(struct search_bench *bench, struct espl_error *err)
{
    memset(bench->n, (int)bench->supernet.facts.m, bench->supernet.layers.count);
    enum espl_status status = hold_out(bench, &bench->dense_top1, err);
    for (size_t target = 0; status == ESPL_OK && target < bench->target_count; target++) {
        status = run_target(bench, target, err);
    }
    return status;
}

/* ---- results ---- */

struct summary {
    double mean, deviation, low, high, score, speedup, evaluations;
    /* Of the first strategy over this one, seed by seed: both began with the same parents. */
    double ahead, ahead_error; /* mean, and its standard error */
};

static double square_off(double value, double mean)
{
    return (value - mean) * (value - mean);
}

static struct summary summarise(const struct search_bench *bench, size_t target, size_t strategy)
{
    const struct outcome *outcomes = bench->outcomes[target][strategy];
    const struct outcome *first = bench->outcomes[target][0];
    const double count = (double)bench->seeds;
    struct summary sum = {.low = INFINITY, .high = -INFINITY};
    for (uint64_t i = 0; i < bench->seeds; i++) {
        sum.mean += outcomes[i].top1 / count;
        sum.score += outcomes[i].score / count;
        sum.speedup += outcomes[i].speedup / count;
        sum.evaluations += outcomes[i].evaluations / count;
        sum.low = fmin(sum.low, outcomes[i].top1);
        sum.high = fmax(sum.high, outcomes[i].top1);
        sum.ahead += (first[i].top1 - outcomes[i].top1) / count;
    }
    for (uint64_t i = 0; bench->seeds > 1 && i < bench->seeds; i++) {
        sum.deviation += square_off(outcomes[i].top1, sum.mean) / (count - 1.0);
        sum.ahead_error +=
            square_off(first[i].top1 - outcomes[i].top1, sum.ahead) / (count - 1.0) / count;
    }
    sum.deviation = sqrt(sum.deviation);
    sum.ahead_error = sqrt(sum.ahead_error);
    return sum;
}

static void add_row(const struct search_bench *bench, size_t target, size_t strategy,
                    struct espl_table *table)
{
    const struct summary sum = summarise(bench, target, strategy);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.1fx", bench->targets[target]);
    espl_table_cell(table, ESPL_STYLE_BOLD, "%s", strategies[strategy]);
    espl_table_cell(table, ESPL_STYLE_BOLD, "%.2f", 100.0 * sum.mean);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.2f", 100.0 * sum.deviation);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.2f to %.2f", 100.0 * sum.low, 100.0 * sum.high);
    espl_table_cell(table, ESPL_STYLE_PLAIN, strategy == 0 ? "-" : "%+.2f +- %.2f",
                    100.0 * sum.ahead, 100.0 * sum.ahead_error);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.5f", -sum.score);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.3fx", sum.speedup);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", sum.evaluations);
}

static json_t *row_json(const struct search_bench *bench, size_t target, size_t strategy)
{
    const struct summary sum = summarise(bench, target, strategy);
    json_t *top1 = json_array();
    for (uint64_t i = 0; i < bench->seeds; i++) {
        (void)json_array_append_new(top1, json_real(bench->outcomes[target][strategy][i].top1));
    }
    return json_pack("{s:f, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "target",
                     bench->targets[target], "strategy", strategies[strategy], "holdout_top1",
                     sum.mean, "deviation", sum.deviation, "first_ahead_by", sum.ahead,
                     "first_ahead_by_error", sum.ahead_error, "kl", -sum.score, "speedup",
                     sum.speedup, "evaluations", sum.evaluations, "holdout_top1_by_seed", top1);
}

static json_t *work_json(const struct search_bench *bench, size_t strategy)
{
    const struct work *work = &bench->work[strategy];
    return json_pack("{s:s, s:f, s:f, s:f}", "strategy", strategies[strategy], "asked", work->asked,
                     "without_shared_beginnings", work->computed, "ran", work->ran);
}

static enum espl_status print_json(const struct search_bench *bench, struct espl_error *err)
{
    json_t *rows = json_array();
    json_t *work = json_array();
    for (size_t i = 0; i < bench->target_count * STRATEGIES; i++) {
        (void)json_array_append_new(rows, row_json(bench, i / STRATEGIES, i % STRATEGIES));
    }
    for (size_t s = 0; s < STRATEGIES; s++) {
        (void)json_array_append_new(work, work_json(bench, s));
    }
    return espl_print_json_take(
        bench->cli,
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:s, s:f, s:o, s:o}", "schema",
                  "espalier.bench-search/1", "device", bench->record.device, "seeds",
                  (json_int_t)bench->seeds, "evaluations", (json_int_t)bench->evaluations,
                  "fitness_pictures", (json_int_t)bench->fitness_pictures, "holdout_pictures",
                  (json_int_t)bench->holdout, "refine", espl_search_refine_names[bench->refine],
                  "dense_top1", bench->dense_top1, "rows", rows, "block_pictures", work),
        err);
}

static enum espl_status print_table(const struct search_bench *bench, struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = "target"},
                                                 {.title = "strategy"},
                                                 {.title = "holdout top-1 %", .right = true},
                                                 {.title = "sd", .right = true},
                                                 {.title = "range", .right = true},
                                                 {.title = "first ahead by", .right = true},
                                                 {.title = "fitness KL", .right = true},
                                                 {.title = "speed-up", .right = true},
                                                 {.title = "evaluations", .right = true}};
    const struct espl_cli *cli = bench->cli;
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < bench->target_count * STRATEGIES; i++) {
        add_row(bench, i / STRATEGIES, i % STRATEGIES, table);
    }
    fprintf(cli->out,
            "%llu seeds, %llu evaluations each on %llu pictures by KL, %d offspring, refine %s; "
            "%llu held-out pictures, dense %.2f %%\nlatencies of '%s'\n\n",
            (unsigned long long)bench->seeds, (unsigned long long)bench->evaluations,
            (unsigned long long)bench->fitness_pictures, (int)OFFSPRING,
            espl_search_refine_names[bench->refine], (unsigned long long)bench->holdout,
            100.0 * bench->dense_top1, bench->record.device);
    status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
    fprintf(cli->out, "\n");
    for (size_t s = 0; s < STRATEGIES; s++) {
        const struct work *work = &bench->work[s];
        fprintf(cli->out,
                "%s: %.2fx fewer block evaluations than without memory of scores and shared "
                "beginnings (%.2fx by memory, %.2fx by beginnings)\n",
                strategies[s], work->asked / work->ran, work->asked / work->computed,
                work->computed / work->ran);
    }
    espl_table_destroy(table);
    return status;
}

static enum espl_status read_targets(struct search_bench *bench, struct espl_error *err)
{
    const char **texts = NULL;
    enum espl_status status =
        espl_args_collect(bench->cli->args, "speedup", &texts, &bench->target_count, err);
    if (status == ESPL_OK && bench->target_count > MOST_TARGETS) {
        status = espl_fail(err, ESPL_E_USAGE, "--speedup was given %zu times, at most %d count",
                           bench->target_count, (int)MOST_TARGETS);
    }
    for (size_t i = 0; status == ESPL_OK && i < bench->target_count; i++) {
        if (!espl_parse_real(texts[i], &bench->targets[i]) || bench->targets[i] < 1.0) {
            status = espl_fail(err, ESPL_E_USAGE, "--speedup must be a number from 1, got '%s'",
                               texts[i]);
        }
    }
    if (status == ESPL_OK && bench->target_count == 0) {
        bench->target_count = sizeof default_targets / sizeof default_targets[0];
        memcpy(bench->targets, default_targets, sizeof default_targets);
    }
    free((void *)texts);
    return status;
}

static enum espl_status read_options(struct search_bench *bench, struct espl_error *err)
{
    const struct espl_cli *cli = bench->cli;
    const char *refine = espl_args_value(cli->args, "refine", "latency_only");
    enum espl_status status = read_targets(bench, err);
    if (status == ESPL_OK) {
        status = espl_bench_count(cli, "seeds", 5, MOST_SEEDS, &bench->seeds, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_count(cli, "evaluations", 48, 1000000, &bench->evaluations, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_count(cli, "pictures", 32, 1000000, &bench->fitness_pictures, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_count(cli, "holdout", 500, 1000000, &bench->holdout, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_count(cli, "overshoot", 1, 1000, &bench->overshoot, err);
    }
    while (status == ESPL_OK && espl_search_refine_names[bench->refine] != NULL &&
           strcmp(espl_search_refine_names[bench->refine], refine) != 0) {
        bench->refine++;
    }
    if (status == ESPL_OK && espl_search_refine_names[bench->refine] == NULL) {
        status = espl_fail(err, ESPL_E_USAGE,
                           "--refine must be lazy, literal or latency_only, got '%s'", refine);
    }
    return status;
}

enum espl_status espl_bench_search(struct espl_cli *cli, struct espl_error *err)
{
    struct search_bench *bench = calloc(1, sizeof *bench);
    struct espl_store store;
    if (bench == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory");
    }
    bench->cli = cli;
    enum espl_status status = read_options(bench, err);
    if (status == ESPL_OK) {
        status = open_bench(bench, &store, err);
    }
    if (status == ESPL_OK) {
        status = run_all(bench, err);
    }
    if (status == ESPL_OK) {
        status = cli->json ? print_json(bench, err) : print_table(bench, err);
    }
    close_bench(bench);
    free(bench);
    return status;
}
