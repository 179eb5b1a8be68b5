/* Locks between runs: `<path>` created exclusively, holding host, pid and process start time.
 * A dead local owner is detected and its lock taken over; a live one is waited for. Takeover is
 * serialised by a short fcntl lock beside it, so that two waiters cannot both take it. */
#ifndef ESPL_CORE_LOCK_H
#define ESPL_CORE_LOCK_H

#include "core/error.h"
#include "core/fs.h"

#include <stdbool.h>
#include <stdint.h>

struct espl_lock_owner {
    char host[128];
    int64_t pid;
    uint64_t start_ticks; /* field 22 of /proc/<pid>/stat: tells a reused pid from the owner */
    char boot_id[48];     /* kernel boot id: a lock from before a restart has no owner any more */
    char since_utc[32];
};

struct espl_lock {
    bool held;
    char path[ESPL_PATH_MAX];
};

/** Tries once. *taken says whether the lock is ours now; otherwise *owner (may be NULL) is filled.
 */
enum espl_status espl_lock_try(struct espl_lock *lock, const char *path, bool *taken,
                               struct espl_lock_owner *owner, struct espl_error *err);
/** Releases a held lock; no-op otherwise. Never removes a lock that is no longer ours. */
void espl_lock_release(struct espl_lock *lock);

#endif
