#include "stages/budget_search/budget_output.h"

#include "core/checked.h"
#include "stages/nm_supernet/nm_rank.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- figures ---- */

/* Blocks that would have run without memory of scores and shared beginnings, over those that did.
 * After a resume the work of the earlier run is not known: 0. */
static double saved_blocks(const struct espl_budget_run *run)
{
    double without = 0.0;
    if (run->resumed > 0) {
        return 0.0;
    }
    for (unsigned f = 0; f < run->params->pictures.count; f++) {
        without += (double)espl_search_asked(run->search, f) *
                   (double)espl_nm_oracle_pictures(run->oracle, f) *
                   (double)espl_nm_oracle_blocks(run->oracle);
    }
    const uint64_t ran = espl_nm_oracle_get_work(run->oracle)->block_pictures;
    return ran > 0 ? without / (double)ran : 0.0;
}

static enum espl_status report_costs(struct espl_budget_run *run, struct espl_error *err)
{
    static const char *const names[][3] = {
        {"latency_seconds", "latency_budget_seconds", "speedup_predicted"},
        {"energy_joules", "energy_budget_joules", "energy_saving_predicted"}};
    const struct espl_search_space *space = &run->problem.space;
    enum espl_status status = ESPL_OK;
    for (size_t c = 0; status == ESPL_OK && c < space->constraints; c++) {
        const size_t row = strcmp(space->constraint[c].name, "energy") == 0 ? 1 : 0;
        const double cost = espl_search_cost(space, c, espl_search_best(run->search));
        const double values[] = {cost, space->constraint[c].budget, run->problem.dense[c] / cost};
        for (size_t i = 0; status == ESPL_OK && i < 3; i++) {
            status = espl_ctx_metric(run->ctx, names[row][i], values[i], false, err);
        }
    }
    return status;
}

static enum espl_status report_search(struct espl_budget_run *run, struct espl_error *err)
{
    const struct espl_nm_oracle_work *work = espl_nm_oracle_get_work(run->oracle);
    const double saved = saved_blocks(run);
    uint64_t asked = 0;
    for (unsigned f = 0; f < run->params->pictures.count; f++) {
        asked += espl_search_asked(run->search, f);
    }
    const struct {
        const char *name;
        double value;
        bool volatile_value;
    } figures[] = {
        {"score", espl_search_best_score(run->search), false},
        {"generations", (double)espl_search_record_count(run->search) - 1.0, false},
        {"evaluations", (double)espl_search_computed(run->search), false},
        {"evaluations_asked", (double)asked, false},
        {"block_evaluations_saved", saved, true},
        {"gflops", work->seconds > 0.0 ? work->flop / work->seconds * 1e-9 : 0.0, true},
        {"scoring_seconds", work->seconds, true},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof figures / sizeof figures[0]; i++) {
        if (isfinite(figures[i].value)) {
            status = espl_ctx_metric(run->ctx, figures[i].name, figures[i].value,
                                     figures[i].volatile_value, err);
        }
    }
    return status;
}

static enum espl_status report_holdout(struct espl_budget_run *run, struct espl_error *err)
{
    struct espl_nm_pictures *own = run->own_holdout ? &run->holdout : NULL;
    const uint64_t count = (uint64_t)run->params->holdout_pictures;
    struct espl_vision_tally chosen;
    struct espl_vision_tally dense = {0};
    if (own == NULL && espl_nm_pictures_held_out(&run->pictures) == 0) {
        espl_log(espl_ctx_log(run->ctx), ESPL_LOG_WARN,
                 "no picture is held out: accuracy on pictures that the search never saw is not "
                 "known");
        return ESPL_OK;
    }
    espl_search_problem_levels(&run->problem, espl_search_best(run->search), run->n);
    enum espl_status status =
        espl_nm_oracle_hold_out(run->oracle, own, count, run->n, &chosen, err);
    if (status == ESPL_OK) {
        memset(run->n, (int)run->supernet.facts.m, run->problem.space.layers);
        status = espl_nm_oracle_hold_out(run->oracle, own, count, run->n, &dense, err);
    }
    const double images = (double)chosen.images;
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"holdout_top1", 100.0 * (double)chosen.top1 / images},
        {"holdout_top1_dense", 100.0 * (double)dense.top1 / images},
        {"holdout_loss", chosen.loss / images},
        {"holdout_pictures", images},
    };
    for (size_t i = 0; status == ESPL_OK && i < sizeof figures / sizeof figures[0]; i++) {
        status = espl_ctx_metric(run->ctx, figures[i].name, figures[i].value, false, err);
    }
    return status;
}

