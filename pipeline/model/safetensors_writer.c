/* Streaming writer: the header is known before the data, so no piece needs to be held. */
#include "core/buf.h"
#include "core/checked.h"
#include "core/fs.h"
#include "model/safetensors.h"
#include "model/safetensors_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct espl_safetensors_writer {
    char path[ESPL_PATH_MAX];
    char tmp_path[ESPL_PATH_MAX];
    int fd;
    bool created;      /* the temporary file exists */
    uint64_t expected; /* data bytes */
    uint64_t written;
};

static enum espl_status write_all(struct espl_safetensors_writer *writer, const void *data,
                                  size_t len, struct espl_error *err)
{
    size_t done = 0;
    while (done < len) {
        const ssize_t put = write(writer->fd, (const char *)data + done, len - done);
        if (put < 0 && errno == EINTR) {
            continue;
        }
        if (put < 0) {
            return espl_fail_errno(err, errno, "cannot write '%s'", writer->path);
        }
        done += (size_t)put;
    }
    return ESPL_OK;
}

/* {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]}; *end moves behind the tensor. */
static enum espl_status add_entry(json_t *root, const struct espl_safetensor *tensor, uint64_t *end,
                                  struct espl_error *err)
{
    const char *dtype = espl_safetensors_dtype_name(tensor->dtype);
    size_t bytes = espl_dtype_size(tensor->dtype);
    json_t *shape = json_array();
    bool fits = tensor->rank <= ESPL_MAX_RANK;

    for (unsigned i = 0; fits && i < tensor->rank; i++) {
        fits = espl_mul_size(bytes, (size_t)tensor->shape[i], &bytes);
        (void)json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
    }
    if (!fits || dtype == NULL || *end > (uint64_t)INT64_MAX - bytes ||
        json_object_get(root, tensor->name) != NULL) {
        json_decref(shape);
        return espl_fail(err, ESPL_E_INTERNAL, "tensor '%s' cannot be in a safetensors file",
                         tensor->name);
    }
    json_t *entry = json_object();
    json_t *offsets = json_array();
    (void)json_array_append_new(offsets, json_integer((json_int_t)*end));
    *end += bytes;
    (void)json_array_append_new(offsets, json_integer((json_int_t)*end));
    (void)json_object_set_new(entry, "dtype", json_string(dtype));
    (void)json_object_set_new(entry, "shape", shape);
    (void)json_object_set_new(entry, "data_offsets", offsets);
    if (json_object_set_new(root, tensor->name, entry) != 0) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a safetensors header");
    }
    return ESPL_OK;
}

/* Length and header, padded with spaces so that the data start at a multiple of 8. */
static enum espl_status write_header(struct espl_safetensors_writer *writer, const json_t *root,
                                     struct espl_error *err)
{
    uint8_t length[ESPL_SAFETENSORS_LENGTH_BYTES];
    static const char spaces[] = "       ";
    char *text = json_dumps(root, JSON_COMPACT | JSON_PRESERVE_ORDER);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a safetensors header");
    }
    const size_t len = strlen(text);
    const size_t padded = (len + 7) / 8 * 8;
    for (unsigned i = 0; i < sizeof length; i++) {
        length[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    }
    enum espl_status status = ESPL_OK;
    if (padded > ESPL_SAFETENSORS_MAX_HEADER) {
        status = espl_fail(err, ESPL_E_UNSUPPORTED,
                           "a header of %zu bytes is above the limit of "
                           "the format",
                           padded);
    }
    if (status == ESPL_OK) {
        status = write_all(writer, length, sizeof length, err);
    }
    if (status == ESPL_OK) {
        status = write_all(writer, text, len, err);
    }
    if (status == ESPL_OK) {
        status = write_all(writer, spaces, padded - len, err);
    }
    free(text);
    return status;
}

