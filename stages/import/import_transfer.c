#include "stages/import/import_transfer.h"

#include "core/hash.h"
#include "model/element.h"
#include "model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PIECE_ELEMENTS = 1 << 20, /* at most 4 MiB in any type; a longer row is a piece of its own */
    NAMED_ODD = 8             /* tensors with odd values that are named in the log */
};

struct transfer {
    const struct espl_import_checkpoint *checkpoint;
    const struct espl_import_choice *choice;
    struct espl_artifact *output;
    const struct espl_import_hooks *hooks;
    size_t piece_elements;
    void *stored;  /* a piece as it is in the file */
    void *target;  /* in the target type */
    float *single; /* on the way between two 16-bit types */
    uint64_t done;
    size_t odd_tensors;
};

static enum espl_dtype target_dtype(enum espl_import_dtype wish, enum espl_dtype stored)
{
    switch (wish) {
    case ESPL_IMPORT_DTYPE_F16:
        return ESPL_DTYPE_F16;
    case ESPL_IMPORT_DTYPE_BF16:
        return ESPL_DTYPE_BF16;
    case ESPL_IMPORT_DTYPE_F32:
        return ESPL_DTYPE_F32;
    case ESPL_IMPORT_DTYPE_KEEP:
        break;
    }
    return stored;
}

enum espl_status espl_import_choose(struct espl_import_checkpoint *checkpoint,
                                    enum espl_import_dtype dtype, enum espl_import_storage storage,
                                    struct espl_import_choice *choice, struct espl_error *err)
{
    const char *converted = NULL;
    uint64_t bytes = 0;
    for (size_t i = 0; i < checkpoint->count; i++) {
        const enum espl_dtype stored = checkpoint->sources[i]->dtype;
        const enum espl_dtype target = target_dtype(dtype, stored);
        const size_t parts = espl_import_part_count(checkpoint, i);
        converted = (target != stored || parts > 1) && converted == NULL ? checkpoint->specs[i].name
                                                                         : converted;
        bytes += parts * (checkpoint->sources[i]->bytes / espl_dtype_size(stored)) *
                 espl_dtype_size(target);
        if (checkpoint->specs[i].role == ESPL_ROLE_EMBEDDING && !checkpoint->specs[i].is_bias) {
            (void)snprintf(checkpoint->config.dtype, sizeof checkpoint->config.dtype, "%s",
                           espl_dtype_name(target));
        }
    }
    if (storage == ESPL_IMPORT_STORAGE_REFERENCE && converted != NULL) {
        (void)espl_fail(err, ESPL_E_KIND,
                        "tensor '%s' must be converted or joined, which a reference to its file "
                        "cannot do",
                        converted);
        (void)espl_blame(err, "param:storage");
        return espl_hint(err, "use storage: copy, or dtype: keep");
    }
    choice->dtype = dtype;
    choice->tensor_bytes = bytes;
    choice->reference = storage == ESPL_IMPORT_STORAGE_REFERENCE ||
                        (storage == ESPL_IMPORT_STORAGE_AUTO && converted == NULL &&
                         bytes >= ESPL_IMPORT_COPY_BELOW);
    /* A dataset's header, attributes and rounding to blocks take a few KiB. */
    choice->output_bytes = (choice->reference ? 0 : bytes) + checkpoint->count * 4096u + 65536u;
    return ESPL_OK;
}

static bool cancelled(const struct transfer *transfer)
{
    return transfer->hooks->cancelled != NULL && transfer->hooks->cancelled(transfer->hooks->user);
}

static void advance(struct transfer *transfer, uint64_t bytes)
{
    transfer->done += bytes;
    if (transfer->hooks->progress != NULL) {
        transfer->hooks->progress(transfer->hooks->user, transfer->done,
                                  transfer->choice->tensor_bytes);
    }
}

