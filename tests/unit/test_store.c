#include "artifact/store.h"
#include "support/test_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct espl_store store;
static struct espl_error err;

#define KEY          "aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899"
#define TOO_LONG_KEY KEY "00"
#define OTHER_KEY    "aabbccddeeff11112233445566778899aabbccddeeff00112233445566778899"

static int set_up(void **state)
{
    char root[ESPL_PATH_MAX];
    espl_artifact_library_init();
    (void)test_folder_set_up(state);
    return espl_fs_join(root, test_folder, "results", &err) == ESPL_OK &&
                   espl_store_open(root, &store, &err) == ESPL_OK
               ? 0
               : 1;
}

static void write_text(const char *path, const char *text)
{
    assert_int_equal(espl_fs_write_file(path, text, strlen(text), &err), ESPL_OK);
}

static void test_store_open__layout_and_paths(void **state)
{
    static const char *const made[] = {"store", "partial", "runs", "by-name", "index"};
    char path[ESPL_PATH_MAX];
    char expected[ESPL_PATH_MAX];
    (void)state;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(espl_fs_join(path, store.root, made[i], &err), ESPL_OK);
        assert_true(espl_fs_is_dir(path));
    }
    assert_int_equal(store.root[0], '/');
    assert_false(store.readonly);
    assert_int_equal(espl_store_artifact_path(&store, KEY, NULL, path, &err), ESPL_OK);
    assert_int_equal(espl_fs_join(expected, store.root, "store/aa/" KEY ".h5", &err), ESPL_OK);
    assert_string_equal(path, expected);
    assert_int_equal(espl_store_artifact_path(&store, KEY, "model", path, &err), ESPL_OK);
    assert_int_equal(espl_fs_join(expected, store.root, "store/aa/" KEY ".model.h5", &err),
                     ESPL_OK);
    assert_string_equal(path, expected);
    assert_int_equal(espl_store_lock_path(&store, KEY, path, &err), ESPL_OK);
    assert_int_equal(espl_fs_join(expected, store.root, "partial/" KEY ".lock", &err), ESPL_OK);
    assert_string_equal(path, expected);
    assert_int_equal(espl_store_units_dir(&store, KEY, false, path, &err), ESPL_OK);
    assert_false(espl_fs_exists(path));
    assert_int_equal(espl_store_units_dir(&store, KEY, true, path, &err), ESPL_OK);
    assert_true(espl_fs_is_dir(path));
    /* Nothing in a key, a port or a name may lead out of the store. */
    static const char *const bad_keys[] = {
        "", "abc", "../../../etc/passwd", "AABBCCDDEEFF", "aabbcc/dd", TOO_LONG_KEY};
    for (size_t i = 0; i < sizeof bad_keys / sizeof bad_keys[0]; i++) {
        assert_int_equal(espl_store_artifact_path(&store, bad_keys[i], NULL, path, &err),
                         ESPL_E_INTERNAL);
        assert_int_equal(espl_store_lock_path(&store, bad_keys[i], path, &err), ESPL_E_INTERNAL);
        assert_int_equal(espl_store_units_dir(&store, bad_keys[i], true, path, &err),
                         ESPL_E_INTERNAL);
        assert_false(espl_store_has(&store, bad_keys[i], NULL));
    }
    assert_int_equal(espl_store_artifact_path(&store, KEY, "../x", path, &err), ESPL_E_INTERNAL);
    assert_int_equal(espl_store_private_path(&store, KEY, "a/b", path, &err), ESPL_E_INTERNAL);
}

static void test_store_open_readonly__creates_nothing(void **state)
{
    struct espl_store other;
    char out[ESPL_PATH_MAX];
    char hex[ESPL_SHA256_HEX];
    (void)state;
    assert_int_equal(espl_store_open_readonly(below("absent"), &other, &err), ESPL_OK);
    assert_string_equal(other.root, below("absent"));
    assert_true(other.readonly);
    assert_false(espl_store_has(&other, KEY, NULL));
    assert_int_equal(espl_store_find(&other, "aabbcc", out, &err), ESPL_E_NOTFOUND);
    write_text(below("data"), "abc");
    assert_int_equal(espl_store_file_hash(&other, below("data"), false, hex, &err), ESPL_OK);
    assert_int_equal(strncmp(hex, "ba7816bf", 8), 0);
    assert_false(espl_fs_exists(below("absent")));
    assert_int_equal(espl_store_open_readonly("absent-and-relative", &other, &err), ESPL_OK);
    assert_int_equal(other.root[0], '/');
    write_text(below("file"), "x");
    assert_int_equal(espl_store_open(below("file"), &other, &err), ESPL_E_IO);
}

