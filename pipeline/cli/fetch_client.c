#include "cli/fetch_client.h"

#include "cli/fetch_progress.h"
#include "cli/print.h"
#include "core/buf.h"
#include "core/fs.h"
#include "core/log.h"
#include "core/units.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POLL_MS = 200, LINE_LIMIT = 1 << 20 };

struct client {
    const struct espl_cli *cli;
    json_t *results;
    struct espl_fetch_progress *progress;
    struct espl_error error; /* of the error event */
    struct espl_buf line;
    pid_t pid;
    int input;  /* its standard input, -1 = closed */
    int output; /* its standard output */
    bool told_to_stop;
};

/* Beside this program, as the build and the installation put it. */
static enum espl_status find_program(char out[ESPL_PATH_MAX], struct espl_error *err)
{
    const ssize_t len = readlink("/proc/self/exe", out, ESPL_PATH_MAX - 1);
    char *slash = NULL;
    if (len > 0) {
        out[len] = '\0';
        slash = strrchr(out, '/');
    }
    if (slash != NULL && (size_t)(slash - out) + 16 < ESPL_PATH_MAX) {
        (void)snprintf(slash, ESPL_PATH_MAX - (size_t)(slash - out), "/espalier-fetch");
        if (access(out, X_OK) == 0) {
            return ESPL_OK;
        }
    }
    (void)espl_fail(err, ESPL_E_MACHINE, "the program 'espalier-fetch' is not beside this one");
    return espl_hint(err, "the portable bundle has no network code: build with `./dev build`, or "
                          "fetch with another tool and give the path");
}

/* In the child: the pipes become standard input and output. */
static void run_program(const char *path, const int input[2], const int output[2])
{
    char *const arguments[] = {(char *)(uintptr_t) "espalier-fetch", NULL};
    if (dup2(input[0], STDIN_FILENO) >= 0 && dup2(output[1], STDOUT_FILENO) >= 0) {
        (void)close(input[1]); /* or it would wait for its own end of file */
        (void)execv(path, arguments);
    }
    _exit(127);
}

static enum espl_status start(struct client *client, const char *path, struct espl_error *err)
{
    int input[2] = {-1, -1};
    int output[2] = {-1, -1};
    if (pipe(input) != 0 || pipe(output) != 0) {
        return espl_fail_errno(err, errno, "cannot talk to 'espalier-fetch'");
    }
    (void)fflush(client->cli->out); /* or the child would have it too; failures show at the end */
    (void)fflush(client->cli->err_stream);
    client->pid = fork();
    if (client->pid == 0) {
        run_program(path, input, output);
    }
    const int reason = errno;
    (void)close(input[0]); /* the child's ends */
    (void)close(output[1]);
    client->input = input[1];
    client->output = output[0];
    return client->pid > 0 ? ESPL_OK
                           : espl_fail_errno(err, reason, "cannot start 'espalier-fetch'");
}

/* The child reads all of it before it answers, so a plain write cannot block for ever. */
static enum espl_status send_request(struct client *client, const json_t *request,
                                     struct espl_error *err)
{
    char *const text = json_dumps(request, JSON_COMPACT);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "no memory for the request");
    }
    const size_t len = strlen(text);
    size_t done = 0;
    while (done < len) {
        const ssize_t wrote = write(client->input, text + done, len - done);
        if (wrote < 0 && errno != EINTR) {
            break; /* it died: its exit code says more */
        }
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    free(text);
    (void)close(client->input); /* the end of the request */
    client->input = -1;
    return ESPL_OK;
}

static void take_retry(struct client *client, const json_t *event)
{
    const char *const message = json_string_value(json_object_get(event, "message"));
    const double seconds = json_number_value(json_object_get(event, "seconds"));
    char pause[ESPL_UNIT_TEXT];
    espl_fetch_progress_clear(client->progress);
    espl_print_duration(seconds, pause);
    if (seconds > 0) {
        espl_print_talk(client->cli, "%s; again in %s", message, pause);
    } else {
        espl_print_talk(client->cli, "%s; trying the next address", message);
    }
}

static void take_error(struct client *client, const json_t *event)
{
    const char *message = "";
    const char *hint = "";
    const char *context = "";
    int code = ESPL_E_INTERNAL;
    if (json_unpack((json_t *)(uintptr_t)event, "{s:i, s:s, s:s, s:s}", "code", &code, "message",
                    &message, "hint", &hint, "context", &context) != 0) {
        message = "espalier-fetch sent an error that cannot be read";
    }
    (void)espl_fail(&client->error, (enum espl_status)code, "%s", message);
    (void)espl_hint(&client->error, "%s", hint);
    if (context[0] != '\0') {
        (void)espl_context(&client->error, "%s", context);
    }
}

