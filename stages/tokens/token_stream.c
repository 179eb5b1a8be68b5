#include "stages/tokens/token_stream.h"

#include "core/buf.h"
#include "core/checked.h"
#include "core/fs.h"
#include "datasets/text.h"
#include "datasets/unicode.h"

#include <stdlib.h>
#include <string.h>

static const size_t text_limit = (size_t)4 << 30;   /* bytes of all texts */
static const size_t ids_limit = (size_t)16 << 30;   /* bytes of an ids file */
static const size_t kept_limit = (size_t)256 << 20; /* bytes of ids of documents seen before */

struct tokenised {
    int32_t *ids; /* NULL = not (or no longer) here */
    size_t count;
};

struct espl_token_stream {
    const struct espl_tokenizer *tokenizer; /* NULL for an ids file */
    enum espl_document_mode mode;
    bool add_bos;
    bool had_bos;
    char *text; /* all files joined, nothing between */
    size_t text_len;
    const char *const *paths; /* borrowed; NULL for an ids file */
    size_t *starts;           /* where each file begins in text */
    size_t file_count;
    struct espl_document_spans spans;
    struct tokenised *documents;
    size_t count;
    size_t kept_bytes;
    int64_t id_end;
    char sha256[ESPL_SHA256_HEX];
};

void espl_token_stream_close(struct espl_token_stream *stream)
{
    if (stream != NULL) {
        for (size_t i = 0; stream->documents != NULL && i < stream->count; i++) {
            free(stream->documents[i].ids);
        }
        free(stream->documents);
        free(stream->spans.spans);
        free(stream->starts);
        free(stream->text);
        free(stream);
    }
}

static enum espl_status out_of_memory(struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NOMEM, "out of memory for the documents");
}

/* ---- texts ---- */

/* Appends one file to the joined text. */
static enum espl_status append_file(struct espl_token_stream *stream, const char *path,
                                    struct espl_error *err)
{
    char *part = NULL;
    size_t len = 0;
    enum espl_status status = espl_text_read(path, text_limit - stream->text_len, &part, &len, err);
    if (status != ESPL_OK) {
        return status;
    }
    const size_t start = stream->text_len;
    if (stream->text == NULL) {
        stream->text = part;
        part = NULL;
    } else {
        char *const grown = realloc(stream->text, start + len + 1);
        if (grown == NULL) {
            free(part);
            return out_of_memory(err);
        }
        stream->text = grown;
        memcpy(grown + start, part, len + 1);
    }
    stream->text_len = start + len;
    stream->starts[stream->file_count++] = start;
    free(part);
    /* A file ends a line, a paragraph and a JSON line, but not the whole text. */
    return stream->mode == ESPL_DOCUMENTS_WHOLE
               ? ESPL_OK
               : espl_documents_find(stream->mode, stream->text, start, len, &stream->spans, err);
}

/* A place in the joined text as people find it: file, byte in it, line in it. */
struct place {
    const char *path;
    size_t offset;
    size_t line;
};

static struct place place_of(const struct espl_token_stream *stream, size_t at)
{
    size_t file = 0;
    while (file + 1 < stream->file_count && stream->starts[file + 1] <= at) {
        file++;
    }
    const size_t start = stream->starts[file];
    struct place place = {stream->paths[file], at - start, 1};
    for (size_t i = start; i < at; i++) {
        place.line += stream->text[i] == '\n' ? 1 : 0;
    }
    return place;
}

/* Here, and not only when a document is tokenised: a document may begin in an earlier file. */
static enum espl_status check_encoding(const struct espl_token_stream *stream,
                                       struct espl_error *err)
{
    const size_t at = espl_utf8_invalid_at(stream->text, stream->text_len);
    if (at == stream->text_len) {
        return ESPL_OK;
    }
    const struct place place = place_of(stream, at);
    (void)espl_fail(err, ESPL_E_CORRUPT,
                    "text '%s' is not valid UTF-8: byte 0x%02x at offset %zu, line %zu", place.path,
                    (unsigned)(unsigned char)stream->text[at], place.offset, place.line);
    return espl_hint(err, "convert it first, for example: iconv -f LATIN1 -t UTF-8");
}

