/* Memory runs out at the n-th allocation of our own code, for n = 1, 2, ... until everything fits:
 * core and the artifact layer answer with a status, lose nothing and publish nothing half. (Linked
 * with --wrap, so the libraries' own allocations are not touched; jansson gets the same allocator.
 * The sanitizer build looks for leaks.) */
#include "artifact/artifact.h"
#include "artifact/store.h"
#include "core/buf.h"
#include "core/fs.h"
#include "core/hash.h"
#include "core/lock.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define KEY "aabbccddeeff00112233445566778899aabbccddeeff00112233445566778899"

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);

static bool counting;
static size_t allocations; /* since counting began */
static size_t fail_at;     /* 0 = never */

static bool fails_now(void)
{
    return counting && ++allocations == fail_at;
}

void *__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *block, size_t size)
{
    return fails_now() ? NULL : __real_realloc(block, size);
}

static char folder[ESPL_PATH_MAX];
static struct espl_store store;

static const char *below(const char *name)
{
    static char paths[2][ESPL_PATH_MAX];
    static int next;
    next = 1 - next;
    assert_int_equal(espl_fs_join(paths[next], folder, name, NULL), ESPL_OK);
    return paths[next];
}

static int set_up(void **state)
{
    struct espl_error err;
    (void)state;
    temp_folder_make(folder);
    return espl_store_open(below("results"), &store, &err) == ESPL_OK ? 0 : 1;
}

static int tear_down(void **state)
{
    (void)state;
    temp_folder_remove(folder);
    return 0;
}

/* One piece of work; whatever it returns, it must have cleaned up. */
typedef enum espl_status (*work_fn)(struct espl_error *err);

/* Runs the work with the n-th allocation failing. `tolerant`: work whose result may be right all
 * the same. `after`: a check of what is visible, may be NULL. */
static void starve(work_fn work, bool tolerant, void (*after)(enum espl_status status))
{
    size_t failures = 0;
    for (size_t n = 1;; n++) {
        struct espl_error err;
        espl_error_clear(&err);
        allocations = 0;
        fail_at = n;
        counting = true;
        const enum espl_status status = work(&err);
        counting = false;
        if (after != NULL) {
            after(status);
        }
        if (allocations < n) { /* all of them were granted */
            assert_int_equal(status, ESPL_OK);
            break;
        }
        failures++;
        if (status != ESPL_E_NOMEM && !(tolerant && status == ESPL_OK)) {
            print_message("allocation %zu: status %d: %s\n", n, (int)status, err.message);
        }
        assert_true(status == ESPL_E_NOMEM || (tolerant && status == ESPL_OK));
        assert_true(status == ESPL_OK || err.message[0] != '\0');
    }
    print_message("%zu allocations failed one by one\n", failures);
    assert_true(failures > 0);
}

static enum espl_status use_buffers(struct espl_error *err)
{
    struct espl_buf buf;
    espl_buf_init(&buf, 1 << 20);
    struct espl_arena *arena = espl_arena_create(1 << 20);
    bool ok = arena != NULL;
    for (int i = 0; i < 200; i++) {
        (void)espl_buf_printf(&buf, "%d %s\n", i, "some words to make it grow");
        ok = ok && espl_arena_printf(arena, "%d %s", i, "some words to make it grow") != NULL;
    }
    enum espl_status status = espl_buf_check(&buf, "the text", err);
    if (status == ESPL_OK && !ok) {
        status = espl_fail(err, ESPL_E_NOMEM, "the arena is full");
    }
    espl_arena_destroy(arena);
    espl_buf_free(&buf);
    return status;
}

static void test_no_memory__buffers(void **state)
{
    (void)state;
    starve(use_buffers, false, NULL);
}

