#include "model/checkpoint_writer.h"

#include "core/fs.h"
#include "model/safetensors_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The files of a checkpoint being written, and the place in it. */
struct job {
    const char *folder;
    const struct espl_checkpoint_source *source;
    size_t *shard; /* of each tensor */
    size_t shards;
    void *piece;
    size_t piece_bytes;
    uint64_t done, total;
};

static uint64_t tensor_bytes(const struct espl_checkpoint_source *source, size_t index)
{
    return source->specs[index].shape[0] * source->specs[index].shape[1] *
           espl_dtype_size(source->dtypes[index]);
}

uint64_t espl_checkpoint_bytes(const struct espl_checkpoint_source *source)
{
    uint64_t total = 0;
    for (size_t i = 0; i < source->count; i++) {
        total += tensor_bytes(source, i);
    }
    return total;
}

/* In canonical order, a new file whenever the next tensor would not fit. */
static void assign_shards(struct job *job, uint64_t shard_size)
{
    uint64_t filled = 0;
    size_t shard = 0;
    for (size_t i = 0; i < job->source->count; i++) {
        const uint64_t bytes = tensor_bytes(job->source, i);
        if (shard_size != 0 && filled != 0 && filled + bytes > shard_size) {
            shard++;
            filled = 0;
        }
        filled += bytes;
        job->shard[i] = shard;
    }
    job->shards = shard + 1;
}

static void shard_name(const struct job *job, size_t shard, char out[64])
{
    if (job->shards == 1) {
        (void)snprintf(out, 64, "%s", ESPL_SAFETENSORS_FILE);
    } else {
        (void)snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", shard + 1, job->shards);
    }
}

/* Tensors of one file: wide elements first, so that every tensor is aligned to its elements (a
 * safetensors file has no gaps). *order: indices into the source. */
static size_t order_shard(const struct job *job, size_t shard, size_t *order)
{
    static const size_t sizes[] = {8, 4, 2, 1};
    size_t count = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (size_t i = 0; i < job->source->count; i++) {
            if (job->shard[i] == shard && espl_dtype_size(job->source->dtypes[i]) == sizes[s]) {
                order[count++] = i;
            }
        }
    }
    return count;
}

static enum espl_status write_tensor(struct job *job, size_t index,
                                     struct espl_safetensors_writer *writer, struct espl_error *err)
{
    const struct espl_tensor_spec *spec = &job->source->specs[index];
    const size_t width = (size_t)spec->shape[1] * espl_dtype_size(job->source->dtypes[index]);
    const uint64_t step = job->piece_bytes / width;
    enum espl_status status = ESPL_OK;

    for (uint64_t row = 0; status == ESPL_OK && row < spec->shape[0]; row += step) {
        const uint64_t left = spec->shape[0] - row;
        const uint64_t rows = left < step ? left : step;
        const size_t bytes = (size_t)rows * width;
        const bool sparse = job->source->read == NULL;
        if (!sparse) {
            status = job->source->read(job->source->user, index, row, rows, job->piece, bytes, err);
        }
        if (status == ESPL_OK) {
            status = espl_safetensors_writer_append(writer, sparse ? NULL : job->piece, bytes, err);
        }
        job->done += bytes;
        if (status == ESPL_OK && job->source->progress != NULL &&
            !job->source->progress(job->source->user, job->done, job->total)) {
            status = espl_fail(err, ESPL_E_CANCELLED, "stopped while writing '%s'", spec->name);
        }
    }
    return status;
}

