#include "engine/events.h"

#include "core/units.h"
#include "engine/exec_message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_SECONDS = 60, LINE_LIMIT = 16 * 1024 };

static const char *const event_names[] = {
    [ESPL_EVENT_RUN_START] = "run_start",
    [ESPL_EVENT_STAGE_CACHED] = "stage_cached",
    [ESPL_EVENT_STAGE_WAIT] = "stage_wait",
    [ESPL_EVENT_STAGE_START] = "stage_start",
    [ESPL_EVENT_PROGRESS] = "progress",
    [ESPL_EVENT_LOG] = "log",
    [ESPL_EVENT_METRIC] = "metric",
    [ESPL_EVENT_LAYER_METRIC] = "layer_metric",
    [ESPL_EVENT_STAGE_END] = "stage_end",
    [ESPL_EVENT_STAGE_FAILED] = "stage_failed",
    [ESPL_EVENT_STAGE_SKIPPED] = "stage_skipped",
    [ESPL_EVENT_EXPECT_FAILED] = "expect_failed",
    [ESPL_EVENT_RUN_END] = "run_end",
};

static const char *const level_names[] = {
    [ESPL_LOG_DEBUG] = "debug",
    [ESPL_LOG_INFO] = "info",
    [ESPL_LOG_WARN] = "warn",
    [ESPL_LOG_ERROR] = "error",
};

const char *espl_event_name(enum espl_event_type type)
{
    const size_t index = (size_t)type;
    return index < sizeof event_names / sizeof event_names[0] ? event_names[index] : "unknown";
}

/* ---- JSON ---- */

static void set_text(json_t *object, const char *name, const char *text)
{
    if (text != NULL && text[0] != '\0') {
        (void)json_object_set_new(object, name, espl_json_text(text));
    }
}

static void set_count(json_t *object, const char *name, uint64_t value)
{
    (void)json_object_set_new(object, name, json_integer((json_int_t)value));
}

static void set_error(json_t *object, const struct espl_error *error)
{
    if (error == NULL) {
        return;
    }
    json_t *details = json_object();
    set_text(details, "code", espl_status_name(error->code));
    set_text(details, "message", error->message);
    set_text(details, "hint", error->hint);
    set_text(details, "context", error->context);
    (void)json_object_set_new(object, "error", details);
}

static void set_type_fields(json_t *object, const struct espl_event *event)
{
    switch (event->type) {
    case ESPL_EVENT_RUN_START:
        set_text(object, "run_id", event->text);
        set_count(object, "cached", event->done);
        set_count(object, "stages", event->total);
        break;
    case ESPL_EVENT_STAGE_START:
        set_text(object, "key", event->key);
        set_count(object, "resumed_units", event->resumed_units);
        break;
    case ESPL_EVENT_PROGRESS:
        set_count(object, "done", event->done);
        set_count(object, "total", event->total);
        set_text(object, "what", event->what);
        break;
    case ESPL_EVENT_LOG:
        set_text(object, "level", level_names[event->level]);
        set_text(object, "text", event->text);
        break;
    case ESPL_EVENT_METRIC:
        set_text(object, "name", event->what);
        (void)json_object_set_new(object, "value", json_real(event->value));
        (void)json_object_set_new(object, "volatile", json_boolean(event->volatile_value));
        break;
    case ESPL_EVENT_LAYER_METRIC:
        set_text(object, "series", event->what);
        set_count(object, "layer", event->done);
        set_text(object, "module", event->module);
        (void)json_object_set_new(object, "value", json_real(event->value));
        break;
    case ESPL_EVENT_STAGE_END:
        set_text(object, "key", event->key);
        (void)json_object_set_new(object, "seconds", json_real(event->value));
        set_count(object, "peak_rss_bytes", event->peak_rss_bytes);
        break;
    case ESPL_EVENT_RUN_END:
        set_text(object, "status", event->text);
        (void)json_object_set_new(object, "seconds", json_real(event->value));
        break;
    case ESPL_EVENT_STAGE_CACHED:
    case ESPL_EVENT_STAGE_WAIT:
    case ESPL_EVENT_STAGE_FAILED:
    case ESPL_EVENT_STAGE_SKIPPED:
    case ESPL_EVENT_EXPECT_FAILED:
        set_text(object, "key", event->key);
        set_text(object, "text", event->text);
        set_error(object, event->error);
        break;
    }
}

