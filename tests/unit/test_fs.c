#include "core/fs.h"
#include "support/test_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static size_t count_names(const char *dir)
{
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(espl_fs_list(dir, 1000, &names, &count, NULL), ESPL_OK);
    espl_fs_free_names(names, count);
    return count;
}

static void test_fs_join__separators_and_length(void **state)
{
    char out[ESPL_PATH_MAX];
    char long_name[ESPL_PATH_MAX + 10];
    struct espl_error err;
    (void)state;
    assert_int_equal(espl_fs_join(out, "a", "b", &err), ESPL_OK);
    assert_string_equal(out, "a/b");
    assert_int_equal(espl_fs_join(out, "a///", "b", &err), ESPL_OK);
    assert_string_equal(out, "a/b");
    assert_int_equal(espl_fs_join(out, "/", "b", &err), ESPL_OK);
    assert_string_equal(out, "/b");
    assert_int_equal(espl_fs_join(out, "", "b", &err), ESPL_OK);
    assert_string_equal(out, "b");
    assert_int_equal(espl_fs_join(out, "/a/", "", &err), ESPL_OK);
    assert_string_equal(out, "/a");
    memset(long_name, 'n', sizeof long_name - 1);
    long_name[ESPL_PATH_MAX - 3] = '\0'; /* "a/" and this fill the field exactly */
    assert_int_equal(espl_fs_join(out, "a", long_name, &err), ESPL_OK);
    assert_int_equal(strlen(out), ESPL_PATH_MAX - 1);
    long_name[ESPL_PATH_MAX - 3] = 'n';
    long_name[ESPL_PATH_MAX - 2] = '\0';
    assert_int_equal(espl_fs_join(out, "a", long_name, &err), ESPL_E_IO);
}

static void test_fs_make_dirs__nested_and_over_a_file(void **state)
{
    struct espl_error err;
    (void)state;
    assert_int_equal(espl_fs_make_dirs(below("a/b//c/"), &err), ESPL_OK);
    assert_true(espl_fs_is_dir(below("a/b/c")));
    assert_int_equal(espl_fs_make_dirs(below("a/b"), &err), ESPL_OK);
    assert_int_equal(espl_fs_write_file(below("a/file"), "x", 1, &err), ESPL_OK);
    assert_int_equal(espl_fs_make_dirs(below("a/file"), &err), ESPL_E_IO);
    assert_int_equal(espl_fs_make_dirs(below("a/file/d"), &err), ESPL_E_IO);
    assert_true(espl_fs_exists(below("a/file")));
    assert_false(espl_fs_is_dir(below("a/file")));
    assert_false(espl_fs_exists(below("absent")));
}

static void test_fs_read_file__limit_and_kinds(void **state)
{
    struct espl_error err;
    char *data = NULL;
    size_t len = 99;
    uint64_t size = 0;
    (void)state;
    assert_int_equal(espl_fs_write_file(below("f"), "0123456789", 10, &err), ESPL_OK);
    assert_int_equal(espl_fs_read_file(below("f"), 10, &data, &len, &err), ESPL_OK);
    assert_int_equal(len, 10);
    assert_string_equal(data, "0123456789");
    free(data);
    data = NULL;
    assert_int_equal(espl_fs_read_file(below("f"), 9, &data, &len, &err), ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "10 bytes, the limit is 9"));
    assert_null(data);
    assert_int_equal(espl_fs_read_file(below("absent"), 9, &data, &len, &err), ESPL_E_NOTFOUND);
    assert_int_equal(espl_fs_read_file(test_folder, 9, &data, &len, &err), ESPL_E_KIND);
    assert_string_equal(err.hint, "a folder stands where this file should be: move it away");
    assert_int_equal(espl_fs_write_file(below("empty"), "", 0, &err), ESPL_OK);
    assert_int_equal(espl_fs_read_file(below("empty"), 0, &data, &len, &err), ESPL_OK);
    assert_int_equal(len, 0);
    assert_string_equal(data, "");
    free(data);
    data = NULL;
    /* A file that states size 0 and yields more. */
    assert_int_equal(espl_fs_read_file("/proc/self/status", 1 << 16, &data, &len, &err), ESPL_OK);
    assert_true(len > 100);
    free(data);
    data = NULL;
    assert_int_equal(espl_fs_read_file("/proc/self/status", 100, &data, &len, &err),
                     ESPL_E_CORRUPT);
    assert_int_equal(mkfifo(below("pipe"), 0600), 0);
    assert_int_equal(espl_fs_read_file(below("pipe"), 9, &data, &len, &err), ESPL_E_KIND);
    assert_string_equal(err.hint, "");
    assert_int_equal(espl_fs_file_size(below("f"), &size, &err), ESPL_OK);
    assert_int_equal(size, 10);
    assert_int_equal(espl_fs_file_size(test_folder, &size, &err), ESPL_E_KIND);
    assert_int_equal(espl_fs_file_size(below("absent"), &size, &err), ESPL_E_NOTFOUND);
}

