#include "stages/budget_search/budget_measure.h"

#include "stages/latency_profile/nm_stack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    REPEATS = 9,  /* timed passes of each model, after an untimed one */
    FINALISTS = 3 /* the chosen configuration and the next best ones of the front */
};

struct timing {
    double predicted, measured; /* seconds of a pass */
};

double espl_budget_worse_error(double a, double b)
{
    return fabs(b) > fabs(a) ? b : a;
}

/* Are the table's kernels the ones that passes are made of on the job's device? */
static bool are_own_kernels(const struct espl_latency_record *record, const char *device)
{
    const char *const *names = espl_nm_stack_kernels(device);
    bool own = true;
    for (size_t k = 0; own && k < record->kernel_count; k++) {
        own = names[k] != NULL && strcmp(record->kernels[k], names[k]) == 0;
    }
    return own;
}

static bool can_measure(const struct espl_budget_run *run)
{
    const char *here = espl_ctx_device_fingerprint(run->ctx);
    if (espl_latency_same_device(run->record.device, here) &&
        are_own_kernels(&run->record, espl_ctx_device(run->ctx))) {
        return true;
    }
    espl_log(espl_ctx_log(run->ctx), ESPL_LOG_INFO,
             "what was chosen is not measured: the latencies are not of this machine's kernels");
    return false;
}

