/* Files inside tar and zip archives, plain or compressed (.xz, .gz, .bz2, .zst), without unpacking
 * them: nothing is ever written, names that lead out of the archive are refused, and how much may
 * come out is bounded. Untrusted input. */
#ifndef ESPL_DATASETS_IMAGE_ARCHIVE_H
#define ESPL_DATASETS_IMAGE_ARCHIVE_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_archive_limits {
    uint64_t entries;     /* files and folders */
    uint64_t file_bytes;  /* of one wanted file */
    uint64_t total_bytes; /* of everything, decompressed, wanted or not */
};

/** How an archive is looked through. */
struct espl_archive_visitor {
    void *user;
    /** Is this file wanted? name: relative, without "./" and "..". */
    bool (*wanted)(void *user, const char *name);
    /** A wanted file; bytes are borrowed. Anything but ESPL_OK ends the visit. */
    enum espl_status (*file)(void *user, const char *name, const uint8_t *bytes, size_t len,
                             struct espl_error *err);
    /** A wanted name that is a link, so that nothing is read. NULL allowed. */
    void (*link)(void *user, const char *name);
};

/** All regular files in the order of the archive; links, folders and devices are passed over.
 *  Errors: NOTFOUND, IO, CORRUPT (damaged; a name that is absolute, empty or contains ".."; over a
 * limit, naming it), NOMEM, and what the visitor returns. */
enum espl_status espl_archive_visit(const char *path, const struct espl_archive_limits *limits,
                                    const struct espl_archive_visitor *visitor,
                                    struct espl_error *err);
/** The same from memory. name: for messages. */
enum espl_status espl_archive_visit_memory(const void *bytes, size_t len, const char *name,
                                           const struct espl_archive_limits *limits,
                                           const struct espl_archive_visitor *visitor,
                                           struct espl_error *err);
/** May a file of this name be taken out? Not absolute, no empty part, no "..". */
bool espl_archive_name_is_safe(const char *name);

#endif
