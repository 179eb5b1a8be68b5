#include "artifact/artifact.h"
#include "artifact/artifact_internal.h"
#include "artifact/kinds.h"
#include "core/checked.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Attributes that only this file writes. */
static const char *const own_attributes[] = {"format",       "format_version", "kind",
                                             "kind_version", "content_sha256", "complete"};

enum espl_status espl_artifact_mark_failed(struct espl_artifact *artifact, enum espl_status status)
{
    artifact->failed = true;
    return status;
}

enum espl_status espl_artifact_fail_write(struct espl_artifact *artifact, const char *what,
                                          struct espl_error *err)
{
    return espl_artifact_mark_failed(artifact, espl_h5_fail(&artifact->stream, err, ESPL_E_IO,
                                                            "cannot write '%s' of artifact '%s'",
                                                            what, artifact->path));
}

bool espl_artifact_write_failed(const struct espl_artifact *artifact)
{
    return artifact->stream.failed_errno != 0;
}

enum espl_status espl_artifact_check_writable(const struct espl_artifact *artifact,
                                              const char *what, struct espl_error *err)
{
    if (!artifact->writing || artifact->failed) {
        return espl_fail(err, ESPL_E_INTERNAL, "cannot write '%s' of artifact '%s': %s", what,
                         artifact->path,
                         artifact->writing ? "an earlier write failed" : "it is open for reading");
    }
    return ESPL_OK;
}

enum espl_status espl_artifact_create(const char *path, const char *kind,
                                      struct espl_artifact **out, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    char first[ESPL_KIND_TEXT];
    (void)snprintf(first, sizeof first, "%.*s", (int)strcspn(kind, "|"), kind);
    if (espl_kind_find(first) == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "'%s' is not in the table of artifact kinds", kind);
    }
    struct espl_artifact *artifact = espl_artifact_new(path);
    if (artifact == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for artifact '%s'", path);
    }
    artifact->writing = true;
    (void)snprintf(artifact->kind, sizeof artifact->kind, "%s", first);
    artifact->stream.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (artifact->stream.fd < 0) {
        artifact->stream.failed_errno = errno;
        status =
            espl_h5_fail(&artifact->stream, err, ESPL_E_IO, "cannot create artifact '%s'", path);
        espl_artifact_free(artifact);
        return status;
    }
    artifact->file = espl_h5_open_stream(&artifact->stream, path, true);
    if (artifact->file < 0 || espl_artifact_write_failed(artifact)) {
        status =
            espl_h5_fail(&artifact->stream, err, ESPL_E_IO, "cannot create artifact '%s'", path);
        espl_artifact_abandon(artifact);
        return status;
    }
    *out = artifact;
    return ESPL_OK;
}

static bool is_json_object(const char *text)
{
    json_t *parsed = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const bool result = json_is_object(parsed);
    json_decref(parsed);
    return result;
}

enum espl_status espl_artifact_set_kind(struct espl_artifact *artifact, const char *kind,
                                        struct espl_error *err)
{
    const enum espl_status status = espl_artifact_check_writable(artifact, "kind", err);
    if (status != ESPL_OK) {
        return status;
    }
    if (espl_kind_find(kind) == NULL) {
        return espl_fail(err, ESPL_E_INTERNAL, "'%s' is not in the table of artifact kinds", kind);
    }
    (void)snprintf(artifact->kind, sizeof artifact->kind, "%s", kind);
    return ESPL_OK;
}