json_t *espl_event_json(const struct espl_event *event)
{
    json_t *object = json_object();
    if (object == NULL) {
        return NULL;
    }
    set_text(object, "type", espl_event_name(event->type));
    (void)json_object_set_new(object, "time", json_real(event->time));
    set_text(object, "stage", event->stage_id);
    set_type_fields(object, event);
    return object;
}

/* ---- log lines ---- */

void espl_event_lines_init(struct espl_event_lines *lines, size_t stage_count)
{
    memset(lines, 0, sizeof *lines);
    lines->stage_count = stage_count;
}

double espl_event_lines_eta(const struct espl_event_lines *lines, const struct espl_event *event)
{
    if (!lines->has_base || event->done <= lines->base_done || event->total < event->done) {
        return -1.0;
    }
    const double elapsed = event->time - lines->base_time;
    const double rate = (double)(event->done - lines->base_done) / elapsed;
    return elapsed > 0.0 ? (double)(event->total - event->done) / rate : -1.0;
}

static void line_start(struct espl_buf *out, const struct espl_event_lines *lines,
                       const struct espl_event *event, enum espl_log_level level)
{
    struct tm utc;
    const time_t seconds = (time_t)event->time;
    if (gmtime_r(&seconds, &utc) == NULL) {
        memset(&utc, 0, sizeof utc);
    }
    (void)espl_buf_printf(out, "%02d:%02d:%02d %-5s ", utc.tm_hour, utc.tm_min, utc.tm_sec,
                          level_names[level]);
    if (event->stage_id != NULL) {
        (void)espl_buf_printf(out, "[%zu/%zu] %s: ", event->stage_index + 1, lines->stage_count,
                              event->stage_id);
    }
}

static void short_key(const char *key, char out[9])
{
    (void)snprintf(out, 9, "%.8s", key != NULL ? key : "");
}

static void remember_metric(struct espl_event_lines *lines, const struct espl_event *event)
{
    const size_t len = strlen(lines->metrics);
    const size_t room = sizeof lines->metrics - len;
    if (event->volatile_value || lines->metrics_full ||
        !(event->value > -1e15 && event->value < 1e15)) {
        return;
    }
    const bool whole = event->value == (double)(int64_t)event->value; /* counts in full */
    const int needed = snprintf(lines->metrics + len, room, ", %s %.*g", event->what,
                                whole ? 15 : 6, event->value);
    if (needed < 0 || (size_t)needed >= room) {
        lines->metrics[len] = '\0'; /* no half figure */
        lines->metrics_full = true;
    }
}

static void begin_stage(struct espl_event_lines *lines, const struct espl_event *event)
{
    lines->stage_started = event->time;
    lines->line_time = event->time;
    lines->line_tenth = 0;
    lines->has_base = false;
    lines->metrics_full = false;
    lines->metrics[0] = '\0';
}

/* Is a progress line due? Also keeps the base that rates are counted from. */
static bool progress_due(struct espl_event_lines *lines, const struct espl_event *event)
{
    if (event->total == 0) {
        return false;
    }
    const unsigned tenth = (unsigned)(10.0 * (double)event->done / (double)event->total);
    if (!lines->has_base || event->done < lines->base_done) {
        lines->has_base = true;
        lines->base_time = event->time;
        lines->base_done = event->done;
        lines->line_tenth = tenth;
        return false;
    }
    if (tenth <= lines->line_tenth || tenth >= 10 ||
        event->time - lines->line_time < LINE_SECONDS) {
        return false;
    }
    lines->line_tenth = tenth;
    lines->line_time = event->time;
    return true;
}

static void add_progress(const struct espl_event_lines *lines, const struct espl_event *event,
                         struct espl_buf *out)
{
    const double eta = espl_event_lines_eta(lines, event);
    (void)espl_buf_printf(out, "%.0f%% (%llu/%llu)",
                          100.0 * (double)event->done / (double)event->total,
                          (unsigned long long)event->done, (unsigned long long)event->total);
    if (eta >= 90.0) {
        (void)espl_buf_printf(out, ", about %.0f min left", eta / 60.0);
    } else if (eta >= 0.0) {
        (void)espl_buf_printf(out, ", about %.0f s left", eta);
    }
}

