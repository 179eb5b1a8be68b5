#include "artifact/artifact.h"

#include "artifact/artifact_internal.h"
#include "core/checked.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct dtype_row {
    const char *name;
    size_t size;
} dtype_rows[] = {
    [ESPL_DTYPE_U8] = {"u8", 1},   [ESPL_DTYPE_I8] = {"i8", 1},   [ESPL_DTYPE_U16] = {"u16", 2},
    [ESPL_DTYPE_I32] = {"i32", 4}, [ESPL_DTYPE_U32] = {"u32", 4}, [ESPL_DTYPE_I64] = {"i64", 8},
    [ESPL_DTYPE_U64] = {"u64", 8}, [ESPL_DTYPE_F16] = {"f16", 2}, [ESPL_DTYPE_BF16] = {"bf16", 2},
    [ESPL_DTYPE_F32] = {"f32", 4}, [ESPL_DTYPE_F64] = {"f64", 8},
};

enum { DTYPE_COUNT = sizeof dtype_rows / sizeof dtype_rows[0] };

static bool dtype_is_known(enum espl_dtype dtype)
{
    return (unsigned)dtype < DTYPE_COUNT;
}

size_t espl_dtype_size(enum espl_dtype dtype)
{
    return dtype_is_known(dtype) ? dtype_rows[dtype].size : 0;
}

const char *espl_dtype_name(enum espl_dtype dtype)
{
    return dtype_is_known(dtype) ? dtype_rows[dtype].name : "unknown";
}

bool espl_dtype_parse(const char *name, enum espl_dtype *out)
{
    for (unsigned i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(name, dtype_rows[i].name) == 0) {
            *out = (enum espl_dtype)i;
            return true;
        }
    }
    return false;
}

struct espl_tensor_info espl_tensor_info_make(const char *path, enum espl_dtype dtype,
                                              unsigned rank, const uint64_t *shape)
{
    struct espl_tensor_info info;
    memset(&info, 0, sizeof info);
    const size_t len = strnlen(path, ESPL_TENSOR_PATH - 1);
    memcpy(info.path, path, len);
    info.dtype = dtype;
    info.rank = rank;
    info.bytes = espl_dtype_size(dtype);
    for (unsigned i = 0; i < rank && i < ESPL_MAX_RANK; i++) {
        size_t product = 0;
        info.shape[i] = shape[i];
        info.logical_shape[i] = shape[i];
        /* An impossible size stays visible: no dataset of it can be created. */
        info.bytes = espl_mul_size(info.bytes, shape[i], &product) ? product : UINT64_MAX;
    }
    return info;
}

