#include "search/pareto.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

void espl_pareto_free(struct espl_pareto *front)
{
    free(front->levels);
    free(front->cost);
    free(front->score);
    memset(front, 0, sizeof *front);
}

static enum espl_status reserve(struct espl_pareto *front, struct espl_error *err)
{
    if (front->count < front->capacity) {
        return ESPL_OK;
    }
    const size_t capacity = front->capacity == 0 ? 32 : 2 * front->capacity;
    size_t bytes = 0;
    if (!espl_mul_size(capacity, front->layers, &bytes) || capacity > SIZE_MAX / sizeof(double)) {
        return espl_fail(err, ESPL_E_NOMEM, "a front of %zu points does not fit", capacity);
    }
    uint8_t *levels = realloc(front->levels, bytes);
    front->levels = levels != NULL ? levels : front->levels;
    double *cost = realloc(front->cost, capacity * sizeof *cost);
    front->cost = cost != NULL ? cost : front->cost;
    double *score = realloc(front->score, capacity * sizeof *score);
    front->score = score != NULL ? score : front->score;
    if (levels == NULL || cost == NULL || score == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a front of %zu points", capacity);
    }
    front->capacity = capacity;
    return ESPL_OK;
}

/* Moves entries [from, count) so that they start at `to`. */
static void shift(struct espl_pareto *front, size_t from, size_t to)
{
    const size_t moved = front->count - from;
    memmove(front->levels + to * front->layers, front->levels + from * front->layers,
            moved * front->layers);
    memmove(front->cost + to, front->cost + from, moved * sizeof *front->cost);
    memmove(front->score + to, front->score + from, moved * sizeof *front->score);
    front->count = to + moved;
}

enum espl_status espl_pareto_add(struct espl_pareto *front, const uint8_t *levels, double cost,
                                 double score, struct espl_error *err)
{
    size_t place = 0;
    while (place < front->count && front->cost[place] < cost) {
        place++;
    }
    const bool below = place > 0 && front->score[place - 1] >= score;
    const bool beside =
        place < front->count && front->cost[place] <= cost && front->score[place] >= score;
    if (below || beside) {
        return ESPL_OK;
    }
    size_t after = place;
    while (after < front->count && front->score[after] <= score) {
        after++;
    }
    const enum espl_status status = reserve(front, err);
    if (status != ESPL_OK) {
        return status;
    }
    shift(front, after, place + 1);
    memcpy(front->levels + place * front->layers, levels, front->layers);
    front->cost[place] = cost;
    front->score[place] = score;
    return ESPL_OK;
}
