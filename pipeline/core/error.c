#include "core/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* vsnprintf into a fixed field; a text that does not fit ends in "...". */
static void format_text(char *out, size_t size, const char *fmt, va_list args)
{
    const int n = vsnprintf(out, size, fmt, args);
    if (n < 0) {
        out[0] = '\0';
    } else if ((size_t)n >= size && size > 4) {
        memcpy(out + size - 4, "...", 4);
    }
}

void espl_error_clear(struct espl_error *err)
{
    if (err != NULL) {
        memset(err, 0, sizeof *err);
    }
}

enum espl_status espl_fail(struct espl_error *err, enum espl_status code, const char *fmt, ...)
{
    if (err != NULL) {
        espl_error_clear(err);
        err->code = code;
        va_list args;
        va_start(args, fmt);
        format_text(err->message, sizeof err->message, fmt, args);
        va_end(args);
    }
    return code;
}

static enum espl_status status_of_errno(int sys_errno)
{
    switch (sys_errno) {
    case ENOSPC:
    case EDQUOT:
        return ESPL_E_NOSPACE;
    case ENOENT:
        return ESPL_E_NOTFOUND;
    case ENOMEM:
        return ESPL_E_NOMEM;
    default:
        return ESPL_E_IO;
    }
}

enum espl_status espl_fail_errno(struct espl_error *err, int sys_errno, const char *fmt, ...)
{
    const enum espl_status code = status_of_errno(sys_errno);
    if (err != NULL) {
        espl_error_clear(err);
        err->code = code;
        err->sys_errno = sys_errno;
        va_list args;
        va_start(args, fmt);
        format_text(err->message, sizeof err->message, fmt, args);
        va_end(args);
        const size_t len = strlen(err->message);
        (void)snprintf(err->message + len, sizeof err->message - len, ": %s", strerror(sys_errno));
    }
    return code;
}

enum espl_status espl_hint(struct espl_error *err, const char *fmt, ...)
{
    if (err == NULL) {
        return ESPL_E_INTERNAL;
    }
    va_list args;
    va_start(args, fmt);
    format_text(err->hint, sizeof err->hint, fmt, args);
    va_end(args);
    return err->code;
}

enum espl_status espl_blame(struct espl_error *err, const char *what)
{
    if (err == NULL) {
        return ESPL_E_INTERNAL;
    }
    (void)snprintf(err->blame, sizeof err->blame, "%s", what);
    return err->code;
}

enum espl_status espl_context(struct espl_error *err, const char *fmt, ...)
{
    if (err == NULL) {
        return ESPL_E_INTERNAL;
    }
    size_t len = strlen(err->context);
    if (len > 0 && len + 1 < sizeof err->context) {
        err->context[len] = '\n';
        len++;
        err->context[len] = '\0';
    }
    va_list args;
    va_start(args, fmt);
    format_text(err->context + len, sizeof err->context - len, fmt, args);
    va_end(args);
    return err->code;
}

struct status_row {
    enum espl_status code;
    const char *name;
    int exit_code;
};

static const struct status_row status_rows[] = {
    {ESPL_OK, "ok", 0},
    {ESPL_E_INTERNAL, "internal", 70},
    {ESPL_E_NOMEM, "no-memory", 5},
    {ESPL_E_USAGE, "usage", 2},
    {ESPL_E_JOB, "job", 3},
    {ESPL_E_NOTFOUND, "not-found", 4},
    {ESPL_E_CORRUPT, "corrupt", 4},
    {ESPL_E_KIND, "wrong-kind", 4},
    {ESPL_E_VERSION, "newer-version", 4},
    {ESPL_E_UNSUPPORTED, "unsupported", 5},
    {ESPL_E_MACHINE, "machine", 5},
    {ESPL_E_NOSPACE, "no-space", 5},
    {ESPL_E_IO, "io", 1},
    {ESPL_E_LOCKED, "locked", 1},
    {ESPL_E_CANCELLED, "interrupted", 130},
    {ESPL_E_TERMINATED, "terminated", 143},
    {ESPL_E_NUMERIC, "numeric", 1},
    {ESPL_E_EXPECT, "expectation", 7},
    {ESPL_E_STAGE, "stage-died", 1},
    {ESPL_E_PENDING, "pending", 6},
};

static const struct status_row *find_status(enum espl_status code)
{
    for (size_t i = 0; i < sizeof status_rows / sizeof status_rows[0]; i++) {
        if (status_rows[i].code == code) {
            return &status_rows[i];
        }
    }
    return NULL;
}

const char *espl_status_name(enum espl_status code)
{
    const struct status_row *row = find_status(code);
    return row != NULL ? row->name : "unknown";
}

int espl_status_exit_code(enum espl_status code)
{
    const struct status_row *row = find_status(code);
    return row != NULL ? row->exit_code : 70;
}
