/* SIGKILL at random moments of writing and publishing: a reader never sees half an artifact, and
 * the next start removes what the dead writer left. */
#include "artifact/artifact.h"
#include "artifact/store.h"
#include "core/fs.h"
#include "core/rng.h"
#include "support/cmocka_all.h"
#include "support/temp_folder.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILLS = 50, ROWS = 40, COLS = 3000 };

/* Writes and publishes one artifact after the other until it is killed. */
static void write_for_ever(const struct espl_store *store, uint64_t seed)
{
    struct espl_error err;
    static int32_t row[COLS];
    const uint64_t shape[2] = {ROWS, COLS};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (uint64_t number = 0;; number++) {
        char key[80];
        char path[ESPL_PATH_MAX];
        struct espl_artifact *artifact = NULL;
        (void)snprintf(key, sizeof key, "%02" PRIx64 "%030" PRIx64, number % 4,
                       seed * 100000 + number);
        if (espl_store_private_path(store, key, "m", path, &err) != ESPL_OK ||
            espl_artifact_create(path, "unit/1", &artifact, &err) != ESPL_OK) {
            _exit(90);
        }
        for (int k = 0; k < 2; k++) {
            const struct espl_tensor_info info =
                espl_tensor_info_make(k == 0 ? "/a/w" : "/b/w", ESPL_DTYPE_I32, 2, shape);
            if (espl_artifact_create_rows(artifact, &info, &err) != ESPL_OK) {
                _exit(91);
            }
            for (int i = 0; i < ROWS; i++) {
                row[0] = i;
                if (espl_artifact_append_rows(artifact, info.path, 1, row, &err) != ESPL_OK) {
                    _exit(92);
                }
            }
        }
        if (espl_artifact_finish(&artifact, NULL, &err) != ESPL_OK ||
            espl_store_publish(store, path, key, NULL, &err) != ESPL_OK) {
            _exit(93);
        }
    }
}

/* Every file in the store opens and verifies; they are removed afterwards. Returns how many. */
static size_t check_and_empty(const struct espl_store *store)
{
    static const char *const dirs[] = {"store/00", "store/01", "store/02", "store/03"};
    struct espl_error err;
    size_t total = 0;
    for (size_t d = 0; d < 4; d++) {
        char dir[ESPL_PATH_MAX];
        char **names = NULL;
        size_t count = 0;
        assert_int_equal(espl_fs_join(dir, store->root, dirs[d], &err), ESPL_OK);
        if (espl_fs_list(dir, 100000, &names, &count, &err) != ESPL_OK) {
            continue;
        }
        for (size_t i = 0; i < count; i++) {
            char path[ESPL_PATH_MAX];
            char bad[ESPL_TENSOR_PATH];
            bool ok = false;
            struct espl_artifact *artifact = NULL;
            assert_int_equal(espl_fs_join(path, dir, names[i], &err), ESPL_OK);
            assert_int_equal(strcmp(path + strlen(path) - 3, ".h5"), 0);
            assert_int_equal(espl_artifact_open(path, &artifact, &err), ESPL_OK);
            assert_int_equal(espl_artifact_verify(artifact, &ok, bad, &err), ESPL_OK);
            assert_true(ok);
            espl_artifact_close(artifact);
            assert_int_equal(unlink(path), 0);
        }
        espl_fs_free_names(names, count);
        total += count;
    }
    return total;
}

static size_t count_private(const struct espl_store *store)
{
    char dir[ESPL_PATH_MAX];
    char **names = NULL;
    size_t count = 0;
    assert_int_equal(espl_fs_join(dir, store->root, "partial", NULL), ESPL_OK);
    assert_int_equal(espl_fs_list(dir, 1000, &names, &count, NULL), ESPL_OK);
    espl_fs_free_names(names, count);
    return count;
}

static void test_kill__never_half_an_artifact(void **state)
{
    char folder[ESPL_PATH_MAX];
    struct espl_store store;
    struct espl_error err;
    struct espl_rng rng = espl_rng_stream(17, "kill", 0);
    size_t published = 0;
    size_t left = 0;
    (void)state;
    temp_folder_make(folder);
    assert_int_equal(espl_store_open(folder, &store, &err), ESPL_OK);
    for (uint64_t i = 0; i < KILLS; i++) {
        int how = 0;
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            write_for_ever(&store, i);
        }
        const struct timespec wait = {0, (long)espl_rng_below(&rng, 60000000)}; /* to 60 ms */
        (void)nanosleep(&wait, NULL);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how)); /* it had not failed by itself */
        left += count_private(&store);
        published += check_and_empty(&store);
        assert_int_equal(espl_store_open(folder, &store, &err), ESPL_OK);
        assert_int_equal(count_private(&store), 0);
    }
    print_message("%d kills: %zu artifacts published, %zu unfinished files removed\n", KILLS,
                  published, left);
    assert_true(published > 0);
    assert_true(left > 0); /* some were hit in the middle */
    temp_folder_remove(folder);
}

int main(void)
{
    espl_artifact_library_init();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kill__never_half_an_artifact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
