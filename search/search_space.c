#include "search/search_space.h"

#include <math.h>
#include <string.h>

static enum espl_status check_layer(const struct espl_search_space *space, size_t layer,
                                    struct espl_error *err)
{
    const size_t row = layer * ESPL_SEARCH_MAX_LEVELS;
    const unsigned count = space->level_count[layer];
    if (count < 1 || count > ESPL_SEARCH_MAX_LEVELS) {
        return espl_fail(err, ESPL_E_KIND, "layer %zu has %u levels, expected 1 to %d", layer,
                         count, (int)ESPL_SEARCH_MAX_LEVELS);
    }
    for (unsigned level = 0; level < count; level++) {
        if (level > 0 && space->level_n[row + level] <= space->level_n[row + level - 1]) {
            return espl_fail(err, ESPL_E_KIND, "layer %zu: its levels are not in ascending order",
                             layer);
        }
        for (size_t c = 0; c < space->constraints; c++) {
            const double *cost = space->constraint[c].cost + row;
            if (!isfinite(cost[level]) || cost[level] < 0.0) {
                return espl_fail(err, ESPL_E_KIND, "layer %zu, level %u: %s is %g", layer, level,
                                 space->constraint[c].name, cost[level]);
            }
            if (level > 0 && cost[level] < cost[level - 1]) {
                return espl_fail(err, ESPL_E_KIND,
                                 "layer %zu: %s falls from level %u to the denser level %u", layer,
                                 space->constraint[c].name, level - 1, level);
            }
        }
    }
    return ESPL_OK;
}

enum espl_status espl_search_space_check(const struct espl_search_space *space,
                                         struct espl_error *err)
{
    if (space->layers == 0 || space->constraints < 1 ||
        space->constraints > ESPL_SEARCH_MAX_CONSTRAINTS) {
        return espl_fail(err, ESPL_E_KIND, "a search needs layers and 1 or %d constraints",
                         (int)ESPL_SEARCH_MAX_CONSTRAINTS);
    }
    for (size_t layer = 0; layer < space->layers; layer++) {
        const enum espl_status status = check_layer(space, layer, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    for (size_t c = 0; c < space->constraints; c++) {
        const struct espl_search_constraint *constraint = &space->constraint[c];
        double least = constraint->base;
        for (size_t layer = 0; layer < space->layers; layer++) {
            least += constraint->cost[layer * ESPL_SEARCH_MAX_LEVELS];
        }
        if (!(least <= constraint->budget)) {
            espl_fail(err, ESPL_E_NUMERIC,
                      "the %s budget of %.6g cannot be met: the sparsest configuration needs %.6g",
                      constraint->name, constraint->budget, least);
            return espl_hint(err, "raise the budget, or allow sparser levels");
        }
    }
    return ESPL_OK;
}

double espl_search_cost(const struct espl_search_space *space, size_t constraint,
                        const uint8_t *levels)
{
    double sum = space->constraint[constraint].base;
    for (size_t layer = 0; layer < space->layers; layer++) {
        sum += space->constraint[constraint].cost[layer * ESPL_SEARCH_MAX_LEVELS + levels[layer]];
    }
    return sum;
}

bool espl_search_feasible(const struct espl_search_space *space, const uint8_t *levels)
{
    for (size_t c = 0; c < space->constraints; c++) {
        if (!(espl_search_cost(space, c, levels) <= space->constraint[c].budget)) {
            return false;
        }
    }
    return true;
}

/* The highest level of a layer with N <= n. */
static uint8_t level_at_most(const struct espl_search_space *space, size_t layer, unsigned n)
{
    const uint8_t *level_n = space->level_n + layer * ESPL_SEARCH_MAX_LEVELS;
    uint8_t level = 0;
    while (level + 1 < space->level_count[layer] && level_n[level + 1] <= n) {
        level++;
    }
    return level;
}

void espl_search_uniform(const struct espl_search_space *space, unsigned n, uint8_t *levels)
{
    for (size_t layer = 0; layer < space->layers; layer++) {
        levels[layer] = level_at_most(space, layer, n);
    }
}

/* Is the uniform configuration feasible? */
static bool uniform_feasible(const struct espl_search_space *space, unsigned n)
{
    for (size_t c = 0; c < space->constraints; c++) {
        const struct espl_search_constraint *constraint = &space->constraint[c];
        double sum = constraint->base;
        for (size_t layer = 0; layer < space->layers; layer++) {
            sum +=
                constraint->cost[layer * ESPL_SEARCH_MAX_LEVELS + level_at_most(space, layer, n)];
        }
        if (!(sum <= constraint->budget)) {
            return false;
        }
    }
    return true;
}

unsigned espl_search_uniform_limit(const struct espl_search_space *space)
{
    unsigned limit = 0;
    for (unsigned n = 1; n <= ESPL_SEARCH_MAX_LEVELS && uniform_feasible(space, n); n++) {
        limit = n;
    }
    return limit;
}
