/* Runs a fuzz target over every file of a corpus folder: `replay FOLDER`. Fails when the folder
 * holds no file, so that a moved corpus does not pass unseen. */
#include "core/fs.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int main(int argc, char **argv)
{
    struct espl_error err = {0};
    char **names = NULL;
    size_t count = 0;
    size_t done = 0;
    if (argc != 2 || espl_fs_list(argv[1], 100000, &names, &count, &err) != ESPL_OK) {
        fprintf(stderr, "replay: %s\n", argc == 2 ? err.message : "usage: replay FOLDER");
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        char path[ESPL_PATH_MAX];
        char *data = NULL;
        size_t len = 0;
        if (espl_fs_join(path, argv[1], names[i], &err) != ESPL_OK ||
            espl_fs_read_file(path, (size_t)1 << 26, &data, &len, &err) != ESPL_OK) {
            fprintf(stderr, "replay: %s\n", err.message);
            return 1;
        }
        (void)LLVMFuzzerTestOneInput((const uint8_t *)data, len);
        free(data);
        done++;
    }
    espl_fs_free_names(names, count);
    printf("%zu inputs replayed\n", done);
    return done > 0 ? 0 : 1;
}
