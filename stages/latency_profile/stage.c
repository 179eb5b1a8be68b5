/* latency-profile: measures what layers and whole models cost on this machine, or takes a table
 * that was measured elsewhere, and fits the predictor of the whole. */
#include "engine/stage.h"
#include "core/fs.h"
#include "eval/device_vision.h"
#include "eval/energy/device_meter.h"
#include "eval/vision.h"
#include "model/model.h"
#include "stages/latency_profile/latency_energy.h"
#include "stages/latency_profile/latency_holdout.h"
#include "stages/latency_profile/latency_measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct latency_params {
    const char *table; /* NULL = measure */
    bool allow_foreign;
    int64_t batch, m, vector, threads, repeats, runs, run_repeats, holdout_runs;
    int gamma; /* enum espl_gamma_mode */
    double ridge, max_error;
    int energy; /* enum espl_energy_choice */
    double energy_run, energy_idle, energy_interval;
};

static const struct espl_param params_table[] = {
    {.name = "table",
     .help =
         "a table measured elsewhere (JSON, docs/search.md); then nothing is measured and batch, "
         "m, vector, threads, repeats, runs and holdout_runs do not count",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct latency_params, table)},
    {.name = "allow_foreign",
     .help = "take a table that was measured on another device than this one",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     .offset = offsetof(struct latency_params, allow_foreign)},
    {.name = "batch",
     .help = "images that the model gets at once",
     .unit = "images",
     .type = ESPL_PARAM_INT,
     .default_text = "1",
     .min = 1.0,
     .max = 65536.0,
     .offset = offsetof(struct latency_params, batch)},
    {.name = "m",
     .help = "window length of the N:M levels: 4, 8 or 16, as in nm-supernet",
     .unit = "inputs",
     .type = ESPL_PARAM_INT,
     .default_text = "8",
     .min = 1.0,
     .max = 16.0,
     .offset = offsetof(struct latency_params, m)},
    {.name = "vector",
     .help = "output channels that share a pattern, as sparse products need them; on a CUDA device "
             "1, 8, 16, 32 or 64; 0 = no sparse product: every level costs what the dense layer "
             "costs",
     .unit = "channels",
     .type = ESPL_PARAM_INT,
     .default_text = "64",
     .min = 0.0,
     .max = 65536.0,
     .offset = offsetof(struct latency_params, vector)},
    {.name = "threads",
     .help =
         "CPU threads; 0 = all; with 1, CPU time is measured, which a busy machine hardly changes",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = ESPL_BACKEND_MAX_THREADS,
     .offset = offsetof(struct latency_params, threads)},
    {.name = "repeats",
     .help = "timed products of a table entry; the median counts",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "30",
     .min = 3.0,
     .max = 100000.0,
     .offset = offsetof(struct latency_params, repeats)},
    {.name = "runs",
     .help = "whole passes with different configurations, to fit the predictor to; 0 = none",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "32",
     .min = 0.0,
     .max = ESPL_LATENCY_MAX_RUNS,
     .offset = offsetof(struct latency_params, runs)},
    {.name = "run_repeats",
     .help = "timed passes of each of these configurations; the median counts",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "7",
     .min = 1.0,
     .max = 100000.0,
     .offset = offsetof(struct latency_params, run_repeats)},
    {.name = "holdout_runs",
     .help = "whole passes with other configurations, to which nothing is fitted: the error of the "
             "predictor on them is reported",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = ESPL_LATENCY_MAX_RUNS,
     .offset = offsetof(struct latency_params, holdout_runs)},
    {.name = "gamma",
     .help = "correction factors of the predictor: one a layer shape, one a layer held near 1, or "
             "one a layer",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "per_shape",
     .choices = espl_gamma_modes,
     .offset = offsetof(struct latency_params, gamma)},
    {.name = "ridge",
     .help = "gamma: shrunk: weight of a factor's distance from 1 against relative errors",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "0.02",
     .min = 1e-6,
     .max = 1e6,
     .offset = offsetof(struct latency_params, ridge)},
    {.name = "max_error",
     .help = "largest relative error of a left-out run with which the predictor counts as safe",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "0.1",
     .min = 1e-6,
     .max = 10.0,
     .offset = offsetof(struct latency_params, max_error)},
    {.name = "energy",
     .help =
         "measure energy, too, with this meter (docs/energy.md); auto: ina3221 on a Jetson, else "
         "rapl of a CPU or nvml of a GPU",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "none",
     .choices = espl_energy_choices,
     .offset = offsetof(struct latency_params, energy)},
    {.name = "energy_run",
     .help = "how long each table entry and each pass is repeated for its energy: 100 readings are "
             "the least that counts",
     .unit = "",
     .type = ESPL_PARAM_DURATION,
     .default_text = "10s",
     .min = 0.1,
     .max = 3600.0,
     .offset = offsetof(struct latency_params, energy_run)},
    {.name = "energy_idle",
     .help =
         "idle time before and after each, whose power is subtracted: 20 readings are the least",
     .unit = "",
     .type = ESPL_PARAM_DURATION,
     .default_text = "5s",
     .min = 0.1,
     .max = 3600.0,
     .offset = offsetof(struct latency_params, energy_idle)},
    {.name = "energy_interval",
     .help = "time between readings of the meter",
     .unit = "",
     .type = ESPL_PARAM_DURATION,
     .default_text = "50ms",
     .min = 0.001,
     .max = 1.0,
     .offset = offsetof(struct latency_params, energy_interval)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", "model.dense/1", 0, "an image model: its layers are what is measured"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"latency", "latency/1", 0, "costs of every layer and level, and a predictor of the whole"},
    {NULL, NULL, 0, NULL},
};

