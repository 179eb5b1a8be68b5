#include "stages/deploy_bench/decode_mode.h"

#include "core/log.h"
#include "core/order.h"
#include "espalier/cuda_memory.h"
#include "espalier/cuda_probe.h"
#include "eval/energy/meter.h"
#include "kernels/bench/spmm_bench.h"
#include "stages/deploy_bench/deploy_plan.h"
#include "stages/encode_common/coded_linear.h"

#include <stdio.h>
#include <stdlib.h>

const char *const espl_decode_against[] = {"dense-int4", "dense-int8", "dense-fp16", "none", NULL};
const char *const espl_decode_areas[] = {"auto", "dense", "1x1", "1x2", "2x1", "2x2", NULL};
enum { AGAINST_NONE = 3, AREAS_AUTO = 0, PROMPT_REPEATS = 3, OUTPUT_REPEATS = 3 };

/* In the order of the names. */
static const enum espl_device_form against_forms[] = {
    ESPL_DEVICE_DENSE_INT4, ESPL_DEVICE_DENSE_INT8, ESPL_DEVICE_DENSE_FP16};
static const enum espl_iebme_areas areas_of[] = {ESPL_IEBME_DENSE, ESPL_IEBME_DENSE,
                                                 ESPL_IEBME_1X1,   ESPL_IEBME_1X2,
                                                 ESPL_IEBME_2X1,   ESPL_IEBME_2X2};

/* ---- plan ---- */

static size_t most_of(const struct espl_list *list)
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

static enum espl_status check_device(const char *device, struct espl_error *err)
{
    if (espl_deploy_is_cpu(device)) {
        espl_fail(
            err, ESPL_E_JOB,
            "mode 'decode' runs on a CUDA device alone: there is no cache of keys on the CPU");
        return espl_deploy_refuse(
            err, "param:mode",
            "use mode: kernel for the CPU's products, or set 'device' to cuda:0");
    }
    return espl_deploy_check_cuda(device, err);
}

static enum espl_status check_positions(const struct espl_deploy_params *params,
                                        const struct espl_model_config *config,
                                        struct espl_error *err)
{
    const size_t tokens = most_of(&params->prompt_tokens) + most_of(&params->output_tokens);
    const enum espl_status status = espl_device_check_positions(config, tokens, err);
    return status == ESPL_OK
               ? status
               : espl_blame(err, most_of(&params->prompt_tokens) > config->max_positions
                                     ? "param:prompt_tokens"
                                     : "param:output_tokens");
}

/* Sparsity that pruning aimed at; 0 when the model does not say. */
static double sparsity_of(const json_t *description)
{
    return json_number_value(json_object_get(json_object_get(description, "pruning"), "sparsity"));
}

static struct espl_device_weights_options weights_of(const struct espl_deploy_params *params,
                                                     enum espl_device_form form)
{
    const int64_t *sequences = params->sequences.items;
    return (struct espl_device_weights_options){.form = form,
                                                .automatic = params->areas == AREAS_AUTO,
                                                .areas = areas_of[params->areas],
                                                .tokens = (size_t)sequences[0]};
}

/* The encoded model and those it is compared with. */
static size_t runtimes_of(const struct espl_deploy_params *params)
{
    const int *against = params->against.items;
    const bool none = params->against.count > 0 && against[0] == AGAINST_NONE;
    return none ? 1 : params->against.count + 1;
}

/* The largest runtime at the largest place of the grid. */
static uint64_t planned_bytes(const struct espl_deploy_params *params,
                              const struct espl_coded_model *model, double sparsity)
{
    const int *against = params->against.items;
    const struct espl_device_decoder_options options = {.sequences = most_of(&params->sequences),
                                                        .prompt = most_of(&params->prompt_tokens),
                                                        .tokens = most_of(&params->prompt_tokens) +
                                                                  most_of(&params->output_tokens)};
    uint64_t most = 0;
    for (size_t i = 0; i <= params->against.count; i++) {
        const enum espl_device_form form = i == params->against.count   ? ESPL_DEVICE_ENCODED
                                           : against[i] == AGAINST_NONE ? ESPL_DEVICE_ENCODED
                                                                        : against_forms[against[i]];
        const struct espl_device_weights_options weights = weights_of(params, form);
        struct espl_device_bytes bytes;
        espl_device_plan_bytes(&model->config, &model->scheme, &weights, sparsity, &options,
                               &bytes);
        most = espl_device_bytes_sum(&bytes) > most ? espl_device_bytes_sum(&bytes) : most;
    }
    return most;
}

