#include "artifact/artifact.h"
#include "artifact/kinds.h"
#include "core/fs.h"
#include "support/test_folder.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static struct espl_error err;

static const uint16_t halves[6] = {0x3c00, 0x3c01, 0x3c02, 0x3c03, 0x3c04, 0x3c05};
static const uint8_t mask_bytes[4] = {0xff, 0x05, 0x01, 0x02};
static const double one_real = 2.5;

static struct espl_tensor_info half_info(void)
{
    const uint64_t shape[2] = {3, 2};
    return espl_tensor_info_make("/b/weight", ESPL_DTYPE_F16, 2, shape);
}

/* 2 x 11 bits in 2 x 2 bytes. */
static struct espl_tensor_info mask_info(void)
{
    const uint64_t shape[2] = {2, 2};
    struct espl_tensor_info info = espl_tensor_info_make("/a/mask", ESPL_DTYPE_U8, 2, shape);
    (void)snprintf(info.packing, sizeof info.packing, "bitmask-lsb0");
    info.logical_shape[1] = 11;
    return info;
}

static struct espl_artifact *create(const char *name, const char *kind)
{
    struct espl_artifact *artifact = NULL;
    assert_int_equal(espl_artifact_create(below(name), kind, &artifact, &err), ESPL_OK);
    return artifact;
}

static struct espl_artifact *open_again(const char *name)
{
    struct espl_artifact *artifact = NULL;
    assert_int_equal(espl_artifact_open(below(name), &artifact, &err), ESPL_OK);
    return artifact;
}

/* Writes the three golden tensors; reversed: the datasets and texts in the other order. */
static void write_golden(const char *name, bool reversed, char content[ESPL_SHA256_HEX])
{
    const struct espl_tensor_info half = half_info();
    const struct espl_tensor_info mask = mask_info();
    const struct espl_tensor_info real = espl_tensor_info_make("/c", ESPL_DTYPE_F64, 0, NULL);
    struct espl_artifact *artifact = create(name, "unit/1");
    assert_int_equal(espl_artifact_set_attribute(artifact, reversed ? "stage" : "key", "k", &err),
                     ESPL_OK);
    assert_int_equal(espl_artifact_set_attribute(artifact, reversed ? "key" : "stage", "k", &err),
                     ESPL_OK);
    assert_int_equal(espl_artifact_set_provenance(artifact, "params", "{}", &err), ESPL_OK);
    for (int i = 0; i < 3; i++) {
        switch (reversed ? 2 - i : i) {
        case 0:
            assert_int_equal(espl_artifact_create_rows(artifact, &half, &err), ESPL_OK);
            assert_int_equal(espl_artifact_append_rows(artifact, half.path, 1, halves, &err),
                             ESPL_OK);
            assert_int_equal(espl_artifact_append_rows(artifact, half.path, 2, halves + 2, &err),
                             ESPL_OK);
            break;
        case 1:
            assert_int_equal(espl_artifact_write(artifact, &mask, mask_bytes, &err), ESPL_OK);
            break;
        default:
            assert_int_equal(espl_artifact_write(artifact, &real, &one_real, &err), ESPL_OK);
        }
    }
    assert_int_equal(espl_artifact_set_description(artifact, "{\"n\":3}", &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, content, &err), ESPL_OK);
    assert_null(artifact);
}

/* The content hash of these tensors as computed from docs/formats/artifact.md in another language.
 */
static const char golden_content[] =
    "5959f3cb40de93e2a9c5d246dc9d9f180c5c85ec1d0764264f26daa961ba9319";

static void test_artifact__content_hash_is_the_documented_one(void **state)
{
    char content[ESPL_SHA256_HEX];
    (void)state;
    write_golden("g.h5", false, content);
    assert_string_equal(content, golden_content);
    struct espl_artifact *artifact = open_again("g.h5");
    assert_string_equal(espl_artifact_content_sha256(artifact), golden_content);
    espl_artifact_close(artifact);
    artifact = create("empty.h5", "unit/1");
    assert_int_equal(espl_artifact_finish(&artifact, content, &err), ESPL_OK);
    assert_string_equal(content,
                        "ded1a8a46e5e586ce630093abfca4ce04c14fdcdc56534fccacb4dd6377e5f48");
}

