#include "stages/nm_supernet/nm_prefix.h"

#include "core/checked.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct node {
    bool filled;
    uint64_t used;
    uint64_t epoch, first, block;
    size_t pictures, count;
    uint8_t *levels; /* (most) */
    float *values;
};

struct espl_nm_prefix {
    struct node *nodes;
    size_t count;
    uint64_t clock;
    uint8_t *levels; /* (count, most) */
    float *values;   /* (count, values) */
};

enum espl_status espl_nm_prefix_create(size_t buffers, size_t values, size_t most,
                                       struct espl_nm_prefix **out, struct espl_error *err)
{
    struct espl_nm_prefix *prefix = calloc(1, sizeof *prefix);
    size_t count = 0;
    size_t levels = 0;
    const size_t length = most > 0 ? most : 1;
    if (prefix != NULL && espl_mul_size(buffers, values, &count) &&
        count <= SIZE_MAX / sizeof(float) && espl_mul_size(buffers, length, &levels)) {
        prefix->count = buffers;
        prefix->nodes = calloc(buffers, sizeof *prefix->nodes);
        prefix->levels = malloc(levels);
        prefix->values = malloc(count * sizeof *prefix->values);
    }
    if (prefix == NULL || prefix->nodes == NULL || prefix->levels == NULL ||
        prefix->values == NULL) {
        espl_nm_prefix_destroy(prefix);
        return espl_fail(err, ESPL_E_NOMEM, "no memory for %zu buffers of %zu activations", buffers,
                         values);
    }
    for (size_t i = 0; i < buffers; i++) {
        prefix->nodes[i].levels = prefix->levels + i * length;
        prefix->nodes[i].values = prefix->values + i * values;
    }
    *out = prefix;
    return ESPL_OK;
}

void espl_nm_prefix_destroy(struct espl_nm_prefix *prefix)
{
    if (prefix != NULL) {
        free(prefix->nodes);
        free(prefix->levels);
        free(prefix->values);
        free(prefix);
    }
}

static bool matches(const struct node *node, const struct espl_nm_prefix_key *key)
{
    return node->filled && node->block == key->block && node->epoch == key->epoch &&
           node->first == key->first && node->pictures == key->pictures &&
           node->count == key->count && memcmp(node->levels, key->levels, key->count) == 0;
}

float *espl_nm_prefix_find(struct espl_nm_prefix *prefix, const struct espl_nm_prefix_key *key)
{
    for (size_t i = 0; i < prefix->count; i++) {
        if (matches(&prefix->nodes[i], key)) {
            prefix->nodes[i].used = ++prefix->clock;
            return prefix->nodes[i].values;
        }
    }
    return NULL;
}

float *espl_nm_prefix_take(struct espl_nm_prefix *prefix, const struct espl_nm_prefix_key *key)
{
    struct node *oldest = &prefix->nodes[0];
    for (size_t i = 1; i < prefix->count; i++) {
        if (prefix->nodes[i].used < oldest->used) {
            oldest = &prefix->nodes[i];
        }
    }
    oldest->filled = true;
    oldest->used = ++prefix->clock;
    oldest->epoch = key->epoch;
    oldest->first = key->first;
    oldest->block = key->block;
    oldest->pictures = key->pictures;
    oldest->count = key->count;
    if (key->count > 0) {
        memcpy(oldest->levels, key->levels, key->count);
    }
    return oldest->values;
}

void espl_nm_prefix_drop(struct espl_nm_prefix *prefix, const float *buffer)
{
    for (size_t i = 0; i < prefix->count; i++) {
        if (prefix->nodes[i].values == buffer) {
            prefix->nodes[i].filled = false;
            prefix->nodes[i].used = 0;
        }
    }
}
