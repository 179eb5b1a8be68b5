/* Entry point: signals, library start-up, and the only exit. */
#include "artifact/artifact.h"
#include "cli/cli.h"

#include <espalier/kernels.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* The only mutable globals of the program: what handlers may touch. sig_atomic_t is int here, as
 * the readers' type says. */
static volatile sig_atomic_t stop_signal;
static volatile sig_atomic_t stop_count;

_Static_assert(sizeof(sig_atomic_t) == sizeof(int), "readers take an int");

static void on_stop(int number)
{
    if (stop_signal == 0) {
        stop_signal = number;
    }
    stop_count = stop_count + 1;
}

/* OpenBLAS picks its kernels when it is loaded, and old versions pick those of 1999 on CPUs that
 * are newer than themselves. The choice can only be changed before that, so the program starts
 * itself again, once. */
static void restart_for_blas(char **argv)
{
    static const char guard[] = "ESPL_BLAS_REEXEC";
    if (getenv("OPENBLAS_CORETYPE") != NULL || getenv(guard) != NULL) {
        return;
    }
    const char *core = espl_blas_better_core_here();
    if (core == NULL || setenv("OPENBLAS_CORETYPE", core, 1) != 0 || setenv(guard, "1", 1) != 0) {
        return;
    }
    (void)execv("/proc/self/exe", argv);
    /* Without /proc the program runs on with slow kernels; `doctor` tells. */
    (void)unsetenv("OPENBLAS_CORETYPE");
}

/* A standard stream that is closed would give its number to the next file that is opened, and what
 * is printed would land in there. /dev/null takes its place, opened the wrong way round, so that
 * using it still fails. */
static void reserve_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) == -1) {
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY); /* takes fd */
        }
    }
}

int main(int argc, char **argv)
{
    reserve_standard_streams();
    restart_for_blas(argv);
    /* No SA_RESTART: a stop ends waits early. */
    struct sigaction action = {.sa_handler = on_stop};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL); /* these calls cannot fail for these signals */
    (void)sigaction(SIGTERM, &action, NULL);
    /* A reader of stdout that goes away must not stop a run. */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)sigemptyset(&ignore.sa_mask);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    /* A file that reaches `ulimit -f` is a failed write with an errno. */
    (void)sigaction(SIGXFSZ, &ignore, NULL);
    espl_artifact_library_init();
    return espl_cli_main(argc, argv, &stop_signal, &stop_count);
}
