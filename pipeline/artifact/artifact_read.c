#include "artifact/artifact.h"
#include "artifact/artifact_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERIFY_PIECE_BYTES = 1 << 20 };

void espl_artifact_close(struct espl_artifact *artifact)
{
    espl_artifact_free(artifact);
}

enum espl_status espl_artifact_provenance(struct espl_artifact *artifact, const char *name,
                                          char **text, struct espl_error *err)
{
    char path[128];
    const int len = snprintf(path, sizeof path, "/provenance/%s", name);
    if (len < 0 || (size_t)len >= sizeof path ||
        H5Lexists(artifact->file, "/provenance", H5P_DEFAULT) <= 0 ||
        H5Lexists(artifact->file, path, H5P_DEFAULT) <= 0) {
        (void)H5Eclear2(H5E_DEFAULT);
        return espl_fail(err, ESPL_E_NOTFOUND, "artifact '%s' has no provenance '%s'",
                         artifact->path, name);
    }
    return espl_h5_read_text(artifact->file, path, text, err);
}

static int compare_path_to_entry(const void *path, const void *entry)
{
    return strcmp(path, ((const struct espl_artifact_entry *)entry)->info.path);
}

/* Entries of a reader are sorted. */
static const struct espl_artifact_entry *find_entry(const struct espl_artifact *artifact,
                                                    const char *path)
{
    if (artifact->writing) {
        return espl_artifact_find_entry(artifact, path);
    }
    if (artifact->entry_count == 0) {
        return NULL;
    }
    return bsearch(path, artifact->entries, artifact->entry_count, sizeof *artifact->entries,
                   compare_path_to_entry);
}

const struct espl_tensor_info *espl_artifact_find(const struct espl_artifact *artifact,
                                                  const char *path)
{
    const struct espl_artifact_entry *entry = find_entry(artifact, path);
    return entry != NULL ? &entry->info : NULL;
}

/* A file outside must be as it was when its data were hashed, or other weights would pass for those
 * of the artifact. Size and time stamp are looked at; who wants the bytes compared verifies. */
static enum espl_status check_unchanged(const struct espl_artifact *artifact,
                                        const struct espl_artifact_entry *entry,
                                        const struct stat *info, struct espl_error *err)
{
    const struct espl_artifact_file_state now = espl_artifact_file_state(info);
    if (now.bytes == entry->external_state.bytes &&
        now.mtime_ns == entry->external_state.mtime_ns) {
        return ESPL_OK;
    }
    (void)espl_fail(err, ESPL_E_CORRUPT, "'%s' has changed since '%s' was made, which refers to it",
                    entry->external_file, artifact->path);
    return espl_hint(err, "run the job that imports it again, which reads it anew; `storage: copy` "
                          "does not depend on the file");
}

/* Opens the file that holds an entry's data; *fd is the artifact's own one for data inside.
 * unchanged: a file outside must be the one that was referred to. */
static enum espl_status open_data(const struct espl_artifact *artifact,
                                  const struct espl_artifact_entry *entry, bool unchanged, int *fd,
                                  struct espl_error *err)
{
    struct stat info;
    enum espl_status status = ESPL_OK;
    const char *file = entry->external_file;
    if (file == NULL) {
        *fd = artifact->stream.fd;
        return ESPL_OK;
    }
    const int opened = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) {
        status =
            espl_fail_errno(err, errno, "cannot open '%s', which holds the data of tensor '%s'",
                            file, entry->info.path);
        (void)espl_hint(err,
                        "'%s' refers to this file instead of holding a copy: put it back, or "
                        "import the checkpoint with storage: copy",
                        artifact->path);
        return status;
    }
    if (fstat(opened, &info) != 0 || !S_ISREG(info.st_mode) ||
        (uint64_t)info.st_size < entry->offset ||
        (uint64_t)info.st_size - entry->offset < entry->info.bytes) {
        status = espl_fail(err, ESPL_E_CORRUPT,
                           "'%s' is too short: tensor '%s' needs %" PRIu64 " bytes at %" PRIu64,
                           file, entry->info.path, entry->info.bytes, entry->offset);
    } else if (unchanged) {
        status = check_unchanged(artifact, entry, &info, err);
    }
    if (status != ESPL_OK) {
        (void)close(opened); /* only read from */
        return status;
    }
    *fd = opened;
    return ESPL_OK;
}

static void close_data(const struct espl_artifact *artifact, int fd)
{
    if (fd >= 0 && fd != artifact->stream.fd) {
        (void)close(fd); /* only read from */
    }
}

/* Reads `size` bytes at `position` of an entry's data. */
static enum espl_status read_data(const struct espl_artifact *artifact,
                                  const struct espl_artifact_entry *entry, int fd,
                                  uint64_t position, char *out, size_t size, struct espl_error *err)
{
    uint64_t at = entry->offset + position;
    while (size > 0) {
        const ssize_t got = pread(fd, out, size, (off_t)at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return espl_fail_errno(err, errno, "cannot read tensor '%s' of '%s'", entry->info.path,
                                   artifact->path);
        }
        if (got == 0) {
            return espl_fail(err, ESPL_E_CORRUPT, "tensor '%s' of '%s' ends too early",
                             entry->info.path, artifact->path);
        }
        out += got;
        at += (uint64_t)got;
        size -= (size_t)got;
    }
    return ESPL_OK;
}

