/* What a run of budget-search holds, from opening its inputs to the end of the search. */
#ifndef ESPL_STAGES_BUDGET_RUN_H
#define ESPL_STAGES_BUDGET_RUN_H

#include "engine/stage.h"
#include "stages/budget_search/budget_params.h"

struct espl_budget_run {
    struct espl_stage_ctx *ctx;
    const struct espl_budget_params *params;
    struct espl_model *model;
    struct espl_supernet supernet;
    struct espl_latency_record record;
    struct espl_nm_pictures pictures; /* of the search, and held out */
    struct espl_nm_pictures holdout;  /* of the port 'holdout' */
    bool own_holdout;                 /* is that connected? */
    struct espl_backend *backend;
    struct espl_nm_oracle *oracle;
    struct espl_search_problem problem;
    struct espl_search *search;
    uint8_t *n;       /* (ESPL_SEARCH_MAX_OFFSPRING + 1 or layers, layers): configurations as N */
    uint64_t resumed; /* generations that an earlier run had finished */
};

/** Opens all inputs, refuses what must not be searched with (unsafe predictor, foreign device,
 * vector mismatch), makes problem and search. Close with espl_budget_run_close(), also after a
 * failure. */
enum espl_status espl_budget_run_open(struct espl_stage_ctx *ctx,
                                      const struct espl_budget_params *params,
                                      struct espl_budget_run *run, struct espl_error *err);
void espl_budget_run_close(struct espl_budget_run *run);
/** Continues after the last finished generation, then runs the search to its end; every generation
 * is published. Errors: CANCELLED, those of scoring. */
enum espl_status espl_budget_run_search(struct espl_budget_run *run, struct espl_error *err);

#endif
