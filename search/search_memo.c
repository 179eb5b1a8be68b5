#include "search/search_memo.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a over fidelity and levels. */
static uint64_t hash_entry(size_t layers, unsigned fidelity, const uint8_t *levels)
{
    uint64_t hash = 0xcbf29ce484222325u ^ fidelity;
    for (size_t i = 0; i < layers; i++) {
        hash = (hash ^ levels[i]) * 0x100000001b3u;
    }
    return hash ^ hash >> 32;
}

void espl_search_memo_free(struct espl_search_memo *memo)
{
    free(memo->levels);
    free(memo->fidelity);
    free(memo->score);
    free(memo->slots);
    memset(memo, 0, sizeof *memo);
}

void espl_search_memo_clear(struct espl_search_memo *memo)
{
    memo->count = 0;
    if (memo->slots != NULL) {
        memset(memo->slots, 0, memo->slot_count * sizeof *memo->slots);
    }
}

/* The slot that holds the entry, or the free one where it belongs. */
static size_t find_slot(const struct espl_search_memo *memo, unsigned fidelity,
                        const uint8_t *levels)
{
    size_t slot = (size_t)hash_entry(memo->layers, fidelity, levels) & (memo->slot_count - 1);
    while (memo->slots[slot] != 0) {
        const size_t entry = memo->slots[slot] - 1;
        if (memo->fidelity[entry] == fidelity &&
            memcmp(memo->levels + entry * memo->layers, levels, memo->layers) == 0) {
            break;
        }
        slot = (slot + 1) & (memo->slot_count - 1);
    }
    return slot;
}

bool espl_search_memo_find(const struct espl_search_memo *memo, unsigned fidelity,
                           const uint8_t *levels, double *score)
{
    if (memo->count == 0) {
        return false;
    }
    const size_t slot = find_slot(memo, fidelity, levels);
    if (memo->slots[slot] == 0) {
        return false;
    }
    *score = memo->score[memo->slots[slot] - 1];
    return true;
}

/* Room for twice as many entries. */
static bool grow(struct espl_search_memo *memo)
{
    const size_t capacity = memo->capacity == 0 ? 64 : 2 * memo->capacity;
    size_t bytes = 0;
    if (capacity > UINT32_MAX / 4 || !espl_mul_size(capacity, memo->layers, &bytes)) {
        return false;
    }
    uint8_t *levels = realloc(memo->levels, bytes);
    memo->levels = levels != NULL ? levels : memo->levels;
    uint8_t *fidelity = realloc(memo->fidelity, capacity);
    memo->fidelity = fidelity != NULL ? fidelity : memo->fidelity;
    double *score = realloc(memo->score, capacity * sizeof *score);
    memo->score = score != NULL ? score : memo->score;
    uint32_t *slots = calloc(2 * capacity, sizeof *slots);
    if (levels == NULL || fidelity == NULL || score == NULL || slots == NULL) {
        free(slots);
        return false;
    }
    free(memo->slots);
    memo->slots = slots;
    memo->slot_count = 2 * capacity;
    memo->capacity = capacity;
    for (size_t entry = 0; entry < memo->count; entry++) {
        const size_t slot =
            find_slot(memo, memo->fidelity[entry], memo->levels + entry * memo->layers);
        memo->slots[slot] = (uint32_t)entry + 1;
    }
    return true;
}

enum espl_status espl_search_memo_add(struct espl_search_memo *memo, unsigned fidelity,
                                      const uint8_t *levels, double score, struct espl_error *err)
{
    if (memo->count == memo->capacity && !grow(memo)) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu remembered scores", memo->count + 1);
    }
    const size_t slot = find_slot(memo, fidelity, levels);
    memcpy(memo->levels + memo->count * memo->layers, levels, memo->layers);
    memo->fidelity[memo->count] = (uint8_t)fidelity;
    memo->score[memo->count] = score;
    memo->count++;
    memo->slots[slot] = (uint32_t)memo->count;
    return ESPL_OK;
}