static enum espl_status write_shard(struct job *job, size_t shard, size_t *order,
                                    struct espl_safetensor *tensors, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char name[64];
    struct espl_safetensors_writer *writer = NULL;
    const size_t count = order_shard(job, shard, order);

    for (size_t i = 0; i < count; i++) {
        const struct espl_tensor_spec *spec = &job->source->specs[order[i]];
        memset(&tensors[i], 0, sizeof tensors[i]);
        (void)snprintf(tensors[i].name, sizeof tensors[i].name, "%s", spec->name);
        tensors[i].dtype = job->source->dtypes[order[i]];
        tensors[i].rank = spec->file_rank;
        memcpy(tensors[i].shape, spec->file_shape, sizeof spec->file_shape);
    }
    shard_name(job, shard, name);
    enum espl_status status = espl_fs_join(path, job->folder, name, err);
    if (status == ESPL_OK) {
        status =
            espl_safetensors_writer_open(path, tensors, count, "{\"format\":\"pt\"}", &writer, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = write_tensor(job, order[i], writer, err);
    }
    if (status == ESPL_OK) {
        return espl_safetensors_writer_finish(&writer, err);
    }
    espl_safetensors_writer_abandon(writer);
    return status;
}

enum espl_status espl_checkpoint_write_json(const char *folder, const char *name, json_t *value,
                                            struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char *text = json_dumps(value, JSON_INDENT(2) | JSON_SORT_KEYS);
    enum espl_status status = ESPL_OK;

    json_decref(value);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for '%s'", name);
    }
    const size_t len = strlen(text);
    text[len] = '\n'; /* in place of the NUL: the length goes with it */
    status = espl_fs_join(path, folder, name, err);
    if (status == ESPL_OK) {
        status = espl_fs_write_file(path, text, len + 1, err);
    }
    free(text);
    return status;
}

static enum espl_status write_index(const struct job *job, struct espl_error *err)
{
    json_t *index = json_object();
    json_t *metadata = json_object();
    json_t *map = json_object();
    char name[64];

    (void)json_object_set_new(metadata, "total_size", json_integer((json_int_t)job->total));
    for (size_t i = 0; i < job->source->count; i++) {
        shard_name(job, job->shard[i], name);
        (void)json_object_set_new(map, job->source->specs[i].name, json_string(name));
    }
    (void)json_object_set_new(index, "metadata", metadata);
    (void)json_object_set_new(index, "weight_map", map);
    return espl_checkpoint_write_json(job->folder, ESPL_SAFETENSORS_INDEX, index, err);
}

/* A piece holds at least one row of the widest tensor. */
static size_t piece_size(const struct espl_checkpoint_source *source)
{
    size_t bytes = ESPL_CHECKPOINT_PIECE;
    for (size_t i = 0; i < source->count; i++) {
        const size_t width = (size_t)source->specs[i].shape[1] * espl_dtype_size(source->dtypes[i]);
        bytes = width > bytes ? width : bytes;
    }
    return bytes;
}

enum espl_status espl_checkpoint_write(const char *folder, const struct espl_model_config *config,
                                       const struct espl_checkpoint_source *source,
                                       uint64_t shard_size, size_t *files, struct espl_error *err)
{
    struct job job = {.folder = folder, .source = source};
    size_t *order = calloc(source->count, sizeof *order);
    struct espl_safetensor *tensors = calloc(source->count, sizeof *tensors);
    enum espl_status status = ESPL_OK;

    job.shard = calloc(source->count, sizeof *job.shard);
    job.piece_bytes = piece_size(source);
    job.piece = malloc(job.piece_bytes);
    job.total = espl_checkpoint_bytes(source);
    if (order == NULL || tensors == NULL || job.shard == NULL || job.piece == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a checkpoint writer");
        goto cleanup;
    }
    assign_shards(&job, shard_size);
    for (size_t i = 0; status == ESPL_OK && i < job.shards; i++) {
        status = write_shard(&job, i, order, tensors, err);
    }
    if (status == ESPL_OK && job.shards > 1) {
        status = write_index(&job, err);
    }
    if (status == ESPL_OK) {
        status =
            espl_checkpoint_write_json(folder, "config.json", espl_model_config_to_hf(config), err);
    }
    if (status == ESPL_OK && files != NULL) {
        *files = job.shards;
    }

cleanup:
    free(job.piece);
    free(job.shard);
    free(tensors);
    free(order);
    return status;
}