static void add_end(const struct espl_event_lines *lines, const struct espl_event *event,
                    struct espl_buf *out)
{
    char key[9];
    char duration[ESPL_UNIT_TEXT];
    short_key(event->key, key);
    espl_print_duration(event->value, duration);
    (void)espl_buf_printf(out, "done in %s, key %s%s", duration, key, lines->metrics);
}

static enum espl_log_level level_of(const struct espl_event *event)
{
    switch (event->type) {
    case ESPL_EVENT_LOG:
        return event->level;
    case ESPL_EVENT_STAGE_FAILED:
    case ESPL_EVENT_EXPECT_FAILED:
        return ESPL_LOG_ERROR;
    case ESPL_EVENT_STAGE_SKIPPED:
        return ESPL_LOG_WARN;
    case ESPL_EVENT_RUN_END:
        return ESPL_LOG_DEBUG;
    case ESPL_EVENT_STAGE_CACHED:
        /* Known from the plan: the line at the start counts them. One with a text became cached
         * while this run waited for another. */
        return event->text != NULL && event->text[0] != '\0' ? ESPL_LOG_INFO : ESPL_LOG_DEBUG;
    case ESPL_EVENT_STAGE_START:
        return event->resumed_units > 0 ? ESPL_LOG_INFO : ESPL_LOG_DEBUG;
    case ESPL_EVENT_RUN_START:
    case ESPL_EVENT_STAGE_WAIT:
    case ESPL_EVENT_PROGRESS:
    case ESPL_EVENT_METRIC:
    case ESPL_EVENT_LAYER_METRIC:
    case ESPL_EVENT_STAGE_END:
        break;
    }
    return ESPL_LOG_INFO;
}

static void add_text(const struct espl_event_lines *lines, const struct espl_event *event,
                     struct espl_buf *out)
{
    char key[9];
    char duration[ESPL_UNIT_TEXT];
    const char *text = event->text != NULL ? event->text : "";
    switch (event->type) {
    case ESPL_EVENT_RUN_START:
        (void)espl_buf_printf(out, "run %s started, %llu stage%s, %llu cached", text,
                              (unsigned long long)event->total, event->total == 1 ? "" : "s",
                              (unsigned long long)event->done);
        break;
    case ESPL_EVENT_STAGE_CACHED:
        short_key(event->key, key);
        (void)espl_buf_printf(out, "cached, key %s%s%s", key, text[0] != '\0' ? ", " : "", text);
        break;
    case ESPL_EVENT_STAGE_START:
        if (event->resumed_units == 0) {
            short_key(event->key, key);
            (void)espl_buf_printf(out, "started, key %s", key);
        } else if (event->total > 0) {
            (void)espl_buf_printf(out, "resumed, %llu of %llu layers kept",
                                  (unsigned long long)event->resumed_units,
                                  (unsigned long long)event->total);
        } else {
            (void)espl_buf_printf(out, "resumed, %llu layers kept",
                                  (unsigned long long)event->resumed_units);
        }
        break;
    case ESPL_EVENT_PROGRESS:
        add_progress(lines, event, out);
        break;
    case ESPL_EVENT_STAGE_END:
        add_end(lines, event, out);
        break;
    case ESPL_EVENT_STAGE_FAILED:
        (void)espl_buf_puts(out, event->error != NULL ? event->error->message : text);
        break;
    case ESPL_EVENT_STAGE_SKIPPED:
        (void)espl_buf_printf(out, "skipped, %s", text);
        break;
    case ESPL_EVENT_EXPECT_FAILED:
        (void)espl_buf_printf(out, "expectation failed: %s", text);
        if (event->error != NULL && event->error->at.line > 0) {
            (void)espl_buf_printf(out, "  (%s:%u:%u)", event->error->at.file, event->error->at.line,
                                  event->error->at.column);
        }
        break;
    case ESPL_EVENT_RUN_END:
        espl_print_duration(event->value, duration);
        (void)espl_buf_printf(out, "run ended after %s: %s", duration, text);
        break;
    case ESPL_EVENT_STAGE_WAIT:
    case ESPL_EVENT_LOG:
    case ESPL_EVENT_METRIC:
    case ESPL_EVENT_LAYER_METRIC:
        (void)espl_buf_puts(out, text);
        break;
    }
}

