/* Greedy by sensitivity: every layer is scored alone at every level, the others dense (generation l
 * scores layer l - 1). Then, from dense, the step with the least loss of score for the cost it
 * saves is made until the budgets are kept, and what is left of them is filled by latency alone.
 * Layers are taken to act independently of each other, which is what the search strategies do not
 * do. */
#include "search/search_internal.h"

#include <math.h>
#include <string.h>

static enum espl_status start(struct espl_search *search, struct espl_error *err)
{
    /* A feasible parent from the beginning: the search may be stopped at any time. */
    const unsigned limit = espl_search_uniform_limit(search->space);
    espl_search_uniform(search->space, limit, search->offspring);
    espl_search_uniform(search->space, limit, search->parent);
    return espl_search_select(search, 1, false, err);
}

static void make_dense(const struct espl_search_space *space, uint8_t *levels)
{
    for (size_t layer = 0; layer < space->layers; layer++) {
        levels[layer] = (uint8_t)(space->level_count[layer] - 1);
    }
}

/* Fills the layer's row of search->table with scores. */
static enum espl_status score_layer(struct espl_search *search, size_t layer,
                                    struct espl_error *err)
{
    const size_t layers = search->space->layers;
    const size_t count = search->space->level_count[layer];
    for (size_t level = 0; level < count; level++) {
        make_dense(search->space, search->trial + level * layers);
        search->trial[level * layers + layer] = (uint8_t)level;
    }
    return espl_search_score(search, 0, count, search->trial,
                             search->table + layer * ESPL_SEARCH_MAX_LEVELS, err);
}

/* What moving a layer to `level` saves, in shares of the budgets that are broken. */
static double saving(const struct espl_search_space *space, const uint8_t *levels, size_t layer,
                     uint8_t level)
{
    const size_t row = layer * ESPL_SEARCH_MAX_LEVELS;
    double sum = 0.0;
    for (size_t c = 0; c < space->constraints; c++) {
        const struct espl_search_constraint *constraint = &space->constraint[c];
        if (!(espl_search_cost(space, c, levels) <= constraint->budget)) {
            sum += (constraint->cost[row + levels[layer]] - constraint->cost[row + level]) /
                   constraint->budget;
        }
    }
    return sum;
}

/* The best step down; false when no step saves anything. */
static bool descend(const struct espl_search *search, uint8_t *levels)
{
    const struct espl_search_space *space = search->space;
    double best = INFINITY;
    size_t best_layer = space->layers;
    uint8_t best_level = 0;
    for (size_t layer = 0; layer < space->layers; layer++) {
        const double *score = search->table + layer * ESPL_SEARCH_MAX_LEVELS;
        for (uint8_t level = 0; level < levels[layer]; level++) {
            const double saved = saving(space, levels, layer, level);
            const double lost = (score[levels[layer]] - score[level]) / saved;
            if (saved > 0.0 && lost < best) {
                best = lost;
                best_layer = layer;
                best_level = level;
            }
        }
    }
    if (best_layer == space->layers) {
        return false;
    }
    levels[best_layer] = best_level;
    return true;
}

static enum espl_status step(struct espl_search *search, struct espl_error *err)
{
    const size_t layers = search->space->layers;
    if (search->generation <= layers) {
        search->stale = 0; /* measuring is progress */
        return score_layer(search, (size_t)search->generation - 1, err);
    }
    uint8_t *levels = search->offspring;
    struct espl_rng rng = espl_search_rng(search, 0);
    bool feasible = false;
    make_dense(search->space, levels);
    do {
        feasible = espl_search_feasible(search->space, levels);
    } while (!feasible && descend(search, levels));
    if (feasible) {
        espl_search_fill(search, &rng, levels);
    }
    search->stop = ESPL_SEARCH_STRATEGY;
    return espl_search_select(search, feasible ? 1 : 0, true, err);
}

const struct espl_search_strategy espl_search_greedy = {
    .name = "greedy",
    .summary = "least loss for the cost saved, from scores of single layers",
    .start = start,
    .step = step,
};
