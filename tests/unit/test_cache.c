/* The cache of fetched files: names, records, sets, and what happens when parts are gone. */
#include "datasets/cache.h"
#include "datasets/source.h"

#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[ESPL_PATH_MAX];
static struct espl_cache cache;

static int set_up(void **state)
{
    (void)state;
    temp_folder_make(folder);
    return espl_cache_locate(folder, &cache, NULL) == ESPL_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    temp_folder_remove(folder);
    return 0;
}

/* Publishes a blob of this text; hash: its name. */
static void add_blob(const char *text, char hash[ESPL_SHA256_HEX])
{
    char path[ESPL_PATH_MAX];
    assert_int_equal(espl_sha256_bytes(text, strlen(text), hash, NULL), ESPL_OK);
    assert_int_equal(espl_cache_partial_path(&cache, "new", "", path, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(path, text, strlen(text), NULL), ESPL_OK);
    assert_int_equal(espl_cache_publish_blob(&cache, path, hash, NULL), ESPL_OK);
}

static json_t *describe(const char *name, const char *file, const char *hash, int size)
{
    return json_pack("{s:s, s:s, s:[s], s:[{s:s, s:s, s:i}]}", "schema", "espalier.set/1", "name",
                     name, "use", file, "files", "name", file, "sha256", hash, "size", size);
}

static void test_name_is_safe__refuses_ways_out(void **state)
{
    (void)state;
    static const char *const good[] = {
        "a", "a/b.c", "en/c4-train.00000-of-01024.json.gz", "..a", "a..", "...", "-"};
    static const char *const bad[] = {"",    "/a",    "a/",   "..",   "a/../b", "../a", "a//b",
                                      "./a", "a/./b", "a\\b", "a\nb", "a\x7f",  "."};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(espl_cache_name_is_safe(good[i]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(espl_cache_name_is_safe(bad[i]));
    }
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[255] = '\0';
    assert_true(espl_cache_name_is_safe(longest));
    longest[255] = 'x';
    longest[256] = '\0';
    assert_false(espl_cache_name_is_safe(longest));
}

static void test_locate__order_of_the_environment(void **state)
{
    (void)state;
    struct espl_cache found;
    struct espl_error err;
    assert_int_equal(setenv("HOME", "/home/u", 1), 0);
    assert_int_equal(unsetenv("ESPALIER_CACHE"), 0);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(espl_cache_locate(NULL, &found, NULL), ESPL_OK);
    assert_string_equal(found.root, "/home/u/.cache/espalier");
    assert_int_equal(setenv("XDG_CACHE_HOME", "relative", 1), 0); /* is ignored */
    assert_int_equal(espl_cache_locate(NULL, &found, NULL), ESPL_OK);
    assert_string_equal(found.root, "/home/u/.cache/espalier");
    assert_int_equal(setenv("XDG_CACHE_HOME", "/x", 1), 0);
    assert_int_equal(espl_cache_locate(NULL, &found, NULL), ESPL_OK);
    assert_string_equal(found.root, "/x/espalier");
    assert_int_equal(setenv("ESPALIER_CACHE", "/own/", 1), 0);
    assert_int_equal(espl_cache_locate(NULL, &found, NULL), ESPL_OK);
    assert_string_equal(found.root, "/own");
    assert_int_equal(espl_cache_locate("given", &found, NULL), ESPL_OK);
    assert_string_equal(found.root, "given");
    assert_int_equal(unsetenv("HOME"), 0);
    assert_int_equal(unsetenv("XDG_CACHE_HOME"), 0);
    assert_int_equal(unsetenv("ESPALIER_CACHE"), 0);
    assert_int_equal(espl_cache_locate(NULL, &found, &err), ESPL_E_MACHINE);
}

static void test_record__tells_whether_the_file_is_there(void **state)
{
    (void)state;
    struct espl_cache_record record = {.size = 5, .hub_checked = true};
    struct espl_cache_record found;
    char path[ESPL_PATH_MAX];
    assert_int_equal(espl_cache_read_record(&cache, "https://x/y", &found, NULL), ESPL_E_NOTFOUND);
    add_blob("hello", record.sha256);
    (void)snprintf(record.commit, sizeof record.commit, "abc");
    assert_int_equal(espl_cache_write_record(&cache, "https://x/y", &record, NULL), ESPL_OK);
    assert_int_equal(espl_cache_read_record(&cache, "https://x/y", &found, NULL), ESPL_OK);
    assert_true(found.present && found.hub_checked && !found.absent);
    assert_int_equal(found.size, 5);
    assert_string_equal(found.commit, "abc");
    assert_string_equal(found.sha256, record.sha256);
    assert_int_equal(espl_cache_blob_path(&cache, record.sha256, path, NULL), ESPL_OK);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 4), 0);
    assert_int_equal(espl_cache_read_record(&cache, "https://x/y", &found, NULL), ESPL_OK);
    assert_false(found.present);
    const struct espl_cache_record nothing = {.absent = true};
    assert_int_equal(espl_cache_write_record(&cache, "https://x/z", &nothing, NULL), ESPL_OK);
    assert_int_equal(espl_cache_read_record(&cache, "https://x/z", &found, NULL), ESPL_OK);
    assert_true(found.absent && !found.present);
}

