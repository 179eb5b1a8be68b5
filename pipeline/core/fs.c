#include "core/fs.h"

#include "core/checked.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Advice for a full disk; other errors speak for themselves. */
static enum espl_status add_advice(struct espl_error *err, enum espl_status status,
                                   const char *path)
{
    if (status == ESPL_E_NOSPACE) {
        (void)espl_hint(err,
                        "free space (or quota) on the file system that holds '%s' and run the same "
                        "command again",
                        path);
    }
    return status;
}

bool espl_fs_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

bool espl_fs_is_dir(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

enum espl_status espl_fs_advise_folder(const char *path, enum espl_status status,
                                       struct espl_error *err)
{
    if (espl_fs_is_dir(path)) {
        (void)espl_hint(err, "a folder stands where this file should be: move it away");
    }
    return status;
}

enum espl_status espl_fs_file_size(const char *path, uint64_t *size, struct espl_error *err)
{
    struct stat info;
    if (stat(path, &info) != 0) {
        return espl_fail_errno(err, errno, "cannot examine '%s'", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return espl_fs_advise_folder(
            path, espl_fail(err, ESPL_E_KIND, "'%s' is not a regular file", path), err);
    }
    *size = (uint64_t)info.st_size;
    return ESPL_OK;
}

enum espl_status espl_fs_join(char out[ESPL_PATH_MAX], const char *dir, const char *name,
                              struct espl_error *err)
{
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') {
        len--;
    }
    const char *separator = len == 0 || dir[len - 1] == '/' || name[0] == '\0' ? "" : "/";
    const int total = snprintf(out, ESPL_PATH_MAX, "%.*s%s%s", len > INT_MAX ? INT_MAX : (int)len,
                               dir, separator, name);
    if (total < 0 || total >= ESPL_PATH_MAX) {
        return espl_fail(err, ESPL_E_IO, "path is too long: '%.100s...'", dir);
    }
    return ESPL_OK;
}

/* Folder part of a path: "." when it has none. */
static enum espl_status parent_of(const char *path, char out[ESPL_PATH_MAX], struct espl_error *err)
{
    size_t len = strlen(path);
    if (len >= ESPL_PATH_MAX) {
        return espl_fail(err, ESPL_E_IO, "path is too long: '%.100s...'", path);
    }
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    while (len > 0 && path[len - 1] != '/') {
        len--;
    }
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    (void)snprintf(out, ESPL_PATH_MAX, "%.*s", (int)(len == 0 ? 1 : len), len == 0 ? "." : path);
    return ESPL_OK;
}

/* Reads until the end of the file or until limit bytes are exceeded. */
static enum espl_status read_all(int fd, const char *path, size_t limit, struct espl_buf *buf,
                                 struct espl_error *err)
{
    char piece[16384];
    for (;;) {
        const ssize_t got = read(fd, piece, sizeof piece);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return espl_fail_errno(err, errno, "cannot read '%s'", path);
        }
        if (got == 0) {
            return ESPL_OK;
        }
        if ((size_t)got > limit - buf->len) {
            return espl_fail(err, ESPL_E_CORRUPT, "'%s' is larger than the limit of %zu bytes",
                             path, limit);
        }
        if (!espl_buf_add(buf, piece, (size_t)got)) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory while reading '%s'", path);
        }
    }
}

enum espl_status espl_fs_open_file(const char *path, int *fd, uint64_t *size,
                                   struct espl_error *err)
{
    struct stat info;
    /* O_NONBLOCK: a FIFO in place of the file must not hang the program. */
    const int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0) {
        return espl_fail_errno(err, errno, "cannot open '%s'", path);
    }
    enum espl_status status = ESPL_OK;
    if (fstat(opened, &info) != 0) {
        status = espl_fail_errno(err, errno, "cannot examine '%s'", path);
    } else if (!S_ISREG(info.st_mode)) {
        status = espl_fail(err, ESPL_E_KIND, "cannot read '%s': not a regular file", path);
        status = espl_fs_advise_folder(path, status, err);
    }
    if (status != ESPL_OK) {
        (void)close(opened); /* nothing was read */
        return status;
    }
    if (size != NULL) {
        *size = (uint64_t)info.st_size;
    }
    *fd = opened;
    return ESPL_OK;
}

