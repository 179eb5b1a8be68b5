/* Checkpoint folders: which files belong to it, all their tensors under one roof, reads by pread so
 * that nothing of a checkpoint is mapped or stays in memory. */
#include "model/safetensors.h"

#include "core/buf.h"
#include "core/fs.h"
#include "model/safetensors_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    /* Reads of at least this size are streams: their pages are dropped behind them. */
    STREAM_READ = 1 << 20,
    NOTES_LIMIT = 16384
};

/* Reads exactly len bytes at offset. */
static enum espl_status read_exact(int fd, const char *path, uint64_t offset, void *dst, size_t len,
                                   struct espl_error *err)
{
    size_t done = 0;
    while (done < len) {
        const ssize_t got = pread(fd, (char *)dst + done, len - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return espl_fail_errno(err, errno, "cannot read '%s'", path);
        }
        if (got == 0) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "'%s' ends at byte %" PRIu64 ", more was expected", path,
                             offset + done);
        }
        done += (size_t)got;
    }
    return ESPL_OK;
}

static enum espl_status open_regular(const char *path, int *fd, uint64_t *size,
                                     struct espl_error *err)
{
    struct stat info;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0) {
        return espl_fail_errno(err, errno, "cannot open '%s'", path);
    }
    if (fstat(*fd, &info) != 0) {
        return espl_fail_errno(err, errno, "cannot stat '%s'", path);
    }
    if (!S_ISREG(info.st_mode)) {
        return espl_fail(err, ESPL_E_KIND, "'%s' is not a regular file", path);
    }
    *size = (uint64_t)info.st_size;
    return ESPL_OK;
}

static uint64_t little_endian_u64(const uint8_t bytes[8])
{
    uint64_t value = 0;
    for (unsigned i = 0; i < 8; i++) {
        value |= (uint64_t)bytes[i] << (8 * i);
    }
    return value;
}

static enum espl_status read_header(int fd, const char *path, uint64_t size,
                                    struct espl_safetensor **tensors, size_t *count,
                                    struct espl_error *err)
{
    uint8_t length[ESPL_SAFETENSORS_LENGTH_BYTES];
    if (size < sizeof length) {
        return espl_fail(err, ESPL_E_CORRUPT, "the file has %" PRIu64 " bytes, too few", size);
    }
    enum espl_status status = read_exact(fd, path, 0, length, sizeof length, err);
    if (status != ESPL_OK) {
        return status;
    }
    const uint64_t header_bytes = little_endian_u64(length);
    if (header_bytes > ESPL_SAFETENSORS_MAX_HEADER || header_bytes > size - sizeof length) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "header length %" PRIu64 " does not fit a file of %" PRIu64
                         " bytes (and at most %d)",
                         header_bytes, size, (int)ESPL_SAFETENSORS_MAX_HEADER);
    }
    char *header = malloc((size_t)header_bytes + 1);
    if (header == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a header of %" PRIu64 " bytes",
                         header_bytes);
    }
    status = read_exact(fd, path, sizeof length, header, (size_t)header_bytes, err);
    if (status == ESPL_OK) {
        status =
            espl_safetensors_parse_header(header, (size_t)header_bytes, size, tensors, count, err);
    }
    free(header);
    return status;
}

/* Opens file number `index` and appends its tensors. */
static enum espl_status load_file(struct espl_safetensors *set, size_t index,
                                  struct espl_error *err)
{
    struct espl_safetensors_file *file = &set->files[index];
    struct espl_safetensor *tensors = NULL;
    size_t count = 0;
    uint64_t size = 0;

    enum espl_status status = open_regular(file->path, &file->fd, &size, err);
    if (status == ESPL_OK) {
        status = read_header(file->fd, file->path, size, &tensors, &count, err);
    }
    if (status != ESPL_OK) {
        if (status == ESPL_E_CORRUPT && err != NULL && err->hint[0] == '\0') {
            (void)espl_hint(err, "the file is damaged or not whole: download or copy it again and "
                                 "compare its size and checksum");
        }
        return espl_context(err, "while reading '%s'", file->path);
    }
    struct espl_safetensor *grown = realloc(set->tensors, (set->count + count + 1) * sizeof *grown);
    if (grown == NULL) {
        free(tensors);
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu tensors", set->count + count);
    }
    set->tensors = grown;
    for (size_t i = 0; i < count; i++) {
        tensors[i].file = index;
        grown[set->count + i] = tensors[i];
    }
    set->count += count;
    free(tensors);
    return ESPL_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct espl_safetensor *x = a;
    const struct espl_safetensor *y = b;
    const int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->file < y->file ? -1 : x->file > y->file);
}

