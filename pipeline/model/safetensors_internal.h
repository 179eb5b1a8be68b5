/* What the files of the safetensors module share. */
#ifndef ESPL_MODEL_SAFETENSORS_INTERNAL_H
#define ESPL_MODEL_SAFETENSORS_INTERNAL_H

#include "core/buf.h"
#include "model/safetensors.h"

enum {
    ESPL_SAFETENSORS_LENGTH_BYTES = 8,
    ESPL_SAFETENSORS_MAX_HEADER = 100000000, /* the reference implementation's limit */
    ESPL_SAFETENSORS_MAX_FILES = 2000
};

#define ESPL_SAFETENSORS_FILE  "model.safetensors"
#define ESPL_SAFETENSORS_INDEX "model.safetensors.index.json"

/** The format's name of an element type ("BF16"); NULL for one it does not have. */
const char *espl_safetensors_dtype_name(enum espl_dtype dtype);

/** A file of a set. */
struct espl_safetensors_file {
    char *path;
    int fd; /* -1 until loaded */
};

struct espl_safetensors {
    struct espl_safetensors_file *files;
    size_t file_count;
    struct espl_safetensor *tensors; /* sorted by name */
    size_t count;
    struct espl_buf notes;
};

/** The part of a path after the last '/'. */
const char *espl_safetensors_base_name(const char *path);
bool espl_safetensors_has_ending(const char *name, const char *ending);
/** Does the name look like a pickle file (pytorch_model.bin, *.pt ...)? */
bool espl_safetensors_is_pickle(const char *name);
enum espl_status espl_safetensors_refuse_pickle(const char *name, struct espl_error *err);
/** Sets the file list; folder NULL = names are paths. */
enum espl_status espl_safetensors_set_files(struct espl_safetensors *set, const char *folder,
                                            char *const *names, size_t count,
                                            struct espl_error *err);
/** Opens all files of the set, reads their headers and sorts the tensors; a name that is there
 * twice is an error. */
enum espl_status espl_safetensors_load_files(struct espl_safetensors *set, struct espl_error *err);
/** Fills an empty set from a folder. */
enum espl_status espl_safetensors_open_folder(struct espl_safetensors *set, const char *folder,
                                              struct espl_error *err);

#endif
