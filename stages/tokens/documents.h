/* What counts as one document of a text: all of it, a line, a paragraph, or the "text" field of a
 * JSON line. */
#ifndef ESPL_STAGES_TOKENS_DOCUMENTS_H
#define ESPL_STAGES_TOKENS_DOCUMENTS_H

#include "core/error.h"

#include <stddef.h>

/** In the order of the parameter's choices. */
enum espl_document_mode {
    ESPL_DOCUMENTS_WHOLE,
    ESPL_DOCUMENTS_LINES,
    ESPL_DOCUMENTS_PARAGRAPHS,
    ESPL_DOCUMENTS_JSONL
};

/** A document is text[start .. start + len) (for JSON lines: the raw line). */
struct espl_document_span {
    size_t start;
    size_t len;
};

/** Zero-initialise; free(spans). */
struct espl_document_spans {
    struct espl_document_span *spans;
    size_t count;
    size_t capacity;
};

/** Appends the documents of text[start .. start + len), one file. Blank lines are no documents; a
 * paragraph ends at a blank line. Errors: NOMEM. */
enum espl_status espl_documents_find(enum espl_document_mode mode, const char *text, size_t start,
                                     size_t len, struct espl_document_spans *spans,
                                     struct espl_error *err);
/** The text of one JSON line. *text: malloc'ed, owned by the caller. path, line: where it is, for
 * messages. Errors: CORRUPT. */
enum espl_status espl_documents_json_text(const char *json, size_t json_len, const char *path,
                                          size_t line, char **text, size_t *len,
                                          struct espl_error *err);

#endif