static enum espl_status read_texts(struct espl_token_stream *stream, const struct espl_list *paths,
                                   struct espl_error *err)
{
    const char *const *const items = paths->items;
    enum espl_status status = ESPL_OK;
    stream->paths = items;
    stream->starts = calloc(paths->count + 1, sizeof *stream->starts);
    if (stream->starts == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < paths->count && status == ESPL_OK; i++) {
        status = append_file(stream, items[i], err);
    }
    if (status == ESPL_OK) {
        status = check_encoding(stream, err);
    }
    if (status == ESPL_OK && stream->mode == ESPL_DOCUMENTS_WHOLE) {
        status = espl_documents_find(stream->mode, stream->text, 0, stream->text_len,
                                     &stream->spans, err);
    }
    if (status == ESPL_OK) {
        status = espl_sha256_bytes(stream->text, stream->text_len, stream->sha256, err);
    }
    if (status == ESPL_OK && stream->spans.count == 0) {
        status = espl_fail(err, ESPL_E_CORRUPT, "text '%s' holds no document", items[0]);
        (void)espl_hint(err, "it is empty, or has nothing but blank lines");
    }
    return status;
}

enum espl_status espl_token_stream_open_text(const struct espl_tokenizer *tokenizer,
                                             const struct espl_list *paths,
                                             enum espl_document_mode mode, bool add_bos,
                                             struct espl_token_stream **out, struct espl_error *err)
{
    struct espl_token_stream *const stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        return out_of_memory(err);
    }
    stream->tokenizer = tokenizer;
    stream->mode = mode;
    stream->add_bos = add_bos;
    enum espl_status status = read_texts(stream, paths, err);
    if (status == ESPL_OK) {
        stream->count = stream->spans.count;
        stream->documents = calloc(stream->count, sizeof *stream->documents);
        status = stream->documents != NULL ? ESPL_OK : out_of_memory(err);
    }
    if (status != ESPL_OK) {
        espl_token_stream_close(stream);
        return status;
    }
    *out = stream;
    return ESPL_OK;
}

/* ---- ids ---- */

/* Little-endian bytes to int32 in place. */
static enum espl_status decode_ids(const char *path, char *bytes, size_t count, int64_t *id_end,
                                   struct espl_error *err)
{
    int32_t *const ids = (int32_t *)(void *)bytes; /* malloc'ed, so aligned */
    for (size_t i = 0; i < count; i++) {
        unsigned char raw[4];
        memcpy(raw, bytes + 4 * i, sizeof raw);
        const uint32_t value =
            raw[0] | (uint32_t)raw[1] << 8 | (uint32_t)raw[2] << 16 | (uint32_t)raw[3] << 24;
        if (value > INT32_MAX) {
            (void)espl_fail(err, ESPL_E_CORRUPT, "id %zu of '%s' is negative (0x%08x)", i, path,
                            (unsigned)value);
            return espl_hint(err, "the file must hold little-endian 32-bit ids and nothing else");
        }
        ids[i] = (int32_t)value;
        *id_end = (int64_t)value + 1 > *id_end ? (int64_t)value + 1 : *id_end;
    }
    return ESPL_OK;
}

/* Every second id 0 and others not: 64-bit ids, which numpy makes unless told otherwise. */
static bool looks_like_int64(const int32_t *ids, size_t count)
{
    enum { FEW = 8 };
    bool all_zero = true;
    for (size_t i = 0; i + 1 < count; i += 2) {
        if (ids[i + 1] != 0) {
            return false;
        }
        all_zero = all_zero && ids[i] == 0;
    }
    return count >= FEW && count % 2 == 0 && !all_zero;
}

static enum espl_status read_ids(struct espl_token_stream *stream, const char *path,
                                 struct espl_error *err)
{
    size_t len = 0;
    enum espl_status status = espl_text_read(path, ids_limit, &stream->text, &len, err);
    if (status == ESPL_OK && (len == 0 || len % 4 != 0)) {
        status =
            espl_fail(err, ESPL_E_CORRUPT,
                      "ids file '%s' has %zu bytes, expected a multiple of 4 above 0", path, len);
        (void)espl_hint(err, "it must hold raw little-endian int32 ids; a text belongs in `text:`");
    }
    if (status == ESPL_OK) {
        status = espl_sha256_bytes(stream->text, len, stream->sha256, err);
    }
    if (status == ESPL_OK) {
        status = decode_ids(path, stream->text, len / 4, &stream->id_end, err);
    }
    if (status == ESPL_OK && looks_like_int64((const int32_t *)(void *)stream->text, len / 4)) {
        status = espl_fail(err, ESPL_E_CORRUPT,
                           "every second id of '%s' is 0: it looks like 64-bit ids", path);
        (void)espl_hint(err, "write int32, for example with numpy: ids.astype('<i4').tofile(path)");
    }
    if (status != ESPL_OK) {
        return status;
    }
    struct tokenised *const document = calloc(1, sizeof *document);
    if (document == NULL) {
        return out_of_memory(err);
    }
    *document = (struct tokenised){(int32_t *)(void *)stream->text, len / 4};
    stream->text = NULL; /* the document owns it now */
    stream->documents = document;
    stream->count = 1;
    return ESPL_OK;
}

