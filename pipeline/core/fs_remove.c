/* Removal of a folder tree, by descriptors: a link that replaces a folder while we walk cannot lead
 * us out of the tree. */
#include "core/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Each level holds a descriptor; results folders are three levels deep. */
enum { REMOVE_MAX_DEPTH = 64 };

static int remove_entry(int parent, const char *name, unsigned depth);

/* Empties an open folder; takes ownership of fd. Returns 0 or an errno. */
static int remove_contents(int fd, unsigned depth)
{
    DIR *stream = fdopendir(fd);
    if (stream == NULL) {
        const int reason = errno;
        (void)close(fd); /* only read from */
        return reason;
    }
    int reason = 0;
    while (reason == 0) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL) {
            reason = errno;
            break;
        }
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            reason = remove_entry(dirfd(stream), entry->d_name, depth + 1);
        }
    }
    (void)closedir(stream); /* only read from */
    return reason;
}

/* Deletes one file or folder below `parent`. A name that is gone already is success. */
static int remove_entry(int parent, const char *name, unsigned depth)
{
    struct stat info;
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) {
        return 0;
    }
    /* A read-only file system says so before it looks for the name. */
    if (errno == EROFS) {
        return fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT ? 0
                                                                                         : EROFS;
    }
    /* Linux says EISDIR for a folder, POSIX EPERM. */
    if (errno != EISDIR && errno != EPERM) {
        return errno;
    }
    if (depth >= REMOVE_MAX_DEPTH) {
        return ELOOP;
    }
    const int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : errno;
    }
    const int reason = remove_contents(fd, depth);
    if (reason != 0) {
        return reason;
    }
    return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : errno;
}

enum espl_status espl_fs_remove_tree(const char *path, struct espl_error *err)
{
    const int reason = remove_entry(AT_FDCWD, path, 0);
    if (reason != 0) {
        return espl_fail_errno(err, reason, "cannot remove '%s'", path);
    }
    return ESPL_OK;
}
