/* One artifact = one immutable, self-describing HDF5 file.
 *
 * Calling sequence (writer): create at a private path -> set description and provenance -> create
 * or write datasets -> espl_artifact_finish() (content hash, completeness mark, close, fsync) ->
 * espl_store_publish(). Anything else leaves a file that no reader accepts.
 * Calling sequence (reader): open -> read -> close.
 *
 * Layout: docs/formats/artifact.md. Files hold nothing that differs between two runs of the same
 * recipe (no times, hosts, run ids: those live in the store's side file), so equal content is equal
 * bytes. Artifacts are trusted and local: libhdf5 does not survive hostile files, so what comes
 * from elsewhere is checked against its recorded hash before it is opened. Threads: call from the
 * main thread of a process only. */
#ifndef ESPL_ARTIFACT_ARTIFACT_H
#define ESPL_ARTIFACT_ARTIFACT_H

#include "core/error.h"
#include "core/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Element types. Names as espl_dtype_name() gives them; stored in files, so never renumber. */
enum espl_dtype {
    ESPL_DTYPE_U8 = 0,
    ESPL_DTYPE_I8 = 1,
    ESPL_DTYPE_U16 = 2,
    ESPL_DTYPE_I32 = 3,
    ESPL_DTYPE_U32 = 4,
    ESPL_DTYPE_I64 = 5,
    ESPL_DTYPE_U64 = 6,
    ESPL_DTYPE_F16 = 7, /* IEEE half, as 16-bit words in memory */
    ESPL_DTYPE_BF16 =
        8, /* bfloat16, as 16-bit words in memory and uint16 + attribute in the file */
    ESPL_DTYPE_F32 = 9,
    ESPL_DTYPE_F64 = 10
};

enum { ESPL_MAX_RANK = 4, ESPL_TENSOR_PATH = 256, ESPL_KIND_TEXT = 48 };

/** Bytes of one element. */
size_t espl_dtype_size(enum espl_dtype dtype);
/** "u8", "i8", ..., "f16", "bf16", "f32", "f64". Never NULL. */
const char *espl_dtype_name(enum espl_dtype dtype);
bool espl_dtype_parse(const char *name, enum espl_dtype *out);

/** A dataset. `packing` is "" for plain elements; otherwise a word that says how elements are
 * packed
 *  ("bitmask-lsb0": 1 bit an element, rows padded to whole bytes, bit 0 of a byte first) and
 *  logical_shape then holds the unpacked shape. */
struct espl_tensor_info {
    char path[ESPL_TENSOR_PATH]; /* "/layers/003/self_attn.q_proj/weight" */
    enum espl_dtype dtype;
    unsigned rank;
    uint64_t shape[ESPL_MAX_RANK];
    char packing[32];
    uint64_t logical_shape[ESPL_MAX_RANK]; /* equal to shape when packing is "" */
    uint64_t bytes;                        /* shape product times element size */
    char sha256[ESPL_SHA256_HEX]; /* of the little-endian element bytes; "" while writing */
    bool external;                /* raw data live in a file outside */
};

struct espl_artifact;

/* ---- writing ---- */

/** Creates a private, unfinished artifact at `path` (replacing a leftover). kind: "model.dense/1";
 *  of alternatives, separated by '|', the first, until espl_artifact_set_kind(). Errors: IO,
 * NOSPACE, INTERNAL for a kind that is not in the kinds table. */
enum espl_status espl_artifact_create(const char *path, const char *kind,
                                      struct espl_artifact **out, struct espl_error *err);
/** Which of its alternatives an unfinished artifact is. Errors: INTERNAL for a kind that is not in
 *  the kinds table. */
enum espl_status espl_artifact_set_kind(struct espl_artifact *artifact, const char *kind,
                                        struct espl_error *err);
/** JSON text of an object: what a reader, `plan` and `inspect` need to know without reading tensors
 *  (for a model: architecture and sizes). Enters the content hash. Call at most once. */
enum espl_status espl_artifact_set_description(struct espl_artifact *artifact,
                                               const char *json_text, struct espl_error *err);
/** Root attribute outside the content hash (key, stage, seed, ...). Names in
 * docs/formats/artifact.md. */
enum espl_status espl_artifact_set_attribute(struct espl_artifact *artifact, const char *name,
                                             const char *value, struct espl_error *err);
/** Text dataset /provenance/<name>, outside the content hash. */
enum espl_status espl_artifact_set_provenance(struct espl_artifact *artifact, const char *name,
                                              const char *text, struct espl_error *err);
/** Fills an info for a plain tensor. path is cut to fit; rank <= ESPL_MAX_RANK. */
struct espl_tensor_info espl_tensor_info_make(const char *path, enum espl_dtype dtype,
                                              unsigned rank, const uint64_t *shape);
