/* Archives made in a test. */
#ifndef ESPL_TESTS_ARCHIVE_FIXTURE_H
#define ESPL_TESTS_ARCHIVE_FIXTURE_H

#include <stddef.h>

struct archive_file {
    const char *name;
    const void *bytes;
    size_t len;
    const char *link; /* not NULL: a symbolic link to this instead of a file */
};

/** Writes files in this order. ending: ".tar", ".tar.xz", ".tar.gz", ".tar.zst", ".zip". */
void archive_fixture_write(const char *path, const char *ending, const struct archive_file *files,
                           size_t count);

#endif
