#include "stages/budget_search/budget_params.h"

#include <stddef.h>
#include <string.h>

/* In the order of espl_search_strategies; a test compares. */
static const char *const strategies[] = {"overshoot-repair-refine", "evopress", "uniform", "greedy",
                                         NULL};

#define AT(field) .offset = offsetof(struct espl_budget_params, field)

const struct espl_param espl_budget_params_table[] = {
    {.name = "strategy",
     .help = "how to search: overshoot-repair-refine (N:M paper, Algorithm 1), evopress, greedy by "
             "sensitivity, or the uniform baseline",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "overshoot-repair-refine",
     .choices = strategies,
     AT(strategy)},
    {.name = "constraint",
     .help = "what has a budget: predicted latency, energy, or both",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "latency",
     .choices = espl_budget_kinds,
     AT(constraint)},
    {.name = "speedup",
     .help = "latency budget as a factor: predicted latency of the dense model divided by this",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "2",
     .min = 1.0,
     .max = 1000.0,
     AT(speedup)},
    {.name = "latency_budget",
     .help = "latency budget of a batch, in place of 'speedup', for example 4ms",
     .unit = "",
     .type = ESPL_PARAM_DURATION,
     .flags = ESPL_PARAM_OPTIONAL,
     .min = 1e-6, /* 0 would read as not given */
     .max = 1e6,
     AT(latency_budget)},
    {.name = "energy_saving",
     .help = "energy budget as a factor: predicted energy of the dense model divided by this",
     .unit = "",
     .type = ESPL_PARAM_REAL,
     .default_text = "2",
     .min = 1.0,
     .max = 1000.0,
     AT(energy_saving)},
    {.name = "levels",
     .help = "N that layers may have, for example [1, 2, 4]; dense is always allowed; empty = all",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[]",
     .min = 1.0,
     .max = 16.0,
     AT(levels)},
    {.name = "generations",
     .help = "most generations after the first parent",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "100",
     .min = 0.0,
     .max = 1e6,
     AT(generations)},
    {.name = "offspring",
     .help = "configurations that a generation makes (lambda)",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "8",
     .min = 1.0,
     .max = ESPL_SEARCH_MAX_OFFSPRING,
     AT(offspring)},
    {.name = "initial",
     .help = "nearly uniform configurations that the first parent is chosen from",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "8",
     .min = 1.0,
     .max = ESPL_SEARCH_MAX_OFFSPRING,
     AT(initial)},
    {.name = "fill_initial",
     .help = "densify these at random first, as far as the budget allows",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "true",
     AT(fill_initial)},
    {.name = "overshoot_min",
     .help = "fewest layers that an overshoot densifies",
     .unit = "layers",
     .type = ESPL_PARAM_INT,
     .default_text = "1",
     .min = 1.0,
     .max = 10000.0,
     AT(overshoot_min)},
    {.name = "overshoot_max",
     .help = "most layers that an overshoot densifies",
     .unit = "layers",
     .type = ESPL_PARAM_INT,
     .default_text = "1",
     .min = 1.0,
     .max = 10000.0,
     AT(overshoot_max)},
    {.name = "repair",
     .help =
         "after the overshoot: fewest prefers a random layer whose next sparser level suffices, "
         "random takes any (as printed in the paper)",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "fewest",
     .choices = espl_search_repair_names,
     AT(repair)},
    {.name = "refine",
     .help =
         "after the repair: latency_only densifies as far as the budget allows without scoring, "
         "lazy takes the first step that does not hurt, literal scores all steps before each "
         "(as printed in the paper)",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "latency_only",
     .choices = espl_search_refine_names,
     AT(refine)},
    {.name = "selection",
     .help = "plus keeps the parent until an offspring is as good, comma forgets it (as printed)",
     .unit = "",
     .type = ESPL_PARAM_ENUM,
     .default_text = "plus",
     .choices = espl_search_selection_names,
     AT(selection)},
    {.name = "patience",
     .help = "stop after this many generations without a better parent; 0 = never",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "20",
     .min = 0.0,
     .max = 1e6,
     AT(patience)},
    {.name = "max_evaluations",
     .help = "stop after this many computed scores; 0 = no limit",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = 1e9,
     AT(max_evaluations)},
    {.name = "pictures",
     .help = "pictures of every fidelity, cheapest first, for example [256, 2048]",
     .unit = "pictures",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[256]",
     .min = 1.0,
     .max = 1e9,
     AT(pictures)},
    {.name = "metrics",
     .help = "what every fidelity scores: kl (from the dense supernet), top1 or loss",
     .unit = "",
     .type = ESPL_PARAM_STRING,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[kl]",
     AT(metrics)},
    {.name = "survivors",
     .help = "offspring that go on from every fidelity but the last, for example [2]",
     .unit = "",
     .type = ESPL_PARAM_INT,
     .flags = ESPL_PARAM_LIST,
     .default_text = "[]",
     .min = 1.0,
     .max = ESPL_SEARCH_MAX_OFFSPRING,
     AT(survivors)},
    {.name = "resample",
     .help = "true: every generation draws pictures of its own (the same for all its candidates); "
             "false: one draw for the whole search",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     AT(resample)},
    {.name = "search_pictures",
     .help = "pictures of 'images' that the search may see, drawn at random; the others are held "
             "out; 0 = half, or all when 'holdout' is connected",
     .unit = "pictures",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = 1e9,
     AT(search_pictures)},
    {.name = "holdout_pictures",
     .help = "held-out pictures that the reported accuracy is measured on; 0 = all",
     .unit = "pictures",
     .type = ESPL_PARAM_INT,
     .default_text = "0",
     .min = 0.0,
     .max = 1e9,
     AT(holdout_pictures)},
    {.name = "allow_unsafe_predictor",
     .help = "search although the predictor is not safe (zero factors, too few runs, large errors)",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     AT(allow_unsafe_predictor)},
    {.name = "allow_foreign",
     .help = "search with costs of another device than this one",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     AT(allow_foreign)},
    {.name = "allow_vector_mismatch",
     .help = "search although the measured kernels need patterns shared by more channels than the "
             "supernet's: the speed-up then is that of a kernel which does not need them",
     .unit = "",
     .type = ESPL_PARAM_BOOL,
     .default_text = "false",
     AT(allow_vector_mismatch)},
    {.name = "activation_cache",
     .help = "memory for activations that candidates share",
     .unit = "",
     .type = ESPL_PARAM_SIZE,
     .flags = ESPL_PARAM_NO_HASH,
     .default_text = "512MiB",
     .max = 1e15,
     AT(activation_cache)},
    {.name = "weight_cache",
     .help = "memory for masked weights",
     .unit = "",
     .type = ESPL_PARAM_SIZE,
     .flags = ESPL_PARAM_NO_HASH,
     .default_text = "1GiB",
     .max = 1e15,
     AT(weight_cache)},
    {.name = NULL},
};

