#include "datasets/token_map.h"

#include "core/checked.h"

#include <stdlib.h>
#include <string.h>

static uint64_t mix(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xFF51AFD7ED558CCDull;
    x ^= x >> 33;
    x *= 0xC4CEB9FE1A85EC53ull;
    x ^= x >> 33;
    return x;
}

uint64_t espl_token_hash(const char *bytes, size_t len)
{
    uint64_t hash = 0xCBF29CE484222325ull;
    for (size_t i = 0; i < len; i++) {
        hash ^= (unsigned char)bytes[i];
        hash *= 0x100000001B3ull;
    }
    return mix(hash);
}

/* The smallest power of two that keeps a table of `count` entries half empty; 0 on overflow. */
static size_t table_capacity(size_t count)
{
    size_t capacity = 16;
    while (capacity / 2 < count) {
        if (capacity > SIZE_MAX / 4) {
            return 0;
        }
        capacity *= 2;
    }
    return capacity;
}

bool espl_token_map_reserve(struct espl_token_map *map, size_t count)
{
    const size_t capacity = table_capacity(count);
    struct espl_token_slot *const slots = capacity != 0 ? calloc(capacity, sizeof *slots) : NULL;
    if (slots == NULL) {
        return false;
    }
    free(map->slots);
    map->slots = slots;
    map->capacity = capacity;
    map->count = 0;
    return true;
}

void espl_token_map_free(struct espl_token_map *map)
{
    free(map->slots);
    memset(map, 0, sizeof *map);
}

static struct espl_token_slot *find_token(const struct espl_token_map *map, const char *text,
                                          size_t len, uint64_t hash)
{
    size_t at = (size_t)hash & (map->capacity - 1);
    for (;;) {
        struct espl_token_slot *const slot = &map->slots[at];
        if (slot->text == NULL ||
            (slot->hash == hash && slot->len == len && memcmp(slot->text, text, len) == 0)) {
            return slot;
        }
        at = (at + 1) & (map->capacity - 1);
    }
}

void espl_token_map_put(struct espl_token_map *map, const char *text, size_t len, int32_t id)
{
    const uint64_t hash = espl_token_hash(text, len);
    struct espl_token_slot *const slot = find_token(map, text, len, hash);
    if (slot->text == NULL) {
        map->count++;
    }
    *slot = (struct espl_token_slot){hash, text, (uint32_t)len, id};
}

int32_t espl_token_map_get(const struct espl_token_map *map, const char *text, size_t len)
{
    if (map->capacity == 0) {
        return -1;
    }
    const struct espl_token_slot *const slot =
        find_token(map, text, len, espl_token_hash(text, len));
    return slot->text != NULL ? slot->id : -1;
}

bool espl_merge_map_reserve(struct espl_merge_map *map, size_t count)
{
    const size_t capacity = table_capacity(count);
    size_t bytes = 0;
    if (capacity == 0 || !espl_mul_size(capacity, sizeof(struct espl_merge_slot), &bytes)) {
        return false;
    }
    struct espl_merge_slot *const slots = malloc(bytes);
    if (slots == NULL) {
        return false;
    }
    memset(slots, 0xFF, bytes); /* all pairs UINT64_MAX: free */
    free(map->slots);
    map->slots = slots;
    map->capacity = capacity;
    map->count = 0;
    return true;
}

void espl_merge_map_free(struct espl_merge_map *map)
{
    free(map->slots);
    memset(map, 0, sizeof *map);
}

static struct espl_merge_slot *find_pair(const struct espl_merge_map *map, uint64_t pair)
{
    size_t at = (size_t)mix(pair) & (map->capacity - 1);
    while (map->slots[at].pair != pair && map->slots[at].pair != UINT64_MAX) {
        at = (at + 1) & (map->capacity - 1);
    }
    return &map->slots[at];
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

void espl_merge_map_put(struct espl_merge_map *map, int32_t left, int32_t right, uint32_t rank,
                        int32_t id)
{
    const uint64_t pair = pair_of(left, right);
    struct espl_merge_slot *const slot = find_pair(map, pair);
    map->count += slot->pair == UINT64_MAX ? 1 : 0;
    *slot = (struct espl_merge_slot){pair, rank, id};
}

bool espl_merge_map_grow_put(struct espl_merge_map *map, int32_t left, int32_t right, uint32_t rank,
                             int32_t id)
{
    if (2 * (map->count + 1) > map->capacity) {
        struct espl_merge_map larger = {0};
        if (!espl_merge_map_reserve(&larger, 2 * (map->count + 1))) {
            return false;
        }
        for (size_t i = 0; i < map->capacity; i++) {
            if (map->slots[i].pair != UINT64_MAX) {
                *find_pair(&larger, map->slots[i].pair) = map->slots[i];
                larger.count++;
            }
        }
        espl_merge_map_free(map);
        *map = larger;
    }
    espl_merge_map_put(map, left, right, rank, id);
    return true;
}

const struct espl_merge_slot *espl_merge_map_get(const struct espl_merge_map *map, int32_t left,
                                                 int32_t right)
{
    const struct espl_merge_slot *const slot = find_pair(map, pair_of(left, right));
    return slot->pair != UINT64_MAX ? slot : NULL;
}