enum espl_status espl_token_stream_open_ids(const char *path, struct espl_token_stream **out,
                                            struct espl_error *err)
{
    struct espl_token_stream *const stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        return out_of_memory(err);
    }
    const enum espl_status status = read_ids(stream, path, err);
    if (status != ESPL_OK) {
        espl_token_stream_close(stream);
        return status;
    }
    *out = stream;
    return ESPL_OK;
}

/* ---- loading ---- */

/* A text that already begins with the BOS token must not get a second one. */
static void drop_double_bos(struct espl_token_stream *stream, struct tokenised *document)
{
    const int32_t bos = espl_tokenizer_bos(stream->tokenizer);
    if (stream->add_bos && bos >= 0 && document->count >= 2 && document->ids[0] == bos &&
        document->ids[1] == bos) {
        document->count--;
        memmove(document->ids, document->ids + 1, document->count * sizeof *document->ids);
        stream->had_bos = true;
    }
}

static enum espl_status tokenise(struct espl_token_stream *stream, size_t index,
                                 struct espl_error *err)
{
    const struct espl_document_span span = stream->spans.spans[index];
    struct tokenised *const document = &stream->documents[index];
    const char *text = stream->text + span.start;
    size_t len = span.len;
    char *decoded = NULL;
    enum espl_status status = ESPL_OK;
    if (stream->mode == ESPL_DOCUMENTS_JSONL) {
        const struct place place = place_of(stream, span.start);
        status = espl_documents_json_text(text, len, place.path, place.line, &decoded, &len, err);
        text = decoded;
    }
    if (status == ESPL_OK) {
        status = espl_tokenizer_encode(stream->tokenizer, text, len, stream->add_bos,
                                       &document->ids, &document->count, err);
        if (status != ESPL_OK) {
            const struct place place = place_of(stream, span.start);
            (void)espl_context(
                err, "while tokenising document %zu of %zu, which starts at line %zu of '%s'",
                index + 1, stream->count, place.line, place.path);
        }
    }
    free(decoded);
    if (status == ESPL_OK) {
        drop_double_bos(stream, document);
        stream->kept_bytes += document->count * sizeof *document->ids;
    }
    return status;
}

static void forget_documents(struct espl_token_stream *stream)
{
    for (size_t i = 0; i < stream->count; i++) {
        free(stream->documents[i].ids);
        stream->documents[i] = (struct tokenised){NULL, 0};
    }
    stream->kept_bytes = 0;
}

enum espl_status espl_token_stream_load(struct espl_token_stream *stream, size_t document,
                                        const int32_t **ids, size_t *count, struct espl_error *err)
{
    if (stream->documents[document].ids == NULL) {
        if (stream->kept_bytes > kept_limit) {
            forget_documents(stream);
        }
        const enum espl_status status = tokenise(stream, document, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    *ids = stream->documents[document].ids;
    *count = stream->documents[document].count;
    return ESPL_OK;
}

static enum espl_status load_for_sampler(void *user, size_t document, const int32_t **ids,
                                         size_t *len, struct espl_error *err)
{
    return espl_token_stream_load(user, document, ids, len, err);
}

struct espl_document_source espl_token_stream_source(struct espl_token_stream *stream)
{
    return (struct espl_document_source){
        .count = stream->count, .load = load_for_sampler, .user = stream};
}

size_t espl_token_stream_documents(const struct espl_token_stream *stream)
{
    return stream->count;
}

const char *espl_token_stream_sha256(const struct espl_token_stream *stream)
{
    return stream->sha256;
}

int64_t espl_token_stream_id_end(const struct espl_token_stream *stream)
{
    return stream->id_end;
}

bool espl_token_stream_had_bos(const struct espl_token_stream *stream)
{
    return stream->had_bos;
}