static struct espl_latency_plan make_plan(const struct latency_params *params)
{
    return (struct espl_latency_plan){.batch = (size_t)params->batch,
                                      .m = (unsigned)params->m,
                                      .vector = (size_t)params->vector,
                                      .repeats = (size_t)params->repeats,
                                      .runs = (size_t)params->runs,
                                      .run_repeats = (size_t)params->run_repeats,
                                      .holdout_runs = (size_t)params->holdout_runs};
}

static struct espl_latency_energy_plan make_energy_plan(const struct latency_params *params)
{
    return (struct espl_latency_energy_plan){.run_s = params->energy_run,
                                             .idle_s = params->energy_idle};
}

static enum espl_status plan_measuring(const struct latency_params *params, bool cuda,
                                       const struct espl_model_config *config,
                                       struct espl_estimate *est, struct espl_error *err)
{
    enum { CUDA_COPIES = 8 /* of the weights: one a level */ };
    struct espl_nm_layers layers = {0};
    enum espl_status status = espl_nm_check_m(params->m, err);
    if (status == ESPL_OK) {
        status = espl_nm_layers_all(config, (unsigned)params->m, &layers, err);
    }
    if (status == ESPL_OK) {
        est->host_bytes = espl_nm_stack_bytes(&layers, (size_t)params->batch);
        est->device_bytes =
            cuda ? CUDA_COPIES * espl_device_vision_bytes(config, (size_t)params->batch) : 0;
        est->flop = espl_vision_flop(config) * (double)params->batch *
                    (double)((params->runs + params->holdout_runs) * (params->run_repeats + 1));
        (void)snprintf(est->note, sizeof est->note, "%zu layers at batch %lld, %lld whole passes",
                       layers.count, (long long)params->batch,
                       (long long)(params->runs + params->holdout_runs));
    }
    espl_nm_layers_free(&layers);
    return status;
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    enum { OUTPUT_BYTES = 1 << 18 };
    const struct latency_params *params = stage_params;
    const json_t *model = espl_plan_input(ctx, "model");
    struct espl_model_config config;
    est->output_bytes = OUTPUT_BYTES;
    if (params->table != NULL) {
        const enum espl_status status = espl_plan_add_file(ctx, "table", params->table, err);
        if (status != ESPL_OK) {
            espl_blame(err, "param:table");
        }
        return status;
    }
    if (params->vector == 0) {
        espl_plan_warn(ctx,
                       "'vector' is 0: no sparse product is measured, so every level will cost "
                       "what the dense layer costs");
    }
    const char *device = espl_plan_device(ctx);
    enum espl_status status = espl_nm_stack_check(device, (size_t)params->vector, err);
    if (status == ESPL_OK) {
        status = espl_energy_check_choice(params->energy, espl_nm_stack_is_cuda(device), err);
    }
    if (status != ESPL_OK || model == NULL) {
        return status;
    }
    status = espl_model_config_from_description(model, &config, err);
    return status == ESPL_OK
               ? plan_measuring(params, espl_nm_stack_is_cuda(device), &config, est, err)
               : status;
}

