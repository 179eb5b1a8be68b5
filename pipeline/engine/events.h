/* Events of a run in two forms: JSON lines for programs (events.jsonl) and log lines for people
 * (log.txt, and the terminal when there is no progress bar). */
#ifndef ESPL_ENGINE_EVENTS_H
#define ESPL_ENGINE_EVENTS_H

#include "core/buf.h"
#include "engine/exec.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/** One event as an object: "type", "time", and the fields that belong to the type. New reference;
 *  NULL when out of memory. */
json_t *espl_event_json(const struct espl_event *event);

/** Turns events into log lines; zero-initialise with espl_event_lines_init(). A stage gives a line
 *  when it ends, and progress lines in between: one per 10 percent or 60 s, whichever is later. */
struct espl_event_lines {
    size_t stage_count;
    double stage_started; /* time of the current stage's start */
    double line_time;     /* time of its last line */
    unsigned line_tenth;  /* tenths done at its last line */
    bool has_base;        /* first progress was seen: rates count from there */
    double base_time;
    uint64_t base_done;
    char metrics[160]; /* ", perplexity 12.31": figures of the stage in its order, as many as fit */
    bool metrics_full;
};

void espl_event_lines_init(struct espl_event_lines *lines, size_t stage_count);
/** Adds the line for an event to `out`, without newline: "12:04:11 info  [6/10] prune: done in
 * ...". Times are UTC. Returns false when the event gives no line. *level: of the line. */
bool espl_event_lines_format(struct espl_event_lines *lines, const struct espl_event *event,
                             struct espl_buf *out, enum espl_log_level *level);

/** Seconds until `total` at the rate since the first progress event seen; < 0 = unknown. */
double espl_event_lines_eta(const struct espl_event_lines *lines, const struct espl_event *event);

/** events.jsonl and log.txt of a run, written line by line so that the last lines survive a kill.
 */
struct espl_event_files {
    FILE *events;
    FILE *log;
    struct espl_event_lines lines;
    double progress_time; /* of the last progress event written: one a second is enough */
    int sys_errno;        /* of the first write that failed; 0 = none */
};

/** Opens both files in run_dir for appending. On failure nothing stays open. */
enum espl_status espl_event_files_open(struct espl_event_files *files, const char *run_dir,
                                       size_t stage_count, struct espl_error *err);
void espl_event_files_close(struct espl_event_files *files);
/** Appends to both. A failing write is remembered in sys_errno. */
void espl_event_files_write(struct espl_event_files *files, const struct espl_event *event);

#endif