static void test_fs_write_file__replaces_and_leaves_nothing_else(void **state)
{
    struct espl_error err;
    char *data = NULL;
    size_t len = 0;
    (void)state;
    assert_int_equal(espl_fs_write_file(below("f"), "old", 3, &err), ESPL_OK);
    assert_int_equal(espl_fs_write_file(below("f"), "new text", 8, &err), ESPL_OK);
    assert_int_equal(espl_fs_read_file(below("f"), 100, &data, &len, &err), ESPL_OK);
    assert_string_equal(data, "new text");
    free(data);
    assert_int_equal(count_names(test_folder), 1);
    assert_int_equal(espl_fs_write_file(below("no/f"), "x", 1, &err), ESPL_E_NOTFOUND);
    assert_int_equal(mkdir(below("d"), 0700), 0);
    assert_int_equal(espl_fs_write_file(below("d"), "x", 1, &err), ESPL_E_IO);
    assert_int_equal(count_names(test_folder), 2); /* f and d: the temporary is gone */
}

/* A process that may not write more than 4 KiB into a file stands for a full disk: the write comes
 * back short and then fails (EFBIG). */
static void test_fs_write_file__short_write_leaves_the_old_file(void **state)
{
    struct espl_error err;
    char *data = NULL;
    size_t len = 0;
    (void)state;
    assert_int_equal(espl_fs_write_file(below("f"), "old", 3, &err), ESPL_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit limit = {4096, 4096};
        static char block[10000];
        (void)signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
            _exit(90);
        }
        _exit(espl_fs_write_file(below("f"), block, sizeof block, &err) == ESPL_E_IO &&
                      err.sys_errno == EFBIG
                  ? 0
                  : 91);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    assert_int_equal(espl_fs_read_file(below("f"), 100, &data, &len, &err), ESPL_OK);
    assert_string_equal(data, "old");
    free(data);
    assert_int_equal(count_names(test_folder), 1);
}

static void test_fs_publish__failure_removes_the_temporary(void **state)
{
    struct espl_error err;
    (void)state;
    assert_int_equal(espl_fs_write_file(below("tmp"), "x", 1, &err), ESPL_OK);
    assert_int_equal(espl_fs_publish(below("tmp"), below("no/final"), &err), ESPL_E_NOTFOUND);
    assert_int_equal(count_names(test_folder), 0);
    assert_int_equal(espl_fs_publish(below("tmp"), below("final"), &err), ESPL_E_NOTFOUND);
}

static void test_fs_write_file__over_a_folder(void **state)
{
    struct espl_error err;
    (void)state;
    assert_int_equal(mkdir(below("unit.h5"), 0777), 0);
    assert_int_equal(espl_fs_write_file(below("unit.h5"), "x", 1, &err), ESPL_E_IO);
    assert_non_null(strstr(err.message, "cannot publish '"));
    assert_string_equal(err.hint, "a folder stands where this file should be: move it away");
    assert_int_equal(count_names(test_folder), 1);
}