static void report_odd(struct transfer *transfer, const char *name, uint64_t nan, uint64_t infinite)
{
    if (nan + infinite == 0) {
        return;
    }
    if (transfer->odd_tensors++ < NAMED_ODD) {
        espl_log(transfer->hooks->log, ESPL_LOG_WARN,
                 "tensor '%s' holds %" PRIu64 " NaN and %" PRIu64 " infinite values", name, nan,
                 infinite);
    }
}

/* One tensor piece by piece. visit sees the piece (elements of the stored type). */
typedef enum espl_status (*piece_fn)(struct transfer *transfer, size_t index, uint64_t rows,
                                     size_t elements, void *state, struct espl_error *err);

static enum espl_status for_pieces(struct transfer *transfer, size_t index, piece_fn visit,
                                   void *state, struct espl_error *err)
{
    const struct espl_tensor_spec *spec = &transfer->checkpoint->specs[index];
    const struct espl_safetensor *source = transfer->checkpoint->sources[index];
    const size_t cols = (size_t)spec->shape[1];
    const size_t size = espl_dtype_size(source->dtype);
    const uint64_t step = transfer->piece_elements / cols;
    const uint64_t part_rows = spec->shape[0] / espl_import_part_count(transfer->checkpoint, index);
    uint64_t nan = 0;
    uint64_t infinite = 0;
    enum espl_status status = ESPL_OK;

    for (uint64_t row = 0; status == ESPL_OK && row < spec->shape[0];) {
        const struct espl_safetensor *part =
            espl_import_part(transfer->checkpoint, index, (size_t)(row / part_rows));
        const uint64_t left = part_rows - row % part_rows;
        const uint64_t rows = left < step ? left : step;
        const size_t elements = (size_t)rows * cols;
        if (cancelled(transfer)) {
            return espl_fail(err, ESPL_E_CANCELLED, "stopped at tensor '%s'", spec->name);
        }
        status =
            espl_safetensors_read(transfer->checkpoint->files, part, row % part_rows * cols * size,
                                  transfer->stored, elements * size, err);
        if (status == ESPL_OK) {
            espl_element_count_odd(source->dtype, transfer->stored, elements, &nan, &infinite);
            status = visit(transfer, index, rows, elements, state, err);
        }
        advance(transfer,
                elements * espl_dtype_size(target_dtype(transfer->choice->dtype, source->dtype)));
        row += rows;
    }
    report_odd(transfer, spec->name, nan, infinite);
    return status;
}

/* ---- copy ---- */

static enum espl_status copy_piece(struct transfer *transfer, size_t index, uint64_t rows,
                                   size_t elements, void *state, struct espl_error *err)
{
    struct espl_element_loss *loss = state;
    const enum espl_dtype stored = transfer->checkpoint->sources[index]->dtype;
    const enum espl_dtype target = target_dtype(transfer->choice->dtype, stored);
    const char *path = transfer->checkpoint->specs[index].path;
    const void *data = transfer->stored;

    if (target != stored) {
        espl_element_to_f32(stored, transfer->stored, elements, transfer->single);
        espl_element_from_f32(target, transfer->single, elements, transfer->target, loss);
        data = transfer->target;
    }
    if (loss->overflow != 0) {
        (void)espl_fail(err, ESPL_E_NUMERIC, "tensor '%s' holds values that are too large for %s",
                        transfer->checkpoint->sources[index]->name, espl_dtype_name(target));
        (void)espl_blame(err, "param:dtype");
        return espl_hint(err, "use dtype: keep, bf16 or f32");
    }
    return espl_artifact_append_rows(transfer->output, path, rows, data, err);
}

static struct espl_tensor_info info_of(const struct transfer *transfer, size_t index)
{
    const struct espl_tensor_spec *spec = &transfer->checkpoint->specs[index];
    const enum espl_dtype stored = transfer->checkpoint->sources[index]->dtype;
    return espl_tensor_info_make(spec->path, target_dtype(transfer->choice->dtype, stored),
                                 spec->rank, spec->shape);
}