struct espl_budget espl_budget_of(const struct espl_budget_params *params)
{
    return (struct espl_budget){.kind = params->constraint,
                                .speedup = params->speedup,
                                .latency = params->latency_budget,
                                .energy_saving = params->energy_saving,
                                .levels = params->levels.items,
                                .level_count = params->levels.count};
}

uint64_t espl_budget_pool(const struct espl_budget_params *params, uint64_t count, bool own_holdout)
{
    if (params->search_pictures > 0) {
        return (uint64_t)params->search_pictures;
    }
    return own_holdout || count < 2 ? count : count / 2;
}

static enum espl_status fail_list(const char *name, const char *blame, struct espl_error *err)
{
    espl_fail(
        err, ESPL_E_JOB,
        "'%s' does not fit: 1 to %d fidelities with pictures and a metric each, and survivors "
        "of all but the last",
        name, (int)ESPL_SEARCH_MAX_FIDELITIES);
    return espl_blame(err, blame);
}

static enum espl_status read_fidelities(const struct espl_budget_params *params,
                                        struct espl_search_options *search,
                                        struct espl_nm_oracle_options *oracle,
                                        struct espl_error *err)
{
    const int64_t *pictures = params->pictures.items;
    const char *const *metrics = params->metrics.items;
    const int64_t *survivors = params->survivors.items;
    const size_t count = params->pictures.count;
    if (count < 1 || count > ESPL_SEARCH_MAX_FIDELITIES) {
        return fail_list("pictures", "param:pictures", err);
    }
    if (params->metrics.count != count) {
        return fail_list("metrics", "param:metrics", err);
    }
    if (params->survivors.count + 1 != count) {
        return fail_list("survivors", "param:survivors", err);
    }
    search->fidelities = oracle->fidelities = (unsigned)count;
    for (size_t f = 0; f < count; f++) {
        int metric = 0;
        while (espl_nm_metrics[metric] != NULL &&
               strcmp(espl_nm_metrics[metric], metrics[f]) != 0) {
            metric++;
        }
        if (espl_nm_metrics[metric] == NULL) {
            espl_fail(err, ESPL_E_JOB, "unknown metric '%s', expected kl, top1 or loss",
                      metrics[f]);
            return espl_blame(err, "param:metrics");
        }
        oracle->metric[f] = metric;
        oracle->pictures[f] = (size_t)pictures[f];
        search->survivors[f] = f + 1 < count ? (size_t)survivors[f] : 1;
    }
    return ESPL_OK;
}

enum espl_status espl_budget_options(const struct espl_budget_params *params, uint64_t seed,
                                     size_t layers, struct espl_search_options *search,
                                     struct espl_nm_oracle_options *oracle, struct espl_error *err)
{
    memset(oracle, 0, sizeof *oracle);
    espl_search_default_options(search);
    if (params->overshoot_max < params->overshoot_min) {
        espl_fail(err, ESPL_E_JOB, "overshoot_max %lld is below overshoot_min %lld",
                  (long long)params->overshoot_max, (long long)params->overshoot_min);
        return espl_blame(err, "param:overshoot_max");
    }
    search->seed = seed;
    search->generations = (uint64_t)params->generations;
    search->offspring = (size_t)params->offspring;
    search->initial = (size_t)params->initial;
    search->fill_initial = params->fill_initial;
    search->overshoot_min = (unsigned)params->overshoot_min;
    search->overshoot_max = (unsigned)params->overshoot_max;
    search->repair = params->repair;
    search->refine = params->refine;
    search->selection = params->selection;
    search->resample = params->resample;
    search->max_evaluations = (uint64_t)params->max_evaluations;
    search->patience = (uint64_t)params->patience;
    if (strcmp(strategies[params->strategy], "greedy") == 0) {
        search->generations = layers + 1; /* one a layer, one to put them together */
        search->resample = false;         /* scores of different layers are compared */
        search->patience = 0;
    }
    oracle->activation_bytes = params->activation_cache;
    oracle->weight_bytes = params->weight_cache;
    return read_fidelities(params, search, oracle, err);
}
