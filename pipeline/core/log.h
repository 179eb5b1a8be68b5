/* Events and log lines. One call, many sinks: terminal, log.txt, events.jsonl. Library code never
 * prints; a stage reports through its context, which ends here. */
#ifndef ESPL_CORE_LOG_H
#define ESPL_CORE_LOG_H

#include "core/error.h"

#include <stdint.h>

enum espl_log_level { ESPL_LOG_DEBUG, ESPL_LOG_INFO, ESPL_LOG_WARN, ESPL_LOG_ERROR };

/** Receives one line without newline and other control characters. */
typedef void (*espl_log_fn)(void *user, enum espl_log_level level, const char *line);

struct espl_log {
    espl_log_fn write;
    void *user;
    enum espl_log_level lowest; /* lines below are dropped */
};

/** log: may be NULL (then nothing happens). */
void espl_log(const struct espl_log *log, enum espl_log_level level, const char *fmt, ...)
    ESPL_PRINTF(3, 4);

/** Seconds of a clock that never jumps. */
double espl_clock_monotonic(void);
/** Seconds since 1970. */
int64_t espl_clock_utc(void);

#endif
