#include "stages/tokens/documents.h"

#include "core/checked.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static enum espl_status add_span(struct espl_document_spans *spans, size_t start, size_t len,
                                 struct espl_error *err)
{
    if (spans->count == spans->capacity) {
        const size_t capacity = spans->capacity > 0 ? 2 * spans->capacity : 64;
        size_t bytes = 0;
        struct espl_document_span *const grown =
            espl_mul_size(capacity, sizeof *grown, &bytes) ? realloc(spans->spans, bytes) : NULL;
        if (grown == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu documents", capacity);
        }
        spans->spans = grown;
        spans->capacity = capacity;
    }
    spans->spans[spans->count] = (struct espl_document_span){start, len};
    spans->count++;
    return ESPL_OK;
}

static bool is_blank(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') {
            return false;
        }
    }
    return true;
}

/* Lines, or runs of lines without a blank one between (paragraphs). */
static enum espl_status find_lines(const char *text, size_t start, size_t len, bool paragraphs,
                                   struct espl_document_spans *spans, struct espl_error *err)
{
    const size_t end = start + len;
    size_t open = end; /* start of the document at hand; end = none */
    size_t last = 0;   /* where its last line ends */
    for (size_t at = start; at < end;) {
        const char *const newline = memchr(text + at, '\n', end - at);
        const size_t next = newline != NULL ? (size_t)(newline - text) : end;
        const size_t line_end = next > at && text[next - 1] == '\r' ? next - 1 : next;
        const bool blank = is_blank(text + at, line_end - at);
        if (!blank && open == end) {
            open = at;
        }
        last = blank ? last : line_end;
        if (open != end && (blank || !paragraphs)) {
            const enum espl_status status = add_span(spans, open, last - open, err);
            if (status != ESPL_OK) {
                return status;
            }
            open = end;
        }
        at = next + 1;
    }
    return open != end ? add_span(spans, open, last - open, err) : ESPL_OK;
}

enum espl_status espl_documents_find(enum espl_document_mode mode, const char *text, size_t start,
                                     size_t len, struct espl_document_spans *spans,
                                     struct espl_error *err)
{
    if (mode == ESPL_DOCUMENTS_WHOLE) {
        return len > 0 ? add_span(spans, start, len, err) : ESPL_OK;
    }
    return find_lines(text, start, len, mode == ESPL_DOCUMENTS_PARAGRAPHS, spans, err);
}

enum espl_status espl_documents_json_text(const char *json, size_t json_len, const char *path,
                                          size_t line, char **text, size_t *len,
                                          struct espl_error *err)
{
    json_error_t error;
    json_t *const root =
        json_loadb(json, json_len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (root == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "line %zu of '%s' is not a JSON object: column %d: %s", line, path,
                         error.column, error.text);
    }
    enum espl_status status = ESPL_OK;
    const json_t *const field = json_object_get(root, "text");
    if (json_is_string(field)) {
        *len = json_string_length(field);
        *text = malloc(*len + 1);
        if (*text != NULL) {
            memcpy(*text, json_string_value(field), *len + 1);
        } else {
            status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a document");
        }
    } else {
        status = espl_fail(err, ESPL_E_CORRUPT,
                           "line %zu of '%s' has no \"text\" field with a string", line, path);
    }
    json_decref(root);
    return status;
}
