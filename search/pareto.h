/* Configurations that no other one beats in cost (lower is better) and score (higher is better)
 * together. */
#ifndef ESPL_SEARCH_PARETO_H
#define ESPL_SEARCH_PARETO_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

/** Zero-initialise and set `layers`. By ascending cost, hence ascending score. */
struct espl_pareto {
    size_t layers;
    size_t count, capacity;
    uint8_t *levels; /* (capacity, layers) */
    double *cost;    /* (capacity) */
    double *score;   /* (capacity) */
};

void espl_pareto_free(struct espl_pareto *front);
/** Takes the configuration in unless another one is at least as good in both, and drops those it
 * beats. Of equals the first stays. Errors: NOMEM. */
enum espl_status espl_pareto_add(struct espl_pareto *front, const uint8_t *levels, double cost,
                                 double score, struct espl_error *err);

#endif
