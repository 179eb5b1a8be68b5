/* Where pictures come from: idx files, archives, folders. */
#include "core/fs.h"
#include "datasets/image_cifar.h"
#include "datasets/image_idx.h"
#include "datasets/image_list.h"
#include "support/temp_folder.h"
#include "unit/archive_fixture.h"

#include "support/cmocka_all.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct espl_archive_limits limits = {100, 1000, 100000};

static void join(char out[ESPL_PATH_MAX], const char *dir, const char *name)
{
    assert_int_equal(espl_fs_join(out, dir, name, NULL), ESPL_OK);
}

/* ---- idx ---- */

static void test_idx(void **state)
{
    (void)state;
    const uint8_t bytes[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    struct espl_idx idx;
    struct espl_error err = {0};
    assert_int_equal(espl_idx_parse(bytes, sizeof bytes, &idx, &err), ESPL_OK);
    assert_int_equal(idx.rank, 3);
    assert_int_equal(idx.shape[0], 2);
    assert_int_equal(idx.shape[2], 3);
    assert_int_equal(idx.values[5], 6);
    for (size_t cut = 0; cut < sizeof bytes; cut++) {
        assert_int_equal(espl_idx_parse(bytes, cut, &idx, &err), ESPL_E_CORRUPT);
    }
}

static void test_idx__refusals(void **state)
{
    (void)state;
    const struct {
        uint8_t bytes[20];
        size_t len;
        enum espl_status code;
        const char *message;
    } bad[] = {
        {{1, 0, 8, 1, 0, 0, 0, 0}, 8, ESPL_E_CORRUPT, "it does not begin as an idx file does"},
        {{0, 0, 13, 1, 0, 0, 0, 0},
         8,
         ESPL_E_UNSUPPORTED,
         "its elements are of idx type 0x0d, expected unsigned bytes (0x08)"},
        {{0, 0, 8, 5}, 4, ESPL_E_UNSUPPORTED, "it has 5 dimensions, expected 1 to 4"},
        {{0, 0, 8, 0}, 4, ESPL_E_UNSUPPORTED, "it has 0 dimensions, expected 1 to 4"},
        {{0, 0, 8, 1, 0, 0, 0, 3, 1, 2},
         10,
         ESPL_E_CORRUPT,
         "the sizes in its header do not fit its 10 bytes"},
        {{0, 0, 8, 1, 0, 0, 0, 1, 1, 2},
         10,
         ESPL_E_CORRUPT,
         "the sizes in its header do not fit its 10 bytes"},
        /* 2^32 - 1 three times: more than any size_t */
        {{0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255},
         16,
         ESPL_E_CORRUPT,
         "the sizes in its header do not fit its 16 bytes"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct espl_idx idx;
        struct espl_error err = {0};
        assert_int_equal(espl_idx_parse(bad[i].bytes, bad[i].len, &idx, &err), bad[i].code);
        assert_string_equal(err.message, bad[i].message);
    }
}

static void test_idx__file(void **state)
{
    (void)state;
    struct espl_idx idx;
    struct espl_error err = {0};
    char *bytes = NULL;
    assert_int_equal(espl_idx_read(ESPL_SOURCE_DIR
                                   "/datasets/samples/fashion-mnist/t2k-labels-idx1-ubyte.gz",
                                   5000, &bytes, &idx, &err),
                     ESPL_OK);
    assert_int_equal(idx.shape[0], 2000);
    const uint8_t first[] = {9, 2, 1, 1, 6, 1, 4, 6, 5, 7}; /* of Fashion-MNIST's test set */
    assert_memory_equal(idx.values, first, sizeof first);
    free(bytes);
    assert_int_equal(espl_idx_read(ESPL_SOURCE_DIR "/README.md", 100000, &bytes, &idx, &err),
                     ESPL_E_CORRUPT);
    assert_non_null(strstr(err.context, "README.md"));
}

/* ---- archives ---- */

/* Names and bytes in the order they came. */
struct seen {
    char text[512];
    unsigned links; /* wanted ones */
};

static bool want_txt(void *user, const char *name)
{
    (void)user;
    const size_t len = strlen(name);
    return len > 4 && strcmp(name + len - 4, ".txt") == 0;
}

static enum espl_status keep(void *user, const char *name, const uint8_t *bytes, size_t len,
                             struct espl_error *err)
{
    struct seen *seen = user;
    const size_t used = strlen(seen->text);
    (void)err;
    (void)snprintf(seen->text + used, sizeof seen->text - used, "%s=%.*s;", name, (int)len,
                   (const char *)bytes);
    return ESPL_OK;
}

static void count_link(void *user, const char *name)
{
    struct seen *seen = user;
    assert_string_equal(name, "link.txt");
    seen->links++;
}

static enum espl_status visit(const char *path, const struct espl_archive_limits *bounds,
                              struct seen *seen, struct espl_error *err)
{
    const struct espl_archive_visitor visitor = {seen, want_txt, keep, count_link};
    seen->text[0] = '\0';
    seen->links = 0;
    espl_error_clear(err);
    return espl_archive_visit(path, bounds, &visitor, err);
}

static void test_archive(void **state)
{
    (void)state;
    static const char *const endings[] = {".tar", ".tar.xz", ".tar.gz", ".tar.zst", ".zip"};
    const struct archive_file files[] = {
        {"b/two.txt", "2", 1, NULL},          {"./one.txt", "first", 5, NULL},
        {"skip.bin", "xxxxx", 5, NULL},       {"link.txt", NULL, 0, "/etc/passwd"},
        {"link.bin", NULL, 0, "/etc/passwd"}, {"empty.txt", "", 0, NULL}};
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    temp_folder_make(dir);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        struct seen seen;
        struct espl_error err = {0};
        char name[32];
        (void)snprintf(name, sizeof name, "a%s", endings[i]);
        join(path, dir, name);
        archive_fixture_write(path, endings[i], files, sizeof files / sizeof files[0]);
        if (visit(path, &limits, &seen, &err) != ESPL_OK) {
            fail_msg("%s: %s", name, err.message);
        }
        assert_string_equal(seen.text, "b/two.txt=2;one.txt=first;empty.txt=;");
        assert_int_equal(seen.links, 1);
    }
    temp_folder_remove(dir);
}

static void test_archive__unsafe(void **state)
{
    (void)state;
    static const char *const names[] = {"../up.txt", "a/../../up.txt", "/etc/up.txt", "a//b.txt",
                                        "a\\..\\b.txt"};
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    temp_folder_make(dir);
    join(path, dir, "a.tar");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const struct archive_file file = {names[i], "x", 1, NULL};
        struct seen seen;
        struct espl_error err = {0};
        assert_false(espl_archive_name_is_safe(names[i]));
        archive_fixture_write(path, ".tar", &file, 1);
        assert_int_equal(visit(path, &limits, &seen, &err), ESPL_E_CORRUPT);
        assert_non_null(strstr(err.message, names[i]));
        assert_string_equal(seen.text, "");
    }
    assert_true(espl_archive_name_is_safe("a/..b/c.."));
    assert_false(espl_archive_name_is_safe(""));
    temp_folder_remove(dir);
}