/** Creates and writes a whole dataset. data: info->bytes bytes, borrowed. */
enum espl_status espl_artifact_write(struct espl_artifact *artifact,
                                     const struct espl_tensor_info *info, const void *data,
                                     struct espl_error *err);
/** Creates a dataset that is then filled by espl_artifact_append_rows() in row order, so that
 * nothing larger than one piece is in memory. Several datasets may be open for appending at once.
 */
enum espl_status espl_artifact_create_rows(struct espl_artifact *artifact,
                                           const struct espl_tensor_info *info,
                                           struct espl_error *err);
/** Appends `rows` rows (first dimension) to the dataset at `path`. */
enum espl_status espl_artifact_append_rows(struct espl_artifact *artifact, const char *path,
                                           uint64_t rows, const void *data, struct espl_error *err);
/** Dataset whose raw data are `info->bytes` bytes at `offset` of `file` (absolute path).
 *  sha256: of these bytes, computed by the caller. Reading them later fails with CORRUPT when the
 *  size or the time stamp of the file is no longer what it is now; verifying reads them anyway. */
enum espl_status espl_artifact_write_external(struct espl_artifact *artifact,
                                              const struct espl_tensor_info *info, const char *file,
                                              uint64_t offset, const char *sha256,
                                              struct espl_error *err);
/** Copies every dataset outside /provenance of `source` into `artifact` (resume units). */
enum espl_status espl_artifact_copy_datasets(struct espl_artifact *artifact,
                                             struct espl_artifact *source, struct espl_error *err);
/** Checks that all rows were written and the kind's required datasets exist, stores the content
 * hash and the completeness mark, closes and fsyncs. *artifact is NULL afterwards, also on failure.
 *  content_sha256: may be NULL. */
enum espl_status espl_artifact_finish(struct espl_artifact **artifact,
                                      char content_sha256[ESPL_SHA256_HEX], struct espl_error *err);
/** Closes and deletes an unfinished artifact. NULL allowed. */
void espl_artifact_abandon(struct espl_artifact *artifact);

/* ---- reading ---- */

/** Opens read-only and checks format version, kind version and completeness mark.
 *  Errors: NOTFOUND, CORRUPT (truncated, incomplete), VERSION (newer format), KIND (not an
 * artifact). */
enum espl_status espl_artifact_open(const char *path, struct espl_artifact **out,
                                    struct espl_error *err);
/** NULL allowed; only for artifacts opened for reading. */
void espl_artifact_close(struct espl_artifact *artifact);

const char *espl_artifact_path(const struct espl_artifact *artifact);
const char *espl_artifact_kind(const struct espl_artifact *artifact);
const char *espl_artifact_content_sha256(const struct espl_artifact *artifact);
/** "" when there is no such attribute. Borrowed until close. */
const char *espl_artifact_attribute(const struct espl_artifact *artifact, const char *name);
/** The description JSON text ("{}" when none was set). Borrowed until close. */
const char *espl_artifact_description(const struct espl_artifact *artifact);
/** *text: malloc'ed, owned by the caller. NOTFOUND when absent. */
enum espl_status espl_artifact_provenance(struct espl_artifact *artifact, const char *name,
                                          char **text, struct espl_error *err);
/** All datasets outside /provenance and /description, sorted by path. Borrowed until close. */
size_t espl_artifact_tensor_count(const struct espl_artifact *artifact);
const struct espl_tensor_info *espl_artifact_tensor(const struct espl_artifact *artifact,
                                                    size_t index);
/** NULL when absent. */
const struct espl_tensor_info *espl_artifact_find(const struct espl_artifact *artifact,
                                                  const char *path);
/** Reads rows [row, row + rows) of the first dimension (a rank-0 tensor has one row) into data,
 * which holds data_bytes bytes; fails with CORRUPT when that is not exactly what the rows need. */
enum espl_status espl_artifact_read_rows(struct espl_artifact *artifact, const char *path,
                                         uint64_t row, uint64_t rows, void *data, size_t data_bytes,
                                         struct espl_error *err);
/** Whole tensor into a malloc'ed block owned by the caller; at most `limit` bytes. */
enum espl_status espl_artifact_read(struct espl_artifact *artifact, const char *path, size_t limit,
                                    void **data, size_t *data_bytes, struct espl_error *err);
/** Reads every dataset and compares with the recorded hashes. *ok and, when not, the first bad
 * path. This is `inspect --verify`. */
enum espl_status espl_artifact_verify(struct espl_artifact *artifact, bool *ok,
                                      char bad_path[ESPL_TENSOR_PATH], struct espl_error *err);

/** Call once at program start, before any other HDF5 call: no plug-in loading, no file locks of
 * HDF5's own, no error printing. */
void espl_artifact_library_init(void);

#endif
