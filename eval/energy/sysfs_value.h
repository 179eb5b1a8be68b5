/* Values of sysfs files. They are untrusted text: the length is limited, numbers are checked for
 * overflow, and whatever is not a number becomes a state, never a value. */
#ifndef ESPL_ENERGY_SYSFS_VALUE_H
#define ESPL_ENERGY_SYSFS_VALUE_H

#include "core/fs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ESPL_SYSFS_TEXT_MAX = 64, ESPL_SYSFS_LABEL_MAX = 48 };

/** What reading a rail can come to. */
enum espl_rail_state {
    ESPL_RAIL_OK,
    ESPL_RAIL_NOT_CONNECTED, /* the board's own label says NC */
    ESPL_RAIL_UNLABELLED,    /* nothing says what is measured */
    ESPL_RAIL_ABSENT,        /* the file, or the reading, is not there */
    ESPL_RAIL_DISABLED,      /* the channel is switched off (ENODATA) */
    ESPL_RAIL_DENIED,        /* no permission to read */
    ESPL_RAIL_UNREADABLE,    /* the read failed: see errno */
    ESPL_RAIL_BAD_VALUE,     /* not a number, too long, or out of the sensor's range */
    ESPL_RAIL_STALLED,       /* a read did not come back in time */
    ESPL_RAIL_WENT_BACK      /* a counter fell and no wrap-around explains it */
};

/** A few words for people ("not connected"). Never NULL. */
const char *espl_rail_state_text(enum espl_rail_state state);
/** State of a system call that failed with `sys_errno`. */
enum espl_rail_state espl_rail_state_of_errno(int sys_errno);

/** A decimal integer with optional sign and at most one newline behind it: nothing else, and at
 * most ESPL_SYSFS_TEXT_MAX bytes. text: len bytes, need not end in NUL. False when it is not one or
 * does not fit; *out is then left alone. */
bool espl_sysfs_parse_int(const char *text, size_t len, int64_t *out);
/** A label: 1 to ESPL_SYSFS_LABEL_MAX - 1 printable ASCII characters with at most one newline (or
 * the NUL of a device tree) behind. False when it is not one; out is then "". */
bool espl_sysfs_parse_label(const char *text, size_t len, char out[ESPL_SYSFS_LABEL_MAX]);

/** Opens <folder>/<name>, a regular file, for espl_sysfs_read_int(). *fd: to be closed by the
 * caller, -1 on failure. */
enum espl_rail_state espl_sysfs_open(const char *folder, const char *name, int *fd, int *sys_errno);
/** Reads the number in a file again from its start. *value is set with ESPL_RAIL_OK only. */
enum espl_rail_state espl_sysfs_read_int(int fd, int64_t *value, int *sys_errno);
/** Opens, reads and closes <folder>/<name>. */
enum espl_rail_state espl_sysfs_get_int(const char *folder, const char *name, int64_t *value);
/** Reads the label in <folder>/<name>. Errors: those of espl_fs_read_file(), CORRUPT when it is
 * no label. */
enum espl_status espl_sysfs_get_label(const char *folder, const char *name,
                                      char out[ESPL_SYSFS_LABEL_MAX], struct espl_error *err);

#endif