/* Names beyond ASCII, as zip (marked as UTF-8), pax and old tars hold them, whatever the locale. */
static void test_archive__names(void **state)
{
    (void)state;
    static const char *const endings[] = {".tar", ".zip"};
    const struct archive_file file = {"\xc3\xa4/\xe7\x8c\xab.txt", "1", 1, NULL};
    const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    assert_true(utf8 != (locale_t)0);
    temp_folder_make(dir);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        struct seen seen;
        struct espl_error err = {0};
        char name[32];
        (void)snprintf(name, sizeof name, "a%s", endings[i]);
        join(path, dir, name);
        const locale_t before = uselocale(utf8); /* the writer marks names by it */
        archive_fixture_write(path, endings[i], &file, 1);
        (void)uselocale(before);
        if (visit(path, &limits, &seen, &err) != ESPL_OK) {
            fail_msg("%s: %s", name, err.message);
        }
        assert_string_equal(seen.text, "\xc3\xa4/\xe7\x8c\xab.txt=1;");
    }
    freelocale(utf8);
    temp_folder_remove(dir);
}

/* A few hundred bytes that become a lot: stopped by each of the limits. */
static void test_archive__bounds(void **state)
{
    (void)state;
    char *zeros = calloc(1, 200000);
    const struct archive_file big = {"a.txt", zeros, 200000, NULL};
    const struct archive_file many[] = {
        {"a.txt", "1", 1, NULL}, {"b.txt", "2", 1, NULL}, {"c.txt", "3", 1, NULL}};
    const struct archive_file unwanted = {"a.bin", zeros, 200000, NULL};
    const struct espl_archive_limits two = {2, 1000, 100000};
    const struct espl_archive_limits wide = {100, 1000, 1 << 20};
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    struct seen seen;
    struct espl_error err = {0};
    assert_non_null(zeros);
    temp_folder_make(dir);
    join(path, dir, "a.tar.xz");
    archive_fixture_write(path, ".tar.xz", &big, 1);
    assert_int_equal(visit(path, &wide, &seen, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "'a.txt' in archive"));
    assert_non_null(strstr(err.message, "is larger than 1000 bytes"));
    archive_fixture_write(path, ".tar.xz", &unwanted, 1);
    assert_int_equal(visit(path, &limits, &seen, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "holds more than 100000 bytes decompressed"));
    archive_fixture_write(path, ".tar.xz", many, 3);
    assert_int_equal(visit(path, &two, &seen, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "holds more than 2 entries"));
    free(zeros);
    temp_folder_remove(dir);
}

