/* The driver's side of a running stage process: fork, take its messages, pass a stop on, see how it
 * ended. */
#include "engine/exec_internal.h"
#include "engine/exec_message.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double default_stop_seconds = 10.0;

enum { POLL_MS = 50 };

struct process {
    struct espl_exec *exec;
    size_t index;
    struct espl_exec_stage *stage;
    pid_t pid;
    int fd;
    struct espl_message_reader reader;
    double started;
    double stop_sent; /* when SIGTERM went out; 0 = not yet */
    bool killed;      /* by us, after a stop */
    bool has_status;
    struct espl_error status;
};

/* ---- in the new process ---- */

/* What libraries keep for themselves (OpenBLAS, HDF5) beside what a stage asks for. */
static const uint64_t memory_margin = UINT64_C(1) << 30;

/* A stage that runs away fails by itself, with a message, instead of taking the machine down. Only
 * where the job sets a limit; not on a GPU, whose driver reserves far more than it uses, and not
 * under AddressSanitizer, which does so too. */
static void limit_memory(const struct espl_job *job)
{
#ifndef __SANITIZE_ADDRESS__
    if (job->limit_host_memory > 0 && job->limit_host_memory < RLIM_INFINITY - memory_margin &&
        strncmp(job->device, "cuda", 4) != 0) {
        const rlim_t bytes = (rlim_t)(job->limit_host_memory + memory_margin);
        const struct rlimit limit = {bytes, bytes};
        (void)setrlimit(RLIMIT_DATA, &limit); /* at worst there is no limit */
    }
#else
    (void)job;
    (void)memory_margin;
#endif
}

static void enter_child(const struct process *process, pid_t driver, int message_fd)
{
    const struct rlimit no_core = {0, 0};
    struct sigaction plain = {.sa_handler = SIG_DFL};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* cannot fail for a valid signal */
    if (getppid() != driver) {
        _exit(1); /* the driver died before the line above */
    }
    (void)setrlimit(RLIMIT_CORE, &no_core); /* at worst a core file is written */
    limit_memory(process->exec->plan->job);
    /* SIGINT reaches the whole group of a terminal; the driver decides and sends SIGTERM, which
     * stays blocked and is seen as pending by espl_ctx_cancelled(). */
    (void)sigaction(SIGINT, &ignore, NULL);
    (void)sigaction(SIGTERM, &plain, NULL);
    (void)sigaction(SIGPIPE, &plain, NULL);
    const int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int log_fd = fileno(process->exec->files.log);
    if (null_fd < 0 || dup2(null_fd, STDIN_FILENO) < 0 || dup2(log_fd, STDOUT_FILENO) < 0 ||
        dup2(log_fd, STDERR_FILENO) < 0) {
        _exit(1);
    }
    const int code = espl_exec_child(process->exec, process->index, message_fd);
    (void)fflush(stdout); /* what a library printed; lost at worst */
    _exit(code);
}

static enum espl_status start_process(struct process *process, struct espl_error *err)
{
    int pipe_fds[2];
    sigset_t stop;
    sigset_t before;
    const pid_t driver = getpid();
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        return espl_fail_errno(err, errno, "cannot make a pipe for the stage process");
    }
    (void)fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK);
    (void)fflush(NULL); /* or the child would write buffered text a second time */
    (void)sigemptyset(&stop);
    (void)sigaddset(&stop, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, &stop, &before);
    process->pid = fork();
    if (process->pid == 0) {
        (void)close(pipe_fds[0]);
        enter_child(process, driver, pipe_fds[1]);
    }
    const int problem = errno;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    (void)close(pipe_fds[1]);
    if (process->pid < 0) {
        (void)close(pipe_fds[0]);
        return espl_fail_errno(err, problem, "cannot start a process for the stage");
    }
    process->fd = pipe_fds[0];
    return ESPL_OK;
}

/* ---- messages ---- */

static uint64_t get_count(const json_t *body, const char *name)
{
    const json_int_t value = json_integer_value(json_object_get(body, name));
    return value > 0 ? (uint64_t)value : 0;
}

static const char *get_text(const json_t *body, const char *name)
{
    const char *text = json_string_value(json_object_get(body, name));
    return text != NULL ? text : "";
}

static void keep_progress(struct process *process, const json_t *body)
{
    process->stage->done = get_count(body, "done");
    process->stage->total = get_count(body, "total");
    (void)snprintf(process->stage->what, sizeof process->stage->what, "%s", get_text(body, "what"));
}

