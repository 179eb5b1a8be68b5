/* The artifact kinds. A name with its major version lives in files for ever: add, never change. */
#ifndef ESPL_ARTIFACT_KINDS_H
#define ESPL_ARTIFACT_KINDS_H

#include <stdbool.h>
#include <stddef.h>

struct espl_kind {
    const char *name;            /* "model.dense/1" */
    const char *summary;         /* one line for people */
    const char *const *required; /* dataset paths that must exist; ends with NULL */
};

/** The table; ends with .name == NULL. */
extern const struct espl_kind espl_kinds[];

const struct espl_kind *espl_kind_find(const char *name);
/** Does an artifact of `kind` fit a port that accepts `accepted`? accepted is one kind or several
 *  separated by '|': "model.dense/1|model.masked/1". */
bool espl_kind_accepts(const char *accepted, const char *kind);

#endif