static void test_archive__damaged(void **state)
{
    (void)state;
    const struct archive_file files[] = {{"one.txt", "some text to compress", 21, NULL},
                                         {"two.txt", "and some more of it", 19, NULL}};
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char *bytes = NULL;
    size_t len = 0;
    struct seen seen;
    struct espl_error err = {0};
    temp_folder_make(dir);
    join(path, dir, "none.tar");
    assert_int_equal(visit(path, &limits, &seen, &err), ESPL_E_NOTFOUND);
    join(path, dir, "a.tar.xz");
    archive_fixture_write(path, ".tar.xz", files, 2);
    assert_int_equal(espl_fs_read_file(path, 100000, &bytes, &len, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, bytes, len - 40, NULL), ESPL_OK);
    assert_int_equal(visit(path, &limits, &seen, &err), ESPL_E_CORRUPT);
    assert_int_equal(espl_fs_write_file(path, "no archive at all, only text", 28, NULL), ESPL_OK);
    assert_int_equal(visit(path, &limits, &seen, &err), ESPL_E_CORRUPT);
    free(bytes);
    temp_folder_remove(dir);
}

/* A tar of two files (a block of header and one of content each), cut off at every block. */
static void test_archive__cut_off(void **state)
{
    (void)state;
    enum { BLOCK = 512, BLOCKS = 4 };
    const struct archive_file files[] = {{"one.txt", "1", 1, NULL}, {"two.txt", "2", 1, NULL}};
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char *bytes = NULL;
    size_t len = 0;
    struct seen seen;
    temp_folder_make(dir);
    join(path, dir, "a.tar");
    archive_fixture_write(path, ".tar", files, 2);
    assert_int_equal(espl_fs_read_file(path, 100000, &bytes, &len, NULL), ESPL_OK);
    assert_true(len > (BLOCKS + 1) * BLOCK);
    for (size_t blocks = 1; blocks <= BLOCKS; blocks++) {
        struct espl_error err = {0};
        assert_int_equal(espl_fs_write_file(path, bytes, blocks * BLOCK, NULL), ESPL_OK);
        assert_int_equal(visit(path, &limits, &seen, &err), ESPL_E_CORRUPT);
        assert_non_null(strstr(err.message, "a.tar'"));
    }
    /* One block of zeros is mark enough, as it is for tar itself. */
    assert_int_equal(espl_fs_write_file(path, bytes, (BLOCKS + 1) * BLOCK, NULL), ESPL_OK);
    assert_int_equal(visit(path, &limits, &seen, NULL), ESPL_OK);
    assert_string_equal(seen.text, "one.txt=1;two.txt=2;");
    free(bytes);
    temp_folder_remove(dir);
}

/* ---- lists ---- */

static void expect_list(const struct espl_image_list *list)
{
    static const char *const names[] = {"set/ant/1.PNG", "set/ant/deep/2.jpg", "set/bee/0.jpeg"};
    static const int32_t classes[] = {0, 0, 1};
    assert_int_equal(espl_image_list_count(list), 3);
    assert_int_equal(espl_image_list_classes(list), 2);
    assert_string_equal(espl_image_list_class_name(list, 1), "bee");
    for (size_t i = 0; i < 3; i++) {
        struct espl_image_file file;
        assert_string_equal(espl_image_list_name(list, i), names[i]);
        assert_int_equal(espl_image_list_class(list, i), classes[i]);
        assert_int_equal(espl_image_list_read(list, i, &file, NULL), ESPL_OK);
        assert_int_equal(file.len, 1);
        assert_int_equal(file.bytes[0], 'a' + (int)i);
        free(file.owned);
    }
}