static enum espl_status use_files(struct espl_error *err)
{
    char hex[ESPL_SHA256_HEX];
    char *data = NULL;
    char **names = NULL;
    size_t len = 0;
    size_t count = 0;
    enum espl_status status = espl_fs_write_file(below("f"), "abc", 3, err);
    if (status == ESPL_OK) {
        status = espl_fs_read_file(below("f"), 100, &data, &len, err);
    }
    free(data);
    if (status == ESPL_OK) {
        status = espl_fs_list(folder, 100, &names, &count, err);
        espl_fs_free_names(names, count);
    }
    if (status == ESPL_OK) {
        status = espl_sha256_file(below("f"), hex, err);
    }
    if (status == ESPL_OK) {
        status = espl_sha256_bytes("abc", 3, hex, err);
    }
    return status;
}

static void test_no_memory__files(void **state)
{
    (void)state;
    starve(use_files, false, NULL);
}

static enum espl_status use_lock(struct espl_error *err)
{
    struct espl_lock lock;
    struct espl_lock second;
    bool taken = false;
    enum espl_status status = espl_lock_try(&lock, below("lock"), &taken, NULL, err);
    if (status == ESPL_OK) {
        assert_true(taken);
        status = espl_lock_try(&second, below("lock"), &taken, NULL, err);
        assert_false(taken); /* never stolen from a live owner, whatever the memory */
    }
    counting = false; /* the release reads the owner; starved, it leaves the lock for a takeover */
    espl_lock_release(&lock);
    counting = true;
    return status;
}

static void test_no_memory__lock(void **state)
{
    (void)state;
    starve(use_lock, false, NULL);
}

