#include "core/lock.h"
#include "support/test_folder.h"

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char lock_path[ESPL_PATH_MAX];

static int set_up(void **state)
{
    (void)test_folder_set_up(state);
    return espl_fs_join(lock_path, test_folder, "key.lock", NULL) == ESPL_OK ? 0 : 1;
}

static void nap(long microseconds)
{
    const struct timespec pause = {microseconds / 1000000, microseconds % 1000000 * 1000};
    (void)nanosleep(&pause, NULL);
}

/* Starts a child that takes the lock, tells so through a pipe and then waits for ever. */
static pid_t start_owner(const char *process_name)
{
    int ready[2];
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct espl_lock lock;
        struct espl_error err;
        bool taken = false;
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)prctl(PR_SET_NAME, process_name);
        if (espl_lock_try(&lock, lock_path, &taken, NULL, &err) != ESPL_OK || !taken ||
            write(ready[1], "x", 1) != 1) {
            _exit(90);
        }
        for (;;) {
            (void)pause();
        }
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    return child;
}

static void test_lock_try__takes_refuses_and_releases(void **state)
{
    struct espl_lock lock;
    struct espl_lock second;
    struct espl_lock_owner owner;
    struct espl_error err;
    bool taken = false;
    (void)state;
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
    assert_true(taken && lock.held);
    assert_int_equal(espl_lock_try(&second, lock_path, &taken, &owner, &err), ESPL_OK);
    assert_false(taken || second.held);
    assert_int_equal(owner.pid, getpid());
    assert_true(owner.start_ticks > 0);
    assert_true(owner.host[0] != '\0');
    assert_int_equal(strlen(owner.since_utc), 20);
    espl_lock_release(&second); /* not held: nothing happens */
    assert_true(espl_fs_exists(lock_path));
    espl_lock_release(&lock);
    assert_false(espl_fs_exists(lock_path));
    espl_lock_release(&lock);
    espl_lock_release(NULL);
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
    assert_true(taken);
    espl_lock_release(&lock);
}

static void test_lock_try__live_owner_with_a_nasty_name_is_respected(void **state)
{
    struct espl_lock lock;
    struct espl_lock_owner owner;
    struct espl_error err;
    bool taken = true;
    (void)state;
    const pid_t child = start_owner("x) R 1 (y)");
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, &owner, &err), ESPL_OK);
    assert_false(taken);
    assert_int_equal(owner.pid, child);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void test_lock_try__killed_owner_is_replaced(void **state)
{
    struct espl_lock lock;
    struct espl_error err;
    bool taken = false;
    (void)state;
    const pid_t child = start_owner("owner");
    assert_int_equal(kill(child, SIGKILL), 0);
    /* Not waited for yet: first a zombie, which owns nothing any more. */
    for (int i = 0; i < 2000 && !taken; i++) {
        assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
        nap(1000);
    }
    assert_true(taken);
    assert_int_equal(waitpid(child, NULL, 0), child);
    espl_lock_release(&lock);
    assert_false(espl_fs_exists(lock_path));
}

/* Rewrites the lock as if another owner held it. */
static void write_lock(const char *host, const char *boot_id, int64_t pid, uint64_t ticks)
{
    char line[512];
    (void)snprintf(line, sizeof line,
                   "espl-lock-1 %s %s %" PRId64 " %" PRIu64 " 2026-05-12T10:04:11Z\n", host,
                   boot_id, pid, ticks);
    assert_int_equal(espl_fs_write_file(lock_path, line, strlen(line), NULL), ESPL_OK);
}

static void test_lock_try__reused_pid_restart_and_other_hosts(void **state)
{
    struct espl_lock lock;
    struct espl_lock_owner self;
    struct espl_lock_owner owner;
    struct espl_error err;
    bool taken = false;
    (void)state;
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
    assert_true(taken);
    struct espl_lock second;
    assert_int_equal(espl_lock_try(&second, lock_path, &taken, &self, &err), ESPL_OK);
    assert_false(taken);
    espl_lock_release(&lock);

    /* Our own pid with another start time: the number was used again. */
    write_lock(self.host, self.boot_id, self.pid, self.start_ticks + 1);
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
    assert_true(taken);
    espl_lock_release(&lock);
    /* All equal but from before a restart. */
    write_lock(self.host, "00000000-0000-0000-0000-000000000000", self.pid, self.start_ticks);
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
    assert_true(taken);
    espl_lock_release(&lock);
    /* A process of another host cannot be asked: it counts as alive. */
    write_lock("some-other-host", self.boot_id, 1 << 22, 1);
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, &owner, &err), ESPL_OK);
    assert_false(taken);
    assert_string_equal(owner.host, "some-other-host");
}

