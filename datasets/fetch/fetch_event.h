/* What espalier-fetch tells `espalier fetch`: one JSON object a line on standard output. */
#ifndef ESPL_FETCH_FETCH_EVENT_H
#define ESPL_FETCH_FETCH_EVENT_H

#include "core/error.h"
#include "datasets/fetch/fetch_request.h"

#include <stdbool.h>
#include <stdint.h>

/** Where a file came from. */
enum espl_fetch_source {
    ESPL_FETCH_NETWORK,
    ESPL_FETCH_CACHE,
    ESPL_FETCH_PEER, /* another fetch brought it while this one waited */
    ESPL_FETCH_ARCHIVE
};

/** How its hash was checked. */
enum espl_fetch_check {
    ESPL_FETCH_GIVEN, /* the registry has it */
    ESPL_FETCH_HUB,   /* the hub's header has it */
    ESPL_FETCH_FIRST  /* recorded now, compared from now on */
};

struct espl_fetch_result {
    char sha256[ESPL_SHA256_HEX];
    uint64_t size;
    uint64_t resumed_from; /* bytes that an interrupted download had left */
    char commit[64];
    enum espl_fetch_source source;
    enum espl_fetch_check check;
};

/** All return false when nobody listens any more: time to stop. */
bool espl_fetch_event_progress(uint64_t done, uint64_t total, unsigned waiting);
bool espl_fetch_event_retry(const char *name, const struct espl_error *why, double seconds);
/** origin: what the file's record is called, the same whichever mirror delivered. */
bool espl_fetch_event_file(const char *name, const char *origin,
                           const struct espl_fetch_result *result);
/** An optional file that the server does not have. */
bool espl_fetch_event_absent(const char *name);
bool espl_fetch_event_error(const struct espl_error *err);

#endif
