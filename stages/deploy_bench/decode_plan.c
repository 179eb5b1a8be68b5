/* deploy-bench, mode decode: what a job may ask for, and what it will take. */
#include "eval/energy/device_meter.h"
#include "eval/host_decode.h"
#include "stages/deploy_bench/decode_run.h"
#include "stages/deploy_bench/deploy_plan.h"
#include "stages/encode_common/coded_linear.h"

#include <stdio.h>

const char *const espl_decode_against[] = {"dense-int4", "dense-int8", "dense-fp16", "none", NULL};
const char *const espl_decode_areas[] = {"auto", "dense", "1x1", "1x2", "2x1", "2x2", NULL};
enum { AGAINST_NONE = 3, AREAS_AUTO = 0 };

/* In the order of the names. */
static const enum espl_device_form against_forms[] = {
    ESPL_DEVICE_DENSE_INT4, ESPL_DEVICE_DENSE_INT8, ESPL_DEVICE_DENSE_FP16};
static const enum espl_iebme_areas areas_of[] = {ESPL_IEBME_DENSE, ESPL_IEBME_DENSE,
                                                 ESPL_IEBME_1X1,   ESPL_IEBME_1X2,
                                                 ESPL_IEBME_2X1,   ESPL_IEBME_2X2};

size_t espl_decode_most(const struct espl_list *list)
{
    const int64_t *items = list->items;
    int64_t most = 0;
    for (size_t i = 0; i < list->count; i++) {
        most = items[i] > most ? items[i] : most;
    }
    return (size_t)most;
}

static enum espl_status check_lists(const struct espl_deploy_params *params, struct espl_error *err)
{
    const int *against = params->against.items;
    const struct {
        const struct espl_list *list;
        const char *name;
        size_t most; /* that a report draws; 0: any number */
    } numbers[] = {{&params->sequences, "sequences", 0},
                   {&params->prompt_tokens, "prompt_tokens", 8},
                   {&params->output_tokens, "output_tokens", 8}};
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof numbers / sizeof numbers[0]; i++) {
        status = espl_deploy_check_numbers(numbers[i].list, numbers[i].name, numbers[i].most, err);
    }
    if (status == ESPL_OK) {
        status = espl_deploy_check_choices(&params->against, "against", espl_decode_against, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < params->against.count; i++) {
        if (against[i] == AGAINST_NONE && params->against.count > 1) {
            espl_fail(err, ESPL_E_JOB, "'none' must stand alone in 'against'");
            return espl_deploy_refuse(err, "param:against", "name the runtimes, or none");
        }
    }
    return status;
}

static enum espl_status check_device(const struct espl_deploy_params *params, const char *device,
                                     struct espl_error *err)
{
    const bool cpu = espl_deploy_is_cpu(device);
    if (cpu && params->areas != AREAS_AUTO) {
        espl_fail(err, ESPL_E_JOB,
                  "'areas' is about CUDA devices; on the CPU a model decodes as it is encoded");
        return espl_deploy_refuse(err, "param:areas", "leave it out, or set 'device' to cuda:0");
    }
    const enum espl_status status = espl_energy_check_choice(params->energy, !cpu, err);
    return status != ESPL_OK || cpu ? status : espl_deploy_check_cuda(device, err);
}

static size_t most_tokens(const struct espl_deploy_params *params)
{
    return espl_decode_most(&params->prompt_tokens) + espl_decode_most(&params->output_tokens);
}

static enum espl_status check_positions(const struct espl_deploy_params *params,
                                        const struct espl_model_config *config,
                                        struct espl_error *err)
{
    const enum espl_status status = espl_device_check_positions(config, most_tokens(params), err);
    return status == ESPL_OK
               ? status
               : espl_blame(err, espl_decode_most(&params->prompt_tokens) > config->max_positions
                                     ? "param:prompt_tokens"
                                     : "param:output_tokens");
}

double espl_decode_sparsity(const json_t *description)
{
    return json_number_value(json_object_get(json_object_get(description, "pruning"), "sparsity"));
}

bool espl_decode_is_against(const struct espl_deploy_params *params, enum espl_device_form runtime)
{
    const int *against = params->against.items;
    for (size_t i = 0; i < params->against.count; i++) {
        if (against[i] != AGAINST_NONE && against_forms[against[i]] == runtime) {
            return true;
        }
    }
    return false;
}

