/* LD_PRELOAD library that stands for a full disk: the n-th call that could need space, in a whole
 * process tree and on paths below one folder, fails with ENOSPC.
 *
 *   ESPL_FAIL_FILE    file that holds the counters, shared by all processes (made when missing)
 *   ESPL_FAIL_UNDER   absolute path of the folder; calls elsewhere are neither counted nor failed
 *   ESPL_FAIL_AT      n, counted from 1; 0 or unset: only count
 *   ESPL_FAIL_STICKY  1: every call from the n-th on fails
 *   ESPL_FAIL_KIND    space (default): write pwrite writev pwritev ftruncate fsync fdatasync rename
 * link symlink mkdir; create: open with O_CREAT of a file that is not there
 *
 * Not caught: what libc writes by itself for FILE streams (log lines); a full disk costs no result
 * there.
 *
 * The counter file holds two native 64-bit numbers: calls of kind space, calls of kind create. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { KIND_SPACE, KIND_CREATE, KIND_COUNT };

/* A preloaded library has no owner to keep its state: file scope it is. */
static struct {
    _Atomic uint64_t *calls; /* KIND_COUNT counters, shared; NULL = inactive */
    const char *under;
    uint64_t fail_at;
    bool sticky;
    enum kind failing;
} fail;

/* dlsym() gives object pointers; C has no cast from them to functions, memcpy is the defined way.
 */
#define LOOK_UP(pointer, name)                         \
    do {                                               \
        void *symbol_ = dlsym(RTLD_NEXT, name);        \
        memcpy(&(pointer), &symbol_, sizeof(pointer)); \
    } while (0)

__attribute__((constructor)) static void start(void)
{
    const char *file = getenv("ESPL_FAIL_FILE");
    const char *at = getenv("ESPL_FAIL_AT");
    const char *sticky = getenv("ESPL_FAIL_STICKY");
    const char *kind = getenv("ESPL_FAIL_KIND");
    int (*real_open)(const char *, int, ...) = NULL;
    int (*real_ftruncate)(int, off_t) = NULL;
    fail.under = getenv("ESPL_FAIL_UNDER");
    if (file == NULL || fail.under == NULL) {
        return;
    }
    LOOK_UP(real_open, "open");
    LOOK_UP(real_ftruncate, "ftruncate");
    const size_t size = KIND_COUNT * sizeof(uint64_t);
    const int fd = real_open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || real_ftruncate(fd, (off_t)size) != 0) {
        fputs("fail_io: cannot use ESPL_FAIL_FILE\n", stderr);
        _exit(99);
    }
    void *mapped = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    if (mapped == MAP_FAILED) {
        fputs("fail_io: cannot map ESPL_FAIL_FILE\n", stderr);
        _exit(99);
    }
    fail.fail_at = at != NULL ? strtoull(at, NULL, 10) : 0;
    fail.sticky = sticky != NULL && strcmp(sticky, "1") == 0;
    fail.failing = kind != NULL && strcmp(kind, "create") == 0 ? KIND_CREATE : KIND_SPACE;
    fail.calls = mapped;
}

