/* Writes a checkpoint as HF transformers does: config.json, model.safetensors or numbered shards
 * with an index. Streams: at most one piece of ESPL_CHECKPOINT_PIECE bytes (or one row) at a time.
 */
#ifndef ESPL_MODEL_CHECKPOINT_WRITER_H
#define ESPL_MODEL_CHECKPOINT_WRITER_H

#include "model/arch.h"

enum { ESPL_CHECKPOINT_PIECE = 8 << 20 };

/** Where the tensors come from. */
struct espl_checkpoint_source {
    const struct espl_tensor_spec *specs; /* canonical order; borrowed */
    const enum espl_dtype *dtypes;        /* of each; borrowed */
    size_t count;
    /** Rows [row, row + rows) of tensor `index` into dst, `bytes` bytes. NULL: the weights are left
     * out, as holes of the files that read as zeros and take no room. */
    enum espl_status (*read)(void *user, size_t index, uint64_t row, uint64_t rows, void *dst,
                             size_t bytes, struct espl_error *err);
    /** After each piece; bytes of tensor data. false = stop with CANCELLED. May be NULL. */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
};

/** Bytes of all tensors of the source. */
uint64_t espl_checkpoint_bytes(const struct espl_checkpoint_source *source);
/** Writes into the existing folder. shard_size: most bytes of tensor data a file (a tensor that is
 * larger gets a file of its own); 0 = one file. files: how many, may be NULL. */
enum espl_status espl_checkpoint_write(const char *folder, const struct espl_model_config *config,
                                       const struct espl_checkpoint_source *source,
                                       uint64_t shard_size, size_t *files, struct espl_error *err);
/** Writes a JSON value as readable text ending in a newline. Takes the reference. */
enum espl_status espl_checkpoint_write_json(const char *folder, const char *name, json_t *value,
                                            struct espl_error *err);

#endif
