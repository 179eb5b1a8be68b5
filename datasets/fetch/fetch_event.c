#include "datasets/fetch/fetch_event.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Writes one line; takes the reference. */
static bool send_take(json_t *object)
{
    char *const text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (text == NULL) {
        return false;
    }
    const size_t len = strlen(text);
    text[len] = '\n'; /* in place of the NUL */
    size_t done = 0;
    while (done <= len) {
        const ssize_t wrote = write(STDOUT_FILENO, text + done, len + 1 - done);
        if (wrote < 0 && errno != EINTR) {
            break;
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    free(text);
    return done == len + 1;
}

/* Servers and file systems send bytes; JSON holds UTF-8 only. */
static json_t *text_value(const char *text)
{
    json_t *const value = json_string(text);
    if (value != NULL) {
        return value;
    }
    char *const copy = strdup(text);
    for (char *c = copy; c != NULL && *c != '\0'; c++) {
        *c = (unsigned char)*c < 0x80 ? *c : '?';
    }
    json_t *const plain = copy != NULL ? json_string(copy) : NULL;
    free(copy);
    return plain;
}

bool espl_fetch_event_progress(uint64_t done, uint64_t total, unsigned waiting)
{
    return send_take(json_pack("{s:s, s:I, s:I, s:i}", "type", "progress", "done", (json_int_t)done,
                               "total", (json_int_t)total, "waiting", (int)waiting));
}

bool espl_fetch_event_retry(const char *name, const struct espl_error *why, double seconds)
{
    return send_take(json_pack("{s:s, s:s, s:o, s:f}", "type", "retry", "name", name, "message",
                               text_value(why->message), "seconds", seconds));
}

bool espl_fetch_event_file(const char *name, const char *origin,
                           const struct espl_fetch_result *result)
{
    static const char *const sources[] = {"network", "cache", "peer", "archive"};
    static const char *const checks[] = {"registry", "hub", "first-use"};
    return send_take(json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s, s:s, s:s}", "type", "file",
                               "name", name, "origin", origin, "sha256", result->sha256, "size",
                               (json_int_t)result->size, "resumed_from",
                               (json_int_t)result->resumed_from, "commit", result->commit, "source",
                               sources[result->source], "check", checks[result->check]));
}

bool espl_fetch_event_absent(const char *name)
{
    return send_take(json_pack("{s:s, s:s}", "type", "absent", "name", name));
}

bool espl_fetch_event_error(const struct espl_error *err)
{
    return send_take(json_pack("{s:s, s:i, s:o, s:o, s:o}", "type", "error", "code", (int)err->code,
                               "message", text_value(err->message), "hint", text_value(err->hint),
                               "context", text_value(err->context)));
}
