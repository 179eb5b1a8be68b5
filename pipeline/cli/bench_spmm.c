/* espalier bench spmm: products of few tokens on the CUDA device (or the CPU), ours beside other
 * libraries'. */
#include "cli/bench_spmm.h"

#include "cli/environment.h"
#include "cli/print.h"
#include "core/fs.h"
#include "espalier/cuda_probe.h"
#include "kernels/bench/spmm_cpu.h"
#include "kernels/bench/spmm_weights.h"
#include "stages/deploy_bench/deploy_measure.h"
#include "stages/deploy_bench/tuning_file.h"

#include <stdlib.h>
#include <string.h>

enum { CPU_LAUNCHES = 4, SEED = 5 };

struct spmm_bench {
    struct espl_cli *cli;
    struct espl_spmm_settings settings;
    struct espl_spmm_model model;
    struct espl_bench_record record;
    struct espl_spmm_tuning tuning;
};

/* matrix: of a model; NULL for random weights. */
static enum espl_status take_matrix(const struct espl_spmm_case *item,
                                    const struct espl_bench_matrix *matrix, void *self,
                                    struct espl_error *err)
{
    struct spmm_bench *bench = self;
    if (*bench->cli->stop_signal != 0) {
        return espl_fail(err, ESPL_E_CANCELLED, "stopped after %zu cases", bench->record.count);
    }
    enum espl_status status = espl_bench_record_add(&bench->record, item, matrix, err);
    if (status == ESPL_OK && bench->settings.tune_file != NULL) {
        status = espl_spmm_tuning_take(&bench->tuning, item, err);
    }
    return status;
}

static enum espl_status take_case(const struct espl_spmm_case *item, void *self,
                                  struct espl_error *err)
{
    return take_matrix(item, NULL, self, err);
}

static enum espl_status measure_model(struct spmm_bench *bench,
                                      const struct espl_spmm_bench_options *cuda,
                                      const struct espl_spmm_cpu_options *cpu,
                                      struct espl_error *err)
{
    const struct espl_deploy_bench deploy = {.cuda = cuda,
                                             .cpu = cpu,
                                             .ceiling = &bench->record.ceiling,
                                             .tokens = bench->settings.tokens,
                                             .token_count = bench->settings.token_count,
                                             .done = take_matrix,
                                             .self = bench};
    return espl_deploy_measure(&deploy, bench->model.model, &bench->model.matrices, err);
}

/* ---- CUDA ---- */

/* What a file holds: to use it, or to add to it. */
static enum espl_status read_tuning(struct spmm_bench *bench, struct espl_error *err)
{
    const struct espl_spmm_settings *settings = &bench->settings;
    const char *path = settings->tuning_file != NULL ? settings->tuning_file : settings->tune_file;
    if (path == NULL || (path == settings->tune_file && !espl_fs_exists(path))) {
        return ESPL_OK;
    }
    const enum espl_status status =
        espl_tuning_read(path, bench->record.device, &bench->tuning, err);
    if (status == ESPL_OK && path == settings->tuning_file && bench->tuning.count == 0) {
        espl_print_warning(bench->cli, "'%s' has no choices for '%s': the rule decides", path,
                           bench->record.device);
    }
    return status;
}

static enum espl_status open_cuda(struct spmm_bench *bench, struct espl_error *err)
{
    struct espl_cuda_info info;
    enum espl_status status = espl_cuda_probe(&info, err);
    if (status != ESPL_OK) {
        return espl_hint(err, "--backend cpu times the CPU's products; see also `espalier doctor`");
    }
    bench->settings.options.multiprocessors = info.devices[0].multiprocessors;
    espl_spmm_device_text(&info, bench->record.device);
    status = read_tuning(bench, err);
    if (status == ESPL_OK) {
        status = espl_spmm_measure_ceiling(&bench->record.ceiling, err);
    }
    if (bench->settings.tuning_file != NULL) {
        bench->settings.options.tuning = &bench->tuning;
    }
    return status;
}

static enum espl_status cuda_shapes(struct spmm_bench *bench, struct espl_error *err)
{
    const struct espl_spmm_settings *settings = &bench->settings;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < settings->size_count; i++) {
        status = espl_spmm_bench_shape(
            &settings->options, &bench->record.ceiling, settings->sizes[i].rows,
            settings->sizes[i].cols, settings->sparsities, settings->sparsity_count,
            settings->tokens, settings->token_count, take_case, bench, err);
    }
    return status;
}

static enum espl_status run_cuda(struct spmm_bench *bench, struct espl_error *err)
{
    const struct espl_spmm_settings *settings = &bench->settings;
    enum espl_status status = open_cuda(bench, err);
    if (status == ESPL_OK && settings->ablation) {
        return espl_spmm_ablation_run(bench->cli, settings, bench->record.device,
                                      &bench->record.ceiling, err);
    }
    if (status == ESPL_OK) {
        status = settings->model != NULL ? measure_model(bench, &settings->options, NULL, err)
                                         : cuda_shapes(bench, err);
    }
    if (status == ESPL_OK && settings->tune_file != NULL) {
        status = espl_tuning_write(settings->tune_file, bench->record.device, &bench->tuning, err);
    }
    return status;
}

