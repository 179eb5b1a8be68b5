/* Brings the tensors of a checkpoint into an artifact: copied, converted or by reference. Streams
 * in pieces of a few MiB, so memory does not depend on the size of the model. */
#ifndef ESPL_STAGES_IMPORT_TRANSFER_H
#define ESPL_STAGES_IMPORT_TRANSFER_H

#include "artifact/artifact.h"
#include "core/log.h"
#include "stages/import/import_checkpoint.h"

enum espl_import_dtype {
    ESPL_IMPORT_DTYPE_KEEP,
    ESPL_IMPORT_DTYPE_F16,
    ESPL_IMPORT_DTYPE_BF16,
    ESPL_IMPORT_DTYPE_F32
};

enum espl_import_storage {
    ESPL_IMPORT_STORAGE_AUTO, /* copy below ESPL_IMPORT_COPY_BELOW bytes, or when converting */
    ESPL_IMPORT_STORAGE_COPY,
    ESPL_IMPORT_STORAGE_REFERENCE
};

#define ESPL_IMPORT_COPY_BELOW ((uint64_t)1 << 30)

/** What the transfer will do, decided from headers alone. */
struct espl_import_choice {
    enum espl_import_dtype dtype;
    bool reference;
    uint64_t tensor_bytes; /* in the target type */
    uint64_t output_bytes; /* of the artifact: small for a reference */
};

/** Sets the configuration's dtype and decides the storage. KIND (blamed on param:storage) when a
 * reference is asked for tensors that need a conversion. */
enum espl_status espl_import_choose(struct espl_import_checkpoint *checkpoint,
                                    enum espl_import_dtype dtype, enum espl_import_storage storage,
                                    struct espl_import_choice *choice, struct espl_error *err);

/** How the transfer talks to its caller. All may be NULL but user. */
struct espl_import_hooks {
    void *user;
    void (*progress)(void *user, uint64_t done, uint64_t total); /* bytes */
    bool (*cancelled)(void *user);
    const struct espl_log *log;
};

/** Writes all tensors and the description. Odd values (NaN, infinity) are logged with the tensor's
 * name. Errors: NUMERIC (a value does not fit the target type), KIND (an lm_head that differs from
 * the embeddings it is tied to), CANCELLED, IO, NOSPACE, CORRUPT. */
enum espl_status espl_import_transfer(const struct espl_import_checkpoint *checkpoint,
                                      const struct espl_import_choice *choice,
                                      struct espl_artifact *output,
                                      const struct espl_import_hooks *hooks,
                                      struct espl_error *err);

/** Can the files that a model by reference refers to still be read? (They may have been moved: the
 * path is not part of the key.) stale: the reason when not. Always valid for a copy. */
enum espl_status espl_import_still_valid(struct espl_artifact *artifact, bool *valid,
                                         char stale[160], struct espl_error *err);

#endif
