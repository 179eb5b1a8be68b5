#include "stages/deploy_bench/deploy_run.h"

#include "stages/deploy_bench/deploy_measure.h"
#include "stages/deploy_bench/tuning_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const espl_deploy_modes[] = {"kernel", "encoder", "decode", NULL};
const char *const espl_deploy_forms[] = {"dense", "1x1", "1x2", "2x1", "2x2", NULL};
const char *const espl_deploy_baselines[] = {
    "auto", "none", "cublaslt-int8", "cublas-fp16", "cusparse-csr", ESPL_SPMM_SGEMM, NULL};
enum { CUDA_LAUNCHES = 24, CPU_LAUNCHES = 4, FIRST_CUDA = 2, CPU_BASELINE = 5 };
/* In the order of espl_deploy_baselines, from FIRST_CUDA on. */
static const struct espl_spmm_peer *const peers[] = {
    &espl_spmm_peer_cublaslt_int8, &espl_spmm_peer_cublas_fp16, &espl_spmm_peer_cusparse_csr};

bool espl_deploy_is_cpu(const char *device)
{
    return strcmp(device, "cpu") == 0;
}

bool espl_deploy_is_cpu_baseline(int baseline)
{
    return baseline == CPU_BASELINE;
}

struct state {
    struct espl_stage_ctx *ctx;
    const struct espl_deploy_params *params;
    struct espl_model *model;
    struct espl_deploy_matrices matrices;
    struct espl_bench_record record;
    struct espl_spmm_tuning tuning;
    size_t tokens[ESPL_SPMM_MAX_TOKENS];
    size_t done;
};

/* The job's values, ready for either bench. */
struct wanted {
    const char *forms[ESPL_SPMM_MAX_FORMS];
    size_t form_count;
    bool baseline[CPU_BASELINE + 1];
};

static struct wanted read_wanted(const struct espl_deploy_params *params)
{
    struct wanted wanted = {.form_count = 0};
    const int *forms = params->forms.items;
    const int *baselines = params->baselines.items;
    for (size_t i = 0; i < params->forms.count && i < ESPL_SPMM_MAX_FORMS; i++) {
        wanted.forms[wanted.form_count++] = espl_deploy_forms[forms[i]];
    }
    for (size_t i = 0; i < params->baselines.count; i++) {
        for (int b = FIRST_CUDA; b <= CPU_BASELINE; b++) {
            wanted.baseline[b] =
                wanted.baseline[b] || baselines[i] == b || baselines[i] == ESPL_DEPLOY_AUTO;
        }
    }
    return wanted;
}

static enum espl_status take_case(const struct espl_spmm_case *item,
                                  const struct espl_bench_matrix *matrix, void *user,
                                  struct espl_error *err)
{
    struct state *state = user;
    const size_t total = state->matrices.count * state->params->tokens.count;
    if (espl_ctx_cancelled(state->ctx)) {
        return espl_ctx_stop(state->ctx, err);
    }
    espl_ctx_progress(state->ctx, ++state->done, total, "product");
    return espl_bench_record_add(&state->record, item, matrix, err);
}

/* ---- the two devices ---- */

static enum espl_status measure_all(struct state *state, const struct espl_spmm_bench_options *cuda,
                                    const struct espl_spmm_cpu_options *cpu, struct espl_error *err)
{
    const struct espl_deploy_bench bench = {.cuda = cuda,
                                            .cpu = cpu,
                                            .ceiling = &state->record.ceiling,
                                            .tokens = state->tokens,
                                            .token_count = state->params->tokens.count,
                                            .done = take_case,
                                            .self = state};
    return espl_deploy_measure(&bench, state->model, &state->matrices, err);
}

static enum espl_status read_tuning(struct state *state, struct espl_error *err)
{
    const char *path = state->params->tuning;
    if (path == NULL) {
        return ESPL_OK;
    }
    const enum espl_status status =
        espl_tuning_read(path, state->record.device, &state->tuning, err);
    if (status != ESPL_OK) {
        return espl_blame(err, "param:tuning");
    }
    if (state->tuning.count == 0) {
        espl_log(espl_ctx_log(state->ctx), ESPL_LOG_WARN,
                 "'%s' has no choices for this device ('%s'): the rule decides", path,
                 state->record.device);
    }
    return ESPL_OK;
}

