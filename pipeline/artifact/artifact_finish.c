#include "artifact/artifact.h"
#include "artifact/artifact_internal.h"
#include "artifact/kinds.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COPY_PIECE_BYTES = 8 << 20 };

/* Copies one dataset by pieces and checks it against the hash recorded in the source. */
static enum espl_status copy_dataset(struct espl_artifact *artifact, struct espl_artifact *source,
                                     const struct espl_artifact_entry *from, struct espl_error *err)
{
    const struct espl_tensor_info *info = &from->info;
    if (info->external) {
        return espl_artifact_refer(artifact, info, from->external_file, from->offset, info->sha256,
                                   &from->external_state, err);
    }
    uint64_t rows_each = from->row_bytes == 0 ? from->rows : COPY_PIECE_BYTES / from->row_bytes;
    rows_each = rows_each == 0 ? 1 : rows_each;
    rows_each = rows_each > from->rows ? from->rows : rows_each;
    enum espl_status status = espl_artifact_create_rows(artifact, info, err);
    if (status != ESPL_OK || from->rows == 0) {
        return status;
    }
    void *piece = malloc((size_t)(rows_each * from->row_bytes) + 1);
    if (piece == NULL) {
        return espl_artifact_mark_failed(
            artifact,
            espl_fail(err, ESPL_E_NOMEM, "out of memory while copying tensor '%s'", info->path));
    }
    for (uint64_t row = 0; row < from->rows && status == ESPL_OK;) {
        const uint64_t rows = from->rows - row < rows_each ? from->rows - row : rows_each;
        status = espl_artifact_read_rows(source, info->path, row, rows, piece,
                                         (size_t)(rows * from->row_bytes), err);
        if (status == ESPL_OK) {
            status = espl_artifact_append_rows(artifact, info->path, rows, piece, err);
        }
        row += rows;
    }
    free(piece);
    if (status != ESPL_OK) {
        return espl_artifact_mark_failed(artifact, status);
    }
    const struct espl_artifact_entry *copied = espl_artifact_find_entry(artifact, info->path);
    if (copied == NULL || strcmp(copied->info.sha256, info->sha256) != 0) {
        return espl_artifact_mark_failed(
            artifact, espl_fail(err, ESPL_E_CORRUPT, "tensor '%s' of '%s' does not match its hash",
                                info->path, source->path));
    }
    return ESPL_OK;
}