static enum espl_status start_file(struct espl_safetensors_writer *writer,
                                   const struct espl_safetensor *tensors, size_t count,
                                   const char *metadata_json, struct espl_error *err)
{
    json_t *root = json_object();
    enum espl_status status = ESPL_OK;

    if (metadata_json != NULL) {
        json_t *metadata = json_loads(metadata_json, JSON_REJECT_DUPLICATES, NULL);
        if (metadata == NULL || json_object_set_new(root, "__metadata__", metadata) != 0) {
            status = espl_fail(err, ESPL_E_INTERNAL, "metadata of '%s' is not JSON", writer->path);
        }
    }
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status = add_entry(root, &tensors[i], &writer->expected, err);
    }
    if (status == ESPL_OK) {
        writer->fd = open(writer->tmp_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (writer->fd < 0) {
            status = espl_fail_errno(err, errno, "cannot create '%s'", writer->tmp_path);
        }
        writer->created = writer->fd >= 0;
    }
    if (status == ESPL_OK) {
        status = write_header(writer, root, err);
    }
    json_decref(root);
    return status;
}

enum espl_status espl_safetensors_writer_open(const char *path,
                                              const struct espl_safetensor *tensors, size_t count,
                                              const char *metadata_json,
                                              struct espl_safetensors_writer **out,
                                              struct espl_error *err)
{
    struct espl_safetensors_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a safetensors writer");
    }
    writer->fd = -1;
    enum espl_status status = espl_fs_temporary_name(writer->tmp_path, path, err);
    if (status == ESPL_OK) { /* so path is shorter than that */
        memcpy(writer->path, path, strlen(path) + 1);
        status = start_file(writer, tensors, count, metadata_json, err);
    }
    if (status != ESPL_OK) {
        espl_safetensors_writer_abandon(writer);
        return status;
    }
    *out = writer;
    return ESPL_OK;
}

enum espl_status espl_safetensors_writer_append(struct espl_safetensors_writer *writer,
                                                const void *data, size_t len,
                                                struct espl_error *err)
{
    if (len > writer->expected - writer->written) {
        return espl_fail(err, ESPL_E_INTERNAL, "more data than the header of '%s' announced",
                         writer->path);
    }
    enum espl_status status = ESPL_OK;
    if (data != NULL) {
        status = write_all(writer, data, len, err);
    } else if (lseek(writer->fd, (off_t)len, SEEK_CUR) < 0) {
        status = espl_fail_errno(err, errno, "cannot leave a hole in '%s'", writer->path);
    }
    writer->written += status == ESPL_OK ? len : 0;
    return status;
}

enum espl_status espl_safetensors_writer_finish(struct espl_safetensors_writer **writer,
                                                struct espl_error *err)
{
    struct espl_safetensors_writer *self = *writer;
    enum espl_status status = ESPL_OK;

    *writer = NULL;
    if (self->written != self->expected) {
        status = espl_fail(err, ESPL_E_INTERNAL, "'%s' got %" PRIu64 " of %" PRIu64 " data bytes",
                           self->path, self->written, self->expected);
    }
    if (status == ESPL_OK) {
        /* A hole at the end has moved the position, but not the end of the file. */
        const off_t end = lseek(self->fd, 0, SEEK_CUR);
        const bool sized = end >= 0 && ftruncate(self->fd, end) == 0;
        const int closed = close(self->fd);
        self->fd = -1;
        if (!sized || closed != 0) {
            status = espl_fail_errno(err, errno, "cannot write '%s'", self->path);
        }
    }
    if (status != ESPL_OK) {
        espl_safetensors_writer_abandon(self);
        return status;
    }
    status = espl_fs_publish(self->tmp_path, self->path, err);
    free(self);
    return status;
}

void espl_safetensors_writer_abandon(struct espl_safetensors_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    if (writer->fd >= 0) {
        (void)close(writer->fd); /* the file is thrown away */
    }
    if (writer->created) {
        (void)unlink(writer->tmp_path);
    }
    free(writer);
}
