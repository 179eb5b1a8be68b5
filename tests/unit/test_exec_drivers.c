/* Several drivers at once, and drivers that are killed: work is done once, locks never stay stuck,
 * nothing half made is visible. */
#include "exec_fakes.h"

#include "core/lock.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char chain[] =
    "version: 1\n"
    "name: chain\n"
    "stages:\n"
    "  - id: first\n"
    "    use: work\n"
    "    with: {value: 2, steps: 4, step_ms: 15, units: true, counter: \"%s\"}\n"
    "  - id: second\n"
    "    use: work\n"
    "    in: {a: first}\n"
    "    with: {value: 10, steps: 3, step_ms: 15, counter: \"%s\"}\n"
    "  - id: third\n"
    "    use: work\n"
    "    in: {a: first, b: second}\n"
    "    with: {value: 100, steps: 4, step_ms: 15, units: true, counter: \"%s\"}\n";

static void sleep_ms(unsigned ms)
{
    const struct timespec pause = {ms / 1000, (long)(ms % 1000) * 1000000};
    (void)nanosleep(&pause, NULL);
}

/* A driver process that runs a job; its exit code is that of the run. */
static pid_t start_driver(struct exec_fixture *fixture, const char *job)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        const enum espl_status status = exec_fixture_run(fixture, job);
        if (status != ESPL_OK) {
            (void)fprintf(stderr, "driver: %s\n", fixture->err.message);
        }
        _exit(espl_status_exit_code(status));
    }
    return pid;
}

