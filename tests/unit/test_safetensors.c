#include "core/fs.h"
#include "model/safetensors.h"
#include "unit/model_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- headers ---- */

static enum espl_status parse(const char *header, uint64_t data_bytes,
                              struct espl_safetensor **tensors, size_t *count,
                              struct espl_error *err)
{
    espl_error_clear(err);
    return espl_safetensors_parse_header(header, strlen(header), 8 + strlen(header) + data_bytes,
                                         tensors, count, err);
}

static void test_parse_header__reads_entries_in_name_order(void **state)
{
    struct espl_safetensor *tensors = NULL;
    struct espl_error err;
    size_t count = 0;
    const char *header =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
        "\"c\":{\"dtype\":\"BOOL\",\"shape\":[5],\"data_offsets\":[26,31]},"
        "\"empty\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[24,24]}}  ";
    (void)state;
    if (parse(header, 31, &tensors, &count, &err) != ESPL_OK) {
        fail_msg("%s", err.message);
    }
    assert_int_equal(count, 4);
    assert_string_equal(tensors[0].name, "a");
    assert_int_equal(tensors[0].rank, 0);
    assert_int_equal(tensors[0].bytes, 2);
    assert_int_equal(tensors[0].dtype, ESPL_DTYPE_BF16);
    assert_int_equal(tensors[0].offset, 8 + strlen(header) + 24);
    assert_string_equal(tensors[1].name, "b");
    assert_int_equal(tensors[1].shape[1], 3);
    assert_string_equal(tensors[1].foreign, "");
    assert_string_equal(tensors[2].foreign, "BOOL");
    assert_int_equal(tensors[3].bytes, 0);
    free(tensors);
}

struct bad_header {
    const char *header;
    uint64_t data;
    enum espl_status status;
    const char *message;
};

#define E(dtype, shape, offsets) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct bad_header bad_headers[] = {
    {"[]", 0, ESPL_E_CORRUPT, "does not start with '{'"},
    {" {}", 0, ESPL_E_CORRUPT, "does not start with '{'"},
    {"{", 0, ESPL_E_CORRUPT, "bytes"},
    {"{]", 0, ESPL_E_CORRUPT, "not valid JSON"},
    {"{} x", 0, ESPL_E_CORRUPT, "not valid JSON"},
    {"{}", 1, ESPL_E_CORRUPT, "1 bytes at the end of the file belong to no tensor"},
    {"{\"a\":" E("U8", "[1]", "[0,1]") ",\"a\":" E("U8", "[1]", "[0,1]") "}", 1, ESPL_E_CORRUPT,
     "duplicate"},
    {"{\"a\xff\":" E("U8", "[1]", "[0,1]") "}", 1, ESPL_E_CORRUPT, "not valid JSON"},
    {"{\"a\\u0000b\":" E("U8", "[1]", "[0,1]") "}", 1, ESPL_E_CORRUPT, "not valid JSON"},
    {"{\"a\\nb\":" E("U8", "[1]", "[0,1]") "}", 1, ESPL_E_CORRUPT, "control character"},
    {"{\"\":" E("U8", "[1]", "[0,1]") "}", 1, ESPL_E_CORRUPT, "tensor name of 0 bytes"},
    {"{\"a\":1}", 0, ESPL_E_CORRUPT, "entry of tensor 'a' is not an object"},
    {"{\"a\":{}}", 0, ESPL_E_CORRUPT, "tensor 'a' has no dtype"},
    {"{\"a\":{\"dtype\":3}}", 0, ESPL_E_CORRUPT, "tensor 'a' has no dtype"},
    {"{\"a\":" E("F4", "[2]", "[0,1]") "}", 1, ESPL_E_UNSUPPORTED, "element type 'F4'"},
    {"{\"a\":{\"dtype\":\"U8\"}}", 0, ESPL_E_CORRUPT, "has no shape"},
    {"{\"a\":" E("U8", "[1.5]", "[0,1]") "}", 1, ESPL_E_CORRUPT, "dimension 0 of tensor 'a'"},
    {"{\"a\":" E("U8", "[1,-1]", "[0,1]") "}", 1, ESPL_E_CORRUPT, "dimension 1 of tensor 'a'"},
    {"{\"a\":" E("U8", "[1,1,1,1,1]", "[0,1]") "}", 1, ESPL_E_UNSUPPORTED, "5 dimensions"},
    {"{\"a\":" E("F32", "[4611686018427387904,4]", "[0,1]") "}", 1, ESPL_E_CORRUPT, "overflows"},
    {"{\"a\":" E("U8", "[99999999999999999999]", "[0,1]") "}", 1, ESPL_E_CORRUPT, "JSON"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, ESPL_E_CORRUPT, "no data_offsets"},
    {"{\"a\":" E("U8", "[1]", "[0]") "}", 1, ESPL_E_CORRUPT, "no data_offsets"},
    {"{\"a\":" E("U8", "[1]", "[0,1,2]") "}", 1, ESPL_E_CORRUPT, "no data_offsets"},
    {"{\"a\":" E("U8", "[1]", "[0,\"1\"]") "}", 1, ESPL_E_CORRUPT, "no data_offsets"},
    {"{\"a\":" E("U8", "[1]", "[-1,0]") "}", 1, ESPL_E_CORRUPT, "not inside"},
    {"{\"a\":" E("U8", "[1]", "[1,0]") "}", 1, ESPL_E_CORRUPT, "not inside"},
    {"{\"a\":" E("U8", "[2]", "[0,2]") "}", 1, ESPL_E_CORRUPT, "not inside the 1 data bytes"},
    {"{\"a\":" E("U8", "[2]", "[0,1]") "}", 1, ESPL_E_CORRUPT,
     "has 1 data bytes, its shape and type need 2"},
    {"{\"a\":" E("U8", "[2]", "[0,2]") ",\"b\":" E("U8", "[2]", "[1,3]") "}", 3, ESPL_E_CORRUPT,
     "'b' overlap"},
    {"{\"a\":" E("U8", "[2]", "[0,2]") ",\"b\":" E("U8", "[1]", "[3,4]") "}", 4, ESPL_E_CORRUPT,
     "'b' come after a hole"},
    {"{\"a\":" E("U8", "[1]", "[1,2]") "}", 2, ESPL_E_CORRUPT, "'a' come after a hole"},
    {"{\"__metadata__\":[]}", 0, ESPL_E_CORRUPT, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"x\":1}}", 0, ESPL_E_CORRUPT, "'x' of __metadata__"},
};