static enum espl_status run_cuda(struct state *state, struct espl_error *err)
{
    const struct wanted wanted = read_wanted(state->params);
    struct espl_cuda_info info;
    struct espl_spmm_bench_options options = {.repeats = (size_t)state->params->repeats,
                                              .launches = CUDA_LAUNCHES,
                                              .form_count = wanted.form_count,
                                              .all_modes = true,
                                              .atom = state->params->atom,
                                              .sweep = state->params->sweep,
                                              .tuning = &state->tuning};
    memcpy(options.forms, wanted.forms, sizeof wanted.forms);
    for (size_t i = 0; i < sizeof peers / sizeof peers[0]; i++) {
        if (wanted.baseline[FIRST_CUDA + i]) {
            options.peers[options.peer_count++] = peers[i];
        }
    }
    enum espl_status status = espl_cuda_probe(&info, err);
    if (status == ESPL_OK) {
        options.multiprocessors = info.devices[0].multiprocessors;
        espl_spmm_device_text(&info, state->record.device);
        status = espl_spmm_measure_ceiling(&state->record.ceiling, err);
    }
    if (status == ESPL_OK) {
        status = read_tuning(state, err);
    }
    return status == ESPL_OK ? measure_all(state, &options, NULL, err) : status;
}

static enum espl_status run_cpu(struct state *state, struct espl_error *err)
{
    const struct wanted wanted = read_wanted(state->params);
    struct espl_spmm_cpu_options options = {.repeats = (size_t)state->params->repeats,
                                            .launches = CPU_LAUNCHES,
                                            .form_count = wanted.form_count,
                                            .sgemm = wanted.baseline[CPU_BASELINE],
                                            .most_bytes = ESPL_SPMM_CPU_COPIES};
    memcpy(options.forms, wanted.forms, sizeof wanted.forms);
    (void)snprintf(state->record.device, sizeof state->record.device, "%s",
                   espl_ctx_device_fingerprint(state->ctx));
    state->record.launches = CPU_LAUNCHES;
    enum espl_status status =
        espl_backend_open("cpu", (unsigned)state->params->threads, &options.backend, err);
    if (status == ESPL_OK) {
        status = espl_spmm_cpu_ceiling(options.backend, &state->record.ceiling, err);
    }
    if (status == ESPL_OK) {
        status = measure_all(state, NULL, &options, err);
    }
    espl_backend_close(options.backend);
    return status;
}

enum espl_status espl_deploy_run(struct espl_stage_ctx *ctx,
                                 const struct espl_deploy_params *params, struct espl_error *err)
{
    const int64_t *tokens = params->tokens.items;
    struct state *state = calloc(1, sizeof *state);
    if (state == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench");
    }
    state->ctx = ctx;
    state->params = params;
    state->record.repeats = (size_t)params->repeats;
    state->record.launches = CUDA_LAUNCHES;
    state->record.swept = params->sweep;
    state->record.over_sparsities = true;
    for (size_t i = 0; i < params->tokens.count; i++) {
        state->tokens[i] = (size_t)tokens[i];
    }
    enum espl_status status =
        espl_model_open(espl_ctx_input(ctx, "model"), espl_ctx_store(ctx), &state->model, err);
    if (status == ESPL_OK) {
        status = espl_deploy_find(state->model, &state->matrices, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_deploy_is_cpu(espl_ctx_device(ctx)) ? run_cpu(state, err) : run_cuda(state, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_record_write(&state->record, espl_ctx_output(ctx, "bench"), err);
    }
    if (status == ESPL_OK) {
        status = espl_deploy_report(ctx, &state->record, err);
    }
    espl_model_close(state->model);
    espl_bench_record_free(&state->record);
    espl_spmm_tuning_free(&state->tuning);
    free(state);
    return status;
}