static enum espl_status write_source(const char *path, struct espl_error *err)
{
    static const uint8_t bytes[6] = {1, 2, 3, 4, 5, 6};
    static const uint64_t shape[2] = {2, 3};
    struct espl_artifact *artifact = NULL;
    const struct espl_tensor_info one = espl_tensor_info_make("/a/one", ESPL_DTYPE_U8, 2, shape);
    const struct espl_tensor_info two = espl_tensor_info_make("/a/two", ESPL_DTYPE_U8, 2, shape);
    const struct espl_tensor_info out = espl_tensor_info_make("/b/out", ESPL_DTYPE_U8, 2, shape);
    static const char sha[] = "7192385c3c0605de55bb9476ce1d90748190ecb32a8eed7f5207b30cf6a1fe89";
    enum espl_status status = espl_artifact_create(path, "unit/1", &artifact, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_artifact_set_description(artifact, "{\"n\":3}", err);
    if (status == ESPL_OK) {
        status = espl_artifact_set_attribute(artifact, "key", KEY, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_set_provenance(artifact, "params", "{}", err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_write(artifact, &one, bytes, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_create_rows(artifact, &two, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_append_rows(artifact, two.path, 2, bytes, err);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_write_external(artifact, &out, below("raw"), 0, sha, err);
    }
    if (status != ESPL_OK) {
        espl_artifact_abandon(artifact);
        return status;
    }
    return espl_artifact_finish(&artifact, NULL, err);
}

static enum espl_status write_and_publish(struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    enum espl_status status = espl_store_private_path(&store, KEY, "m", path, err);
    if (status == ESPL_OK) {
        status = write_source(path, err);
    }
    return status == ESPL_OK ? espl_store_publish(&store, path, KEY, NULL, err) : status;
}

/* Visible exactly when the work succeeded, and no private file is left. */
static void check_published(enum espl_status status)
{
    char dir[ESPL_PATH_MAX];
    char path[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    struct espl_error err;
    assert_int_equal(espl_store_has(&store, KEY, NULL), status == ESPL_OK);
    assert_int_equal(espl_fs_join(dir, store.root, "partial", &err), ESPL_OK);
    assert_int_equal(espl_fs_list(dir, 100, &names, &count, &err), ESPL_OK);
    assert_int_equal(count, 0);
    espl_fs_free_names(names, count);
    assert_int_equal(espl_store_artifact_path(&store, KEY, NULL, path, &err), ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(path, &err), ESPL_OK);
}

static void test_no_memory__write_and_publish(void **state)
{
    (void)state;
    assert_int_equal(espl_fs_write_file(below("raw"), "\1\2\3\4\5\6", 6, NULL), ESPL_OK);
    starve(write_and_publish, false, check_published);
}

static enum espl_status read_all(struct espl_error *err)
{
    struct espl_artifact *artifact = NULL;
    char *text = NULL;
    void *data = NULL;
    size_t bytes = 0;
    bool ok = false;
    char bad[ESPL_TENSOR_PATH];
    enum espl_status status = espl_artifact_open(below("unit.h5"), &artifact, err);
    if (status != ESPL_OK) {
        return status;
    }
    assert_int_equal(espl_artifact_tensor_count(artifact), 3);
    status = espl_artifact_provenance(artifact, "params", &text, err);
    free(text);
    if (status == ESPL_OK) {
        status = espl_artifact_read(artifact, "/a/two", 100, &data, &bytes, err);
        free(data);
    }
    if (status == ESPL_OK) {
        status = espl_artifact_verify(artifact, &ok, bad, err);
        assert_true(ok || status != ESPL_OK);
    }
    espl_artifact_close(artifact);
    return status;
}

static void test_no_memory__read(void **state)
{
    struct espl_error err;
    (void)state;
    assert_int_equal(espl_fs_write_file(below("raw"), "\1\2\3\4\5\6", 6, NULL), ESPL_OK);
    assert_int_equal(write_source(below("unit.h5"), &err), ESPL_OK);
    starve(read_all, false, NULL);
}

static enum espl_status copy_all(struct espl_error *err)
{
    struct espl_artifact *source = NULL;
    struct espl_artifact *artifact = NULL;
    enum espl_status status = espl_artifact_open(below("unit.h5"), &source, err);
    if (status != ESPL_OK) {
        return status;
    }
    status = espl_artifact_create(below("copy.h5"), "unit/1", &artifact, err);
    if (status == ESPL_OK) {
        status = espl_artifact_copy_datasets(artifact, source, err);
        if (status == ESPL_OK) {
            status = espl_artifact_finish(&artifact, NULL, err);
        } else {
            espl_artifact_abandon(artifact);
        }
    }
    espl_artifact_close(source);
    return status;
}

static void check_copy(enum espl_status status)
{
    assert_int_equal(espl_fs_exists(below("copy.h5")), status == ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(below("copy.h5"), NULL), ESPL_OK);
}

static void test_no_memory__copy(void **state)
{
    struct espl_error err;
    (void)state;
    assert_int_equal(espl_fs_write_file(below("raw"), "\1\2\3\4\5\6", 6, NULL), ESPL_OK);
    assert_int_equal(write_source(below("unit.h5"), &err), ESPL_OK);
    starve(copy_all, false, check_copy);
}

/* The memory of hashes is a convenience: without memory for it the hash is right all the same. */
static enum espl_status hash_file(struct espl_error *err)
{
    char hex[ESPL_SHA256_HEX] = "";
    const enum espl_status status = espl_store_file_hash(&store, below("f"), false, hex, err);
    assert_true(status != ESPL_OK || strncmp(hex, "ba7816bf", 8) == 0);
    counting = false;
    char dir[ESPL_PATH_MAX];
    assert_int_equal(espl_fs_join(dir, store.root, "index/file-hashes", NULL), ESPL_OK);
    assert_int_equal(espl_fs_remove_tree(dir, NULL), ESPL_OK);
    counting = true;
    return status;
}

static void test_no_memory__file_hash(void **state)
{
    const struct timespec past[2] = {{1000000000, 5}, {1000000000, 5}};
    (void)state;
    assert_int_equal(espl_fs_write_file(below("f"), "abc", 3, NULL), ESPL_OK);
    assert_int_equal(utimensat(AT_FDCWD, below("f"), past, 0), 0);
    starve(hash_file, true, NULL);
}

int main(void)
{
    json_set_alloc_funcs(__wrap_malloc, free);
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_memory__buffers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory__files, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory__lock, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory__write_and_publish, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory__read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory__copy, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_memory__file_hash, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