static void test_parse_header__refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        const struct bad_header *bad = &bad_headers[i];
        struct espl_safetensor *tensors = NULL;
        struct espl_error err;
        size_t count = 0;
        const enum espl_status got = parse(bad->header, bad->data, &tensors, &count, &err);
        if (got != bad->status || strstr(err.message, bad->message) == NULL) {
            fail_msg("%s\ngives %d '%s', expected %d '%s'", bad->header, (int)got, err.message,
                     (int)bad->status, bad->message);
        }
        assert_null(tensors);
    }
}

static void test_parse_header__limits_names_and_sizes(void **state)
{
    struct espl_safetensor *tensors = NULL;
    struct espl_error err = {0};
    size_t count = 0;
    char header[512];
    char name[161];
    (void)state;
    memset(name, 'n', sizeof name - 1);
    name[160] = '\0';
    (void)snprintf(header, sizeof header, "{\"%s\":" E("U8", "[1]", "[0,1]") "}", name);
    assert_int_equal(parse(header, 1, &tensors, &count, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "tensor name of 160 bytes"));
    (void)snprintf(header, sizeof header, "{\"%s\":" E("U8", "[1]", "[0,1]") "}", name + 1);
    assert_int_equal(parse(header, 1, &tensors, &count, &err), ESPL_OK);
    free(tensors);
    /* A length beyond the file, and one beyond the format's limit: never read. */
    assert_int_equal(espl_safetensors_parse_header("{}", 2, 9, &tensors, &count, &err),
                     ESPL_E_CORRUPT);
    assert_int_equal(espl_safetensors_parse_header("{}", 2, 4, &tensors, &count, &err),
                     ESPL_E_CORRUPT);
    assert_int_equal(
        espl_safetensors_parse_header("{}", 100000001, UINT64_MAX, &tensors, &count, &err),
        ESPL_E_CORRUPT);
}

/* ---- index ---- */

static void check_index(const char *text, const char *message)
{
    struct espl_error err = {0};
    json_t *map = NULL;
    char **files = NULL;
    size_t count = 0;
    const enum espl_status got =
        espl_safetensors_parse_index(text, strlen(text), &map, &files, &count, &err);
    if (got != ESPL_E_CORRUPT || strstr(err.message, message) == NULL) {
        fail_msg("%s\ngives %d '%s'", text, (int)got, err.message);
    }
}

