/* What `fetch` shows while it goes on: a bar on a terminal, sparse lines elsewhere. */
#ifndef ESPL_CLI_FETCH_PROGRESS_H
#define ESPL_CLI_FETCH_PROGRESS_H

#include "cli/command.h"
#include "core/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct espl_fetch_progress {
    const struct espl_cli *cli;
    const char *name; /* of the entry */
    double start;
    double last_line;
    uint64_t first_done; /* bytes that were there at the start: they say nothing about the rate */
    double rate;         /* bytes a second, smoothed; 0 = not known yet */
    double rate_time;
    uint64_t rate_done;
    bool begun;
    bool drawn; /* a bar is on the screen */
};

void espl_fetch_progress_init(struct espl_fetch_progress *progress, const struct espl_cli *cli,
                              const char *name);
/** done of total bytes (0 = not known), at `now` of the monotonic clock; waiting: files that
 * another fetch works on. */
void espl_fetch_progress_update(struct espl_fetch_progress *progress, uint64_t done, uint64_t total,
                                unsigned waiting, double now);
/** Takes the bar off the screen. */
void espl_fetch_progress_clear(struct espl_fetch_progress *progress);
/** "wikitext2  [####----]  52%  4.9 GiB of 9.3 GiB  112.0 MiB/s  eta 41 s"; the bar only when bar
 * is set. */
void espl_fetch_progress_text(const struct espl_fetch_progress *progress, uint64_t done,
                              uint64_t total, unsigned waiting, bool bar, struct espl_buf *out);

#endif
