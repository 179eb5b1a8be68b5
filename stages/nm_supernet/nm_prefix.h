/* Activations between blocks, kept by what led to them: the pictures, and the levels of all layers
 * before the block. A configuration that agrees with an earlier one up to some block starts there.
 * A fixed number of buffers; the least recently used one is overwritten. */
#ifndef ESPL_STAGES_NM_PREFIX_H
#define ESPL_STAGES_NM_PREFIX_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

struct espl_nm_prefix;

/** What activations belong to. levels (count): N of the layers of all earlier blocks. */
struct espl_nm_prefix_key {
    uint64_t epoch, first;
    size_t pictures;
    uint64_t block;
    const uint8_t *levels;
    size_t count;
};

/** buffers >= 2 of `values` floats; most: longest list of levels. Errors: NOMEM. */
enum espl_status espl_nm_prefix_create(size_t buffers, size_t values, size_t most,
                                       struct espl_nm_prefix **out, struct espl_error *err);
void espl_nm_prefix_destroy(struct espl_nm_prefix *prefix);
/** The activations of a key, or NULL. Marks them as used. */
float *espl_nm_prefix_find(struct espl_nm_prefix *prefix, const struct espl_nm_prefix_key *key);
/** A buffer that is to hold the activations of a key (which is not there yet). The buffer used last
 * is never taken, so that it can be the input of what fills this one. */
float *espl_nm_prefix_take(struct espl_nm_prefix *prefix, const struct espl_nm_prefix_key *key);
/** Forgets the buffer that espl_nm_prefix_take() gave last: it was not filled. */
void espl_nm_prefix_drop(struct espl_nm_prefix *prefix, const float *buffer);

#endif
