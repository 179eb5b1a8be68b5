/* The header and the index of safetensors files: untrusted JSON, checked member by member. */
#include "core/checked.h"
#include "core/fs.h"
#include "model/safetensors.h"
#include "model/safetensors_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** An element type of the format. */
struct file_dtype {
    const char *name;
    enum espl_dtype dtype;
    bool foreign; /* stored, not computed with */
};

static const struct file_dtype file_dtypes[] = {
    {"F16", ESPL_DTYPE_F16, false},   {"BF16", ESPL_DTYPE_BF16, false},
    {"F32", ESPL_DTYPE_F32, false},   {"F64", ESPL_DTYPE_F64, false},
    {"U8", ESPL_DTYPE_U8, false},     {"I8", ESPL_DTYPE_I8, false},
    {"U16", ESPL_DTYPE_U16, false},   {"I32", ESPL_DTYPE_I32, false},
    {"U32", ESPL_DTYPE_U32, false},   {"I64", ESPL_DTYPE_I64, false},
    {"U64", ESPL_DTYPE_U64, false},   {"BOOL", ESPL_DTYPE_U8, true},
    {"F8_E4M3", ESPL_DTYPE_U8, true}, {"F8_E5M2", ESPL_DTYPE_U8, true},
    {"F8_E8M0", ESPL_DTYPE_U8, true}, {"I16", ESPL_DTYPE_U16, true},
    {NULL, ESPL_DTYPE_U8, false},
};

const char *espl_safetensors_dtype_name(enum espl_dtype dtype)
{
    for (size_t i = 0; file_dtypes[i].name != NULL; i++) {
        if (file_dtypes[i].dtype == dtype && !file_dtypes[i].foreign) {
            return file_dtypes[i].name;
        }
    }
    return NULL;
}

/* Names go into messages, paths and other files: printable, not empty, of sane length. */
static enum espl_status check_name(const char *name, size_t limit, struct espl_error *err)
{
    const size_t len = strlen(name);
    if (len == 0 || len >= limit) {
        return espl_fail(err, ESPL_E_CORRUPT, "tensor name of %zu bytes, expected 1 to %zu", len,
                         limit - 1);
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f) {
            return espl_fail(err, ESPL_E_CORRUPT, "tensor name with a control character (0x%02x)",
                             (unsigned)(unsigned char)name[i]);
        }
    }
    return ESPL_OK;
}

static enum espl_status read_dtype(const json_t *entry, struct espl_safetensor *out,
                                   struct espl_error *err)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (name == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "tensor '%s' has no dtype", out->name);
    }
    for (size_t i = 0; file_dtypes[i].name != NULL; i++) {
        if (strcmp(file_dtypes[i].name, name) == 0) {
            out->dtype = file_dtypes[i].dtype;
            if (file_dtypes[i].foreign) {
                (void)snprintf(out->foreign, sizeof out->foreign, "%s", name);
            }
            return ESPL_OK;
        }
    }
    return espl_fail(err, ESPL_E_UNSUPPORTED, "tensor '%s' has the element type '%.32s'", out->name,
                     name);
}

static enum espl_status read_shape(const json_t *entry, struct espl_safetensor *out,
                                   struct espl_error *err)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape)) {
        return espl_fail(err, ESPL_E_CORRUPT, "tensor '%s' has no shape", out->name);
    }
    if (json_array_size(shape) > ESPL_MAX_RANK) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "tensor '%s' has %zu dimensions, more than %d",
                         out->name, json_array_size(shape), (int)ESPL_MAX_RANK);
    }
    size_t bytes = espl_dtype_size(out->dtype);
    out->rank = (unsigned)json_array_size(shape);
    for (unsigned i = 0; i < out->rank; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "dimension %u of tensor '%s' is not a whole number", i, out->name);
        }
        out->shape[i] = (uint64_t)json_integer_value(size);
        if (!espl_mul_size(bytes, (size_t)out->shape[i], &bytes)) {
            return espl_fail(err, ESPL_E_CORRUPT, "the shape of tensor '%s' overflows", out->name);
        }
    }
    out->bytes = bytes;
    return ESPL_OK;
}

