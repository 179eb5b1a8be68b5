#include "core/lock.h"

#include "core/log.h"
#include "core/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A lock file is one line: "espl-lock-1 <host> <boot id> <pid> <start ticks> <UTC time>". It gets
 * its name by link(2) from a complete temporary, so nobody ever reads half a line. */
enum { LOCK_FILE_LIMIT = 512 };

static const char unknown_boot[] = "unknown";

/* Start of a small file as a text, without memory of the heap: a lock must not be misjudged because
 * memory is short. Returns false when it cannot be read. */
static bool read_start(const char *path, char *out, size_t size)
{
    ssize_t got = -1;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    do {
        got = read(fd, out, size - 1);
    } while (got < 0 && errno == EINTR);
    (void)close(fd); /* only read from */
    if (got < 0) {
        return false;
    }
    out[got] = '\0';
    return true;
}

/* State letter and start time (fields 3 and 22 of /proc/<pid>/stat). The name in field 2 may hold
 * blanks and brackets, so counting starts after the last ')'. Returns false when they cannot be
 * had.
 */
static bool read_process(int64_t pid, char *state, uint64_t *start_ticks)
{
    enum { FIELD_STATE = 3, FIELD_START = 22 };
    char path[64];
    char text[2048];
    (void)snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    if (!read_start(path, text, sizeof text)) {
        return false;
    }
    const char *field = strrchr(text, ')');
    if (field == NULL || field[1] != ' ' || field[2] == '\0') {
        return false;
    }
    field += 2;
    *state = *field;
    for (int number = FIELD_STATE; number < FIELD_START; number++) {
        field = strchr(field, ' ');
        if (field == NULL) {
            return false;
        }
        field++;
    }
    *start_ticks = strtoull(field, NULL, 10);
    return true;
}

/* Start ticks 0 and boot id "unknown" say that this machine does not tell. */
static void fill_self(struct espl_lock_owner *owner)
{
    char state = ' ';
    char boot[64];
    char now[ESPL_UNIT_TEXT];
    memset(owner, 0, sizeof *owner);
    if (gethostname(owner->host, sizeof owner->host) != 0 || owner->host[0] == '\0') {
        (void)snprintf(owner->host, sizeof owner->host, "localhost");
    }
    owner->host[sizeof owner->host - 1] = '\0';
    if (!read_start("/proc/sys/kernel/random/boot_id", boot, sizeof boot)) {
        boot[0] = '\0';
    }
    boot[strcspn(boot, " \t\n")] = '\0';
    (void)snprintf(owner->boot_id, sizeof owner->boot_id, "%.47s",
                   boot[0] != '\0' ? boot : unknown_boot);
    owner->pid = (int64_t)getpid();
    (void)read_process(owner->pid, &state, &owner->start_ticks);
    espl_print_utc(espl_clock_utc(), now);
    (void)snprintf(owner->since_utc, sizeof owner->since_utc, "%.31s", now);
}

static bool same_owner(const struct espl_lock_owner *a, const struct espl_lock_owner *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->boot_id, b->boot_id) == 0 &&
           a->pid == b->pid && a->start_ticks == b->start_ticks;
}

/* *found: whether the file is there. A file whose text is not ours leaves *owner zeroed (pid 0). */
static enum espl_status read_owner(const char *path, struct espl_lock_owner *owner, bool *found,
                                   struct espl_error *err)
{
    char *data = NULL;
    size_t len = 0;
    memset(owner, 0, sizeof *owner);
    *found = false;
    const enum espl_status status = espl_fs_read_file(path, LOCK_FILE_LIMIT, &data, &len, err);
    if (status == ESPL_E_NOTFOUND) {
        return ESPL_OK;
    }
    if (status != ESPL_OK && status != ESPL_E_CORRUPT) {
        return status;
    }
    *found = true;
    char word[16] = "";
    struct espl_lock_owner parsed = {0};
    if (status == ESPL_OK &&
        sscanf(data, "%15s %127s %47s %" SCNd64 " %" SCNu64 " %31s", word, parsed.host,
               parsed.boot_id, &parsed.pid, &parsed.start_ticks, parsed.since_utc) == 6 &&
        strcmp(word, "espl-lock-1") == 0 && parsed.pid > 0) {
        *owner = parsed;
    }
    free(data);
    return ESPL_OK;
}

