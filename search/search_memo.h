/* Scores that were computed before, by configuration and fidelity. */
#ifndef ESPL_SEARCH_SEARCH_MEMO_H
#define ESPL_SEARCH_SEARCH_MEMO_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Zero-initialise and set `layers`. Entries stand in the order in which they came. */
struct espl_search_memo {
    size_t layers;
    size_t count, capacity;
    uint8_t *levels;   /* (capacity, layers) */
    uint8_t *fidelity; /* (capacity) */
    double *score;     /* (capacity) */
    uint32_t *slots;   /* open addressing: entry + 1, 0 = free */
    size_t slot_count; /* a power of two, 0 = none yet */
};

void espl_search_memo_free(struct espl_search_memo *memo);
/** Forgets all entries. */
void espl_search_memo_clear(struct espl_search_memo *memo);
bool espl_search_memo_find(const struct espl_search_memo *memo, unsigned fidelity,
                           const uint8_t *levels, double *score);
/** Adds an entry that is not there. Errors: NOMEM. */
enum espl_status espl_search_memo_add(struct espl_search_memo *memo, unsigned fidelity,
                                      const uint8_t *levels, double score, struct espl_error *err);

#endif
