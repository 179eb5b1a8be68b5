/* Files: whole-file reads with a limit, atomic publication, folders, free space.
 *
 * Publication is the only way a result becomes visible: write a temporary file on the same file
 * system, fsync it, rename it over the final name, fsync the folder. A reader sees the old file or
 * the new one, never half of one, also after a power cut. */
#ifndef ESPL_CORE_FS_H
#define ESPL_CORE_FS_H

#include "core/buf.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ESPL_PATH_MAX = 4096 };

bool espl_fs_exists(const char *path);
bool espl_fs_is_dir(const char *path);
/** Size in bytes of a regular file. */
enum espl_status espl_fs_file_size(const char *path, uint64_t *size, struct espl_error *err);
/** mkdir -p; new folders are flushed into their parents. */
enum espl_status espl_fs_make_dirs(const char *path, struct espl_error *err);
/** Joins with one '/' (none after dir when name is empty); out must not be dir; fails with
 * ESPL_E_IO when the result does not fit in ESPL_PATH_MAX. */
enum espl_status espl_fs_join(char out[ESPL_PATH_MAX], const char *dir, const char *name,
                              struct espl_error *err);
/** Adds to the error in *err (NULL allowed) what to do when a folder stands where the file `path`
 * should be. Returns `status`. */
enum espl_status espl_fs_advise_folder(const char *path, enum espl_status status,
                                       struct espl_error *err);
/** Opens a regular file for reading. size: NULL allowed. Errors: NOTFOUND, IO, KIND (no regular
 * file). */
enum espl_status espl_fs_open_file(const char *path, int *fd, uint64_t *size,
                                   struct espl_error *err);
/** Reads a whole regular file of at most `limit` bytes, NUL-terminated (NUL not counted).
 *  *data: malloc'ed, owned by the caller. Errors: NOTFOUND, IO, CORRUPT when larger than limit. */
enum espl_status espl_fs_read_file(const char *path, size_t limit, char **data, size_t *len,
                                   struct espl_error *err);
/** Writes path atomically and durably: temporary file beside it, fsync, rename, fsync folder. */
enum espl_status espl_fs_write_file(const char *path, const void *data, size_t len,
                                    struct espl_error *err);
/** fsync(tmp_path), rename(tmp_path, final_path), fsync(folder). On failure tmp_path is unlinked.
 */
enum espl_status espl_fs_publish(const char *tmp_path, const char *final_path,
                                 struct espl_error *err);
/** Makes `link_path` a symbolic link to `target`, replacing what is there atomically. */
enum espl_status espl_fs_refresh_link(const char *target, const char *link_path,
                                      struct espl_error *err);
/** The path as people should see it: relative to the working folder when it is below ("." for that
 * folder itself). Returns out, which holds ESPL_PATH_MAX bytes. */
const char *espl_fs_shown_path(const char *path, char out[ESPL_PATH_MAX]);
/** Bytes an unprivileged writer can still use on the file system that holds `path` (or its nearest
 *  existing parent). */
enum espl_status espl_fs_free_bytes(const char *path, uint64_t *bytes, struct espl_error *err);
/** Names in a folder, sorted bytewise, without "." and ".."; CORRUPT when there are more than
 * `limit`. *names: array of malloc'ed strings; free with espl_fs_free_names(). */
enum espl_status espl_fs_list(const char *dir, size_t limit, char ***names, size_t *count,
                              struct espl_error *err);
void espl_fs_free_names(char **names, size_t count);
/** Name of a private temporary file of this process beside `path`: "<path>.<host>-<pid>.tmp",
 * <host> 8 hex digits that stand for the host's name. The functions above name theirs so. */
enum espl_status espl_fs_temporary_name(char out[ESPL_PATH_MAX], const char *path,
                                        struct espl_error *err);
/** Is `name` such a name, of this host, and is its process gone? Names of other hosts that share
 * the folder are never called abandoned: their processes cannot be asked. */
bool espl_fs_is_abandoned(const char *name);
/** Deletes what processes that are gone left beside `path` under such names of it. Best effort:
 * what cannot be deleted now does no harm. */
void espl_fs_remove_abandoned(const char *path);
/** Deletes a file or a folder with all that is in it; a missing path is success. Never follows
 * links. */
enum espl_status espl_fs_remove_tree(const char *path, struct espl_error *err);

#endif
