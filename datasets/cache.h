/* The folder of fetched files, shared by all jobs of a user and named by content:
 *
 *   blobs/ab/<sha256>        a whole, checked file; never changed
 *   partial/<id>             a download that goes on or can be resumed; <id>.json says of what,
 *                            <id>.lock who works on it
 *   urls/<id>.json           what an address held when it was fetched first (a record)
 *   sets/<name>              symbolic link to sets/<name>@<hash>/, the files of one registry entry
 *                            by name, as links to blobs, with set.json
 *
 * Nothing under blobs/ and sets/ is visible before it is whole. docs/fetch.md has the details. */
#ifndef ESPL_DATASETS_CACHE_H
#define ESPL_DATASETS_CACHE_H

#include "core/error.h"
#include "core/fs.h"
#include "core/hash.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct espl_cache {
    char root[ESPL_PATH_MAX];
};

/** Finds the cache: `folder` when not NULL, else $ESPALIER_CACHE, else $XDG_CACHE_HOME/espalier,
 * else $HOME/.cache/espalier. Creates nothing. Errors: MACHINE when none of them is set. */
enum espl_status espl_cache_locate(const char *folder, struct espl_cache *out,
                                   struct espl_error *err);

/** A name of a file inside a set or a hub repository: relative, no empty, "." or ".." part, no
 * backslash or control character, below 256 bytes. */
bool espl_cache_name_is_safe(const char *name);

enum espl_status espl_cache_blob_path(const struct espl_cache *cache, const char *sha256,
                                      char out[ESPL_PATH_MAX], struct espl_error *err);
/** Is the blob there? *size (may be NULL) gets its size. */
bool espl_cache_has_blob(const struct espl_cache *cache, const char *sha256, uint64_t *size);
/** partial/<id><suffix>; the folder is made. */
enum espl_status espl_cache_partial_path(const struct espl_cache *cache, const char *id,
                                         const char *suffix, char out[ESPL_PATH_MAX],
                                         struct espl_error *err);
/** Moves a whole, checked file into the cache under its hash, durably. */
enum espl_status espl_cache_publish_blob(const struct espl_cache *cache, const char *path,
                                         const char *sha256, struct espl_error *err);

/** Deletes temporary files that killed processes of this host left. Downloads stay. */
void espl_cache_sweep(const struct espl_cache *cache);

/** What an address held. */
struct espl_cache_record {
    char sha256[ESPL_SHA256_HEX];
    uint64_t size;
    char commit[64];  /* of the hub repository; may be empty */
    bool hub_checked; /* the hub had told the hash */
    bool absent;      /* it held nothing; the other fields are empty */
    bool present;     /* the blob is there with that size; set by reading */
};

/** key: an address, or "<sha256 of an archive>!<member>". NOTFOUND when there is no record; a
 * damaged one counts as none. */
enum espl_status espl_cache_read_record(const struct espl_cache *cache, const char *key,
                                        struct espl_cache_record *out, struct espl_error *err);
enum espl_status espl_cache_write_record(const struct espl_cache *cache, const char *key,
                                         const struct espl_cache_record *record,
                                         struct espl_error *err);

/* ---- sets ---- */

/** Publishes a set: description is the content of set.json (schema "espalier.set/1", with
 * "files": [{"name","sha256",..}]); every blob must be there. Borrowed. */
enum espl_status espl_cache_publish_set(const struct espl_cache *cache, const char *name,
                                        const json_t *description, struct espl_error *err);
/** Finds a fetched set and checks that all its files are there with their sizes. folder: where the
 * names lead to the files; *description: new reference (may be NULL). Errors: NOTFOUND with a
 * did-you-mean hint, CORRUPT. */
enum espl_status espl_cache_find_set(const struct espl_cache *cache, const char *name,
                                     char folder[ESPL_PATH_MAX], json_t **description,
                                     struct espl_error *err);
/** Takes the set's name away; its blobs stay until `gc`. NOTFOUND when there is none. */
enum espl_status espl_cache_remove_set(const struct espl_cache *cache, const char *name,
                                       struct espl_error *err);

#endif