/* Reading does not need it; whoever wants to run learns what does. */
static void test_store_open__without_permission(void **state)
{
    struct espl_store other;
    (void)state;
    assert_int_equal(chmod(test_folder, 0755), 0);
    assert_int_equal(espl_fs_remove_tree(below("results/runs"), &err), ESPL_OK);
    assert_int_equal(chmod(store.root, 0555), 0);
    /* Root may write everywhere. */
    const bool root = geteuid() == 0;
    assert_int_equal(root ? seteuid(65534) : 0, 0);
    const enum espl_status status = espl_store_open(store.root, &other, &err);
    const enum espl_status readonly = espl_store_open_readonly(store.root, &other, NULL);
    assert_int_equal(root ? seteuid(0) : 0, 0);
    assert_int_equal(status, ESPL_E_IO);
    assert_string_equal(err.hint, espl_store_write_hint);
    assert_int_equal(readonly, ESPL_OK);
    assert_int_equal(chmod(store.root, 0755), 0);
}

static void test_store_publish__replaces_what_is_there(void **state)
{
    char private_path[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char *data = NULL;
    size_t len = 0;
    (void)state;
    assert_int_equal(espl_store_artifact_path(&store, KEY, "m", path, &err), ESPL_OK);
    assert_false(espl_store_has(&store, KEY, "m"));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(espl_store_private_path(&store, KEY, "m", private_path, &err), ESPL_OK);
        write_text(private_path, round == 0 ? "damaged" : "whole");
        assert_int_equal(espl_store_publish(&store, private_path, KEY, "m", &err), ESPL_OK);
        assert_false(espl_fs_exists(private_path));
        assert_true(espl_store_has(&store, KEY, "m"));
        assert_int_equal(espl_fs_read_file(path, 100, &data, &len, &err), ESPL_OK);
        assert_string_equal(data, round == 0 ? "damaged" : "whole");
        free(data);
    }
    assert_int_equal(espl_store_publish(&store, below("absent"), OTHER_KEY, NULL, &err),
                     ESPL_E_NOTFOUND);
    assert_false(espl_store_has(&store, OTHER_KEY, NULL));
}