/* ---- run ---- */

static enum espl_status read_table(struct espl_stage_ctx *ctx, const struct latency_params *params,
                                   struct espl_latency_record *record, struct espl_error *err)
{
    enum { MOST_BYTES = 64 << 20 };
    json_error_t where;
    const char *here = espl_ctx_device_fingerprint(ctx);
    char *text = NULL;
    size_t len = 0;
    enum espl_status status = espl_fs_read_file(params->table, MOST_BYTES, &text, &len, err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *json = json_loadb(text, len, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (json == NULL) {
        espl_fail(err, ESPL_E_CORRUPT, "latency table '%s' is no JSON: line %d: %s", params->table,
                  where.line, where.text);
        return espl_blame(err, "param:table");
    }
    status = espl_latency_record_from_json(json, record, err);
    json_decref(json);
    if (status != ESPL_OK) {
        espl_context(err, "reading latency table '%s'", params->table);
        return espl_blame(err, "param:table");
    }
    record->accepted = params->allow_foreign;
    if (espl_latency_same_device(record->device, here)) {
        return ESPL_OK;
    }
    if (!params->allow_foreign) {
        espl_fail(err, ESPL_E_MACHINE,
                  "latency table '%s' was measured on '%.100s', this is '%.100s'", params->table,
                  record->device, here);
        espl_hint(err, "set 'allow_foreign: true' to search for that device");
        return espl_blame(err, "param:table");
    }
    espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN,
             "the latency table is of another device, '%s': speed-ups are predicted for that one",
             record->device);
    return ESPL_OK;
}

static enum espl_status measure(struct espl_stage_ctx *ctx, const struct latency_params *params,
                                const struct espl_model_config *config,
                                struct espl_latency_record *record, struct espl_error *err)
{
    const struct espl_latency_plan asked = make_plan(params);
    const struct espl_latency_energy_plan energy = make_energy_plan(params);
    const char *device = espl_ctx_device(ctx);
    struct espl_nm_layers layers = {0};
    struct espl_nm_stack *stack = NULL;
    struct espl_energy_meter *meter = NULL;
    /* A meter that is missing shows before minutes of timings, not after them. */
    enum espl_status status = espl_energy_open_choice(params->energy, espl_nm_stack_is_cuda(device),
                                                      params->energy_interval, &meter, err);
    if (status == ESPL_OK) {
        status = espl_nm_layers_all(config, asked.m, &layers, err);
    }
    if (status == ESPL_OK) {
        const struct espl_nm_stack_plan plan = {.device = device,
                                                .threads = (unsigned)params->threads,
                                                .config = config,
                                                .layers = &layers,
                                                .batch = asked.batch,
                                                .m = asked.m,
                                                .vector = asked.vector > 0 ? asked.vector : 1};
        status = espl_nm_stack_open(&plan, &stack, err);
    }
    if (status == ESPL_OK) {
        status = espl_latency_record_begin(&layers, &asked, espl_ctx_device_fingerprint(ctx),
                                           espl_nm_stack_kernels(device), record, err);
    }
    if (status == ESPL_OK) {
        record->threads = espl_nm_stack_threads(stack);
        status = espl_latency_measure(ctx, stack, &asked, record, err);
    }
    if (status == ESPL_OK) {
        status = espl_latency_measure_holdout(ctx, stack, &asked, record, err);
    }
    if (status == ESPL_OK && meter != NULL) {
        status = espl_latency_measure_energy(ctx, stack, &energy, meter, record, err);
    }
    espl_energy_close(meter);
    espl_nm_stack_destroy(stack);
    espl_nm_layers_free(&layers);
    return status;
}

/* Are the table's layers those of the model? */
static enum espl_status check_layers(const struct espl_model_config *config,
                                     const struct espl_latency_record *record,
                                     struct espl_error *err)
{
    struct espl_nm_layers layers = {0};
    enum espl_status status = espl_nm_layers_all(config, 1, &layers, err);
    if (status == ESPL_OK && layers.count != record->layer_count) {
        status = espl_fail(err, ESPL_E_KIND, "the latency table has %zu layers, the model %zu",
                           record->layer_count, layers.count);
    }
    for (size_t i = 0; status == ESPL_OK && i < layers.count; i++) {
        const struct espl_latency_shape *found = &record->shapes[record->shape_of[i]];
        const struct espl_latency_shape shape =
            espl_nm_layer_shape(&layers.items[i], record->batch);
        const char *module = layers.items[i].spec.module;
        if (strcmp(record->modules[i], module) != 0) {
            status = espl_fail(err, ESPL_E_KIND,
                               "layer %zu of the latency table is '%s', of the model '%s'", i,
                               record->modules[i], module);
        } else if (found->tokens != shape.tokens || found->in != shape.in ||
                   found->out != shape.out) {
            status = espl_fail(err, ESPL_E_KIND,
                               "layer '%s' is %zu x %zu at %zu tokens in the latency table, %zu x "
                               "%zu at %zu in the model",
                               module, found->out, found->in, found->tokens, shape.out, shape.in,
                               shape.tokens);
        }
    }
    espl_nm_layers_free(&layers);
    return status;
}

static enum espl_status report(struct espl_stage_ctx *ctx, const char *cost,
                               const struct espl_predictor_health *health, bool measured,
                               struct espl_error *err)
{
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"predictor_left_out_mean_error", health->left_out_mean_error},
        {"predictor_left_out_max_error", health->left_out_max_error},
        {"predictor_zero_gammas", (double)health->zero_gammas},
        {"predictor_condition", health->condition},
        {"predictor_safe", health->safe ? 1.0 : 0.0},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof figures / sizeof figures[0]; i++) {
        char name[80];
        (void)snprintf(name, sizeof name, "%s_%s", cost, figures[i].name);
        if (isfinite(figures[i].value)) {
            status = espl_ctx_metric(ctx, name, figures[i].value, measured, err);
        }
    }
    if (!health->safe) {
        espl_log(espl_ctx_log(ctx), ESPL_LOG_WARN, "the %s predictor is not safe: %s", cost,
                 health->reason);
    }
    return status;
}