void espl_artifact_library_init(void)
{
    /* None of these can fail in a way that matters later: the settings are flags of the library. */
    (void)H5PLset_loading_state(0);
    (void)H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

struct espl_artifact *espl_artifact_new(const char *path)
{
    struct espl_artifact *artifact = calloc(1, sizeof *artifact);
    if (artifact == NULL) {
        return NULL;
    }
    artifact->stream.fd = -1;
    artifact->file = H5I_INVALID_HID;
    artifact->path = espl_artifact_copy_text(path);
    if (artifact->path == NULL) {
        free(artifact);
        return NULL;
    }
    return artifact;
}

void espl_artifact_free(struct espl_artifact *artifact)
{
    if (artifact == NULL) {
        return;
    }
    /* Closing may want to write: a file that was not finished is not worth it. */
    artifact->stream.discard = true;
    for (size_t i = 0; i < artifact->entry_count; i++) {
        espl_artifact_clear_entry(&artifact->entries[i]);
    }
    free(artifact->entries);
    if (artifact->file >= 0) {
        (void)H5Fclose(artifact->file); /* nothing is written any more, so nothing can be lost */
    }
    espl_h5_release_stream(&artifact->stream);
    if (artifact->stream.fd >= 0) {
        (void)close(artifact->stream.fd);
    }
    espl_artifact_texts_free(&artifact->attributes);
    espl_artifact_texts_free(&artifact->provenance);
    free(artifact->description);
    free(artifact->path);
    free(artifact);
}

char *espl_artifact_copy_text(const char *text)
{
    const size_t size = strlen(text) + 1;
    char *copy = malloc(size);
    if (copy != NULL) {
        memcpy(copy, text, size);
    }
    return copy;
}

bool espl_artifact_texts_set(struct espl_artifact_texts *texts, const char *name, const char *value)
{
    char *new_value = espl_artifact_copy_text(value);
    if (new_value == NULL) {
        return false;
    }
    for (size_t i = 0; i < texts->count; i++) {
        if (strcmp(texts->items[i].name, name) == 0) {
            free(texts->items[i].value);
            texts->items[i].value = new_value;
            return true;
        }
    }
    if (texts->count == texts->capacity) {
        const size_t capacity = texts->capacity == 0 ? 16 : texts->capacity * 2;
        struct espl_artifact_text *items = realloc(texts->items, capacity * sizeof *items);
        if (items == NULL) {
            free(new_value);
            return false;
        }
        texts->items = items;
        texts->capacity = capacity;
    }
    char *new_name = espl_artifact_copy_text(name);
    if (new_name == NULL) {
        free(new_value);
        return false;
    }
    texts->items[texts->count].name = new_name;
    texts->items[texts->count].value = new_value;
    texts->count++;
    return true;
}

const char *espl_artifact_texts_get(const struct espl_artifact_texts *texts, const char *name)
{
    for (size_t i = 0; i < texts->count; i++) {
        if (strcmp(texts->items[i].name, name) == 0) {
            return texts->items[i].value;
        }
    }
    return NULL;
}

static int compare_texts(const void *a, const void *b)
{
    const struct espl_artifact_text *left = a;
    const struct espl_artifact_text *right = b;
    return strcmp(left->name, right->name);
}

void espl_artifact_texts_sort(struct espl_artifact_texts *texts)
{
    if (texts->count > 1) {
        qsort(texts->items, texts->count, sizeof *texts->items, compare_texts);
    }
}

void espl_artifact_texts_free(struct espl_artifact_texts *texts)
{
    for (size_t i = 0; i < texts->count; i++) {
        free(texts->items[i].name);
        free(texts->items[i].value);
    }
    free(texts->items);
    memset(texts, 0, sizeof *texts);
}

struct espl_artifact_entry *espl_artifact_add_entry(struct espl_artifact *artifact)
{
    if (artifact->entry_count == artifact->entry_capacity) {
        const size_t capacity = artifact->entry_capacity == 0 ? 16 : artifact->entry_capacity * 2;
        size_t size = 0;
        if (!espl_mul_size(capacity, sizeof *artifact->entries, &size)) {
            return NULL;
        }
        struct espl_artifact_entry *entries = realloc(artifact->entries, size);
        if (entries == NULL) {
            return NULL;
        }
        artifact->entries = entries;
        artifact->entry_capacity = capacity;
    }
    struct espl_artifact_entry *entry = &artifact->entries[artifact->entry_count++];
    memset(entry, 0, sizeof *entry);
    entry->dataset = H5I_INVALID_HID;
    return entry;
}

struct espl_artifact_entry *espl_artifact_find_entry(const struct espl_artifact *artifact,
                                                     const char *path)
{
    for (size_t i = artifact->entry_count; i > 0; i--) {
        if (strcmp(artifact->entries[i - 1].info.path, path) == 0) {
            return &artifact->entries[i - 1];
        }
    }
    return NULL;
}

void espl_artifact_clear_entry(struct espl_artifact_entry *entry)
{
    if (entry->dataset >= 0) {
        (void)H5Dclose(entry->dataset); /* of an unfinished file: its data are not wanted */
    }
    entry->dataset = H5I_INVALID_HID;
    espl_sha256_destroy(entry->hash);
    entry->hash = NULL;
    free(entry->external_file);
    entry->external_file = NULL;
}

static int compare_entries(const void *a, const void *b)
{
    const struct espl_artifact_entry *left = a;
    const struct espl_artifact_entry *right = b;
    return strcmp(left->info.path, right->info.path);
}

void espl_artifact_sort_entries(struct espl_artifact *artifact)
{
    if (artifact->entry_count > 1) {
        qsort(artifact->entries, artifact->entry_count, sizeof *artifact->entries, compare_entries);
    }
}

/* Absolute, no empty, "." or ".." parts, not in the places that are not tensors. */
static bool path_is_good(const char *path)
{
    static const char *const reserved[] = {"/description", "/provenance"};
    if (path[0] != '/' || path[1] == '\0') {
        return false;
    }
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        const size_t len = strlen(reserved[i]);
        if (strncmp(path, reserved[i], len) == 0 && (path[len] == '\0' || path[len] == '/')) {
            return false;
        }
    }
    for (const char *part = path; *part == '/';) {
        part++;
        const size_t len = strcspn(part, "/");
        if (len == 0 || (len == 1 && part[0] == '.') || (len == 2 && memcmp(part, "..", 2) == 0)) {
            return false;
        }
        part += len;
    }
    return true;
}

static bool packing_is_good(const struct espl_tensor_info *info)
{
    if (memchr(info->packing, '\0', sizeof info->packing) == NULL) {
        return false;
    }
    if (strcmp(info->packing, "bitmask-lsb0") != 0) {
        return true; /* other packings are described where their kinds are */
    }
    if (info->dtype != ESPL_DTYPE_U8 || info->rank == 0) {
        return false;
    }
    const unsigned last = info->rank - 1;
    for (unsigned i = 0; i < last; i++) {
        if (info->shape[i] != info->logical_shape[i]) {
            return false;
        }
    }
    return info->shape[last] == espl_ceil_div(info->logical_shape[last], 8);
}