/* NULL, with err filled (NOTFOUND), when there is nothing to read. */
static const struct espl_artifact_entry *find_readable(const struct espl_artifact *artifact,
                                                       const char *path, struct espl_error *err)
{
    const struct espl_artifact_entry *entry = artifact->writing ? NULL : find_entry(artifact, path);
    if (entry == NULL) {
        (void)espl_fail(err, ESPL_E_NOTFOUND, "artifact '%s' has no tensor '%s'", artifact->path,
                        path);
    }
    return entry;
}

/* Data are read with pread() at the place that HDF5 names: they are contiguous and in the byte
 * order of memory, and the errors of the system reach the user as they are. */
enum espl_status espl_artifact_read_rows(struct espl_artifact *artifact, const char *path,
                                         uint64_t row, uint64_t rows, void *data, size_t data_bytes,
                                         struct espl_error *err)
{
    const struct espl_artifact_entry *entry = find_readable(artifact, path, err);
    if (entry == NULL) {
        return ESPL_E_NOTFOUND;
    }
    if (row > entry->rows || rows > entry->rows - row) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "tensor '%s' has %" PRIu64 " rows, rows %" PRIu64 " to %" PRIu64
                         " were asked for",
                         path, entry->rows, row, row + rows);
    }
    if (rows * entry->row_bytes != data_bytes) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "%" PRIu64 " rows of tensor '%s' are %" PRIu64 " bytes, %zu were expected",
                         rows, path, rows * entry->row_bytes, data_bytes);
    }
    if (data_bytes == 0) {
        return ESPL_OK;
    }
    int fd = -1;
    enum espl_status status = open_data(artifact, entry, true, &fd, err);
    if (status == ESPL_OK) {
        status = read_data(artifact, entry, fd, row * entry->row_bytes, data, data_bytes, err);
    }
    close_data(artifact, fd);
    return status;
}

enum espl_status espl_artifact_read(struct espl_artifact *artifact, const char *path, size_t limit,
                                    void **data, size_t *data_bytes, struct espl_error *err)
{
    const struct espl_artifact_entry *entry = find_readable(artifact, path, err);
    if (entry == NULL) {
        return ESPL_E_NOTFOUND;
    }
    if (entry->info.bytes > limit) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "tensor '%s' of '%s' has %" PRIu64 " bytes, the limit is %zu", path,
                         artifact->path, entry->info.bytes, limit);
    }
    const size_t bytes = (size_t)entry->info.bytes;
    void *block = malloc(bytes == 0 ? 1 : bytes);
    if (block == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for tensor '%s' of %zu bytes", path,
                         bytes);
    }
    const enum espl_status status =
        espl_artifact_read_rows(artifact, path, 0, entry->rows, block, bytes, err);
    if (status != ESPL_OK) {
        free(block);
        return status;
    }
    *data = block;
    *data_bytes = bytes;
    return ESPL_OK;
}

/* Hashes an entry's data by pieces. */
static enum espl_status hash_entry(const struct espl_artifact *artifact,
                                   const struct espl_artifact_entry *entry, char *piece,
                                   char hex[ESPL_SHA256_HEX], struct espl_error *err)
{
    int fd = -1;
    uint64_t done = 0;
    struct espl_sha256 *hash = espl_sha256_create();
    if (hash == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while checking '%s'", artifact->path);
    }
    enum espl_status status =
        entry->info.bytes > 0 ? open_data(artifact, entry, false, &fd, err) : ESPL_OK;
    while (status == ESPL_OK && done < entry->info.bytes) {
        const uint64_t left = entry->info.bytes - done;
        const size_t size = left < VERIFY_PIECE_BYTES ? (size_t)left : VERIFY_PIECE_BYTES;
        status = read_data(artifact, entry, fd, done, piece, size, err);
        if (status == ESPL_OK) {
            espl_sha256_update(hash, piece, size);
            done += size;
        }
    }
    close_data(artifact, fd);
    if (status == ESPL_OK) {
        espl_sha256_finish(hash, hex);
    }
    espl_sha256_destroy(hash);
    return status;
}

enum espl_status espl_artifact_verify(struct espl_artifact *artifact, bool *ok,
                                      char bad_path[ESPL_TENSOR_PATH], struct espl_error *err)
{
    char hex[ESPL_SHA256_HEX] = "";
    enum espl_status status = ESPL_OK;
    *ok = false;
    bad_path[0] = '\0';
    char *piece = malloc(VERIFY_PIECE_BYTES);
    if (piece == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while checking '%s'", artifact->path);
    }
    for (size_t i = 0; i < artifact->entry_count && status == ESPL_OK; i++) {
        const struct espl_artifact_entry *entry = &artifact->entries[i];
        status = hash_entry(artifact, entry, piece, hex, err);
        if (status == ESPL_OK && strcmp(hex, entry->info.sha256) != 0) {
            (void)snprintf(bad_path, ESPL_TENSOR_PATH, "%s", entry->info.path);
            goto cleanup;
        }
    }
    if (status == ESPL_OK) {
        status = espl_artifact_hash_content(artifact, hex, err);
    }
    if (status == ESPL_OK) {
        *ok = strcmp(hex, artifact->content_sha256) == 0;
        /* All data are right, so a name, a shape or the description was changed. */
        (void)snprintf(bad_path, ESPL_TENSOR_PATH, "%s", *ok ? "" : "/");
    }

cleanup:
    free(piece);
    return status;
}
