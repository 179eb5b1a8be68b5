/* Decoding on the CPU: the model as it is encoded. Dense runtimes are there on CUDA devices alone.
 */
#include "core/log.h"
#include "eval/host_decode.h"
#include "kernels/bench/spmm_cpu.h"
#include "stages/deploy_bench/decode_run.h"

#include <stdio.h>
#include <unistd.h>

/* What the places of the grid share, and the place at hand. */
struct host_runtime {
    struct espl_decode_bench *bench;
    struct espl_host_decoder *decoder;
    const struct espl_decode_cell *cell;
    const int32_t *ids;       /* of the prompt read last */
    uint64_t resident_before; /* bytes, before the decoder came */
    uint64_t planned_bytes;
};

static enum espl_status read_prompt(void *self, const int32_t *ids, struct espl_error *err)
{
    struct host_runtime *host = self;
    if (espl_ctx_cancelled(host->bench->ctx)) {
        return espl_ctx_stop(host->bench->ctx, err);
    }
    host->ids = ids;
    return espl_host_read_prompt(host->decoder, ids, host->cell->sequences, host->cell->prompt,
                                 err);
}

/* Token by token, so that a stop is seen within one. */
static enum espl_status decode(void *self, size_t count, double *seconds, struct espl_error *err)
{
    struct host_runtime *host = self;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        if (espl_ctx_cancelled(host->bench->ctx)) {
            return espl_ctx_stop(host->bench->ctx, err);
        }
        status = espl_host_decode(host->decoder, 1, seconds != NULL ? seconds + i : NULL, err);
    }
    return status;
}

/* The mean step of one more output; `repeats` are of CUDA graphs. */
static enum espl_status time_step(void *self, size_t repeats, struct espl_device_step_times *times,
                                  struct espl_error *err)
{
    struct host_runtime *host = self;
    const size_t steps = host->cell->output - 1;
    const struct espl_forward_times *now = espl_host_decoder_times(host->decoder);
    (void)repeats;
    enum espl_status status = read_prompt(self, host->ids, err);
    const struct espl_forward_times before = *now;
    const double start = espl_clock_monotonic();
    if (status == ESPL_OK) {
        status = decode(self, steps, NULL, err);
    }
    if (status == ESPL_OK) {
        const double share = 1.0 / (double)steps;
        times->step = (espl_clock_monotonic() - start) * share;
        times->products = (now->gemm - before.gemm) * share;
        times->attention = (now->attention - before.attention) * share;
        times->norms = (now->norm - before.norm + now->elementwise - before.elementwise +
                        now->embed - before.embed) *
                       share;
        times->head = (now->head - before.head) * share;
        times->gaps = times->step - times->products - times->attention - times->norms - times->head;
    }
    return status;
}

/* Of this process, in bytes; 0 where the system does not say. */
static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file == NULL) {
        return 0;
    }
    if (fscanf(file, "%*u %llu", &pages) != 1) {
        pages = 0;
    }
    (void)fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static enum espl_status measure_cell(struct espl_decode_bench *bench, void *self,
                                     struct espl_decode_cell *cell, struct espl_error *err)
{
    struct host_runtime *host = self;
    const struct espl_decode_runner runner = {host, read_prompt, decode, time_step};
    host->cell = cell;
    cell->areas = espl_host_decoder_areas(host->decoder);
    cell->weight_bytes = espl_host_decoder_weight_bytes(host->decoder);
    cell->planned_bytes = host->planned_bytes;
    const enum espl_status status = espl_decode_measure_runner(bench, &runner, cell, err);
    const uint64_t resident = resident_bytes();
    cell->device_bytes = resident > host->resident_before ? resident - host->resident_before : 0;
    return status;
}

static void say_what_is_missing(const struct espl_decode_bench *bench)
{
    for (int i = ESPL_DEVICE_DENSE_INT4; i < ESPL_DEVICE_FORMS; i++) {
        if (espl_decode_is_against(bench->params, (enum espl_device_form)i)) {
            espl_log(espl_ctx_log(bench->ctx), ESPL_LOG_WARN,
                     "'%s' was not measured: there is such a runtime on CUDA devices alone",
                     espl_device_form_name((enum espl_device_form)i));
        }
    }
}

/* What the machine is, and how fast it copies. */
static enum espl_status describe(struct espl_decode_bench *bench, struct espl_backend *backend,
                                 struct espl_error *err)
{
    struct espl_spmm_ceiling ceiling;
    (void)snprintf(bench->record.device, sizeof bench->record.device, "%s",
                   espl_ctx_device_fingerprint(bench->ctx));
    const enum espl_status status = espl_spmm_cpu_ceiling(backend, &ceiling, err);
    if (status == ESPL_OK) {
        bench->record.copy_bytes_a_second = ceiling.copy_bytes_a_second;
    }
    return status;
}

static enum espl_status measure_all(struct espl_decode_bench *bench, struct espl_backend *backend,
                                    struct espl_error *err)
{
    const struct espl_deploy_params *params = bench->params;
    const size_t prompt = espl_decode_most(&params->prompt_tokens);
    const struct espl_host_decoder_options most = {
        .sequences = espl_decode_most(&params->sequences),
        .prompt = prompt,
        .tokens = prompt + espl_decode_most(&params->output_tokens)};
    struct host_runtime host = {.bench = bench, .resident_before = resident_bytes()};
    enum espl_status status =
        espl_host_decoder_create(bench->model, backend, &most, &host.decoder, err);
    if (status == ESPL_OK) {
        host.planned_bytes = espl_host_decoder_bytes(espl_model_get_config(bench->model),
                                                     espl_model_quant_scheme(bench->model), &most,
                                                     espl_host_decoder_weight_bytes(host.decoder));
        status = espl_decode_measure_grid(bench, ESPL_DEVICE_ENCODED, measure_cell, &host, err);
    }
    espl_host_decoder_destroy(host.decoder);
    return status;
}

enum espl_status espl_decode_run_host(struct espl_decode_bench *bench, struct espl_error *err)
{
    struct espl_backend *backend = NULL;
    say_what_is_missing(bench);
    enum espl_status status =
        espl_backend_open("cpu", (unsigned)bench->params->threads, &backend, err);
    if (status == ESPL_OK) {
        status = describe(bench, backend, err);
    }
    if (status == ESPL_OK) {
        status = measure_all(bench, backend, err);
    }
    espl_backend_close(backend);
    return status;
}
