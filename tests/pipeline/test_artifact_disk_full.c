/* A full disk at every call that needs space while an artifact is written and published: the writer
 * ends with a clear error, and nothing half is visible. The program runs itself as a child with the
 * fail_io library preloaded. */
#include "artifact/artifact.h"
#include "artifact/store.h"
#include "core/fs.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEY "aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899"

enum { EXIT_WRITTEN = 0, EXIT_NO_SPACE = 5, EXIT_WRONG = 90, ROWS = 64, COLS = 1000 };

/* ---- the child ---- */

static enum espl_status fill(struct espl_artifact *artifact, struct espl_error *err)
{
    static uint16_t row[COLS];
    static char text[9000];
    const uint64_t shape[2] = {ROWS, COLS};
    memset(text, 't', sizeof text - 1);
    enum espl_status status = espl_artifact_set_provenance(artifact, "job", text, err);
    for (int k = 0; k < 3 && status == ESPL_OK; k++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/layers/%03d/weight", k);
        const struct espl_tensor_info info = espl_tensor_info_make(path, ESPL_DTYPE_F16, 2, shape);
        status = espl_artifact_create_rows(artifact, &info, err);
        for (uint16_t i = 0; i < ROWS && status == ESPL_OK; i++) {
            row[0] = i;
            status = espl_artifact_append_rows(artifact, path, 1, row, err);
        }
    }
    return status;
}

