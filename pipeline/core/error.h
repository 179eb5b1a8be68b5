/* Status codes and the error record that every fallible function fills.
 *
 * Calling sequence: a function that can fail returns `enum espl_status` and takes
 * `struct espl_error *err` last. It calls espl_fail() where the failure is found and its callers
 * add "while ..." lines with espl_context() on the way up. Only main.c turns a status into an exit
 * code. The record is owned by the caller, has a fixed size and never allocates. */
#ifndef ESPL_CORE_ERROR_H
#define ESPL_CORE_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Stable numbers with gaps; they are stored in run records, so add and never renumber. */
enum espl_status {
    ESPL_OK = 0,
    ESPL_E_INTERNAL = 1,     /* a bug of ours */
    ESPL_E_NOMEM = 2,        /* the allocator or a stated memory budget said no */
    ESPL_E_USAGE = 10,       /* wrong command line */
    ESPL_E_JOB = 20,         /* job file: syntax, schema, graph */
    ESPL_E_NOTFOUND = 30,    /* an input file, tensor or artifact is missing */
    ESPL_E_CORRUPT = 31,     /* an input is damaged or inconsistent */
    ESPL_E_KIND = 32,        /* an input is of the wrong kind or shape */
    ESPL_E_VERSION = 33,     /* an artifact of a newer format */
    ESPL_E_UNSUPPORTED = 40, /* a feature this build or backend does not have */
    ESPL_E_MACHINE = 50,     /* the machine cannot do it: no GPU, too little memory */
    ESPL_E_NOSPACE = 51,     /* disk full or too small */
    ESPL_E_IO = 60,          /* read or write failed */
    ESPL_E_LOCKED = 61,      /* another run holds the key and waiting was not wanted */
    ESPL_E_CANCELLED = 70,   /* SIGINT, or the caller asked to stop */
    ESPL_E_TERMINATED = 71,  /* SIGTERM */
    ESPL_E_NUMERIC = 80,     /* NaN, infinity, a quality check that stops a broken run */
    ESPL_E_EXPECT = 81,      /* an `expect:` threshold failed */
    ESPL_E_STAGE = 82,       /* a stage process died without a status of its own */
    ESPL_E_PENDING = 83,     /* `plan --check`: work is pending */
    ESPL_E_DIFFERENT = 84    /* `diff`: the two are not the same */
};

/** A place in a text file. line and column count from 1; line 0 means "no place". */
struct espl_srcpos {
    char file[256];
    unsigned line;
    unsigned column;
    unsigned length; /* characters to underline, 0 = 1 */
};

struct espl_error {
    enum espl_status code;
    struct espl_srcpos at;
    int sys_errno;
    char blame[64]; /* "param:NAME" or "input:PORT": lets the planner find the place in the job file
                     */
    char message[512];  /* what failed: lower case, no full stop */
    char hint[384];     /* what to do; may be empty */
    char context[1024]; /* "while ..." lines, innermost first, separated by '\n' */
};

#if defined(__GNUC__)
#define ESPL_PRINTF(fmt_index, args_index) __attribute__((format(printf, fmt_index, args_index)))
#else
#define ESPL_PRINTF(fmt_index, args_index)
#endif

/** Resets *err to ESPL_OK with empty texts. err: may be NULL. */
void espl_error_clear(struct espl_error *err);

/** Fills *err (dropping what it held) and returns `code`. err: may be NULL. Texts too long for
 * their field are cut and end in "...". */
enum espl_status espl_fail(struct espl_error *err, enum espl_status code, const char *fmt, ...)
    ESPL_PRINTF(3, 4);
#ifdef ESPL_ANALYZE
/* gcc -fanalyzer sees one file at a time: this tells it that a failure is not ESPL_OK. */
#define espl_fail(err, code, ...) ((espl_fail)((err), (code), __VA_ARGS__), (code))
#endif

/** As espl_fail() for a failed system call: appends ": <strerror>" and maps ENOSPC and EDQUOT to
 *  ESPL_E_NOSPACE, ENOENT to ESPL_E_NOTFOUND, ENOMEM to ESPL_E_NOMEM, all else to ESPL_E_IO. */
enum espl_status espl_fail_errno(struct espl_error *err, int sys_errno, const char *fmt, ...)
    ESPL_PRINTF(3, 4);

/** Sets the advice of *err. Returns err->code so that `return espl_hint(...)` works. */
enum espl_status espl_hint(struct espl_error *err, const char *fmt, ...) ESPL_PRINTF(2, 3);

/** Names the parameter ("param:checkpoint") or input port ("input:model") that is to blame, for the
 *  planner to point at. Returns err->code. */
enum espl_status espl_blame(struct espl_error *err, const char *what);

/** Appends one "while ..." line. Returns err->code. */
enum espl_status espl_context(struct espl_error *err, const char *fmt, ...) ESPL_PRINTF(2, 3);

/** Short stable lower-case word for a status ("no-space"), for JSON and logs. Never NULL. */
const char *espl_status_name(enum espl_status code);

/** Process exit code of a status, as listed in docs/cli.md. */
int espl_status_exit_code(enum espl_status code);

#ifdef __cplusplus
}
#endif

#endif
