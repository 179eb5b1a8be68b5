/* Collected errors of a job file: up to 20, sorted by position, each with the source line and a
 * caret. */
#ifndef ESPL_ENGINE_DIAGNOSTICS_H
#define ESPL_ENGINE_DIAGNOSTICS_H

#include "core/buf.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

enum { ESPL_MAX_DIAGNOSTICS = 20, ESPL_MAX_DIAGNOSTIC_PLACES = 4 };

/** A further place with a remark beside its caret ("'quant' needs 'reorder'"). */
struct espl_diagnostic_place {
    struct espl_srcpos at;
    char remark[128];
};

struct espl_diagnostic {
    struct espl_error error; /* message, hint, first place */
    char remark[128];        /* beside the first caret; may be empty */
    struct espl_diagnostic_place also[ESPL_MAX_DIAGNOSTIC_PLACES];
    size_t also_count;
    char note[256];
};

struct espl_diagnostics {
    struct espl_diagnostic *items; /* ESPL_MAX_DIAGNOSTICS of them, allocated by init */
    size_t count;
    size_t dropped; /* found beyond the limit */
    char *source;   /* copy of the job file's text, owned; NULL = no snippets */
    size_t source_len;
    char source_file[256]; /* its name: places in other files get no snippet */
};

enum espl_status espl_diagnostics_init(struct espl_diagnostics *diags, struct espl_error *err);
void espl_diagnostics_free(struct espl_diagnostics *diags);
/** Keeps a copy of the job file's text for the snippets, so that errors outlive the job. */
enum espl_status espl_diagnostics_set_source(struct espl_diagnostics *diags, const char *file,
                                             const char *text, size_t len, struct espl_error *err);
/** Adds an error and returns it for more details, or NULL (counted as dropped) when full. */
struct espl_diagnostic *espl_diagnostics_add(struct espl_diagnostics *diags, enum espl_status code,
                                             const struct espl_srcpos *at, const char *fmt, ...)
    ESPL_PRINTF(4, 5);
/** As espl_diagnostics_add() for a failure that happened elsewhere: takes over code, message, hint
 * and context; its place too when it has one, else `at`. */
struct espl_diagnostic *espl_diagnostics_add_error(struct espl_diagnostics *diags,
                                                   const struct espl_srcpos *at,
                                                   const struct espl_error *error);
/* Details of an added error; item: NULL (dropped) does nothing. */
void espl_diagnostic_hint(struct espl_diagnostic *item, const char *fmt, ...) ESPL_PRINTF(2, 3);
void espl_diagnostic_remark(struct espl_diagnostic *item, const char *fmt, ...) ESPL_PRINTF(2, 3);
void espl_diagnostic_note(struct espl_diagnostic *item, const char *fmt, ...) ESPL_PRINTF(2, 3);
/** A further place; those beyond ESPL_MAX_DIAGNOSTIC_PLACES are left out. */
void espl_diagnostic_also(struct espl_diagnostic *item, const struct espl_srcpos *at,
                          const char *fmt, ...) ESPL_PRINTF(3, 4);
/** Sorts by position and drops exact duplicates. */
void espl_diagnostics_sort(struct espl_diagnostics *diags);
/** Renders all in the form of docs/errors.md, with a count at the end when there are several.
 * colour: with ANSI colours. */
void espl_diagnostics_render(const struct espl_diagnostics *diags, bool colour,
                             struct espl_buf *out);
/** The same form for one error (a resource check of the plan): place, message, hint, context. */
void espl_diagnostics_render_error(const struct espl_diagnostics *diags,
                                   const struct espl_error *error, bool colour,
                                   struct espl_buf *out);
/** The status a verb should fail with: the code of the first error. ESPL_OK when there is none. */
enum espl_status espl_diagnostics_status(const struct espl_diagnostics *diags);
/** Fills *err with a one-line summary ("2 errors in jobs/x.yaml") under that status and returns it;
 * ESPL_OK and *err untouched when there is no error. */
enum espl_status espl_diagnostics_fail(const struct espl_diagnostics *diags, const char *file,
                                       struct espl_error *err);

#endif
