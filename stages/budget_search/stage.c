/* budget-search: finds an N:M level for every layer of a supernet within a latency or energy
 * budget, and makes the masked model. */
#include "stages/budget_search/budget_measure.h"
#include "stages/budget_search/budget_output.h"
#include "stages/budget_search/budget_run.h"

#include <stdio.h>
#include <string.h>

static const struct espl_port inputs[] = {
    {"model", "model.dense/1", 0, "the model that nm-supernet read"},
    {"quality", "supernet/1", 0, "ranks of its weights"},
    {"latency", "latency/1", 0, "costs of its layers"},
    {"images", "images/1", 0,
     "labelled pictures for the search; those it does not see are held out"},
    {"holdout", "images/1", ESPL_PORT_OPTIONAL,
     "pictures for the reported accuracy, in place of those held out of 'images'"},
    {NULL, NULL, 0, NULL},
};

static const struct espl_port outputs[] = {
    {"assignment", "assignment/1", 0, "N of every layer, trajectory and Pareto front"},
    {"model", "model.masked/1", 0, "the model with the chosen masks"},
    {NULL, NULL, 0, NULL},
};

/* Everything that can be known before: budget and tables, as far as inputs exist. */
static enum espl_status plan_problem(struct espl_plan_ctx *ctx,
                                     const struct espl_budget_params *params,
                                     const struct espl_supernet_facts *facts,
                                     const struct espl_nm_layers *layers, struct espl_error *err)
{
    const json_t *latency = espl_plan_input(ctx, "latency");
    const struct espl_budget budget = espl_budget_of(params);
    struct espl_latency_record record = {0};
    struct espl_search_problem problem = {0};
    if (latency == NULL) {
        return ESPL_OK;
    }
    enum espl_status status = espl_latency_record_from_json(latency, &record, err);
    if (status == ESPL_OK) {
        status = espl_latency_record_fit(&record, err);
    }
    if (status == ESPL_OK) {
        status = espl_search_problem_make(&record, facts, layers, &budget, &problem, err);
    }
    if (status == ESPL_OK && !params->allow_unsafe_predictor) {
        status = espl_search_check_predictors(&record, params->constraint, err);
    }
    espl_search_problem_free(&problem);
    espl_latency_record_free(&record);
    return status;
}

static json_t *predict(const json_t *model, const struct espl_supernet_facts *facts,
                       const struct espl_nm_layers *layers, const char *member)
{
    json_t *predicted = json_deep_copy(model);
    json_t *pruning = espl_budget_describe_pruning(facts, layers, NULL);
    if (predicted == NULL || pruning == NULL || json_object_set(predicted, member, pruning) != 0) {
        json_decref(predicted);
        predicted = NULL;
    }
    json_decref(pruning);
    return predicted;
}

static enum espl_status estimate(const struct espl_budget_params *params,
                                 const struct espl_model_config *config,
                                 const struct espl_nm_layers *layers, struct espl_estimate *est,
                                 struct espl_error *err)
{
    struct espl_search_options search;
    struct espl_nm_oracle_options oracle;
    const enum espl_status status =
        espl_budget_options(params, 0, layers->count, &search, &oracle, err);
    if (status != ESPL_OK) {
        return status;
    }
    uint64_t weights = 0;
    for (size_t i = 0; i < layers->count; i++) {
        weights += layers->items[i].spec.shape[0] * layers->items[i].spec.shape[1];
    }
    const uint64_t scores = search.max_evaluations > 0
                                ? search.max_evaluations
                                : search.initial + search.generations * search.offspring;
    est->units = search.generations + 1;
    est->output_bytes = weights / 8 + 65536 + 64 * search.generations;
    est->scratch_bytes = est->units * (16384 + 32 * search.offspring * layers->count);
    est->host_bytes = weights + espl_nm_oracle_bytes(config, &oracle);
    est->flop = (double)scores * (double)oracle.pictures[0] * espl_vision_flop(config);
    (void)snprintf(est->note, sizeof est->note, "%s over %zu layers, about %llu scores",
                   espl_search_strategies[params->strategy]->name, layers->count,
                   (unsigned long long)scores);
    return ESPL_OK;
}

static enum espl_status plan(struct espl_plan_ctx *ctx, const void *stage_params,
                             struct espl_estimate *est, struct espl_error *err)
{
    const struct espl_budget_params *params = stage_params;
    const json_t *model = espl_plan_input(ctx, "model");
    const json_t *quality = espl_plan_input(ctx, "quality");
    struct espl_model_config config;
    struct espl_supernet_facts facts;
    struct espl_nm_layers layers = {0};
    if (model == NULL || quality == NULL) {
        return ESPL_OK;
    }
    enum espl_status status = espl_model_config_from_description(model, &config, err);
    if (status == ESPL_OK) {
        status = espl_supernet_read_description(quality, &facts, &layers, err);
    }
    if (status == ESPL_OK) {
        status = estimate(params, &config, &layers, est, err);
    }
    if (status == ESPL_OK) {
        status = plan_problem(ctx, params, &facts, &layers, err);
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    json_t *masked = predict(model, &facts, &layers, "pruning");
    json_t *assignment = predict(model, &facts, &layers, "assignment");
    if (masked == NULL || assignment == NULL) {
        json_decref(masked);
        json_decref(assignment);
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for the descriptions of the outputs");
        goto cleanup;
    }
    espl_plan_set_output(ctx, "model", masked);
    espl_plan_set_output(ctx, "assignment", assignment);

cleanup:
    espl_nm_layers_free(&layers);
    return status;
}

static enum espl_status run(struct espl_stage_ctx *ctx, const void *stage_params,
                            struct espl_error *err)
{
    struct espl_budget_run run = {0};
    enum espl_status status = espl_budget_run_open(ctx, stage_params, &run, err);
    if (status == ESPL_OK) {
        status = espl_budget_run_search(&run, err);
    }
    if (status == ESPL_OK) {
        status = espl_budget_report(&run, err);
    }
    if (status == ESPL_OK) {
        status = espl_budget_write_assignment(&run, err);
    }
    if (status == ESPL_OK) {
        status = espl_budget_write_model(&run, err);
    }
    if (status == ESPL_OK) {
        status = espl_budget_measure(&run, err);
    }
    espl_budget_run_close(&run);
    return status;
}

const struct espl_stage espl_stage_budget_search = {
    .name = "budget-search",
    .summary = "an N:M level for every layer within a latency or energy budget",
    .cache_version = 2,
    .flags = ESPL_STAGE_RESUMABLE | ESPL_STAGE_SEEDED,
    .params = espl_budget_params_table,
    .params_size = sizeof(struct espl_budget_params),
    .inputs = inputs,
    .outputs = outputs,
    .plan = plan,
    .run = run,
};
