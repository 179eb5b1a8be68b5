#include "core/log.h"

#include "core/tame.h"

#include <stdio.h>
#include <time.h>

enum { LOG_LINE_BYTES = 2048 };

void espl_log(const struct espl_log *log, enum espl_log_level level, const char *fmt, ...)
{
    if (log == NULL || log->write == NULL || level < log->lowest) {
        return;
    }
    char line[LOG_LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    const int len = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (len < 0) {
        return;
    }
    if ((size_t)len >= sizeof line) {
        (void)snprintf(line + sizeof line - 4, 4, "...");
    }
    /* A sink writes one line an event: texts from files must not be able to forge another. */
    for (char *c = line; *c != '\0'; c++) {
        if (*c == '\n' || *c == '\r') {
            *c = ' ';
        }
    }
    espl_text_tame(line);
    log->write(log->user, level, line);
}

double espl_clock_monotonic(void)
{
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int64_t espl_clock_utc(void)
{
    return (int64_t)time(NULL);
}
