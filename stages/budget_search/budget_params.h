/* Parameters of budget-search; the table is in budget_params.c. */
#ifndef ESPL_STAGES_BUDGET_PARAMS_H
#define ESPL_STAGES_BUDGET_PARAMS_H

#include "engine/param.h"
#include "search/search.h"
#include "stages/budget_search/search_problem.h"
#include "stages/nm_supernet/nm_oracle.h"

struct espl_budget_params {
    int strategy;   /* index into espl_search_strategies */
    int constraint; /* enum espl_budget_kind */
    double speedup, latency_budget, energy_saving;
    struct espl_list levels; /* int64_t */
    int64_t generations, offspring, initial, overshoot_min, overshoot_max, patience;
    int64_t max_evaluations;
    bool fill_initial, resample;
    int repair, refine, selection;
    struct espl_list pictures;  /* int64_t: of every fidelity */
    struct espl_list metrics;   /* const char *: of every fidelity */
    struct espl_list survivors; /* int64_t: that go to the next fidelity */
    int64_t search_pictures, holdout_pictures;
    bool allow_unsafe_predictor, allow_foreign, allow_vector_mismatch;
    uint64_t activation_cache, weight_cache; /* bytes */
};

/** Ends with .name == NULL. */
extern const struct espl_param espl_budget_params_table[];

/** What the parameters say to the search and to the oracle. Errors: JOB, blamed on the parameter,
 * for lists of different lengths, unknown metrics and numbers out of range. */
enum espl_status espl_budget_options(const struct espl_budget_params *params, uint64_t seed,
                                     size_t layers, struct espl_search_options *search,
                                     struct espl_nm_oracle_options *oracle, struct espl_error *err);
struct espl_budget espl_budget_of(const struct espl_budget_params *params);
/** Pictures of the search out of `count`: all with a holdout of its own, else half unless told. */
uint64_t espl_budget_pool(const struct espl_budget_params *params, uint64_t count,
                          bool own_holdout);

#endif
