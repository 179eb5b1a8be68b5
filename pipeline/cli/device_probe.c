#include "cli/device_probe.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the probing process sends: both ends are the same program. */
struct answer {
    enum espl_status status;
    struct espl_cuda_info info;
    struct espl_error err;
};

static bool write_all(int fd, const void *data, size_t len)
{
    const char *at = data;
    while (len > 0) {
        const ssize_t n = write(fd, at, len);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t len)
{
    char *at = data;
    while (len > 0) {
        const ssize_t n = read(fd, at, len);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return false;
        }
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

static int probe(int fd)
{
    struct answer answer;
    memset(&answer, 0, sizeof answer); /* padding included: it goes through the pipe */
    answer.status = espl_cuda_probe(&answer.info, &answer.err);
    return write_all(fd, &answer, sizeof answer) ? 0 : 1;
}

enum espl_status espl_cli_probe_cuda(struct espl_cuda_info *info, struct espl_error *err)
{
    struct answer answer;
    int ends[2];
    memset(info, 0, sizeof *info);
    if (pipe(ends) != 0) {
        return espl_fail_errno(err, errno, "cannot ask CUDA what this machine has");
    }
    const pid_t child = fork();
    if (child < 0) {
        const int reason = errno;
        (void)close(ends[0]); /* carried nothing */
        (void)close(ends[1]);
        return espl_fail_errno(err, reason, "cannot ask CUDA what this machine has");
    }
    if (child == 0) {
        (void)close(ends[0]);
        _exit(probe(ends[1]));
    }
    (void)close(ends[1]); /* the child's end */
    const bool whole = read_all(ends[0], &answer, sizeof answer);
    (void)close(ends[0]); /* only read from */
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
    if (!whole) {
        return espl_fail(err, ESPL_E_MACHINE,
                         "CUDA crashed when it was asked what this machine has");
    }
    *info = answer.info;
    if (answer.status != ESPL_OK && err != NULL) {
        *err = answer.err;
    }
    return answer.status;
}