enum espl_status espl_artifact_check_info(struct espl_artifact_entry *entry, enum espl_status code,
                                          struct espl_error *err)
{
    struct espl_tensor_info *info = &entry->info;
    info->path[ESPL_TENSOR_PATH - 1] = '\0';
    if (!path_is_good(info->path)) {
        return espl_fail(err, code, "bad tensor path '%s'", info->path);
    }
    if (info->rank > ESPL_MAX_RANK || espl_dtype_size(info->dtype) == 0) {
        return espl_fail(err, code, "tensor '%s' has rank %u and element type %d", info->path,
                         info->rank, (int)info->dtype);
    }
    size_t row_bytes = espl_dtype_size(info->dtype);
    size_t bytes = 0;
    bool fits = true;
    for (unsigned i = 1; i < info->rank; i++) {
        fits = fits && espl_mul_size(row_bytes, info->shape[i], &row_bytes);
    }
    entry->rows = info->rank == 0 ? 1 : info->shape[0];
    fits = fits && espl_mul_size(row_bytes, entry->rows, &bytes) && bytes <= (size_t)INT64_MAX;
    if (!fits) {
        return espl_fail(err, code, "tensor '%s' is too large for 63-bit sizes", info->path);
    }
    if (info->bytes != bytes) {
        return espl_fail(err, code, "tensor '%s' has a shape of %zu bytes, but %llu are stated",
                         info->path, bytes, (unsigned long long)info->bytes);
    }
    if (!packing_is_good(info)) {
        return espl_fail(err, code, "tensor '%s' has a shape that does not fit its packing '%.31s'",
                         info->path, info->packing);
    }
    entry->row_bytes = row_bytes;
    return ESPL_OK;
}

static void hash_number(struct espl_sha256 *hash, uint64_t value)
{
    unsigned char bytes[8];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)((value >> (8 * i)) & 0xffu);
    }
    espl_sha256_update(hash, bytes, sizeof bytes);
}

static void hash_text(struct espl_sha256 *hash, const char *text)
{
    espl_sha256_update_field(hash, text, strlen(text));
}

enum espl_status espl_artifact_hash_content(const struct espl_artifact *artifact,
                                            char hex[ESPL_SHA256_HEX], struct espl_error *err)
{
    struct espl_sha256 *hash = espl_sha256_create();
    if (hash == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a content hash");
    }
    hash_text(hash, "espl-content-1");
    hash_text(hash, artifact->kind);
    hash_text(hash, artifact->description != NULL ? artifact->description : "{}");
    hash_number(hash, artifact->entry_count);
    for (size_t i = 0; i < artifact->entry_count; i++) {
        const struct espl_tensor_info *info = &artifact->entries[i].info;
        hash_text(hash, info->path);
        hash_text(hash, espl_dtype_name(info->dtype));
        hash_number(hash, info->rank);
        for (unsigned k = 0; k < info->rank; k++) {
            hash_number(hash, info->shape[k]);
        }
        hash_text(hash, info->packing);
        for (unsigned k = 0; k < info->rank; k++) {
            hash_number(hash, info->logical_shape[k]);
        }
        hash_text(hash, info->sha256);
    }
    espl_sha256_finish(hash, hex);
    espl_sha256_destroy(hash);
    if (hex[0] == '\0') {
        return espl_fail(err, ESPL_E_INTERNAL, "libcrypto failed to compute a SHA-256 hash");
    }
    return ESPL_OK;
}

const char *espl_artifact_path(const struct espl_artifact *artifact)
{
    return artifact->path;
}

const char *espl_artifact_kind(const struct espl_artifact *artifact)
{
    return artifact->kind;
}

const char *espl_artifact_content_sha256(const struct espl_artifact *artifact)
{
    return artifact->content_sha256;
}

const char *espl_artifact_attribute(const struct espl_artifact *artifact, const char *name)
{
    const char *value = espl_artifact_texts_get(&artifact->attributes, name);
    return value != NULL ? value : "";
}

const char *espl_artifact_description(const struct espl_artifact *artifact)
{
    return artifact->description != NULL ? artifact->description : "{}";
}

size_t espl_artifact_tensor_count(const struct espl_artifact *artifact)
{
    return artifact->entry_count;
}

const struct espl_tensor_info *espl_artifact_tensor(const struct espl_artifact *artifact,
                                                    size_t index)
{
    return index < artifact->entry_count ? &artifact->entries[index].info : NULL;
}
