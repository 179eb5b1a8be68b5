/* What the writer, the reader and their shared parts know about an artifact. */
#ifndef ESPL_ARTIFACT_INTERNAL_H
#define ESPL_ARTIFACT_INTERNAL_H

#include "artifact/artifact.h"
#include "artifact/h5.h"

#include <sys/stat.h>

enum {
    ESPL_ARTIFACT_FORMAT_VERSION = 1,
    ESPL_ARTIFACT_MAX_TENSORS = 1 << 20, /* most datasets of a file */
    ESPL_ARTIFACT_MAX_ATTRIBUTES = 256
};

#define ESPL_ARTIFACT_FORMAT "espl-artifact"

/** What the file system said about a file outside when its data were hashed. */
struct espl_artifact_file_state {
    uint64_t bytes;
    uint64_t mtime_ns;
};

/** One dataset. Writer: `dataset` and `hash` live until its last row; reader: both unused. */
struct espl_artifact_entry {
    struct espl_tensor_info info;
    hid_t dataset;
    struct espl_sha256 *hash;
    uint64_t rows;      /* rows in all */
    uint64_t row_bytes; /* bytes of a row */
    uint64_t rows_done;
    bool complete;
    char *external_file; /* malloc'ed; NULL for data inside */
    uint64_t offset;     /* reader, or external: where the data start */
    struct espl_artifact_file_state external_state;
};

/** A root attribute or provenance text. */
struct espl_artifact_text {
    char *name;
    char *value;
};

struct espl_artifact_texts {
    struct espl_artifact_text *items;
    size_t count;
    size_t capacity;
};

struct espl_artifact {
    char *path;
    bool writing;
    bool failed; /* writer: an earlier call failed, finishing is refused */
    char kind[ESPL_KIND_TEXT];
    char content_sha256[ESPL_SHA256_HEX];
    struct espl_h5_stream stream;
    hid_t file;
    uint64_t file_bytes; /* reader */
    char *description;   /* NULL = not set */
    struct espl_artifact_texts attributes;
    struct espl_artifact_texts provenance; /* writer only */
    struct espl_artifact_entry *entries;
    size_t entry_count;
    size_t entry_capacity;
};

/** Empty artifact with a copy of path; NULL when out of memory. */
struct espl_artifact *espl_artifact_new(const char *path);
/** Closes what is open and frees everything. Files stay. NULL allowed. */
void espl_artifact_free(struct espl_artifact *artifact);

/** malloc'ed copy; NULL when out of memory. */
char *espl_artifact_copy_text(const char *text);
/** Sets name to a copy of value, replacing an earlier one; false when out of memory. */
bool espl_artifact_texts_set(struct espl_artifact_texts *texts, const char *name,
                             const char *value);
/** NULL when absent. */
const char *espl_artifact_texts_get(const struct espl_artifact_texts *texts, const char *name);
/** Sorts by name: files do not depend on the order of calls. */
void espl_artifact_texts_sort(struct espl_artifact_texts *texts);
/** Frees the texts; the structure is empty afterwards. */
void espl_artifact_texts_free(struct espl_artifact_texts *texts);

/** Appends a zeroed entry and returns it; NULL when out of memory. Moves earlier entries. */
struct espl_artifact_entry *espl_artifact_add_entry(struct espl_artifact *artifact);
/** Frees what an entry owns. */
void espl_artifact_clear_entry(struct espl_artifact_entry *entry);
/** Sorts entries by path. */
void espl_artifact_sort_entries(struct espl_artifact *artifact);

/** Entry of a path, the newest first (appends nearly always go to a dataset made lately); NULL when
 * absent. */
struct espl_artifact_entry *espl_artifact_find_entry(const struct espl_artifact *artifact,
                                                     const char *path);

struct espl_artifact_file_state espl_artifact_file_state(const struct stat *info);
/** espl_artifact_write_external() with checked arguments. state: of the file when `sha256` was
 * computed. */
enum espl_status espl_artifact_refer(struct espl_artifact *artifact,
                                     const struct espl_tensor_info *info, const char *file,
                                     uint64_t offset, const char *sha256,
                                     const struct espl_artifact_file_state *state,
                                     struct espl_error *err);

/** Checks path, rank, sizes, packing; fills rows and row_bytes of the entry from its info.
 *  code: what to return for a bad one (INTERNAL when a caller made it, CORRUPT when a file did). */
enum espl_status espl_artifact_check_info(struct espl_artifact_entry *entry, enum espl_status code,
                                          struct espl_error *err);
/** Content hash of sorted entries, as docs/formats/artifact.md defines it. */
enum espl_status espl_artifact_hash_content(const struct espl_artifact *artifact,
                                            char hex[ESPL_SHA256_HEX], struct espl_error *err);

/* ---- writer ---- */

/** Remembers that the artifact cannot be finished any more; returns status. */
enum espl_status espl_artifact_mark_failed(struct espl_artifact *artifact, enum espl_status status);
/** Did a write below HDF5 fail? (HDF5 itself does not learn of it, see h5.h.) */
bool espl_artifact_write_failed(const struct espl_artifact *artifact);
/** Failure of an HDF5 call, or of a write below it, while making `what`: NOSPACE or IO. */
enum espl_status espl_artifact_fail_write(struct espl_artifact *artifact, const char *what,
                                          struct espl_error *err);
/** INTERNAL for calls that come too late or on an artifact opened for reading. */
enum espl_status espl_artifact_check_writable(const struct espl_artifact *artifact,
                                              const char *what, struct espl_error *err);
/** Creates the groups above path. */
herr_t espl_artifact_create_parents(hid_t file, const char *path);

#endif