static void test_fs_refresh_link__replaces(void **state)
{
    struct espl_error err;
    char target[100] = "";
    (void)state;
    assert_int_equal(espl_fs_refresh_link("one", below("link"), &err), ESPL_OK);
    assert_int_equal(espl_fs_refresh_link("../two", below("link"), &err), ESPL_OK);
    assert_int_equal(readlink(below("link"), target, sizeof target - 1), 6);
    assert_string_equal(target, "../two");
    assert_int_equal(count_names(test_folder), 1);
    assert_int_equal(espl_fs_make_dirs(below("dir/x"), &err), ESPL_OK);
    assert_int_equal(espl_fs_refresh_link("one", below("dir"), &err), ESPL_E_IO);
    assert_int_equal(espl_fs_refresh_link("one", below("no/link"), &err), ESPL_E_NOTFOUND);
    assert_int_equal(count_names(test_folder), 2);
}

static void test_fs_free_bytes__nearest_parent(void **state)
{
    struct espl_error err;
    uint64_t bytes = 0;
    uint64_t there = 0;
    (void)state;
    assert_int_equal(espl_fs_free_bytes(test_folder, &there, &err), ESPL_OK);
    assert_true(there > 0);
    assert_int_equal(espl_fs_free_bytes(below("not/yet/made"), &bytes, &err), ESPL_OK);
    assert_true(bytes > 0);
    assert_int_equal(espl_fs_free_bytes("relative-and-absent", &bytes, &err), ESPL_OK);
    assert_int_equal(espl_fs_free_bytes("", &bytes, &err), ESPL_OK);
    assert_int_equal(espl_fs_write_file(below("f"), "x", 1, &err), ESPL_OK);
    assert_int_equal(espl_fs_free_bytes(below("f/below-a-file"), &bytes, &err), ESPL_OK);
}

static void test_fs_list__sorted_and_limited(void **state)
{
    static const char *const made[] = {"b", "a", "B", ".hidden", "a10", "a9"};
    static const char *const sorted[] = {".hidden", "B", "a", "a10", "a9", "b"};
    struct espl_error err;
    char **names = NULL;
    size_t count = 0;
    (void)state;
    assert_int_equal(espl_fs_list(test_folder, 10, &names, &count, &err), ESPL_OK);
    assert_int_equal(count, 0);
    espl_fs_free_names(names, count);
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(espl_fs_write_file(below(made[i]), "", 0, &err), ESPL_OK);
    }
    assert_int_equal(espl_fs_list(test_folder, 6, &names, &count, &err), ESPL_OK);
    assert_int_equal(count, 6);
    for (size_t i = 0; i < 6; i++) {
        assert_string_equal(names[i], sorted[i]);
    }
    espl_fs_free_names(names, count);
    names = NULL;
    assert_int_equal(espl_fs_list(test_folder, 5, &names, &count, &err), ESPL_E_CORRUPT);
    assert_null(names);
    assert_int_equal(espl_fs_list(below("absent"), 5, &names, &count, &err), ESPL_E_NOTFOUND);
    espl_fs_free_names(NULL, 0);
}