/* An owner is gone when its text is no lock of ours (ours are complete from their first moment),
 * when the host has been restarted since, or when its process has ended or the number now belongs
 * to another one. Owners on other hosts cannot be asked and count as alive. */
static bool owner_is_gone(const struct espl_lock_owner *owner, const struct espl_lock_owner *self)
{
    if (owner->pid == 0) {
        return true;
    }
    if (strcmp(owner->host, self->host) != 0) {
        return false;
    }
    if (strcmp(owner->boot_id, self->boot_id) != 0 && strcmp(owner->boot_id, unknown_boot) != 0 &&
        strcmp(self->boot_id, unknown_boot) != 0) {
        return true;
    }
    if (kill((pid_t)owner->pid, 0) != 0 && errno == ESRCH) {
        return true;
    }
    char state = ' ';
    uint64_t start_ticks = 0;
    if (!read_process(owner->pid, &state, &start_ticks)) {
        /* Ended just now, or hidden from us: decided by kill() alone. */
        return kill((pid_t)owner->pid, 0) != 0 && errno == ESRCH;
    }
    /* A zombie runs no code any more. */
    return state == 'Z' || state == 'X' ||
           (owner->start_ticks != 0 && start_ticks != owner->start_ticks);
}

static enum espl_status write_owner(const char *path, const struct espl_lock_owner *owner,
                                    struct espl_error *err)
{
    char line[LOCK_FILE_LIMIT];
    const int len =
        snprintf(line, sizeof line, "espl-lock-1 %s %s %" PRId64 " %" PRIu64 " %s\n", owner->host,
                 owner->boot_id, owner->pid, owner->start_ticks, owner->since_utc);
    if (len < 0 || (size_t)len >= sizeof line) {
        return espl_fail(err, ESPL_E_INTERNAL, "the text of lock '%s' does not fit", path);
    }
    return espl_fs_write_file(path, line, (size_t)len, err);
}

/* Gives the temporary the lock's name, if that is free. The temporary stays. */
static enum espl_status link_lock(const char *temporary, const char *path, bool *taken,
                                  struct espl_error *err)
{
    struct stat info;
    *taken = link(temporary, path) == 0;
    if (*taken) {
        return ESPL_OK;
    }
    const int reason = errno;
    /* On NFS the reply can be lost: the link count tells whether it worked. */
    if (stat(temporary, &info) == 0 && info.st_nlink == 2) {
        *taken = true;
        return ESPL_OK;
    }
    if (reason == EEXIST) {
        return ESPL_OK;
    }
    (void)espl_fail_errno(err, reason, "cannot create lock '%s'", path);
    if (reason == EPERM || reason == EOPNOTSUPP) {
        (void)espl_hint(err, "locks need hard links: keep the results on another file system");
    }
    return err != NULL ? err->code : ESPL_E_IO;
}

/* Is the open file still the one of that name? */
static bool is_named(int fd, const char *path)
{
    struct stat held;
    struct stat named;
    return fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
           held.st_dev == named.st_dev;
}

/* Opens and locks the guard file. Its holder deletes it, so after waiting it may be a file that has
 * lost its name: then a newer one counts. */
static enum espl_status lock_guard(const char *guard, int *out, struct espl_error *err)
{
    for (;;) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        const int fd = open(guard, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0) {
            return espl_fs_advise_folder(
                guard, espl_fail_errno(err, errno, "cannot create '%s'", guard), err);
        }
        while (fcntl(fd, F_SETLKW, &whole) != 0) {
            const int reason = errno;
            if (reason != EINTR) {
                (void)close(fd); /* holds nothing */
                return espl_fail_errno(err, reason, "cannot lock '%s'", guard);
            }
        }
        if (is_named(fd, guard)) {
            *out = fd;
            return ESPL_OK;
        }
        (void)close(fd); /* drops the lock of the nameless file */
    }
}

/* Takes the lock of a dead owner. Waiters do this one after the other, under an fcntl lock that the
 * kernel drops with its process; inside, the state is looked at afresh. While the lock file is
 * there nobody else can create it, and rename() replaces it without a gap. */