static void read_bytes(const char *name, char **data, size_t *len)
{
    assert_int_equal(espl_fs_read_file(below(name), 1 << 24, data, len, &err), ESPL_OK);
}

static void test_artifact__equal_content_is_equal_bytes(void **state)
{
    char content[ESPL_SHA256_HEX];
    char *first = NULL;
    char *second = NULL;
    size_t first_len = 0;
    size_t second_len = 0;
    (void)state;
    write_golden("one.h5", false, content);
    (void)usleep(1100000); /* time stamps have seconds */
    write_golden("two.h5", false, content);
    read_bytes("one.h5", &first, &first_len);
    read_bytes("two.h5", &second, &second_len);
    assert_int_equal(first_len, second_len);
    assert_memory_equal(first, second, first_len);
    free(first);
    free(second);
}

static void test_artifact__order_of_writing_does_not_change_the_content(void **state)
{
    char content[ESPL_SHA256_HEX];
    (void)state;
    write_golden("reversed.h5", true, content);
    assert_string_equal(content, golden_content);
}

static void test_artifact__everything_reads_back(void **state)
{
    char content[ESPL_SHA256_HEX];
    char bad_path[ESPL_TENSOR_PATH];
    char *text = NULL;
    void *data = NULL;
    size_t bytes = 0;
    bool ok = false;
    (void)state;
    write_golden("g.h5", false, content);
    struct espl_artifact *artifact = open_again("g.h5");
    assert_string_equal(espl_artifact_path(artifact), below("g.h5"));
    assert_string_equal(espl_artifact_kind(artifact), "unit/1");
    assert_string_equal(espl_artifact_description(artifact), "{\"n\":3}");
    assert_string_equal(espl_artifact_attribute(artifact, "key"), "k");
    assert_string_equal(espl_artifact_attribute(artifact, "format"), "espl-artifact");
    assert_string_equal(espl_artifact_attribute(artifact, "format_version"), "1");
    assert_string_equal(espl_artifact_attribute(artifact, "kind_version"), "1");
    assert_string_equal(espl_artifact_attribute(artifact, "complete"), "1");
    assert_string_equal(espl_artifact_attribute(artifact, "absent"), "");
    assert_int_equal(espl_artifact_provenance(artifact, "params", &text, &err), ESPL_OK);
    assert_string_equal(text, "{}");
    free(text);
    assert_int_equal(espl_artifact_provenance(artifact, "absent", &text, &err), ESPL_E_NOTFOUND);

    assert_int_equal(espl_artifact_tensor_count(artifact), 3);
    assert_string_equal(espl_artifact_tensor(artifact, 0)->path, "/a/mask");
    assert_string_equal(espl_artifact_tensor(artifact, 1)->path, "/b/weight");
    assert_string_equal(espl_artifact_tensor(artifact, 2)->path, "/c");
    assert_null(espl_artifact_tensor(artifact, 3));
    assert_null(espl_artifact_find(artifact, "/b"));

    const struct espl_tensor_info *mask = espl_artifact_find(artifact, "/a/mask");
    assert_string_equal(mask->packing, "bitmask-lsb0");
    assert_int_equal(mask->shape[1], 2);
    assert_int_equal(mask->logical_shape[0], 2);
    assert_int_equal(mask->logical_shape[1], 11);
    assert_string_equal(mask->sha256,
                        "73636ae2ed064c143651e1fe2115f0772e42f75f66eaad5790f6917ca7208283");

    const struct espl_tensor_info *half = espl_artifact_find(artifact, "/b/weight");
    assert_int_equal(half->dtype, ESPL_DTYPE_F16);
    assert_int_equal(half->rank, 2);
    assert_int_equal(half->bytes, 12);
    assert_false(half->external);
    uint16_t rows[4] = {0};
    assert_int_equal(espl_artifact_read_rows(artifact, "/b/weight", 1, 2, rows, sizeof rows, &err),
                     ESPL_OK);
    assert_memory_equal(rows, halves + 2, sizeof rows);
    assert_int_equal(espl_artifact_read(artifact, "/c", 8, &data, &bytes, &err), ESPL_OK);
    assert_int_equal(bytes, 8);
    assert_memory_equal(data, &one_real, 8);
    free(data);
    assert_int_equal(espl_artifact_verify(artifact, &ok, bad_path, &err), ESPL_OK);
    assert_true(ok);
    espl_artifact_close(artifact);
    espl_artifact_close(NULL);
}

