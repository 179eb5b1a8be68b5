#include "stages/calibration/hidden_states.h"

#include "core/checked.h"
#include "core/units.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Maps `bytes` of a fresh, unlinked file. */
static enum espl_status map_file(const char *path, size_t bytes, float **data,
                                 struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) {
        return espl_fail_errno(err, errno, "cannot create '%s'", path);
    }
    (void)unlink(path); /* a leftover would only cost space, and the store removes it later */
    const int code = posix_fallocate(fd, 0, (off_t)bytes);
    if (code != 0) {
        char size[ESPL_UNIT_TEXT];
        espl_print_size(bytes, size);
        status =
            espl_fail_errno(err, code, "cannot reserve %s for hidden states in '%s'", size, path);
        espl_hint(err, "use fewer or shorter calibration windows, or a results folder on a larger "
                       "disk");
        goto cleanup;
    }
    void *mapping = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapping == MAP_FAILED) {
        status = espl_fail_errno(err, errno, "cannot map '%s'", path);
        goto cleanup;
    }
    *data = mapping;

cleanup:
    (void)close(fd); /* the mapping holds the file */
    return status;
}

enum espl_status espl_hidden_states_create(const struct espl_store *store, const char *key,
                                           size_t count, uint64_t in_memory_bytes,
                                           struct espl_hidden_states *states,
                                           struct espl_error *err)
{
    size_t bytes = 0;
    memset(states, 0, sizeof *states);
    if (count == 0 || !espl_mul_size(count, sizeof(float), &bytes)) {
        return espl_fail(err, ESPL_E_NOMEM, "hidden states of %zu values do not fit in memory",
                         count);
    }
    if (bytes <= in_memory_bytes) {
        states->data = calloc(count, sizeof(float));
        if (states->data == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "no memory for hidden states of %zu bytes", bytes);
        }
    } else {
        char path[ESPL_PATH_MAX];
        enum espl_status status = espl_store_private_path(store, key, "hidden", path, err);
        if (status == ESPL_OK) {
            status = map_file(path, bytes, &states->data, err);
        }
        if (status != ESPL_OK) {
            return status;
        }
        states->mapped = true;
    }
    states->bytes = bytes;
    return ESPL_OK;
}

void espl_hidden_states_destroy(struct espl_hidden_states *states)
{
    if (states == NULL || states->data == NULL) {
        return;
    }
    if (states->mapped) {
        (void)munmap(states->data, states->bytes);
    } else {
        free(states->data);
    }
    memset(states, 0, sizeof *states);
}
