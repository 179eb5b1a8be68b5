#include "search/predictor.h"

#include "core/checked.h"
#include "core/rng.h"
#include "search/least_squares.h"
#include "search/nnls.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const espl_gamma_modes[] = {"per_shape", "shrunk", "per_layer", NULL};

/* The weighted least-squares problem: a row a run, then (SHRUNK) a row a gamma. */
struct fit {
    const struct espl_predictor_data *data;
    const struct espl_predictor_options *options;
    size_t gammas;    /* unknowns without b */
    size_t rows;      /* runs + ridge rows */
    double *design;   /* (rows, gammas + 1) */
    double *target;   /* (rows) */
    double *part;     /* (rows, gammas + 1): design without one run */
    double *rest;     /* (rows): target without one run */
    double *solution; /* (gammas + 1) */
};

static size_t group_of(const struct fit *fit, size_t layer)
{
    return fit->options->gamma == ESPL_GAMMA_PER_SHAPE ? fit->data->shape_of[layer] : layer;
}

static void release(struct fit *fit)
{
    free(fit->design);
    free(fit->target);
    free(fit->part);
    free(fit->rest);
    free(fit->solution);
}

static enum espl_status check_data(const struct espl_predictor_data *data, struct espl_error *err)
{
    if (data->runs == 0 || data->layers == 0) {
        return espl_fail(err, ESPL_E_KIND, "no measured runs to fit a predictor to");
    }
    for (size_t run = 0; run < data->runs; run++) {
        if (!isfinite(data->measured[run]) || data->measured[run] <= 0.0) {
            return espl_fail(err, ESPL_E_NUMERIC, "measured run %zu took %g, expected more than 0",
                             run, data->measured[run]);
        }
    }
    return ESPL_OK;
}

static enum espl_status prepare(struct fit *fit, struct espl_error *err)
{
    const struct espl_predictor_data *data = fit->data;
    const bool shrunk = fit->options->gamma == ESPL_GAMMA_SHRUNK;
    size_t count = 0;
    fit->gammas = fit->options->gamma == ESPL_GAMMA_PER_SHAPE ? data->shapes : data->layers;
    fit->rows = data->runs + (shrunk ? fit->gammas : 0);
    const size_t cols = fit->gammas + 1;
    if (!espl_mul_size(fit->rows, cols, &count) || count > SIZE_MAX / sizeof(double)) {
        return espl_fail(err, ESPL_E_NOMEM, "%zu measured runs do not fit in memory", data->runs);
    }
    fit->design = calloc(count, sizeof *fit->design);
    fit->target = calloc(fit->rows, sizeof *fit->target);
    fit->part = calloc(count, sizeof *fit->part);
    fit->rest = calloc(fit->rows, sizeof *fit->rest);
    fit->solution = calloc(cols, sizeof *fit->solution);
    if (fit->design == NULL || fit->target == NULL || fit->part == NULL || fit->rest == NULL ||
        fit->solution == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a fit to %zu runs", data->runs);
    }
    for (size_t run = 0; run < data->runs; run++) {
        double *row = fit->design + run * cols;
        for (size_t layer = 0; layer < data->layers; layer++) {
            row[group_of(fit, layer)] +=
                data->costs[run * data->layers + layer] / data->measured[run];
        }
        row[fit->gammas] = 1.0 / data->measured[run];
        fit->target[run] = 1.0;
    }
    for (size_t g = 0; shrunk && g < fit->gammas; g++) {
        fit->design[(data->runs + g) * cols + g] = fit->options->ridge;
        fit->target[data->runs + g] = fit->options->ridge;
    }
    return ESPL_OK;
}

/* |predicted / measured - 1| of a run under fit->solution. */
static double run_error(const struct fit *fit, size_t run)
{
    const size_t cols = fit->gammas + 1;
    double sum = 0.0;
    for (size_t c = 0; c < cols; c++) {
        sum += fit->design[run * cols + c] * fit->solution[c];
    }
    return fabs(sum - 1.0);
}

/* Fits without each run in turn and predicts it. */
static enum espl_status leave_one_out(struct fit *fit, struct espl_predictor_health *health,
                                      struct espl_error *err)
{
    const size_t cols = fit->gammas + 1;
    const size_t runs = fit->data->runs;
    health->left_out_mean_error = runs < 2 ? INFINITY : 0.0;
    health->left_out_max_error = runs < 2 ? INFINITY : 0.0;
    for (size_t left = 0; runs >= 2 && left < runs; left++) {
        const size_t after = fit->rows - left - 1;
        memcpy(fit->part, fit->design, left * cols * sizeof *fit->part);
        memcpy(fit->part + left * cols, fit->design + (left + 1) * cols,
               after * cols * sizeof *fit->part);
        memcpy(fit->rest, fit->target, left * sizeof *fit->rest);
        memcpy(fit->rest + left, fit->target + left + 1, after * sizeof *fit->rest);
        const enum espl_status status =
            espl_nnls_solve(fit->rows - 1, cols, fit->part, fit->rest, fit->solution, NULL, err);
        if (status != ESPL_OK) {
            return status;
        }
        const double error = run_error(fit, left);
        health->left_out_mean_error += error / (double)runs;
        health->left_out_max_error =
            error > health->left_out_max_error ? error : health->left_out_max_error;
    }
    return ESPL_OK;
}

