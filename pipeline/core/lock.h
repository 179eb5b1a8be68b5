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
/** Does a living owner hold the lock at `path`? Only looks: a dead owner's lock stays where it is.
 * A lock that cannot be read counts as held. */
bool espl_lock_is_held(const char *path);
/** Deletes the guard file that a takeover left when its process died in it ("<lock>.guard"), unless
 * somebody uses it now. Safe at any time. *removed: whether it is gone now. Errors: IO. */
enum espl_status espl_lock_remove_guard(const char *guard, bool *removed, struct espl_error *err);
/** Releases a held lock; no-op otherwise. Never removes a lock that is no longer ours. */
void espl_lock_release(struct espl_lock *lock);

#endif