static enum espl_status take_over(const char *temporary, const char *path,
                                  const struct espl_lock_owner *self, bool *taken,
                                  struct espl_lock_owner *owner, struct espl_error *err)
{
    char guard[ESPL_PATH_MAX];
    bool found = false;
    int fd = -1;
    const int len = snprintf(guard, sizeof guard, "%s.guard", path);
    if (len < 0 || (size_t)len >= sizeof guard) {
        return espl_fail(err, ESPL_E_IO, "path is too long: '%.100s...'", path);
    }
    enum espl_status status = lock_guard(guard, &fd, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = read_owner(path, owner, &found, err);
    if (status == ESPL_OK && !found) {
        status = link_lock(temporary, path, taken, err);
    } else if (status == ESPL_OK && owner_is_gone(owner, self)) {
        if (rename(temporary, path) == 0) {
            *taken = true;
        } else {
            status = espl_fail_errno(err, errno, "cannot take over lock '%s'", path);
        }
    }
    (void)unlink(guard); /* while it is held; a left one is used by the next takeover */
    (void)close(fd);     /* drops the fcntl lock */
    return status;
}

enum espl_status espl_lock_try(struct espl_lock *lock, const char *path, bool *taken,
                               struct espl_lock_owner *owner, struct espl_error *err)
{
    struct espl_lock_owner self;
    struct espl_lock_owner other;
    char temporary[ESPL_PATH_MAX];
    bool found = false;

    memset(lock, 0, sizeof *lock);
    memset(&other, 0, sizeof other);
    *taken = false;
    fill_self(&self);
    enum espl_status status = espl_fs_temporary_name(temporary, path, err);
    if (status != ESPL_OK) {
        return status;
    }
    /* The usual case of a waiter: a live owner, nothing to write. */
    status = read_owner(path, &other, &found, err);
    if (status == ESPL_OK && (!found || owner_is_gone(&other, &self))) {
        status = write_owner(temporary, &self, err);
        if (status == ESPL_OK) {
            status = link_lock(temporary, path, taken, err);
        }
        if (status == ESPL_OK && !*taken) {
            status = read_owner(path, &other, &found, err);
            if (status == ESPL_OK && (!found || owner_is_gone(&other, &self))) {
                status = take_over(temporary, path, &self, taken, &other, err);
            }
        }
        (void)unlink(temporary); /* gone already after a takeover */
    }
    if (status != ESPL_OK) {
        return status;
    }
    if (*taken) {
        lock->held = true;
        (void)snprintf(lock->path, sizeof lock->path, "%s", path);
    } else if (owner != NULL) {
        *owner = other;
    }
    return ESPL_OK;
}

bool espl_lock_is_held(const char *path)
{
    struct espl_lock_owner self;
    struct espl_lock_owner owner;
    bool found = false;
    if (!espl_fs_exists(path)) {
        return false;
    }
    fill_self(&self);
    if (read_owner(path, &owner, &found, NULL) != ESPL_OK) {
        return true;
    }
    return found && !owner_is_gone(&owner, &self);
}

enum espl_status espl_lock_remove_guard(const char *guard, bool *removed, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = open(guard, O_RDWR | O_CLOEXEC);
    *removed = false;
    if (fd < 0) {
        const int reason = errno;
        *removed = reason == ENOENT;
        return *removed ? ESPL_OK : espl_fail_errno(err, reason, "cannot open '%s'", guard);
    }
    /* Deleted only while it is held, as take_over() does: whoever waits for it then sees that it
     * has lost its name. The name may by now belong to a newer file, which is then not ours to
     * delete. */
    if (fcntl(fd, F_SETLK, &whole) == 0 && is_named(fd, guard)) {
        *removed = unlink(guard) == 0;
        if (!*removed) {
            status = espl_fail_errno(err, errno, "cannot remove '%s'", guard);
        }
    }
    (void)close(fd); /* drops the fcntl lock */
    return status;
}

void espl_lock_release(struct espl_lock *lock)
{
    struct espl_lock_owner self;
    struct espl_lock_owner owner;
    bool found = false;
    if (lock == NULL || !lock->held) {
        return;
    }
    fill_self(&self);
    /* A child that inherited the structure, or a lock that someone deleted by hand, must not remove
     * the lock of another. While we live nobody takes ours, so look-then-delete is safe. */
    if (read_owner(lock->path, &owner, &found, NULL) == ESPL_OK && found &&
        same_owner(&owner, &self)) {
        (void)unlink(lock->path); /* if it fails, the next run finds a dead owner */
    }
    lock->held = false;
}