static void test_store_open_artifact__checks_whose_it_is(void **state)
{
    char private_path[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char stranger[ESPL_PATH_MAX];
    struct espl_artifact *artifact = NULL;
    (void)state;
    assert_int_equal(espl_store_private_path(&store, KEY, "x", private_path, &err), ESPL_OK);
    assert_int_equal(espl_artifact_create(private_path, "unit/1", &artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_description(artifact, "{}", &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_attribute(artifact, "key", KEY, &err), ESPL_OK);
    assert_int_equal(espl_artifact_set_attribute(artifact, "port", "model", &err), ESPL_OK);
    assert_int_equal(espl_artifact_finish(&artifact, NULL, &err), ESPL_OK);
    assert_int_equal(espl_store_publish(&store, private_path, KEY, NULL, &err), ESPL_OK);
    assert_int_equal(espl_store_open_artifact(&store, KEY, NULL, &artifact, &err), ESPL_OK);
    espl_artifact_close(artifact);
    artifact = NULL;
    assert_int_equal(espl_store_artifact_path(&store, KEY, NULL, path, &err), ESPL_OK);
    assert_int_equal(espl_store_artifact_path(&store, OTHER_KEY, NULL, stranger, &err), ESPL_OK);
    assert_int_equal(link(path, stranger), 0);
    assert_int_equal(espl_store_open_artifact(&store, OTHER_KEY, NULL, &artifact, &err),
                     ESPL_E_CORRUPT);
    assert_non_null(
        strstr(err.message, "holds another result: it was made under key aabbccddeeff"));
    assert_int_equal(espl_store_artifact_path(&store, KEY, "words", stranger, &err), ESPL_OK);
    assert_int_equal(link(path, stranger), 0);
    assert_int_equal(espl_store_open_artifact(&store, KEY, "words", &artifact, &err),
                     ESPL_E_CORRUPT);
    assert_non_null(strstr(err.message, "port model"));
    assert_null(artifact);
}

static void test_store_of_file__finds_the_root(void **state)
{
    struct espl_store found;
    char path[ESPL_PATH_MAX];
    char link_path[ESPL_PATH_MAX];
    (void)state;
    assert_int_equal(espl_store_private_path(&store, KEY, "x", path, &err), ESPL_OK);
    write_text(path, "x");
    assert_int_equal(espl_store_publish(&store, path, KEY, NULL, &err), ESPL_OK);
    assert_int_equal(espl_store_artifact_path(&store, KEY, NULL, path, &err), ESPL_OK);
    assert_true(espl_store_of_file(path, &found));
    assert_string_equal(found.root, store.root);
    assert_true(found.readonly);
    (void)snprintf(link_path, sizeof link_path, "%s", below("link.h5"));
    assert_int_equal(symlink(path, link_path), 0);
    assert_true(espl_store_of_file(link_path, &found));
    assert_string_equal(found.root, store.root);
    write_text(below("plain.h5"), "x");
    assert_false(espl_store_of_file(below("plain.h5"), &found));
    assert_false(espl_store_of_file(below("absent.h5"), &found));
}

static void test_store_open__removes_guards_that_nobody_holds(void **state)
{
    struct espl_store again;
    char lock[ESPL_PATH_MAX];
    char guard[ESPL_PATH_MAX + 8];
    (void)state;
    assert_int_equal(espl_store_lock_path(&store, KEY, lock, &err), ESPL_OK);
    (void)snprintf(guard, sizeof guard, "%s.guard", lock);
    write_text(guard, "");
    assert_int_equal(espl_store_open(store.root, &again, &err), ESPL_OK);
    assert_false(espl_fs_exists(guard));
}

static void test_store_find__prefixes(void **state)
{
    char path[ESPL_PATH_MAX];
    char found[ESPL_PATH_MAX];
    (void)state;
    static const struct {
        const char *key;
        const char *port;
    } made[] = {{KEY, NULL}, {OTHER_KEY, "model"}, {OTHER_KEY, "stats"}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(espl_store_private_path(&store, made[i].key, "x", path, &err), ESPL_OK);
        write_text(path, "x");
        assert_int_equal(espl_store_publish(&store, path, made[i].key, made[i].port, &err),
                         ESPL_OK);
    }
    assert_int_equal(espl_store_find(&store, "aabbccddeeff0", found, &err), ESPL_OK);
    assert_int_equal(espl_store_artifact_path(&store, KEY, NULL, path, &err), ESPL_OK);
    assert_string_equal(found, path);
    assert_int_equal(espl_store_find(&store, KEY, found, &err), ESPL_OK);
    assert_int_equal(espl_store_find(&store, OTHER_KEY ".stats", found, &err), ESPL_OK);
    assert_int_equal(espl_store_artifact_path(&store, OTHER_KEY, "stats", path, &err), ESPL_OK);
    assert_string_equal(found, path);
    assert_int_equal(espl_store_find(&store, "aabbccddeeff1", found, &err), ESPL_E_KIND);
    assert_non_null(strstr(err.message, "2 artifacts"));
    assert_int_equal(espl_store_find(&store, "aabbcc", found, &err), ESPL_E_KIND);
    assert_int_equal(espl_store_find(&store, "aabbcd", found, &err), ESPL_E_NOTFOUND);
    assert_int_equal(espl_store_find(&store, "ffffff", found, &err), ESPL_E_NOTFOUND);
    static const char *const bad[] = {"", "aabbc", "aabbcz", "../aabbcc", "aabbcc./x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(espl_store_find(&store, bad[i], found, &err), ESPL_E_USAGE);
    }
}

/* A child leaves private files, a lock and units behind and is killed; a second one stays alive. */
static void test_store_open__cleans_only_what_is_dead(void **state)
{
    char path[ESPL_PATH_MAX];
    char dead_path[ESPL_PATH_MAX];
    char live_path[ESPL_PATH_MAX];
    char unit[ESPL_PATH_MAX];
    char foreign[ESPL_PATH_MAX];
    struct espl_store again;
    int ready[2];
    (void)state;
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(ready), 0);
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            if (espl_store_private_path(&store, KEY, i == 0 ? "dead" : "live", path, &err) ||
                espl_fs_write_file(path, "x", 1, &err) ||
                write(ready[1], path, strlen(path) + 1) < 0) {
                _exit(90);
            }
            for (;;) {
                (void)pause();
            }
        }
        char *out = i == 0 ? dead_path : live_path;
        assert_true(read(ready[0], out, ESPL_PATH_MAX) > 0);
        (void)close(ready[0]);
        (void)close(ready[1]);
    }
    assert_int_equal(kill(children[0], SIGKILL), 0);
    assert_int_equal(waitpid(children[0], NULL, 0), children[0]);
    assert_int_equal(espl_store_units_dir(&store, KEY, true, path, &err), ESPL_OK);
    assert_int_equal(espl_fs_join(unit, path, "unit-003.h5", &err), ESPL_OK);
    write_text(unit, "x");
    assert_int_equal(espl_fs_join(foreign, store.root, "partial/" KEY ".x.00000000-1.tmp", &err),
                     ESPL_OK);
    write_text(foreign, "of another host, as far as the name tells");
    assert_true(espl_fs_exists(dead_path));
    assert_int_equal(espl_store_open(store.root, &again, &err), ESPL_OK);
    assert_string_equal(again.root, store.root);
    assert_false(espl_fs_exists(dead_path));
    assert_true(espl_fs_exists(live_path));
    assert_true(espl_fs_exists(unit));
    assert_true(espl_fs_exists(foreign));
    assert_int_equal(kill(children[1], SIGKILL), 0);
    assert_int_equal(waitpid(children[1], NULL, 0), children[1]);
}