static void test_parse_index__files_stay_in_the_folder(void **state)
{
    struct espl_error err = {0};
    json_t *map = NULL;
    char **files = NULL;
    size_t count = 0;
    const char *good = "{\"weight_map\":{\"x\":\"b.safetensors\",\"y\":\"a.safetensors\","
                       "\"z\":\"b.safetensors\"}}";
    (void)state;
    assert_int_equal(espl_safetensors_parse_index(good, strlen(good), &map, &files, &count, &err),
                     ESPL_OK);
    assert_int_equal(count, 2);
    assert_string_equal(files[0], "a.safetensors");
    assert_string_equal(files[1], "b.safetensors");
    assert_int_equal(json_object_size(map), 3);
    espl_fs_free_names(files, count);
    json_decref(map);

    check_index("{}", "no weight_map");
    check_index("{\"weight_map\":{}}", "no weight_map");
    check_index("[]", "not a JSON object");
    check_index("{\"weight_map\":{\"x\":\"../a.safetensors\"}}", "'../a.safetensors'");
    check_index("{\"weight_map\":{\"x\":\"/a.safetensors\"}}", "'/a.safetensors'");
    check_index("{\"weight_map\":{\"x\":\"sub/a.safetensors\"}}", "'sub/a.safetensors'");
    check_index("{\"weight_map\":{\"x\":\"..\"}}", "'..'");
    check_index("{\"weight_map\":{\"x\":\".safetensors\"}}", "'.safetensors'");
    check_index("{\"weight_map\":{\"x\":\"a.bin\"}}", "'a.bin'");
    check_index("{\"weight_map\":{\"x\":1}}", "(not a text)");
    check_index("{\"weight_map\":{\"x\":\"a.safetensors\",\"x\":\"b.safetensors\"}}", "duplicate");
}

/* ---- files ---- */

/* A file of u8 tensors of 3 bytes, named by the letters of `names`; byte = letter + position. */
static void write_letters(struct fixture *f, const char *file, const char *names)
{
    struct espl_safetensor tensors[8];
    struct espl_safetensors_writer *writer = NULL;
    char path[ESPL_PATH_MAX];
    const size_t count = strlen(names);
    memset(tensors, 0, sizeof tensors);
    for (size_t i = 0; i < count; i++) {
        tensors[i].name[0] = names[i];
        tensors[i].dtype = ESPL_DTYPE_U8;
        tensors[i].rank = 1;
        tensors[i].shape[0] = 3;
    }
    fixture_join(path, f->dir, file);
    const bool was_there = espl_fs_exists(path);
    assert_int_equal(
        espl_safetensors_writer_open(path, tensors, count, "{\"format\":\"pt\"}", &writer, &f->err),
        ESPL_OK);
    assert_int_equal(espl_fs_exists(path), was_there); /* the name only comes at the end */
    for (size_t i = 0; i < count; i++) {
        const char data[3] = {names[i], (char)(names[i] + 1), (char)(names[i] + 2)};
        assert_int_equal(espl_safetensors_writer_append(writer, data, 1, &f->err), ESPL_OK);
        assert_int_equal(espl_safetensors_writer_append(writer, data + 1, 2, &f->err), ESPL_OK);
    }
    assert_int_equal(espl_safetensors_writer_finish(&writer, &f->err), ESPL_OK);
    assert_true(espl_fs_exists(path));
}

static void expect_open(struct fixture *f, enum espl_status status, const char *message,
                        const char *hint)
{
    struct espl_safetensors *set = NULL;
    espl_error_clear(&f->err);
    const enum espl_status got = espl_safetensors_open(f->dir, &set, &f->err);
    if (got != status || strstr(f->err.message, message) == NULL ||
        strstr(f->err.hint, hint) == NULL) {
        fail_msg("gives %d '%s' (%s), expected %d '%s'", (int)got, f->err.message, f->err.hint,
                 (int)status, message);
    }
    espl_safetensors_close(set);
}