enum espl_status espl_fs_read_file(const char *path, size_t limit, char **data, size_t *len,
                                   struct espl_error *err)
{
    struct espl_buf buf;
    uint64_t size = 0;
    int fd = -1;
    enum espl_status status = espl_fs_open_file(path, &fd, &size, err);
    if (status != ESPL_OK) {
        return status;
    }
    espl_buf_init(&buf, limit);
    if (size > limit) {
        status = espl_fail(err, ESPL_E_CORRUPT, "'%s' has %llu bytes, the limit is %zu", path,
                           (unsigned long long)size, limit);
        goto cleanup;
    }
    status = read_all(fd, path, limit, &buf, err);
    if (status != ESPL_OK) {
        goto cleanup;
    }
    if (!espl_buf_add(&buf, "", 0)) { /* an empty file, too, is a text */
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory while reading '%s'", path);
        goto cleanup;
    }
    *data = buf.data;
    *len = buf.len;
    espl_buf_init(&buf, limit); /* the caller owns the memory now */

cleanup:
    espl_buf_free(&buf);
    (void)close(fd); /* only read from */
    return status;
}

static int write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        const ssize_t put = write(fd, data, len);
        if (put < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno;
        }
        data += put;
        len -= (size_t)put;
    }
    return 0;
}

/* fsync by name. Returns 0 or an errno. */
static int sync_path(const char *path, int flags)
{
    const int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    int reason = 0;
    while (fsync(fd) != 0) {
        if (errno != EINTR) {
            reason = errno;
            break;
        }
    }
    if (close(fd) != 0 && reason == 0 && errno != EINTR) {
        reason = errno;
    }
    return reason;
}

static enum espl_status sync_parent(const char *path, struct espl_error *err)
{
    char parent[ESPL_PATH_MAX];
    const enum espl_status status = parent_of(path, parent, err);
    if (status != ESPL_OK) {
        return status;
    }
    const int reason = sync_path(parent, O_RDONLY | O_DIRECTORY);
    /* Some network file systems have no fsync for folders and keep names durable by themselves. */
    if (reason == 0 || reason == EINVAL || reason == ENOTSUP) {
        return ESPL_OK;
    }
    return add_advice(err, espl_fail_errno(err, reason, "cannot flush folder '%s'", parent),
                      parent);
}

enum espl_status espl_fs_make_dirs(const char *path, struct espl_error *err)
{
    char partial[ESPL_PATH_MAX];
    const size_t len = strlen(path);
    if (len >= sizeof partial) {
        return espl_fail(err, ESPL_E_IO, "path is too long: '%.100s...'", path);
    }
    for (size_t i = 1; i <= len; i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        (void)snprintf(partial, sizeof partial, "%.*s", (int)i, path);
        if (mkdir(partial, 0777) == 0) {
            const enum espl_status status = sync_parent(partial, err);
            if (status != ESPL_OK) {
                return status;
            }
            continue;
        }
        const int reason = errno;
        /* Besides EEXIST: a read-only parent of a folder that is there already. */
        if (!espl_fs_is_dir(partial) && reason == EEXIST) {
            return espl_fail(err, ESPL_E_IO, "cannot create folder '%s': '%s' is not a folder",
                             path, partial);
        }
        if (!espl_fs_is_dir(partial)) {
            return add_advice(err, espl_fail_errno(err, reason, "cannot create folder '%s'", path),
                              partial);
        }
    }
    return ESPL_OK;
}

enum espl_status espl_fs_publish(const char *tmp_path, const char *final_path,
                                 struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    int reason = sync_path(tmp_path, O_RDONLY);
    if (reason != 0) {
        status = espl_fail_errno(err, reason, "cannot flush '%s'", tmp_path);
        goto failed;
    }
    if (rename(tmp_path, final_path) != 0) {
        reason = errno;
        status = espl_fail_errno(err, reason, "cannot publish '%s'", final_path);
        status = espl_fs_advise_folder(final_path, status, err);
        goto failed;
    }
    return sync_parent(final_path, err);

failed:
    (void)unlink(tmp_path); /* the first error is the one to report */
    return add_advice(err, status, tmp_path);
}

enum espl_status espl_fs_write_file(const char *path, const void *data, size_t len,
                                    struct espl_error *err)
{
    char temporary[ESPL_PATH_MAX];
    enum espl_status status = espl_fs_temporary_name(temporary, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        return add_advice(err, espl_fail_errno(err, errno, "cannot create '%s'", temporary),
                          temporary);
    }
    int reason = write_all(fd, data, len);
    if (close(fd) != 0 && reason == 0 && errno != EINTR) {
        reason = errno;
    }
    if (reason != 0) {
        (void)unlink(temporary); /* the first error is the one to report */
        return add_advice(err, espl_fail_errno(err, reason, "cannot write '%s'", path), path);
    }
    return espl_fs_publish(temporary, path, err);
}

