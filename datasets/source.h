/* `source: NAME` of a stage: what `espalier fetch NAME` brought into the cache. Nothing is fetched
 * here: a job never opens a connection. */
#ifndef ESPL_DATASETS_SOURCE_H
#define ESPL_DATASETS_SOURCE_H

#include "core/error.h"
#include "core/fs.h"

#include <stdbool.h>
#include <stddef.h>

struct espl_source {
    char folder[ESPL_PATH_MAX];
    char **paths; /* the files that its entry names for use, all of them when it names none */
    size_t count;
};

/** Finds a fetched set, "NAME", or one file of it, "NAME/FILE". Free with espl_source_free().
 * Errors: NOTFOUND with the command that fetches it, CORRUPT, NOMEM. */
enum espl_status espl_source_find(const char *source, struct espl_source *out,
                                  struct espl_error *err);
void espl_source_free(struct espl_source *source);

/** Could a path that is not there be meant as the name of a set? Names have no '/', and what has a
 *  '.' is rather a file. */
bool espl_source_may_be_name(const char *text);
/** For an error about `path` that is not there: adds the hint that `parameter` takes names, when
 * the path could be one or is the name of a set that was fetched. Keeps the error's own hint
 * otherwise. */
void espl_source_hint(const char *path, const char *parameter, struct espl_error *err);

#endif