static enum espl_status copy_tensor(struct transfer *transfer, size_t index, struct espl_error *err)
{
    const struct espl_tensor_info info = info_of(transfer, index);
    struct espl_element_loss loss = {0, 0};
    enum espl_status status = espl_artifact_create_rows(transfer->output, &info, err);
    if (status == ESPL_OK) {
        status = for_pieces(transfer, index, copy_piece, &loss, err);
    }
    if (status == ESPL_OK && loss.flushed != 0) {
        espl_log(transfer->hooks->log, ESPL_LOG_WARN,
                 "tensor '%s': %" PRIu64 " values are too small for %s and became 0",
                 transfer->checkpoint->specs[index].name, loss.flushed,
                 espl_dtype_name(info.dtype));
    }
    return status;
}

/* ---- reference ---- */

static enum espl_status hash_piece(struct transfer *transfer, size_t index, uint64_t rows,
                                   size_t elements, void *state, struct espl_error *err)
{
    struct espl_sha256 *hash = state;
    (void)rows;
    (void)err; /* hashing cannot fail */
    espl_sha256_update(hash, transfer->stored,
                       elements * espl_dtype_size(transfer->checkpoint->sources[index]->dtype));
    return ESPL_OK;
}

static enum espl_status refer_tensor(struct transfer *transfer, size_t index,
                                     struct espl_error *err)
{
    const struct espl_tensor_info info = info_of(transfer, index);
    const struct espl_safetensor *source = transfer->checkpoint->sources[index];
    const char *file = espl_safetensors_file(transfer->checkpoint->files, source->file);
    char hex[ESPL_SHA256_HEX];
    struct espl_sha256 *hash = espl_sha256_create();
    if (hash == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a hash");
    }
    enum espl_status status = for_pieces(transfer, index, hash_piece, hash, err);
    espl_sha256_finish(hash, hex);
    espl_sha256_destroy(hash);
    if (status != ESPL_OK) {
        return status;
    }
    char *absolute = realpath(file, NULL);
    if (absolute == NULL) {
        return espl_fail(err, ESPL_E_IO, "cannot resolve the path of '%s'", file);
    }
    status =
        espl_artifact_write_external(transfer->output, &info, absolute, source->offset, hex, err);
    free(absolute);
    return status;
}

/* ---- a head beside tied embeddings ---- */

static enum espl_status check_spare_head(struct transfer *transfer, struct espl_error *err)
{
    const struct espl_safetensor *head = transfer->checkpoint->spare_head;
    const struct espl_safetensor *embedding = NULL;
    bool same = true;
    for (size_t i = 0; i < transfer->checkpoint->count; i++) {
        if (transfer->checkpoint->specs[i].role == ESPL_ROLE_EMBEDDING) {
            embedding = transfer->checkpoint->sources[i];
        }
    }
    if (embedding == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "a checkpoint without embeddings passed its check");
    }
    same = head->dtype == embedding->dtype && head->bytes == embedding->bytes;
    for (uint64_t at = 0; same && at < head->bytes; at += PIECE_ELEMENTS) {
        const uint64_t left = head->bytes - at;
        const size_t len = left < PIECE_ELEMENTS ? (size_t)left : PIECE_ELEMENTS;
        char *second = (char *)transfer->stored + len;
        enum espl_status status = espl_safetensors_read(transfer->checkpoint->files, head, at,
                                                        transfer->stored, len, err);
        if (status == ESPL_OK) {
            status =
                espl_safetensors_read(transfer->checkpoint->files, embedding, at, second, len, err);
        }
        if (status != ESPL_OK) {
            return status;
        }
        same = memcmp(transfer->stored, second, len) == 0;
    }
    if (same) {
        return ESPL_OK;
    }
    (void)espl_fail(err, ESPL_E_KIND,
                    "config.json ties the output matrix to the embeddings, but '%s' is stored and "
                    "differs from '%s'",
                    head->name, embedding->name);
    return espl_hint(err, "set tie_word_embeddings to false in config.json if the stored matrix is "
                          "meant, or remove it from the files");
}