static void test_open__single_file_reads_back(void **state)
{
    struct fixture *f = *state;
    struct espl_safetensors *set = NULL;
    char data[4] = "";
    write_letters(f, "model.safetensors", "cab");
    assert_int_equal(espl_safetensors_open(f->dir, &set, &f->err), ESPL_OK);
    assert_int_equal(espl_safetensors_count(set), 3);
    assert_int_equal(espl_safetensors_file_count(set), 1);
    assert_string_equal(espl_safetensors_notes(set), "");
    assert_string_equal(espl_safetensors_tensor(set, 0)->name, "a");
    const struct espl_safetensor *tensor = espl_safetensors_find(set, "b");
    assert_non_null(tensor);
    assert_int_equal(tensor->offset % 8, 6); /* data start at a multiple of 8; c and a before */
    assert_int_equal(espl_safetensors_read(set, tensor, 1, data, 2, &f->err), ESPL_OK);
    assert_string_equal(data, "cd");
    assert_int_equal(espl_safetensors_read(set, tensor, 2, data, 2, &f->err), ESPL_E_INTERNAL);
    assert_null(espl_safetensors_find(set, "d"));
    espl_safetensors_close(set);
}

static void test_open__cut_file(void **state)
{
    struct fixture *f = *state;
    char path[ESPL_PATH_MAX];
    char *data = NULL;
    size_t len = 0;
    write_letters(f, "model.safetensors", "ab");
    fixture_join(path, f->dir, "model.safetensors");
    assert_int_equal(espl_fs_read_file(path, 4096, &data, &len, &f->err), ESPL_OK);
    for (size_t cut = 0; cut < len; cut++) {
        assert_int_equal(espl_fs_write_file(path, data, cut, &f->err), ESPL_OK);
        expect_open(f, ESPL_E_CORRUPT, "", "");
        assert_non_null(strstr(f->err.context, "model.safetensors'"));
    }
    free(data);
}

#define INDEX(map) "{\"metadata\":{\"total_size\":12},\"weight_map\":{" map "}}"

static void test_open__sharded(void **state)
{
    struct fixture *f = *state;
    struct espl_safetensors *set = NULL;
    write_letters(f, "model-1.safetensors", "ab");
    write_letters(f, "model-2.safetensors", "cd");
    write_letters(f, "consolidated.safetensors", "abcd");
    fixture_write_text(f->dir, "model.safetensors.index.json",
                       INDEX("\"a\":\"model-1.safetensors\",\"b\":\"model-1.safetensors\","
                             "\"c\":\"model-2.safetensors\""));
    assert_int_equal(espl_safetensors_open(f->dir, &set, &f->err), ESPL_OK);
    assert_int_equal(espl_safetensors_count(set), 4);
    assert_string_equal(espl_safetensors_notes(set),
                        "1 tensors are not in the index, the first is 'd'\n"
                        "ignored 'consolidated.safetensors': not part of the checkpoint\n");
    espl_safetensors_close(set);
}

static void test_open__index_that_does_not_fit(void **state)
{
    struct fixture *f = *state;
    write_letters(f, "model-1.safetensors", "ab");
    write_letters(f, "model-2.safetensors", "cd");
    fixture_write_text(f->dir, "model.safetensors.index.json",
                       INDEX("\"a\":\"model-1.safetensors\",\"c\":\"model-3.safetensors\""));
    expect_open(f, ESPL_E_NOTFOUND, "1 of the 2 files", "a shard was not downloaded");
    assert_non_null(strstr(f->err.message, "'model-3.safetensors'"));
    fixture_write_text(f->dir, "model.safetensors.index.json",
                       INDEX("\"a\":\"model-2.safetensors\",\"c\":\"model-1.safetensors\""));
    expect_open(f, ESPL_E_CORRUPT,
                "tensor 'a' into 'model-2.safetensors', but it is in "
                "'model-1.safetensors'",
                "stale");
    fixture_write_text(f->dir, "model.safetensors.index.json",
                       INDEX("\"a\":\"model-1.safetensors\",\"x\":\"model-2.safetensors\""));
    expect_open(f, ESPL_E_CORRUPT, "tensor 'x' into 'model-2.safetensors', which does not hold it",
                "stale");
    write_letters(f, "model-2.safetensors", "bc");
    fixture_write_text(f->dir, "model.safetensors.index.json",
                       INDEX("\"a\":\"model-1.safetensors\",\"c\":\"model-2.safetensors\""));
    expect_open(f, ESPL_E_CORRUPT,
                "tensor 'b' is in 'model-1.safetensors' and in 'model-2.safetensors'", "");
    fixture_write_text(f->dir, "model.safetensors.index.json", "{");
    expect_open(f, ESPL_E_CORRUPT, "the index is not valid JSON", "");
}

