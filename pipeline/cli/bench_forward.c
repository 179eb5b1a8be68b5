/* espalier bench forward: how much of the machine's product rate an evaluation reaches, and where
 * its time goes. */
#include "cli/bench.h"
#include "cli/bench_images.h"
#include "cli/bench_model.h"
#include "cli/print.h"
#include "cli/target.h"
#include "core/rng.h"
#include "eval/perplexity.h"
#include "kernels/bench/cases.h"

#include <stdlib.h>
#include <string.h>

/* Order and repeats of the yardstick product: large enough that OpenBLAS is at its best. */
enum { YARDSTICK_ORDER = 2048, YARDSTICK_REPEATS = 4, PASSES = 3 };

/* Pictures for an image model: enough for a second on two cores. */
enum { IMAGES = 256 };

/* What one model gave. */
struct measured {
    struct espl_perplexity result; /* of the fastest pass */
    double flops;
    double sgemm_flops; /* measured right before and after; the higher counts */
};

static int32_t *random_ids(uint64_t count, uint64_t vocab)
{
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    struct espl_rng rng = espl_rng_stream(0, "bench-forward", 0);
    for (uint64_t i = 0; ids != NULL && i < count; i++) {
        ids[i] = (int32_t)espl_rng_below(&rng, vocab);
    }
    return ids;
}

static enum espl_status yardstick(const struct espl_backend *backend, double *highest,
                                  struct espl_error *err)
{
    double flops = 0.0;
    const enum espl_status status = espl_blas_sgemm_rate(
        espl_backend_threads(backend), YARDSTICK_ORDER, YARDSTICK_REPEATS, &flops, err);
    if (status == ESPL_OK && flops > *highest) {
        *highest = flops;
    }
    return status;
}

static bool keep_going(void *user, uint64_t done, uint64_t total)
{
    const struct espl_cli *cli = user;
    (void)done;
    (void)total;
    return *cli->stop_signal == 0;
}

static enum espl_status measure(struct espl_cli *cli, struct espl_model *model,
                                struct espl_backend *backend, uint64_t windows, uint64_t length,
                                struct measured *out, struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(model);
    const bool vision = espl_model_config_is_vision(config);
    struct espl_perplexity result;
    int32_t *ids = vision ? NULL : random_ids(windows * length, config->vocab);
    memset(out, 0, sizeof *out);
    if (ids == NULL && !vision) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the ids of %llu windows",
                         (unsigned long long)windows);
    }
    enum espl_status status = yardstick(backend, &out->sgemm_flops, err);
    for (unsigned pass = 0; status == ESPL_OK && pass < PASSES; pass++) {
        status = vision ? espl_bench_images(cli, model, backend, IMAGES, &result, err)
                        : espl_perplexity_measure(model, NULL, backend, ids, windows,
                                                  (size_t)length, keep_going, cli, &result, err);
        if (status == ESPL_OK && result.flop / result.seconds > out->flops) {
            out->flops = result.flop / result.seconds;
            out->result = result;
        }
    }
    if (status == ESPL_OK) {
        status = yardstick(backend, &out->sgemm_flops, err);
    }
    free(ids);
    return status;
}

/* Where the time went, in the order of the columns. */
struct part {
    const char *name;
    double seconds;
};
enum { PARTS = 7 };

static void split_time(const struct espl_perplexity *result, struct part parts[PARTS])
{
    const struct espl_forward_times *times = &result->times;
    const struct part named[PARTS - 1] = {
        {"gemm", times->gemm},
        {"attention", times->attention},
        {"norm", times->norm},
        {"elementwise", times->elementwise},
        {"head_softmax", times->head + result->loss_seconds},
        {"load", times->load + times->embed},
    };
    double booked = 0.0;
    for (size_t i = 0; i + 1 < PARTS; i++) {
        parts[i] = named[i];
        booked += named[i].seconds;
    }
    parts[PARTS - 1] = (struct part){"other", result->seconds - booked};
}

static void add_row(struct espl_table *table, const char *name, const struct measured *measured)
{
    struct part parts[PARTS];
    split_time(&measured->result, parts);
    espl_table_cell(table, ESPL_STYLE_BOLD, "%s", name);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.0f",
                    (double)measured->result.tokens / measured->result.seconds);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.1f", measured->flops * 1e-9);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.1f", measured->sgemm_flops * 1e-9);
    espl_table_cell(table, ESPL_STYLE_BOLD, "%.1f %%",
                    100.0 * measured->flops / measured->sgemm_flops);
    for (size_t i = 0; i < PARTS; i++) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.1f %%",
                        100.0 * parts[i].seconds / measured->result.seconds);
    }
}

static json_t *row_json(const char *name, const struct measured *measured)
{
    struct part parts[PARTS];
    const struct espl_perplexity *result = &measured->result;
    json_t *split = json_object();
    split_time(result, parts);
    for (size_t i = 0; i < PARTS; i++) {
        (void)json_object_set_new(split, parts[i].name, json_real(parts[i].seconds));
    }
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "model", name, "windows",
                     (json_int_t)result->windows, "tokens", (json_int_t)result->tokens, "seconds",
                     result->seconds, "tokens_per_second", (double)result->tokens / result->seconds,
                     "gflops", measured->flops * 1e-9, "sgemm_gflops", measured->sgemm_flops * 1e-9,
                     "ratio", measured->flops / measured->sgemm_flops, "seconds_by_part", split);
}