static bool take_event(struct client *client, const char *line, size_t len)
{
    json_t *const event = json_loadb(line, len, JSON_REJECT_DUPLICATES, NULL);
    const char *const type = json_string_value(json_object_get(event, "type"));
    const char *const name = json_string_value(json_object_get(event, "name"));
    bool known = type != NULL;
    if (known && strcmp(type, "progress") == 0) {
        espl_fetch_progress_update(client->progress,
                                   (uint64_t)json_integer_value(json_object_get(event, "done")),
                                   (uint64_t)json_integer_value(json_object_get(event, "total")),
                                   (unsigned)json_integer_value(json_object_get(event, "waiting")),
                                   espl_clock_monotonic());
    } else if (known && strcmp(type, "retry") == 0) {
        take_retry(client, event);
    } else if (known && strcmp(type, "file") == 0 && name != NULL) {
        known = json_object_set(client->results, name, event) == 0;
    } else if (known && strcmp(type, "error") == 0) {
        take_error(client, event);
    } else {
        known = known && strcmp(type, "absent") == 0;
    }
    json_decref(event);
    return known;
}

/* Takes the whole lines out of the buffer. */
static bool take_lines(struct client *client)
{
    const char *start = client->line.data;
    const char *const end = start + client->line.len;
    const char *newline = NULL;
    bool ok = true;
    while (ok && (newline = memchr(start, '\n', (size_t)(end - start))) != NULL) {
        ok = take_event(client, start, (size_t)(newline - start));
        start = newline + 1;
    }
    const size_t rest = (size_t)(end - start);
    memmove(client->line.data, start, rest);
    client->line.len = rest;
    return ok;
}

static void pass_stop(struct client *client)
{
    if (client->cli->stop_signal != NULL && *client->cli->stop_signal != 0 &&
        !client->told_to_stop) {
        client->told_to_stop = true;
        (void)kill(client->pid, SIGTERM); /* gone already at worst */
    }
}

static enum espl_status listen(struct client *client, struct espl_error *err)
{
    char piece[1 << 14];
    for (;;) {
        struct pollfd poll_fd = {.fd = client->output, .events = POLLIN};
        pass_stop(client);
        if (poll(&poll_fd, 1, POLL_MS) <= 0) {
            continue; /* a signal, or nothing new */
        }
        const ssize_t got = read(client->output, piece, sizeof piece);
        if (got == 0) {
            return ESPL_OK;
        }
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return espl_fail_errno(err, errno, "cannot hear 'espalier-fetch'");
        }
        if (!espl_buf_add(&client->line, piece, (size_t)got) || !take_lines(client)) {
            (void)kill(client->pid, SIGTERM); /* gone already at worst */
            return espl_fail(err, ESPL_E_INTERNAL, "'espalier-fetch' sent what is no event");
        }
    }
}

static enum espl_status judge(struct client *client, int wait_status, struct espl_error *err)
{
    if (client->error.code != ESPL_OK) {
        const bool interrupted = client->cli->stop_signal != NULL &&
                                 *client->cli->stop_signal == SIGINT &&
                                 client->error.code == ESPL_E_TERMINATED;
        *err = client->error;
        err->code = interrupted ? ESPL_E_CANCELLED : err->code;
        return err->code;
    }
    if (WIFSIGNALED(wait_status)) {
        (void)espl_fail(err, ESPL_E_STAGE, "'espalier-fetch' died from signal %d",
                        WTERMSIG(wait_status));
        return espl_hint(err, "nothing half-made is visible; the same command continues");
    }
    if (WEXITSTATUS(wait_status) != 0) {
        return espl_fail(err, ESPL_E_STAGE, "'espalier-fetch' ended with code %d and no message",
                         WEXITSTATUS(wait_status));
    }
    return ESPL_OK;
}

enum espl_status espl_fetch_client_run(const struct espl_cli *cli, const json_t *request,
                                       json_t *results, struct espl_fetch_progress *progress,
                                       struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    struct client client = {
        .cli = cli, .results = results, .progress = progress, .input = -1, .output = -1};
    int wait_status = 0;
    espl_error_clear(&client.error);
    espl_buf_init(&client.line, LINE_LIMIT);
    enum espl_status status = find_program(path, err);
    if (status == ESPL_OK) {
        status = start(&client, path, err);
    }
    if (status == ESPL_OK) {
        status = send_request(&client, request, err);
    }
    if (status == ESPL_OK) {
        status = listen(&client, err);
    }
    espl_fetch_progress_clear(progress);
    if (client.input >= 0) {
        (void)close(client.input);
    }
    if (client.output >= 0) {
        (void)close(client.output); /* only read from */
    }
    while (client.pid > 0 && waitpid(client.pid, &wait_status, 0) < 0 && errno == EINTR) {
    }
    espl_buf_free(&client.line);
    return status == ESPL_OK ? judge(&client, wait_status, err) : status;
}
