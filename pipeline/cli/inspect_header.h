/* The head of inspect: file, kind, maker, inputs; and what a description holds. */
#ifndef ESPL_CLI_INSPECT_HEADER_H
#define ESPL_CLI_INSPECT_HEADER_H

#include "artifact/artifact.h"
#include "artifact/store.h"
#include "cli/command.h"

#include <jansson.h>

/** Where the inputs of an artifact are looked for, in this order. */
struct espl_inspect_stores {
    struct espl_store items[2]; /* the one that holds its file, that of --store */
    size_t count;
};

/** Fills the list for the artifact file at `path`; store: that of --store. */
void espl_inspect_stores_find(const char *path, const struct espl_store *store,
                              struct espl_inspect_stores *out);
/** Prints the lines file, kind, made by, seed, params and the chain of inputs. */
enum espl_status espl_inspect_header_print(const struct espl_cli *cli,
                                           const struct espl_inspect_stores *stores,
                                           struct espl_artifact *artifact, struct espl_error *err);
/** Prints the description as "name value" lines; nested objects get dotted names. brief:
 *  without the long members of models. */
void espl_inspect_description_print(const struct espl_cli *cli, const json_t *description,
                                    bool brief);
/** Side file of an artifact (when, where and by which run it was made). NULL when there is none.
 *  New reference. */
json_t *espl_inspect_side_file(const struct espl_artifact *artifact);

#endif