static bool is_under(const char *path)
{
    const size_t len = strlen(fail.under);
    return strncmp(path, fail.under, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

static bool descriptor_is_under(int fd)
{
    char name[64];
    char path[PATH_MAX];
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    const ssize_t len = readlink(name, path, sizeof path - 1);
    if (len <= 0) {
        return false;
    }
    path[len] = '\0';
    return is_under(path);
}

/* Paths relative to the working folder are made absolute; links are not resolved, callers name the
 * folder as the program does. */
static bool name_is_under(const char *path)
{
    char absolute[2 * PATH_MAX];
    char here[PATH_MAX];
    if (path[0] == '/') {
        return is_under(path);
    }
    if (getcwd(here, sizeof here) == NULL) {
        return false;
    }
    (void)snprintf(absolute, sizeof absolute, "%s/%s", here, path);
    return is_under(absolute);
}

/* Counts one call; true when it has to fail. */
static bool counts_and_fails(enum kind kind)
{
    const uint64_t number = atomic_fetch_add(&fail.calls[kind], 1) + 1;
    if (kind != fail.failing || fail.fail_at == 0) {
        return false;
    }
    return fail.sticky ? number >= fail.fail_at : number == fail.fail_at;
}

static bool fails_descriptor(int fd)
{
    if (fail.calls == NULL || !descriptor_is_under(fd) || !counts_and_fails(KIND_SPACE)) {
        return false;
    }
    errno = ENOSPC;
    return true;
}

static bool fails_name(const char *path)
{
    if (fail.calls == NULL || !name_is_under(path) || !counts_and_fails(KIND_SPACE)) {
        return false;
    }
    errno = ENOSPC;
    return true;
}

static bool fails_create(const char *path, int flags)
{
    struct stat info;
    if (fail.calls == NULL || (flags & O_CREAT) == 0 || !name_is_under(path) ||
        lstat(path, &info) == 0 || !counts_and_fails(KIND_CREATE)) {
        return false;
    }
    errno = ENOSPC;
    return true;
}

/* The functions below replace those of libc for every caller; their prototypes come from its
 * headers.
 */
ssize_t write(int fd, const void *data, size_t size)
{
    ssize_t (*real)(int, const void *, size_t) = NULL;
    LOOK_UP(real, "write");
    return fails_descriptor(fd) ? -1 : real(fd, data, size);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off_t) = NULL;
    LOOK_UP(real, "pwrite");
    return fails_descriptor(fd) ? -1 : real(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    ssize_t (*real)(int, const void *, size_t, off64_t) = NULL;
    LOOK_UP(real, "pwrite64");
    return fails_descriptor(fd) ? -1 : real(fd, data, size, offset);
}

ssize_t writev(int fd, const struct iovec *pieces, int count)
{
    ssize_t (*real)(int, const struct iovec *, int) = NULL;
    LOOK_UP(real, "writev");
    return fails_descriptor(fd) ? -1 : real(fd, pieces, count);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int count, off_t offset)
{
    ssize_t (*real)(int, const struct iovec *, int, off_t) = NULL;
    LOOK_UP(real, "pwritev");
    return fails_descriptor(fd) ? -1 : real(fd, pieces, count, offset);
}

int ftruncate(int fd, off_t size)
{
    int (*real)(int, off_t) = NULL;
    LOOK_UP(real, "ftruncate");
    return fails_descriptor(fd) ? -1 : real(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    int (*real)(int, off64_t) = NULL;
    LOOK_UP(real, "ftruncate64");
    return fails_descriptor(fd) ? -1 : real(fd, size);
}

int fsync(int fd)
{
    int (*real)(int) = NULL;
    LOOK_UP(real, "fsync");
    return fails_descriptor(fd) ? -1 : real(fd);
}

int fdatasync(int fd)
{
    int (*real)(int) = NULL;
    LOOK_UP(real, "fdatasync");
    return fails_descriptor(fd) ? -1 : real(fd);
}

int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *) = NULL;
    LOOK_UP(real, "rename");
    return fails_name(to) ? -1 : real(from, to);
}

int link(const char *from, const char *to)
{
    int (*real)(const char *, const char *) = NULL;
    LOOK_UP(real, "link");
    return fails_name(to) ? -1 : real(from, to);
}

int symlink(const char *target, const char *path)
{
    int (*real)(const char *, const char *) = NULL;
    LOOK_UP(real, "symlink");
    return fails_name(path) ? -1 : real(target, path);
}

int mkdir(const char *path, mode_t mode)
{
    int (*real)(const char *, mode_t) = NULL;
    struct stat info;
    LOOK_UP(real, "mkdir");
    if (lstat(path, &info) != 0 && fails_name(path)) {
        return -1;
    }
    return real(path, mode);
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = NULL;
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    LOOK_UP(real, "open");
    return fails_create(path, flags) ? -1 : real(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = NULL;
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    LOOK_UP(real, "open64");
    return fails_create(path, flags) ? -1 : real(path, flags, mode);
}