/* The whole bench: where rows go. */
struct forward_bench {
    struct espl_cli *cli;
    struct espl_backend *backend;
    uint64_t windows;
    uint64_t length;
    struct espl_table *table;
    json_t *rows;
};

static enum espl_status bench_artifact(struct forward_bench *bench, const struct espl_store *store,
                                       const char *path, const char *name, struct espl_error *err)
{
    struct espl_artifact *artifact = NULL;
    struct espl_model *model = NULL;
    struct measured measured;
    enum espl_status status = espl_artifact_open(path, &artifact, err);
    if (status == ESPL_OK) {
        status = espl_model_open(artifact, store, &model, err);
    }
    if (status == ESPL_OK) {
        status = measure(bench->cli, model, bench->backend, bench->windows, bench->length,
                         &measured, err);
    }
    if (status == ESPL_OK) {
        add_row(bench->table, name, &measured);
        (void)json_array_append_new(bench->rows, row_json(name, &measured));
    }
    espl_model_close(model);
    espl_artifact_close(artifact);
    return status;
}

static enum espl_status bench_named(struct forward_bench *bench, const char *text,
                                    struct espl_error *err)
{
    char shown[ESPL_PATH_MAX];
    struct espl_store store;
    struct espl_target target;
    enum espl_status status = espl_store_open_readonly(bench->cli->store_dir, &store, err);
    if (status == ESPL_OK) {
        status = espl_target_artifact(bench->cli, &store, text, &target, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    return bench_artifact(bench, &store, target.path, espl_fs_shown_path(target.path, shown), err);
}

/* Models with random weights, in a temporary file each. */
static enum espl_status bench_samples(struct forward_bench *bench, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (const struct espl_bench_shape *shape = espl_bench_shapes;
         status == ESPL_OK && shape->name != NULL; shape++) {
        struct espl_bench_model model;
        status = espl_bench_model_create(shape, &model, err);
        if (status == ESPL_OK) {
            status = bench_artifact(bench, NULL, model.path, shape->name, err);
            espl_bench_model_remove(&model);
        }
    }
    return status;
}

static enum espl_status print_results(const struct forward_bench *bench, struct espl_error *err)
{
    const struct espl_cli *cli = bench->cli;
    struct espl_blas_info blas;
    espl_blas_get_info(&blas);
    if (cli->json) {
        return espl_print_json_take(
            cli,
            json_pack("{s:s, s:s, s:s, s:s, s:i, s:i, s:O}", "schema", "espalier.bench-forward/1",
                      "backend", espl_backend_ops(bench->backend)->name, "openblas_core", blas.core,
                      "openblas_parallel", blas.parallel, "threads",
                      (int)espl_backend_threads(bench->backend), "sgemm_order",
                      (int)YARDSTICK_ORDER, "models", bench->rows),
            err);
    }
    fprintf(cli->out,
            "backend %s, %u threads, OpenBLAS core %s (%s); %llu windows of %llu tokens, best of "
            "%d passes\nsgemm: OpenBLAS on %d x %d x %d with the same threads in this process\n\n",
            espl_backend_ops(bench->backend)->name, espl_backend_threads(bench->backend), blas.core,
            blas.parallel, (unsigned long long)bench->windows, (unsigned long long)bench->length,
            (int)PASSES, (int)YARDSTICK_ORDER, (int)YARDSTICK_ORDER, (int)YARDSTICK_ORDER);
    return espl_table_print(bench->table, cli->out, 0, cli->colour_out, err);
}

enum espl_status espl_bench_forward(struct espl_cli *cli, struct espl_error *err)
{
    static const struct espl_column columns[] = {
        {.title = "model", .max_width = 48}, {.title = "tokens/s", .right = true},
        {.title = "GFLOP/s", .right = true}, {.title = "sgemm", .right = true},
        {.title = "ratio", .right = true},   {.title = "gemm", .right = true},
        {.title = "attn", .right = true},    {.title = "norm", .right = true},
        {.title = "elem", .right = true},    {.title = "head", .right = true},
        {.title = "load", .right = true},    {.title = "other", .right = true}};
    struct forward_bench bench = {.cli = cli};
    enum espl_status status = espl_bench_count(cli, "windows", 16, 65536, &bench.windows, err);
    if (status == ESPL_OK) {
        status = espl_bench_count(cli, "length", 512, 65536, &bench.length, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_open_backend(cli, &bench.backend, err);
    }
    if (status == ESPL_OK) {
        status = espl_table_create(columns, sizeof columns / sizeof columns[0], &bench.table, err);
    }
    bench.rows = json_array();
    if (status == ESPL_OK) {
        status = cli->args->positional_count > 1
                     ? bench_named(&bench, cli->args->positional[1], err)
                     : bench_samples(&bench, err);
    }
    if (status == ESPL_OK) {
        status = print_results(&bench, err);
    }
    json_decref(bench.rows);
    espl_table_destroy(bench.table);
    espl_backend_close(bench.backend);
    return status;
}