/* Sets the modification time of a file, to make it look settled. */
static void set_time(const char *path, time_t seconds, long nanoseconds)
{
    const struct timespec times[2] = {{seconds, nanoseconds}, {seconds, nanoseconds}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static size_t count_records(char first[ESPL_PATH_MAX])
{
    char dir[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(espl_fs_join(dir, store.root, "index/file-hashes", &err), ESPL_OK);
    if (espl_fs_list(dir, 100, &names, &count, &err) != ESPL_OK) {
        return 0;
    }
    if (count > 0) {
        assert_int_equal(espl_fs_join(first, dir, names[0], &err), ESPL_OK);
    }
    espl_fs_free_names(names, count);
    return count;
}

static void hash_is(const char *path, bool rehash, const char *start)
{
    char hex[ESPL_SHA256_HEX];
    assert_int_equal(espl_store_file_hash(&store, path, rehash, hex, &err), ESPL_OK);
    assert_int_equal(strlen(hex), 64);
    assert_int_equal(strncmp(hex, start, strlen(start)), 0);
}

static void test_store_file_hash__remembers_and_distrusts(void **state)
{
    char record[ESPL_PATH_MAX];
    char hex[ESPL_SHA256_HEX];
    int fd = -1;
    (void)state;
    write_text(below("data"), "abc");
    hash_is(below("data"), false, "ba7816bf");
    assert_int_equal(count_records(record), 0); /* changed just now: not settled */
    set_time(below("data"), 1000000000, 5);
    hash_is(below("data"), false, "ba7816bf");
    assert_int_equal(count_records(record), 1);

    /* Same size, inode and times, other bytes: the memory is believed, --rehash is not fooled. */
    fd = open(below("data"), O_WRONLY);
    assert_int_equal(pwrite(fd, "abd", 3, 0), 3);
    (void)close(fd);
    set_time(below("data"), 1000000000, 5);
    hash_is(below("data"), false, "ba7816bf");
    hash_is(below("data"), true, "a52d159f");
    hash_is(below("data"), false, "a52d159f"); /* and corrects the memory */
    /* One nanosecond of difference is another file. */
    fd = open(below("data"), O_WRONLY);
    assert_int_equal(pwrite(fd, "abc", 3, 0), 3);
    (void)close(fd);
    set_time(below("data"), 1000000000, 6);
    hash_is(below("data"), false, "ba7816bf");
    /* Another inode, all else equal. */
    assert_int_equal(count_records(record), 1);
    write_text(below("data"), "abd");
    set_time(below("data"), 1000000000, 6);
    hash_is(below("data"), false, "a52d159f");
    /* Through a link and a relative part it is the same file. */
    assert_int_equal(symlink("data", below("link")), 0);
    hash_is(below("link"), false, "a52d159f");
    hash_is(below("results/../data"), false, "a52d159f");
    assert_int_equal(count_records(record), 1);
    /* No store: no memory. */
    assert_int_equal(espl_store_file_hash(NULL, below("data"), false, hex, &err), ESPL_OK);
    assert_int_equal(espl_store_file_hash(&store, below("none"), false, hex, &err),
                     ESPL_E_NOTFOUND);
    assert_int_equal(espl_store_file_hash(NULL, below("none"), false, hex, &err), ESPL_E_NOTFOUND);
}

static void test_store_file_hash__damaged_memory_is_not_believed(void **state)
{
    static const char *const damaged[] = {
        "",         "{",
        "[]",       "{\"path\":1}",
        "\x00\xff", "{\"path\":\"/x\",\"size\":3,\"mtime_ns\":1,\"inode\":1,\"sha256\":\"00\"}"};
    char record[ESPL_PATH_MAX];
    char *text = NULL;
    size_t len = 0;
    (void)state;
    write_text(below("data"), "abc");
    set_time(below("data"), 1000000000, 5);
    hash_is(below("data"), false, "ba7816bf");
    assert_int_equal(count_records(record), 1);
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        write_text(record, damaged[i]);
        hash_is(below("data"), false, "ba7816bf");
    }
    /* A record that fits but holds no hash. */
    assert_int_equal(espl_fs_read_file(record, 10000, &text, &len, &err), ESPL_OK);
    char *hash = strstr(text, "ba7816bf");
    assert_non_null(hash);
    hash[0] = 'Z';
    write_text(record, text);
    free(text);
    hash_is(below("data"), false, "ba7816bf");
    /* A folder in its place: nothing can be remembered, the hash is right all the same. */
    assert_int_equal(unlink(record), 0);
    assert_int_equal(mkdir(record, 0700), 0);
    hash_is(below("data"), false, "ba7816bf");
}

static void test_store_file_hash__concurrent_writers(void **state)
{
    enum { WRITERS = 6 };
    char record[ESPL_PATH_MAX];
    pid_t children[WRITERS];
    (void)state;
    write_text(below("data"), "abc");
    set_time(below("data"), 1000000000, 5);
    for (int i = 0; i < WRITERS; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            char hex[ESPL_SHA256_HEX];
            for (int round = 0; round < 20; round++) {
                if (espl_store_file_hash(&store, below("data"), round % 2 == 0, hex, &err) !=
                        ESPL_OK ||
                    strncmp(hex, "ba7816bf", 8) != 0) {
                    _exit(90);
                }
            }
            _exit(0);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int how = 0;
        assert_int_equal(waitpid(children[i], &how, 0), children[i]);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    }
    assert_int_equal(count_records(record), 1); /* and no temporaries */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_store_open__layout_and_paths, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_open_readonly__creates_nothing, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_open__without_permission, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_publish__replaces_what_is_there, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_open_artifact__checks_whose_it_is, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_of_file__finds_the_root, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_open__removes_guards_that_nobody_holds, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_find__prefixes, set_up, test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_open__cleans_only_what_is_dead, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_file_hash__remembers_and_distrusts, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_file_hash__damaged_memory_is_not_believed,
                                        set_up, test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_store_file_hash__concurrent_writers, set_up,
                                        test_folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
