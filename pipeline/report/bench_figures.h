/* The drawings of a kernel bench, from points as stages report them as layer metrics: box plots of
 * speed-ups by number of tokens [UnionSparse, Fig. 10 and 11] and a roofline with what was measured
 * [Fig. 5]. Used by the report page and by `espalier bench spmm --svg`. */
#ifndef ESPL_REPORT_BENCH_FIGURES_H
#define ESPL_REPORT_BENCH_FIGURES_H

#include "core/buf.h"
#include "core/error.h"
#include "report/svg.h"

#include <jansson.h>

enum { ESPL_BENCH_MAX_GROUPS = 64, ESPL_BENCH_MAX_BASELINES = 8 };

/** Is this layer series one of those that are drawn here? "speedup_over_...", "roofline_intensity"
 *  or "roofline_rate". */
bool espl_bench_is_series(const char *series);

/** Speed-ups over each baseline, by number of tokens. Texts lie in the arena. */
struct espl_bench_speedups {
    size_t group_count;
    size_t baseline_count;
    unsigned tokens[ESPL_BENCH_MAX_GROUPS]; /* ascending */
    const char *groups[ESPL_BENCH_MAX_GROUPS];
    const char *baselines[ESPL_BENCH_MAX_BASELINES];
    struct espl_svg_box boxes[ESPL_BENCH_MAX_GROUPS * ESPL_BENCH_MAX_BASELINES];
    double means[ESPL_BENCH_MAX_GROUPS * ESPL_BENCH_MAX_BASELINES]; /* geometric */
};
/** points: [{"series", "layer" (tokens), "module" (the case), "value"}]. group_count 0: there are
 *  none. What does not fit is left out. Errors: NOMEM. */
enum espl_status espl_bench_speedups_read(const json_t *points, struct espl_arena *arena,
                                          struct espl_bench_speedups *out, struct espl_error *err);
void espl_bench_speedups_draw(const struct espl_bench_speedups *speedups, const char *id,
                              const char *title, bool standalone, struct espl_buf *out);

/** One measured product. */
struct espl_bench_point {
    const char *what;   /* "1x1 4096x4096 50 %" */
    const char *series; /* its first word: form or library */
    unsigned tokens;
    double intensity; /* operations a byte */
    double rate;      /* operations a second */
};
struct espl_bench_roofline {
    struct espl_bench_point *points;
    size_t count;
};
/** Likewise; the arrays lie in the arena. Errors: NOMEM. */
enum espl_status espl_bench_roofline_read(const json_t *points, struct espl_arena *arena,
                                          struct espl_bench_roofline *out, struct espl_error *err);
/** bandwidth: bytes a second, for the bound. Errors: NOMEM. */
enum espl_status espl_bench_roofline_draw(const struct espl_bench_roofline *roofline,
                                          double bandwidth, const char *id, const char *title,
                                          bool standalone, struct espl_arena *arena,
                                          struct espl_buf *out, struct espl_error *err);

#endif
