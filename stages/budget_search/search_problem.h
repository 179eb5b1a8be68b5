/* From measured costs and a supernet to a search space: which levels a layer has, what each costs,
 * and the budgets. */
#ifndef ESPL_STAGES_SEARCH_PROBLEM_H
#define ESPL_STAGES_SEARCH_PROBLEM_H

#include "search/search_space.h"
#include "stages/latency_profile/latency_record.h"
#include "stages/nm_supernet/supernet_store.h"

enum espl_budget_kind { ESPL_BUDGET_LATENCY, ESPL_BUDGET_ENERGY, ESPL_BUDGET_BOTH };
/** "latency", "energy", "both"; ends with NULL. */
extern const char *const espl_budget_kinds[];

struct espl_budget {
    int kind;              /* enum espl_budget_kind */
    double speedup;        /* latency budget = predicted dense latency / speedup, ... */
    double latency;        /* ... or this many seconds when it is above 0 */
    double energy_saving;  /* energy budget = predicted dense energy / energy_saving */
    const int64_t *levels; /* N that kernels are for; count 0 = all of 1..m */
    size_t level_count;
};

struct espl_search_problem {
    struct espl_search_space space; /* points into the arrays below */
    uint8_t *level_count, *level_n;
    double *cost[ESPL_SEARCH_MAX_CONSTRAINTS];
    double dense[ESPL_SEARCH_MAX_CONSTRAINTS]; /* predicted cost of the dense model */
};

/** record: fitted. Layers of the record that the supernet lacks stay dense and are part of the base
 * cost. A level that no constraint finds cheaper than a denser one is left out: it could only lose
 * accuracy. Free with espl_search_problem_free(), also after a failure. Errors: KIND for another M,
 * a layer that was not measured, energy that nobody measured, levels out of range; NUMERIC for a
 * budget that cannot be met (naming the least cost); NOMEM. */
enum espl_status espl_search_problem_make(const struct espl_latency_record *record,
                                          const struct espl_supernet_facts *facts,
                                          const struct espl_nm_layers *layers,
                                          const struct espl_budget *budget,
                                          struct espl_search_problem *problem,
                                          struct espl_error *err);
/** Are the predictors that this kind of budget relies on safe? kind: enum espl_budget_kind; record:
 *  fitted. Errors: NUMERIC, blamed on the input 'latency'. */
enum espl_status espl_search_check_predictors(const struct espl_latency_record *record, int kind,
                                              struct espl_error *err);
void espl_search_problem_free(struct espl_search_problem *problem);
/** n (layers) <- N of every layer. */
void espl_search_problem_levels(const struct espl_search_problem *problem, const uint8_t *levels,
                                uint8_t *n);

#endif
