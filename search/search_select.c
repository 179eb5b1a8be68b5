/* Selection through the fidelities, the first parent, and moves that strategies share. */
#include "search/search_internal.h"

#include <math.h>
#include <string.h>

/* Moves the `keep` best of search->offspring to the front, best first; of equal scores the earlier
 * stays before. Insertion: there are few. Returns how many were scored at all, at most keep. */
static size_t keep_best(struct espl_search *search, size_t count, size_t keep)
{
    const size_t layers = search->space->layers;
    for (size_t i = 1; i < count; i++) {
        const double score = search->scores[i];
        size_t place = i;
        while (place > 0 && search->scores[place - 1] < score) {
            place--;
        }
        if (place == i) {
            continue;
        }
        memcpy(search->trial, search->offspring + i * layers, layers);
        memmove(search->offspring + (place + 1) * layers, search->offspring + place * layers,
                (i - place) * layers);
        memcpy(search->offspring + place * layers, search->trial, layers);
        memmove(search->scores + place + 1, search->scores + place,
                (i - place) * sizeof *search->scores);
        search->scores[place] = score;
    }
    size_t kept = 0;
    while (kept < count && kept < keep && search->scores[kept] > -INFINITY) {
        kept++;
    }
    return kept;
}

/* Asks for the parent's score on this epoch, at the last fidelity: remembered unless the epoch is
 * new. */
static enum espl_status score_parent(struct espl_search *search, struct espl_error *err)
{
    double score = 0.0;
    const enum espl_status status =
        espl_search_score(search, search->options.fidelities - 1, 1, search->parent, &score, err);
    /* Without evaluations left on a new epoch the parent's score stays unknown. */
    search->parent_score = status == ESPL_OK && score > -INFINITY ? score : (double)NAN;
    return status;
}

enum espl_status espl_search_select(struct espl_search *search, size_t count, bool with_parent,
                                    struct espl_error *err)
{
    const unsigned last = search->options.fidelities - 1;
    enum espl_status status = ESPL_OK;
    if (with_parent) {
        status = score_parent(search, err);
    }
    for (unsigned f = 0; status == ESPL_OK && f <= last && count > 0; f++) {
        status = espl_search_score(search, f, count, search->offspring, search->scores, err);
        if (status == ESPL_OK) {
            count = keep_best(search, count, f < last ? search->options.survivors[f] : 1);
        }
    }
    if (status != ESPL_OK || count == 0) {
        return status;
    }
    const double score = search->scores[0];
    if (with_parent && score < search->parent_score) {
        return ESPL_OK;
    }
    if (!(score <= search->parent_score)) {
        search->stale = 0; /* better, or the first score there is */
    }
    memcpy(search->parent, search->offspring, search->space->layers);
    search->parent_score = score;
    return ESPL_OK;
}

void espl_search_shuffle(struct espl_search *search, struct espl_rng *rng)
{
    const size_t layers = search->space->layers;
    for (size_t i = 0; i < layers; i++) {
        search->order[i] = i;
    }
    for (size_t i = layers; i > 1; i--) {
        const size_t j = (size_t)espl_rng_below(rng, i);
        const size_t swapped = search->order[i - 1];
        search->order[i - 1] = search->order[j];
        search->order[j] = swapped;
    }
}

/* One step up for a layer, if the budgets allow. */
static bool densify(const struct espl_search *search, uint8_t *levels, size_t layer)
{
    if (!espl_search_can_densify(search->space, layer, levels)) {
        return false;
    }
    levels[layer]++;
    if (espl_search_feasible(search->space, levels)) {
        return true;
    }
    levels[layer]--;
    return false;
}

void espl_search_fill(struct espl_search *search, struct espl_rng *rng, uint8_t *levels)
{
    const size_t layers = search->space->layers;
    bool moved = true;
    while (moved) {
        moved = false;
        espl_search_shuffle(search, rng);
        for (size_t i = 0; i < layers; i++) {
            moved |= densify(search, levels, search->order[i]);
        }
    }
}

/* Uniform at the limit, with random layers one N denser. */
static void mix_uniform(struct espl_search *search, unsigned limit, struct espl_rng *rng,
                        uint8_t *levels)
{
    const size_t layers = search->space->layers;
    espl_search_uniform(search->space, limit + 1, search->trial);
    espl_search_shuffle(search, rng);
    for (size_t i = 0; i < layers; i++) {
        const size_t layer = search->order[i];
        if (search->trial[layer] > levels[layer]) {
            (void)densify(search, levels, layer); /* what does not fit stays as it is */
        }
    }
}

/* The first candidate is the plain uniform one; the others are N and N + 1 mixed at random until
 * just feasible. */
enum espl_status espl_search_start_initial(struct espl_search *search, struct espl_error *err)
{
    const size_t layers = search->space->layers;
    const unsigned limit = espl_search_uniform_limit(search->space);
    for (size_t i = 0; i < search->options.initial; i++) {
        struct espl_rng rng = espl_search_rng(search, ESPL_SEARCH_STREAM_INITIAL + i);
        uint8_t *levels = search->offspring + i * layers;
        espl_search_uniform(search->space, limit, levels);
        if (i > 0) {
            mix_uniform(search, limit, &rng, levels);
        }
        if (search->options.fill_initial) {
            espl_search_fill(search, &rng, levels);
        }
    }
    espl_search_uniform(search->space, limit, search->parent); /* should nothing be scored */
    return espl_search_select(search, search->options.initial, false, err);
}

bool espl_search_is_duplicate(const struct espl_search *search, const uint8_t *levels, size_t count)
{
    const size_t layers = search->space->layers;
    bool found = memcmp(levels, search->parent, layers) == 0;
    for (size_t i = 0; !found && i < count; i++) {
        found = memcmp(search->offspring + i * layers, levels, layers) == 0;
    }
    return found;
}
