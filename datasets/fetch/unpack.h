/* Files out of a fetched archive (tar or zip, compressed or not). Only members that the request
 * names are written, and only to the cache: what the archive says about paths, links, modes and
 * owners is never used. */
#ifndef ESPL_FETCH_UNPACK_H
#define ESPL_FETCH_UNPACK_H

#include "core/error.h"
#include "datasets/fetch/fetch_event.h"
#include "datasets/fetch/fetch_request.h"

/** Brings the members of `file`, whose blob `archive` names, into the cache and reports each; known
 * ones are not unpacked again, and of entries of one name the first counts. Errors: CORRUPT
 * (damaged archive, a member that is missing, no regular file, too large or of a wrong hash, an
 * archive that expands without end), IO, NOSPACE. */
enum espl_status espl_fetch_unpack(const struct espl_cache *cache,
                                   const struct espl_fetch_file *file,
                                   const struct espl_fetch_result *archive, struct espl_error *err);

#endif
