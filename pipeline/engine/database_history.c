/* How long would a stage take here, judged by its earlier runs on this host? */
#include "engine/database_internal.h"

#include "core/order.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HISTORY_RUNS = 20 };

struct history {
    double seconds[HISTORY_RUNS];
    double flop[HISTORY_RUNS];
    double units[HISTORY_RUNS];
    size_t count;
};

/* The newest whole runs of a stage: a resumed one took only a part of the time. */
static bool read_history(struct espl_database *db, const char *stage_name, struct history *out)
{
    static const char sql[] =
        "SELECT s.seconds, s.flop, s.units FROM stages s JOIN runs r ON r.run_id = s.run_id"
        " WHERE s.use = ?1 AND s.state = 'done' AND s.resumed_units = 0 AND r.host = ?2"
        " ORDER BY r.started_utc DESC, r.run_id DESC LIMIT ?3";
    char host[256] = "";
    sqlite3_stmt *statement = NULL;
    (void)gethostname(host, sizeof host - 1); /* then there is no history */
    out->count = 0;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_bind_text(statement, 1, stage_name, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_bind_text(statement, 2, host, -1, SQLITE_STATIC) == SQLITE_OK &&
        sqlite3_bind_int(statement, 3, HISTORY_RUNS) == SQLITE_OK) {
        while (out->count < HISTORY_RUNS && sqlite3_step(statement) == SQLITE_ROW) {
            out->seconds[out->count] = sqlite3_column_double(statement, 0);
            out->flop[out->count] = sqlite3_column_double(statement, 1);
            out->units[out->count] = sqlite3_column_double(statement, 2);
            out->count++;
        }
    }
    (void)sqlite3_finalize(statement); /* an estimate is only lost */
    return out->count > 0;
}

/* Median of seconds per `divisor` (NULL = seconds) over the rows that have one; < 0 = none. */
static double median_rate(const struct history *history, const double *divisor)
{
    double values[HISTORY_RUNS];
    size_t count = 0;
    for (size_t i = 0; i < history->count; i++) {
        if (divisor == NULL) {
            values[count++] = history->seconds[i];
        } else if (divisor[i] > 0.0) {
            values[count++] = history->seconds[i] / divisor[i];
        }
    }
    if (count == 0) {
        return -1.0;
    }
    qsort(values, count, sizeof values[0], espl_compare_doubles);
    return count % 2 == 1 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
}

double espl_database_history(void *db, const char *stage_name, const struct espl_estimate *est)
{
    struct history history;
    if (db == NULL || !read_history(db, stage_name, &history)) {
        return -1.0;
    }
    const double per_flop = median_rate(&history, history.flop);
    if (est != NULL && est->flop > 0.0 && per_flop >= 0.0) {
        return per_flop * est->flop;
    }
    const double per_unit = median_rate(&history, history.units);
    if (est != NULL && est->units > 0 && per_unit >= 0.0) {
        return per_unit * (double)est->units;
    }
    return median_rate(&history, NULL);
}