/* The same pictures in an archive (out of order) and in a folder: the same list, and digest. */
static void test_list(void **state)
{
    (void)state;
    const struct archive_file files[] = {
        {"set/bee/0.jpeg", "c", 1, NULL},     {"other/ant/9.png", "x", 1, NULL},
        {"set/ant/deep/2.jpg", "b", 1, NULL}, {"set/ant/1.PNG", "a", 1, NULL},
        {"set/ant/notes.txt", "n", 1, NULL},  {"README.md", "r", 1, NULL},
        {"set/cow/1.webp", "w", 1, NULL},     {"set/bee/none/x.txt", "x", 1, NULL}};
    const char *example = NULL;
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char digests[2][ESPL_SHA256_HEX];
    struct espl_image_list *list = NULL;
    temp_folder_make(dir);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char folder[ESPL_PATH_MAX];
        join(folder, dir, files[i].name);
        memcpy(path, folder, sizeof path);
        *strrchr(folder, '/') = '\0';
        assert_int_equal(espl_fs_make_dirs(folder, NULL), ESPL_OK);
        assert_int_equal(espl_fs_write_file(path, files[i].bytes, files[i].len, NULL), ESPL_OK);
    }
    assert_int_equal(espl_image_list_open(dir, "set/", &limits, 10000, &list, NULL), ESPL_OK);
    expect_list(list);
    assert_int_equal(espl_image_list_empty(list, &example), 1); /* would have been a class */
    assert_string_equal(example, "cow");
    assert_int_equal(espl_image_list_digest(list, digests[0], NULL), ESPL_OK);
    espl_image_list_close(list);
    join(path, dir, "all.tar.gz");
    archive_fixture_write(path, ".tar.gz", files, sizeof files / sizeof files[0]);
    assert_int_equal(espl_image_list_open(path, "set", &limits, 10000, &list, NULL), ESPL_OK);
    expect_list(list);
    assert_int_equal(espl_image_list_digest(list, digests[1], NULL), ESPL_OK);
    assert_string_equal(digests[0], digests[1]);
    espl_image_list_close(list);
    temp_folder_remove(dir);
}

static void expect_error(const char *path, const char *subset, uint64_t kept, enum espl_status code,
                         const char *part)
{
    struct espl_image_list *list = NULL;
    struct espl_error err = {0};
    assert_int_equal(espl_image_list_open(path, subset, &limits, kept, &list, &err), code);
    if (strstr(err.message, part) == NULL) {
        fail_msg("'%s' does not say '%s'", err.message, part);
    }
}

static void test_list__refusals(void **state)
{
    (void)state;
    const struct archive_file mixed[] = {{"ant/1.png", "a", 1, NULL}, {"2.png", "b", 1, NULL}};
    const struct archive_file twice[] = {{"1.png", "a", 1, NULL}, {"1.png", "b", 1, NULL}};
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    temp_folder_make(dir);
    expect_error(dir, NULL, 10000, ESPL_E_NOTFOUND, "there are no pictures in '");
    expect_error(dir, "test", 10000, ESPL_E_NOTFOUND, "there is no folder 'test' in '");
    expect_error(dir, "../other", 10000, ESPL_E_JOB,
                 "subset '../other' is not a folder inside the source");
    join(path, dir, "m.tar");
    archive_fixture_write(path, ".tar", mixed, 2);
    expect_error(path, NULL, 10000, ESPL_E_KIND,
                 "some pictures are in class folders, but '2.png' is not in one");
    expect_error(path, "bee", 10000, ESPL_E_NOTFOUND, "' below 'bee'");
    struct espl_image_list *list = NULL;
    struct espl_error err = {0};
    assert_int_equal(espl_image_list_open(path, "bee", &limits, 10000, &list, &err),
                     ESPL_E_NOTFOUND);
    assert_string_equal(err.hint, "there is 'ant/1.png', for example: subset is a folder as it is "
                                  "named inside");
    archive_fixture_write(path, ".tar", twice, 2);
    expect_error(path, NULL, 10000, ESPL_E_CORRUPT, "the archive holds '1.png' twice");
    expect_error(path, NULL, 1, ESPL_E_NOMEM, "no room for '1.png' beside the pictures before it");
    temp_folder_remove(dir);
}

