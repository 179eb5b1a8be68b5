/* espalier-fetch: the only program that opens connections. It reads a request from standard input,
 * brings the files into the cache and writes events to standard output; `espalier fetch` starts it.
 * Exit code 0 when all files are there, 1 after an error event. */
#include "core/buf.h"
#include "datasets/fetch/fetch_event.h"
#include "datasets/fetch/fetch_loop.h"
#include "datasets/fetch/fetch_request.h"
#include "datasets/fetch/token.h"

#include <curl/curl.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

static volatile int stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
}

static void set_up_process(void)
{
    const struct sigaction stop = {.sa_handler = on_signal};
    const struct sigaction ignore = {.sa_handler = SIG_IGN};
    const struct rlimit no_core = {0, 0}; /* a core file would hold the token */
    (void)sigaction(SIGINT, &stop, NULL);
    (void)sigaction(SIGTERM, &stop, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody would hear us; at worst we notice by a pipe */
}

static enum espl_status read_input(struct espl_buf *buf, struct espl_error *err)
{
    char piece[1 << 16];
    for (;;) {
        const ssize_t got = read(STDIN_FILENO, piece, sizeof piece);
        if (got == 0) {
            return espl_buf_check(buf, "the request", err);
        }
        if (got < 0 && errno != EINTR) {
            return espl_fail_errno(err, errno, "cannot read the request");
        }
        if (got > 0) {
            (void)espl_buf_add(buf, piece, (size_t)got); /* checked at the end */
        }
    }
}

static enum espl_status run(struct espl_arena *arena, struct espl_buf *input,
                            struct espl_error *err)
{
    struct espl_fetch_request request = {.files = NULL};
    char token[ESPL_TOKEN_TEXT] = "";
    enum espl_status status = read_input(input, err);
    if (status == ESPL_OK) {
        status = espl_fetch_request_parse(espl_buf_text(input), input->len, arena, &request, err);
    }
    if (status == ESPL_OK && !request.offline) {
        status = espl_fetch_read_token(request.token_file, token, err);
    }
    if (status == ESPL_OK && curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        status = espl_fail(err, ESPL_E_INTERNAL, "the transfer library does not start");
    }
    if (status == ESPL_OK) {
        status = espl_fetch_run(&request, token, &stop_signal, err);
        curl_global_cleanup();
    }
    explicit_bzero(token, sizeof token);
    return status;
}

int main(int argc, char **argv)
{
    static const char usage[] =
        "espalier-fetch is started by `espalier fetch`: see `espalier fetch --help`\n";
    struct espl_error err;
    struct espl_buf input;
    (void)argv;
    if (argc > 1) {
        (void)!write(STDERR_FILENO, usage, sizeof usage - 1); /* the exit code says it too */
        return 2;
    }
    espl_error_clear(&err);
    espl_buf_init(&input, ESPL_FETCH_MAX_REQUEST);
    set_up_process();
    struct espl_arena *const arena = espl_arena_create((size_t)4 * ESPL_FETCH_MAX_REQUEST);
    const enum espl_status status =
        arena != NULL ? run(arena, &input, &err)
                      : espl_fail(&err, ESPL_E_NOMEM, "no memory for the request");
    if (status != ESPL_OK) {
        (void)espl_fetch_event_error(&err);
    }
    espl_arena_destroy(arena);
    espl_buf_free(&input);
    return status == ESPL_OK ? 0 : 1;
}