static void test_record__damaged_or_of_another_address_counts_as_none(void **state)
{
    (void)state;
    struct espl_cache_record record = {.size = 5};
    struct espl_cache_record found;
    char path[ESPL_PATH_MAX];
    char urls[ESPL_PATH_MAX];
    char moved[ESPL_PATH_MAX];
    char id[ESPL_SHA256_HEX];
    char **names = NULL;
    size_t count = 0;
    add_blob("hello", record.sha256);
    assert_int_equal(espl_cache_write_record(&cache, "https://x/y", &record, NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(urls, folder, "urls", NULL), ESPL_OK);
    assert_int_equal(espl_fs_list(urls, 10, &names, &count, NULL), ESPL_OK);
    assert_int_equal(count, 1);
    assert_int_equal(espl_fs_join(path, urls, names[0], NULL), ESPL_OK);
    espl_fs_free_names(names, count);
    assert_int_equal(espl_sha256_bytes("https://x/z", 11, id, NULL), ESPL_OK);
    (void)snprintf(moved, sizeof moved, "%.4000s/%s.json", urls, id);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(espl_cache_read_record(&cache, "https://x/z", &found, NULL), ESPL_E_NOTFOUND);
    assert_int_equal(rename(moved, path), 0);
    assert_int_equal(espl_cache_read_record(&cache, "https://x/y", &found, NULL), ESPL_OK);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(espl_cache_read_record(&cache, "https://x/y", &found, NULL), ESPL_E_NOTFOUND);
}

static void test_set__links_to_blobs(void **state)
{
    (void)state;
    char hash[ESPL_SHA256_HEX];
    char found[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    add_blob("content", hash);
    json_t *const set = describe("one", "deep/er/file", hash, 7);
    assert_int_equal(espl_cache_publish_set(&cache, "one", set, NULL), ESPL_OK);
    assert_int_equal(espl_cache_publish_set(&cache, "one", set, NULL), ESPL_OK); /* again */
    json_decref(set);
    assert_int_equal(espl_cache_find_set(&cache, "one", found, NULL, NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(path, found, "deep/er/file", NULL), ESPL_OK);
    assert_int_equal(espl_fs_read_file(path, 100, &text, &len, NULL), ESPL_OK);
    assert_string_equal(text, "content");
    free(text);
    assert_int_equal(espl_cache_remove_set(&cache, "one", NULL), ESPL_OK);
    assert_int_equal(espl_cache_find_set(&cache, "one", found, NULL, NULL), ESPL_E_NOTFOUND);
    assert_int_equal(espl_cache_remove_set(&cache, "one", NULL), ESPL_E_NOTFOUND);
}

static void test_find_set__says_what_is_wrong(void **state)
{
    (void)state;
    char hash[ESPL_SHA256_HEX];
    char found[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    struct espl_error err;
    add_blob("content", hash);
    json_t *const set = describe("wikitext2", "f", hash, 7);
    assert_int_equal(espl_cache_publish_set(&cache, "wikitext2", set, NULL), ESPL_OK);
    json_decref(set);
    assert_int_equal(espl_cache_find_set(&cache, "wikitxt2", found, NULL, &err), ESPL_E_NOTFOUND);
    assert_non_null(strstr(err.hint, "did you mean 'wikitext2'"));
    assert_int_equal(espl_cache_find_set(&cache, "../x", found, NULL, &err), ESPL_E_USAGE);
    assert_int_equal(espl_cache_blob_path(&cache, hash, path, NULL), ESPL_OK);
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(truncate(path, 6), 0);
    assert_int_equal(espl_cache_find_set(&cache, "wikitext2", found, NULL, &err), ESPL_E_CORRUPT);
    assert_string_equal(err.message, "'f' of the fetched set 'wikitext2' is missing or cut");
    assert_string_equal(err.hint, "`espalier fetch wikitext2` fetches what is missing");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(espl_cache_find_set(&cache, "wikitext2", found, NULL, &err), ESPL_E_CORRUPT);
}

static void test_source__files_for_use(void **state)
{
    (void)state;
    char hash[ESPL_SHA256_HEX];
    struct espl_source source;
    struct espl_error err;
    assert_int_equal(setenv("ESPALIER_CACHE", folder, 1), 0);
    add_blob("content", hash);
    json_t *const set = describe("text", "f", hash, 7);
    assert_int_equal(espl_cache_publish_set(&cache, "text", set, NULL), ESPL_OK);
    json_decref(set);
    assert_int_equal(espl_source_find("text", &source, &err), ESPL_OK);
    assert_int_equal(source.count, 1);
    assert_non_null(strstr(source.paths[0], "/sets/text/f"));
    espl_source_free(&source);
    assert_int_equal(espl_source_find("text/f", &source, &err), ESPL_OK);
    assert_int_equal(source.count, 1);
    espl_source_free(&source);
    assert_int_equal(espl_source_find("text/g", &source, &err), ESPL_E_NOTFOUND);
    assert_string_equal(err.message, "'text' has no file 'g'");
    assert_int_equal(unsetenv("ESPALIER_CACHE"), 0);
}

static void test_sweep__takes_what_the_dead_left(void **state)
{
    (void)state;
    char download[ESPL_PATH_MAX];
    char living[ESPL_PATH_MAX];
    char dead[ESPL_PATH_MAX];
    assert_int_equal(espl_cache_partial_path(&cache, "id", ".json", download, NULL), ESPL_OK);
    assert_int_equal(espl_fs_temporary_name(living, download, NULL), ESPL_OK);
    memcpy(dead, living, sizeof dead);
    /* No process has a number above the kernel's limit of 2^22. */
    char *const number = strrchr(dead, '-') + 1;
    (void)snprintf(number, sizeof dead - (size_t)(number - dead), "4194305.tmp");
    assert_int_equal(espl_fs_write_file(download, "{}", 2, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(dead, "{}", 2, NULL), ESPL_OK);
    assert_int_equal(espl_fs_write_file(living, "{}", 2, NULL), ESPL_OK);
    espl_cache_sweep(&cache);
    assert_true(espl_fs_exists(download) && espl_fs_exists(living));
    assert_false(espl_fs_exists(dead));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_name_is_safe__refuses_ways_out),
        cmocka_unit_test(test_locate__order_of_the_environment),
        cmocka_unit_test_setup_teardown(test_record__tells_whether_the_file_is_there, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_record__damaged_or_of_another_address_counts_as_none,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_set__links_to_blobs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_find_set__says_what_is_wrong, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_source__files_for_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_sweep__takes_what_the_dead_left, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
