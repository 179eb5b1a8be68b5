/* Measures what a search chose, where its costs were measured on this machine. */
#ifndef ESPL_STAGES_BUDGET_MEASURE_H
#define ESPL_STAGES_BUDGET_MEASURE_H

#include "stages/budget_search/budget_run.h"

/** Times whole passes of the dense model and of the best configuration, both from random weights on
 * the kernels that the table chose, with the batch and the threads of the table, and reports
 * latency_measured_seconds, latency_prediction_error (predicted over measured, less 1) and
 * speedup_measured. Nothing of it is stored: measured figures differ from run to run. Without a
 * device to measure on (a table of another one, or of kernels that are not this CPU's) it says so
 * in the log and reports nothing. Errors: CANCELLED, NOMEM, those of the backend. */
enum espl_status espl_budget_measure(struct espl_budget_run *run, struct espl_error *err);

#endif
