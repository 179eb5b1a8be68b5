/* espalier bench quantize: time, memory and share of BLAS of atom-quantize with its defaults (W4A4
 * by GPTQ) on windows of random ids. */
#include "artifact/kinds.h"
#include "cli/bench.h"
#include "cli/bench_model.h"
#include "cli/print.h"
#include "cli/target.h"
#include "core/log.h"
#include "core/rng.h"
#include "engine/schema.h"
#include "engine/stage_ctx.h"
#include "kernels/bench/blas_share.h"
#include "model/model.h"
#include "stages/registry.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { ARENA_LIMIT = 1 << 20, MOST_PARAMETERS = 64, PARAMETER_BYTES = 1024 };

/* The stage's parameter struct, whatever it holds. */
union params {
    max_align_t align;
    unsigned char bytes[PARAMETER_BYTES];
};

struct measured {
    char name[ESPL_PATH_MAX];
    double seconds;
    double processor_seconds; /* of all threads */
    uint64_t peak_bytes;      /* of this process, so far */
    bool sampled;
    struct espl_blas_share share;
    struct espl_error why_not; /* when it was not sampled */
};

struct quantize_bench {
    struct espl_cli *cli;
    const struct espl_stage *stage;
    struct espl_store store; /* a temporary one */
    uint64_t windows, length;
};

static const struct espl_stage *find_stage(const char *name)
{
    const struct espl_stage *const *stage = espl_stages;
    while (*stage != NULL && strcmp((*stage)->name, name) != 0) {
        stage++;
    }
    return *stage;
}

/* ---- inputs ---- */