/* ---- CPU ---- */

static enum espl_status cpu_shape(struct spmm_bench *bench,
                                  const struct espl_spmm_cpu_options *options,
                                  const struct espl_bench_size *size, double sparsity,
                                  struct espl_error *err)
{
    int8_t *codes = NULL;
    enum espl_status status = espl_spmm_weights_codes(
        size->rows, size->cols, bench->settings.options.bits, sparsity, SEED, &codes, err);
    const struct espl_spmm_weights weights = {size->rows, size->cols, bench->settings.options.bits,
                                              sparsity,   codes,      NULL};
    if (status == ESPL_OK) {
        status =
            espl_spmm_cpu_matrix(options, &bench->record.ceiling, &weights, bench->settings.tokens,
                                 bench->settings.token_count, take_case, bench, err);
    }
    free(codes);
    return status;
}

static enum espl_status cpu_shapes(struct spmm_bench *bench,
                                   const struct espl_spmm_cpu_options *options,
                                   struct espl_error *err)
{
    const struct espl_spmm_settings *settings = &bench->settings;
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < settings->size_count; i++) {
        for (size_t s = 0; status == ESPL_OK && s < settings->sparsity_count; s++) {
            status = cpu_shape(bench, options, &settings->sizes[i], settings->sparsities[s], err);
        }
    }
    return status;
}

static enum espl_status run_cpu(struct spmm_bench *bench, struct espl_error *err)
{
    const struct espl_spmm_settings *settings = &bench->settings;
    struct espl_spmm_cpu_options options = {.repeats = settings->options.repeats,
                                            .launches = CPU_LAUNCHES,
                                            .form_count = settings->options.form_count,
                                            .sgemm = settings->sgemm,
                                            .most_bytes = ESPL_SPMM_CPU_COPIES};
    memcpy(options.forms, settings->options.forms, sizeof options.forms);
    espl_cli_device_fingerprint("cpu", bench->record.device, sizeof bench->record.device);
    bench->record.launches = CPU_LAUNCHES;
    enum espl_status status = espl_bench_open_backend(bench->cli, &options.backend, err);
    if (status == ESPL_OK) {
        status = espl_spmm_cpu_ceiling(options.backend, &bench->record.ceiling, err);
    }
    if (status == ESPL_OK) {
        status = settings->model != NULL ? measure_model(bench, NULL, &options, err)
                                         : cpu_shapes(bench, &options, err);
    }
    espl_backend_close(options.backend);
    return status;
}

/* ---- results ---- */

static enum espl_status write_artifact(const struct espl_bench_record *record, const char *path,
                                       struct espl_error *err)
{
    struct espl_artifact *artifact = NULL;
    enum espl_status status = espl_artifact_create(path, "bench.spmm/1", &artifact, err);
    if (status == ESPL_OK) {
        status = espl_bench_record_write(record, artifact, err);
    }
    if (status == ESPL_OK) {
        return espl_artifact_finish(&artifact, NULL, err);
    }
    espl_artifact_abandon(artifact);
    return status;
}

static enum espl_status give_results(const struct spmm_bench *bench, struct espl_error *err)
{
    const struct espl_spmm_settings *settings = &bench->settings;
    enum espl_status status = ESPL_OK;
    if (settings->artifact_file != NULL) {
        status = write_artifact(&bench->record, settings->artifact_file, err);
    }
    if (status == ESPL_OK && settings->plot_folder != NULL) {
        status = espl_spmm_plot(&bench->record, settings->plot_folder, err);
    }
    return status == ESPL_OK ? espl_spmm_print(bench->cli, &bench->record, err) : status;
}

enum espl_status espl_bench_spmm(struct espl_cli *cli, struct espl_error *err)
{
    struct spmm_bench *bench = calloc(1, sizeof *bench);
    if (bench == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a bench");
    }
    bench->cli = cli;
    enum espl_status status = espl_spmm_settings_read(cli, &bench->settings, err);
    bench->record.repeats = bench->settings.options.repeats;
    bench->record.launches = bench->settings.options.launches;
    bench->record.swept = bench->settings.options.sweep;
    bench->record.over_sparsities = bench->settings.model != NULL;
    if (status == ESPL_OK) {
        status = espl_spmm_model_open(cli, &bench->settings, &bench->model, err);
    }
    if (status == ESPL_OK) {
        status = bench->settings.cpu ? run_cpu(bench, err) : run_cuda(bench, err);
    }
    if (status == ESPL_OK && !bench->settings.ablation) {
        status = give_results(bench, err);
    }
    espl_bench_record_free(&bench->record);
    espl_spmm_tuning_free(&bench->tuning);
    espl_spmm_model_close(&bench->model);
    espl_spmm_settings_free(&bench->settings);
    free(bench);
    return status;
}
