/* A folder for targets whose parsers read files: in memory where there is /dev/shm, made once. */
#ifndef ESPL_FUZZ_MEMORY_FOLDER_H
#define ESPL_FUZZ_MEMORY_FOLDER_H

#include "core/fs.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char memory_folder_path[ESPL_PATH_MAX];

static inline void memory_folder_remove(void)
{
    (void)espl_fs_remove_tree(memory_folder_path, NULL); /* at worst it stays */
}

/** The folder; removed when the process ends in order. */
static inline const char *memory_folder(void)
{
    if (memory_folder_path[0] == '\0') {
        (void)snprintf(memory_folder_path, sizeof memory_folder_path, "%s/espl-fuzz-XXXXXX",
                       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        if (mkdtemp(memory_folder_path) == NULL || atexit(memory_folder_remove) != 0) {
            abort();
        }
    }
    return memory_folder_path;
}

#endif
