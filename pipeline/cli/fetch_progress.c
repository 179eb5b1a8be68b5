#include "cli/fetch_progress.h"

#include "cli/print.h"
#include "core/log.h"
#include "core/units.h"

#include <stdio.h>

/* A line for logs at most so often, and not before the first so many seconds. */
static const double line_seconds = 10;
/* Weight of the newest second in the rate: steady enough to read, quick enough to be true. */
static const double rate_memory = 0.7;
enum { BAR_CELLS = 20 };

void espl_fetch_progress_init(struct espl_fetch_progress *progress, const struct espl_cli *cli,
                              const char *name)
{
    *progress = (struct espl_fetch_progress){.cli = cli, .name = name};
}

static void update_rate(struct espl_fetch_progress *progress, uint64_t done, double now)
{
    const double seconds = now - progress->rate_time;
    if (!progress->begun) {
        progress->begun = true;
        progress->start = now;
        progress->last_line = now;
        progress->first_done = done;
        progress->rate_time = now;
        progress->rate_done = done;
    } else if (seconds >= 1 && done >= progress->rate_done) {
        const double newest = (double)(done - progress->rate_done) / seconds;
        progress->rate =
            progress->rate > 0 ? rate_memory * progress->rate + (1 - rate_memory) * newest : newest;
        progress->rate_time = now;
        progress->rate_done = done;
    } else if (done < progress->rate_done) { /* a file began anew */
        progress->rate_time = now;
        progress->rate_done = done;
    }
}

void espl_fetch_progress_text(const struct espl_fetch_progress *progress, uint64_t done,
                              uint64_t total, unsigned waiting, bool bar, struct espl_buf *out)
{
    char size[ESPL_UNIT_TEXT];
    char whole[ESPL_UNIT_TEXT];
    espl_print_size(done, size);
    espl_print_size(total, whole);
    (void)espl_buf_printf(out, "%s", progress->name);
    if (total > 0) {
        const double share = done < total ? (double)done / (double)total : 1;
        const unsigned cells = (unsigned)(share * BAR_CELLS);
        if (bar) {
            (void)espl_buf_printf(out, "  [%.*s%.*s]", (int)cells, "####################",
                                  (int)(BAR_CELLS - cells), "--------------------");
        }
        (void)espl_buf_printf(out, "  %3.0f%%  %s of %s", 100 * share, size, whole);
    } else {
        (void)espl_buf_printf(out, "  %s", size);
    }
    if (progress->rate > 0) {
        espl_print_size((uint64_t)progress->rate, size);
        (void)espl_buf_printf(out, "  %s/s", size);
        if (total > done) {
            espl_print_duration((double)(total - done) / progress->rate, size);
            (void)espl_buf_printf(out, "  eta %s", size);
        }
    }
    if (waiting > 0) {
        (void)espl_buf_printf(out, "  (waits for another fetch: %u file%s)", waiting,
                              waiting == 1 ? "" : "s");
    }
}

void espl_fetch_progress_update(struct espl_fetch_progress *progress, uint64_t done, uint64_t total,
                                unsigned waiting, double now)
{
    const struct espl_cli *const cli = progress->cli;
    const bool bar = cli->progress == ESPL_PROGRESS_BAR;
    struct espl_buf text;
    update_rate(progress, done, now);
    if (cli->progress == ESPL_PROGRESS_NONE || cli->quiet ||
        (!bar && now - progress->last_line < line_seconds)) {
        return;
    }
    progress->last_line = now;
    espl_buf_init(&text, 1024);
    espl_fetch_progress_text(progress, done, total, waiting, bar, &text);
    const unsigned width = espl_print_width(cli->err_stream);
    if (bar) {
        (void)fprintf(cli->err_stream, "\r\033[K%.*s", (int)(width > 1 ? width - 1 : 1),
                      espl_buf_text(&text));
        (void)fflush(cli->err_stream); /* only talk */
        progress->drawn = true;
    } else {
        (void)fprintf(cli->err_stream, "%s\n", espl_buf_text(&text));
    }
    espl_buf_free(&text);
}

void espl_fetch_progress_clear(struct espl_fetch_progress *progress)
{
    if (progress->drawn) {
        (void)fprintf(progress->cli->err_stream, "\r\033[K");
        (void)fflush(progress->cli->err_stream); /* only talk */
        progress->drawn = false;
    }
}
