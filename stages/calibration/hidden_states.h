/* Room for the hidden states of all calibration windows. Small sets live in memory; large ones in a
 * file of results/partial that is mapped and already unlinked, so that the kernel may write pages
 * back instead of running out of memory, and nothing is left behind whatever happens. */
#ifndef ESPL_STAGES_HIDDEN_STATES_H
#define ESPL_STAGES_HIDDEN_STATES_H

#include "artifact/store.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Above this many bytes hidden states go to a mapped file. */
#define ESPL_HIDDEN_IN_MEMORY ((uint64_t)1 << 30)

struct espl_hidden_states {
    float *data;
    size_t bytes;
    bool mapped;
};

/** Zeroed room for `count` floats; above in_memory_bytes in a mapped file at a private path of
 * `store` whose name starts with `key` (hex digits; any, the file is gone from the folder when this
 * returns). Its blocks are reserved here, so a full disk is an error
 * now and not a signal later. Errors: NOMEM, NOSPACE, IO. */
enum espl_status espl_hidden_states_create(const struct espl_store *store, const char *key,
                                           size_t count, uint64_t in_memory_bytes,
                                           struct espl_hidden_states *states,
                                           struct espl_error *err);
/** Safe on a zeroed struct. */
void espl_hidden_states_destroy(struct espl_hidden_states *states);

#endif
