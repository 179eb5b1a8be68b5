/* The header of one HTTP answer, as far as a download needs it. */
#ifndef ESPL_FETCH_RESPONSE_H
#define ESPL_FETCH_RESPONSE_H

#include "core/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_response {
    char validator[256]; /* strong ETag, else Last-Modified, else "" */
    bool validator_is_etag;
    bool encoded;                        /* Content-Encoding is another than identity */
    bool has_range;                      /* a Content-Range was there and could be read */
    uint64_t range_start;                /* of "bytes START-END/TOTAL" */
    uint64_t range_total;                /* 0 = not told */
    char linked_sha256[ESPL_SHA256_HEX]; /* hub: hash of a large file; "" = not told */
    uint64_t linked_size;                /* hub: its size; 0 = not told */
    char commit[64];                     /* hub: what the revision means now */
};

/** Takes one header line of `len` bytes, with or without its line end. Lines that do not matter or
 * cannot be read change nothing. A status line starts anew. */
void espl_response_line(struct espl_response *response, const char *line, size_t len);

#endif
