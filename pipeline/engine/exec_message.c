#include "engine/exec_message.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEADER_BYTES = 8, READ_BYTES = 64 * 1024 };

static enum espl_status write_all(int fd, const void *bytes, size_t len, struct espl_error *err)
{
    const char *at = bytes;
    while (len > 0) {
        const ssize_t n = write(fd, at, len);
        if (n > 0) {
            at += n;
            len -= (size_t)n;
        } else if (n < 0 && errno != EINTR) {
            return espl_fail_errno(err, errno, "cannot report to the driver");
        }
    }
    return ESPL_OK;
}

enum espl_status espl_message_send_take(int fd, enum espl_message_type type, json_t *body,
                                        struct espl_error *err)
{
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for a message to the driver");
    }
    const size_t len = strlen(text);
    enum espl_status status = ESPL_OK;
    if (len > ESPL_MESSAGE_MAX_BYTES) {
        status = espl_fail(err, ESPL_E_INTERNAL, "a message to the driver has %zu bytes", len);
    } else {
        const uint32_t header[2] = {(uint32_t)type, (uint32_t)len};
        status = write_all(fd, header, sizeof header, err);
    }
    if (status == ESPL_OK) {
        status = write_all(fd, text, len, err);
    }
    free(text);
    return status;
}

void espl_message_reader_init(struct espl_message_reader *reader)
{
    espl_buf_init(&reader->buf, 2u * (ESPL_MESSAGE_MAX_BYTES + HEADER_BYTES));
}

void espl_message_reader_free(struct espl_message_reader *reader)
{
    espl_buf_free(&reader->buf);
}

enum espl_status espl_message_reader_fill(struct espl_message_reader *reader, int fd, bool *end,
                                          struct espl_error *err)
{
    char bytes[READ_BYTES];
    *end = false;
    const ssize_t n = read(fd, bytes, sizeof bytes);
    if (n > 0) {
        (void)espl_buf_add(&reader->buf, bytes, (size_t)n);
        return espl_buf_check(&reader->buf, "messages of a stage", err);
    }
    if (n == 0) {
        *end = true;
    } else if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) {
        return espl_fail_errno(err, errno, "cannot read from the stage process");
    }
    return ESPL_OK;
}

enum espl_status espl_message_reader_next(struct espl_message_reader *reader,
                                          enum espl_message_type *type, json_t **body,
                                          struct espl_error *err)
{
    uint32_t header[2];
    struct espl_buf *buf = &reader->buf;
    *body = NULL;
    if (buf->len < HEADER_BYTES) {
        return ESPL_OK;
    }
    memcpy(header, buf->data, sizeof header);
    if (header[0] < ESPL_MESSAGE_PROGRESS || header[0] > ESPL_MESSAGE_STATUS ||
        header[1] > ESPL_MESSAGE_MAX_BYTES) {
        return espl_fail(err, ESPL_E_INTERNAL, "the stage process sent a malformed message");
    }
    const size_t whole = HEADER_BYTES + header[1];
    if (buf->len < whole) {
        return ESPL_OK;
    }
    *body = json_loadb(buf->data + HEADER_BYTES, header[1], 0, NULL);
    if (*body == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "the stage process sent a malformed message");
    }
    *type = (enum espl_message_type)header[0];
    memmove(buf->data, buf->data + whole, buf->len - whole);
    buf->len -= whole;
    return ESPL_OK;
}

json_t *espl_json_text(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL) {
        return value;
    }
    char *copy = strdup(text);
    if (copy == NULL) {
        return NULL;
    }
    for (char *at = copy; *at != '\0'; at++) {
        if (((unsigned char)*at & 0x80u) != 0) {
            *at = '?';
        }
    }
    value = json_string(copy);
    free(copy);
    return value;
}

json_t *espl_error_to_json(const struct espl_error *err)
{
    return json_pack("{s:i, s:o, s:o, s:o, s:s, s:i, s:o, s:i, s:i, s:i}", "code", (int)err->code,
                     "message", espl_json_text(err->message), "hint", espl_json_text(err->hint),
                     "context", espl_json_text(err->context), "blame", err->blame, "sys_errno",
                     err->sys_errno, "file", espl_json_text(err->at.file), "line",
                     (int)err->at.line, "column", (int)err->at.column, "length",
                     (int)err->at.length);
}

static void copy_text(char *out, size_t size, const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    (void)snprintf(out, size, "%s", text != NULL ? text : "");
}

static int get_int(const json_t *object, const char *name)
{
    return (int)json_integer_value(json_object_get(object, name));
}

void espl_error_from_json(const json_t *object, struct espl_error *err)
{
    espl_error_clear(err);
    err->code = (enum espl_status)get_int(object, "code");
    err->sys_errno = get_int(object, "sys_errno");
    copy_text(err->message, sizeof err->message, object, "message");
    copy_text(err->hint, sizeof err->hint, object, "hint");
    copy_text(err->context, sizeof err->context, object, "context");
    copy_text(err->blame, sizeof err->blame, object, "blame");
    copy_text(err->at.file, sizeof err->at.file, object, "file");
    err->at.line = (unsigned)get_int(object, "line");
    err->at.column = (unsigned)get_int(object, "column");
    err->at.length = (unsigned)get_int(object, "length");
}
