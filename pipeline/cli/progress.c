#include "cli/progress.h"

#include "cli/print.h"
#include "core/units.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BAR_MOST = 28, BAR_LEAST = 8, FIELD_BYTES = 64 };

static const double redraw_seconds = 0.1;

enum espl_progress_style espl_progress_choose(FILE *stream)
{
    const int fd = fileno(stream);
    const char *terminal = getenv("TERM");
    const char *ci = getenv("CI");
    const bool dumb = terminal == NULL || strcmp(terminal, "dumb") == 0;
    const bool in_ci = ci != NULL && ci[0] != '\0' && strcmp(ci, "false") != 0;
    return isatty(fd) && !dumb && !in_ci && tcgetpgrp(fd) == getpgrp() ? ESPL_PROGRESS_BAR
                                                                       : ESPL_PROGRESS_LINES;
}

void espl_progress_init(struct espl_progress *progress, const struct espl_cli *cli,
                        const struct espl_plan *plan)
{
    memset(progress, 0, sizeof *progress);
    progress->cli = cli;
    espl_event_lines_init(&progress->lines, plan->stage_count);
    for (size_t i = 0; i < plan->stage_count; i++) {
        const size_t width = strlen(plan->stages[i].job_stage->id);
        progress->name_width = width > progress->name_width ? width : progress->name_width;
    }
}

/* ---- the bar ---- */

static void eta_field(double seconds, char out[FIELD_BYTES])
{
    if (seconds < 0.0) {
        out[0] = '\0';
        return;
    }
    const unsigned long long whole = (unsigned long long)(seconds + 0.5);
    if (whole >= 3600) {
        (void)snprintf(out, FIELD_BYTES, "  eta %llu:%02llu:%02llu", whole / 3600, whole / 60 % 60,
                       whole % 60);
    } else {
        (void)snprintf(out, FIELD_BYTES, "  eta %llu:%02llu", whole / 60, whole % 60);
    }
}

/* Units per second, minute or hour, whichever gives a number of at least one. */
static void rate_field(const struct espl_event_lines *lines, const struct espl_event *event,
                       char out[FIELD_BYTES])
{
    const double elapsed = event->time - lines->base_time;
    out[0] = '\0';
    if (!lines->has_base || event->done <= lines->base_done || elapsed <= 0.0) {
        return;
    }
    const double rate = (double)(event->done - lines->base_done) / elapsed;
    const char *unit = "s";
    double shown = rate;
    if (shown < 1.0) {
        unit = "min";
        shown = rate * 60.0;
    }
    if (shown < 1.0) {
        unit = "h";
        shown = rate * 3600.0;
    }
    (void)snprintf(out, FIELD_BYTES, "  %.*f %.24s/%s", shown < 100.0 ? 1 : 0, shown,
                   event->what != NULL ? event->what : "", unit);
}

void espl_progress_bar(const struct espl_event_lines *lines, const struct espl_event *event,
                       size_t name_width, size_t width, struct espl_buf *out)
{
    char fields[4][FIELD_BYTES];
    const char *what = event->what != NULL ? event->what : "";
    const double share = event->total > 0 ? (double)event->done / (double)event->total : 0.0;
    (void)snprintf(fields[0], FIELD_BYTES, "  %3.0f%%", 100.0 * share);
    (void)snprintf(fields[1], FIELD_BYTES, "  %.24s %llu/%llu", what,
                   (unsigned long long)event->done, (unsigned long long)event->total);
    eta_field(espl_event_lines_eta(lines, event), fields[2]);
    rate_field(lines, event, fields[3]);
    size_t used = 2 + name_width + 2 + 2; /* indent, name, gap, brackets */
    size_t shown = 0;
    while (shown < 4 && used + strlen(fields[shown]) + BAR_LEAST <= width) {
        used += strlen(fields[shown]);
        shown++;
    }
    size_t bar = width > used ? width - used : 0;
    bar = bar > BAR_MOST ? BAR_MOST : bar;
    const size_t full = (size_t)(share * (double)bar);
    (void)espl_buf_printf(out, "  %-*s  [", (int)name_width, event->stage_id);
    for (size_t i = 0; i < bar; i++) {
        (void)espl_buf_puts(out, i < full ? "#" : "-");
    }
    (void)espl_buf_puts(out, "]");
    for (size_t i = 0; i < shown; i++) {
        (void)espl_buf_puts(out, fields[i]);
    }
}

void espl_progress_clear(struct espl_progress *progress)
{
    if (progress->drawn) {
        (void)fputs("\r\033[K", progress->cli->err_stream);
        (void)fflush(progress->cli->err_stream); /* the terminal at worst misses a redraw */
        progress->drawn = false;
    }
}

/* In the background a bar would write over the shell's prompt. */
static bool in_foreground(FILE *stream)
{
    const int fd = fileno(stream);
    return !isatty(fd) || tcgetpgrp(fd) == getpgrp();
}

static void draw_bar(struct espl_progress *progress, const struct espl_event *event)
{
    struct espl_buf text;
    FILE *stream = progress->cli->err_stream;
    const bool last = event->done >= event->total;
    const double since = event->time - progress->drawn_time;
    if ((since >= 0.0 && since < redraw_seconds && !last) || !in_foreground(stream)) {
        return;
    }
    espl_buf_init(&text, sizeof progress->bar);
    /* The last column stays free: some terminals wrap when it is written. */
    espl_progress_bar(&progress->lines, event, progress->name_width, espl_print_width(stream) - 1,
                      &text);
    (void)fprintf(stream, "\r%s\033[K", espl_buf_text(&text));
    (void)fflush(stream); /* the terminal at worst misses a redraw */
    espl_buf_free(&text);
    progress->drawn = true;
    progress->drawn_time = event->time;
}

