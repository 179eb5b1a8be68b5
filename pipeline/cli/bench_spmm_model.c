/* The model of `espalier bench spmm MODEL`. */
#include "cli/bench_spmm.h"

#include "cli/target.h"
#include "stages/deploy_bench/deploy_measure.h"

#include <string.h>

static enum espl_status open_artifact(const struct espl_cli *cli, const char *text,
                                      struct espl_spmm_model *out, struct espl_error *err)
{
    struct espl_store store;
    struct espl_target target;
    enum espl_status status = espl_store_open_readonly(cli->store_dir, &store, err);
    if (status == ESPL_OK) {
        status = espl_target_artifact(cli, &store, text, &target, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_open(target.path, &out->artifact, err);
    }
    return status == ESPL_OK ? espl_model_open(out->artifact, &store, &out->model, err) : status;
}

bool espl_spmm_dense_only(const struct espl_spmm_bench_options *options)
{
    bool only = true;
    for (size_t i = 0; i < options->form_count; i++) {
        const char *form = options->forms[i];
        only = only && (strcmp(form, "dense") == 0 || strncmp(form, "int", 3) == 0);
    }
    return only;
}

enum espl_status espl_spmm_model_open(const struct espl_cli *cli,
                                      const struct espl_spmm_settings *settings,
                                      struct espl_spmm_model *out, struct espl_error *err)
{
    if (settings->model == NULL) {
        return ESPL_OK;
    }
    enum espl_status status = open_artifact(cli, settings->model, out, err);
    if (status == ESPL_OK) {
        status = espl_deploy_find(out->model, &out->matrices, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_deploy_check_bits(espl_model_quant_scheme(out->model)->weight_bits, settings->cpu,
                                   espl_spmm_dense_only(&settings->options), err);
    }
    if (status != ESPL_OK) {
        espl_context(err, "opening the model '%s'", settings->model);
    }
    return status;
}

void espl_spmm_model_close(struct espl_spmm_model *model)
{
    espl_model_close(model->model);
    espl_artifact_close(model->artifact);
}
