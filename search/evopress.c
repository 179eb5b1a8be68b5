/* EvoPress [Sieberling et al. 2024]: an offspring is its parent with one to three level swaps, a
 * random layer one level sparser and another one level denser. The original keeps a parameter
 * budget by construction; here the budget is the predicted cost, so swaps that break it are drawn
 * again. The parent joins the last stage of the selection. */
#include "search/search_internal.h"

#include <string.h>

/* A swap draw costs no evaluation, so many may be rejected before an offspring is given up. */
enum { TRIES = 1000, MAX_SWAPS = 3 };

/* A random layer that can move by `step`, other than `except`; layers when there is none. */
static size_t pick_layer(struct espl_search *search, struct espl_rng *rng, const uint8_t *levels,
                         bool denser, size_t except)
{
    const size_t layers = search->space->layers;
    size_t count = 0;
    for (size_t layer = 0; layer < layers; layer++) {
        const bool can =
            denser ? espl_search_can_densify(search->space, layer, levels) : levels[layer] > 0;
        if (can && layer != except) {
            search->order[count++] = layer;
        }
    }
    return count > 0 ? search->order[espl_rng_below(rng, count)] : layers;
}

static bool swap_levels(struct espl_search *search, struct espl_rng *rng, uint8_t *levels)
{
    const size_t layers = search->space->layers;
    const size_t down = pick_layer(search, rng, levels, false, layers);
    if (down == layers) {
        return false;
    }
    const size_t up = pick_layer(search, rng, levels, true, down);
    if (up == layers) {
        return false;
    }
    levels[down]--;
    levels[up]++;
    return true;
}

static bool mutate(struct espl_search *search, struct espl_rng *rng, size_t siblings,
                   uint8_t *levels)
{
    for (unsigned attempt = 0; attempt < TRIES; attempt++) {
        const uint64_t first = espl_rng_below(rng, MAX_SWAPS);
        const uint64_t second = espl_rng_below(rng, MAX_SWAPS);
        const uint64_t swaps = 1 + (first < second ? first : second);
        bool done = true;
        memcpy(levels, search->parent, search->space->layers);
        for (uint64_t i = 0; done && i < swaps; i++) {
            done = swap_levels(search, rng, levels);
        }
        if (done && espl_search_feasible(search->space, levels) &&
            !espl_search_is_duplicate(search, levels, siblings)) {
            return true;
        }
    }
    return false;
}

static enum espl_status step(struct espl_search *search, struct espl_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < search->options.offspring; i++) {
        struct espl_rng rng = espl_search_rng(search, i);
        count += mutate(search, &rng, count, search->offspring + count * search->space->layers)
                     ? 1u
                     : 0u;
    }
    return espl_search_select(search, count, true, err);
}

const struct espl_search_strategy espl_search_evopress = {
    .name = "evopress",
    .summary = "one to three level swaps between layers, within the budget",
    .start = espl_search_start_initial,
    .step = step,
};