enum espl_status espl_safetensors_load_files(struct espl_safetensors *set, struct espl_error *err)
{
    for (size_t i = 0; i < set->file_count; i++) {
        const enum espl_status status = load_file(set, i, err);
        if (status != ESPL_OK) {
            return status;
        }
    }
    if (set->count == 0) {
        return espl_fail(err, ESPL_E_CORRUPT, "'%s' holds no tensors", set->files[0].path);
    }
    qsort(set->tensors, set->count, sizeof *set->tensors, by_name);
    for (size_t i = 1; i < set->count; i++) {
        const struct espl_safetensor *one = &set->tensors[i - 1];
        const struct espl_safetensor *two = &set->tensors[i];
        if (strcmp(one->name, two->name) == 0) {
            return espl_fail(err, ESPL_E_CORRUPT, "tensor '%s' is in '%s' and in '%s'", one->name,
                             espl_safetensors_base_name(set->files[one->file].path),
                             espl_safetensors_base_name(set->files[two->file].path));
        }
    }
    return ESPL_OK;
}

static enum espl_status open_single(struct espl_safetensors *set, const char *path,
                                    struct espl_error *err)
{
    if (espl_safetensors_is_pickle(path)) {
        return espl_safetensors_refuse_pickle(espl_safetensors_base_name(path), err);
    }
    if (!espl_safetensors_has_ending(path, ".safetensors")) {
        return espl_fail(err, ESPL_E_KIND, "'%s' is not a .safetensors file", path);
    }
    char *const names[] = {(char *)path}; /* only read and copied */
    const enum espl_status status = espl_safetensors_set_files(set, NULL, names, 1, err);
    return status == ESPL_OK ? espl_safetensors_load_files(set, err) : status;
}

enum espl_status espl_safetensors_open(const char *path, struct espl_safetensors **out,
                                       struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    if (!espl_fs_exists(path)) {
        return espl_fail(err, ESPL_E_NOTFOUND, "cannot find '%s'", path);
    }
    struct espl_safetensors *set = calloc(1, sizeof *set);
    if (set == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a checkpoint");
    }
    espl_buf_init(&set->notes, NOTES_LIMIT);
    status = espl_fs_is_dir(path) ? espl_safetensors_open_folder(set, path, err)
                                  : open_single(set, path, err);
    if (status != ESPL_OK) {
        espl_safetensors_close(set);
        return status;
    }
    *out = set;
    return ESPL_OK;
}

void espl_safetensors_close(struct espl_safetensors *set)
{
    if (set == NULL) {
        return;
    }
    for (size_t i = 0; i < set->file_count; i++) {
        if (set->files[i].fd >= 0) {
            (void)close(set->files[i].fd); /* read only: nothing can be lost */
        }
        free(set->files[i].path);
    }
    free(set->files);
    free(set->tensors);
    espl_buf_free(&set->notes);
    free(set);
}

size_t espl_safetensors_file_count(const struct espl_safetensors *set)
{
    return set->file_count;
}

const char *espl_safetensors_file(const struct espl_safetensors *set, size_t index)
{
    return set->files[index].path;
}

const char *espl_safetensors_notes(const struct espl_safetensors *set)
{
    return espl_buf_text(&set->notes);
}

size_t espl_safetensors_count(const struct espl_safetensors *set)
{
    return set->count;
}

const struct espl_safetensor *espl_safetensors_tensor(const struct espl_safetensors *set,
                                                      size_t index)
{
    return &set->tensors[index];
}

static int name_is(const void *key, const void *item)
{
    const struct espl_safetensor *tensor = item;
    return strcmp(key, tensor->name);
}

const struct espl_safetensor *espl_safetensors_find(const struct espl_safetensors *set,
                                                    const char *name)
{
    return bsearch(name, set->tensors, set->count, sizeof *set->tensors, name_is);
}

enum espl_status espl_safetensors_read(const struct espl_safetensors *set,
                                       const struct espl_safetensor *tensor, uint64_t offset,
                                       void *dst, size_t len, struct espl_error *err)
{
    const struct espl_safetensors_file *file = &set->files[tensor->file];
    if (offset > tensor->bytes || len > tensor->bytes - offset) {
        return espl_fail(err, ESPL_E_INTERNAL, "read outside tensor '%s'", tensor->name);
    }
    const enum espl_status status =
        read_exact(file->fd, file->path, tensor->offset + offset, dst, len, err);
    if (status != ESPL_OK) {
        return espl_context(err, "while reading tensor '%s'", tensor->name);
    }
    if (len >= STREAM_READ) {
        /* Advice only: a kernel that does not take it changes nothing but its cache. */
        (void)posix_fadvise(file->fd, (off_t)(tensor->offset + offset), (off_t)len,
                            POSIX_FADV_DONTNEED);
    }
    return ESPL_OK;
}
