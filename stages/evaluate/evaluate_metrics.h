/* The metrics artifact of an evaluation. */
#ifndef ESPL_STAGES_EVALUATE_METRICS_H
#define ESPL_STAGES_EVALUATE_METRICS_H

#include "artifact/artifact.h"

/** A figure that equal runs reproduce bit for bit. */
struct espl_named_value {
    const char *name;
    double value;
};

/** Writes description {"metrics":{name: value}} and /metrics/values f64 [count] into an unfinished
 *  metrics/1 artifact. values: sorted by name. */
enum espl_status espl_evaluate_write_metrics(struct espl_artifact *output,
                                             const struct espl_named_value *values, size_t count,
                                             struct espl_error *err);

#endif
