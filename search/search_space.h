/* What a search may choose from: a level for every layer, and what each choice costs. Levels of a
 * layer are its supported N of M in ascending order; a configuration is one level index a layer
 * (uint8_t, 0 = sparsest). Costs are additive over layers (a calibrated latency or energy table),
 * so checking a configuration takes no time next to evaluating it. */
#ifndef ESPL_SEARCH_SEARCH_SPACE_H
#define ESPL_SEARCH_SEARCH_SPACE_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    ESPL_SEARCH_MAX_LEVELS = 16, /* of a layer; the row length of level tables */
    ESPL_SEARCH_MAX_CONSTRAINTS = 2
};

struct espl_search_constraint {
    const char *name;   /* "latency" */
    double budget;      /* a configuration is feasible when base + its costs <= budget */
    double base;        /* cost that no choice changes */
    const double *cost; /* (layers, ESPL_SEARCH_MAX_LEVELS); never falls from a level to the next */
};

/** All pointers borrowed. */
struct espl_search_space {
    size_t layers;
    const uint8_t *level_count; /* (layers): 1..ESPL_SEARCH_MAX_LEVELS */
    const uint8_t *level_n;     /* (layers, ESPL_SEARCH_MAX_LEVELS): N of each level, ascending */
    size_t constraints;         /* 1 or 2 */
    struct espl_search_constraint constraint[ESPL_SEARCH_MAX_CONSTRAINTS];
};

/** Checks the tables, and that the sparsest configuration keeps every budget. Errors: KIND for
 *  tables that are not as described; NUMERIC for a budget below the least cost, naming both. */
enum espl_status espl_search_space_check(const struct espl_search_space *space,
                                         struct espl_error *err);
/** Cost of a configuration under one constraint, always summed in layer order: equal configurations
 * have equal costs to the last bit, however a search came to them. */
double espl_search_cost(const struct espl_search_space *space, size_t constraint,
                        const uint8_t *levels);
bool espl_search_feasible(const struct espl_search_space *space, const uint8_t *levels);
/** levels <- every layer at its highest level with N <= n (its sparsest when there is none). */
void espl_search_uniform(const struct espl_search_space *space, unsigned n, uint8_t *levels);
/** The largest n in 0..M whose uniform configuration is feasible; 0 = the sparsest of all. */
unsigned espl_search_uniform_limit(const struct espl_search_space *space);
static inline bool espl_search_can_densify(const struct espl_search_space *space, size_t layer,
                                           const uint8_t *levels)
{
    return levels[layer] + 1 < space->level_count[layer];
}

#endif
