/* safetensors files: reader with every check the format allows, and a streaming writer.
 *
 * Format: 8-byte little-endian header length, JSON header, data. Untrusted input: the length is
 * checked against the file and 100 MB, names are unique, offsets ordered, inside, without overlap
 * or hole, dtype x shape equals the byte range. */
#ifndef ESPL_MODEL_SAFETENSORS_H
#define ESPL_MODEL_SAFETENSORS_H

#include "artifact/artifact.h"
#include "core/error.h"

#include <jansson.h>

struct espl_safetensor {
    char name[160];
    enum espl_dtype dtype;
    char foreign[16]; /* "" when dtype says it all; else the file's type that espalier does not
                         compute with ("BOOL", "F8_E4M3"): dtype is then U8 or U16 by size */
    unsigned rank;
    uint64_t shape[ESPL_MAX_RANK];
    uint64_t offset; /* in the file */
    uint64_t bytes;
    size_t file; /* index into the set's files */
};

/** All tensors of a checkpoint folder: model.safetensors, or the files of
 * model.safetensors.index.json. */
struct espl_safetensors;

/** Parses one header from memory: what the fuzz target calls. header: the JSON text that follows
 * the 8 length bytes. file_bytes: size of the whole file. *tensors: malloc'ed, sorted by name.
 * Errors: CORRUPT, UNSUPPORTED (element type, rank), NOMEM. */
enum espl_status espl_safetensors_parse_header(const void *header, size_t header_bytes,
                                               uint64_t file_bytes,
                                               struct espl_safetensor **tensors, size_t *count,
                                               struct espl_error *err);
/** Parses model.safetensors.index.json from memory: tensor name -> file name, both checked (a file
 * name is a plain name ending in .safetensors: no path leads out of the folder). *files: sorted,
 * unique, free with espl_fs_free_names(). Errors: CORRUPT, NOMEM. */
enum espl_status espl_safetensors_parse_index(const void *text, size_t len, json_t **weight_map,
                                              char ***files, size_t *file_count,
                                              struct espl_error *err);
/** Opens a folder or a single .safetensors file. Refuses pickle checkpoints by name with a hint.
 *  Every indexed file must exist, every indexed tensor must be where the index says, once.
 *  Errors: NOTFOUND, CORRUPT (also a stale index), UNSUPPORTED, IO, NOMEM. */
enum espl_status espl_safetensors_open(const char *path, struct espl_safetensors **out,
                                       struct espl_error *err);
void espl_safetensors_close(struct espl_safetensors *set);
size_t espl_safetensors_file_count(const struct espl_safetensors *set);
const char *espl_safetensors_file(const struct espl_safetensors *set, size_t index);
/** Remarks on the folder, a line each ("ignored 'consolidated.safetensors': not in the index"); ""
 * when there are none. */
const char *espl_safetensors_notes(const struct espl_safetensors *set);
size_t espl_safetensors_count(const struct espl_safetensors *set);
/** Sorted by name; consecutive in memory. */
const struct espl_safetensor *espl_safetensors_tensor(const struct espl_safetensors *set,
                                                      size_t index);
const struct espl_safetensor *espl_safetensors_find(const struct espl_safetensors *set,
                                                    const char *name);
/** Reads bytes [offset, offset + len) of a tensor's data with pread; the pages do not stay
 * resident. */
enum espl_status espl_safetensors_read(const struct espl_safetensors *set,
                                       const struct espl_safetensor *tensor, uint64_t offset,
                                       void *dst, size_t len, struct espl_error *err);

struct espl_safetensors_writer;
/** Starts a file with a known list of tensors (name, dtype, rank, shape are used) in data order.
 * The file appears under its name only at finish. metadata: JSON object of strings, NULL allowed;
 * borrowed. */
enum espl_status espl_safetensors_writer_open(const char *path,
                                              const struct espl_safetensor *tensors, size_t count,
                                              const char *metadata_json,
                                              struct espl_safetensors_writer **out,
                                              struct espl_error *err);
/** Appends data in list order, in pieces of any size. data: NULL leaves a hole of `len` bytes,
 * which reads as zeros and takes no room. */
enum espl_status espl_safetensors_writer_append(struct espl_safetensors_writer *writer,
                                                const void *data, size_t len,
                                                struct espl_error *err);
/** Checks that all data came, fsyncs, renames. *writer is NULL afterwards, also on failure. */
enum espl_status espl_safetensors_writer_finish(struct espl_safetensors_writer **writer,
                                                struct espl_error *err);
void espl_safetensors_writer_abandon(struct espl_safetensors_writer *writer);

#endif