enum espl_status espl_artifact_copy_datasets(struct espl_artifact *artifact,
                                             struct espl_artifact *source, struct espl_error *err)
{
    for (size_t i = 0; i < source->entry_count; i++) {
        const enum espl_status status = copy_dataset(artifact, source, &source->entries[i], err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

/* All rows there, all required datasets there. */
static enum espl_status check_complete(struct espl_artifact *artifact, struct espl_error *err)
{
    for (size_t i = 0; i < artifact->entry_count; i++) {
        const struct espl_artifact_entry *entry = &artifact->entries[i];
        if (!entry->complete) {
            return espl_fail(err, ESPL_E_INTERNAL,
                             "tensor '%s' has %" PRIu64 " of %" PRIu64 " rows", entry->info.path,
                             entry->rows_done, entry->rows);
        }
    }
    const struct espl_kind *kind = espl_kind_find(artifact->kind);
    for (const char *const *path = kind->required; *path != NULL; path++) {
        if (espl_artifact_find(artifact, *path) == NULL) {
            return espl_fail(err, ESPL_E_INTERNAL, "an artifact of kind '%s' needs tensor '%s'",
                             artifact->kind, *path);
        }
    }
    return ESPL_OK;
}

static enum espl_status write_provenance(struct espl_artifact *artifact, struct espl_error *err)
{
    char path[96];
    espl_artifact_texts_sort(&artifact->provenance);
    for (size_t i = 0; i < artifact->provenance.count; i++) {
        const struct espl_artifact_text *text = &artifact->provenance.items[i];
        (void)snprintf(path, sizeof path, "/provenance/%s", text->name);
        if (espl_artifact_create_parents(artifact->file, path) < 0 ||
            espl_h5_write_text(artifact->file, path, text->value) < 0 ||
            espl_artifact_write_failed(artifact)) {
            return espl_artifact_fail_write(artifact, path, err);
        }
    }
    return ESPL_OK;
}

/* Everything but the completeness mark. */
static enum espl_status write_head(struct espl_artifact *artifact, struct espl_error *err)
{
    enum espl_status status = write_provenance(artifact, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (espl_h5_write_text(artifact->file, "/description", espl_artifact_description(artifact)) <
            0 ||
        espl_artifact_write_failed(artifact)) {
        return espl_artifact_fail_write(artifact, "/description", err);
    }
    char version[16];
    (void)snprintf(version, sizeof version, "%d", ESPL_ARTIFACT_FORMAT_VERSION);
    const struct {
        const char *name;
        const char *value;
    } own[] = {
        {"format", ESPL_ARTIFACT_FORMAT},
        {"format_version", version},
        {"kind", artifact->kind},
        {"kind_version", strrchr(artifact->kind, '/') + 1},
        {"content_sha256", artifact->content_sha256},
    };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (!espl_artifact_texts_set(&artifact->attributes, own[i].name, own[i].value)) {
            return espl_artifact_mark_failed(
                artifact,
                espl_fail(err, ESPL_E_NOMEM, "out of memory for artifact '%s'", artifact->path));
        }
    }
    espl_artifact_texts_sort(&artifact->attributes);
    for (size_t i = 0; i < artifact->attributes.count; i++) {
        const struct espl_artifact_text *text = &artifact->attributes.items[i];
        if (espl_h5_write_text_attribute(artifact->file, text->name, text->value) < 0 ||
            espl_artifact_write_failed(artifact)) {
            return espl_artifact_fail_write(artifact, text->name, err);
        }
    }
    return ESPL_OK;
}

/* The mark comes after all else has been handed to the system. */
static enum espl_status write_mark_and_close(struct espl_artifact *artifact, struct espl_error *err)
{
    if (H5Fflush(artifact->file, H5F_SCOPE_LOCAL) < 0 || espl_artifact_write_failed(artifact) ||
        espl_h5_write_text_attribute(artifact->file, "complete", "1") < 0) {
        return espl_artifact_fail_write(artifact, "complete", err);
    }
    const hid_t file = artifact->file;
    artifact->file = H5I_INVALID_HID;
    if (H5Fclose(file) < 0 || espl_artifact_write_failed(artifact)) {
        return espl_artifact_fail_write(artifact, "complete", err);
    }
    while (fsync(artifact->stream.fd) != 0) {
        if (errno != EINTR) {
            artifact->stream.failed_errno = errno;
            return espl_artifact_fail_write(artifact, "complete", err);
        }
    }
    const int fd = artifact->stream.fd;
    artifact->stream.fd = -1;
    if (close(fd) != 0 && errno != EINTR) {
        artifact->stream.failed_errno = errno;
        return espl_artifact_fail_write(artifact, "complete", err);
    }
    return ESPL_OK;
}

enum espl_status espl_artifact_finish(struct espl_artifact **artifact,
                                      char content_sha256[ESPL_SHA256_HEX], struct espl_error *err)
{
    struct espl_artifact *self = *artifact;
    *artifact = NULL;
    enum espl_status status = espl_artifact_check_writable(self, "content_sha256", err);
    if (status == ESPL_OK) {
        status = check_complete(self, err);
    }
    if (status == ESPL_OK) {
        espl_artifact_sort_entries(self);
        status = espl_artifact_hash_content(self, self->content_sha256, err);
    }
    if (status == ESPL_OK) {
        status = write_head(self, err);
    }
    if (status == ESPL_OK) {
        status = write_mark_and_close(self, err);
    }
    if (status != ESPL_OK) {
        espl_artifact_abandon(self);
        return status;
    }
    if (content_sha256 != NULL) {
        memcpy(content_sha256, self->content_sha256, ESPL_SHA256_HEX);
    }
    espl_artifact_free(self);
    return ESPL_OK;
}

void espl_artifact_abandon(struct espl_artifact *artifact)
{
    if (artifact == NULL) {
        return;
    }
    if (artifact->writing) {
        (void)unlink(artifact->path); /* what stays behind, no reader accepts */
    }
    espl_artifact_free(artifact);
}