bool espl_event_lines_format(struct espl_event_lines *lines, const struct espl_event *event,
                             struct espl_buf *out, enum espl_log_level *level)
{
    switch (event->type) {
    case ESPL_EVENT_LAYER_METRIC:
        return false;
    case ESPL_EVENT_METRIC:
        remember_metric(lines, event);
        return false;
    case ESPL_EVENT_PROGRESS:
        if (!progress_due(lines, event)) {
            return false;
        }
        break;
    case ESPL_EVENT_STAGE_START:
        begin_stage(lines, event);
        break;
    case ESPL_EVENT_RUN_START:
    case ESPL_EVENT_STAGE_CACHED:
    case ESPL_EVENT_STAGE_WAIT:
    case ESPL_EVENT_LOG:
    case ESPL_EVENT_STAGE_END:
    case ESPL_EVENT_STAGE_FAILED:
    case ESPL_EVENT_STAGE_SKIPPED:
    case ESPL_EVENT_EXPECT_FAILED:
    case ESPL_EVENT_RUN_END:
        break;
    }
    *level = level_of(event);
    line_start(out, lines, event, *level);
    add_text(lines, event, out);
    return true;
}

/* ---- files ---- */

static FILE *open_append(const char *run_dir, const char *name, struct espl_error *err)
{
    char path[ESPL_PATH_MAX];
    if (espl_fs_join(path, run_dir, name, err) != ESPL_OK) {
        return NULL;
    }
    const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    FILE *stream = fd >= 0 ? fdopen(fd, "a") : NULL;
    if (stream == NULL) {
        (void)espl_fail_errno(err, errno, "cannot open '%s'", path);
        if (fd >= 0) {
            (void)close(fd);
        }
        return NULL;
    }
    (void)setvbuf(stream, NULL, _IOLBF, BUFSIZ);
    return stream;
}

enum espl_status espl_event_files_open(struct espl_event_files *files, const char *run_dir,
                                       size_t stage_count, struct espl_error *err)
{
    memset(files, 0, sizeof *files);
    espl_event_lines_init(&files->lines, stage_count);
    files->events = open_append(run_dir, "events.jsonl", err);
    files->log = files->events != NULL ? open_append(run_dir, "log.txt", err) : NULL;
    if (files->log == NULL) {
        const enum espl_status status = err != NULL ? err->code : ESPL_E_IO;
        espl_event_files_close(files);
        return status;
    }
    return ESPL_OK;
}

void espl_event_files_close(struct espl_event_files *files)
{
    if (files->events != NULL) {
        (void)fclose(files->events); /* every line was flushed and checked */
    }
    if (files->log != NULL) {
        (void)fclose(files->log);
    }
    files->events = NULL;
    files->log = NULL;
}

static void write_line(struct espl_event_files *files, FILE *stream, const char *text)
{
    if (fputs(text, stream) == EOF || fputc('\n', stream) == EOF || fflush(stream) != 0) {
        if (files->sys_errno == 0) {
            files->sys_errno = errno != 0 ? errno : EIO;
        }
        clearerr(stream);
    }
}

void espl_event_files_write(struct espl_event_files *files, const struct espl_event *event)
{
    struct espl_buf line;
    enum espl_log_level level = ESPL_LOG_INFO;
    espl_buf_init(&line, LINE_LIMIT);
    if (espl_event_lines_format(&files->lines, event, &line, &level)) {
        write_line(files, files->log, espl_buf_text(&line));
    }
    espl_buf_free(&line);
    if (event->type == ESPL_EVENT_PROGRESS) {
        if (event->time - files->progress_time < 1.0 && event->done != event->total) {
            return;
        }
        files->progress_time = event->time;
    }
    json_t *object = espl_event_json(event);
    char *text = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    if (text != NULL) {
        write_line(files, files->events, text);
    } else if (files->sys_errno == 0) {
        files->sys_errno = ENOMEM;
    }
    free(text);
    json_decref(object);
}
