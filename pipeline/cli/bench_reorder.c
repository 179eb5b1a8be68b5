/* espalier bench reorder: how many 16 x 64 tiles a second the row reorder solves, on every
 * instruction set this CPU has, beside the plain subset dynamic program. */
#include "cli/bench.h"
#include "cli/print.h"
#include "core/log.h"
#include "core/rng.h"
#include "kernels/cpu/cpu_reorder.h"
#include "model/synth.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Random codes, half of them 0, of a size that no second-level cache holds. */
enum {
    ROWS = 1280,
    COLS = 5120,
    TILES = ROWS / ESPL_IEBME_TILE_ROWS * COLS / ESPL_IEBME_TILE_COLS
};
enum { MOST_PASSES = 200, LEAST_PASSES = 3, SPLIT_PASSES = 5 };
static const double seconds_per_row = 0.2;
static const double seconds_for_oracle = 0.1;

/* The paper's own figure for OPT-13B [UnionSparse, section V.B]. */
static const double paper_hours = 4.07;
enum { PAPER_THREADS = 14 };

static const struct setting {
    unsigned row_areas;
    unsigned col_areas;
    enum espl_iebme_scope scope;
    const char *text;
} settings[] = {
    {2, 2, ESPL_IEBME_SCOPE_TILE, "2x2 tile"},     {2, 2, ESPL_IEBME_SCOPE_STRIPE, "2x2 stripe"},
    {2, 1, ESPL_IEBME_SCOPE_TILE, "2x1 tile"},     {4, 2, ESPL_IEBME_SCOPE_TILE, "4x2 tile"},
    {4, 2, ESPL_IEBME_SCOPE_STRIPE, "4x2 stripe"},
};
enum { SETTINGS = sizeof settings / sizeof settings[0] };

struct bench {
    struct espl_cli *cli;
    unsigned threads;
    int8_t *codes;    /* (ROWS, COLS) */
    uint64_t *orders; /* (TILES) */
    double opt_13b_tiles;
};

struct timing {
    const char *path;
    double per_core; /* tiles a second of CPU time, one thread */
    double in_all;   /* tiles a second of wall time, all threads */
    struct espl_reorder_split share;
};

static double thread_seconds(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now); /* cannot fail for this clock */
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Tiles of 16 x 64 in the linears of all blocks: four of attention, two of the MLP. */
static double count_opt_tiles(const char *name)
{
    const struct espl_synth_shape *shape = espl_synth_shapes;
    while (strcmp(shape->name, name) != 0) {
        shape++;
    }
    const double weights = 4.0 * (double)shape->hidden * (double)shape->hidden +
                           2.0 * (double)shape->hidden * (double)shape->ffn;
    return (double)shape->layers * weights / ESPL_IEBME_TILE_VALUES;
}

/* Fastest pass; clock: of the calling thread's CPU time, or of the wall. */
static enum espl_status best_rate(struct bench *bench, const struct setting *setting,
                                  const char *path, unsigned threads, double (*clock)(void),
                                  double *rate, struct espl_error *err)
{
    const struct espl_reorder_options options = {setting->row_areas, setting->col_areas,
                                                 setting->scope, threads, path};
    struct espl_reorder *reorder = NULL;
    enum espl_status status = espl_reorder_create(&options, &reorder, err);
    double total = 0.0;
    *rate = 0.0;
    for (unsigned pass = 0; status == ESPL_OK && pass < MOST_PASSES &&
                            (pass < LEAST_PASSES || total < seconds_per_row);
         pass++) {
        const double start = clock();
        espl_reorder_codes(reorder, bench->codes, ROWS, COLS, bench->orders, NULL);
        const double seconds = clock() - start;
        total += seconds;
        *rate = TILES / seconds > *rate ? TILES / seconds : *rate;
        if (*bench->cli->stop_signal != 0) {
            status = espl_fail(err, ESPL_E_CANCELLED, "stopped while timing path '%s'", path);
        }
    }
    espl_reorder_destroy(reorder);
    return status;
}

static double split_total(const struct espl_reorder_split *split)
{
    return split->masks + split->costs + split->solve + split->recover;
}

