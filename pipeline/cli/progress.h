/* How `run` shows its progress on stderr: a bar on a terminal, sparse log lines elsewhere. Clocks
 * are those of the events, so tests drive them. */
#ifndef ESPL_CLI_PROGRESS_H
#define ESPL_CLI_PROGRESS_H

#include "cli/command.h"
#include "core/buf.h"
#include "engine/events.h"
#include "engine/plan.h"

struct espl_progress {
    const struct espl_cli *cli;
    struct espl_event_lines lines;
    size_t name_width; /* of the longest stage id */
    double drawn_time;
    bool drawn; /* a bar is on the screen */
    char bar[512];
};

void espl_progress_init(struct espl_progress *progress, const struct espl_cli *cli,
                        const struct espl_plan *plan);
/** Fits espl_event_fn; user: struct espl_progress. */
void espl_progress_event(void *user, const struct espl_event *event);
/** Takes the bar off the screen. */
void espl_progress_clear(struct espl_progress *progress);

/** What to show when the user did not say: bar for a foreground process on a terminal that can
 *  rewrite a line and outside CI, lines elsewhere. */
enum espl_progress_style espl_progress_choose(FILE *stream);

/** "  prune     [#####-----]  52%  layer 13/25  eta 0:41  2.1 layer/min" of at most `width`
 *  columns; fields that do not fit are left out from the right. */
void espl_progress_bar(const struct espl_event_lines *lines, const struct espl_event *event,
                       size_t name_width, size_t width, struct espl_buf *out);

#endif