enum espl_status espl_decode_plan(struct espl_plan_ctx *ctx,
                                  const struct espl_deploy_params *params,
                                  struct espl_estimate *est, struct espl_error *err)
{
    const json_t *description = espl_plan_input(ctx, "model");
    struct espl_coded_model model;
    enum espl_status status = check_lists(params, err);
    if (status == ESPL_OK) {
        status = check_device(espl_plan_device(ctx), err);
    }
    if (status != ESPL_OK || description == NULL) {
        return status;
    }
    status = espl_coded_model_read(description, &model, err);
    if (status == ESPL_OK) {
        status = espl_device_check_model(&model.config, model.scheme.weight_bits,
                                         model.scheme.activation_bits, model.scheme.kv_bits, err);
        if (status != ESPL_OK) {
            espl_blame(err, "input:model");
        }
    }
    if (status == ESPL_OK) {
        status = check_positions(params, &model.config, err);
    }
    if (status == ESPL_OK) {
        const double floats = 6.0; /* of the largest linear: codes, floats, FP16, what is joined */
        est->host_bytes = (uint64_t)(floats * 4.0 * (double)model.largest);
        est->device_only = true;
        est->device_bytes = planned_bytes(params, &model, sparsity_of(description));
        (void)snprintf(est->note, sizeof est->note, "%zu runtimes at %zu places, on cuda:0",
                       runtimes_of(params),
                       params->sequences.count * params->prompt_tokens.count *
                           params->output_tokens.count);
    }
    return status;
}

/* ---- run ---- */

struct state {
    struct espl_stage_ctx *ctx;
    const struct espl_deploy_params *params;
    struct espl_model *model;
    struct espl_energy_meter *meter;
    struct espl_decode_record record;
    double sparsity;
    size_t cells;  /* of all runtimes */
    bool has_int4; /* dense-int4 was measured with the encoded weights */
};

/* Prompts are random ids: what they say does not change what they cost. */
static int32_t *random_prompts(const struct state *state, const struct espl_decode_cell *cell,
                               struct espl_error *err)
{
    struct espl_rng rng = espl_rng_stream(0, "decode-prompts", 0);
    const uint64_t vocabulary = espl_model_get_config(state->model)->vocab;
    const size_t count = cell->sequences * cell->prompt;
    int32_t *ids = malloc(count * sizeof *ids);
    for (size_t i = 0; ids != NULL && i < count; i++) {
        ids[i] = (int32_t)espl_rng_below(&rng, vocabulary);
    }
    if (ids == NULL) {
        espl_fail(err, ESPL_E_NOMEM, "out of memory for prompts");
    }
    return ids;
}

static enum espl_status time_prompts(struct espl_device_decoder *decoder, const int32_t *ids,
                                     double *median, struct espl_error *err)
{
    double seconds[PROMPT_REPEATS];
    enum espl_status status = espl_device_read_prompt(decoder, ids, err); /* warm-up */
    for (size_t i = 0; status == ESPL_OK && i < PROMPT_REPEATS; i++) {
        const double start = espl_clock_monotonic();
        status = espl_device_read_prompt(decoder, ids, err);
        seconds[i] = espl_clock_monotonic() - start;
    }
    if (status == ESPL_OK) {
        qsort(seconds, PROMPT_REPEATS, sizeof *seconds, espl_compare_doubles);
        *median = seconds[PROMPT_REPEATS / 2];
    }
    return status;
}

/* Several outputs after the same prompt; every step counts. */
static enum espl_status time_outputs(struct espl_device_decoder *decoder, const int32_t *ids,
                                     struct espl_decode_cell *cell, struct espl_error *err)
{
    const size_t steps = cell->output - 1;
    const size_t count = OUTPUT_REPEATS * steps;
    double sum = 0.0;
    double *seconds = malloc(count * sizeof *seconds);
    enum espl_status status =
        seconds != NULL ? ESPL_OK : espl_fail(err, ESPL_E_NOMEM, "out of memory for times");
    for (size_t i = 0; status == ESPL_OK && i < OUTPUT_REPEATS; i++) {
        status = espl_device_read_prompt(decoder, ids, err);
        if (status == ESPL_OK) {
            status = espl_device_decode(decoder, steps, seconds + i * steps, err);
        }
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        sum += seconds[i];
    }
    if (status == ESPL_OK) {
        qsort(seconds, count, sizeof *seconds, espl_compare_doubles);
        cell->step_median = seconds[count / 2];
        cell->step_p95 = seconds[count * 95 / 100];
        cell->tokens_per_second = (double)(cell->sequences * count) / sum;
    }
    free(seconds);
    return status;
}