/* One line that stays: "  prune     done     4m12s   key 3fa1c9e2". */
static void print_state(struct espl_progress *progress, const struct espl_event *event,
                        enum espl_style style, const char *word, const char *detail)
{
    const bool colour = progress->cli->colour_err;
    espl_progress_clear(progress);
    (void)fprintf(progress->cli->err_stream, "  %-*s  %s%-7s%s%s%s\n", (int)progress->name_width,
                  event->stage_id, espl_style_on(colour, style), word,
                  espl_style_off(colour, style), detail[0] != '\0' ? "  " : "", detail);
}

static void show_end(struct espl_progress *progress, const struct espl_event *event)
{
    char duration[ESPL_UNIT_TEXT];
    char detail[128];
    espl_print_duration(event->value, duration);
    (void)snprintf(detail, sizeof detail, "%.8s  %s", event->key, duration);
    print_state(progress, event, ESPL_STYLE_GOOD, "done", detail);
}

static void show_cached(struct espl_progress *progress, const struct espl_event *event)
{
    char detail[128];
    const char *text = event->text != NULL ? event->text : "";
    (void)snprintf(detail, sizeof detail, "%.8s%s%.80s", event->key, text[0] != '\0' ? "  " : "",
                   text);
    print_state(progress, event, ESPL_STYLE_DIM, "cached", detail);
}

static void show_line(struct espl_progress *progress, enum espl_log_level level, const char *line)
{
    static const enum espl_style styles[] = {
        [ESPL_LOG_DEBUG] = ESPL_STYLE_DIM,
        [ESPL_LOG_INFO] = ESPL_STYLE_PLAIN,
        [ESPL_LOG_WARN] = ESPL_STYLE_WARN,
        [ESPL_LOG_ERROR] = ESPL_STYLE_BAD,
    };
    const bool colour = progress->cli->colour_err;
    espl_progress_clear(progress);
    (void)fprintf(progress->cli->err_stream, "%s%s%s\n", espl_style_on(colour, styles[level]), line,
                  espl_style_off(colour, styles[level]));
}

/* Which log lines go to the terminal? What ends a run is told by the verb itself. */
static bool line_wanted(const struct espl_progress *progress, const struct espl_event *event,
                        enum espl_log_level level)
{
    const struct espl_cli *cli = progress->cli;
    const bool bare = cli->quiet || cli->progress == ESPL_PROGRESS_NONE;
    if (event->type == ESPL_EVENT_STAGE_FAILED) {
        const enum espl_status code = event->error != NULL ? event->error->code : ESPL_OK;
        return !bare && code != ESPL_E_CANCELLED && code != ESPL_E_TERMINATED;
    }
    if (bare) {
        return level >= ESPL_LOG_WARN;
    }
    return level >= (cli->verbose ? ESPL_LOG_DEBUG : ESPL_LOG_INFO);
}

static void show_on_bar(struct espl_progress *progress, const struct espl_event *event,
                        enum espl_log_level level, const char *line)
{
    switch (event->type) {
    case ESPL_EVENT_PROGRESS:
        draw_bar(progress, event);
        break;
    case ESPL_EVENT_STAGE_CACHED:
        show_cached(progress, event);
        break;
    case ESPL_EVENT_STAGE_END:
        show_end(progress, event);
        break;
    case ESPL_EVENT_STAGE_WAIT:
        print_state(progress, event, ESPL_STYLE_NOTE, "waiting", event->text);
        break;
    case ESPL_EVENT_STAGE_SKIPPED:
        print_state(progress, event, ESPL_STYLE_WARN, "skipped", event->text);
        break;
    case ESPL_EVENT_STAGE_FAILED:
        print_state(progress, event, ESPL_STYLE_BAD,
                    line_wanted(progress, event, ESPL_LOG_ERROR) ? "failed" : "stopped", "");
        break;
    case ESPL_EVENT_RUN_END:
        espl_progress_clear(progress);
        break;
    case ESPL_EVENT_LOG:
    case ESPL_EVENT_EXPECT_FAILED:
        if (level >= ESPL_LOG_WARN || progress->cli->verbose) {
            show_line(progress, level, line);
        }
        break;
    case ESPL_EVENT_RUN_START:
    case ESPL_EVENT_STAGE_START:
    case ESPL_EVENT_METRIC:
    case ESPL_EVENT_LAYER_METRIC:
        break;
    }
}

void espl_progress_event(void *user, const struct espl_event *event)
{
    struct espl_progress *progress = user;
    struct espl_buf line;
    enum espl_log_level level = ESPL_LOG_INFO;
    espl_buf_init(&line, 16384);
    const bool has_line = espl_event_lines_format(&progress->lines, event, &line, &level);
    if (progress->cli->progress == ESPL_PROGRESS_BAR && !progress->cli->quiet) {
        show_on_bar(progress, event, level, espl_buf_text(&line));
    } else if (has_line && line_wanted(progress, event, level)) {
        show_line(progress, level, espl_buf_text(&line));
    }
    espl_buf_free(&line);
}
