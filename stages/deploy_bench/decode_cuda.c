/* Decoding on a CUDA device: the model as it is encoded, and dense runtimes beside it. */
#include "core/log.h"
#include "espalier/cuda_memory.h"
#include "espalier/cuda_probe.h"
#include "kernels/bench/spmm_bench.h"
#include "stages/deploy_bench/decode_run.h"

/* What the places of a runtime share. */
struct cuda_runtime {
    struct espl_device_weights *weights;
    uint64_t free_before; /* device memory before the weights came */
};

static enum espl_status read_prompt(void *self, const int32_t *ids, struct espl_error *err)
{
    return espl_device_read_prompt(self, ids, err);
}

static enum espl_status decode(void *self, size_t count, double *seconds, struct espl_error *err)
{
    return espl_device_decode(self, count, seconds, err);
}

static enum espl_status time_step(void *self, size_t repeats, struct espl_device_step_times *times,
                                  struct espl_error *err)
{
    return espl_device_time_step(self, repeats, times, err);
}

static enum espl_status measure_cell(struct espl_decode_bench *bench, void *self,
                                     struct espl_decode_cell *cell, struct espl_error *err)
{
    const struct cuda_runtime *runtime = self;
    const struct espl_device_decoder_options options = {.sequences = cell->sequences,
                                                        .prompt = cell->prompt,
                                                        .tokens = cell->prompt + cell->output,
                                                        .overlap = true};
    const struct espl_device_weights_options form =
        espl_decode_weights_of(bench->params, cell->runtime);
    struct espl_device_decoder *decoder = NULL;
    struct espl_device_bytes bytes;
    uint64_t free_now = 0;
    espl_device_plan_bytes(espl_model_get_config(bench->model),
                           espl_model_quant_scheme(bench->model), &form, bench->sparsity, &options,
                           &bytes);
    cell->planned_bytes = espl_device_bytes_sum(&bytes);
    cell->areas = espl_device_weights_areas(runtime->weights);
    cell->weight_bytes = espl_device_weights_bytes(runtime->weights);
    enum espl_status status = espl_device_decoder_create(runtime->weights, &options, &decoder, err);
    if (status == ESPL_OK) {
        const struct espl_decode_runner runner = {decoder, read_prompt, decode, time_step};
        status = espl_decode_measure_runner(bench, &runner, cell, err);
    }
    if (status == ESPL_OK) {
        status = espl_cuda_free_bytes(&free_now, err);
        cell->device_bytes = runtime->free_before > free_now ? runtime->free_before - free_now : 0;
    }
    espl_device_decoder_destroy(decoder);
    return status;
}

/* A runtime to compare with that cannot be had here is said and left out. */
static enum espl_status leave_out(struct espl_decode_bench *bench, enum espl_device_form runtime,
                                  size_t first, enum espl_status status, struct espl_error *err)
{
    if (runtime != ESPL_DEVICE_ENCODED &&
        (status == ESPL_E_UNSUPPORTED || status == ESPL_E_NOMEM)) {
        espl_log(espl_ctx_log(bench->ctx), ESPL_LOG_WARN, "'%s' was not measured: %s",
                 espl_device_form_name(runtime), err->message);
        bench->record.count = first;
        return ESPL_OK;
    }
    if (status != ESPL_OK) {
        espl_context(err, "measuring '%s'", espl_device_form_name(runtime));
    }
    return status;
}

/* *has_int4: dense-int4 was measured with the encoded weights, which came out dense. */
static enum espl_status measure_runtime(struct espl_decode_bench *bench, enum espl_device_form form,
                                        bool *has_int4, struct espl_error *err)
{
    const struct espl_device_weights_options options = espl_decode_weights_of(bench->params, form);
    const size_t first = bench->record.count;
    struct cuda_runtime runtime = {NULL, 0};
    enum espl_status status = espl_cuda_free_bytes(&runtime.free_before, err);
    if (status == ESPL_OK) {
        status = espl_device_weights_create(bench->model, &options, &runtime.weights, err);
    }
    if (status == ESPL_OK && espl_device_weights_are_random(runtime.weights)) {
        espl_log(espl_ctx_log(bench->ctx), ESPL_LOG_INFO,
                 "'%s': the model's blocks are all equal, so its weights are random ones of their "
                 "sizes",
                 espl_device_form_name(form));
    }
    if (status == ESPL_OK) {
        status = espl_decode_measure_grid(bench, form, measure_cell, &runtime, err);
    }
    if (status == ESPL_OK && form == ESPL_DEVICE_ENCODED &&
        espl_decode_is_against(bench->params, ESPL_DEVICE_DENSE_INT4) &&
        espl_device_weights_areas(runtime.weights) == ESPL_IEBME_DENSE) {
        *has_int4 = true;
        status =
            espl_decode_measure_grid(bench, ESPL_DEVICE_DENSE_INT4, measure_cell, &runtime, err);
    }
    espl_device_weights_destroy(runtime.weights);
    return leave_out(bench, form, first, status, err);
}

static enum espl_status describe(struct espl_decode_record *record, struct espl_error *err)
{
    struct espl_cuda_info info;
    struct espl_spmm_ceiling ceiling;
    enum espl_status status = espl_cuda_probe(&info, err);
    if (status == ESPL_OK) {
        espl_spmm_device_text(&info, record->device);
        status = espl_spmm_measure_ceiling(&ceiling, err);
    }
    if (status == ESPL_OK) {
        record->copy_bytes_a_second = ceiling.copy_bytes_a_second;
    }
    return status;
}

enum espl_status espl_decode_run_cuda(struct espl_decode_bench *bench, struct espl_error *err)
{
    bool has_int4 = false;
    enum espl_status status = describe(&bench->record, err);
    if (status == ESPL_OK) {
        status = measure_runtime(bench, ESPL_DEVICE_ENCODED, &has_int4, err);
    }
    for (int i = ESPL_DEVICE_DENSE_INT4; status == ESPL_OK && i < ESPL_DEVICE_FORMS; i++) {
        const enum espl_device_form form = (enum espl_device_form)i;
        if (espl_decode_is_against(bench->params, form) &&
            !(form == ESPL_DEVICE_DENSE_INT4 && has_int4)) {
            status = measure_runtime(bench, form, &has_int4, err);
        }
    }
    return status;
}