/* data_offsets, relative to the data; becomes an offset in the file. data: {start, size}. */
static enum espl_status read_offsets(const json_t *entry, const uint64_t data[2],
                                     struct espl_safetensor *out, struct espl_error *err)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    const json_t *first = json_array_get(offsets, 0);
    const json_t *last = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(last)) {
        return espl_fail(err, ESPL_E_CORRUPT, "tensor '%s' has no data_offsets [begin, end]",
                         out->name);
    }
    const json_int_t begin = json_integer_value(first);
    const json_int_t end = json_integer_value(last);
    if (begin < 0 || end < begin || (uint64_t)end > data[1]) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "data_offsets %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT
                         " of tensor '%s' are not inside the %" PRIu64 " data bytes",
                         begin, end, out->name, data[1]);
    }
    if ((uint64_t)(end - begin) != out->bytes) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "tensor '%s' has %" PRIu64 " data bytes, its shape and type need %" PRIu64,
                         out->name, (uint64_t)(end - begin), out->bytes);
    }
    out->offset = data[0] + (uint64_t)begin;
    return ESPL_OK;
}

static enum espl_status read_entry(const char *name, const json_t *entry, const uint64_t data[2],
                                   struct espl_safetensor *out, struct espl_error *err)
{
    enum espl_status status = check_name(name, sizeof out->name, err);
    if (status != ESPL_OK) {
        return status;
    }
    memcpy(out->name, name, strlen(name) + 1);
    if (!json_is_object(entry)) {
        return espl_fail(err, ESPL_E_CORRUPT, "the entry of tensor '%s' is not an object", name);
    }
    status = read_dtype(entry, out, err);
    if (status == ESPL_OK) {
        status = read_shape(entry, out, err);
    }
    if (status == ESPL_OK) {
        status = read_offsets(entry, data, out, err);
    }
    return status;
}

static enum espl_status check_metadata(const json_t *metadata, struct espl_error *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(metadata)) {
        return espl_fail(err, ESPL_E_CORRUPT, "__metadata__ is not an object");
    }
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value)) {
            return espl_fail(err, ESPL_E_CORRUPT, "'%.64s' of __metadata__ is not a text", key);
        }
    }
    return ESPL_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct espl_safetensor *x = a;
    const struct espl_safetensor *y = b;
    if (x->offset != y->offset) {
        return x->offset < y->offset ? -1 : 1;
    }
    if (x->bytes != y->bytes) { /* empty tensors first */
        return x->bytes < y->bytes ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const struct espl_safetensor *x = a;
    const struct espl_safetensor *y = b;
    return strcmp(x->name, y->name);
}

/* Sorted by offset, each tensor must begin where the one before ended, up to the end of the file.
 */
static enum espl_status check_layout(struct espl_safetensor *tensors, size_t count,
                                     const uint64_t data[2], struct espl_error *err)
{
    uint64_t end = data[0];
    qsort(tensors, count, sizeof *tensors, by_offset);
    for (size_t i = 0; i < count; i++) {
        if (tensors[i].offset != end) {
            return espl_fail(err, ESPL_E_CORRUPT, "the data of tensor '%s' %s", tensors[i].name,
                             tensors[i].offset < end ? "overlap those of another"
                                                     : "come after a hole");
        }
        end += tensors[i].bytes;
    }
    if (end != data[0] + data[1]) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "%" PRIu64 " bytes at the end of the file belong to no tensor",
                         data[0] + data[1] - end);
    }
    qsort(tensors, count, sizeof *tensors, by_name);
    return ESPL_OK;
}

static enum espl_status read_entries(const json_t *root, const uint64_t data[2],
                                     struct espl_safetensor *list, size_t *count,
                                     struct espl_error *err)
{
    const char *name = NULL;
    json_t *entry = NULL;
    size_t filled = 0;
    json_object_foreach((json_t *)root, name, entry)
    {
        enum espl_status status;
        if (strcmp(name, "__metadata__") == 0) {
            status = check_metadata(entry, err);
        } else {
            status = read_entry(name, entry, data, &list[filled], err);
            filled++;
        }
        if (status != ESPL_OK) {
            return status;
        }
    }
    *count = filled;
    return check_layout(list, filled, data, err);
}

/* One JSON object; jansson checks UTF-8, duplicate keys, number range and that nothing follows. */
static enum espl_status parse_object(const void *text, size_t len, const char *what, json_t **out,
                                     struct espl_error *err)
{
    json_error_t json_err;
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &json_err);
    if (root == NULL) {
        return espl_fail(err, ESPL_E_CORRUPT, "%s is not valid JSON: %s (line %d, column %d)", what,
                         json_err.text, json_err.line, json_err.column);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return espl_fail(err, ESPL_E_CORRUPT, "%s is not a JSON object", what);
    }
    *out = root;
    return ESPL_OK;
}