/* N of every layer: the strip of the report. */
static enum espl_status report_strip(struct espl_budget_run *run, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    char series[32];
    (void)snprintf(series, sizeof series, "kept_of_%u", run->supernet.facts.m);
    espl_search_problem_levels(&run->problem, espl_search_best(run->search), run->n);
    for (size_t i = 0; status == ESPL_OK && i < run->supernet.layers.count; i++) {
        const struct espl_tensor_spec *spec = &run->supernet.layers.items[i].spec;
        status = espl_ctx_layer_metric(run->ctx, series, (uint64_t)spec->layer, spec->module,
                                       (double)run->n[i], err);
    }
    return status;
}

/* Trajectory and front, for the report: their "layers" are generations and points. */
static enum espl_status report_curves(struct espl_budget_run *run, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < espl_search_record_count(run->search); i++) {
        const struct espl_search_record *record = espl_search_record_at(run->search, i);
        if (!isfinite(record->score)) {
            continue;
        }
        status = espl_ctx_layer_metric(run->ctx, "trajectory", i, "evaluations",
                                       (double)record->computed, err);
        if (status == ESPL_OK) {
            status = espl_ctx_layer_metric(run->ctx, "trajectory", i, "score", record->score, err);
        }
    }
    for (size_t i = 0; status == ESPL_OK && i < espl_search_front_count(run->search); i++) {
        double cost = 0.0;
        double score = 0.0;
        espl_search_front_at(run->search, i, NULL, &cost, &score);
        status = espl_ctx_layer_metric(run->ctx, "front", i, "cost", cost, err);
        if (status == ESPL_OK) {
            status = espl_ctx_layer_metric(run->ctx, "front", i, "score", score, err);
        }
    }
    return status;
}

enum espl_status espl_budget_report(struct espl_budget_run *run, struct espl_error *err)
{
    enum espl_status status = report_costs(run, err);
    if (status == ESPL_OK) {
        status = report_search(run, err);
    }
    if (status == ESPL_OK) {
        status = report_strip(run, err);
    }
    if (status == ESPL_OK) {
        status = report_curves(run, err);
    }
    if (status == ESPL_OK) {
        status = report_holdout(run, err);
    }
    return status == ESPL_E_CANCELLED ? espl_ctx_stop(run->ctx, err) : status;
}

/* ---- assignment ---- */

json_t *espl_budget_describe_pruning(const struct espl_supernet_facts *facts,
                                     const struct espl_nm_layers *layers, const uint8_t *n)
{
    json_t *pruning = json_pack("{s:s, s:i, s:I}", "method", "budget-search", "m", (int)facts->m,
                                "vector", (json_int_t)facts->vector);
    json_t *levels = json_object();
    int failed = pruning == NULL || levels == NULL ? -1 : 0;
    for (size_t i = 0; failed == 0 && n != NULL && i < layers->count; i++) {
        failed = json_object_set_new(levels, layers->items[i].spec.module, json_integer(n[i]));
    }
    if (failed == 0 && n != NULL) {
        failed = json_object_set(pruning, "levels", levels);
    }
    json_decref(levels);
    if (failed != 0) {
        json_decref(pruning);
        return NULL;
    }
    return pruning;
}

static json_t *describe_search(const struct espl_budget_run *run)
{
    const struct espl_search_space *space = &run->problem.space;
    json_t *costs = json_object();
    for (size_t c = 0; c < space->constraints; c++) {
        (void)json_object_set_new(
            costs, space->constraint[c].name,
            json_pack("{s:f, s:f, s:f}", "dense", run->problem.dense[c], "budget",
                      space->constraint[c].budget, "predicted",
                      espl_search_cost(space, c, espl_search_best(run->search))));
    }
    return json_pack("{s:s, s:s, s:I, s:s, s:o, s:s, s:I, s:b}", "strategy",
                     espl_search_strategies[run->params->strategy]->name, "stopped_by",
                     espl_search_stop_reason(run->search), "evaluations",
                     (json_int_t)espl_search_computed(run->search), "device", run->record.device,
                     "costs", costs, "precision", espl_nm_precisions[run->supernet.facts.precision],
                     "batch", (json_int_t)run->record.batch, "trained",
                     (int)run->supernet.facts.trained);
}

static enum espl_status describe_assignment(struct espl_budget_run *run, struct espl_error *err)
{
    json_t *description = espl_model_description(espl_model_get_config(run->model));
    json_t *assignment =
        espl_budget_describe_pruning(&run->supernet.facts, &run->supernet.layers, run->n);
    json_t *base = json_pack("{s:s}", "content_sha256",
                             espl_artifact_content_sha256(espl_ctx_input(run->ctx, "model")));
    int failed = json_object_set_new(assignment, "search", describe_search(run));
    failed |= json_object_set_new(description, "assignment", assignment);
    failed |= json_object_set_new(description, "base", base);
    char *text = failed == 0 ? json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const enum espl_status status =
        text == NULL
            ? espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the assignment")
            : espl_artifact_set_description(espl_ctx_output(run->ctx, "assignment"), text, err);
    free(text);
    json_decref(description);
    return status;
}

