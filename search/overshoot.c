/* Overshoot, repair, refine: the (1 + lambda) search of the N:M paper, Algorithm 1.
 *
 * An offspring first goes over budget on purpose (a few random layers one level denser), then is
 * repaired by making random layers sparser until it fits, then climbs back along the border of the
 * budget. Where the paper's text leaves a choice, options name it. */
#include "search/search_internal.h"

#include <math.h>
#include <string.h>

enum { DUPLICATE_TRIES = 20 };

/* Random_K over the layers that can become denser. */
static void overshoot(struct espl_search *search, struct espl_rng *rng, uint8_t *levels)
{
    const struct espl_search_options *options = &search->options;
    const size_t layers = search->space->layers;
    size_t wanted =
        options->overshoot_min +
        (size_t)espl_rng_below(rng, options->overshoot_max - options->overshoot_min + UINT64_C(1));
    espl_search_shuffle(search, rng);
    for (size_t i = 0; i < layers && wanted > 0; i++) {
        const size_t layer = search->order[i];
        if (espl_search_can_densify(search->space, layer, levels)) {
            levels[layer]++;
            wanted--;
        }
    }
}

/* Would some sparser level of the layer lower a cost that is over budget? One level down alone may
 * not, when two levels cost the same. */
static bool helps(const struct espl_search_space *space, const uint8_t *levels, size_t layer,
                  const bool *over)
{
    const size_t row = layer * ESPL_SEARCH_MAX_LEVELS;
    for (size_t c = 0; c < space->constraints; c++) {
        const double *cost = space->constraint[c].cost + row;
        if (over[c] && levels[layer] > 0 && cost[0] < cost[levels[layer]]) {
            return true;
        }
    }
    return false;
}

/* Layers whose next sparser level would keep all budgets, among the first `count` of search->order:
 * moved to its front. Returns how many. */
static size_t keep_sufficient(struct espl_search *search, uint8_t *levels, size_t count)
{
    size_t sufficient = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t layer = search->order[i];
        levels[layer]--;
        if (espl_search_feasible(search->space, levels)) {
            search->order[sufficient++] = layer;
        }
        levels[layer]++;
    }
    return sufficient;
}

/* Random_1 over the layers that help, until all budgets are kept. False: none helps any more. Every
 * step lowers a level, so there are at most as many as levels in all. With repair FEWEST a layer
 * that suffices alone is preferred: the fewer layers an offspring changes, the more of what made
 * its parent good it keeps. */
static bool repair(struct espl_search *search, struct espl_rng *rng, uint8_t *levels)
{
    const struct espl_search_space *space = search->space;
    for (;;) {
        bool over[ESPL_SEARCH_MAX_CONSTRAINTS] = {false};
        bool any = false;
        for (size_t c = 0; c < space->constraints; c++) {
            over[c] = !(espl_search_cost(space, c, levels) <= space->constraint[c].budget);
            any |= over[c];
        }
        if (!any) {
            return true;
        }
        size_t count = 0;
        for (size_t layer = 0; layer < space->layers; layer++) {
            if (helps(space, levels, layer, over)) {
                search->order[count++] = layer;
            }
        }
        if (count == 0) {
            return false;
        }
        if (search->options.repair == ESPL_REPAIR_FEWEST) {
            const size_t sufficient = keep_sufficient(search, levels, count);
            count = sufficient > 0 ? sufficient : count;
        }
        levels[search->order[espl_rng_below(rng, count)]]--;
    }
}

/* Takes random moves in turn; the first that is feasible and does not lower the score is made, and
 * all moves are open again. */
