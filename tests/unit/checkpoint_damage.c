#include "unit/checkpoint_damage.h"

#include "core/fs.h"
#include "unit/model_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8, READ_LIMIT = 1 << 20 };

/* ---- changing files ---- */

static char *read_bytes(const char *folder, const char *name, size_t *len)
{
    char path[ESPL_PATH_MAX];
    char *bytes = NULL;
    assert_int_equal(
        espl_fs_read_file(fixture_join(path, folder, name), READ_LIMIT, &bytes, len, NULL),
        ESPL_OK);
    return bytes;
}

static void write_bytes(const char *folder, const char *name, const void *bytes, size_t len)
{
    char path[ESPL_PATH_MAX];
    assert_int_equal(espl_fs_write_file(fixture_join(path, folder, name), bytes, len, NULL),
                     ESPL_OK);
}

static json_t *parse(const char *text, size_t len)
{
    json_t *value = json_loadb(text, len, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    return value;
}

/* object[member] = the JSON text, or the member goes. */
static void set_member(json_t *object, const char *member, const char *text)
{
    if (text == NULL) {
        assert_int_equal(json_object_del(object, member), 0);
    } else {
        assert_int_equal(json_object_set_new(object, member, parse(text, strlen(text))), 0);
    }
}

static void write_json(const char *folder, const char *name, json_t *value)
{
    char *text = json_dumps(value, JSON_COMPACT);
    assert_non_null(text);
    write_bytes(folder, name, text, strlen(text));
    free(text);
    json_decref(value);
}

void damage_change_config(const char *folder, const char *key, const char *text)
{
    size_t len = 0;
    char *bytes = read_bytes(folder, DAMAGE_CONFIG, &len);
    json_t *config = parse(bytes, len);
    set_member(config, key, text);
    write_json(folder, DAMAGE_CONFIG, config);
    free(bytes);
}

void damage_change_index(const char *folder, const char *tensor, const char *text)
{
    size_t len = 0;
    char *bytes = read_bytes(folder, DAMAGE_INDEX, &len);
    json_t *index = parse(bytes, len);
    set_member(json_object_get(index, "weight_map"), tensor, text);
    write_json(folder, DAMAGE_INDEX, index);
    free(bytes);
}

static size_t header_length(const char *bytes)
{
    uint64_t length = 0;
    for (unsigned i = 0; i < LENGTH_BYTES; i++) {
        length |= (uint64_t)(unsigned char)bytes[i] << (8 * i);
    }
    return (size_t)length;
}

/* Puts another header before the data of the weights. length: what the file says it is. */
static void put_header(const char *folder, const char *header, uint64_t length)
{
    size_t len = 0;
    char *bytes = read_bytes(folder, DAMAGE_WEIGHTS, &len);
    const size_t data = LENGTH_BYTES + header_length(bytes);
    const size_t size = strlen(header);
    char *out = malloc(LENGTH_BYTES + size + len - data);
    assert_non_null(out);
    for (unsigned i = 0; i < LENGTH_BYTES; i++) {
        out[i] = (char)(length >> (8 * i) & 0xffu);
    }
    memcpy(out + LENGTH_BYTES, header, size);
    memcpy(out + LENGTH_BYTES + size, bytes + data, len - data);
    write_bytes(folder, DAMAGE_WEIGHTS, out, LENGTH_BYTES + size + len - data);
    free(out);
    free(bytes);
}

static char *header_text(const char *folder)
{
    size_t len = 0;
    char *bytes = read_bytes(folder, DAMAGE_WEIGHTS, &len);
    const size_t size = header_length(bytes);
    memmove(bytes, bytes + LENGTH_BYTES, size);
    bytes[size] = '\0';
    return bytes;
}

static void put_header_json(const char *folder, json_t *header)
{
    char *text = json_dumps(header, JSON_COMPACT);
    assert_non_null(text);
    put_header(folder, text, strlen(text));
    free(text);
    json_decref(header);
}

/* One member of the entry of lm_head; member NULL: the entry itself. */
void damage_change_header(const char *folder, const char *member, const char *text)
{
    char *old = header_text(folder);
    json_t *header = parse(old, strlen(old));
    set_member(member == NULL ? header : json_object_get(header, DAMAGE_HEAD),
               member == NULL ? DAMAGE_HEAD : member, text);
    put_header_json(folder, header);
    free(old);
}

static void path_of(char out[ESPL_PATH_MAX], const char *folder, const char *name)
{
    (void)fixture_join(out, folder, name);
}

static void resize(const char *folder, const char *name, int64_t by)
{
    char path[ESPL_PATH_MAX];
    struct stat info;
    path_of(path, folder, name);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, (off_t)(info.st_size + by)), 0);
}

static void take_away(const char *folder, const char *name)
{
    char path[ESPL_PATH_MAX];
    path_of(path, folder, name);
    assert_int_equal(unlink(path), 0);
}

