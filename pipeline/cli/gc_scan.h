/* What in the results folder does nothing refer to? Roots are the links of by-name/ and the last
 * run records (and those of runs that go on); from there the keys of inputs and parents are
 * followed. */
#ifndef ESPL_CLI_GC_SCAN_H
#define ESPL_CLI_GC_SCAN_H

#include "artifact/store.h"
#include "core/error.h"
#include "core/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum espl_gc_type {
    ESPL_GC_ARTIFACT, /* store/ab/<key>[.<port>].h5 with its side file */
    ESPL_GC_SIDE,     /* a side file without artifact */
    ESPL_GC_UNITS,    /* partial/<key>.units */
    ESPL_GC_PRIVATE,  /* a temporary file of a process that is gone */
    ESPL_GC_LOCK,     /* partial/<key>.lock of an owner that is gone, or a guard beside one */
    ESPL_GC_BLOB,     /* cache of fetched files: a file that no set names */
    ESPL_GC_SET,      /* there: a set that was replaced or removed */
    ESPL_GC_DOWNLOAD  /* there: a download that nobody works on */
};

/** Results of so many newest runs stay unless the user says otherwise. */
enum { ESPL_GC_KEEP_RUNS = 10 };

struct espl_gc_item {
    enum espl_gc_type type;
    char path[ESPL_PATH_MAX];
    char key[ESPL_SHA256_HEX]; /* "" for private files */
    char kind[ESPL_KIND_TEXT];
    char stage[64];
    char created_utc[32]; /* "" = unknown */
    uint64_t bytes;
};

struct espl_gc_list {
    struct espl_gc_item *items;
    size_t count;
    size_t kept_artifacts;
    uint64_t kept_bytes;
};

/** Looks through the store and changes nothing. keep_runs: how many of the newest run records keep
 *  their results. log: NULL allowed; gets a warning for each damaged record. Free with
 *  espl_gc_list_free(). */
enum espl_status espl_gc_scan(const struct espl_store *store, size_t keep_runs,
                              const struct espl_log *log, struct espl_gc_list *out,
                              struct espl_error *err);
void espl_gc_list_free(struct espl_gc_list *list);
/** Deletes one item; under its key's lock, so never what a run works on. *deleted: false when it is
 *  in use. */
enum espl_status espl_gc_delete(const struct espl_store *store, const struct espl_gc_item *item,
                                bool *deleted, struct espl_error *err);
/** Adds an item, its other fields zero; NULL when out of memory. */
struct espl_gc_item *espl_gc_list_add(struct espl_gc_list *list, enum espl_gc_type type,
                                      const char *path, struct espl_error *err);
/** Bytes of a file, or of the files in a folder (not of folders in it). */
uint64_t espl_gc_bytes_of(const char *path);
/** "artifact", "units", ... */
const char *espl_gc_type_name(enum espl_gc_type type);

#endif