static int finish_driver(pid_t pid)
{
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void test_drivers__two_at_once_do_the_work_once(void **state)
{
    struct exec_fixture *fixture = *state;
    for (int round = 0; round < 3; round++) {
        char results[ESPL_PATH_MAX];
        char name[32];
        (void)snprintf(name, sizeof name, "round%d", round);
        (void)espl_fs_join(results, fixture->folder, name, NULL);
        assert_int_equal(espl_store_open(results, &fixture->store, NULL), ESPL_OK);
        (void)unlink(fixture->counter);
        const pid_t one = start_driver(fixture, chain);
        sleep_ms((unsigned)round * 40);
        const pid_t two = start_driver(fixture, chain);
        assert_int_equal(finish_driver(one), 0);
        assert_int_equal(finish_driver(two), 0);
        assert_int_equal(exec_fixture_count(fixture, "start first 0"), 1);
        assert_int_equal(exec_fixture_count(fixture, "start second 0"), 1);
        assert_int_equal(exec_fixture_count(fixture, "start third 0"), 1);
        assert_int_equal(exec_fixture_names(fixture, "partial", ""), 0);
        assert_int_equal(exec_fixture_names(fixture, "runs", ""), 2);
    }
}

static char *metrics_text(const struct exec_fixture *fixture, size_t *len)
{
    char name[256];
    json_t *record = exec_fixture_record(fixture);
    (void)snprintf(name, sizeof name, "%s",
                   json_string_value(json_object_get(espl_run_stage(record, "third"), "artifact")));
    json_decref(record);
    return exec_fixture_read(fixture, name, len);
}

/* Everything in store/ opens as a whole artifact at any time. */
static void check_store_is_whole(const struct exec_fixture *fixture)
{
    char store[ESPL_PATH_MAX];
    char **shards = NULL;
    size_t shard_count = 0;
    (void)espl_fs_join(store, fixture->store.root, "store", NULL);
    assert_int_equal(espl_fs_list(store, 1000, &shards, &shard_count, NULL), ESPL_OK);
    for (size_t i = 0; i < shard_count; i++) {
        char dir[ESPL_PATH_MAX];
        char **names = NULL;
        size_t count = 0;
        (void)espl_fs_join(dir, store, shards[i], NULL);
        assert_int_equal(espl_fs_list(dir, 1000, &names, &count, NULL), ESPL_OK);
        for (size_t k = 0; k < count; k++) {
            char path[ESPL_PATH_MAX];
            char bad[ESPL_TENSOR_PATH];
            bool ok = false;
            struct espl_artifact *artifact = NULL;
            const size_t len = strlen(names[k]);
            if (len < 3 || strcmp(names[k] + len - 3, ".h5") != 0) {
                continue;
            }
            (void)espl_fs_join(path, dir, names[k], NULL);
            assert_int_equal(espl_artifact_open(path, &artifact, NULL), ESPL_OK);
            assert_int_equal(espl_artifact_verify(artifact, &ok, bad, NULL), ESPL_OK);
            assert_true(ok);
            espl_artifact_close(artifact);
            char side[ESPL_PATH_MAX + 8]; /* is there already, whatever was killed */
            (void)snprintf(side, sizeof side, "%.*s.json", (int)(strlen(path) - 3), path);
            assert_true(espl_fs_exists(side));
        }
        espl_fs_free_names(names, count);
    }
    espl_fs_free_names(shards, shard_count);
}

static void test_drivers__killed_at_random_moments(void **state)
{
    struct exec_fixture *fixture = *state;
    enum { KILLS = 60 };
    char results[ESPL_PATH_MAX];
    size_t fresh_len = 0;
    size_t len = 0;
    unsigned seed = 12345;
    assert_int_equal(exec_fixture_run(fixture, chain), ESPL_OK);
    char *fresh = metrics_text(fixture, &fresh_len);
    int kills = 0;
    for (int store = 0; kills < KILLS; store++) {
        char name[32];
        (void)snprintf(name, sizeof name, "killed%d", store);
        (void)espl_fs_join(results, fixture->folder, name, NULL);
        for (;;) {
            assert_int_equal(espl_store_open(results, &fixture->store, NULL), ESPL_OK);
            const pid_t driver = start_driver(fixture, chain);
            sleep_ms((unsigned)rand_r(&seed) % 120);
            (void)kill(driver, SIGKILL);
            const int code = finish_driver(driver);
            check_store_is_whole(fixture);
            if (code == 0) {
                break;
            }
            assert_int_equal(code, 1000 + SIGKILL);
            kills++;
        }
        /* The same command ends well, with the same bytes, and leaves nothing behind. */
        assert_int_equal(espl_store_open(results, &fixture->store, NULL), ESPL_OK);
        assert_int_equal(exec_fixture_run(fixture, chain), ESPL_OK);
        char *resumed = metrics_text(fixture, &len);
        assert_int_equal(len, fresh_len);
        assert_memory_equal(resumed, fresh, len);
        free(resumed);
        assert_int_equal(exec_fixture_names(fixture, "partial", ".lock"), 0);
        assert_int_equal(exec_fixture_names(fixture, "partial", ".units"), 0);
    }
    free(fresh);
}

static void test_drivers__stage_dies_with_its_driver(void **state)
{
    struct exec_fixture *fixture = *state;
    static const char job[] = "version: 1\n"
                              "name: slow\n"
                              "stages:\n"
                              "  - id: only\n"
                              "    use: work\n"
                              "    with: {steps: 100, step_ms: 20, counter: \"%s\"}\n";
    const pid_t driver = start_driver(fixture, job);
    while (exec_fixture_count(fixture, "unit only 2") == 0) {
        sleep_ms(5);
    }
    (void)kill(driver, SIGKILL);
    assert_int_equal(finish_driver(driver), 1000 + SIGKILL);
    sleep_ms(60); /* what was on its way */
    char *before = NULL;
    char *after = NULL;
    size_t len = 0;
    assert_int_equal(espl_fs_read_file(fixture->counter, 1 << 20, &before, &len, NULL), ESPL_OK);
    sleep_ms(200);
    assert_int_equal(espl_fs_read_file(fixture->counter, 1 << 20, &after, &len, NULL), ESPL_OK);
    assert_string_equal(before, after);
    free(before);
    free(after);
    /* The record says "running", and its reader knows better. */
    char run_id[ESPL_RUN_ID_MAX];
    json_t *record = NULL;
    assert_int_equal(espl_run_latest(&fixture->store, "slow", NULL, run_id, NULL), ESPL_OK);
    assert_int_equal(espl_run_load(&fixture->store, run_id, &record, NULL), ESPL_OK);
    assert_string_equal(json_string_value(json_object_get(record, "status")), "running");
    assert_string_equal(espl_run_status(record), "died");
    json_decref(record);
}

/* ---- waiting for a lock ---- */

static void stop_when_waiting(struct exec_fixture *fixture, const struct espl_event *event)
{
    if (event->type == ESPL_EVENT_STAGE_WAIT) {
        char expected[64];
        (void)snprintf(expected, sizeof expected, "(pid %d on ", (int)getppid());
        /* The lock is held by the process that started this driver. */
        if (strstr(event->text, expected) == NULL) {
            _exit(98);
        }
        fixture->stop_signal = SIGTERM;
    }
}

static void test_drivers__stop_while_waiting(void **state)
{
    struct exec_fixture *fixture = *state;
    char path[ESPL_PATH_MAX];
    char key[ESPL_SHA256_HEX];
    struct espl_lock lock = {.held = false};
    bool taken = false;
    assert_int_equal(exec_fixture_run(fixture, chain), ESPL_OK);
    json_t *record = exec_fixture_record(fixture);
    (void)snprintf(key, sizeof key, "%s",
                   json_string_value(json_object_get(espl_run_stage(record, "first"), "key")));
    json_decref(record);
    assert_int_equal(espl_store_artifact_path(&fixture->store, key, "", path, NULL), ESPL_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(espl_store_lock_path(&fixture->store, key, path, NULL), ESPL_OK);
    assert_int_equal(espl_lock_try(&lock, path, &taken, NULL, NULL), ESPL_OK);
    assert_true(taken);
    fixture->hook = stop_when_waiting;
    const double before = espl_clock_monotonic();
    assert_int_equal(finish_driver(start_driver(fixture, chain)), 143);
    assert_true(espl_clock_monotonic() - before < 5.0);
    assert_true(espl_fs_exists(path)); /* the lock is still ours */
    espl_lock_release(&lock);
    fixture->hook = NULL;
    assert_int_equal(finish_driver(start_driver(fixture, chain)), 0);
    assert_int_equal(exec_fixture_count(fixture, "start first 0"), 2);
}

static void test_drivers__waiter_takes_over_from_a_dead_driver(void **state)
{
    struct exec_fixture *fixture = *state;
    static const char job[] = "version: 1\n"
                              "name: over\n"
                              "stages:\n"
                              "  - id: only\n"
                              "    use: work\n"
                              "    with: {steps: 8, step_ms: 25, units: true, counter: \"%s\"}\n";
    const pid_t one = start_driver(fixture, job);
    while (exec_fixture_count(fixture, "unit only 2") == 0) {
        sleep_ms(5);
    }
    const pid_t two = start_driver(fixture, job);
    sleep_ms(60);
    (void)kill(one, SIGKILL);
    assert_int_equal(finish_driver(one), 1000 + SIGKILL);
    assert_int_equal(finish_driver(two), 0);
    assert_int_equal(exec_fixture_count(fixture, "unit only 1"), 1);
    assert_int_equal(exec_fixture_names(fixture, "partial", ".lock"), 0);
}

#define ONE(NAME) cmocka_unit_test_setup_teardown(NAME, exec_fixture_setup, exec_fixture_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE(test_drivers__two_at_once_do_the_work_once),
        ONE(test_drivers__killed_at_random_moments),
        ONE(test_drivers__stage_dies_with_its_driver),
        ONE(test_drivers__stop_while_waiting),
        ONE(test_drivers__waiter_takes_over_from_a_dead_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
