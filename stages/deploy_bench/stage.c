/* deploy-bench: measures the products of a quantised or encoded model, its decoding, or whole
 * passes of a packed one, on the job's device. */
#include "engine/stage.h"
#include "espalier/kernels.h"
#include "eval/energy/device_meter.h"
#include "stages/deploy_bench/decode_mode.h"
#include "stages/deploy_bench/deploy_measure.h"
#include "stages/deploy_bench/deploy_plan.h"
#include "stages/deploy_bench/deploy_run.h"
#include "stages/deploy_bench/encoder_mode.h"
#include "stages/encode_common/coded_linear.h"

#include <stdio.h>
#include <string.h>

static const struct espl_param params_table[] = {
    {.name = "mode",
     .help =
         "what is measured: kernel = the product of every different matrix by itself; encoder = "
         "whole passes of a packed image model on the CUDA device; decode = a whole language "
         "model, token by token",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "kernel",
     .choices = espl_deploy_modes,
     .offset = offsetof(struct espl_deploy_params, mode)},
    {.name = "tokens",
     .help = "numbers of tokens of a product, each measured",
     .unit = "tokens",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[1, 2, 4, 8, 16, 32]",
     .min = 1.0,
     .max = ESPL_SPMM_MAX_TOKENS,
     .offset = offsetof(struct espl_deploy_params, tokens)},
    {.name = "forms",
     .help = "forms of the weights; the automatic choice is among them",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[dense, 1x1, 1x2, 2x1, 2x2]",
     .choices = espl_deploy_forms,
     .offset = offsetof(struct espl_deploy_params, forms)},
    {.name = "baselines",
     .help = "products of other libraries to compare with; auto = all that the device has",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[auto]",
     .choices = espl_deploy_baselines,
     .offset = offsetof(struct espl_deploy_params, baselines)},
    {.name = "tuning",
     .help = "choices that `espalier bench spmm --tune` stored; they come before the rule",
     .unit = "",
     .type = ESPL_PARAM_PATH,
     .flags = ESPL_PARAM_OPTIONAL | ESPL_PARAM_INPUT_PATH,
     .offset = offsetof(struct espl_deploy_params, tuning)},
    {.name = "atom",
     .help = "on a CUDA device, measure every form also as the layer it belongs to: scales, INT8 "
             "outliers, bias, FP16 results; and the quantiser of its activations",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     .offset = offsetof(struct espl_deploy_params, atom)},
    {.name = "sweep",
     .help = "try every way to cut a product on a CUDA device, too, and report the regret; slow",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     .offset = offsetof(struct espl_deploy_params, sweep)},
    {.name = "repeats",
     .help = "repeats of a timing; median and 95th percentile count",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "11",
     .min = 3.0,
     .max = ESPL_CUDA_MAX_REPEATS,
     .offset = offsetof(struct espl_deploy_params, repeats)},
    {.name = "threads",
     .help = "CPU threads when the CPU is measured; 0 = all",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = ESPL_BACKEND_MAX_THREADS,
     .offset = offsetof(struct espl_deploy_params, threads)},
    {.name = "batches",
     .help = "mode encoder: numbers of pictures of a pass, each measured",
     .unit = "pictures",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[1, 8, 32]",
     .min = 1.0,
     .max = 1024.0,
     .offset = offsetof(struct espl_deploy_params, batches)},
    {.name = "runtimes",
     .help =
         "mode encoder: packed = the model; dense-int8, dense-int8-best and dense-fp16 = random "
         "dense weights in the same pass, by our kernels, by these or cuBLASLt, by cuBLAS",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[packed, dense-int8, dense-int8-best, dense-fp16]",
     .choices = espl_encoder_runtimes,
     .offset = offsetof(struct espl_deploy_params, runtimes)},
    {.name = "pictures",
     .help = "mode encoder, with 'images': how many of them the device and the CPU both classify; "
             "0 = all",
     .unit = "pictures",
     .type = ESPL_PARAM_INT,
     .default_text = "500",
     .min = 0.0,
     .max = 1e9,
     .offset = offsetof(struct espl_deploy_params, pictures)},
    {.name = "sequences",
     .help = "mode decode: how many sequences at a time, each measured",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[1, 8, 16, 32]",
     .min = 1.0,
     .max = 64.0,
     .offset = offsetof(struct espl_deploy_params, sequences)},
    {.name = "prompt_tokens",
     .help = "mode decode: lengths of the prompts, each measured",
     .unit = "tokens",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[64]",
     .min = 1.0,
     .max = 65536.0,
     .offset = offsetof(struct espl_deploy_params, prompt_tokens)},
    {.name = "output_tokens",
     .help = "mode decode: lengths of the outputs, each measured",
     .unit = "tokens",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[64]",
     .min = 2.0,
     .max = 65536.0,
     .offset = offsetof(struct espl_deploy_params, output_tokens)},
    {.name = "against",
     .help = "mode decode: dense runtimes of a CUDA device to compare with: INT4 codes, INT8 by "
             "cuBLASLt, FP16 by cuBLAS",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[dense-int4, dense-int8, dense-fp16]",
     .choices = espl_decode_against,
     .offset = offsetof(struct espl_deploy_params, against)},
    {.name = "areas",
     .help = "mode decode: areas of the weights on a CUDA device; auto = dense or 1x1, whichever "
             "is expected to be faster",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "auto",
     .choices = espl_decode_areas,
     .offset = offsetof(struct espl_deploy_params, areas)},
    {.name = "energy",
     .help = "mode decode: measure energy, too, with this meter (docs/energy.md); auto: ina3221 on "
             "a Jetson, else nvml of a GPU or rapl of a CPU",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "none",
     .choices = espl_energy_choices,
     .offset = offsetof(struct espl_deploy_params, energy)},
    {.name = "energy_seconds",
     .help = "mode decode: how long each energy measurement runs; 100 updates of the meter are the "
             "least that counts",
     .unit = "s",
     .type = ESPL_PARAM_REAL,
     .default_text = "12",
     .min = 1.0,
     .max = 3600.0,
     .offset = offsetof(struct espl_deploy_params, energy_seconds)},
    {.name = "energy_idle_seconds",
     .help = "mode decode: how long each idle window before and after it is",
     .unit = "s",
     .type = ESPL_PARAM_REAL,
     .default_text = "5",
     .min = 1.0,
     .max = 600.0,
     .offset = offsetof(struct espl_deploy_params, energy_idle_seconds)},
    {.name = NULL},
};

