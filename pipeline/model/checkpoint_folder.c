#include "model/checkpoint_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is before the last '/': "." when there is none. */
static enum espl_status find_parent(const char *path, char parent[ESPL_PATH_MAX],
                                    struct espl_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
        return espl_fail(err, ESPL_E_KIND, "'%s' does not name a folder that can be made", path);
    }
    const int len = slash == NULL ? 1 : (slash == path ? 1 : (int)(slash - path));
    (void)snprintf(parent, ESPL_PATH_MAX, "%.*s", len, slash == NULL ? "." : path);
    return ESPL_OK;
}

/* Without trailing slashes; a link is followed, so that what it points at is replaced. */
static enum espl_status final_path(const char *path, char out[ESPL_PATH_MAX],
                                   struct espl_error *err)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/') {
        len--;
    }
    if (len == 0 || len >= ESPL_PATH_MAX) {
        return espl_fail(err, ESPL_E_KIND, "'%.100s' is not a usable path for a folder", path);
    }
    memcpy(out, path, len);
    out[len] = '\0';
    struct stat info;
    if (lstat(out, &info) == 0 && S_ISLNK(info.st_mode)) {
        char *real = realpath(out, NULL);
        if (real == NULL || strlen(real) >= ESPL_PATH_MAX) {
            free(real);
            return espl_fail(err, ESPL_E_KIND, "'%s' is a link that leads nowhere", path);
        }
        memcpy(out, real, strlen(real) + 1);
        free(real);
    }
    if (stat(out, &info) == 0 && !S_ISDIR(info.st_mode)) {
        return espl_fail(err, ESPL_E_KIND, "'%s' is there and is not a folder", path);
    }
    return ESPL_OK;
}

enum espl_status espl_checkpoint_folder_begin(const char *path,
                                              struct espl_checkpoint_folder *folder,
                                              struct espl_error *err)
{
    char parent[ESPL_PATH_MAX];

    folder->temporary[0] = '\0';
    enum espl_status status = final_path(path, folder->path, err);
    if (status == ESPL_OK) {
        status = find_parent(folder->path, parent, err);
    }
    if (status == ESPL_OK) {
        status = espl_fs_make_dirs(parent, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    espl_fs_remove_abandoned(folder->path);
    char temporary[ESPL_PATH_MAX];
    status = espl_fs_temporary_name(temporary, folder->path, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_fs_remove_tree(temporary, err); /* of an earlier try of this process */
    if (status == ESPL_OK && mkdir(temporary, 0777) != 0) {
        status = espl_fail_errno(err, errno, "cannot create folder '%s'", temporary);
    }
    if (status == ESPL_OK) {
        memcpy(folder->temporary, temporary, strlen(temporary) + 1);
    }
    return status;
}

static enum espl_status sync_folder(const char *path, struct espl_error *err)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return espl_fail_errno(err, errno, "cannot open folder '%s'", path);
    }
    enum espl_status status = ESPL_OK;
    if (fsync(fd) != 0 && errno != EINVAL) { /* EINVAL: file systems without folder fsync */
        status = espl_fail_errno(err, errno, "cannot make folder '%s' durable", path);
    }
    (void)close(fd);
    return status;
}

/* Puts the temporary folder in place. *replaced: what was there before is now at `temporary`. */
static enum espl_status put_in_place(const struct espl_checkpoint_folder *folder, bool *replaced,
                                     struct espl_error *err)
{
    *replaced = false;
    /* An empty folder is replaced by rename itself. */
    if (rename(folder->temporary, folder->path) == 0) {
        return ESPL_OK;
    }
    if (errno != ENOTEMPTY && errno != EEXIST) {
        return espl_fail_errno(err, errno, "cannot put folder '%s' in place", folder->path);
    }
    if (renameat2(AT_FDCWD, folder->temporary, AT_FDCWD, folder->path, RENAME_EXCHANGE) == 0) {
        *replaced = true;
        return ESPL_OK;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return espl_fail_errno(err, errno, "cannot exchange folder '%s'", folder->path);
    }
    /* File system without an exchange: for a moment there is no folder, never half a folder. */
    char aside[ESPL_PATH_MAX + 8];
    (void)snprintf(aside, sizeof aside, "%s.old", folder->temporary);
    if (rename(folder->path, aside) != 0 || rename(folder->temporary, folder->path) != 0 ||
        rename(aside, folder->temporary) != 0) {
        return espl_fail_errno(err, errno, "cannot exchange folder '%s'", folder->path);
    }
    *replaced = true;
    return ESPL_OK;
}

enum espl_status espl_checkpoint_folder_publish(struct espl_checkpoint_folder *folder,
                                                struct espl_error *err)
{
    char parent[ESPL_PATH_MAX];
    bool replaced = false;

    enum espl_status status = sync_folder(folder->temporary, err);
    if (status == ESPL_OK) {
        status = find_parent(folder->path, parent, err);
    }
    if (status == ESPL_OK) {
        status = put_in_place(folder, &replaced, err);
    }
    if (status != ESPL_OK) {
        espl_checkpoint_folder_abandon(folder);
        return status;
    }
    status = sync_folder(parent, err);
    if (replaced) { /* the old folder; the new one is in place whether this works or not */
        (void)espl_fs_remove_tree(folder->temporary, NULL);
    }
    folder->temporary[0] = '\0';
    return status;
}

void espl_checkpoint_folder_abandon(struct espl_checkpoint_folder *folder)
{
    if (folder->temporary[0] != '\0') {
        (void)espl_fs_remove_tree(folder->temporary, NULL); /* we fail already */
        folder->temporary[0] = '\0';
    }
}