static enum espl_status measure_decoder(struct state *state, struct espl_device_decoder *decoder,
                                        const int32_t *ids, struct espl_decode_cell *cell,
                                        struct espl_error *err)
{
    enum espl_status status = time_prompts(decoder, ids, &cell->first_token_seconds, err);
    if (status == ESPL_OK) {
        status = time_outputs(decoder, ids, cell, err);
    }
    if (status == ESPL_OK) {
        status = espl_device_time_step(decoder, (size_t)state->params->repeats, &cell->times, err);
    }
    if (status == ESPL_OK && state->meter != NULL && cell->runtime == ESPL_DEVICE_ENCODED) {
        status = espl_decode_measure_energy(state->ctx, state->params, state->meter, decoder, ids,
                                            cell, err);
    }
    cell->measured = status == ESPL_OK;
    return status;
}

/* free_before: device memory that was free before the weights came. */
static enum espl_status measure_cell(struct state *state, struct espl_device_weights *weights,
                                     uint64_t free_before, struct espl_decode_cell *cell,
                                     struct espl_error *err)
{
    const struct espl_device_decoder_options options = {.sequences = cell->sequences,
                                                        .prompt = cell->prompt,
                                                        .tokens = cell->prompt + cell->output,
                                                        .overlap = true};
    const struct espl_device_weights_options form = weights_of(state->params, cell->runtime);
    struct espl_device_decoder *decoder = NULL;
    struct espl_device_bytes bytes;
    uint64_t free_now = 0;
    if (espl_ctx_cancelled(state->ctx)) {
        return espl_ctx_stop(state->ctx, err);
    }
    espl_ctx_progress(state->ctx, state->record.count, state->cells, "run");
    espl_device_plan_bytes(espl_model_get_config(state->model),
                           espl_model_quant_scheme(state->model), &form, state->sparsity, &options,
                           &bytes);
    cell->planned_bytes = espl_device_bytes_sum(&bytes);
    cell->areas = espl_device_weights_areas(weights);
    cell->weight_bytes = espl_device_weights_bytes(weights);
    int32_t *ids = random_prompts(state, cell, err);
    enum espl_status status = ids != NULL ? ESPL_OK : ESPL_E_NOMEM;
    if (status == ESPL_OK) {
        status = espl_device_decoder_create(weights, &options, &decoder, err);
    }
    if (status == ESPL_OK) {
        status = measure_decoder(state, decoder, ids, cell, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_free_bytes(&free_now, err);
        cell->device_bytes = free_before > free_now ? free_before - free_now : 0;
    }
    if (status == ESPL_OK) {
        espl_decode_cell_say(cell, state->ctx);
    }
    espl_device_decoder_destroy(decoder);
    free(ids);
    return status;
}

static enum espl_status measure_grid(struct state *state, enum espl_device_form runtime,
                                     struct espl_device_weights *weights, uint64_t free_before,
                                     struct espl_error *err)
{
    const int64_t *sequences = state->params->sequences.items;
    const int64_t *prompts = state->params->prompt_tokens.items;
    const int64_t *outputs = state->params->output_tokens.items;
    const size_t prompt_count = state->params->prompt_tokens.count;
    const size_t output_count = state->params->output_tokens.count;
    const size_t places = state->params->sequences.count * prompt_count * output_count;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < places; i++) {
        struct espl_decode_cell *cell = &state->record.cells[state->record.count++];
        cell->runtime = runtime;
        cell->sequences = (size_t)sequences[i / (prompt_count * output_count)];
        cell->prompt = (size_t)prompts[i / output_count % prompt_count];
        cell->output = (size_t)outputs[i % output_count];
        status = measure_cell(state, weights, free_before, cell, err);
    }
    return status;
}

static bool is_against(const struct state *state, enum espl_device_form runtime)
{
    const int *against = state->params->against.items;
    for (size_t i = 0; i < state->params->against.count; i++) {
        if (against[i] != AGAINST_NONE && against_forms[against[i]] == runtime) {
            return true;
        }
    }
    return false;
}

/* A runtime to compare with that cannot be had here is said and left out. */
static enum espl_status leave_out(struct state *state, enum espl_device_form runtime, size_t first,
                                  enum espl_status status, struct espl_error *err)
{
    if (runtime != ESPL_DEVICE_ENCODED &&
        (status == ESPL_E_UNSUPPORTED || status == ESPL_E_NOMEM)) {
        espl_log(espl_ctx_log(state->ctx), ESPL_LOG_WARN, "'%s' was not measured: %s",
                 espl_device_form_name(runtime), err->message);
        state->record.count = first;
        return ESPL_OK;
    }
    if (status != ESPL_OK) {
        espl_context(err, "measuring '%s'", espl_device_form_name(runtime));
    }
    return status;
}

