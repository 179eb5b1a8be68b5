#include "eval/energy/sysfs_value.h"

#include "core/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* sysfs gives one page as the size of a small file, and pages have up to 64 KiB. */
static const size_t page_max = 1 << 16;

const char *espl_rail_state_text(enum espl_rail_state state)
{
    static const char *const texts[] = {
        [ESPL_RAIL_OK] = "ok",
        [ESPL_RAIL_NOT_CONNECTED] = "not connected",
        [ESPL_RAIL_UNLABELLED] = "without a label",
        [ESPL_RAIL_ABSENT] = "not there",
        [ESPL_RAIL_DISABLED] = "disabled",
        [ESPL_RAIL_DENIED] = "permission denied",
        [ESPL_RAIL_UNREADABLE] = "not readable",
        [ESPL_RAIL_BAD_VALUE] = "not a valid value",
        [ESPL_RAIL_STALLED] = "stalled",
        [ESPL_RAIL_WENT_BACK] = "a counter that went back",
    };
    return texts[state];
}

enum espl_rail_state espl_rail_state_of_errno(int sys_errno)
{
    switch (sys_errno) {
    case ENOENT:
    case ENODEV:
    case ENXIO:
        return ESPL_RAIL_ABSENT;
    case ENODATA:
        return ESPL_RAIL_DISABLED;
    case EACCES:
    case EPERM:
        return ESPL_RAIL_DENIED;
    case ETIMEDOUT:
        return ESPL_RAIL_STALLED;
    default:
        return ESPL_RAIL_UNREADABLE;
    }
}

bool espl_sysfs_parse_int(const char *text, size_t len, int64_t *out)
{
    char copy[ESPL_SYSFS_TEXT_MAX + 1];
    if (len > ESPL_SYSFS_TEXT_MAX) {
        return false;
    }
    if (len > 0 && text[len - 1] == '\n') {
        len--;
    }
    if (memchr(text, '\0', len) != NULL) {
        return false; /* a NUL would hide what stands behind it */
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    return espl_parse_int(copy, out);
}

bool espl_sysfs_parse_label(const char *text, size_t len, char out[ESPL_SYSFS_LABEL_MAX])
{
    out[0] = '\0';
    if (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\0')) {
        len--;
    }
    if (len == 0 || len >= ESPL_SYSFS_LABEL_MAX) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] < ' ' || text[i] > '~') {
            return false;
        }
    }
    memcpy(out, text, len);
    out[len] = '\0';
    return true;
}

enum espl_rail_state espl_sysfs_open(const char *folder, const char *name, int *fd, int *sys_errno)
{
    char path[ESPL_PATH_MAX];
    struct espl_error err = {0};
    *fd = -1;
    *sys_errno = 0;
    /* Refuses folders and pipes: a pipe without a writer would never answer. */
    if (espl_fs_join(path, folder, name, &err) == ESPL_OK &&
        espl_fs_open_file(path, fd, NULL, &err) == ESPL_OK) {
        return ESPL_RAIL_OK;
    }
    *sys_errno = err.sys_errno;
    return err.sys_errno != 0 ? espl_rail_state_of_errno(err.sys_errno) : ESPL_RAIL_UNREADABLE;
}

enum espl_rail_state espl_sysfs_read_int(int fd, int64_t *value, int *sys_errno)
{
    char text[ESPL_SYSFS_TEXT_MAX + 1]; /* one more, so that a longer text is seen */
    ssize_t len = -1;
    do {
        len = pread(fd, text, sizeof text, 0);
    } while (len < 0 && errno == EINTR);
    *sys_errno = len < 0 ? errno : 0;
    if (len < 0) {
        return espl_rail_state_of_errno(*sys_errno);
    }
    return espl_sysfs_parse_int(text, (size_t)len, value) ? ESPL_RAIL_OK : ESPL_RAIL_BAD_VALUE;
}

enum espl_rail_state espl_sysfs_get_int(const char *folder, const char *name, int64_t *value)
{
    int fd = -1;
    int sys_errno = 0;
    enum espl_rail_state state = espl_sysfs_open(folder, name, &fd, &sys_errno);
    if (state == ESPL_RAIL_OK) {
        state = espl_sysfs_read_int(fd, value, &sys_errno);
        (void)close(fd); /* only read from */
    }
    return state;
}

enum espl_status espl_sysfs_get_label(const char *folder, const char *name,
                                      char out[ESPL_SYSFS_LABEL_MAX], struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    out[0] = '\0';
    enum espl_status status = espl_fs_join(path, folder, name, err);
    if (status == ESPL_OK) {
        status = espl_fs_read_file(path, page_max, &text, &len, err);
    }
    if (status == ESPL_OK && !espl_sysfs_parse_label(text, len, out)) {
        status = espl_fail(err, ESPL_E_CORRUPT, "'%s' holds no label", path);
    }
    free(text);
    return status;
}