static enum espl_status write_and_publish(const char *root, struct espl_error *err)
{
    struct espl_store store;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    enum espl_status status = espl_store_open(root, &store, err);
    if (status == ESPL_OK) {
        status = espl_store_private_path(&store, KEY, "model", path, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_create(path, "model.dense/1", &artifact, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    status = fill(artifact, err);
    if (status != ESPL_OK) {
        espl_artifact_abandon(artifact);
        return status;
    }
    status = espl_artifact_finish(&artifact, NULL, err);
    return status == ESPL_OK ? espl_store_publish(&store, path, KEY, NULL, err) : status;
}

static int child_main(const char *root)
{
    struct espl_error err;
    espl_error_clear(&err);
    espl_artifact_library_init();
    const enum espl_status status = write_and_publish(root, &err);
    if (status == ESPL_OK) {
        return EXIT_WRITTEN;
    }
    if (status == ESPL_E_NOSPACE && strstr(err.message, "No space left on device") != NULL &&
        strstr(err.hint, "free space") != NULL) {
        return EXIT_NO_SPACE;
    }
    (void)fprintf(stderr, "status %d: %s\nhint: %s\n", (int)status, err.message, err.hint);
    return EXIT_WRONG;
}

/* ---- the test ---- */

static char program[ESPL_PATH_MAX];

/* Runs the child with a full disk at call `at`; returns how it ended. */
static int run_child(const char *root, const char *counters, uint64_t at, bool sticky,
                     const char *kind)
{
    int how = 0;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char number[32];
        (void)snprintf(number, sizeof number, "%" PRIu64, at);
        if (setenv("LD_PRELOAD", ESPL_FAIL_IO, 1) != 0 ||
            setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 1) != 0 ||
            setenv("ESPL_FAIL_FILE", counters, 1) != 0 || setenv("ESPL_FAIL_UNDER", root, 1) != 0 ||
            setenv("ESPL_FAIL_AT", number, 1) != 0 ||
            setenv("ESPL_FAIL_STICKY", sticky ? "1" : "0", 1) != 0 ||
            setenv("ESPL_FAIL_KIND", kind, 1) != 0) {
            _exit(99);
        }
        (void)execl(program, program, "child", root, (char *)NULL);
        _exit(99);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return how;
}

/* Calls of kind space or create that the last child made. */
static uint64_t counted(const char *counters, size_t kind)
{
    char *data = NULL;
    size_t len = 0;
    uint64_t calls[2] = {0, 0};
    assert_int_equal(espl_fs_read_file(counters, 100, &data, &len, NULL), ESPL_OK);
    assert_int_equal(len, sizeof calls);
    memcpy(calls, data, sizeof calls);
    free(data);
    return calls[kind];
}

static void assert_no_private_files(const char *root)
{
    char partial[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(espl_fs_join(partial, root, "partial", NULL), ESPL_OK);
    if (espl_fs_list(partial, 100, &names, &count, NULL) == ESPL_OK) {
        assert_int_equal(count, 0);
        espl_fs_free_names(names, count);
    }
}

/* What is visible must be whole. Returns whether something is. */
static bool check_visible(const char *root)
{
    struct espl_store store;
    struct espl_error err;
    struct espl_artifact *artifact = NULL;
    char path[ESPL_PATH_MAX];
    char bad[ESPL_TENSOR_PATH];
    bool ok = false;
    assert_int_equal(espl_store_open_readonly(root, &store, &err), ESPL_OK);
    if (!espl_store_has(&store, KEY, NULL)) {
        return false;
    }
    assert_int_equal(espl_store_artifact_path(&store, KEY, NULL, path, &err), ESPL_OK);
    assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
    assert_int_equal(espl_artifact_tensor_count(artifact), 3);
    assert_int_equal(espl_artifact_verify(artifact, &ok, bad, &err), ESPL_OK);
    assert_true(ok);
    espl_artifact_close(artifact);
    return true;
}

static void fail_everywhere(const char *kind, size_t kind_number, bool sticky, uint64_t least)
{
    char folder[ESPL_PATH_MAX];
    char counters[ESPL_PATH_MAX];
    char root[ESPL_PATH_MAX];
    uint64_t failed = 0;
    uint64_t visible_after_error = 0;
    temp_folder_make(folder);
    assert_int_equal(espl_fs_join(counters, folder, "counters", NULL), ESPL_OK);
    assert_int_equal(espl_fs_join(root, folder, "results", NULL), ESPL_OK);
    int how = run_child(root, counters, 0, false, kind);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == EXIT_WRITTEN);
    assert_true(check_visible(root));
    const uint64_t calls = counted(counters, kind_number);
    assert_true(calls >= least); /* the library is loaded and counts */
    for (uint64_t at = 1; at <= calls; at++) {
        assert_int_equal(espl_fs_remove_tree(root, NULL), ESPL_OK);
        assert_int_equal(espl_fs_remove_tree(counters, NULL), ESPL_OK);
        how = run_child(root, counters, at, sticky, kind);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != EXIT_NO_SPACE) {
            print_message("call %" PRIu64 " of %" PRIu64 ": wait status %d\n", at, calls, how);
        }
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == EXIT_NO_SPACE);
        failed++;
        visible_after_error += check_visible(root) ? 1 : 0;
        assert_no_private_files(root);
        /* With space again, the same work goes through. */
        how = run_child(root, counters, 0, false, kind);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == EXIT_WRITTEN);
        assert_true(check_visible(root));
    }
    print_message("%s%s: failed at each of %" PRIu64 " calls\n", kind, sticky ? " sticky" : "",
                  failed);
    /* Only the flush of the folder comes after the name: the artifact is whole by then. */
    assert_in_range(visible_after_error, 0, 1);
    temp_folder_remove(folder);
}

static void test_disk_full__at_each_write(void **state)
{
    (void)state;
    fail_everywhere("space", 0, false, 15);
}

static void test_disk_full__from_each_write_on(void **state)
{
    (void)state;
    fail_everywhere("space", 0, true, 15);
}

static void test_disk_full__at_each_creation(void **state)
{
    (void)state;
    fail_everywhere("create", 1, false, 1);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "child") == 0) {
        return child_main(argv[2]);
    }
    const ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    if (len <= 0) {
        return 99;
    }
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_disk_full__at_each_write),
        cmocka_unit_test(test_disk_full__from_each_write_on),
        cmocka_unit_test(test_disk_full__at_each_creation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