static void test_artifact_read__wrong_sizes_and_names(void **state)
{
    char content[ESPL_SHA256_HEX];
    uint16_t rows[16];
    void *data = NULL;
    size_t bytes = 0;
    (void)state;
    write_golden("g.h5", false, content);
    struct espl_artifact *artifact = open_again("g.h5");
    assert_int_equal(espl_artifact_read_rows(artifact, "/b/weight", 0, 2, rows, 7, &err),
                     ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "are 8 bytes, 7 were expected"));
    assert_int_equal(espl_artifact_read_rows(artifact, "/b/weight", 2, 2, rows, 8, &err),
                     ESPL_E_CORRUPT);
    assert_int_equal(espl_artifact_read_rows(artifact, "/b/weight", 4, 0, rows, 0, &err),
                     ESPL_E_CORRUPT);
    assert_int_equal(espl_artifact_read_rows(artifact, "/b/weight", 1, UINT64_MAX, rows, 8, &err),
                     ESPL_E_CORRUPT);
    assert_int_equal(espl_artifact_read_rows(artifact, "/b", 0, 1, rows, 2, &err), ESPL_E_NOTFOUND);
    assert_int_equal(espl_artifact_read(artifact, "/b/weight", 11, &data, &bytes, &err),
                     ESPL_E_CORRUPT);
    assert_null(data);
    assert_int_equal(espl_artifact_read(artifact, "/none", 11, &data, &bytes, &err),
                     ESPL_E_NOTFOUND);
    espl_artifact_close(artifact);
}

static void test_artifact__every_element_type(void **state)
{
    static const enum espl_dtype dtypes[] = {ESPL_DTYPE_U8,  ESPL_DTYPE_I8,  ESPL_DTYPE_U16,
                                             ESPL_DTYPE_I32, ESPL_DTYPE_U32, ESPL_DTYPE_I64,
                                             ESPL_DTYPE_U64, ESPL_DTYPE_F16, ESPL_DTYPE_BF16,
                                             ESPL_DTYPE_F32, ESPL_DTYPE_F64};
    unsigned char data[24 * 8];
    char path[64];
    const uint64_t shape[4] = {2, 3, 1, 4};
    (void)state;
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (unsigned char)(i * 7 + 1);
    }
    struct espl_artifact *artifact = create("types.h5", "unit/1");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        (void)snprintf(path, sizeof path, "/t/%s", espl_dtype_name(dtypes[i]));
        const struct espl_tensor_info info = espl_tensor_info_make(path, dtypes[i], 4, shape);
        assert_int_equal(info.bytes, 24 * espl_dtype_size(dtypes[i]));
        assert_int_equal(espl_artifact_write(artifact, &info, data, &err), ESPL_OK);
    }
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    artifact = open_again("types.h5");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        enum espl_dtype parsed = ESPL_DTYPE_F64;
        void *back = NULL;
        size_t bytes = 0;
        (void)snprintf(path, sizeof path, "/t/%s", espl_dtype_name(dtypes[i]));
        const struct espl_tensor_info *info = espl_artifact_find(artifact, path);
        assert_non_null(info);
        assert_int_equal(info->dtype, dtypes[i]);
        assert_int_equal(info->rank, 4);
        assert_memory_equal(info->shape, shape, sizeof shape);
        assert_true(espl_dtype_parse(espl_dtype_name(dtypes[i]), &parsed));
        assert_int_equal(parsed, dtypes[i]);
        assert_int_equal(espl_artifact_read(artifact, path, 1000, &back, &bytes, &err), ESPL_OK);
        assert_memory_equal(back, data, bytes);
        free(back);
    }
    espl_artifact_close(artifact);
    enum espl_dtype none = ESPL_DTYPE_U8;
    assert_false(espl_dtype_parse("f8", &none));
    assert_int_equal(espl_dtype_size((enum espl_dtype)77), 0);
    assert_string_equal(espl_dtype_name((enum espl_dtype)77), "unknown");
}

