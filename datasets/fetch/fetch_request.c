#include "datasets/fetch/fetch_request.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* Reads fields of one object; the first problem sticks. */
struct reader {
    struct espl_arena *arena;
    struct espl_error *err;
    enum espl_status status;
    const char *where; /* name of the file in question, or "request" */
};

static void fail_field(struct reader *reader, const char *field, const char *expected)
{
    if (reader->status == ESPL_OK) {
        reader->status = espl_fail(reader->err, ESPL_E_USAGE, "'%s' of '%.100s' must be %s", field,
                                   reader->where, expected);
    }
}

static void *allocate(struct reader *reader, size_t count, size_t size)
{
    void *const memory = espl_arena_array(reader->arena, count, size);
    if (memory == NULL && reader->status == ESPL_OK) {
        reader->status = espl_fail(reader->err, ESPL_E_NOMEM, "no memory for the request");
    }
    return memory;
}

static const char *read_text(struct reader *reader, const json_t *object, const char *field,
                             bool required)
{
    const json_t *const value = json_object_get(object, field);
    const char *const text = json_string_value(value);
    if (value == NULL && !required) {
        return NULL;
    }
    if (text == NULL || text[0] == '\0') {
        fail_field(reader, field, "a text");
        return NULL;
    }
    char *const copy = espl_arena_strdup(reader->arena, text);
    if (copy == NULL && reader->status == ESPL_OK) {
        reader->status = espl_fail(reader->err, ESPL_E_NOMEM, "no memory for the request");
    }
    return copy;
}

static const char *read_name(struct reader *reader, const json_t *object)
{
    const char *const name = read_text(reader, object, "name", true);
    if (name != NULL && !espl_cache_name_is_safe(name)) {
        fail_field(reader, "name", "a relative path without '..'");
    }
    return name;
}

static const char *read_hash(struct reader *reader, const json_t *object)
{
    const char *const hash = read_text(reader, object, "sha256", false);
    if (hash != NULL && !espl_sha256_is_hex(hash)) {
        fail_field(reader, "sha256", "64 lower-case hexadecimal digits");
    }
    return hash;
}

static uint64_t read_count(struct reader *reader, const json_t *object, const char *field,
                           uint64_t fallback, uint64_t most)
{
    const json_t *const value = json_object_get(object, field);
    const json_int_t number = json_integer_value(value);
    if (value == NULL) {
        return fallback;
    }
    if (!json_is_integer(value) || number < 0 || (uint64_t)number > most) {
        fail_field(reader, field, "a number in range");
        return fallback;
    }
    return (uint64_t)number;
}

static double read_seconds(struct reader *reader, const json_t *object, const char *field,
                           double fallback)
{
    const json_t *const value = json_object_get(object, field);
    const double number = json_number_value(value);
    if (value == NULL) {
        return fallback;
    }
    if (!json_is_number(value) || !isfinite(number) || number < 0 || number > 86400) {
        fail_field(reader, field, "seconds of a day");
        return fallback;
    }
    return number;
}

static bool read_flag(const json_t *object, const char *field)
{
    return json_is_true(json_object_get(object, field));
}

static void read_urls(struct reader *reader, const json_t *object, struct espl_fetch_file *file)
{
    const json_t *const list = json_object_get(object, "urls");
    const size_t count = json_array_size(list);
    if (count == 0 || count > 16) {
        fail_field(reader, "urls", "a list of 1 to 16 addresses");
        return;
    }
    const char **const urls = allocate(reader, count, sizeof *urls);
    for (size_t i = 0; i < count && reader->status == ESPL_OK; i++) {
        const char *const url = json_string_value(json_array_get(list, i));
        if (url == NULL || strlen(url) > 4000) {
            fail_field(reader, "urls", "a list of 1 to 16 addresses");
            return;
        }
        reader->status = espl_fetch_check_url(url, reader->err);
        urls[i] = espl_arena_strdup(reader->arena, url);
        if (urls[i] == NULL && reader->status == ESPL_OK) {
            reader->status = espl_fail(reader->err, ESPL_E_NOMEM, "no memory for the request");
        }
    }
    file->urls = urls;
    file->url_count = count;
}