/* Encoded weights that came out dense are those of dense-int4, too. */
static enum espl_status measure_runtime(struct state *state, enum espl_device_form runtime,
                                        struct espl_error *err)
{
    const struct espl_device_weights_options options = weights_of(state->params, runtime);
    const size_t first = state->record.count;
    struct espl_device_weights *weights = NULL;
    uint64_t free_before = 0;
    enum espl_status status = espl_cuda_free_bytes(&free_before, err);
    if (status == ESPL_OK) {
        status = espl_device_weights_create(state->model, &options, &weights, err);
    }
    if (status == ESPL_OK && espl_device_weights_are_random(weights)) {
        espl_log(espl_ctx_log(state->ctx), ESPL_LOG_INFO,
                 "'%s': the model's blocks are all equal, so its weights are random ones of their "
                 "sizes",
                 espl_device_form_name(runtime));
    }
    if (status == ESPL_OK) {
        status = measure_grid(state, runtime, weights, free_before, err);
    }
    if (status == ESPL_OK && runtime == ESPL_DEVICE_ENCODED &&
        is_against(state, ESPL_DEVICE_DENSE_INT4) &&
        espl_device_weights_areas(weights) == ESPL_IEBME_DENSE) {
        state->has_int4 = true;
        status = measure_grid(state, ESPL_DEVICE_DENSE_INT4, weights, free_before, err);
    }
    espl_device_weights_destroy(weights);
    return leave_out(state, runtime, first, status, err);
}

static enum espl_status measure_all(struct state *state, struct espl_error *err)
{
    enum espl_status status = measure_runtime(state, ESPL_DEVICE_ENCODED, err);
    for (int form = ESPL_DEVICE_DENSE_INT4; status == ESPL_OK && form < ESPL_DEVICE_FORMS; form++) {
        const enum espl_device_form runtime = (enum espl_device_form)form;
        if (is_against(state, runtime) && !(runtime == ESPL_DEVICE_DENSE_INT4 && state->has_int4)) {
            status = measure_runtime(state, runtime, err);
        }
    }
    return status;
}

static enum espl_status prepare(struct state *state, struct espl_error *err)
{
    const struct espl_deploy_params *params = state->params;
    struct espl_cuda_info info;
    struct espl_spmm_ceiling ceiling;
    state->cells = runtimes_of(params) * params->sequences.count * params->prompt_tokens.count *
                   params->output_tokens.count;
    state->record.repeats = (size_t)params->repeats;
    state->record.cells = calloc(state->cells, sizeof *state->record.cells);
    if (state->record.cells == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench");
    }
    enum espl_status status = espl_cuda_probe(&info, err);
    if (status == ESPL_OK) {
        espl_spmm_device_text(&info, state->record.device);
        status = espl_spmm_measure_ceiling(&ceiling, err);
    }
    if (status == ESPL_OK) {
        state->record.copy_bytes_a_second = ceiling.copy_bytes_a_second;
        status = espl_decode_energy_open(params, &state->record, &state->meter, err);
    }
    return status;
}

enum espl_status espl_decode_run(struct espl_stage_ctx *ctx,
                                 const struct espl_deploy_params *params, struct espl_error *err)
{
    struct state state = {.ctx = ctx, .params = params};
    struct espl_artifact *output = espl_ctx_output(ctx, "bench");
    struct espl_artifact *input = espl_ctx_input(ctx, "model");
    json_t *description = json_loads(espl_artifact_description(input), 0, NULL);
    state.sparsity = sparsity_of(description);
    json_decref(description);
    enum espl_status status = espl_artifact_set_kind(output, "bench.decode/1", err);
    if (status == ESPL_OK) {
        status = espl_model_open(input, espl_ctx_store(ctx), &state.model, err);
    }
    if (status == ESPL_OK) {
        status = prepare(&state, err);
    }
    if (status == ESPL_OK) {
        status = measure_all(&state, err);
    }
    if (status == ESPL_OK) {
        status = espl_decode_record_write(&state.record, output, err);
    }
    if (status == ESPL_OK) {
        status = espl_decode_record_report(&state.record, ctx, err);
    }
    espl_energy_close(state.meter);
    espl_model_close(state.model);
    free(state.record.cells);
    return status;
}