static void make_folder(const char *folder, const char *name)
{
    char path[ESPL_PATH_MAX];
    take_away(folder, name);
    path_of(path, folder, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void make_pipe(const char *folder, const char *name)
{
    char path[ESPL_PATH_MAX];
    take_away(folder, name);
    path_of(path, folder, name);
    assert_int_equal(mkfifo(path, 0600), 0);
}

static void make_dangling_link(const char *folder, const char *name)
{
    char path[ESPL_PATH_MAX];
    take_away(folder, name);
    path_of(path, folder, name);
    assert_int_equal(symlink("../../blobs/0123abcd", path), 0);
}

/* ---- changes that are more than one member ---- */

void damage_length_zero(const char *folder)
{
    char *header = header_text(folder);
    put_header(folder, header, 0);
    free(header);
}

void damage_length_beyond_the_file(const char *folder)
{
    char *header = header_text(folder);
    put_header(folder, header, UINT64_C(1) << 63);
    free(header);
}

void damage_header_is_garbage(const char *folder)
{
    put_header(folder, "{hello", 6);
}

void damage_header_is_a_list(const char *folder)
{
    put_header(folder, "[1, 2]", 6);
}

void damage_header_has_a_name_twice(const char *folder)
{
    char *header = header_text(folder);
    const size_t size = strlen(header) + 128;
    char *twice = malloc(size);
    assert_non_null(twice);
    assert_int_equal(header[0], '{');
    (void)snprintf(twice, size,
                   "{\"" DAMAGE_HEAD
                   "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},%s",
                   header + 1);
    put_header(folder, twice, strlen(twice));
    free(twice);
    free(header);
}

void damage_name_with_a_newline(const char *folder)
{
    char *old = header_text(folder);
    json_t *header = parse(old, strlen(old));
    json_t *entry = json_incref(json_object_get(header, DAMAGE_HEAD));
    assert_int_equal(json_object_del(header, DAMAGE_HEAD), 0);
    assert_int_equal(json_object_set_new(header, "lm_head\nweight", entry), 0);
    put_header_json(folder, header);
    free(old);
}

/* Moves the entry that is not the first by some bytes: over its neighbour, or off it. */
static void shift_one(const char *folder, int64_t by)
{
    char *old = header_text(folder);
    json_t *header = parse(old, strlen(old));
    const char *name = NULL;
    json_t *entry = NULL;
    json_object_foreach(header, name, entry)
    {
        json_t *offsets = json_object_get(entry, "data_offsets");
        const int64_t first = json_integer_value(json_array_get(offsets, 0));
        const int64_t last = json_integer_value(json_array_get(offsets, 1));
        if (first > 0 && strcmp(name, DAMAGE_HEAD) != 0) {
            assert_int_equal(json_array_set_new(offsets, 0, json_integer(first + by)), 0);
            assert_int_equal(json_array_set_new(offsets, 1, json_integer(last + by)), 0);
            break;
        }
    }
    put_header_json(folder, header);
    free(old);
}

void damage_overlap(const char *folder)
{
    shift_one(folder, -4);
}

void damage_weights_cut(const char *folder)
{
    resize(folder, DAMAGE_WEIGHTS, -1);
}

void damage_weights_longer(const char *folder)
{
    resize(folder, DAMAGE_WEIGHTS, 1);
}

void damage_weights_empty(const char *folder)
{
    write_bytes(folder, DAMAGE_WEIGHTS, "", 0);
}

void damage_weights_folder(const char *folder)
{
    make_folder(folder, DAMAGE_WEIGHTS);
}

void damage_weights_pipe(const char *folder)
{
    make_pipe(folder, DAMAGE_WEIGHTS);
}

void damage_weights_dangling(const char *folder)
{
    make_dangling_link(folder, DAMAGE_WEIGHTS);
}

void damage_weights_pickled(const char *folder)
{
    take_away(folder, DAMAGE_WEIGHTS);
    write_bytes(folder, "pytorch_model.bin", "\x80\x02", 2);
}

void damage_weights_missing(const char *folder)
{
    take_away(folder, DAMAGE_WEIGHTS);
}

void damage_config_missing(const char *folder)
{
    take_away(folder, DAMAGE_CONFIG);
}

void damage_config_empty(const char *folder)
{
    write_bytes(folder, DAMAGE_CONFIG, "", 0);
}

void damage_config_list(const char *folder)
{
    write_bytes(folder, DAMAGE_CONFIG, "[]", 2);
}

void damage_config_folder(const char *folder)
{
    make_folder(folder, DAMAGE_CONFIG);
}

void damage_config_pipe(const char *folder)
{
    make_pipe(folder, DAMAGE_CONFIG);
}

void damage_config_huge(const char *folder)
{
    resize(folder, DAMAGE_CONFIG, (int64_t)200 << 20);
}

void damage_config_key_twice(const char *folder)
{
    static const char text[] = "{\"model_type\":\"llama\",\"model_type\":\"opt\"}";
    write_bytes(folder, DAMAGE_CONFIG, text, sizeof text - 1);
}

/* The last shard: "model-0000N-of-0000N.safetensors". */
void damage_last_shard(const char *folder, char name[64])
{
    char **names = NULL;
    size_t count = 0;
    name[0] = '\0';
    assert_int_equal(espl_fs_list(folder, 1000, &names, &count, NULL), ESPL_OK);
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], "model-", 6) == 0) {
            (void)snprintf(name, 64, "%s", names[i]);
        }
    }
    espl_fs_free_names(names, count);
    assert_true(name[0] != '\0');
}

void damage_shard_missing(const char *folder)
{
    char name[64];
    damage_last_shard(folder, name);
    take_away(folder, name);
}

void damage_shard_dangling(const char *folder)
{
    char name[64];
    damage_last_shard(folder, name);
    make_dangling_link(folder, name);
}

void damage_shard_cut(const char *folder)
{
    char name[64];
    damage_last_shard(folder, name);
    resize(folder, name, -1);
}

void damage_index_folder(const char *folder)
{
    make_folder(folder, DAMAGE_INDEX);
}

void damage_index_without_map(const char *folder)
{
    write_bytes(folder, DAMAGE_INDEX, "{}", 2);
}

void damage_single_file_beside(const char *folder)
{
    write_bytes(folder, DAMAGE_WEIGHTS, "", 0);
}