static enum espl_status refine_lazily(struct espl_search *search, struct espl_rng *rng,
                                      uint8_t *levels, struct espl_error *err)
{
    const size_t layers = search->space->layers;
    double score = 0.0;
    enum espl_status status = espl_search_score(search, 0, 1, levels, &score, err);
    bool moved = true;
    while (status == ESPL_OK && moved) {
        moved = false;
        espl_search_shuffle(search, rng);
        for (size_t i = 0; status == ESPL_OK && !moved && i < layers; i++) {
            const size_t layer = search->order[i];
            double trial_score = -INFINITY;
            if (!espl_search_can_densify(search->space, layer, levels)) {
                continue;
            }
            levels[layer]++;
            if (espl_search_feasible(search->space, levels)) {
                status = espl_search_score(search, 0, 1, levels, &trial_score, err);
            }
            moved = trial_score > -INFINITY && trial_score >= score;
            if (moved) {
                score = trial_score;
            } else {
                levels[layer]--;
            }
        }
    }
    return status;
}

/* D := feasible moves that do not lower the score; *count of them in search->order. */
static enum espl_status good_moves(struct espl_search *search, const uint8_t *levels, double score,
                                   size_t *count, struct espl_error *err)
{
    const size_t layers = search->space->layers;
    size_t tried = 0;
    *count = 0;
    for (size_t layer = 0; layer < layers; layer++) {
        uint8_t *trial = search->trial + tried * layers;
        if (!espl_search_can_densify(search->space, layer, levels)) {
            continue;
        }
        memcpy(trial, levels, layers);
        trial[layer]++;
        if (espl_search_feasible(search->space, trial)) {
            search->order[tried++] = layer;
        }
    }
    const enum espl_status status =
        espl_search_score(search, 0, tried, search->trial, search->scores, err);
    for (size_t i = 0; status == ESPL_OK && i < tried; i++) {
        if (search->scores[i] > -INFINITY && search->scores[i] >= score) {
            search->order[(*count)++] = search->order[i];
        }
    }
    return status;
}

/* As printed: every move is scored before a random one of the good ones is made. */
static enum espl_status refine_literally(struct espl_search *search, struct espl_rng *rng,
                                         uint8_t *levels, struct espl_error *err)
{
    double score = 0.0;
    size_t count = 0;
    enum espl_status status = espl_search_score(search, 0, 1, levels, &score, err);
    if (status == ESPL_OK) {
        status = good_moves(search, levels, score, &count, err);
    }
    while (status == ESPL_OK && count > 0) {
        levels[search->order[espl_rng_below(rng, count)]]++;
        status = espl_search_score(search, 0, 1, levels, &score, err);
        if (status == ESPL_OK) {
            status = good_moves(search, levels, score, &count, err);
        }
    }
    return status;
}

/* A repaired offspring unlike the parent and its siblings, at `levels`; false when there is none.
 */
static bool make_repaired(struct espl_search *search, struct espl_rng *rng, size_t siblings,
                          uint8_t *levels)
{
    for (unsigned attempt = 0; attempt < DUPLICATE_TRIES; attempt++) {
        memcpy(levels, search->parent, search->space->layers);
        overshoot(search, rng, levels);
        if (!repair(search, rng, levels)) {
            continue;
        }
        if (search->options.refine == ESPL_REFINE_LATENCY_ONLY) {
            espl_search_fill(search, rng, levels);
        }
        if (!espl_search_is_duplicate(search, levels, siblings)) {
            return true;
        }
    }
    return false;
}

static enum espl_status step(struct espl_search *search, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    size_t count = 0;
    for (size_t i = 0; status == ESPL_OK && i < search->options.offspring; i++) {
        struct espl_rng rng = espl_search_rng(search, i);
        uint8_t *levels = search->offspring + count * search->space->layers;
        if (espl_search_left(search) == 0 || !make_repaired(search, &rng, count, levels)) {
            continue;
        }
        if (search->options.refine == ESPL_REFINE_LAZY) {
            status = refine_lazily(search, &rng, levels, err);
        } else if (search->options.refine == ESPL_REFINE_LITERAL) {
            status = refine_literally(search, &rng, levels, err);
        }
        count++;
    }
    return status == ESPL_OK
               ? espl_search_select(search, count, search->options.selection == ESPL_SELECT_PLUS,
                                    err)
               : status;
}

const struct espl_search_strategy espl_search_overshoot = {
    .name = "overshoot-repair-refine",
    .summary = "goes over budget on purpose, repairs at random, refines along the border",
    .start = espl_search_start_initial,
    .step = step,
};
