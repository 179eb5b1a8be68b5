/* The keys that something refers to; shared by gc_roots.c and gc_scan.c only. */
#ifndef ESPL_CLI_GC_ROOTS_H
#define ESPL_CLI_GC_ROOTS_H

#include "artifact/store.h"
#include "core/error.h"
#include "core/log.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/** Adds every key that is in use to `keys` (an object used as a set). log: as espl_gc_scan(). */
enum espl_status espl_gc_collect_keys(const struct espl_store *store, size_t keep_runs,
                                      const struct espl_log *log, json_t *keys,
                                      struct espl_error *err);
/** The key a name in store/ or partial/ starts with. */
bool espl_gc_key_of(const char *name, char key[ESPL_SHA256_HEX]);

enum { ESPL_GC_MAX_NAMES = 1 << 20 };

#endif
