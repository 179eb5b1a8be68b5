#include "core/error.h"

#include "core/tame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* vsnprintf into a fixed field, tamed; a text that does not fit ends in "...". */
static void format_text(char *out, size_t size, const char *fmt, va_list args)
{
    const int n = vsnprintf(out, size, fmt, args);
    if (n < 0) {
        out[0] = '\0';
    } else if ((size_t)n >= size && size > 4) {
        memcpy(out + size - 4, "...", 4);
    }
    espl_text_tame(out);
}

void espl_error_clear(struct espl_error *err)
{
    if (err != NULL) {
        memset(err, 0, sizeof *err);
    }
}

enum espl_status(espl_fail)(struct espl_error *err, enum espl_status code, const char *fmt, ...)
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
        if (sys_errno == EMFILE) {
            (void)espl_hint(err, "raise the limit of open files: `ulimit -n` shows it");
        } else if (sys_errno == EFBIG) {
            (void)espl_hint(err, "the file system or `ulimit -f` limits the size of files");
        }
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
    int exit_code;
    const char *name;
};

static const struct status_row status_rows[] = {
    {ESPL_OK, 0, "ok"},
    {ESPL_E_INTERNAL, 70, "internal"},
    {ESPL_E_NOMEM, 5, "no-memory"},
    {ESPL_E_USAGE, 2, "usage"},
    {ESPL_E_JOB, 3, "job"},
    {ESPL_E_NOTFOUND, 4, "not-found"},
    {ESPL_E_CORRUPT, 4, "corrupt"},
    {ESPL_E_KIND, 4, "wrong-kind"},
    {ESPL_E_VERSION, 4, "newer-version"},
    {ESPL_E_UNSUPPORTED, 5, "unsupported"},
    {ESPL_E_MACHINE, 5, "machine"},
    {ESPL_E_NOSPACE, 5, "no-space"},
    {ESPL_E_IO, 1, "io"},
    {ESPL_E_LOCKED, 1, "locked"},
    {ESPL_E_CANCELLED, 130, "interrupted"},
    {ESPL_E_TERMINATED, 143, "terminated"},
    {ESPL_E_NUMERIC, 1, "numeric"},
    {ESPL_E_EXPECT, 7, "expectation"},
    {ESPL_E_STAGE, 1, "stage-died"},
    {ESPL_E_PENDING, 6, "pending"},
    {ESPL_E_DIFFERENT, 1, "different"},
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
