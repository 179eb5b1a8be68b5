#include "stages/deploy_bench/decode_mode.h"

#include "eval/energy/meter.h"
#include "stages/deploy_bench/decode_run.h"

#include <stdlib.h>

static enum espl_status prepare(struct espl_decode_bench *bench, bool cpu, struct espl_error *err)
{
    const struct espl_deploy_params *params = bench->params;
    json_t *description =
        json_loads(espl_artifact_description(espl_ctx_input(bench->ctx, "model")), 0, NULL);
    bench->sparsity = espl_decode_sparsity(description);
    json_decref(description);
    bench->cells = espl_decode_runtimes(params, cpu) * params->sequences.count *
                   params->prompt_tokens.count * params->output_tokens.count;
    bench->record.repeats = (size_t)params->repeats;
    bench->record.cells = calloc(bench->cells, sizeof *bench->record.cells);
    if (bench->record.cells == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench");
    }
    return espl_decode_energy_open(params, cpu, &bench->record, &bench->meter, err);
}

enum espl_status espl_decode_run(struct espl_stage_ctx *ctx,
                                 const struct espl_deploy_params *params, struct espl_error *err)
{
    const bool cpu = espl_deploy_is_cpu(espl_ctx_device(ctx));
    struct espl_decode_bench bench = {.ctx = ctx, .params = params};
    struct espl_artifact *output = espl_ctx_output(ctx, "bench");
    enum espl_status status = espl_artifact_set_kind(output, "bench.decode/1", err);
    if (status == ESPL_OK) {
        status =
            espl_model_open(espl_ctx_input(ctx, "model"), espl_ctx_store(ctx), &bench.model, err);
    }
    if (status == ESPL_OK) {
        status = prepare(&bench, cpu, err);
    }
    if (status == ESPL_OK) {
        status = cpu ? espl_decode_run_host(&bench, err) : espl_decode_run_cuda(&bench, err);
    }
    if (status == ESPL_OK) {
        status = espl_decode_record_write(&bench.record, output, err);
    }
    if (status == ESPL_OK) {
        status = espl_decode_record_report(&bench.record, ctx, err);
    }
    espl_energy_close(bench.meter);
    espl_model_close(bench.model);
    free(bench.record.cells);
    return status;
}
