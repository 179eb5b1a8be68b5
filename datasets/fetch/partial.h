/* A download's file in the cache while it grows: opened where an earlier one stopped, hashed as it
 * is written, tied to the version on the server by a validator (a strong ETag, or Last-Modified).
 */
#ifndef ESPL_FETCH_PARTIAL_H
#define ESPL_FETCH_PARTIAL_H

#include "core/error.h"
#include "core/hash.h"
#include "datasets/cache.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_partial {
    char path[ESPL_PATH_MAX];
    char meta_path[ESPL_PATH_MAX];
    int fd; /* -1 = closed */
    struct espl_sha256 *hash;
    uint64_t size;       /* bytes written and hashed */
    char validator[256]; /* for If-Range; "" = none, so the file cannot be resumed blindly */
};

/** Opens or makes the file and hashes what is in it. Set fd to -1 before the first call. Errors:
 * IO, NOSPACE, NOMEM. */
enum espl_status espl_partial_open(struct espl_partial *partial, const struct espl_cache *cache,
                                   const char *id, struct espl_error *err);
/** Empties it, for a version of the file that `validator` ("" = unknown) names. */
enum espl_status espl_partial_restart(struct espl_partial *partial, const char *validator,
                                      struct espl_error *err);
/** Appends. Errors: NOSPACE (what was written stays), IO. */
enum espl_status espl_partial_append(struct espl_partial *partial, const void *bytes, size_t len,
                                     struct espl_error *err);
/** Ends the hash; the partial file can then only be published, restarted or closed. */
void espl_partial_hash(struct espl_partial *partial, char hex[ESPL_SHA256_HEX]);
/** Moves the file to its blob and forgets the meta file. */
enum espl_status espl_partial_publish(struct espl_partial *partial, const struct espl_cache *cache,
                                      const char *sha256, struct espl_error *err);
/** Closes; the file stays for the next attempt. */
void espl_partial_close(struct espl_partial *partial);
/** Closes and deletes. */
void espl_partial_discard(struct espl_partial *partial);

#endif