size_t espl_decode_runtimes(const struct espl_deploy_params *params, bool cpu)
{
    const int *against = params->against.items;
    const bool none = params->against.count > 0 && against[0] == AGAINST_NONE;
    return none || cpu ? 1 : params->against.count + 1;
}

struct espl_device_weights_options espl_decode_weights_of(const struct espl_deploy_params *params,
                                                          enum espl_device_form form)
{
    const int64_t *sequences = params->sequences.items;
    return (struct espl_device_weights_options){.form = form,
                                                .automatic = params->areas == AREAS_AUTO,
                                                .areas = areas_of[params->areas],
                                                .tokens = (size_t)sequences[0]};
}

/* The largest runtime at the largest place of the grid. */
static uint64_t device_bytes(const struct espl_deploy_params *params,
                             const struct espl_coded_model *model, double sparsity)
{
    const struct espl_device_decoder_options options = {
        .sequences = espl_decode_most(&params->sequences),
        .prompt = espl_decode_most(&params->prompt_tokens),
        .tokens = most_tokens(params)};
    uint64_t most = 0;
    for (int i = 0; i < ESPL_DEVICE_FORMS; i++) {
        const enum espl_device_form form = (enum espl_device_form)i;
        const struct espl_device_weights_options weights = espl_decode_weights_of(params, form);
        struct espl_device_bytes bytes;
        if (form != ESPL_DEVICE_ENCODED && !espl_decode_is_against(params, form)) {
            continue;
        }
        espl_device_plan_bytes(&model->config, &model->scheme, &weights, sparsity, &options,
                               &bytes);
        most = espl_device_bytes_sum(&bytes) > most ? espl_device_bytes_sum(&bytes) : most;
    }
    return most;
}

/* Codes in memory are those of the file; linears without codes, and all of those whose inputs stay
 * in float, are floats. */
static uint64_t host_bytes(const struct espl_deploy_params *params,
                           const struct espl_coded_model *model)
{
    const struct espl_host_decoder_options options = {
        .sequences = espl_decode_most(&params->sequences),
        .prompt = espl_decode_most(&params->prompt_tokens),
        .tokens = most_tokens(params)};
    const bool floats = model->scheme.activation_bits == ESPL_QUANT_FLOAT_BITS;
    return espl_host_decoder_bytes(&model->config, &model->scheme, &options,
                                   floats ? model->weights * sizeof(float)
                                          : model->code_bytes + model->float_bytes);
}

static enum espl_status check_model(const struct espl_deploy_params *params,
                                    const struct espl_coded_model *model, bool cpu,
                                    struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (!cpu) {
        status = espl_device_check_model(&model->config, model->scheme.weight_bits,
                                         model->scheme.activation_bits, model->scheme.kv_bits, err);
    } else if (espl_model_config_is_vision(&model->config)) {
        status = espl_fail(err, ESPL_E_KIND, "architecture '%s' is not a language model",
                           model->config.architecture);
    }
    return status == ESPL_OK ? check_positions(params, &model->config, err)
                             : espl_blame(err, "input:model");
}

enum espl_status espl_decode_plan(struct espl_plan_ctx *ctx,
                                  const struct espl_deploy_params *params,
                                  struct espl_estimate *est, struct espl_error *err)
{
    const json_t *description = espl_plan_input(ctx, "model");
    const bool cpu = espl_deploy_is_cpu(espl_plan_device(ctx));
    struct espl_coded_model model;
    enum espl_status status = check_lists(params, err);
    if (status == ESPL_OK) {
        status = check_device(params, espl_plan_device(ctx), err);
    }
    if (status != ESPL_OK || description == NULL) {
        return status;
    }
    status = espl_coded_model_read(description, &model, err);
    if (status == ESPL_OK) {
        status = check_model(params, &model, cpu, err);
    }
    if (status == ESPL_OK) {
        const double floats = 6.0; /* of the largest linear: codes, floats, FP16, what is joined */
        const size_t runtimes = espl_decode_runtimes(params, cpu);
        est->host_bytes = (uint64_t)(floats * 4.0 * (double)model.largest) +
                          (cpu ? host_bytes(params, &model) : 0);
        est->device_bytes =
            cpu ? 0 : device_bytes(params, &model, espl_decode_sparsity(description));
        (void)snprintf(est->note, sizeof est->note, "%zu runtime%s at %zu places, on %s", runtimes,
                       runtimes == 1 ? "" : "s",
                       params->sequences.count * params->prompt_tokens.count *
                           params->output_tokens.count,
                       cpu ? "the CPU" : "cuda:0");
    }
    return status;
}
