/* A fresh folder for one test, removed afterwards. */
#ifndef ESPL_TESTS_TEMP_FOLDER_H
#define ESPL_TESTS_TEMP_FOLDER_H

#include "core/fs.h"

#include <stdio.h>
#include <stdlib.h>

/** Makes an empty folder below $TMPDIR, or `usual` when that is not set. Stops the program when it
 * cannot. */
static inline void temp_folder_make_below(char out[ESPL_PATH_MAX], const char *usual)
{
    const char *base = getenv("TMPDIR");
    (void)snprintf(out, ESPL_PATH_MAX, "%s/espl-test-XXXXXX",
                   base != NULL && base[0] != '\0' ? base : usual);
    if (mkdtemp(out) == NULL) {
        perror("cannot make a temporary folder");
        exit(99);
    }
}

static inline void temp_folder_make(char out[ESPL_PATH_MAX])
{
    temp_folder_make_below(out, "/tmp");
}

static inline void temp_folder_remove(const char *path)
{
    (void)espl_fs_remove_tree(path, NULL);
}

#endif