/* Shares of the fastest of a few passes: it was interrupted least. */
static enum espl_status measure_split(struct bench *bench, const struct setting *setting,
                                      struct timing *timing, struct espl_error *err)
{
    const struct espl_reorder_options options = {setting->row_areas, setting->col_areas,
                                                 setting->scope, 1, timing->path};
    struct espl_reorder *reorder = NULL;
    struct espl_reorder_split *share = &timing->share;
    const enum espl_status status = espl_reorder_create(&options, &reorder, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (unsigned pass = 0; pass < SPLIT_PASSES; pass++) {
        struct espl_reorder_split split = {0.0, 0.0, 0.0, 0.0};
        espl_reorder_set_split(reorder, &split);
        espl_reorder_codes(reorder, bench->codes, ROWS, COLS, bench->orders, NULL);
        if (pass == 0 || split_total(&split) < split_total(share)) {
            *share = split;
        }
    }
    espl_reorder_destroy(reorder);
    const double total = split_total(share);
    share->masks /= total;
    share->costs /= total;
    share->solve /= total;
    share->recover /= total;
    return ESPL_OK;
}

/* The plain dynamic program on tiles of the same matrix. */
static enum espl_status oracle_rate(const struct bench *bench, const struct setting *setting,
                                    double *rate, struct espl_error *err)
{
    uint64_t masks[ESPL_IEBME_TILE_ROWS];
    uint8_t order[ESPL_IEBME_TILE_ROWS];
    uint64_t active = 0;
    size_t tiles = 0;
    enum espl_status status = ESPL_OK;
    const double start = thread_seconds();
    do {
        const size_t column = tiles * ESPL_IEBME_TILE_COLS % COLS;
        espl_reorder_tile_masks_scalar(bench->codes + column, COLS, masks, 1);
        status = espl_reorder_reference(masks, 1, ESPL_IEBME_TILE_ROWS, setting->row_areas,
                                        setting->col_areas, order, &active, err);
        tiles++;
        *rate = (double)tiles / (thread_seconds() - start);
    } while (status == ESPL_OK && (double)tiles / *rate < seconds_for_oracle);
    return status;
}

static enum espl_status measure(struct bench *bench, const struct setting *setting,
                                struct timing *timing, struct espl_error *err)
{
    enum espl_status status =
        best_rate(bench, setting, timing->path, 1, thread_seconds, &timing->per_core, err);
    if (status == ESPL_OK) {
        status = best_rate(bench, setting, timing->path, bench->threads, espl_clock_monotonic,
                           &timing->in_all, err);
    }
    return status == ESPL_OK ? measure_split(bench, setting, timing, err) : status;
}

static void add_row(const struct bench *bench, const struct setting *setting,
                    const struct timing *timing, double oracle, struct espl_table *table)
{
    char projected[ESPL_UNIT_TEXT];
    const struct espl_reorder_split *share = &timing->share;
    espl_print_duration(bench->opt_13b_tiles / timing->in_all, projected);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", setting->text);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", timing->path);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", timing->per_core);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", timing->in_all);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.1f", 100.0 * share->masks);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.1f", 100.0 * share->costs);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.1f", 100.0 * share->solve);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.1f", 100.0 * share->recover);
    if (setting->scope == ESPL_IEBME_SCOPE_TILE) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f", timing->per_core / oracle);
    } else {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
    }
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", projected);
}

static json_t *row_json(const struct bench *bench, const struct setting *setting,
                        const struct timing *timing, double oracle)
{
    const struct espl_reorder_split *share = &timing->share;
    json_t *shares = json_pack("{s:f, s:f, s:f, s:f}", "masks", share->masks, "costs", share->costs,
                               "solve", share->solve, "recover", share->recover);
    json_t *row =
        json_pack("{s:s, s:i, s:i, s:s, s:f, s:f, s:f, s:o}", "path", timing->path, "row_areas",
                  (int)setting->row_areas, "col_areas", (int)setting->col_areas, "scope",
                  setting->scope == ESPL_IEBME_SCOPE_TILE ? "tile" : "stripe",
                  "tiles_per_second_per_core", timing->per_core, "tiles_per_second", timing->in_all,
                  "opt_13b_seconds", bench->opt_13b_tiles / timing->in_all, "share", shares);
    if (row != NULL && setting->scope == ESPL_IEBME_SCOPE_TILE) {
        (void)json_object_set_new(row, "oracle_tiles_per_second", json_real(oracle));
    }
    return row;
}

