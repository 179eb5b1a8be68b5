/* The content-addressed store under results/:
 *
 * - store/ab/<key>[.<port>].h5: artifacts, immutable; <key> = recipe key, ab = its first two digits
 * - store/ab/<key>[.<port>].json: side file: when, where, by which run, volatile metrics
 * - partial/: private files of running stages, resume units, locks
 * - runs/<run id>/: run records
 * - by-name/<job>/: links and metrics.json for people and scripts
 * - index/: caches that may be deleted at any time */
#ifndef ESPL_ARTIFACT_STORE_H
#define ESPL_ARTIFACT_STORE_H

#include "artifact/artifact.h"
#include "core/error.h"
#include "core/fs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Advice for a results folder that cannot be written. */
extern const char espl_store_write_hint[];

struct espl_store {
    char root[ESPL_PATH_MAX]; /* absolute */
    bool readonly;            /* nothing is created or remembered */
};

/** Creates the folders when missing and removes private files whose owner process is gone.
 *  root: results folder, relative to the working folder or absolute. */
enum espl_status espl_store_open(const char *root, struct espl_store *store,
                                 struct espl_error *err);
/** Read-only use (`plan`, `status`): creates nothing; a missing folder is an empty store. */
enum espl_status espl_store_open_readonly(const char *root, struct espl_store *store,
                                          struct espl_error *err);

/** The store that holds the artifact file at `path` (".../store/ab/<key>.h5", links resolved), for
 * read-only use. Returns false when it lies in none. */
bool espl_store_of_file(const char *path, struct espl_store *store);

/** Path of an artifact. port: NULL or "" for the only output of a stage. */
enum espl_status espl_store_artifact_path(const struct espl_store *store, const char *key,
                                          const char *port, char out[ESPL_PATH_MAX],
                                          struct espl_error *err);
/** Opens an artifact of the store for reading. A file that says it was made under another key or
 * port, because it was copied or renamed there, does not pass for this one. Errors: those of
 * espl_artifact_open(); CORRUPT for the wrong key. */
enum espl_status espl_store_open_artifact(const struct espl_store *store, const char *key,
                                          const char *port, struct espl_artifact **out,
                                          struct espl_error *err);
/** Is it there? (A published file is complete by construction.) */
bool espl_store_has(const struct espl_store *store, const char *key, const char *port);
/** Path for a private file of this process: partial/<key>.<name>.<host>-<pid>.tmp, where <host> is
 * 8 hex digits that stand for the host's name. */
enum espl_status espl_store_private_path(const struct espl_store *store, const char *key,
                                         const char *name, char out[ESPL_PATH_MAX],
                                         struct espl_error *err);
/** Publishes a finished artifact file: it takes the place of one that is there already, in one step
 * (rename), so that readers see the old file or the new one. Equal keys mean equal content, so
 * nothing is lost when two processes publish the same key, and a damaged or forced result is
 * replaced. The private file is gone afterwards, also on failure. */
enum espl_status espl_store_publish(const struct espl_store *store, const char *private_path,
                                    const char *key, const char *port, struct espl_error *err);
/** Folder of resume units of a key (partial/<key>.units/), created when `create`. */
enum espl_status espl_store_units_dir(const struct espl_store *store, const char *key, bool create,
                                      char out[ESPL_PATH_MAX], struct espl_error *err);
/** partial/<key>.lock */
enum espl_status espl_store_lock_path(const struct espl_store *store, const char *key,
                                      char out[ESPL_PATH_MAX], struct espl_error *err);

/** Finds the one artifact whose key starts with `prefix` (at least 6 hex digits; "<key>.<port>" for
 * a stage with several outputs). Errors: NOTFOUND, USAGE for a prefix that is none, KIND when
 * several match. */
enum espl_status espl_store_find(const struct espl_store *store, const char *prefix,
                                 char out_path[ESPL_PATH_MAX], struct espl_error *err);

/** SHA-256 of an external file, remembered in index/ by (path, size, mtime in ns, inode), so that a
 *  large checkpoint is read once. rehash: distrust the memory. store: NULL = no memory. */
enum espl_status espl_store_file_hash(const struct espl_store *store, const char *path, bool rehash,
                                      char hex[ESPL_SHA256_HEX], struct espl_error *err);

#endif