static void test_fs_remove_tree__stays_inside(void **state)
{
    struct espl_error err;
    (void)state;
    assert_int_equal(espl_fs_make_dirs(below("outside"), &err), ESPL_OK);
    assert_int_equal(espl_fs_write_file(below("outside/keep"), "x", 1, &err), ESPL_OK);
    assert_int_equal(espl_fs_make_dirs(below("tree/a/b/c"), &err), ESPL_OK);
    assert_int_equal(espl_fs_write_file(below("tree/a/f"), "x", 1, &err), ESPL_OK);
    assert_int_equal(symlink("../../outside", below("tree/a/link")), 0);
    assert_int_equal(espl_fs_remove_tree(below("tree"), &err), ESPL_OK);
    assert_false(espl_fs_exists(below("tree")));
    assert_true(espl_fs_exists(below("outside/keep")));
    assert_int_equal(symlink("outside", below("link")), 0);
    assert_int_equal(espl_fs_remove_tree(below("link"), &err), ESPL_OK);
    assert_true(espl_fs_exists(below("outside/keep")));
    assert_int_equal(espl_fs_remove_tree(below("outside/keep"), &err), ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(below("absent"), &err), ESPL_OK);
    assert_int_equal(count_names(test_folder), 1);
}

static void test_fs_remove_tree__too_deep_is_an_error(void **state)
{
    struct espl_error err;
    char path[ESPL_PATH_MAX];
    (void)state;
    assert_int_equal(espl_fs_join(path, test_folder, "deep", &err), ESPL_OK);
    for (size_t i = 0; i < 80; i++) {
        const size_t len = strlen(path);
        (void)snprintf(path + len, sizeof path - len, "/d");
    }
    assert_int_equal(espl_fs_make_dirs(path, &err), ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(below("deep"), &err), ESPL_E_IO);
    /* What is above the limit goes when the deep part is taken first. */
    path[strlen(test_folder) + strlen("/deep") + 40 * 2] = '\0';
    assert_int_equal(espl_fs_remove_tree(path, &err), ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(below("deep"), &err), ESPL_OK);
}

static void test_fs_is_abandoned__only_dead_processes_of_this_host(void **state)
{
    char name[ESPL_PATH_MAX];
    char other[ESPL_PATH_MAX];
    struct espl_error err;
    (void)state;
    assert_int_equal(espl_fs_temporary_name(name, "partial/abc.model", &err), ESPL_OK);
    assert_int_equal(strncmp(name, "partial/abc.model.", 18), 0);
    assert_false(espl_fs_is_abandoned(name)); /* this process lives */
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        _exit(0);
    }
    (void)snprintf(other, sizeof other, "%.*s-%ld.tmp", (int)(strrchr(name, '-') - name), name,
                   (long)child);
    /* It has ended, but nobody has waited for it: it has no files any more. */
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
    assert_true(espl_fs_is_abandoned(other));
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(espl_fs_is_abandoned(other));
    other[18] = other[18] == '0' ? '1' : '0'; /* another host's tag */
    assert_false(espl_fs_is_abandoned(other));
    static const char *const strangers[] = {"",
                                            "x.tmp",
                                            "abc.h5",
                                            "-1.tmp",
                                            "x-y.tmp",
                                            ".tmp",
                                            "a.12345678-.tmp",
                                            "a.12345678-1x.tmp",
                                            "1-2.tmp",
                                            "a.12345678-99999999999999999999999999.tmp"};
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        assert_false(espl_fs_is_abandoned(strangers[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fs_join__separators_and_length),
        cmocka_unit_test_setup_teardown(test_fs_make_dirs__nested_and_over_a_file,
                                        test_folder_set_up, test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_read_file__limit_and_kinds, test_folder_set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_write_file__replaces_and_leaves_nothing_else,
                                        test_folder_set_up, test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_write_file__short_write_leaves_the_old_file,
                                        test_folder_set_up, test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_publish__failure_removes_the_temporary,
                                        test_folder_set_up, test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_write_file__over_a_folder, test_folder_set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_refresh_link__replaces, test_folder_set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_free_bytes__nearest_parent, test_folder_set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_list__sorted_and_limited, test_folder_set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_remove_tree__stays_inside, test_folder_set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_fs_remove_tree__too_deep_is_an_error,
                                        test_folder_set_up, test_folder_tear_down),
        cmocka_unit_test(test_fs_is_abandoned__only_dead_processes_of_this_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
