#include "stages/budget_search/search_problem.h"

#include "core/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const espl_budget_kinds[] = {"latency", "energy", "both", NULL};

/* One constraint while the space is built. */
struct source {
    const char *name;
    const struct espl_latency_cost_record *cost;
    double budget; /* above 0: absolute */
    double factor; /* else: share of dense is 1 / factor */
};

static size_t list_sources(const struct espl_latency_record *record,
                           const struct espl_budget *budget, struct source *sources)
{
    size_t count = 0;
    if (budget->kind != ESPL_BUDGET_ENERGY) {
        sources[count++] =
            (struct source){"latency", &record->latency, budget->latency, budget->speedup};
    }
    if (budget->kind != ESPL_BUDGET_LATENCY) {
        sources[count++] = (struct source){"energy", &record->energy, 0.0, budget->energy_saving};
    }
    return count;
}

static double layer_cost(const struct espl_latency_record *record,
                         const struct espl_latency_cost_record *cost, size_t layer, unsigned n)
{
    return cost->predictor.gamma[layer] *
           espl_latency_cost(&cost->table, record->shape_of[layer], n);
}

static bool is_allowed(const struct espl_budget *budget, unsigned m, unsigned n)
{
    bool allowed = budget->level_count == 0 || n == m; /* dense always runs */
    for (size_t i = 0; !allowed && i < budget->level_count; i++) {
        allowed = budget->levels[i] == (int64_t)n;
    }
    return allowed;
}

/* Is level n cheaper than the denser level `kept` in some constraint? */
static bool is_cheaper(const struct espl_latency_record *record, const struct source *sources,
                       size_t count, size_t layer, unsigned n, unsigned kept)
{
    for (size_t c = 0; c < count; c++) {
        if (layer_cost(record, sources[c].cost, layer, n) <
            layer_cost(record, sources[c].cost, layer, kept)) {
            return true;
        }
    }
    return false;
}

/* Levels and costs of one layer of the search (`index`), which is `layer` of the record. */
static void fill_layer(const struct espl_latency_record *record, const struct source *sources,
                       size_t count, const struct espl_budget *budget, size_t index, size_t layer,
                       struct espl_search_problem *problem)
{
    uint8_t levels[ESPL_LATENCY_MAX_M];
    size_t kept = 0;
    for (unsigned n = record->m; n >= 1; n--) { /* densest first */
        if (is_allowed(budget, record->m, n) &&
            (kept == 0 || is_cheaper(record, sources, count, layer, n, levels[kept - 1]))) {
            levels[kept++] = (uint8_t)n;
        }
    }
    problem->level_count[index] = (uint8_t)kept;
    for (size_t level = 0; level < kept; level++) {
        const size_t cell = index * ESPL_SEARCH_MAX_LEVELS + level;
        const uint8_t n = levels[kept - 1 - level];
        problem->level_n[cell] = n;
        for (size_t c = 0; c < count; c++) {
            problem->cost[c][cell] = layer_cost(record, sources[c].cost, layer, n);
        }
    }
}

static enum espl_status check(const struct espl_latency_record *record,
                              const struct espl_supernet_facts *facts,
                              const struct espl_budget *budget, struct espl_error *err)
{
    if (record->m != facts->m) {
        espl_fail(err, ESPL_E_KIND, "the latency table is for N:%u, the supernet for N:%u",
                  record->m, facts->m);
        return espl_blame(err, "input:latency");
    }
    if (budget->kind != ESPL_BUDGET_LATENCY && !record->energy.present) {
        espl_fail(err, ESPL_E_KIND, "the latency table holds no energy");
        espl_hint(err, "constrain latency, or use a table with energy");
        return espl_blame(err, "param:constraint");
    }
    for (size_t i = 0; i < budget->level_count; i++) {
        if (budget->levels[i] < 1 || budget->levels[i] > (int64_t)facts->m) {
            espl_fail(err, ESPL_E_KIND, "level %lld is not in 1..%u", (long long)budget->levels[i],
                      facts->m);
            return espl_blame(err, "param:levels");
        }
    }
    return ESPL_OK;
}

/* The least cost is that of every layer at its sparsest level. Blames what set the budget. */
static enum espl_status check_budget(const struct source *source,
                                     const struct espl_search_constraint *constraint,
                                     const struct espl_search_problem *problem, double dense,
                                     struct espl_error *err)
{
    const bool is_latency = strcmp(source->name, "latency") == 0;
    const char *factor = is_latency ? "speedup" : "energy_saving";
    double least = constraint->base;
    for (size_t layer = 0; layer < problem->space.layers; layer++) {
        least += constraint->cost[layer * ESPL_SEARCH_MAX_LEVELS];
    }
    if (!(least > constraint->budget)) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_NUMERIC,
              "the %s budget of %.6g %s cannot be met: the sparsest configuration needs %.6g, the "
              "dense model %.6g",
              source->name, constraint->budget, is_latency ? "s" : "J", least, dense);
    if (source->budget > 0.0) {
        espl_hint(err, "allow at least %.6gms, or sparser levels", ceil(least * 1e6) * 1e-3);
        return espl_blame(err, "param:latency_budget");
    }
    espl_hint(err, "set '%s' to at most %.6g, or allow sparser levels", factor,
              floor(dense / least * 1e3) * 1e-3);
    return espl_blame(err, is_latency ? "param:speedup" : "param:energy_saving");
}

