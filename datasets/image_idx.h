/* idx files (the format of MNIST): a magic number, sizes, bytes. Plain or compressed. Untrusted
 * input. */
#ifndef ESPL_DATASETS_IMAGE_IDX_H
#define ESPL_DATASETS_IMAGE_IDX_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

enum { ESPL_IDX_MAX_RANK = 4 };

/** Unsigned bytes: labels (count), grey pictures (count, height, width) or pictures (count, height,
 *  width, channels). */
struct espl_idx {
    unsigned rank;
    uint64_t shape[ESPL_IDX_MAX_RANK];
    const uint8_t *values; /* points into the bytes that were parsed */
};

/** Errors: CORRUPT (not idx, sizes that do not fit the length), UNSUPPORTED (elements other than
 * unsigned bytes, other ranks). */
enum espl_status espl_idx_parse(const uint8_t *bytes, size_t len, struct espl_idx *idx,
                                struct espl_error *err);
/** Reads a file (.gz, .xz, .bz2, .zst are decompressed, at most `limit` bytes) and parses it.
 *  *bytes: malloc'ed, owned by the caller; holds what idx points to. Errors name the file. */
enum espl_status espl_idx_read(const char *path, size_t limit, char **bytes, struct espl_idx *idx,
                               struct espl_error *err);

#endif
