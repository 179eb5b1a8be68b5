#include "stages/deploy_bench/encoder_mode.h"

#include "espalier/cuda_memory.h"
#include "eval/device_vision.h"
#include "eval/vision_quality.h"
#include "stages/deploy_bench/deploy_plan.h"
#include "stages/deploy_bench/encoder_accuracy.h"
#include "stages/deploy_bench/encoder_levels.h"

#include <stdio.h>
#include <string.h>

enum {
    DENSE_M = 8,
    PASSES = 3, /* timed together */
    WARM_PASSES = 2
};

/* ---- plan ---- */

static enum espl_status check_lists(const struct espl_deploy_params *params, struct espl_error *err)
{
    const enum espl_status status =
        espl_deploy_check_numbers(&params->batches, "batches", ESPL_ENCODER_MOST_BATCHES, err);
    return status == ESPL_OK ? espl_deploy_check_choices(&params->runtimes, "runtimes",
                                                         espl_encoder_runtimes, err)
                             : status;
}

static enum espl_status check_device(const char *device, struct espl_error *err)
{
    if (espl_deploy_is_cpu(device)) {
        espl_fail(err, ESPL_E_JOB,
                  "mode 'encoder' measures a CUDA device, but the job names the "
                  "CPU");
        return espl_deploy_refuse(err, "param:mode",
                                  "set 'device' to cuda:0, or leave the stage out");
    }
    return espl_deploy_check_cuda(device, err);
}

bool espl_encoder_is_packed(const json_t *description)
{
    static const char prefix[] = "nm-pack/";
    const json_t *encoding = json_object_get(description, "encoding");
    const char *format = json_string_value(json_object_get(encoding, "format"));
    return format != NULL && strncmp(format, prefix, sizeof prefix - 1) == 0;
}

