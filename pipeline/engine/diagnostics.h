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
    size_t dropped;     /* found beyond the limit */
    const char *source; /* text of the job file, borrowed; NULL = no snippets */
    size_t source_len;
};

enum espl_status espl_diagnostics_init(struct espl_diagnostics *diags, struct espl_error *err);
void espl_diagnostics_free(struct espl_diagnostics *diags);
/** Adds an error and returns it for more details, or NULL (counted as dropped) when full. */
struct espl_diagnostic *espl_diagnostics_add(struct espl_diagnostics *diags, enum espl_status code,
                                             const struct espl_srcpos *at, const char *fmt, ...)
    ESPL_PRINTF(4, 5);
/** Sorts by position and drops exact duplicates. */
void espl_diagnostics_sort(struct espl_diagnostics *diags);
/** Renders all in the form of docs/errors.md. colour: with ANSI colours. */
void espl_diagnostics_render(const struct espl_diagnostics *diags, bool colour,
                             struct espl_buf *out);
/** The status a verb should fail with: the code of the first error. ESPL_OK when there is none. */
enum espl_status espl_diagnostics_status(const struct espl_diagnostics *diags);

#endif