/* Pictures without class folders have no classes. */
static void test_list__unlabelled(void **state)
{
    (void)state;
    const struct archive_file files[] = {{"2.png", "a", 1, NULL}, {"1.png", "b", 1, NULL}};
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    struct espl_image_list *list = NULL;
    temp_folder_make(dir);
    join(path, dir, "m.zip");
    archive_fixture_write(path, ".zip", files, 2);
    assert_int_equal(espl_image_list_open(path, NULL, &limits, 10000, &list, NULL), ESPL_OK);
    assert_int_equal(espl_image_list_classes(list), 0);
    assert_int_equal(espl_image_list_class(list, 0), -1);
    assert_string_equal(espl_image_list_name(list, 0), "1.png");
    espl_image_list_close(list);
    temp_folder_remove(dir);
}

/* ---- CIFAR-10 ---- */

/* Red 1, green 2 and blue 3 of the first pixel, 9 as the blue of the last one. */
static void test_cifar(void **state)
{
    (void)state;
    static uint8_t bytes[2 * ESPL_CIFAR_RECORD];
    static uint8_t pixels[2 * ESPL_CIFAR_PIXELS];
    uint8_t labels[2];
    size_t count = 0;
    struct espl_error err = {0};
    uint8_t *const second = bytes + 3073;
    bytes[0] = 7;
    second[0] = 9;
    second[1] = 1;
    second[1 + 1024] = 2;
    second[1 + 2048] = 3;
    second[3072] = 9;
    assert_int_equal(espl_cifar_count(sizeof bytes, &count, &err), ESPL_OK);
    assert_int_equal(count, 2);
    assert_int_equal(espl_cifar_split(bytes, count, pixels, labels, &err), ESPL_OK);
    assert_int_equal(labels[0], 7);
    assert_int_equal(labels[1], 9);
    assert_memory_equal(pixels + 3072, "\1\2\3\0", 4);
    assert_int_equal(pixels[2 * 3072 - 1], 9);
    assert_int_equal(pixels[3071], 0);

    second[0] = 10;
    assert_int_equal(espl_cifar_split(bytes, count, pixels, labels, &err), ESPL_E_CORRUPT);
    assert_string_equal(err.message, "label 10 of record 1 is not below 10");
    assert_int_equal(espl_cifar_count(0, &count, &err), ESPL_E_CORRUPT);
    assert_int_equal(espl_cifar_count(3072, &count, &err), ESPL_E_CORRUPT);
    assert_string_equal(err.message, "its 3072 bytes are not records of 3073 (a label and 32 x 32 "
                                     "x 3 pixels)");
}

static void test_cifar__file(void **state)
{
    (void)state;
    static uint8_t bytes[ESPL_CIFAR_RECORD] = {4};
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    uint8_t *pixels = NULL;
    uint8_t *labels = NULL;
    size_t count = 0;
    struct espl_error err = {0};
    temp_folder_make(dir);
    join(path, dir, "batch.bin");
    assert_int_equal(espl_fs_write_file(path, bytes, sizeof bytes, NULL), ESPL_OK);
    assert_int_equal(espl_cifar_read(path, 1 << 20, &pixels, &labels, &count, &err), ESPL_OK);
    assert_int_equal(count, 1);
    assert_int_equal(labels[0], 4);
    free(pixels);
    free(labels);
    bytes[0] = 200;
    assert_int_equal(espl_fs_write_file(path, bytes, sizeof bytes, NULL), ESPL_OK);
    assert_int_equal(espl_cifar_read(path, 1 << 20, &pixels, &labels, &count, &err),
                     ESPL_E_CORRUPT);
    assert_null(pixels);
    assert_non_null(strstr(err.context, "batch.bin"));
    temp_folder_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_idx),
        cmocka_unit_test(test_idx__refusals),
        cmocka_unit_test(test_idx__file),
        cmocka_unit_test(test_cifar),
        cmocka_unit_test(test_cifar__file),
        cmocka_unit_test(test_archive),
        cmocka_unit_test(test_archive__unsafe),
        cmocka_unit_test(test_archive__bounds),
        cmocka_unit_test(test_archive__damaged),
        cmocka_unit_test(test_archive__names),
        cmocka_unit_test(test_archive__cut_off),
        cmocka_unit_test(test_list),
        cmocka_unit_test(test_list__refusals),
        cmocka_unit_test(test_list__unlabelled),
    };
    return cmocka_run_group_tests_name("image_sources", tests, NULL, NULL);
}