/* Median of whole passes. n (layers of the record). */
static enum espl_status time_passes(struct espl_budget_run *run, struct espl_nm_stack *stack,
                                    const uint8_t *n, double *seconds, struct espl_error *err)
{
    const struct espl_latency_record *record = &run->record;
    double times[REPEATS + 1];
    double spread = 0.0;
    for (size_t i = 0; i < REPEATS + 1; i++) {
        if (espl_ctx_cancelled(run->ctx)) {
            return espl_ctx_stop(run->ctx, err);
        }
        const enum espl_status status = espl_nm_stack_time_pass(
            stack, &record->latency.table, record->shape_of, n, &times[i], err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    espl_latency_summarise(times + 1, REPEATS, seconds, &spread);
    return ESPL_OK;
}

/* n (layers of the record) <- a configuration; what the search left out stays dense. */
static void spread_levels(struct espl_budget_run *run, const uint8_t *levels, uint8_t *n)
{
    const struct espl_latency_record *record = &run->record;
    memset(n, (int)record->m, record->layer_count);
    espl_search_problem_levels(&run->problem, levels, run->n);
    for (size_t i = 0; i < run->supernet.layers.count; i++) {
        const char *module = run->supernet.layers.items[i].spec.module;
        n[espl_latency_record_layer(record, module)] = run->n[i];
    }
}

static enum espl_status time_levels(struct espl_budget_run *run, struct espl_nm_stack *stack,
                                    const uint8_t *levels, uint8_t *n, struct timing *timing,
                                    struct espl_error *err)
{
    spread_levels(run, levels, n);
    timing->predicted = espl_latency_record_predict(&run->record, &run->record.latency, n);
    return time_passes(run, stack, n, &timing->measured, err);
}

static double prediction_error(const struct timing *timing)
{
    return timing->predicted / timing->measured - 1.0;
}

/* Times the best of the front that are not the chosen one; the front goes up in cost and score. */
static enum espl_status time_others(struct espl_budget_run *run, struct espl_nm_stack *stack,
                                    uint8_t *n, double *worst, struct espl_error *err)
{
    const uint8_t *best = espl_search_best(run->search);
    size_t timed = 1;
    enum espl_status status = ESPL_OK;
    for (size_t i = espl_search_front_count(run->search); i > 0 && timed < FINALISTS; i--) {
        const uint8_t *levels = NULL;
        double cost = 0.0;
        double score = 0.0;
        struct timing timing;
        espl_search_front_at(run->search, i - 1, &levels, &cost, &score);
        if (memcmp(levels, best, run->problem.space.layers) == 0) {
            continue;
        }
        status = time_levels(run, stack, levels, n, &timing, err);
        if (status != ESPL_OK) {
            return status;
        }
        timed++;
        espl_log(espl_ctx_log(run->ctx), ESPL_LOG_INFO,
                 "runner-up with score %.6g: predicted %.4g ms, measured %.4g ms", score,
                 1e3 * timing.predicted, 1e3 * timing.measured);
        *worst = espl_budget_worse_error(*worst, prediction_error(&timing));
    }
    return espl_ctx_metric(run->ctx, "finalists_measured", (double)timed, true, err);
}

/* The search holds the prediction to the budget; says so when the machine does not. */
static void check_budget(const struct espl_budget_run *run, const struct timing *chosen)
{
    const struct espl_search_constraint *constraint = &run->problem.space.constraint[0];
    if (run->params->constraint == ESPL_BUDGET_ENERGY || chosen->measured <= constraint->budget) {
        return;
    }
    espl_log(espl_ctx_log(run->ctx), ESPL_LOG_WARN,
             "measured here, what was chosen takes %.4g ms, %.1f %% over the budget: search with a "
             "lower one, or measure the latencies again",
             1e3 * chosen->measured, 1e2 * (chosen->measured / constraint->budget - 1.0));
}

static enum espl_status report(struct espl_budget_run *run, double dense,
                               const struct timing *chosen, struct espl_error *err)
{
    const struct {
        const char *name;
        double value;
    } figures[] = {
        {"latency_measured_seconds", chosen->measured},
        {"latency_prediction_error", prediction_error(chosen)},
        {"speedup_measured", dense / chosen->measured},
    };
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; status == ESPL_OK && i < sizeof figures / sizeof figures[0]; i++) {
        status = espl_ctx_metric(run->ctx, figures[i].name, figures[i].value, true, err);
    }
    return status;
}

static enum espl_status measure(struct espl_budget_run *run, struct espl_nm_stack *stack,
                                struct espl_error *err)
{
    const struct espl_latency_record *record = &run->record;
    uint8_t *n = malloc(record->layer_count);
    double dense = 0.0;
    double worst = 0.0;
    struct timing chosen = {0};
    if (n == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu layers", record->layer_count);
    }
    memset(n, (int)record->m, record->layer_count);
    enum espl_status status = time_passes(run, stack, n, &dense, err);
    if (status == ESPL_OK) {
        status = time_levels(run, stack, espl_search_best(run->search), n, &chosen, err);
    }
    if (status == ESPL_OK) {
        check_budget(run, &chosen);
        worst = prediction_error(&chosen);
        status = report(run, dense, &chosen, err);
    }
    if (status == ESPL_OK) {
        status = time_others(run, stack, n, &worst, err);
    }
    if (status == ESPL_OK) {
        status = espl_ctx_metric(run->ctx, "latency_prediction_worst_error", worst, true, err);
    }
    free(n);
    return status;
}

enum espl_status espl_budget_measure(struct espl_budget_run *run, struct espl_error *err)
{
    const struct espl_model_config *config = espl_model_get_config(run->model);
    const struct espl_latency_record *record = &run->record;
    struct espl_nm_layers layers = {0};
    struct espl_nm_stack *stack = NULL;
    if (!can_measure(run)) {
        return ESPL_OK;
    }
    enum espl_status status = espl_nm_layers_all(config, record->m, &layers, err);
    if (status == ESPL_OK) {
        const struct espl_nm_stack_plan plan = {.device = espl_ctx_device(run->ctx),
                                                .threads = (unsigned)record->threads,
                                                .config = config,
                                                .layers = &layers,
                                                .batch = record->batch,
                                                .m = record->m,
                                                .vector = record->vector};
        status = espl_nm_stack_open(&plan, &stack, err);
    }
    if (status == ESPL_OK) {
        status = measure(run, stack, err);
    }
    espl_nm_stack_destroy(stack);
    espl_nm_layers_free(&layers);
    return status;
}
