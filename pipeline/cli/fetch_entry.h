/* Fetches one entry of the registry: which files, from where, in which order; then the set. */
#ifndef ESPL_CLI_FETCH_ENTRY_H
#define ESPL_CLI_FETCH_ENTRY_H

#include "cli/command.h"
#include "core/error.h"
#include "datasets/cache.h"
#include "datasets/registry/data_registry.h"

#include <jansson.h>

/** Settings from the command line and the environment. */
struct espl_fetch_settings {
    struct espl_cache cache;
    const char *hub;      /* address of the hub */
    const char *mirror;   /* tried before the addresses of the registry; NULL = none */
    const char *revision; /* instead of the entry's; NULL = the entry's */
    json_t *request;      /* the settings of a request, without "files"; owned by the caller */
};

/** Fetches all files of the entry and publishes its set. folder: where they are now; *description:
 * set.json, new reference. Errors: NOTFOUND for an entry that has to be got by hand; those of the
 * fetch. */
enum espl_status espl_fetch_entry(const struct espl_cli *cli,
                                  const struct espl_registry_entry *entry,
                                  const struct espl_fetch_settings *settings,
                                  char folder[ESPL_PATH_MAX], json_t **description,
                                  struct espl_error *err);

#endif