static void judge(struct espl_predictor_health *health, const struct fit *fit)
{
    const size_t least = fit->options->gamma == ESPL_GAMMA_SHRUNK ? 2 : health->unknowns;
    char *reason = health->reason;
    const size_t size = sizeof health->reason;
    reason[0] = '\0';
    if (health->runs < least) {
        (void)snprintf(reason, size, "%zu measured runs for %zu unknowns", health->runs,
                       health->unknowns);
    } else if (health->zero_gammas > 0) {
        (void)snprintf(reason, size,
                       "%zu of %zu gammas are 0: the search would take these layers for free",
                       health->zero_gammas, fit->gammas);
    } else if (!isfinite(health->condition)) {
        (void)snprintf(reason, size, "the measured runs cannot tell the layers apart");
    } else if (!(health->left_out_max_error <= fit->options->max_error)) {
        (void)snprintf(reason, size, "a run left out is mispredicted by %.1f %%, allowed %.1f %%",
                       100.0 * health->left_out_max_error, 100.0 * fit->options->max_error);
    }
    health->safe = reason[0] == '\0';
}

static enum espl_status measure_health(struct fit *fit, struct espl_predictor_health *health,
                                       struct espl_error *err)
{
    const size_t runs = fit->data->runs;
    memset(health, 0, sizeof *health);
    health->runs = runs;
    health->unknowns = fit->gammas + 1;
    for (size_t run = 0; run < runs; run++) {
        const double error = run_error(fit, run);
        health->mean_error += error / (double)runs;
        health->max_error = error > health->max_error ? error : health->max_error;
    }
    for (size_t g = 0; g < fit->gammas; g++) {
        health->zero_gammas += fit->solution[g] == 0.0 ? 1u : 0u;
    }
    enum espl_status status =
        espl_condition_number(fit->rows, fit->gammas + 1, fit->design, &health->condition, err);
    if (status == ESPL_OK) {
        status = leave_one_out(fit, health, err);
    }
    if (status == ESPL_OK) {
        judge(health, fit);
    }
    return status;
}

enum espl_status espl_predictor_fit(const struct espl_predictor_data *data,
                                    const struct espl_predictor_options *options,
                                    struct espl_predictor *predictor, struct espl_error *err)
{
    struct fit fit = {.data = data, .options = options};
    memset(predictor, 0, sizeof *predictor);
    enum espl_status status = check_data(data, err);
    if (status == ESPL_OK) {
        status = prepare(&fit, err);
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    predictor->layers = data->layers;
    predictor->gamma = calloc(data->layers, sizeof *predictor->gamma);
    if (predictor->gamma == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "no memory for %zu gammas", data->layers);
        goto cleanup;
    }
    status =
        espl_nnls_solve(fit.rows, fit.gammas + 1, fit.design, fit.target, fit.solution, NULL, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    for (size_t layer = 0; layer < data->layers; layer++) {
        predictor->gamma[layer] = fit.solution[group_of(&fit, layer)];
    }
    predictor->intercept = fit.solution[fit.gammas];
    status = measure_health(&fit, &predictor->health, err);

cleanup:
    release(&fit);
    return status;
}

enum espl_status espl_predictor_sum(size_t layers, struct espl_predictor *predictor,
                                    struct espl_error *err)
{
    memset(predictor, 0, sizeof *predictor);
    predictor->layers = layers;
    predictor->gamma = calloc(layers > 0 ? layers : 1, sizeof *predictor->gamma);
    if (predictor->gamma == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu gammas", layers);
    }
    for (size_t layer = 0; layer < layers; layer++) {
        predictor->gamma[layer] = 1.0;
    }
    predictor->health.left_out_mean_error = INFINITY;
    predictor->health.left_out_max_error = INFINITY;
    predictor->health.condition = INFINITY;
    (void)snprintf(predictor->health.reason, sizeof predictor->health.reason,
                   "no end-to-end run was measured: this is the sum of the layers");
    return ESPL_OK;
}

void espl_predictor_free(struct espl_predictor *predictor)
{
    free(predictor->gamma);
    memset(predictor, 0, sizeof *predictor);
}

double espl_predictor_cost(const struct espl_predictor *predictor, const double *costs)
{
    double sum = predictor->intercept;
    for (size_t layer = 0; layer < predictor->layers; layer++) {
        sum += predictor->gamma[layer] * costs[layer];
    }
    return sum;
}

void espl_predictor_design(size_t layers, const size_t *shape_of, size_t shapes, size_t levels,
                           size_t runs, size_t run, uint64_t seed, uint8_t *out)
{
    const size_t quarter = runs / 4;
    const size_t near = runs - 2 * quarter; /* runs near one level */
    const uint8_t dense = (uint8_t)(levels - 1);
    struct espl_rng rng = espl_rng_stream(seed, "predictor-design", run);
    for (size_t layer = 0; layer < layers; layer++) {
        if (run < near) {
            const size_t level = run % levels;
            const size_t raised = level + (size_t)espl_rng_below(&rng, 3); /* one too high */
            out[layer] = raised == 0 ? 0 : raised - 1 < levels ? (uint8_t)(raised - 1) : dense;
        } else if (run < near + quarter) {
            const size_t turn = run - near;
            const bool apart = shape_of[layer] == turn / 2 % shapes;
            out[layer] = apart == (turn % 2 == 0) ? 0 : dense;
        } else {
            out[layer] = espl_rng_below(&rng, 2) == 0 ? 0 : dense;
        }
    }
}