static enum espl_status check_model(const json_t *description, struct espl_model_config *config,
                                    struct espl_error *err)
{
    const enum espl_status status = espl_model_config_from_description(description, config, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (!espl_encoder_is_packed(description) || !espl_model_config_is_vision(config)) {
        espl_fail(err, ESPL_E_KIND, "mode 'encoder' takes an image model that nm-pack made");
        return espl_deploy_refuse(err, "input:model",
                                  "mode: kernel measures the products of other models");
    }
    return ESPL_OK;
}

static enum espl_status check_images(const json_t *description,
                                     const struct espl_model_config *config, struct espl_error *err)
{
    struct espl_image_set set;
    enum espl_status status = espl_image_set_from_description(description, &set, err);
    if (status == ESPL_OK) {
        status = espl_image_set_check(&set, config, false, err);
    }
    return status == ESPL_OK ? status : espl_blame(err, "input:images");
}

enum espl_status espl_encoder_plan(struct espl_plan_ctx *ctx,
                                   const struct espl_deploy_params *params,
                                   struct espl_estimate *est, struct espl_error *err)
{
    const json_t *description = espl_plan_input(ctx, "model");
    const json_t *images = espl_plan_input(ctx, "images");
    const int64_t *batches = params->batches.items;
    struct espl_model_config config;
    int64_t most = 0;
    enum espl_status status = check_lists(params, err);
    if (status == ESPL_OK) {
        status = check_device(espl_plan_device(ctx), err);
    }
    if (status != ESPL_OK || description == NULL) {
        return status;
    }
    status = check_model(description, &config, err);
    if (status == ESPL_OK && images != NULL) {
        status = check_images(images, &config, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < params->batches.count; i++) {
        most = batches[i] > most ? batches[i] : most;
    }
    est->device_only = true;
    est->device_bytes = espl_device_vision_bytes(&config, (size_t)most);
    est->host_bytes = images != NULL ? espl_vision_measure_bytes(&config, NULL) : 0;
    (void)snprintf(est->note, sizeof est->note, "%zu runtimes at %zu batches, on cuda:0",
                   params->runtimes.count, params->batches.count);
    return ESPL_OK;
}

/* ---- run ---- */

struct state {
    struct espl_stage_ctx *ctx;
    const struct espl_deploy_params *params;
    struct espl_model *model;
    bool has_levels;
    struct espl_encoder_levels levels;
    struct espl_encoder_record record;
};

/* The table is of one batch; others run as the model is packed. */
static bool levels_apply(const struct state *state, size_t batch)
{
    return state->has_levels && state->levels.record.batch == batch;
}

static enum espl_status open_runtime(struct state *state, enum espl_encoder_runtime runtime,
                                     size_t batch, struct espl_device_vision **vision,
                                     struct espl_error *err)
{
    const struct espl_device_vision_random random = {.m = DENSE_M,
                                                     .vector = 1,
                                                     .halves = runtime == ESPL_ENCODER_DENSE_FP16,
                                                     .by = runtime == ESPL_ENCODER_DENSE_BEST
                                                               ? ESPL_DEVICE_VISION_FASTEST
                                                               : ESPL_DEVICE_VISION_OWN};
    if (runtime != ESPL_ENCODER_PACKED) {
        return espl_device_vision_create_random(espl_model_get_config(state->model), &random, batch,
                                                vision, err);
    }
    return espl_device_vision_create(state->model, batch, NULL,
                                     levels_apply(state, batch) ? espl_encoder_level : NULL,
                                     &state->levels, ESPL_DEVICE_VISION_FASTEST, vision, err);
}

static enum espl_status time_pass(const struct state *state, struct espl_device_vision *vision,
                                  struct espl_encoder_pass *pass, struct espl_error *err)
{
    static const unsigned parts[ESPL_ENCODER_PARTS] = {
        ESPL_DEVICE_VISION_LINEARS, ESPL_DEVICE_VISION_ATTENTION, ESPL_DEVICE_VISION_ROWS,
        ESPL_DEVICE_VISION_REST};
    const size_t repeats = (size_t)state->params->repeats;
    struct espl_cuda_time time;
    enum espl_status status =
        espl_device_vision_time(vision, ESPL_DEVICE_VISION_ALL, WARM_PASSES, 3, &time, err);
    if (status == ESPL_OK) {
        status = espl_device_vision_time(vision, ESPL_DEVICE_VISION_ALL, PASSES, repeats,
                                         &pass->time, err);
    }
    for (size_t p = 0; status == ESPL_OK && p < ESPL_ENCODER_PARTS; p++) {
        status = espl_device_vision_time(vision, parts[p], PASSES, repeats, &time, err);
        pass->parts[p] = time.median;
    }
    pass->weight_bytes = espl_device_vision_weight_bytes(vision);
    pass->by_library = espl_device_vision_by_library(vision);
    return status;
}

static enum espl_status measure(struct state *state, enum espl_encoder_runtime runtime,
                                size_t batch, struct espl_error *err)
{
    struct espl_encoder_pass *pass = &state->record.passes[state->record.count];
    struct espl_device_vision *vision = NULL;
    uint64_t before = 0;
    uint64_t after = 0;
    *pass = (struct espl_encoder_pass){.batch = batch, .runtime = runtime};
    enum espl_status status = espl_cuda_free_bytes(&before, err);
    if (status == ESPL_OK) {
        status = open_runtime(state, runtime, batch, &vision, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_free_bytes(&after, err);
    }
    if (status == ESPL_OK) {
        status = time_pass(state, vision, pass, err);
    }
    if (status == ESPL_OK) {
        char by_library[48] = "";
        if (pass->by_library > 0) {
            (void)snprintf(by_library, sizeof by_library, ", %llu linears by cuBLASLt",
                           (unsigned long long)pass->by_library);
        }
        pass->device_bytes = before > after ? before - after : 0;
        state->record.count++;
        espl_log(espl_ctx_log(state->ctx), ESPL_LOG_INFO,
                 "%s, batch %zu: %.4g ms (products %.4g, attention %.4g, norms %.4g, rest %.4g)%s",
                 espl_encoder_runtimes[runtime], batch, 1e3 * pass->time.median,
                 1e3 * pass->parts[0], 1e3 * pass->parts[1], 1e3 * pass->parts[2],
                 1e3 * pass->parts[3], by_library);
    }
    if (status == ESPL_OK && runtime == ESPL_ENCODER_PACKED && levels_apply(state, batch)) {
        pass->predicted = espl_encoder_predicted(&state->levels);
    }
    espl_device_vision_destroy(vision);
    return status;
}

static enum espl_status measure_all(struct state *state, struct espl_error *err)
{
    const int64_t *batches = state->params->batches.items;
    const int *runtimes = state->params->runtimes.items;
    const size_t total = state->params->batches.count * state->params->runtimes.count;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < total; i++) {
        const size_t batch = (size_t)batches[i / state->params->runtimes.count];
        const int runtime = runtimes[i % state->params->runtimes.count];
        espl_ctx_progress(state->ctx, i, total, "pass");
        if (espl_ctx_cancelled(state->ctx)) {
            return espl_ctx_stop(state->ctx, err);
        }
        status = measure(state, (enum espl_encoder_runtime)runtime, batch, err);
    }
    if (status == ESPL_OK && state->levels.narrow) {
        espl_log(espl_ctx_log(state->ctx), ESPL_LOG_WARN,
                 "the latency table is of patterns shared by %zu rows; some of this model's are "
                 "shared by fewer: its choices and predictions are of other kernels",
                 state->levels.record.vector);
    }
    return status;
}

enum espl_status espl_encoder_run(struct espl_stage_ctx *ctx,
                                  const struct espl_deploy_params *params, struct espl_error *err)
{
    struct state state = {.ctx = ctx, .params = params};
    const struct espl_artifact *latency = espl_ctx_input(ctx, "latency");
    (void)snprintf(state.record.device, sizeof state.record.device, "%s",
                   espl_ctx_device_fingerprint(ctx));
    enum espl_status status =
        espl_model_open(espl_ctx_input(ctx, "model"), espl_ctx_store(ctx), &state.model, err);
    if (status == ESPL_OK && latency != NULL) {
        state.has_levels = true;
        status = espl_encoder_levels_open(latency, state.model, &state.levels, err);
    }
    if (status == ESPL_OK) {
        status = measure_all(&state, err);
    }
    if (status == ESPL_OK && espl_ctx_input(ctx, "images") != NULL) {
        status = espl_encoder_judge(ctx, state.model, (uint64_t)params->pictures,
                                    (unsigned)params->threads, &state.record.accuracy, err);
    }
    if (status == ESPL_OK) {
        status = espl_encoder_record_write(&state.record, espl_ctx_output(ctx, "bench"), err);
    }
    if (status == ESPL_OK) {
        status = espl_encoder_report(ctx, &state.record, err);
    }
    espl_encoder_levels_close(&state.levels);
    espl_model_close(state.model);
    return status;
}