/* All settings and paths. first: of the best path in the first setting. */
static enum espl_status measure_all(struct bench *bench, struct espl_table *table, json_t *rows,
                                    struct timing *first, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t s = 0; status == ESPL_OK && s < SETTINGS; s++) {
        double oracle = 1.0;
        const char *path = NULL;
        if (settings[s].scope == ESPL_IEBME_SCOPE_TILE) {
            status = oracle_rate(bench, &settings[s], &oracle, err);
        }
        for (size_t i = 0; status == ESPL_OK && (path = espl_reorder_path_name(i)) != NULL; i++) {
            struct timing timing = {.path = path};
            status = measure(bench, &settings[s], &timing, err);
            if (status == ESPL_OK) {
                add_row(bench, &settings[s], &timing, oracle, table);
                (void)json_array_append_new(rows, row_json(bench, &settings[s], &timing, oracle));
            }
            if (s == 0 && i == 0) {
                *first = timing;
            }
        }
    }
    return status;
}

static enum espl_status print_json(const struct bench *bench, json_t *rows,
                                   const struct timing *first, struct espl_error *err)
{
    return espl_print_json_take(
        bench->cli,
        json_pack("{s:s, s:s, s:f, s:f, s:i, s:f, s:f, s:f, s:i, s:O}", "schema",
                  "espalier.bench-reorder/1", "path", first->path, "tiles_per_second_per_core",
                  first->per_core, "tiles_per_second", first->in_all, "threads",
                  (int)bench->threads, "opt_13b_tiles", bench->opt_13b_tiles, "opt_13b_seconds",
                  bench->opt_13b_tiles / first->in_all, "paper_opt_13b_hours", paper_hours,
                  "paper_threads", PAPER_THREADS, "rows", rows),
        err);
}

static enum espl_status prepare(struct bench *bench, struct espl_error *err)
{
    struct espl_backend *backend = NULL;
    struct espl_rng rng = espl_rng_stream(0, "bench-reorder", 0);
    enum espl_status status = espl_bench_open_backend(bench->cli, &backend, err);
    if (status != ESPL_OK) {
        return status;
    }
    bench->threads = espl_backend_threads(backend);
    espl_backend_close(backend);
    bench->opt_13b_tiles = count_opt_tiles("opt-13b");
    bench->codes = malloc((size_t)ROWS * COLS);
    bench->orders = calloc(TILES, sizeof *bench->orders);
    if (bench->codes == NULL || bench->orders == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a matrix of %d x %d", (int)ROWS,
                         (int)COLS);
    }
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++) {
        const uint64_t number = espl_rng_u64(&rng);
        bench->codes[i] = (int8_t)((number & 1u) == 0 ? 0 : 1 + (int)(number >> 1 & 3u));
    }
    return ESPL_OK;
}

enum espl_status espl_bench_reorder(struct espl_cli *cli, struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = "areas"},
                                                 {.title = "path"},
                                                 {.title = "tiles/s core", .right = true},
                                                 {.title = "tiles/s", .right = true},
                                                 {.title = "masks %", .right = true},
                                                 {.title = "costs %", .right = true},
                                                 {.title = "solve %", .right = true},
                                                 {.title = "recover %", .right = true},
                                                 {.title = "x oracle", .right = true},
                                                 {.title = "OPT-13B", .right = true}};
    struct bench bench = {.cli = cli};
    struct espl_table *table = NULL;
    struct timing first = {0};
    json_t *rows = json_array();
    enum espl_status status = prepare(&bench, err);
    if (status == ESPL_OK) {
        status = espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    }
    if (status == ESPL_OK) {
        status = measure_all(&bench, table, rows, &first, err);
    }
    if (status == ESPL_OK && cli->json) {
        status = print_json(&bench, rows, &first, err);
    } else if (status == ESPL_OK) {
        fprintf(cli->out,
                "%d tiles of random codes, half of them 0; per core: CPU time of one thread; "
                "tiles/s: wall time of %u\n\n",
                (int)TILES, bench.threads);
        status = espl_table_print(table, cli->out, 0, cli->colour_out, err);
        fprintf(cli->out,
                "\nOPT-13B: %.0f tiles, by the rate of all threads. UnionSparse states %.2f h on "
                "%d threads\nof a Jetson AGX Thor (2x2 tile).\n",
                bench.opt_13b_tiles, paper_hours, (int)PAPER_THREADS);
    }
    espl_table_destroy(table);
    json_decref(rows);
    free(bench.orders);
    free(bench.codes);
    return status;
}
