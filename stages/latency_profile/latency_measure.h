/* Fills a latency record by measuring this machine. */
#ifndef ESPL_STAGES_LATENCY_MEASURE_H
#define ESPL_STAGES_LATENCY_MEASURE_H

#include "engine/stage.h"
#include "stages/latency_profile/nm_stack.h"

struct espl_latency_plan {
    size_t batch;
    unsigned m;
    size_t vector;       /* 0 = no kernel for sparse layers: dense alone is measured */
    size_t repeats;      /* timed products of an entry, after a few untimed ones */
    size_t runs;         /* whole passes with different configurations; 0 = none */
    size_t run_repeats;  /* timed passes of each */
    size_t holdout_runs; /* passes that nothing is fitted to */
};

/** Names device, kernels, layers and shapes, without measurements. kernels: their names, as
 * espl_nm_stack_kernels() gives them. Free with espl_latency_record_free(),
 * also after a failure. Errors: NOMEM. */
enum espl_status espl_latency_record_begin(const struct espl_nm_layers *layers,
                                           const struct espl_latency_plan *plan, const char *device,
                                           const char *const *kernels,
                                           struct espl_latency_record *record,
                                           struct espl_error *err);
/** Measures every shape, level and kernel, closes the table, then measures whole passes. Reports
 * progress and stops when asked. Errors: CANCELLED, those of the kernels. */
enum espl_status espl_latency_measure(struct espl_stage_ctx *ctx, struct espl_nm_stack *stack,
                                      const struct espl_latency_plan *plan,
                                      struct espl_latency_record *record, struct espl_error *err);
/** *seconds <- median of `repeats` passes of a configuration n (layers), after an untimed one.
 *  times (repeats): work space. Errors: as above. */
enum espl_status espl_latency_measure_pass(struct espl_stage_ctx *ctx, struct espl_nm_stack *stack,
                                           size_t repeats, const struct espl_latency_record *record,
                                           const uint8_t *n, double *times, double *seconds,
                                           struct espl_error *err);

#endif
