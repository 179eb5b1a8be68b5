/* Texts: plain files and .xz / .gz / .zst / .bz2 ones (libarchive), with a size limit. */
#ifndef ESPL_DATASETS_TEXT_H
#define ESPL_DATASETS_TEXT_H

#include "core/error.h"

#include <stddef.h>

/** Whole text, NUL-terminated (not counted). *text: malloc'ed. limit: most decompressed bytes.
 *  Errors: NOTFOUND, CORRUPT (bad stream, over the limit), IO. */
enum espl_status espl_text_read(const char *path, size_t limit, char **text, size_t *len,
                                struct espl_error *err);

#endif