enum espl_status espl_fs_refresh_link(const char *target, const char *link_path,
                                      struct espl_error *err)
{
    char temporary[ESPL_PATH_MAX];
    enum espl_status status = espl_fs_temporary_name(temporary, link_path, err);
    if (status != ESPL_OK) {
        return status;
    }
    (void)unlink(temporary); /* a leftover of an earlier process with this id, or nothing */
    if (symlink(target, temporary) != 0) {
        return add_advice(err, espl_fail_errno(err, errno, "cannot create link '%s'", link_path),
                          link_path);
    }
    /* No fsync: links are made anew by every run, an old one after a power cut is harmless. */
    if (rename(temporary, link_path) != 0) {
        const int reason = errno;
        (void)unlink(temporary); /* the first error is the one to report */
        return add_advice(err, espl_fail_errno(err, reason, "cannot replace link '%s'", link_path),
                          link_path);
    }
    return ESPL_OK;
}

const char *espl_fs_shown_path(const char *path, char out[ESPL_PATH_MAX])
{
    char folder[ESPL_PATH_MAX];
    const char *shown = path;
    if (getcwd(folder, sizeof folder) != NULL) {
        const size_t len = strlen(folder);
        if (strcmp(path, folder) == 0) {
            shown = ".";
        } else if (len > 1 && strncmp(path, folder, len) == 0 && path[len] == '/') {
            shown = path + len + 1;
        }
    }
    (void)snprintf(out, ESPL_PATH_MAX, "%s", shown);
    return out;
}

enum espl_status espl_fs_free_bytes(const char *path, uint64_t *bytes, struct espl_error *err)
{
    char place[ESPL_PATH_MAX];
    char parent[ESPL_PATH_MAX];
    struct statvfs info;
    if (strlen(path) >= sizeof place) {
        return espl_fail(err, ESPL_E_IO, "path is too long: '%.100s...'", path);
    }
    (void)snprintf(place, sizeof place, "%s", path[0] == '\0' ? "." : path);
    while (statvfs(place, &info) != 0) {
        const int reason = errno;
        const enum espl_status status = parent_of(place, parent, err);
        if (status != ESPL_OK) {
            return status;
        }
        if ((reason != ENOENT && reason != ENOTDIR) || strcmp(parent, place) == 0) {
            return espl_fail_errno(err, reason, "cannot ask for free space at '%s'", path);
        }
        memcpy(place, parent, sizeof place);
    }
    const uint64_t blocks = (uint64_t)info.f_bavail;
    const uint64_t size = (uint64_t)info.f_frsize;
    *bytes = size != 0 && blocks > UINT64_MAX / size ? UINT64_MAX : blocks * size;
    return ESPL_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_dot_name(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Appends a copy of name to the array, growing it. */
static bool add_name(char ***names, size_t *count, size_t *capacity, const char *name)
{
    if (*count == *capacity) {
        const size_t larger = *capacity == 0 ? 16 : *capacity * 2;
        size_t size = 0;
        if (!espl_mul_size(larger, sizeof(char *), &size)) {
            return false;
        }
        char **grown = realloc(*names, size);
        if (grown == NULL) {
            return false;
        }
        *names = grown;
        *capacity = larger;
    }
    const size_t len = strlen(name);
    char *copy = malloc(len + 1);
    if (copy == NULL) {
        return false;
    }
    memcpy(copy, name, len + 1);
    (*names)[(*count)++] = copy;
    return true;
}

enum espl_status espl_fs_list(const char *dir, size_t limit, char ***names, size_t *count,
                              struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    char **found = NULL;
    size_t used = 0;
    size_t capacity = 0;

    DIR *stream = opendir(dir);
    if (stream == NULL) {
        return espl_fail_errno(err, errno, "cannot open folder '%s'", dir);
    }
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL) {
            if (errno != 0) {
                status = espl_fail_errno(err, errno, "cannot read folder '%s'", dir);
            }
            break;
        }
        if (is_dot_name(entry->d_name)) {
            continue;
        }
        if (used == limit) {
            status = espl_fail(err, ESPL_E_CORRUPT, "folder '%s' holds more than %zu entries", dir,
                               limit);
            break;
        }
        if (!add_name(&found, &used, &capacity, entry->d_name)) {
            status = espl_fail(err, ESPL_E_NOMEM, "out of memory while listing '%s'", dir);
            break;
        }
    }
    (void)closedir(stream); /* only read from */
    if (status != ESPL_OK) {
        espl_fs_free_names(found, used);
        return status;
    }
    if (used > 1) {
        qsort(found, used, sizeof *found, compare_names);
    }
    *names = found;
    *count = used;
    return ESPL_OK;
}

void espl_fs_free_names(char **names, size_t count)
{
    for (size_t i = 0; names != NULL && i < count; i++) {
        free(names[i]);
    }
    free(names);
}
