#include "unit/golden_data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

void *golden_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fail_msg("cannot open '%s'", path);
        return NULL;
    }
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const long size = ftell(file);
    assert_true(size >= 0);
    rewind(file);
    void *data = malloc((size_t)size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)size, file), size);
    (void)fclose(file); /* only read from */
    *bytes = (size_t)size;
    return data;
}

void golden_path(const char *name, char out[GOLDEN_PATH])
{
    (void)snprintf(out, GOLDEN_PATH, "%s/tests/data/%s", ESPL_SOURCE_DIR, name);
}

static bool first_present(const char *const *patterns, size_t count, const char *name,
                          const char *probe, char out[GOLDEN_PATH])
{
    for (size_t i = 0; i < count; i++) {
        char file[GOLDEN_PATH + 64];
        (void)snprintf(out, GOLDEN_PATH, "%s/%s/%s", ESPL_SOURCE_DIR, patterns[i], name);
        (void)snprintf(file, sizeof file, "%s%s", out, probe);
        if (access(file, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

bool golden_model_dir(const char *name, char out[GOLDEN_PATH])
{
    static const char *const places[] = {"datasets/samples", "../shared/models"};
    return first_present(places, 2, name, "/config.json", out);
}

bool golden_text_path(const char *name, char out[GOLDEN_PATH])
{
    static const char *const places[] = {"../shared/data"};
    return first_present(places, 1, name, "", out);
}
