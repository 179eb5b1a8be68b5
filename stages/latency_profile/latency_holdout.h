/* Passes that the predictor was not fitted to: how far it is off. */
#ifndef ESPL_STAGES_LATENCY_HOLDOUT_H
#define ESPL_STAGES_LATENCY_HOLDOUT_H

#include "stages/latency_profile/latency_measure.h"

/** N of every layer in configuration `run`, 1..m: every second one draws each layer from all
 * levels, the others from three neighbouring ones, as searches end up. Deterministic. n (layers).
 */
void espl_latency_holdout_draw(size_t layers, unsigned m, size_t run, uint8_t *n);
/** Measures plan->holdout_runs configurations; record: measured. Errors: CANCELLED, NOMEM, those of
 *  the kernels. */
enum espl_status espl_latency_measure_holdout(struct espl_stage_ctx *ctx,
                                              struct espl_nm_stack *stack,
                                              const struct espl_latency_plan *plan,
                                              struct espl_latency_record *record,
                                              struct espl_error *err);

/** Relative errors of the predictions of a fitted record. */
struct espl_latency_holdout_errors {
    double mean; /* of magnitudes */
    double worst;
};
struct espl_latency_holdout_errors
espl_latency_holdout_errors(const struct espl_latency_record *record);
/** Reports them, and each configuration. Nothing without configurations. Errors: those of the
 *  context. */
enum espl_status espl_latency_report_holdout(struct espl_stage_ctx *ctx,
                                             const struct espl_latency_record *record,
                                             struct espl_error *err);

#endif