static void test_lock_try__damaged_lock_has_no_owner(void **state)
{
    static const char *const texts[] = {"", "espl-lock-1 host", "nonsense of another program\n"};
    struct espl_lock lock;
    struct espl_error err;
    bool taken = false;
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        assert_int_equal(espl_fs_write_file(lock_path, texts[i], strlen(texts[i]), &err), ESPL_OK);
        assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
        assert_true(taken);
        espl_lock_release(&lock);
    }
    static char large[4000];
    assert_int_equal(espl_fs_write_file(lock_path, large, sizeof large, &err), ESPL_OK);
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
    assert_true(taken);
    espl_lock_release(&lock);
}

static void test_lock_release__child_and_stolen_lock(void **state)
{
    struct espl_lock lock;
    struct espl_error err;
    bool taken = false;
    (void)state;
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        espl_lock_release(&lock); /* an inherited copy */
        _exit(0);
    }
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_true(espl_fs_exists(lock_path));
    write_lock("some-other-host", "boot", 5, 5); /* someone removed ours and another came */
    espl_lock_release(&lock);
    assert_true(espl_fs_exists(lock_path));
}

static void test_lock_is_held__only_looks(void **state)
{
    (void)state;
    assert_false(espl_lock_is_held(lock_path));
    const pid_t child = start_owner("owner");
    assert_true(espl_lock_is_held(lock_path));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_false(espl_lock_is_held(lock_path));
    assert_true(espl_fs_exists(lock_path));
    assert_int_equal(espl_fs_write_file(lock_path, "nonsense", 8, NULL), ESPL_OK);
    assert_false(espl_lock_is_held(lock_path));
    write_lock("some-other-host", "boot", 5, 5);
    assert_true(espl_lock_is_held(lock_path));
}

static void test_lock_remove_guard__not_while_it_is_held(void **state)
{
    int ready[2];
    char byte = 0;
    char guard[ESPL_PATH_MAX];
    struct espl_error err;
    bool removed = false;
    (void)state;
    assert_int_equal(espl_fs_join(guard, test_folder, "key.lock.guard", &err), ESPL_OK);
    assert_int_equal(espl_lock_remove_guard(guard, &removed, &err), ESPL_OK); /* there is none */
    assert_true(removed);
    assert_int_equal(espl_fs_write_file(guard, "", 0, &err), ESPL_OK);
    assert_int_equal(pipe(ready), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        const int fd = open(guard, O_RDWR);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (fd < 0 || fcntl(fd, F_SETLK, &whole) != 0 || write(ready[1], "x", 1) != 1) {
            _exit(90);
        }
        for (;;) {
            (void)pause();
        }
    }
    (void)close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    assert_int_equal(espl_lock_remove_guard(guard, &removed, &err), ESPL_OK);
    assert_false(removed);
    assert_true(espl_fs_exists(guard));
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(espl_lock_remove_guard(guard, &removed, &err), ESPL_OK);
    assert_true(removed);
    assert_false(espl_fs_exists(guard));
}

static void test_lock_try__errors(void **state)
{
    struct espl_lock lock;
    struct espl_error err;
    bool taken = true;
    char path[ESPL_PATH_MAX];
    (void)state;
    assert_int_equal(espl_fs_join(path, test_folder, "no/such/folder.lock", &err), ESPL_OK);
    assert_int_equal(espl_lock_try(&lock, path, &taken, NULL, &err), ESPL_E_NOTFOUND);
    assert_false(taken);
    assert_int_equal(espl_lock_try(&lock, test_folder, &taken, NULL, &err), ESPL_E_KIND);
    assert_string_equal(err.hint, "a folder stands where this file should be: move it away");
    assert_false(taken);
}

struct shared {
    atomic_int inside;   /* contenders that hold the lock now */
    atomic_int overlaps; /* times two held it */
    atomic_int turns;    /* times it was held */
    atomic_int stop;
};

/* Takes the lock again and again; every third time it kills itself while holding it. */
static void contend(struct shared *shared, unsigned number)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (unsigned round = number; atomic_load(&shared->stop) == 0;) {
        struct espl_lock lock;
        struct espl_error err;
        bool taken = false;
        if (espl_lock_try(&lock, lock_path, &taken, NULL, &err) != ESPL_OK) {
            _exit(90);
        }
        if (!taken) {
            nap(200);
            continue;
        }
        if (atomic_fetch_add(&shared->inside, 1) != 0) {
            atomic_fetch_add(&shared->overlaps, 1);
        }
        nap(300);
        atomic_fetch_add(&shared->turns, 1);
        atomic_fetch_sub(&shared->inside, 1);
        if (++round % 3 == 0) {
            (void)raise(SIGKILL);
        }
        espl_lock_release(&lock);
    }
    _exit(0);
}