enum espl_status espl_safetensors_parse_header(const void *header, size_t header_bytes,
                                               uint64_t file_bytes,
                                               struct espl_safetensor **tensors, size_t *count,
                                               struct espl_error *err)
{
    json_t *root = NULL;
    struct espl_safetensor *list = NULL;
    size_t filled = 0;
    enum espl_status status = ESPL_OK;

    if (header_bytes < 2 || header_bytes > ESPL_SAFETENSORS_MAX_HEADER ||
        file_bytes < ESPL_SAFETENSORS_LENGTH_BYTES ||
        header_bytes > file_bytes - ESPL_SAFETENSORS_LENGTH_BYTES) {
        return espl_fail(err, ESPL_E_CORRUPT,
                         "header of %zu bytes in a file of %" PRIu64
                         " bytes; a header has at most %u",
                         header_bytes, file_bytes, (unsigned)ESPL_SAFETENSORS_MAX_HEADER);
    }
    if (*(const char *)header != '{') {
        return espl_fail(err, ESPL_E_CORRUPT, "the header does not start with '{'");
    }
    const uint64_t start = ESPL_SAFETENSORS_LENGTH_BYTES + header_bytes;
    const uint64_t data[2] = {start, file_bytes - start};

    status = parse_object(header, header_bytes, "the header", &root, err);
    if (status != ESPL_OK) {
        return status;
    }
    list = calloc(json_object_size(root) + 1, sizeof *list);
    status = list == NULL ? espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu tensors",
                                      json_object_size(root))
                          : read_entries(root, data, list, &filled, err);
    json_decref(root);
    if (status != ESPL_OK) {
        free(list);
        return status;
    }
    *tensors = list;
    *count = filled;
    return ESPL_OK;
}

/* ---- index ---- */

static bool is_plain_file_name(const char *name)
{
    static const char ending[] = ".safetensors";
    const size_t len = strlen(name);
    const size_t tail = sizeof ending - 1;
    if (len <= tail || len > 255 || name[0] == '.' || strchr(name, '/') != NULL) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == '\\') {
            return false;
        }
    }
    return strcmp(name + len - tail, ending) == 0;
}

static int by_text(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;
    return strcmp(*x, *y);
}

/* File names of the map, sorted, each once. */
static enum espl_status collect_files(const json_t *map, char ***files, size_t *file_count,
                                      struct espl_error *err)
{
    const char *tensor = NULL;
    json_t *value = NULL;
    size_t count = 0;
    size_t unique = 0;
    const char **all = calloc(json_object_size(map) + 1, sizeof *all);
    char **names = calloc(json_object_size(map) + 1, sizeof *names);
    enum espl_status status = ESPL_OK;

    if (all == NULL || names == NULL) {
        status = espl_fail(err, ESPL_E_NOMEM, "out of memory for the index");
        goto cleanup;
    }
    json_object_foreach((json_t *)map, tensor, value)
    {
        const char *file = json_string_value(value);
        if (file == NULL || !is_plain_file_name(file)) {
            status = espl_fail(err, ESPL_E_CORRUPT,
                               "the index puts tensor '%.64s' into '%.128s', which is not the "
                               "name of a .safetensors file of the folder",
                               tensor, file != NULL ? file : "(not a text)");
            goto cleanup;
        }
        all[count++] = file;
    }
    qsort(all, count, sizeof *all, by_text);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && strcmp(all[i], all[i - 1]) == 0) {
            continue;
        }
        names[unique] = strdup(all[i]);
        if (names[unique] == NULL) {
            status = espl_fail(err, ESPL_E_NOMEM, "out of memory for the index");
            goto cleanup;
        }
        unique++;
    }
    *files = names;
    *file_count = unique;
    names = NULL;

cleanup:
    if (names != NULL) {
        espl_fs_free_names(names, unique);
    }
    free(all);
    return status;
}

enum espl_status espl_safetensors_parse_index(const void *text, size_t len, json_t **weight_map,
                                              char ***files, size_t *file_count,
                                              struct espl_error *err)
{
    json_t *root = NULL;
    enum espl_status status = parse_object(text, len, "the index", &root, err);
    if (status != ESPL_OK) {
        return status;
    }
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map) || json_object_size(map) == 0) {
        status = espl_fail(err, ESPL_E_CORRUPT, "the index has no weight_map");
    } else {
        status = collect_files(map, files, file_count, err);
    }
    if (status == ESPL_OK) {
        *weight_map = json_incref(map);
    }
    json_decref(root);
    return status;
}