static void take_progress(struct process *process, const json_t *body)
{
    keep_progress(process, body);
    struct espl_event event = {
        .type = ESPL_EVENT_PROGRESS,
        .done = process->stage->done,
        .total = process->stage->total,
        .what = process->stage->what,
    };
    espl_exec_emit(process->exec, process->index, &event);
}

static void take_log(struct process *process, const json_t *body)
{
    const uint64_t level = get_count(body, "level");
    struct espl_event event = {
        .type = ESPL_EVENT_LOG,
        .level = level <= ESPL_LOG_ERROR ? (enum espl_log_level)level : ESPL_LOG_ERROR,
        .text = get_text(body, "text"),
    };
    if (event.level == ESPL_LOG_WARN) {
        (void)json_array_append(process->stage->warnings, json_object_get(body, "text"));
    }
    espl_exec_emit(process->exec, process->index, &event);
}

static void take_metric(struct process *process, const json_t *body)
{
    struct espl_event event = {
        .type = ESPL_EVENT_METRIC,
        .what = get_text(body, "name"),
        .value = json_number_value(json_object_get(body, "value")),
        .volatile_value = json_is_true(json_object_get(body, "volatile")),
    };
    json_t *metrics =
        event.volatile_value ? process->stage->volatile_metrics : process->stage->metrics;
    (void)json_object_set(metrics, event.what, json_object_get(body, "value"));
    espl_exec_emit(process->exec, process->index, &event);
}

static void take_layer_metric(struct process *process, json_t *body)
{
    struct espl_event event = {
        .type = ESPL_EVENT_LAYER_METRIC,
        .what = get_text(body, "series"),
        .done = get_count(body, "layer"),
        .module = get_text(body, "module"),
        .value = json_number_value(json_object_get(body, "value")),
    };
    (void)json_array_append(process->stage->layers, body);
    espl_exec_emit(process->exec, process->index, &event);
}

static void take_status(struct process *process, const json_t *body)
{
    process->has_status = true;
    espl_error_from_json(json_object_get(body, "error"), &process->status);
    keep_progress(process, body);
    process->stage->peak_rss_bytes = get_count(body, "peak_rss_bytes");
    process->stage->output_bytes = get_count(body, "output_bytes");
    process->stage->resumed_units = get_count(body, "resumed_units");
}

static enum espl_status take_messages(struct process *process, struct espl_error *err)
{
    for (;;) {
        enum espl_message_type type = ESPL_MESSAGE_STATUS;
        json_t *body = NULL;
        const enum espl_status status =
            espl_message_reader_next(&process->reader, &type, &body, err);
        if (status != ESPL_OK || body == NULL) {
            return status;
        }
        switch (type) {
        case ESPL_MESSAGE_PROGRESS:
            take_progress(process, body);
            break;
        case ESPL_MESSAGE_LOG:
            take_log(process, body);
            break;
        case ESPL_MESSAGE_METRIC:
            take_metric(process, body);
            break;
        case ESPL_MESSAGE_LAYER_METRIC:
            take_layer_metric(process, body);
            break;
        case ESPL_MESSAGE_STATUS:
            take_status(process, body);
            break;
        }
        json_decref(body);
    }
}

/* ---- to its end ---- */

/* Passes a stop on: SIGTERM first, SIGKILL when the stage takes too long or the user insists. */
static void pass_stop(struct process *process)
{
    const struct espl_exec_options *options = process->exec->options;
    const double patience =
        options->stop_seconds > 0.0 ? options->stop_seconds : default_stop_seconds;
    if (espl_exec_stop_signal(process->exec) == 0 || process->killed) {
        return;
    }
    const double now = espl_clock_monotonic();
    if (process->stop_sent <= 0.0) {
        process->stop_sent = now;
        (void)kill(process->pid, SIGTERM); /* gone already at worst */
    }
    const bool insisted = options->stop_count != NULL && *options->stop_count >= 2;
    if (insisted || now - process->stop_sent >= patience) {
        process->killed = true;
        (void)kill(process->pid, SIGKILL);
    }
}

