/* Texts: plain files and .xz / .gz / .zst / .bz2 ones (libarchive), with a size limit. */
#ifndef ESPL_DATASETS_TEXT_H
#define ESPL_DATASETS_TEXT_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

/** Does the name announce one of the compressions? */
bool espl_text_is_compressed(const char *path);
/** Whole text, NUL-terminated (not counted). *text: malloc'ed. limit: most decompressed bytes.
 *  Errors: NOTFOUND, CORRUPT (bad stream, over the limit), IO. */
enum espl_status espl_text_read(const char *path, size_t limit, char **text, size_t *len,
                                struct espl_error *err);

#endif
