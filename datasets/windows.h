/* Calibration windows: fixed-length pieces of tokenised documents, drawn like the published Wanda
 * code (CPython's random), with a bound on rejected documents. */
#ifndef ESPL_DATASETS_WINDOWS_H
#define ESPL_DATASETS_WINDOWS_H

#include "core/error.h"

#include <stddef.h>
#include <stdint.h>

/** Documents that are tokenised on demand: drawing 128 windows from a large collection looks at a
 * few hundred of them. */
struct espl_document_source {
    size_t count;
    /** Ids of one document. They stay valid until the next call. */
    enum espl_status (*load)(void *user, size_t document, const int32_t **ids, size_t *len,
                             struct espl_error *err);
    void *user;
};

/** Where a window was taken. */
struct espl_window_place {
    uint64_t document;
    uint64_t start; /* position of its first id in the document */
};

/** Documents as token ranges: document d is ids[offsets[d] .. offsets[d + 1]). */
struct espl_documents {
    const int32_t *ids;
    const uint64_t *offsets; /* count + 1 entries */
    size_t count;
};

/** Draws `windows` windows of `tokens` ids into out (windows * tokens): pick a document uniformly
 * with randint(0, count - 1), reject it unless longer than `tokens`, then start = randint(0, len -
 * tokens - 1). starts: positions in ids, `windows` entries, NULL allowed. At most max_rejected
 * documents are rejected in a row; then CORRUPT with the longest length seen and a hint. */
enum espl_status espl_windows_draw(const struct espl_documents *documents, uint64_t seed,
                                   size_t windows, size_t tokens, size_t max_rejected, int32_t *out,
                                   uint64_t *starts, struct espl_error *err);

/** The same from documents on demand. places: `windows` entries, NULL allowed. */
enum espl_status espl_windows_draw_from(const struct espl_document_source *source, uint64_t seed,
                                        size_t windows, size_t tokens, size_t max_rejected,
                                        int32_t *out, struct espl_window_place *places,
                                        struct espl_error *err);

#endif
