/* What budget-search leaves: an assignment, the masked model made from it, figures. */
#ifndef ESPL_STAGES_BUDGET_OUTPUT_H
#define ESPL_STAGES_BUDGET_OUTPUT_H

#include "stages/budget_search/budget_run.h"

/** Measures the chosen and the dense configuration on held-out pictures, and reports metrics: what
 * was found, what it cost, the strip of N per layer and the trajectory. Errors: CANCELLED. */
enum espl_status espl_budget_report(struct espl_budget_run *run, struct espl_error *err);
/** assignment/1: description {"architecture", "config", "base", "assignment": {..}}, datasets
 *  /assignment/n u8 [layers], /trajectory/values f64 [generations, 5] (generation, computed scores,
 *  score, cost of each constraint), /front/cost and /front/score f64 [points], /front/n u8 [points,
 *  layers]. */
enum espl_status espl_budget_write_assignment(struct espl_budget_run *run, struct espl_error *err);
/** model.masked/1 of the chosen configuration. */
enum espl_status espl_budget_write_model(struct espl_budget_run *run, struct espl_error *err);
/** The "pruning" member of the masked model: method, m, vector, and N by module (levels NULL: at
 *  plan time, without). New reference, NULL when out of memory. */
json_t *espl_budget_describe_pruning(const struct espl_supernet_facts *facts,
                                     const struct espl_nm_layers *layers, const uint8_t *n);

#endif