static void test_open__index_beside_a_single_file(void **state)
{
    struct fixture *f = *state;
    write_letters(f, "model.safetensors", "ab");
    fixture_write_text(f->dir, "model.safetensors.index.json",
                       INDEX("\"a\":\"model-1.safetensors\""));
    expect_open(f, ESPL_E_NOTFOUND, "1 of the 1 files", "the index looks stale");
    write_letters(f, "model-1.safetensors", "ab");
    expect_open(f, ESPL_E_CORRUPT, "which one is meant?", "remove model.safetensors.index.json");
    fixture_write_text(f->dir, "model.safetensors.index.json",
                       INDEX("\"a\":\"model.safetensors\",\"b\":\"model.safetensors\""));
    expect_open(f, ESPL_OK, "", "");
}

static void test_open__what_is_no_checkpoint(void **state)
{
    struct fixture *f = *state;
    struct espl_safetensors *set = NULL;
    char path[ESPL_PATH_MAX];
    expect_open(f, ESPL_E_NOTFOUND, "no .safetensors files", "");
    fixture_write_text(f->dir, "consolidated.00.pth", "PK");
    expect_open(f, ESPL_E_UNSUPPORTED, "'consolidated.00.pth' is a pickle checkpoint",
                "save_pretrained");
    write_letters(f, "model-00001-of-00002.safetensors", "ab");
    expect_open(f, ESPL_E_NOTFOUND, "no model.safetensors and no model.safetensors.index.json",
                "the folder holds: model-00001-of-00002.safetensors");
    fixture_join(path, f->dir, "consolidated.00.pth");
    assert_int_equal(espl_safetensors_open(path, &set, &f->err), ESPL_E_UNSUPPORTED);
    fixture_join(path, f->dir, "gone");
    assert_int_equal(espl_safetensors_open(path, &set, &f->err), ESPL_E_NOTFOUND);
    fixture_join(path, f->dir, "model-00001-of-00002.safetensors");
    assert_int_equal(espl_safetensors_open(path, &set, &f->err), ESPL_OK);
    espl_safetensors_close(set);
}

static void test_writer__refuses_too_little_and_too_much(void **state)
{
    struct fixture *f = *state;
    struct espl_safetensor tensor = {.name = "a", .dtype = ESPL_DTYPE_F32, .rank = 1, .shape = {2}};
    struct espl_safetensors_writer *writer = NULL;
    const float data[3] = {1, 2, 3};
    char **names = NULL;
    size_t count = 0;
    char path[ESPL_PATH_MAX];
    fixture_join(path, f->dir, "x.safetensors");
    assert_int_equal(espl_safetensors_writer_open(path, &tensor, 1, NULL, &writer, &f->err),
                     ESPL_OK);
    assert_int_equal(espl_safetensors_writer_append(writer, data, 12, &f->err), ESPL_E_INTERNAL);
    assert_int_equal(espl_safetensors_writer_append(writer, data, 4, &f->err), ESPL_OK);
    assert_int_equal(espl_safetensors_writer_finish(&writer, &f->err), ESPL_E_INTERNAL);
    assert_null(writer);
    assert_int_equal(espl_safetensors_writer_open(path, &tensor, 1, NULL, &writer, &f->err),
                     ESPL_OK);
    espl_safetensors_writer_abandon(writer);
    const struct espl_safetensor twice[2] = {tensor, tensor};
    assert_int_equal(espl_safetensors_writer_open(path, twice, 2, NULL, &writer, &f->err),
                     ESPL_E_INTERNAL);
    assert_int_equal(espl_fs_list(f->dir, 10, &names, &count, &f->err), ESPL_OK);
    assert_int_equal(count, 0); /* nothing is left behind */
    espl_fs_free_names(names, count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, fixture_setup, fixture_teardown)
        cmocka_unit_test(test_parse_header__reads_entries_in_name_order),
        cmocka_unit_test(test_parse_header__refuses),
        cmocka_unit_test(test_parse_header__limits_names_and_sizes),
        cmocka_unit_test(test_parse_index__files_stay_in_the_folder),
        T(test_open__single_file_reads_back),
        T(test_open__cut_file),
        T(test_open__sharded),
        T(test_open__index_that_does_not_fit),
        T(test_open__index_beside_a_single_file),
        T(test_open__what_is_no_checkpoint),
        T(test_writer__refuses_too_little_and_too_much),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
