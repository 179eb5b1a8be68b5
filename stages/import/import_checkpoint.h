/* A checkpoint folder understood: its configuration, and which stored tensor is which tensor of the
 * model. Reads config.json and the headers of the files, no tensor data. */
#ifndef ESPL_STAGES_IMPORT_CHECKPOINT_H
#define ESPL_STAGES_IMPORT_CHECKPOINT_H

#include "core/buf.h"
#include "core/fs.h"
#include "model/arch.h"
#include "model/safetensors.h"

struct espl_import_checkpoint {
    struct espl_model_config config; /* dtype: of the stored embedding */
    char config_path[ESPL_PATH_MAX];
    struct espl_safetensors *files;
    /* Canonical order. Names are those of the naming scheme that the files follow, and file_shape
     * that of one part where a tensor is stored as several. */
    struct espl_tensor_spec *specs;
    size_t count;
    const struct espl_safetensor **sources; /* first part of each spec; borrowed from files */
    /* Parts 1 and 2 of each spec (query, key, value in files of their own); NULL = not in parts. */
    const struct espl_safetensor *(*parts)[ESPL_ARCH_MAX_PARTS - 1];
    /* An lm_head that is stored although the embeddings are tied: must equal them. NULL = none. */
    const struct espl_safetensor *spare_head;
    struct espl_buf notes; /* remarks for the user, a line each */
};

/** path: folder with config.json and safetensors files. arch: name of an architecture, or NULL to
 * take model_type. Errors carry hints: NOTFOUND (what the parent folder holds), KIND (tensors that
 * do not fit config.json, all of them, with the likely cause), UNSUPPORTED, CORRUPT, IO. */
enum espl_status espl_import_checkpoint_open(const char *path, const char *arch,
                                             struct espl_import_checkpoint **out,
                                             struct espl_error *err);
/** Part `part` of a tensor, or NULL; part 0 is its source. */
static inline const struct espl_safetensor *
espl_import_part(const struct espl_import_checkpoint *checkpoint, size_t index, size_t part)
{
    return part == 0 ? checkpoint->sources[index] : checkpoint->parts[index][part - 1];
}
/** How many parts a tensor is stored as: 1 or more. */
size_t espl_import_part_count(const struct espl_import_checkpoint *checkpoint, size_t index);
void espl_import_checkpoint_close(struct espl_import_checkpoint *checkpoint);

#endif