static const struct espl_port inputs[] = {
    {"model", "model.quant/1|model.iebme/1|model.nm/1", 0,
     "the model whose matrices, tokens or passes are measured"},
    {"images", "images/1", ESPL_PORT_OPTIONAL,
     "mode encoder: pictures on which the device must agree with the CPU"},
    {"latency", "latency/1", ESPL_PORT_OPTIONAL,
     "mode encoder: which kernel a linear takes, and what the pass should need"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"bench", "bench.spmm/1|bench.encoder/1|bench.decode/1", 0,
     "times of all products, of passes, or of tokens"},
    {NULL, NULL, 0, NULL},
};

/* ---- plan ---- */

static enum espl_status check_lists(const struct espl_deploy_params *params, struct espl_error *err)
{
    const enum espl_status status = espl_deploy_check_numbers(&params->tokens, "tokens", 0, err);
    return status == ESPL_OK
               ? espl_deploy_check_choices(&params->forms, "forms", espl_deploy_forms, err)
               : status;
}

static enum espl_status check_baselines(const struct espl_deploy_params *params, bool cpu,
                                        struct espl_error *err)
{
    const int *baselines = params->baselines.items;
    for (size_t i = 0; i < params->baselines.count; i++) {
        const bool named = baselines[i] != ESPL_DEPLOY_AUTO && baselines[i] != ESPL_DEPLOY_NONE;
        if (!named && params->baselines.count > 1) {
            espl_fail(err, ESPL_E_JOB, "'%s' must stand alone in 'baselines'",
                      espl_deploy_baselines[baselines[i]]);
            return espl_deploy_refuse(err, "param:baselines",
                                      "name the baselines, or none of them");
        }
        if (named && espl_deploy_is_cpu_baseline(baselines[i]) != cpu) {
            espl_fail(err, ESPL_E_JOB, "baseline '%s' does not run on %s",
                      espl_deploy_baselines[baselines[i]], cpu ? "the CPU" : "a CUDA device");
            return espl_deploy_refuse(err, "param:baselines",
                                      "auto takes those of the job's device");
        }
    }
    return ESPL_OK;
}

static enum espl_status check_device(const struct espl_deploy_params *params, const char *device,
                                     struct espl_error *err)
{
    const bool cpu = espl_deploy_is_cpu(device);
    if (cpu && (params->tuning != NULL || params->sweep || params->atom)) {
        const char *name = params->tuning != NULL ? "param:tuning"
                           : params->sweep        ? "param:sweep"
                                                  : "param:atom";
        espl_fail(err, ESPL_E_JOB, "'%s' is about CUDA devices, but the job measures the CPU",
                  name + strlen("param:"));
        return espl_deploy_refuse(err, name, "leave it out, or set 'device' to cuda:0");
    }
    enum espl_status status = cpu ? ESPL_OK : espl_deploy_check_cuda(device, err);
    if (status == ESPL_OK) {
        status =
            espl_deploy_check_choices(&params->baselines, "baselines", espl_deploy_baselines, err);
    }
    return status == ESPL_OK ? check_baselines(params, cpu, err) : status;
}

