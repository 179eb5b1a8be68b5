/* libFuzzer target: archives of pictures are untrusted input; what libarchive makes of them must
 * stay within the limits and under safe names. */
#include "datasets/image_archive.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_ENTRIES = 64, MOST_FILE = 4096, MOST_TOTAL = 65536 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What came out so far. */
struct seen {
    size_t files;
    size_t bytes;
};

static bool want_all(void *user, const char *name)
{
    (void)user;
    (void)name;
    return true;
}

static enum espl_status check_file(void *user, const char *name, const uint8_t *bytes, size_t len,
                                   struct espl_error *err)
{
    struct seen *seen = user;
    (void)err;
    seen->files++;
    seen->bytes += len;
    if (!espl_archive_name_is_safe(name) || len > MOST_FILE || seen->files > MOST_ENTRIES ||
        (len > 0 && bytes == NULL)) {
        abort();
    }
    return ESPL_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct espl_archive_limits limits = {MOST_ENTRIES, MOST_FILE, MOST_TOTAL};
    struct seen seen = {0, 0};
    const struct espl_archive_visitor visitor = {&seen, want_all, check_file, NULL};
    (void)espl_archive_visit_memory(data, size, "input", &limits, &visitor, NULL);
    return 0;
}
