/* Measures what a search chose, where its costs were measured on this machine. */
#ifndef ESPL_STAGES_BUDGET_MEASURE_H
#define ESPL_STAGES_BUDGET_MEASURE_H

#include "stages/budget_search/budget_run.h"

/** Times whole passes of the dense model, of the chosen configuration and of the next best two of
 * the front, all from random weights on the kernels that the table chose, with the batch and the
 * threads of the table. Reports latency_measured_seconds, latency_prediction_error (predicted over
 * measured, less 1) and speedup_measured of the chosen one, finalists_measured, and
 * latency_prediction_worst_error, the largest in magnitude of them; the log has each runner-up, and
 * a warning when the chosen one is over the budget here. Nothing of it is stored, and what is
 * chosen does not depend on it: measured figures differ from run to run. Without a device to
 * measure on (a table of another one, or of kernels that are not this CPU's) it says so in the log
 * and reports nothing. Errors: CANCELLED, NOMEM, those of the backend. */
enum espl_status espl_budget_measure(struct espl_budget_run *run, struct espl_error *err);
/** The relative error that is larger in magnitude, with its sign. */
double espl_budget_worse_error(double a, double b);

#endif
