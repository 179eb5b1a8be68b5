/* The packed linears of a model as cases of `espalier bench nm`. */
#include "cli/bench_nm.h"
#include "cli/bench_settings.h"
#include "cli/target.h"
#include "model/quantised.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINEARS = 256, NAME = 256 };

struct espl_nm_bench_model {
    struct espl_quant_linear linears[MOST_LINEARS];
    char names[MOST_LINEARS][NAME]; /* "blocks.0.attn.qkv and 11 more, 2:8 V=16" */
    char modules[MOST_LINEARS][128];
    size_t alike[MOST_LINEARS]; /* linears that each stands for */
    size_t count;
    char sets[ESPL_BENCH_MOST_SETTINGS][32]; /* "197 tokens" */
};

void espl_nm_bench_free_model(struct espl_nm_bench_model *model)
{
    for (size_t i = 0; model != NULL && i < model->count; i++) {
        espl_quant_linear_free(&model->linears[i]);
    }
    free(model);
}

static bool same_layout(const struct espl_nm_layout *a, const struct espl_nm_layout *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->n == b->n && a->m == b->m && a->v == b->v;
}

static enum espl_status add_linear(struct espl_nm_bench_model *found, struct espl_model *model,
                                   const struct espl_tensor_spec *spec, struct espl_error *err)
{
    struct espl_quant_linear linear = {0};
    const enum espl_status status =
        espl_quant_linear_read_stored(model, spec->layer, spec->role, &linear, err);
    if (status != ESPL_OK || linear.nm == NULL) {
        espl_quant_linear_free(&linear);
        return status;
    }
    for (size_t i = 0; i < found->count; i++) {
        if (same_layout(&found->linears[i].nm->layout, &linear.nm->layout)) {
            found->alike[i]++;
            espl_quant_linear_free(&linear);
            return ESPL_OK;
        }
    }
    if (found->count == MOST_LINEARS) {
        espl_quant_linear_free(&linear);
        return espl_fail(err, ESPL_E_UNSUPPORTED, "the model has more than %d different linears",
                         (int)MOST_LINEARS);
    }
    (void)snprintf(found->modules[found->count], sizeof found->modules[0], "%s", spec->module);
    found->alike[found->count] = 1;
    found->linears[found->count++] = linear; /* owned from here on */
    return ESPL_OK;
}

static void name_linears(struct espl_nm_bench_model *found)
{
    for (size_t i = 0; i < found->count; i++) {
        const struct espl_nm_layout *layout = &found->linears[i].nm->layout;
        char more[32] = "";
        if (found->alike[i] > 1) {
            (void)snprintf(more, sizeof more, " (of %zu)", found->alike[i]);
        }
        (void)snprintf(found->names[i], NAME, "%s%s %u:%u V=%u", found->modules[i], more, layout->n,
                       layout->m, layout->v);
    }
}

/* text: as the user named it. */
static enum espl_status read_linears(struct espl_nm_bench_model *found, const char *text,
                                     struct espl_artifact *artifact, const struct espl_store *store,
                                     struct espl_error *err)
{
    struct espl_model *model = NULL;
    if (strcmp(espl_artifact_kind(artifact), "model.nm/1") != 0) {
        espl_fail(err, ESPL_E_KIND, "'%s' is %s, expected model.nm/1", text,
                  espl_artifact_kind(artifact));
        return espl_hint(err, "pack it: a stage `use: nm-pack`");
    }
    enum espl_status status = espl_model_open(artifact, store, &model, err);
    for (size_t i = 0; status == ESPL_OK && i < espl_model_tensor_count(model); i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (espl_model_is_quantised(model, spec)) {
            status = add_linear(found, model, spec, err);
        }
    }
    espl_model_close(model);
    name_linears(found);
    return status;
}

static enum espl_status add_cases(struct espl_nm_bench_run *run, const size_t *tokens,
                                  size_t token_count, size_t most_cases, struct espl_error *err)
{
    struct espl_nm_bench_model *model = run->model;
    if (model->count * token_count > most_cases) {
        return espl_fail(err, ESPL_E_USAGE, "more than %zu cases", most_cases);
    }
    for (size_t t = 0; t < token_count; t++) {
        (void)snprintf(model->sets[t], sizeof model->sets[t], "%zu tokens", tokens[t]);
        for (size_t i = 0; i < model->count; i++) {
            const struct espl_nm_matrix *packed = model->linears[i].nm;
            run->cases[run->case_count++] = (struct espl_nm_bench_case){.set = model->sets[t],
                                                                        .layer = model->names[i],
                                                                        .tokens = tokens[t],
                                                                        .rows = packed->layout.rows,
                                                                        .cols = packed->layout.cols,
                                                                        .packed = packed};
        }
    }
    return ESPL_OK;
}

enum espl_status espl_nm_bench_read_model(struct espl_nm_bench_run *run, const char *text,
                                          const size_t *tokens, size_t token_count,
                                          size_t most_cases, struct espl_error *err)
{
    struct espl_store store;
    struct espl_target target;
    struct espl_artifact *artifact = NULL;
    run->model = calloc(1, sizeof *run->model);
    if (run->model == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a model");
    }
    enum espl_status status = espl_store_open_readonly(run->cli->store_dir, &store, err);
    if (status == ESPL_OK) {
        status = espl_target_artifact(run->cli, &store, text, &target, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_open(target.path, &artifact, err);
    }
    if (status == ESPL_OK) {
        status = read_linears(run->model, text, artifact, &store, err);
    }
    espl_artifact_close(artifact);
    return status == ESPL_OK ? add_cases(run, tokens, token_count, most_cases, err) : status;
}