static enum espl_status write_tokens(const struct quantize_bench *bench,
                                     const struct espl_model_config *config, const char *path,
                                     struct espl_error *err)
{
    const uint64_t shape[2] = {bench->windows, bench->length};
    const uint64_t count = bench->windows * bench->length;
    const struct espl_tensor_info info =
        espl_tensor_info_make("/tokens/ids", ESPL_DTYPE_I32, 2, shape);
    struct espl_artifact *artifact = NULL;
    json_t *description = json_pack(
        "{s:I, s:I, s:I, s:I}", "count", (json_int_t)count, "windows", (json_int_t)bench->windows,
        "sequence_length", (json_int_t)bench->length, "vocab_size", (json_int_t)config->vocab);
    char *text = description != NULL ? json_dumps(description, JSON_COMPACT) : NULL;
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    struct espl_rng rng = espl_rng_stream(0, "bench-quantize", 0);
    enum espl_status status =
        text != NULL && ids != NULL
            ? espl_artifact_create(path, "tokens/1", &artifact, err)
            : espl_fail(err, ESPL_E_NOMEM, "out of memory for %" PRIu64 " ids", count);
    for (uint64_t i = 0; status == ESPL_OK && i < count; i++) {
        ids[i] = (int32_t)espl_rng_below(&rng, config->vocab);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_set_description(artifact, text, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_write(artifact, &info, ids, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_finish(&artifact, NULL, err);
    }
    espl_artifact_abandon(artifact);
    free(ids);
    free(text);
    json_decref(description);
    return status;
}

/* All defaults of the stage. Texts in params belong to the arena. */
static enum espl_status fill_params(const struct espl_stage *stage, struct espl_arena *arena,
                                    union params *params, struct espl_error *err)
{
    struct espl_param_value values[MOST_PARAMETERS];
    struct espl_diagnostics diags;
    const struct espl_srcpos nowhere = {.line = 0};
    if (stage->params_size > sizeof params->bytes ||
        espl_schema_count(stage->params) > MOST_PARAMETERS) {
        return espl_fail(err, ESPL_E_INTERNAL, "no room for the parameters of '%s'", stage->name);
    }
    enum espl_status status = espl_diagnostics_init(&diags, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_schema_read(stage->params, NULL, stage->name, NULL, params, values, arena, &diags,
                     &nowhere);
    if (diags.count > 0) {
        status = espl_fail(err, ESPL_E_INTERNAL, "defaults of '%s': %s", stage->name,
                           diags.items[0].error.message);
    }
    espl_diagnostics_free(&diags);
    return status;
}

/* ---- the run ---- */

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec * 1e-6;
}

static void read_usage(double *processor_seconds, uint64_t *peak_bytes)
{
    struct rusage usage = {.ru_maxrss = 0};
    (void)getrusage(RUSAGE_SELF, &usage); /* cannot fail for the process itself */
    *processor_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
    *peak_bytes = (uint64_t)usage.ru_maxrss * 1024u;
}

static enum espl_status run_stage(const struct quantize_bench *bench, struct espl_stage_ctx *ctx,
                                  const union params *params, struct measured *measured,
                                  struct espl_error *err)
{
    double before = 0.0;
    read_usage(&before, &measured->peak_bytes);
    measured->sampled = espl_blas_share_start(&measured->why_not) == ESPL_OK;
    const double start = espl_clock_monotonic();
    const enum espl_status status = bench->stage->run(ctx, params, err);
    measured->seconds = espl_clock_monotonic() - start;
    if (measured->sampled) {
        espl_blas_share_stop(&measured->share);
    }
    read_usage(&measured->processor_seconds, &measured->peak_bytes);
    measured->processor_seconds -= before;
    return status;
}

static enum espl_status measure(const struct quantize_bench *bench, struct espl_artifact *model,
                                struct espl_artifact *tokens, struct espl_arena *arena,
                                struct measured *measured, struct espl_error *err)
{
    static const char key[] = "0000000000000000000000000000000000000000000000000000000000000000";
    char path[ESPL_PATH_MAX];
    union params params;
    struct espl_stage_ctx *ctx = NULL;
    struct espl_artifact *output = NULL;
    enum espl_status status = fill_params(bench->stage, arena, &params, err);
    if (status == ESPL_OK) {
        status = espl_fs_join(path, bench->store.root, "quantised.h5", err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_create(path, bench->stage->outputs[0].kind, &output, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const struct espl_ctx_port inputs[] = {{"model", model}, {"tokens", tokens}};
    const struct espl_ctx_port outputs[] = {{"model", output}};
    const struct espl_ctx_config config = {.store = &bench->store,
                                           .stage = bench->stage,
                                           .stage_id = "bench",
                                           .key = key,
                                           .device = "cpu",
                                           .inputs = inputs,
                                           .input_count = 2,
                                           .outputs = outputs,
                                           .output_count = 1,
                                           .message_fd = -1,
                                           .stopped = bench->cli->stop_signal};
    status = espl_stage_ctx_create(&config, &ctx, err);
    if (status == ESPL_OK) {
        status = run_stage(bench, ctx, &params, measured, err);
    }
    espl_stage_ctx_destroy(ctx);
    espl_artifact_abandon(output);
    return status;
}

/* The planner checks this for a job. */
static enum espl_status check_kind(const struct espl_stage *stage, const char *kind,
                                   struct espl_error *err)
{
    if (espl_kind_accepts(stage->inputs[0].kind, kind)) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_KIND, "%s does not take a model of kind %s", stage->name, kind);
    return espl_hint(err, "name a model before it was quantised, pruned or not");
}

/* path: of the model. */
static enum espl_status bench_model(struct quantize_bench *bench, const char *path,
                                    struct measured *measured, struct espl_error *err)
{
    char tokens_path[ESPL_PATH_MAX];
    struct espl_artifact *model = NULL;
    struct espl_artifact *tokens = NULL;
    struct espl_model_config config;
    struct espl_arena *arena = espl_arena_create(ARENA_LIMIT);
    json_t *description = NULL;
    enum espl_status status = arena != NULL ? espl_artifact_open(path, &model, err)
                                            : espl_fail(err, ESPL_E_NOMEM, "out of memory");
    if (status == ESPL_OK) {
        status = check_kind(bench->stage, espl_artifact_kind(model), err);
    }
    if (status == ESPL_OK) {
        description = json_loads(espl_artifact_description(model), 0, NULL);
        status = espl_model_config_from_description(description, &config, err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_join(tokens_path, bench->store.root, "tokens.h5", err);
    }
    if (status == ESPL_OK) {
        status = write_tokens(bench, &config, tokens_path, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_open(tokens_path, &tokens, err);
    }
    if (status == ESPL_OK) {
        status = measure(bench, model, tokens, arena, measured, err);
    }
    json_decref(description);
    espl_artifact_close(tokens);
    espl_artifact_close(model);
    espl_arena_destroy(arena);
    return status;
}

static enum espl_status print_result(const struct quantize_bench *bench,
                                     const struct measured *measured, unsigned threads,
                                     struct espl_error *err)
{
    const struct espl_cli *cli = bench->cli;
    const double share = measured->sampled && measured->share.samples > 0
                             ? (double)measured->share.in_blas / (double)measured->share.samples
                             : 0.0;
    char peak[ESPL_UNIT_TEXT];
    if (cli->json) {
        return espl_print_json_take(
            cli,
            json_pack("{s:s, s:s, s:I, s:I, s:i, s:f, s:f, s:I, s:o}", "schema",
                      "espalier.bench-quantize/1", "model", measured->name, "windows",
                      (json_int_t)bench->windows, "sequence_length", (json_int_t)bench->length,
                      "threads", (int)threads, "seconds", measured->seconds, "processor_seconds",
                      measured->processor_seconds, "peak_rss_bytes",
                      (json_int_t)measured->peak_bytes, "blas_share",
                      measured->sampled ? json_real(share) : json_null()),
            err);
    }
    espl_print_size(measured->peak_bytes, peak);
    fprintf(cli->out,
            "%s with its defaults on %s: %" PRIu64 " windows of %" PRIu64 " tokens, %u threads\n"
            "time         %.1f s, %.1f s of processor time\n"
            "peak memory  %s\n",
            bench->stage->name, measured->name, bench->windows, bench->length, threads,
            measured->seconds, measured->processor_seconds, peak);
    if (measured->sampled) {
        fprintf(cli->out, "in BLAS      %.1f %% of the processor time (%" PRIu64 " samples)\n",
                100.0 * share, measured->share.samples);
    } else {
        fprintf(cli->out, "in BLAS      not measured: %s\n", measured->why_not.message);
    }
    return ESPL_OK;
}

static enum espl_status bench_named(struct quantize_bench *bench, const char *text,
                                    struct measured *measured, struct espl_error *err)
{
    char shown[ESPL_PATH_MAX];
    struct espl_store store;
    struct espl_target target;
    enum espl_status status = espl_store_open_readonly(bench->cli->store_dir, &store, err);
    if (status == ESPL_OK) {
        status = espl_target_artifact(bench->cli, &store, text, &target, err);
    }
    if (status == ESPL_OK) {
        (void)snprintf(measured->name, sizeof measured->name, "%s",
                       espl_fs_shown_path(target.path, shown));
        status = bench_model(bench, target.path, measured, err);
    }
    return status;
}

enum espl_status espl_bench_quantize(struct espl_cli *cli, struct espl_error *err)
{
    struct quantize_bench bench = {.cli = cli, .stage = find_stage("atom-quantize")};
    struct measured measured = {.name = ""};
    struct espl_bench_model model;
    struct espl_backend *backend = NULL;
    const struct espl_bench_shape *shape = espl_bench_shapes;
    while (shape[1].name != NULL) { /* the largest one comes last */
        shape++;
    }
    enum espl_status status = espl_bench_count(cli, "windows", 128, 65536, &bench.windows, err);
    if (status == ESPL_OK) {
        status = espl_bench_count(cli, "length", 512, 65536, &bench.length, err);
    }
    if (status == ESPL_OK) {
        /* Only to say how many threads the stage will take. */
        status = espl_backend_open("cpu", 0, &backend, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_model_create(shape, &model, err);
    }
    if (status != ESPL_OK) {
        espl_backend_close(backend);
        return status;
    }
    status = espl_store_open(model.folder, &bench.store, err);
    if (status == ESPL_OK && cli->args->positional_count > 1) {
        status = bench_named(&bench, cli->args->positional[1], &measured, err);
    } else if (status == ESPL_OK) {
        (void)snprintf(measured.name, sizeof measured.name, "random weights, %s", shape->name);
        status = bench_model(&bench, model.path, &measured, err);
    }
    espl_bench_model_remove(&model);
    if (status == ESPL_OK) {
        status = print_result(&bench, &measured, espl_backend_threads(backend), err);
    }
    espl_backend_close(backend);
    return status;
}
