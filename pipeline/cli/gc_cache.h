/* What in the cache of fetched files no set names. */
#ifndef ESPL_CLI_GC_CACHE_H
#define ESPL_CLI_GC_CACHE_H

#include "cli/gc_scan.h"
#include "core/error.h"
#include "core/lock.h"
#include "datasets/cache.h"

#include <stdbool.h>

/** Adds what can go to the list. While a fetch goes on nothing can: its set is not published yet.
 */
enum espl_status espl_gc_cache_scan(struct espl_gc_list *list, struct espl_error *err);
/** Deletes one item of the cache. *deleted: false when a fetch goes on. */
enum espl_status espl_gc_cache_delete(const struct espl_gc_item *item, bool *deleted,
                                      struct espl_error *err);
/** Tells gc that this process fetches; release the lock when the set is published. */
enum espl_status espl_gc_cache_announce(const struct espl_cache *cache, struct espl_lock *lock,
                                        struct espl_error *err);

#endif
