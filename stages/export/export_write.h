/* Writes a model as a checkpoint folder that HF transformers loads, masks applied, with the masks
 * themselves in a file beside. */
#ifndef ESPL_STAGES_EXPORT_WRITE_H
#define ESPL_STAGES_EXPORT_WRITE_H

#include "core/log.h"
#include "model/model.h"

#define ESPL_EXPORT_MASKS "espalier-masks.safetensors"

struct espl_export_options {
    const char *folder;
    uint64_t shard_size;          /* bytes of tensor data a file, 0 = one file */
    bool masks;                   /* write ESPL_EXPORT_MASKS when the model has masks */
    const char *const *tokenizer; /* files to copy, full paths; may be NULL when count is 0 */
    size_t tokenizer_count;
    const char *content_sha256; /* of the model, for the manifest */
};

/** How the export talks to its caller. All functions may be NULL. */
struct espl_export_hooks {
    void *user;
    void (*progress)(void *user, uint64_t done, uint64_t total); /* bytes */
    bool (*cancelled)(void *user);
};

/** Writes the folder: it appears whole, and replaces an older export in one step.
 *  *manifest: new reference. Errors: KIND (the folder is somebody's own), IO, NOSPACE, CANCELLED.
 */
enum espl_status espl_export_write(struct espl_model *model,
                                   const struct espl_export_options *options,
                                   const struct espl_export_hooks *hooks, json_t **manifest,
                                   struct espl_error *err);

enum { ESPL_EXPORT_TOKENIZER_FILES = 9 };
/** Paths of the tokenizer files in `path` (a folder, or a file of it) that are there. The texts are
 * malloc'ed. NOTFOUND (blamed on param:tokenizer) when none of them is a tokenizer. */
enum espl_status espl_export_find_tokenizer(const char *path,
                                            char *files[ESPL_EXPORT_TOKENIZER_FILES], size_t *count,
                                            struct espl_error *err);

#endif