/* ---- all of it ---- */

static enum espl_status write_description(struct transfer *transfer, struct espl_error *err)
{
    json_t *description = espl_model_description(&transfer->checkpoint->config);
    char *text = json_dumps(description, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(description);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a model description");
    }
    const enum espl_status status = espl_artifact_set_description(transfer->output, text, err);
    free(text);
    return status;
}

/* Room for a piece of PIECE_ELEMENTS, or for the longest row. */
static enum espl_status reserve_pieces(struct transfer *transfer, struct espl_error *err)
{
    size_t elements = PIECE_ELEMENTS;
    for (size_t i = 0; i < transfer->checkpoint->count; i++) {
        const size_t cols = (size_t)transfer->checkpoint->specs[i].shape[1];
        elements = cols > elements ? cols : elements;
    }
    transfer->piece_elements = elements;
    transfer->stored = malloc(elements * sizeof(float));
    if (transfer->choice->dtype != ESPL_IMPORT_DTYPE_KEEP) {
        transfer->single = malloc(elements * sizeof(float));
        transfer->target = malloc(elements * sizeof(float));
    }
    if (transfer->stored == NULL || (transfer->choice->dtype != ESPL_IMPORT_DTYPE_KEEP &&
                                     (transfer->single == NULL || transfer->target == NULL))) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for pieces of %zu elements", elements);
    }
    return ESPL_OK;
}

enum espl_status espl_import_transfer(const struct espl_import_checkpoint *checkpoint,
                                      const struct espl_import_choice *choice,
                                      struct espl_artifact *output,
                                      const struct espl_import_hooks *hooks, struct espl_error *err)
{
    struct transfer transfer = {
        .checkpoint = checkpoint, .choice = choice, .output = output, .hooks = hooks};

    enum espl_status status = reserve_pieces(&transfer, err);
    if (status == ESPL_OK) {
        status = write_description(&transfer, err);
    }
    if (status == ESPL_OK && checkpoint->spare_head != NULL) {
        status = check_spare_head(&transfer, err);
    }
    for (size_t i = 0; status == ESPL_OK && i < checkpoint->count; i++) {
        status =
            choice->reference ? refer_tensor(&transfer, i, err) : copy_tensor(&transfer, i, err);
    }
    if (transfer.odd_tensors > NAMED_ODD) {
        espl_log(hooks->log, ESPL_LOG_WARN, "%zu further tensors hold NaN or infinite values",
                 transfer.odd_tensors - NAMED_ODD);
    }
    free(transfer.stored);
    free(transfer.single);
    free(transfer.target);
    return status;
}

/* Reads the first row of every tensor: the artifact layer opens the file and checks its length. */
enum espl_status espl_import_still_valid(struct espl_artifact *artifact, bool *valid,
                                         char stale[160], struct espl_error *err)
{
    *valid = true;
    for (size_t i = 0; *valid && i < espl_artifact_tensor_count(artifact); i++) {
        const struct espl_tensor_info *info = espl_artifact_tensor(artifact, i);
        if (!info->external || info->rank == 0 || info->shape[0] == 0) {
            continue;
        }
        const size_t row_bytes = (size_t)(info->bytes / info->shape[0]);
        void *row = malloc(row_bytes == 0 ? 1 : row_bytes);
        if (row == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for a row of '%s'", info->path);
        }
        *valid =
            espl_artifact_read_rows(artifact, info->path, 0, 1, row, row_bytes, NULL) == ESPL_OK;
        free(row);
        if (!*valid) {
            (void)snprintf(stale, 160, "the checkpoint files it refers to have moved or changed");
        }
    }
    return ESPL_OK;
}