static enum espl_status check_bits(const struct espl_deploy_params *params, unsigned bits, bool cpu,
                                   struct espl_error *err)
{
    const int *forms = params->forms.items;
    const bool dense_only =
        params->forms.count == 1 && strcmp(espl_deploy_forms[forms[0]], "dense") == 0;
    return espl_deploy_check_bits(bits, cpu, dense_only, err) == ESPL_OK
               ? ESPL_OK
               : espl_blame(err, "input:model");
}

/* Of modes that measure language models. */
static enum espl_status check_inputs(const struct espl_plan_ctx *ctx,
                                     const struct espl_deploy_params *params,
                                     struct espl_error *err)
{
    if (espl_plan_is_connected(ctx, "images") || espl_plan_is_connected(ctx, "latency")) {
        espl_fail(err, ESPL_E_JOB, "'images' and 'latency' belong to mode 'encoder'");
        return espl_deploy_refuse(err, "param:mode",
                                  "set mode: encoder, or leave these inputs out");
    }
    if (espl_encoder_is_packed(espl_plan_input(ctx, "model"))) {
        espl_fail(err, ESPL_E_KIND, "mode '%s' does not measure models that nm-pack made",
                  espl_deploy_modes[params->mode]);
        return espl_deploy_refuse(err, "input:model",
                                  "use mode: encoder, or `espalier bench nm` for single products");
    }
    return ESPL_OK;
}

static enum espl_status plan_kernels(struct espl_plan_ctx *ctx,
                                     const struct espl_deploy_params *params,
                                     struct espl_estimate *est, struct espl_error *err)
{
    enum { DEVICE_BYTES = (1 << 30) };
    const json_t *description = espl_plan_input(ctx, "model");
    const bool cpu = espl_deploy_is_cpu(espl_plan_device(ctx));
    struct espl_coded_model model;
    enum espl_status status = check_lists(params, err);
    if (status == ESPL_OK) {
        status = check_device(params, espl_plan_device(ctx), err);
    }
    if (status == ESPL_OK && params->tuning != NULL) {
        status = espl_plan_add_file(ctx, "tuning", params->tuning, err);
        if (status != ESPL_OK) {
            espl_blame(err, "param:tuning");
        }
    }
    if (status == ESPL_OK) {
        status = check_inputs(ctx, params, err);
    }
    if (status != ESPL_OK || description == NULL) {
        return status;
    }
    status = espl_coded_model_read(description, &model, err);
    if (status == ESPL_OK) {
        status = check_bits(params, model.scheme.weight_bits, cpu, err);
    }
    if (status == ESPL_OK) {
        /* Codes, encoded ones, floats of a baseline; the copies of one form after the other. */
        est->host_bytes =
            8 * model.largest + (cpu ? params->forms.count + 1 : 0) * ESPL_SPMM_CPU_COPIES;
        const uint64_t copies = params->atom ? 4 : 2; /* of the forms, and of their layers */
        est->device_bytes = cpu ? 0 : copies * DEVICE_BYTES + 16 * model.largest;
        (void)snprintf(est->note, sizeof est->note, "%zu forms at %zu numbers of tokens, on %s",
                       params->forms.count, params->tokens.count, cpu ? "the CPU" : "cuda:0");
    }
    return status;
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    enum { OUTPUT_BYTES = 1 << 20 };
    const struct espl_deploy_params *params = stage_params;
    est->output_bytes = OUTPUT_BYTES;
    if (params->mode == ESPL_DEPLOY_DECODE) {
        const enum espl_status status = check_inputs(ctx, params, err);
        return status == ESPL_OK ? espl_decode_plan(ctx, params, est, err) : status;
    }
    return params->mode == ESPL_DEPLOY_ENCODER ? espl_encoder_plan(ctx, params, est, err)
                                               : plan_kernels(ctx, params, est, err);
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *stage_params,
                            struct espl_error *err)
{
    const struct espl_deploy_params *params = stage_params;
    return params->mode == ESPL_DEPLOY_ENCODER  ? espl_encoder_run(ctx, params, err)
           : params->mode == ESPL_DEPLOY_DECODE ? espl_decode_run(ctx, params, err)
                                                : espl_deploy_run(ctx, params, err);
}

const struct espl_stage espl_stage_deploy_bench = {
    .name = "deploy-bench",
    .summary = "times of a model's products or passes on this device, beside others",
    .cache_version = 1,
    .flags = ESPL_STAGE_MEASURES | ESPL_STAGE_ON_DEVICE,
    .params = params_table,
    .params_size = sizeof(struct espl_deploy_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};
