/* What espalier-fetch is asked for: a JSON object on standard input, written by `espalier fetch`.
 * The two programs come from one build, but the request is checked like any other input. */
#ifndef ESPL_FETCH_FETCH_REQUEST_H
#define ESPL_FETCH_FETCH_REQUEST_H

#include "core/buf.h"
#include "core/error.h"
#include "datasets/cache.h"
#include "datasets/fetch_url.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A file inside an archive that becomes a file of the set. */
struct espl_fetch_member {
    const char *member; /* path inside the archive */
    const char *name;   /* in the set */
    const char *sha256; /* NULL = not known beforehand */
    uint64_t max_bytes;
};

struct espl_fetch_file {
    const char *name;
    const char *key;         /* what its record is called; the first address when not given */
    const char *const *urls; /* tried in order; at least one */
    size_t url_count;
    const char *sha256; /* NULL = not known beforehand */
    uint64_t size;      /* 0 = not known beforehand */
    uint64_t max_bytes;
    bool optional; /* 404 is an answer, not an error */
    bool hub;      /* the first address is the hub's: it gets the token and may name the hash */
    bool mutable;  /* the address may hold something else tomorrow: a record is the first answer */
    const struct espl_fetch_member *members;
    size_t member_count;
};

struct espl_fetch_request {
    struct espl_cache cache;
    const char *hub;        /* origin that gets the token; NULL = none does */
    const char *ca_file;    /* NULL = what the system trusts */
    const char *proxy;      /* NULL = from the environment */
    const char *token_file; /* NULL = from the environment */
    double retry_seconds;   /* first pause; doubles with each attempt */
    double stall_seconds;   /* without a byte for so long, a connection counts as broken */
    unsigned retries;
    unsigned parallel;
    bool offline;
    bool update; /* ask again about mutable addresses */
    struct espl_fetch_file *files;
    size_t file_count;
};

enum { ESPL_FETCH_MAX_FILES = 10000, ESPL_FETCH_MAX_REQUEST = 16 << 20 };

/** Reads a request; everything in *out lives in `arena`. Errors: USAGE naming the field, NOMEM. */
enum espl_status espl_fetch_request_parse(const char *text, size_t len, struct espl_arena *arena,
                                          struct espl_fetch_request *out, struct espl_error *err);

#endif
