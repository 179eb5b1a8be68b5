/* Hash tables of a tokenizer: token text -> id, and pair of ids -> merge. Filled once while a file
 * is read, then only read. */
#ifndef ESPL_DATASETS_TOKEN_MAP_H
#define ESPL_DATASETS_TOKEN_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** 64-bit hash of bytes (FNV-1a with a final mix). */
uint64_t espl_token_hash(const char *bytes, size_t len);

struct espl_token_slot {
    uint64_t hash;
    const char *text; /* NULL = free */
    uint32_t len;
    int32_t id;
};

/** Zero-initialise; the texts are borrowed and must outlive the map. */
struct espl_token_map {
    struct espl_token_slot *slots;
    size_t capacity; /* a power of two, at least twice the count */
    size_t count;
};

/** Makes room for `count` tokens. false: out of memory. */
bool espl_token_map_reserve(struct espl_token_map *map, size_t count);
void espl_token_map_free(struct espl_token_map *map);
/** Adds or replaces; the map must have room. */
void espl_token_map_put(struct espl_token_map *map, const char *text, size_t len, int32_t id);
/** -1 when absent. */
int32_t espl_token_map_get(const struct espl_token_map *map, const char *text, size_t len);

struct espl_merge_slot {
    uint64_t pair; /* UINT64_MAX = free */
    uint32_t rank;
    int32_t id;
};

struct espl_merge_map {
    struct espl_merge_slot *slots;
    size_t capacity;
    size_t count;
};

bool espl_merge_map_reserve(struct espl_merge_map *map, size_t count);
void espl_merge_map_free(struct espl_merge_map *map);
/** left and right become `id` with priority `rank` (lower merges first); a pair named again takes
 * the later rank. */
void espl_merge_map_put(struct espl_merge_map *map, int32_t left, int32_t right, uint32_t rank,
                        int32_t id);
/** As espl_merge_map_put(), and makes room when needed. false: out of memory. */
bool espl_merge_map_grow_put(struct espl_merge_map *map, int32_t left, int32_t right, uint32_t rank,
                             int32_t id);
/** NULL when the pair does not merge. */
const struct espl_merge_slot *espl_merge_map_get(const struct espl_merge_map *map, int32_t left,
                                                 int32_t right);

#endif