enum espl_status espl_artifact_set_description(struct espl_artifact *artifact,
                                               const char *json_text, struct espl_error *err)
{
    enum espl_status status = espl_artifact_check_writable(artifact, "description", err);
    if (status != ESPL_OK) {
        return status;
    }
    if (artifact->description != NULL) {
        status = espl_fail(err, ESPL_E_INTERNAL, "artifact '%s' has a description already",
                           artifact->path);
        return espl_artifact_mark_failed(artifact, status);
    }
    if (!is_json_object(json_text)) {
        /* The parser calls a failed allocation a syntax error; a wrong text is wrong twice. */
        status =
            is_json_object(json_text)
                ? espl_fail(err, ESPL_E_NOMEM, "out of memory for artifact '%s'", artifact->path)
                : espl_fail(err, ESPL_E_INTERNAL,
                            "the description of artifact '%s' is no JSON object", artifact->path);
        return espl_artifact_mark_failed(artifact, status);
    }
    artifact->description = espl_artifact_copy_text(json_text);
    if (artifact->description == NULL) {
        return espl_artifact_mark_failed(
            artifact,
            espl_fail(err, ESPL_E_NOMEM, "out of memory for artifact '%s'", artifact->path));
    }
    return ESPL_OK;
}

/* Lower-case words, so that attribute and dataset names never need quoting. */
static bool name_is_good(const char *name)
{
    return name[0] != '\0' && strlen(name) < 64 &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

static enum espl_status set_text(struct espl_artifact *artifact, struct espl_artifact_texts *texts,
                                 const char *name, const char *value, size_t limit,
                                 struct espl_error *err)
{
    enum espl_status status = espl_artifact_check_writable(artifact, name, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (!name_is_good(name)) {
        status =
            espl_fail(err, ESPL_E_INTERNAL, "bad name '%s' in artifact '%s'", name, artifact->path);
    } else if (strlen(value) > limit) {
        status = espl_fail(err, ESPL_E_INTERNAL,
                           "text '%s' of artifact '%s' has %zu bytes, the limit is %zu", name,
                           artifact->path, strlen(value), limit);
    } else if (texts->count >= ESPL_ARTIFACT_MAX_ATTRIBUTES / 2) {
        status =
            espl_fail(err, ESPL_E_INTERNAL, "artifact '%s' has too many texts", artifact->path);
    } else if (!espl_artifact_texts_set(texts, name, value)) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for artifact '%s'", artifact->path);
    }
    return status == ESPL_OK ? ESPL_OK : espl_artifact_mark_failed(artifact, status);
}

enum espl_status espl_artifact_set_attribute(struct espl_artifact *artifact, const char *name,
                                             const char *value, struct espl_error *err)
{
    for (size_t i = 0; i < sizeof own_attributes / sizeof own_attributes[0]; i++) {
        if (strcmp(name, own_attributes[i]) == 0) {
            return espl_artifact_mark_failed(
                artifact, espl_fail(err, ESPL_E_INTERNAL,
                                    "attribute '%s' is set by the artifact itself", name));
        }
    }
    return set_text(artifact, &artifact->attributes, name, value, ESPL_H5_ATTRIBUTE_LIMIT, err);
}

enum espl_status espl_artifact_set_provenance(struct espl_artifact *artifact, const char *name,
                                              const char *text, struct espl_error *err)
{
    return set_text(artifact, &artifact->provenance, name, text, ESPL_H5_TEXT_LIMIT, err);
}

/* By hand, because groups that HDF5 makes on the way get time stamps. */
herr_t espl_artifact_create_parents(hid_t file, const char *path)
{
    char group[ESPL_TENSOR_PATH];
    const hid_t list = espl_h5_plain_list(H5P_GROUP_CREATE);
    herr_t result = list < 0 ? -1 : 0;
    for (const char *slash = strchr(path + 1, '/'); slash != NULL && result >= 0;
         slash = strchr(slash + 1, '/')) {
        (void)snprintf(group, sizeof group, "%.*s", (int)(slash - path), path);
        const htri_t there = H5Lexists(file, group, H5P_DEFAULT);
        if (there < 0) {
            result = -1;
        } else if (there == 0) {
            const hid_t made = H5Gcreate2(file, group, H5P_DEFAULT, list, H5P_DEFAULT);
            result = made < 0 ? -1 : H5Gclose(made);
        }
    }
    espl_h5_release(list);
    return result;
}

static hid_t create_space(const struct espl_tensor_info *info)
{
    hsize_t extent[ESPL_MAX_RANK];
    if (info->rank == 0) {
        return H5Screate(H5S_SCALAR);
    }
    for (unsigned i = 0; i < info->rank; i++) {
        extent[i] = info->shape[i];
    }
    return H5Screate_simple((int)info->rank, extent, NULL);
}

/* Contiguous, allocated at once, never filled: rows land at their final place and nothing is
 * written twice. */
static herr_t set_layout(hid_t list, const struct espl_artifact_entry *entry)
{
    if (entry->external_file != NULL) {
        return H5Pset_external(list, entry->external_file, (off_t)entry->offset, entry->info.bytes);
    }
    if (H5Pset_layout(list, H5D_CONTIGUOUS) < 0 ||
        H5Pset_alloc_time(list, H5D_ALLOC_TIME_EARLY) < 0) {
        return -1;
    }
    return H5Pset_fill_time(list, H5D_FILL_TIME_NEVER);
}

static herr_t create_dataset(hid_t file, struct espl_artifact_entry *entry)
{
    const struct espl_tensor_info *info = &entry->info;
    const hid_t type = espl_h5_type_create(info->dtype);
    const hid_t space = create_space(info);
    const hid_t list = espl_h5_plain_list(H5P_DATASET_CREATE);
    if (type >= 0 && space >= 0 && list >= 0 &&
        espl_artifact_create_parents(file, info->path) >= 0 && set_layout(list, entry) >= 0) {
        entry->dataset = H5Dcreate2(file, info->path, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
    }
    /* The rest is only memory. */
    espl_h5_release(list);
    espl_h5_release(space);
    espl_h5_release(type);
    return entry->dataset < 0 ? -1 : 0;
}

/* Adds a checked entry without a dataset. NULL, with *status and err set, when it must not be. */
static struct espl_artifact_entry *add_checked(struct espl_artifact *artifact,
                                               const struct espl_tensor_info *info,
                                               enum espl_status *status, struct espl_error *err)
{
    if (espl_artifact_find_entry(artifact, info->path) != NULL) {
        *status = espl_fail(err, ESPL_E_INTERNAL, "tensor '%s' is written twice", info->path);
        return NULL;
    }
    if (artifact->entry_count >= ESPL_ARTIFACT_MAX_TENSORS) {
        *status =
            espl_fail(err, ESPL_E_INTERNAL, "artifact '%s' has too many tensors", artifact->path);
        return NULL;
    }
    struct espl_artifact_entry *entry = espl_artifact_add_entry(artifact);
    if (entry == NULL) {
        *status = espl_fail(err, ESPL_E_NOMEM, "out of memory for tensor '%s'", info->path);
        return NULL;
    }
    entry->info = *info;
    entry->info.sha256[0] = '\0';
    entry->info.external = false;
    if (info->packing[0] == '\0') {
        memcpy(entry->info.logical_shape, info->shape, sizeof info->shape);
    }
    *status = espl_artifact_check_info(entry, ESPL_E_INTERNAL, err);
    return *status == ESPL_OK ? entry : NULL;
}

/* Writes the attributes of a dataset whose data are complete, and closes it. */
static enum espl_status complete_entry(struct espl_artifact *artifact,
                                       struct espl_artifact_entry *entry, struct espl_error *err)
{
    const struct espl_tensor_info *info = &entry->info;
    if (entry->hash != NULL) {
        espl_sha256_finish(entry->hash, entry->info.sha256);
        espl_sha256_destroy(entry->hash);
        entry->hash = NULL;
        if (entry->info.sha256[0] == '\0') {
            return espl_fail(err, ESPL_E_INTERNAL, "libcrypto failed to compute a SHA-256 hash");
        }
    }
    const hid_t dataset = entry->dataset;
    herr_t result = espl_h5_write_text_attribute(dataset, "sha256", info->sha256);
    if (result >= 0 && info->dtype == ESPL_DTYPE_BF16) {
        result = espl_h5_write_text_attribute(dataset, "logical_dtype", "bf16");
    }
    if (result >= 0 && info->packing[0] != '\0') {
        result = espl_h5_write_text_attribute(dataset, "packing", info->packing);
        if (result >= 0 && info->rank > 0) {
            result = espl_h5_write_u64_attribute(dataset, "logical_shape", info->logical_shape,
                                                 info->rank);
        }
    }
    if (result >= 0 && info->external) {
        const uint64_t state[2] = {entry->external_state.bytes, entry->external_state.mtime_ns};
        result = espl_h5_write_u64_attribute(dataset, "external_state", state, 2);
    }
    entry->dataset = H5I_INVALID_HID;
    if (H5Dclose(dataset) < 0 || result < 0 || espl_artifact_write_failed(artifact)) {
        return espl_artifact_fail_write(artifact, info->path, err);
    }
    entry->complete = true;
    return ESPL_OK;
}

/* A checked entry of a writable artifact, or NULL and why in *status. */
static struct espl_artifact_entry *begin_entry(struct espl_artifact *artifact,
                                               const struct espl_tensor_info *info,
                                               enum espl_status *status, struct espl_error *err)
{
    *status = espl_artifact_check_writable(artifact, info->path, err);
    if (*status != ESPL_OK) {
        return NULL;
    }
    struct espl_artifact_entry *entry = add_checked(artifact, info, status, err);
    if (entry == NULL) {
        *status = espl_artifact_mark_failed(artifact, *status);
    }
    return entry;
}

/* The dataset of an entry, complete at once when no rows will follow. */
static enum espl_status make_dataset(struct espl_artifact *artifact,
                                     struct espl_artifact_entry *entry, struct espl_error *err)
{
    if (create_dataset(artifact->file, entry) < 0 || espl_artifact_write_failed(artifact)) {
        return espl_artifact_fail_write(artifact, entry->info.path, err);
    }
    const enum espl_status status =
        entry->rows_done == entry->rows ? complete_entry(artifact, entry, err) : ESPL_OK;
    return status == ESPL_OK ? ESPL_OK : espl_artifact_mark_failed(artifact, status);
}

enum espl_status espl_artifact_create_rows(struct espl_artifact *artifact,
                                           const struct espl_tensor_info *info,
                                           struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    struct espl_artifact_entry *entry = begin_entry(artifact, info, &status, err);
    if (entry == NULL) {
        return status;
    }
    entry->hash = espl_sha256_create();
    if (entry->hash == NULL) {
        return espl_artifact_mark_failed(
            artifact, espl_fail(err, ESPL_E_NOMEM, "out of memory for tensor '%s'", info->path));
    }
    return make_dataset(artifact, entry, err);
}

static herr_t write_rows(const struct espl_artifact_entry *entry, uint64_t rows, const void *data)
{
    herr_t result = -1;
    hid_t memory = H5I_INVALID_HID;
    hsize_t start[ESPL_MAX_RANK] = {0};
    hsize_t count[ESPL_MAX_RANK] = {0};
    const struct espl_tensor_info *info = &entry->info;
    const hid_t type = espl_h5_type_create(info->dtype);
    const hid_t space = create_space(info);
    if (type < 0 || space < 0) {
        goto cleanup;
    }
    if (info->rank == 0) {
        result = H5Dwrite(entry->dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
        goto cleanup;
    }
    for (unsigned i = 0; i < info->rank; i++) {
        count[i] = info->shape[i];
    }
    start[0] = entry->rows_done;
    count[0] = rows;
    memory = H5Screate_simple((int)info->rank, count, NULL);
    if (memory >= 0 && H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0) {
        result = H5Dwrite(entry->dataset, type, memory, space, H5P_DEFAULT, data);
    }

cleanup:
    /* Only memory. */
    espl_h5_release(memory);
    espl_h5_release(space);
    espl_h5_release(type);
    return result;
}

enum espl_status espl_artifact_append_rows(struct espl_artifact *artifact, const char *path,
                                           uint64_t rows, const void *data, struct espl_error *err)
{
    enum espl_status status = espl_artifact_check_writable(artifact, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    struct espl_artifact_entry *entry = espl_artifact_find_entry(artifact, path);
    if (entry == NULL) {
        return espl_artifact_mark_failed(
            artifact,
            espl_fail(err, ESPL_E_INTERNAL, "rows for tensor '%s', which was not created", path));
    }
    if (rows > entry->rows - entry->rows_done) {
        return espl_artifact_mark_failed(artifact,
                                         espl_fail(err, ESPL_E_INTERNAL,
                                                   "tensor '%s' has %" PRIu64 " rows, %" PRIu64
                                                   " are there and %" PRIu64 " more were appended",
                                                   path, entry->rows, entry->rows_done, rows));
    }
    if (rows == 0) {
        return ESPL_OK;
    }
    if (entry->row_bytes > 0) {
        if (write_rows(entry, rows, data) < 0 || espl_artifact_write_failed(artifact)) {
            return espl_artifact_fail_write(artifact, path, err);
        }
        espl_sha256_update(entry->hash, data, (size_t)(rows * entry->row_bytes));
    }
    entry->rows_done += rows;
    if (entry->rows_done == entry->rows) {
        status = complete_entry(artifact, entry, err);
    }
    return status == ESPL_OK ? ESPL_OK : espl_artifact_mark_failed(artifact, status);
}

enum espl_status espl_artifact_write(struct espl_artifact *artifact,
                                     const struct espl_tensor_info *info, const void *data,
                                     struct espl_error *err)
{
    const enum espl_status status = espl_artifact_create_rows(artifact, info, err);
    if (status != ESPL_OK) {
        return status;
    }
    return espl_artifact_append_rows(artifact, info->path, info->rank == 0 ? 1 : info->shape[0],
                                     data, err);
}

struct espl_artifact_file_state espl_artifact_file_state(const struct stat *info)
{
    return (struct espl_artifact_file_state){
        .bytes = (uint64_t)info->st_size,
        .mtime_ns = (uint64_t)info->st_mtim.tv_sec * 1000000000u + (uint64_t)info->st_mtim.tv_nsec,
    };
}

enum espl_status espl_artifact_write_external(struct espl_artifact *artifact,
                                              const struct espl_tensor_info *info, const char *file,
                                              uint64_t offset, const char *sha256,
                                              struct espl_error *err)
{
    struct stat now;
    enum espl_status status = espl_artifact_check_writable(artifact, info->path, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (file[0] != '/' || info->bytes == 0 || !espl_sha256_is_hex(sha256) ||
        offset > (uint64_t)INT64_MAX - info->bytes) {
        return espl_artifact_mark_failed(
            artifact, espl_fail(err, ESPL_E_INTERNAL,
                                "tensor '%s' cannot refer to %" PRIu64 " bytes at %" PRIu64
                                " of '%s' (absolute path, bytes and a SHA-256 are needed)",
                                info->path, info->bytes, offset, file));
    }
    if (stat(file, &now) != 0) {
        return espl_artifact_mark_failed(
            artifact, espl_fail_errno(err, errno, "cannot examine '%s', which holds tensor '%s'",
                                      file, info->path));
    }
    const struct espl_artifact_file_state state = espl_artifact_file_state(&now);
    return espl_artifact_refer(artifact, info, file, offset, sha256, &state, err);
}

enum espl_status espl_artifact_refer(struct espl_artifact *artifact,
                                     const struct espl_tensor_info *info, const char *file,
                                     uint64_t offset, const char *sha256,
                                     const struct espl_artifact_file_state *state,
                                     struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    struct espl_artifact_entry *entry = begin_entry(artifact, info, &status, err);
    if (entry == NULL) {
        return status;
    }
    entry->external_file = espl_artifact_copy_text(file);
    if (entry->external_file == NULL) {
        return espl_artifact_mark_failed(
            artifact, espl_fail(err, ESPL_E_NOMEM, "out of memory for tensor '%s'", info->path));
    }
    entry->offset = offset;
    entry->external_state = *state;
    entry->info.external = true;
    entry->rows_done = entry->rows;
    memcpy(entry->info.sha256, sha256, ESPL_SHA256_HEX);
    return make_dataset(artifact, entry, err);
}