static void test_artifact__empty_tensors(void **state)
{
    const uint64_t no_rows[2] = {0, 5};
    const uint64_t no_cols[2] = {3, 0};
    void *data = NULL;
    size_t bytes = 9;
    bool ok = false;
    char bad[ESPL_TENSOR_PATH];
    (void)state;
    struct espl_artifact *artifact = create("empty.h5", "unit/1");
    const struct espl_tensor_info rows = espl_tensor_info_make("/r", ESPL_DTYPE_F32, 2, no_rows);
    const struct espl_tensor_info cols = espl_tensor_info_make("/c", ESPL_DTYPE_F32, 2, no_cols);
    assert_int_equal(espl_artifact_create_rows(artifact, &rows, &err), ESPL_OK);
    assert_int_equal(espl_artifact_write(artifact, &cols, "", &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    artifact = open_again("empty.h5");
    assert_int_equal(espl_artifact_read(artifact, "/r", 0, &data, &bytes, &err), ESPL_OK);
    assert_int_equal(bytes, 0);
    free(data);
    assert_int_equal(espl_artifact_find(artifact, "/c")->shape[0], 3);
    assert_int_equal(espl_artifact_verify(artifact, &ok, bad, &err), ESPL_OK);
    assert_true(ok);
    espl_artifact_close(artifact);
}

static void test_artifact__interleaved_rows(void **state)
{
    const uint64_t shape[2] = {5, 3};
    int32_t values[15];
    void *back = NULL;
    size_t bytes = 0;
    (void)state;
    for (int i = 0; i < 15; i++) {
        values[i] = i * i - 7;
    }
    struct espl_artifact *artifact = create("rows.h5", "unit/1");
    const struct espl_tensor_info one = espl_tensor_info_make("/one", ESPL_DTYPE_I32, 2, shape);
    const struct espl_tensor_info two = espl_tensor_info_make("/two", ESPL_DTYPE_I32, 2, shape);
    assert_int_equal(espl_artifact_create_rows(artifact, &one, &err), ESPL_OK);
    assert_int_equal(espl_artifact_create_rows(artifact, &two, &err), ESPL_OK);
    assert_int_equal(espl_artifact_append_rows(artifact, "/one", 2, values, &err), ESPL_OK);
    assert_int_equal(espl_artifact_append_rows(artifact, "/two", 4, values, &err), ESPL_OK);
    assert_int_equal(espl_artifact_append_rows(artifact, "/one", 3, values + 6, &err), ESPL_OK);
    assert_int_equal(espl_artifact_append_rows(artifact, "/two", 0, values, &err), ESPL_OK);
    assert_int_equal(espl_artifact_append_rows(artifact, "/two", 1, values + 12, &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    artifact = open_again("rows.h5");
    assert_int_equal(espl_artifact_read(artifact, "/one", 1000, &back, &bytes, &err), ESPL_OK);
    assert_memory_equal(back, values, sizeof values);
    free(back);
    assert_int_equal(espl_artifact_read(artifact, "/two", 1000, &back, &bytes, &err), ESPL_OK);
    assert_memory_equal(back, values, sizeof values);
    free(back);
    espl_artifact_close(artifact);
}

static void test_artifact__long_texts_and_attributes(void **state)
{
    enum { LONG = 1 << 20 };
    char *text = malloc(LONG + 1);
    char *back = NULL;
    (void)state;
    assert_non_null(text);
    memset(text, 'q', LONG);
    text[LONG] = '\0';
    struct espl_artifact *artifact = create("long.h5", "unit/1");
    assert_int_equal(espl_artifact_set_provenance(artifact, "job", text, &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_provenance(artifact, "empty", "", &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_attribute(artifact, "seed", "1", &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_attribute(artifact, "seed", "42", &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_attribute(artifact, "device", "", &err), ESPL_OK);
    for (int i = 0; i < 40; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "extra_%d", i);
        assert_int_equal(espl_artifact_set_attribute(artifact, name, name, &err), ESPL_OK);
    }
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    artifact = open_again("long.h5");
    assert_int_equal(espl_artifact_provenance(artifact, "job", &back, &err), ESPL_OK);
    assert_string_equal(back, text);
    free(back);
    assert_int_equal(espl_artifact_provenance(artifact, "empty", &back, &err), ESPL_OK);
    assert_string_equal(back, "");
    free(back);
    assert_string_equal(espl_artifact_attribute(artifact, "seed"), "42");
    assert_string_equal(espl_artifact_attribute(artifact, "device"), "");
    assert_string_equal(espl_artifact_attribute(artifact, "extra_39"), "extra_39");
    assert_string_equal(espl_artifact_description(artifact), "{}");
    espl_artifact_close(artifact);
    free(text);
}

/* 256 MiB by 8 MiB rows: the writer may not hold more than a few pieces. */
static void test_artifact__large_tensor_needs_little_memory(void **state)
{
    enum { PIECE = 8 << 20, PIECES = 16 };
    const uint64_t shape[2] = {PIECES * 1024, 4096};
    struct rusage before;
    struct rusage after;
    char *piece = malloc(PIECE);
    (void)state;
    assert_non_null(piece);
    memset(piece, 1, PIECE);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    struct espl_artifact *artifact = create("large.h5", "unit/1");
    const struct espl_tensor_info info = espl_tensor_info_make("/w", ESPL_DTYPE_F16, 2, shape);
    assert_int_equal(espl_artifact_create_rows(artifact, &info, &err), ESPL_OK);
    for (int i = 0; i < PIECES; i++) {
        piece[i] = (char)i;
        assert_int_equal(espl_artifact_append_rows(artifact, "/w", 1024, piece, &err), ESPL_OK);
    }
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    artifact = open_again("large.h5");
    for (uint64_t i = 0; i < PIECES; i++) {
        assert_int_equal(
            espl_artifact_read_rows(artifact, "/w", i * 1024, 1024, piece, PIECE, &err), ESPL_OK);
        assert_int_equal(piece[i], i);
    }
    espl_artifact_close(artifact);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 16 * 1024); /* KiB */
    free(piece);
}

static void test_artifact_copy_datasets__equals_the_source(void **state)
{
    char content[ESPL_SHA256_HEX];
    (void)state;
    write_golden("unit.h5", false, content);
    struct espl_artifact *source = open_again("unit.h5");
    struct espl_artifact *artifact = create("copy.h5", "unit/1");
    assert_int_equal(espl_artifact_set_description(artifact, "{\"n\":3}", &err), ESPL_OK);
    assert_int_equal(espl_artifact_copy_datasets(artifact, source, &err), ESPL_OK);
    espl_artifact_close(source);
    assert_int_equal(espl_artifact_finish(&artifact, content, &err), ESPL_OK);
    assert_string_equal(content, golden_content);
}

static void test_kinds__table_and_acceptance(void **state)
{
    (void)state;
    for (const struct espl_kind *kind = espl_kinds; kind->name != NULL; kind++) {
        assert_ptr_equal(espl_kind_find(kind->name), kind);
        assert_non_null(strchr(kind->name, '/'));
        assert_true(strlen(kind->name) < ESPL_KIND_TEXT);
    }
    assert_null(espl_kind_find("model.dense/2"));
    assert_true(espl_kind_accepts("model.dense/1", "model.dense/1"));
    assert_true(espl_kind_accepts("model.dense/1|model.masked/1", "model.masked/1"));
    assert_false(espl_kind_accepts("model.dense/1|model.masked/1", "model.mask"));
    assert_false(espl_kind_accepts("model.dense/10", "model.dense/1"));
    assert_false(espl_kind_accepts("", "model.dense/1"));
    assert_false(espl_kind_accepts("a||b", ""));
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_artifact__content_hash_is_the_documented_one),
        cmocka_unit_test(test_artifact__equal_content_is_equal_bytes),
        cmocka_unit_test(test_artifact__order_of_writing_does_not_change_the_content),
        cmocka_unit_test(test_artifact__everything_reads_back),
        cmocka_unit_test(test_artifact_read__wrong_sizes_and_names),
        cmocka_unit_test(test_artifact__every_element_type),
        cmocka_unit_test(test_artifact__empty_tensors),
        cmocka_unit_test(test_artifact__interleaved_rows),
        cmocka_unit_test(test_artifact__long_texts_and_attributes),
        cmocka_unit_test(test_artifact__large_tensor_needs_little_memory),
        cmocka_unit_test(test_artifact_copy_datasets__equals_the_source),
        cmocka_unit_test(test_kinds__table_and_acceptance),
    };
    return cmocka_run_group_tests(tests, test_folder_set_up, test_folder_tear_down);
}