static void read_members(struct reader *reader, const json_t *object, struct espl_fetch_file *file)
{
    const json_t *const list = json_object_get(object, "members");
    const size_t count = json_array_size(list);
    if (count == 0) {
        return;
    }
    if (count > ESPL_FETCH_MAX_FILES) {
        fail_field(reader, "members", "a list of at most 10000 files");
        return;
    }
    struct espl_fetch_member *const members = allocate(reader, count, sizeof *members);
    for (size_t i = 0; i < count && reader->status == ESPL_OK; i++) {
        const json_t *const item = json_array_get(list, i);
        members[i].member = read_text(reader, item, "member", true);
        members[i].name = read_name(reader, item);
        members[i].sha256 = read_hash(reader, item);
        members[i].max_bytes = read_count(reader, item, "max_bytes", UINT64_C(1) << 40, INT64_MAX);
    }
    file->members = members;
    file->member_count = count;
}

static void read_file(struct reader *reader, const json_t *object, struct espl_fetch_file *file)
{
    file->name = read_name(reader, object);
    reader->where = file->name != NULL ? file->name : "request";
    file->sha256 = read_hash(reader, object);
    file->size = read_count(reader, object, "size", 0, INT64_MAX);
    file->max_bytes = read_count(reader, object, "max_bytes", UINT64_C(1) << 40, INT64_MAX);
    file->optional = read_flag(object, "optional");
    file->hub = read_flag(object, "hub");
    file->mutable = read_flag(object, "mutable");
    read_urls(reader, object, file);
    file->key = read_text(reader, object, "key", false);
    if (file->key == NULL && file->url_count > 0) {
        file->key = file->urls[0];
    }
    read_members(reader, object, file);
    reader->where = "request";
}

static void read_settings(struct reader *reader, const json_t *root, struct espl_fetch_request *out)
{
    const char *const cache = read_text(reader, root, "cache", true);
    if (reader->status == ESPL_OK) {
        reader->status = espl_cache_locate(cache, &out->cache, reader->err);
    }
    out->hub = read_text(reader, root, "hub", false);
    out->ca_file = read_text(reader, root, "ca_file", false);
    out->proxy = read_text(reader, root, "proxy", false);
    out->token_file = read_text(reader, root, "token_file", false);
    out->retries = (unsigned)read_count(reader, root, "retries", 5, 1000);
    out->parallel = (unsigned)read_count(reader, root, "parallel", 4, 64);
    out->retry_seconds = read_seconds(reader, root, "retry_seconds", 1);
    out->stall_seconds = read_seconds(reader, root, "stall_seconds", 60);
    out->offline = read_flag(root, "offline");
    out->update = read_flag(root, "update");
    if (out->parallel == 0) {
        fail_field(reader, "parallel", "at least 1");
    }
}

enum espl_status espl_fetch_request_parse(const char *text, size_t len, struct espl_arena *arena,
                                          struct espl_fetch_request *out, struct espl_error *err)
{
    json_error_t problem;
    struct reader reader = {.arena = arena, .err = err, .where = "request"};
    json_t *const root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &problem);
    const json_t *const files = json_object_get(root, "files");
    const size_t count = json_array_size(files);
    if (root == NULL) {
        return espl_fail(err, ESPL_E_USAGE, "the request is not JSON: %s", problem.text);
    }
    read_settings(&reader, root, out);
    if (count == 0 || count > ESPL_FETCH_MAX_FILES) {
        fail_field(&reader, "files", "a list of 1 to 10000 files");
    }
    if (reader.status == ESPL_OK) {
        out->files = allocate(&reader, count, sizeof *out->files);
    }
    for (size_t i = 0; i < count && reader.status == ESPL_OK; i++) {
        read_file(&reader, json_array_get(files, i), &out->files[i]);
        out->file_count = i + 1;
    }
    json_decref(root);
    return reader.status;
}