/* Reads messages until the process is gone. Returns its wait status. */
static enum espl_status pump(struct process *process, int *wait_status, struct espl_error *err)
{
    bool end = false;
    struct rusage usage = {.ru_maxrss = 0};
    enum espl_status status = ESPL_OK;
    for (;;) {
        pass_stop(process);
        struct pollfd poll_fd = {.fd = end ? -1 : process->fd, .events = POLLIN};
        const int ready = poll(&poll_fd, 1, end ? 1 : POLL_MS);
        if (ready > 0 && status == ESPL_OK) {
            status = espl_message_reader_fill(&process->reader, process->fd, &end, err);
            if (status == ESPL_OK) {
                status = take_messages(process, err);
            }
            if (status != ESPL_OK) { /* its messages are lost: it cannot be trusted any more */
                (void)kill(process->pid, SIGKILL);
                end = true;
            }
        }
        const pid_t waited = end ? wait4(process->pid, wait_status, WNOHANG, &usage) : 0;
        if (waited == process->pid) {
            break;
        }
        if (waited < 0 && errno != EINTR) {
            return espl_fail_errno(err, errno, "cannot wait for the stage process");
        }
    }
    if (process->stage->peak_rss_bytes == 0) {
        process->stage->peak_rss_bytes = (uint64_t)usage.ru_maxrss * 1024u;
    }
    return status;
}

static enum espl_status fail_died(const struct process *process, int wait_status,
                                  struct espl_error *err)
{
    const char *id = process->exec->plan->stages[process->index].job_stage->id;
    if (!WIFSIGNALED(wait_status)) {
        (void)espl_fail(err, ESPL_E_STAGE,
                        "the process of stage '%s' ended with code %d and no status", id,
                        WEXITSTATUS(wait_status));
        return espl_hint(err, "what it printed last is in '%s/log.txt'",
                         process->exec->result->run_dir);
    }
    const int number = WTERMSIG(wait_status);
    const char *name = sigabbrev_np(number);
    (void)espl_fail(err, ESPL_E_STAGE, "the process of stage '%s' died from signal %d (SIG%s)", id,
                    number, name != NULL ? name : "?");
    if (number == SIGKILL) {
        return espl_hint(err,
                         "usually the system ran out of memory (see `dmesg`); its peak was "
                         "%.1f MiB; run the same command again to continue",
                         (double)process->stage->peak_rss_bytes / 1048576.0);
    }
    return espl_hint(err, "this is a bug in the stage: please report it with '%s/log.txt'",
                     process->exec->result->run_dir);
}

/* "'prune' stopped after layer 139 of 224; finished layers are kept" */
static enum espl_status fail_stopped(const struct process *process, struct espl_error *err)
{
    const struct espl_job_stage *job_stage = process->exec->plan->stages[process->index].job_stage;
    const struct espl_exec_stage *stage = process->stage;
    const bool kept = (job_stage->stage->flags & ESPL_STAGE_RESUMABLE) != 0 && stage->done > 0;
    const enum espl_status code =
        espl_exec_stop_signal(process->exec) == SIGTERM ? ESPL_E_TERMINATED : ESPL_E_CANCELLED;
    const char *what = stage->what[0] != '\0' ? stage->what : "step";
    char tail[64] = "";
    if (kept) {
        (void)snprintf(tail, sizeof tail, "; finished %ss are kept", what);
    }
    if (stage->total == 0) {
        return espl_fail(err, code, "'%s' stopped%s", job_stage->id, tail);
    }
    return espl_fail(err, code, "'%s' stopped after %s %" PRIu64 " of %" PRIu64 "%s", job_stage->id,
                     what, stage->done, stage->total, tail);
}

static enum espl_status judge(const struct process *process, int wait_status,
                              struct espl_error *err)
{
    const bool stopped = espl_exec_stop_signal(process->exec) != 0;
    if (process->has_status && process->status.code == ESPL_OK) {
        return ESPL_OK; /* published before it heard of a stop */
    }
    if (process->has_status && process->status.code != ESPL_E_CANCELLED) {
        *err = process->status;
        return err->code;
    }
    if (stopped && (process->has_status || process->killed)) {
        return fail_stopped(process, err);
    }
    if (process->has_status) { /* it was cancelled by someone else than the driver */
        *err = process->status;
        return err->code;
    }
    return fail_died(process, wait_status, err);
}

enum espl_status espl_exec_process_run(struct espl_exec *exec, size_t index, struct espl_error *err)
{
    int wait_status = 0;
    struct process process = {
        .exec = exec,
        .index = index,
        .stage = &exec->stages[index],
        .pid = -1,
        .fd = -1,
        .started = espl_clock_monotonic(),
    };
    espl_error_clear(&process.status);
    espl_message_reader_init(&process.reader);
    enum espl_status status = start_process(&process, err);
    if (status == ESPL_OK) {
        status = pump(&process, &wait_status, err);
    }
    process.stage->seconds = espl_clock_monotonic() - process.started;
    if (status == ESPL_OK) {
        status = judge(&process, wait_status, err);
    }
    if (process.fd >= 0) {
        (void)close(process.fd); /* only read from */
    }
    espl_message_reader_free(&process.reader);
    return status;
}
