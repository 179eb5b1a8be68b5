#include "core/fs.h"
#include "core/hash.h"
#include "datasets/text.h"

#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const suffixes[] = {"", ".xz", ".gz", ".bz2", ".zst"};
enum { SUFFIXES = sizeof suffixes / sizeof suffixes[0], SAMPLE_BYTES = 78 };
static const char sample_sha256[] =
    "a1c096343ed77068671c4080c93cd0cff0810adfb3b7424fd602198014fb27fa";

static void sample_path(char out[ESPL_PATH_MAX], const char *suffix)
{
    (void)snprintf(out, ESPL_PATH_MAX, "%s/tests/data/text/sample.txt%s", ESPL_SOURCE_DIR, suffix);
}

/* Without the fsync of espl_fs_write_file(): these files are many and short-lived. */
static void write_quickly(const char *path, const char *bytes, size_t len)
{
    FILE *const file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
}

static void test_read__every_compression(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUFFIXES; i++) {
        char path[ESPL_PATH_MAX];
        sample_path(path, suffixes[i]);
        struct espl_error err = {0};
        char *text = NULL;
        size_t len = 0;
        if (espl_text_read(path, SAMPLE_BYTES, &text, &len, &err) != ESPL_OK) {
            fail_msg("%s: %s", path, err.message);
        }
        assert_int_equal(len, SAMPLE_BYTES);
        assert_int_equal(text[len], '\0');
        char hex[ESPL_SHA256_HEX];
        assert_int_equal(espl_sha256_bytes(text, len, hex, &err), ESPL_OK);
        assert_string_equal(hex, sample_sha256);
        free(text);
    }
}

static void test_read__limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUFFIXES; i++) {
        char path[ESPL_PATH_MAX];
        sample_path(path, suffixes[i]);
        struct espl_error err = {0};
        char *text = NULL;
        size_t len = 0;
        assert_int_equal(espl_text_read(path, SAMPLE_BYTES - 1, &text, &len, &err), ESPL_E_CORRUPT);
        assert_non_null(strstr(err.message, i == 0 ? "the limit is 77" : "larger than 77 bytes"));
        assert_null(text);
    }
}

static void test_read__missing(void **state)
{
    (void)state;
    for (size_t i = 0; i < SUFFIXES; i++) {
        char path[ESPL_PATH_MAX];
        (void)snprintf(path, sizeof path, "/nonexistent/text.txt%s", suffixes[i]);
        struct espl_error err = {0};
        char *text = NULL;
        size_t len = 0;
        assert_int_equal(espl_text_read(path, 100, &text, &len, &err), ESPL_E_NOTFOUND);
    }
}

/* Every proper prefix of a compressed file, the empty one included, is an error. */
static void test_read__truncated(void **state)
{
    (void)state;
    char folder[ESPL_PATH_MAX];
    temp_folder_make(folder);
    for (size_t i = 1; i < SUFFIXES; i++) {
        char path[ESPL_PATH_MAX];
        sample_path(path, suffixes[i]);
        struct espl_error err = {0};
        char *bytes = NULL;
        size_t size = 0;
        assert_int_equal(espl_fs_read_file(path, 1000, &bytes, &size, &err), ESPL_OK);
        char cut[ESPL_PATH_MAX + 32];
        (void)snprintf(cut, sizeof cut, "%s/cut.txt%s", folder, suffixes[i]);
        for (size_t keep = 0; keep < size; keep++) {
            write_quickly(cut, bytes, keep);
            char *text = NULL;
            size_t len = 0;
            const enum espl_status status = espl_text_read(cut, 1000, &text, &len, &err);
            if (status != ESPL_E_CORRUPT) {
                fail_msg("%zu of %zu bytes of %s: status %d, %zu bytes read", keep, size,
                         suffixes[i], (int)status, status == ESPL_OK ? len : 0);
            }
        }
        free(bytes);
    }
    temp_folder_remove(folder);
}

static void test_read__damaged_and_mislabelled(void **state)
{
    (void)state;
    char folder[ESPL_PATH_MAX];
    temp_folder_make(folder);
    for (size_t i = 1; i < SUFFIXES; i++) {
        char path[ESPL_PATH_MAX];
        sample_path(path, suffixes[i]);
        struct espl_error err = {0};
        char *bytes = NULL;
        size_t size = 0;
        assert_int_equal(espl_fs_read_file(path, 1000, &bytes, &size, &err), ESPL_OK);
        char bad[ESPL_PATH_MAX + 32];
        (void)snprintf(bad, sizeof bad, "%s/bad.txt%s", folder, suffixes[i]);
        char *text = NULL;
        size_t len = 0;
        /* All four formats carry a checksum: no changed byte of the data may pass. */
        for (size_t at = size / 4; at < size * 3 / 4; at++) {
            bytes[at] = (char)(bytes[at] ^ 0x10);
            write_quickly(bad, bytes, size);
            if (espl_text_read(bad, 1000, &text, &len, &err) != ESPL_E_CORRUPT) {
                fail_msg("byte %zu of a %s file was damaged and nothing said so", at, suffixes[i]);
            }
            bytes[at] = (char)(bytes[at] ^ 0x10);
        }
        write_quickly(bad, "plain text, no stream\n", 22);
        assert_int_equal(espl_text_read(bad, 1000, &text, &len, &err), ESPL_E_CORRUPT);
        assert_non_null(strstr(err.message, "is not a"));
        free(bytes);
    }
    temp_folder_remove(folder);
}

static void test_read__empty_plain(void **state)
{
    (void)state;
    char folder[ESPL_PATH_MAX];
    temp_folder_make(folder);
    char path[ESPL_PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/empty.txt", folder);
    struct espl_error err = {0};
    write_quickly(path, "", 0);
    char *text = NULL;
    size_t len = 1;
    assert_int_equal(espl_text_read(path, 1000, &text, &len, &err), ESPL_OK);
    assert_int_equal(len, 0);
    assert_string_equal(text, "");
    free(text);
    temp_folder_remove(folder);
}

/* A gzip file of nothing: 20 bytes as gzip writes them. */
static void test_read__empty_compressed(void **state)
{
    static const char nothing[] = {31, (char)139, 8, 0, 0, 0, 0, 0, 0, 3,
                                   3,  0,         0, 0, 0, 0, 0, 0, 0, 0};
    (void)state;
    char folder[ESPL_PATH_MAX];
    temp_folder_make(folder);
    char path[ESPL_PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/empty.txt.gz", folder);
    struct espl_error err = {0};
    write_quickly(path, nothing, sizeof nothing);
    char *text = NULL;
    size_t len = 1;
    assert_int_equal(espl_text_read(path, 1000, &text, &len, &err), ESPL_OK);
    assert_int_equal(len, 0);
    free(text);
    temp_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read__every_compression),
        cmocka_unit_test(test_read__limit),
        cmocka_unit_test(test_read__missing),
        cmocka_unit_test(test_read__truncated),
        cmocka_unit_test(test_read__damaged_and_mislabelled),
        cmocka_unit_test(test_read__empty_plain),
        cmocka_unit_test(test_read__empty_compressed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