static enum espl_status write_record(struct espl_stage_ctx *ctx,
                                     const struct espl_latency_record *record,
                                     struct espl_error *err)
{
    json_t *json = espl_latency_record_to_json(record);
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const enum espl_status status =
        text == NULL ? espl_fail(err, ESPL_E_NOMEM, "no memory for the latency table")
                     : espl_artifact_set_description(espl_ctx_output(ctx, "latency"), text, err);
    free(text);
    json_decref(json);
    return status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *stage_params,
                            struct espl_error *err)
{
    const struct latency_params *params = stage_params;
    const bool measured = params->table == NULL;
    struct espl_latency_record record = {0};
    struct espl_model *model = NULL;
    enum espl_status status =
        espl_model_open(espl_ctx_input(ctx, "model"), espl_ctx_store(ctx), &model, err);
    if (status != ESPL_OK) {
        return status;
    }
    const struct espl_model_config *config = espl_model_get_config(model);
    status = measured ? measure(ctx, params, config, &record, err)
                      : read_table(ctx, params, &record, err);
    if (status == ESPL_OK) {
        status = check_layers(config, &record, err);
        if (status != ESPL_OK) {
            espl_blame(err, "param:table"); /* what was measured here is of this model */
        }
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    record.fit = (struct espl_predictor_options){.gamma = (enum espl_gamma_mode)params->gamma,
                                                 .ridge = params->ridge,
                                                 .max_error = params->max_error};
    status = espl_latency_record_fit(&record, err);
    if (status == ESPL_OK) {
        status = report(ctx, "latency", &record.latency.predictor.health, measured, err);
    }
    if (status == ESPL_OK) {
        status = espl_latency_report_holdout(ctx, &record, err);
    }
    if (status == ESPL_OK && record.energy.present) {
        status = report(ctx, "energy", &record.energy.predictor.health, measured, err);
    }
    if (status == ESPL_OK) {
        status = write_record(ctx, &record, err);
    }

cleanup:
    espl_latency_record_free(&record);
    espl_model_close(model);
    return status;
}

const struct espl_stage espl_stage_latency_profile = {
    .name = "latency-profile",
    .summary = "costs of N:M layers on this machine or from a table, and a predictor of the whole",
    .cache_version = 2,
    .flags = ESPL_STAGE_MEASURES | ESPL_STAGE_MAY_USE_DEVICE,
    .params = params_table,
    .params_size = sizeof(struct latency_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};