static enum espl_status allocate(struct espl_search_problem *problem, size_t layers,
                                 size_t constraints, struct espl_error *err)
{
    size_t cells = 0;
    bool good = espl_mul_size(layers, ESPL_SEARCH_MAX_LEVELS, &cells);
    if (good) {
        problem->level_count = calloc(layers, 1);
        problem->level_n = calloc(cells, 1);
        good = problem->level_count != NULL && problem->level_n != NULL;
    }
    for (size_t c = 0; good && c < constraints; c++) {
        problem->cost[c] = calloc(cells, sizeof(double));
        good = problem->cost[c] != NULL;
    }
    return good ? ESPL_OK
                : espl_fail(err, ESPL_E_NOMEM, "no memory for a search over %zu layers", layers);
}

enum espl_status espl_search_problem_make(const struct espl_latency_record *record,
                                          const struct espl_supernet_facts *facts,
                                          const struct espl_nm_layers *layers,
                                          const struct espl_budget *budget,
                                          struct espl_search_problem *problem,
                                          struct espl_error *err)
{
    struct source sources[ESPL_SEARCH_MAX_CONSTRAINTS];
    const size_t count = list_sources(record, budget, sources);
    memset(problem, 0, sizeof *problem);
    enum espl_status status = check(record, facts, budget, err);
    if (status == ESPL_OK) {
        status = allocate(problem, layers->count, count, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    double searched[ESPL_SEARCH_MAX_CONSTRAINTS] = {0.0}; /* dense cost of the searched layers */
    for (size_t i = 0; i < layers->count; i++) {
        const char *module = layers->items[i].spec.module;
        const size_t layer = espl_latency_record_layer(record, module);
        if (layer == record->layer_count) {
            espl_fail(err, ESPL_E_KIND, "layer '%s' is not in the latency table", module);
            return espl_blame(err, "input:latency");
        }
        fill_layer(record, sources, count, budget, i, layer, problem);
        for (size_t c = 0; c < count; c++) {
            searched[c] += layer_cost(record, sources[c].cost, layer, record->m);
        }
    }
    problem->space = (struct espl_search_space){.layers = layers->count,
                                                .level_count = problem->level_count,
                                                .level_n = problem->level_n,
                                                .constraints = count};
    for (size_t c = 0; c < count; c++) {
        const struct espl_predictor *predictor = &sources[c].cost->predictor;
        double dense = predictor->intercept;
        for (size_t layer = 0; layer < record->layer_count; layer++) {
            dense += layer_cost(record, sources[c].cost, layer, record->m);
        }
        problem->dense[c] = dense;
        problem->space.constraint[c] = (struct espl_search_constraint){
            .name = sources[c].name,
            .budget = sources[c].budget > 0.0 ? sources[c].budget : dense / sources[c].factor,
            .base = dense - searched[c],
            .cost = problem->cost[c]};
        status = check_budget(&sources[c], &problem->space.constraint[c], problem, dense, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return espl_search_space_check(&problem->space, err);
}

static enum espl_status check_predictor(const char *cost,
                                        const struct espl_predictor_health *health,
                                        struct espl_error *err)
{
    if (health->safe) {
        return ESPL_OK;
    }
    espl_fail(err, ESPL_E_NUMERIC, "the %s predictor is not safe to search with: %s", cost,
              health->reason);
    espl_hint(err, "measure more runs, with gamma: per_shape; 'allow_unsafe_predictor: true' "
                   "searches all the same");
    return espl_blame(err, "input:latency");
}

enum espl_status espl_search_check_predictors(const struct espl_latency_record *record, int kind,
                                              struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (kind != ESPL_BUDGET_ENERGY) {
        status = check_predictor("latency", &record->latency.predictor.health, err);
    }
    if (status == ESPL_OK && kind != ESPL_BUDGET_LATENCY && record->energy.present) {
        status = check_predictor("energy", &record->energy.predictor.health, err);
    }
    return status;
}

void espl_search_problem_free(struct espl_search_problem *problem)
{
    free(problem->level_count);
    free(problem->level_n);
    for (size_t c = 0; c < ESPL_SEARCH_MAX_CONSTRAINTS; c++) {
        free(problem->cost[c]);
    }
    memset(problem, 0, sizeof *problem);
}

void espl_search_problem_levels(const struct espl_search_problem *problem, const uint8_t *levels,
                                uint8_t *n)
{
    for (size_t layer = 0; layer < problem->space.layers; layer++) {
        n[layer] = problem->level_n[layer * ESPL_SEARCH_MAX_LEVELS + levels[layer]];
    }
}