static void test_lock_try__eight_contenders_with_killed_owners(void **state)
{
    enum { CONTENDERS = 8, TURNS = 120 };
    pid_t children[CONTENDERS];
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned started = 0;
    int killed = 0;
    (void)state;
    assert_true(shared != MAP_FAILED);
    for (int i = 0; i < CONTENDERS; i++) {
        children[i] = 0;
    }
    const time_t begin = time(NULL);
    while (atomic_load(&shared->turns) < TURNS && time(NULL) - begin < 60) {
        for (int i = 0; i < CONTENDERS; i++) {
            int how = 0;
            if (children[i] != 0 && waitpid(children[i], &how, WNOHANG) == children[i]) {
                assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
                children[i] = 0;
                killed++;
            }
            if (children[i] == 0) {
                started++;
                children[i] = fork();
                assert_true(children[i] >= 0);
                if (children[i] == 0) {
                    contend(shared, started);
                }
            }
        }
        nap(500);
    }
    atomic_store(&shared->stop, 1);
    for (int i = 0; i < CONTENDERS; i++) {
        int how = 0;
        assert_int_equal(waitpid(children[i], &how, 0), children[i]);
        assert_true((WIFEXITED(how) && WEXITSTATUS(how) == 0) || WIFSIGNALED(how));
    }
    assert_true(atomic_load(&shared->turns) >= TURNS);
    assert_int_equal(atomic_load(&shared->overlaps), 0);
    assert_true(killed >= 10);
    print_message("%d turns, %d owners killed while holding the lock\n",
                  atomic_load(&shared->turns), killed);
    assert_int_equal(munmap(shared, sizeof *shared), 0);
}

/* Tries once when all are ready, and stays alive until all have tried. */
static void try_once(struct shared *shared, int contenders)
{
    struct espl_lock lock;
    struct espl_error err;
    bool taken = false;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (atomic_load(&shared->stop) == 0) {
        nap(50);
    }
    if (espl_lock_try(&lock, lock_path, &taken, NULL, &err) != ESPL_OK) {
        _exit(90);
    }
    if (taken) {
        atomic_fetch_add(&shared->turns, 1);
    }
    atomic_fetch_add(&shared->inside, 1);
    while (atomic_load(&shared->inside) < contenders) {
        nap(200);
    }
    _exit(0);
}

/* The lock of a dead owner and eight processes that all try at the same moment: exactly one wins.
 */
static void test_lock_try__one_winner_of_a_dead_lock(void **state)
{
    enum { CONTENDERS = 8, ROUNDS = 150 };
    struct espl_lock_owner self;
    struct espl_lock lock;
    struct espl_lock second;
    struct espl_error err;
    bool taken = false;
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(shared != MAP_FAILED);
    assert_int_equal(espl_lock_try(&lock, lock_path, &taken, NULL, &err), ESPL_OK);
    assert_int_equal(espl_lock_try(&second, lock_path, &taken, &self, &err), ESPL_OK);
    espl_lock_release(&lock);
    for (int round = 0; round < ROUNDS; round++) {
        pid_t children[CONTENDERS];
        write_lock(self.host, self.boot_id, self.pid, self.start_ticks + 1);
        memset(shared, 0, sizeof *shared);
        for (int i = 0; i < CONTENDERS; i++) {
            children[i] = fork();
            assert_true(children[i] >= 0);
            if (children[i] == 0) {
                try_once(shared, CONTENDERS);
            }
        }
        atomic_store(&shared->stop, 1);
        for (int i = 0; i < CONTENDERS; i++) {
            int how = 0;
            assert_int_equal(waitpid(children[i], &how, 0), children[i]);
            assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
        }
        assert_int_equal(atomic_load(&shared->turns), 1);
        char **names = NULL;
        size_t count = 0;
        assert_int_equal(espl_fs_list(test_folder, 10, &names, &count, &err), ESPL_OK);
        espl_fs_free_names(names, count);
        assert_int_equal(count, 1); /* the lock, no guard and no temporaries */
    }
    assert_int_equal(munmap(shared, sizeof *shared), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lock_try__takes_refuses_and_releases, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_try__live_owner_with_a_nasty_name_is_respected,
                                        set_up, test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_try__killed_owner_is_replaced, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_try__reused_pid_restart_and_other_hosts, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_try__damaged_lock_has_no_owner, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_release__child_and_stolen_lock, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_is_held__only_looks, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_remove_guard__not_while_it_is_held, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_try__errors, set_up, test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_try__one_winner_of_a_dead_lock, set_up,
                                        test_folder_tear_down),
        cmocka_unit_test_setup_teardown(test_lock_try__eight_contenders_with_killed_owners, set_up,
                                        test_folder_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