static enum espl_status write_array(struct espl_budget_run *run, const char *path,
                                    enum espl_dtype dtype, unsigned rank, const uint64_t *shape,
                                    const void *data, struct espl_error *err)
{
    const struct espl_tensor_info info = espl_tensor_info_make(path, dtype, rank, shape);
    return espl_artifact_write(espl_ctx_output(run->ctx, "assignment"), &info, data, err);
}

static enum espl_status write_trajectory(struct espl_budget_run *run, struct espl_error *err)
{
    enum { COLUMNS = 3 + ESPL_SEARCH_MAX_CONSTRAINTS };
    const size_t count = espl_search_record_count(run->search);
    double *rows = calloc(count * COLUMNS, sizeof *rows);
    if (rows == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu generations", count);
    }
    for (size_t i = 0; i < count; i++) {
        const struct espl_search_record *record = espl_search_record_at(run->search, i);
        double *row = rows + i * COLUMNS;
        row[0] = (double)record->generation;
        row[1] = (double)record->computed;
        row[2] = record->score;
        memcpy(row + 3, record->cost, sizeof record->cost);
    }
    const uint64_t shape[2] = {count, COLUMNS};
    const enum espl_status status =
        write_array(run, "/trajectory/values", ESPL_DTYPE_F64, 2, shape, rows, err);
    free(rows);
    return status;
}

static enum espl_status write_front(struct espl_budget_run *run, struct espl_error *err)
{
    const size_t layers = run->problem.space.layers;
    const size_t count = espl_search_front_count(run->search);
    size_t bytes = 0;
    if (count == 0) {
        return ESPL_OK; /* nothing was scored at the highest fidelity */
    }
    double *cost = calloc(count, sizeof *cost);
    double *score = calloc(count, sizeof *score);
    uint8_t *n = espl_mul_size(count, layers, &bytes) ? malloc(bytes) : NULL;
    enum espl_status status = ESPL_OK;
    if (cost == NULL || score == NULL || n == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for a front of %zu points", count);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        const uint8_t *levels = NULL;
        espl_search_front_at(run->search, i, &levels, &cost[i], &score[i]);
        espl_search_problem_levels(&run->problem, levels, n + i * layers);
    }
    const uint64_t shape[2] = {count, layers};
    if (status == ESPL_OK) {
        status = write_array(run, "/front/cost", ESPL_DTYPE_F64, 1, shape, cost, err);
    }
    if (status == ESPL_OK) {
        status = write_array(run, "/front/score", ESPL_DTYPE_F64, 1, shape, score, err);
    }
    if (status == ESPL_OK) {
        status = write_array(run, "/front/n", ESPL_DTYPE_U8, 2, shape, n, err);
    }
    free(cost);
    free(score);
    free(n);
    return status;
}

enum espl_status espl_budget_write_assignment(struct espl_budget_run *run, struct espl_error *err)
{
    const uint64_t shape[1] = {run->problem.space.layers};
    espl_search_problem_levels(&run->problem, espl_search_best(run->search), run->n);
    enum espl_status status = describe_assignment(run, err);
    if (status == ESPL_OK) {
        status = write_array(run, "/assignment/n", ESPL_DTYPE_U8, 1, shape, run->n, err);
    }
    if (status == ESPL_OK) {
        status = write_trajectory(run, err);
    }
    return status == ESPL_OK ? write_front(run, err) : status;
}

/* ---- masked model ---- */

static enum espl_status write_mask(struct espl_budget_run *run, size_t index,
                                   struct espl_error *err)
{
    const struct espl_tensor_spec *spec = &run->supernet.layers.items[index].spec;
    const struct espl_matrix_shape shape = {(size_t)spec->shape[0], (size_t)spec->shape[1]};
    uint8_t *mask = calloc(shape.rows, espl_mask_stride(shape.cols));
    if (mask == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the mask of '%s'", spec->module);
    }
    espl_nm_mask(&shape, run->supernet.facts.vector, run->supernet.ranks[index], run->n[index],
                 mask);
    const enum espl_status status =
        espl_model_write_mask(espl_ctx_output(run->ctx, "model"), spec, mask, err);
    free(mask);
    return status;
}

enum espl_status espl_budget_write_model(struct espl_budget_run *run, struct espl_error *err)
{
    espl_search_problem_levels(&run->problem, espl_search_best(run->search), run->n);
    json_t *pruning =
        espl_budget_describe_pruning(&run->supernet.facts, &run->supernet.layers, run->n);
    enum espl_status status =
        pruning == NULL
            ? espl_fail(err, ESPL_E_NOMEM, "no memory for the description of the masks")
            : espl_model_begin_masked(espl_ctx_output(run->ctx, "model"), run->model, pruning, err);
    json_decref(pruning);
    for (size_t i = 0; status == ESPL_OK && i < run->supernet.layers.count; i++) {
        status = write_mask(run, i, err);
    }
    return status;
}
