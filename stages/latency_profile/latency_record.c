#include "stages/latency_profile/latency_record.h"

#include "core/checked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void espl_latency_record_free(struct espl_latency_record *record)
{
    espl_latency_table_free(&record->latency.table);
    espl_latency_table_free(&record->energy.table);
    espl_predictor_free(&record->latency.predictor);
    espl_predictor_free(&record->energy.predictor);
    free(record->latency.measured);
    free(record->energy.measured);
    free(record->shapes);
    free(record->modules);
    free(record->shape_of);
    free(record->run_n);
    free(record->holdout_n);
    free(record->holdout_measured);
    memset(record, 0, sizeof *record);
}

/* Table costs (runs, layers) of the measured runs. */
static double *run_costs(const struct espl_latency_record *record,
                         const struct espl_latency_cost_record *cost)
{
    size_t count = 0;
    if (!espl_mul_size(record->run_count, record->layer_count, &count) ||
        count > SIZE_MAX / sizeof(double)) {
        return NULL;
    }
    double *costs = malloc((count > 0 ? count : 1) * sizeof *costs);
    for (size_t i = 0; costs != NULL && i < count; i++) {
        const size_t layer = i % record->layer_count;
        costs[i] = espl_latency_cost(&cost->table, record->shape_of[layer], record->run_n[i]);
    }
    return costs;
}

static enum espl_status fit_cost(const struct espl_latency_record *record,
                                 struct espl_latency_cost_record *cost, struct espl_error *err)
{
    espl_predictor_free(&cost->predictor);
    if (!cost->present) {
        return ESPL_OK;
    }
    if (record->run_count == 0) {
        return espl_predictor_sum(record->layer_count, &cost->predictor, err);
    }
    double *costs = run_costs(record, cost);
    if (costs == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu measured runs", record->run_count);
    }
    const struct espl_predictor_data data = {.layers = record->layer_count,
                                             .runs = record->run_count,
                                             .shapes = record->shape_count,
                                             .shape_of = record->shape_of,
                                             .costs = costs,
                                             .measured = cost->measured};
    const enum espl_status status = espl_predictor_fit(&data, &record->fit, &cost->predictor, err);
    free(costs);
    return status;
}

enum espl_status espl_latency_record_fit(struct espl_latency_record *record, struct espl_error *err)
{
    enum espl_status status = fit_cost(record, &record->latency, err);
    if (status != ESPL_OK) {
        espl_context(err, "fitting the latency predictor");
        return status;
    }
    status = fit_cost(record, &record->energy, err);
    if (status != ESPL_OK) {
        espl_context(err, "fitting the energy predictor");
    }
    return status;
}

size_t espl_latency_record_layer(const struct espl_latency_record *record, const char *module)
{
    size_t i = 0;
    while (i < record->layer_count && strcmp(record->modules[i], module) != 0) {
        i++;
    }
    return i;
}

double espl_latency_record_predict(const struct espl_latency_record *record,
                                   const struct espl_latency_cost_record *cost, const uint8_t *n)
{
    double sum = cost->predictor.intercept;
    for (size_t layer = 0; layer < record->layer_count; layer++) {
        sum += cost->predictor.gamma[layer] *
               espl_latency_cost(&cost->table, record->shape_of[layer], n[layer]);
    }
    return sum;
}

static const char *after_word(const char *device)
{
    const char *mark = strchr(device, ';');
    return mark != NULL ? mark : device;
}

bool espl_latency_same_device(const char *a, const char *b)
{
    return strcmp(after_word(a), after_word(b)) == 0;
}
