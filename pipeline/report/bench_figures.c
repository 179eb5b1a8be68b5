#include "report/bench_figures.h"

#include "report/report_data.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char speedup_prefix[] = "speedup_over_";
static const char intensity_series[] = "roofline_intensity";
static const char rate_series[] = "roofline_rate";

enum { MOST_TOKENS = 1 << 20 };

bool espl_bench_is_series(const char *series)
{
    return strncmp(series, speedup_prefix, sizeof speedup_prefix - 1) == 0 ||
           strcmp(series, intensity_series) == 0 || strcmp(series, rate_series) == 0;
}

static enum espl_status out_of_memory(struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NOMEM, "out of memory for the drawings of a bench");
}

/* Tokens and value of a point; false when it has none that can be drawn. */
static bool read_point(const json_t *point, unsigned *tokens, double *value)
{
    const double layer = espl_report_number(point, "layer");
    *value = espl_report_number(point, "value");
    if (!(layer >= 1.0 && layer <= MOST_TOKENS) || !(*value > 0.0) || !isfinite(*value)) {
        return false;
    }
    *tokens = (unsigned)layer;
    return true;
}

/* ---- speed-ups ---- */

/* The baseline of a point's series, NULL for another series. */
static const char *baseline_of(const json_t *point)
{
    const char *series = espl_report_text(point, "series");
    const size_t len = sizeof speedup_prefix - 1;
    return strncmp(series, speedup_prefix, len) == 0 && series[len] != '\0' ? series + len : NULL;
}

static int compare_tokens(const void *a, const void *b)
{
    const unsigned left = *(const unsigned *)a;
    const unsigned right = *(const unsigned *)b;
    return (left > right) - (left < right);
}

static size_t find_tokens(const struct espl_bench_speedups *speedups, unsigned tokens)
{
    size_t at = 0;
    while (at < speedups->group_count && speedups->tokens[at] != tokens) {
        at++;
    }
    return at;
}

static size_t find_baseline(const struct espl_bench_speedups *speedups, const char *name)
{
    size_t at = 0;
    while (at < speedups->baseline_count && strcmp(speedups->baselines[at], name) != 0) {
        at++;
    }
    return at;
}

static bool collect_groups(const json_t *points, struct espl_arena *arena,
                           struct espl_bench_speedups *out)
{
    size_t index;
    const json_t *point;
    json_array_foreach(points, index, point)
    {
        const char *baseline = baseline_of(point);
        unsigned tokens = 0;
        double value = 0.0;
        if (baseline == NULL || !read_point(point, &tokens, &value)) {
            continue;
        }
        if (find_tokens(out, tokens) == out->group_count &&
            out->group_count < ESPL_BENCH_MAX_GROUPS) {
            out->tokens[out->group_count++] = tokens;
        }
        if (find_baseline(out, baseline) == out->baseline_count &&
            out->baseline_count < ESPL_BENCH_MAX_BASELINES) {
            out->baselines[out->baseline_count++] = baseline;
        }
    }
    qsort(out->tokens, out->group_count, sizeof out->tokens[0], compare_tokens);
    for (size_t i = 0; i < out->group_count; ++i) {
        out->groups[i] = espl_arena_printf(arena, "%u", out->tokens[i]);
        if (out->groups[i] == NULL) {
            return false;
        }
    }
    return true;
}

/* One box; values: room for all points. */
static void fill_box(const json_t *points, struct espl_bench_speedups *out, size_t group,
                     size_t baseline, double *values)
{
    const size_t at = group * out->baseline_count + baseline;
    size_t count = 0;
    double sum = 0.0;
    size_t index;
    const json_t *point;
    json_array_foreach(points, index, point)
    {
        const char *name = baseline_of(point);
        unsigned tokens = 0;
        double value = 0.0;
        if (name != NULL && strcmp(name, out->baselines[baseline]) == 0 &&
            read_point(point, &tokens, &value) && tokens == out->tokens[group]) {
            values[count++] = value;
            sum += log(value);
        }
    }
    out->boxes[at] = espl_svg_box_of(values, count);
    out->means[at] = count > 0 ? exp(sum / (double)count) : (double)NAN;
}

enum espl_status espl_bench_speedups_read(const json_t *points, struct espl_arena *arena,
                                          struct espl_bench_speedups *out, struct espl_error *err)
{
    memset(out, 0, sizeof *out);
    double *values = espl_arena_array(arena, json_array_size(points) + 1, sizeof *values);
    if (values == NULL || !collect_groups(points, arena, out)) {
        return out_of_memory(err);
    }
    for (size_t group = 0; group < out->group_count; ++group) {
        for (size_t baseline = 0; baseline < out->baseline_count; ++baseline) {
            fill_box(points, out, group, baseline, values);
        }
    }
    return ESPL_OK;
}

void espl_bench_speedups_draw(const struct espl_bench_speedups *speedups, const char *id,
                              const char *title, bool standalone, struct espl_buf *out)
{
    const struct espl_svg_boxes chart = {
        .head = {.id = id,
                 .title = title,
                 .desc =
                     "A group a number of tokens, a box a baseline: how many times faster the "
                     "automatic choice is, over all products. Boxes reach from quartile to "
                     "quartile with a line at the median, whiskers to the ends; the dashed line "
                     "is equally fast. The data table follows."},
        .x_label = "tokens",
        .y_label = "speed-up of the automatic choice",
        .group_count = speedups->group_count,
        .series_count = speedups->baseline_count,
        .groups = speedups->groups,
        .series = speedups->baselines,
        .boxes = speedups->boxes,
        .reference = 1.0,
        .standalone = standalone,
    };
    espl_svg_boxes(out, &chart);
}

/* ---- roofline ---- */

/* The rate of a point with an intensity: the same case, the same tokens. NaN when there is none. */
static double rate_of(const json_t *points, size_t from, const char *what, unsigned tokens)
{
    /* Stages report the two one after the other. */
    for (size_t i = from; i < json_array_size(points); ++i) {
        const json_t *point = json_array_get(points, i);
        unsigned own = 0;
        double value = 0.0;
        if (strcmp(espl_report_text(point, "series"), rate_series) == 0 &&
            strcmp(espl_report_text(point, "module"), what) == 0 &&
            read_point(point, &own, &value) && own == tokens) {
            return value;
        }
    }
    return (double)NAN;
}

enum espl_status espl_bench_roofline_read(const json_t *points, struct espl_arena *arena,
                                          struct espl_bench_roofline *out, struct espl_error *err)
{
    size_t index;
    const json_t *point;
    out->count = 0;
    out->points = espl_arena_array(arena, json_array_size(points) + 1, sizeof *out->points);
    if (out->points == NULL) {
        return out_of_memory(err);
    }
    json_array_foreach(points, index, point)
    {
        struct espl_bench_point *next = &out->points[out->count];
        const char *what = espl_report_text(point, "module");
        if (strcmp(espl_report_text(point, "series"), intensity_series) != 0 ||
            !read_point(point, &next->tokens, &next->intensity)) {
            continue;
        }
        next->what = what;
        next->series = espl_arena_printf(arena, "%.*s", (int)strcspn(what, " "), what);
        next->rate = rate_of(points, index, what, next->tokens);
        if (next->series == NULL) {
            return out_of_memory(err);
        }
        out->count += isfinite(next->rate) ? 1 : 0;
    }
    return ESPL_OK;
}

/* Points of one series; all must fit. */
static bool fill_series(const struct espl_bench_roofline *roofline, const char *name,
                        struct espl_arena *arena, struct espl_svg_points *out)
{
    const double tera = 1e-12;
    double *x = espl_arena_array(arena, roofline->count, sizeof *x);
    double *y = espl_arena_array(arena, roofline->count, sizeof *y);
    const char **tips = espl_arena_array(arena, roofline->count, sizeof *tips);
    if (x == NULL || y == NULL || tips == NULL) {
        return false;
    }
    *out = (struct espl_svg_points){.name = name, .x = x, .y = y, .tips = tips};
    for (size_t i = 0; i < roofline->count; ++i) {
        const struct espl_bench_point *point = &roofline->points[i];
        if (strcmp(point->series, name) != 0) {
            continue;
        }
        x[out->count] = point->intensity;
        y[out->count] = point->rate * tera;
        tips[out->count] = espl_arena_printf(arena, "%s, N = %u: %.3g TOPS", point->what,
                                             point->tokens, point->rate * tera);
        if (tips[out->count++] == NULL) {
            return false;
        }
    }
    return true;
}

/* The line that the memory allows, over the range of the points. */
static bool fill_bound(const struct espl_bench_roofline *roofline, double bandwidth,
                       struct espl_arena *arena, struct espl_svg_points *out)
{
    const double tera = 1e-12;
    double *x = espl_arena_array(arena, 2, sizeof *x);
    double *y = espl_arena_array(arena, 2, sizeof *y);
    if (x == NULL || y == NULL) {
        return false;
    }
    x[0] = (double)INFINITY;
    x[1] = 0.0;
    for (size_t i = 0; i < roofline->count; ++i) {
        x[0] = fmin(x[0], roofline->points[i].intensity);
        x[1] = fmax(x[1], roofline->points[i].intensity);
    }
    y[0] = x[0] * bandwidth * tera;
    y[1] = x[1] * bandwidth * tera;
    *out = (struct espl_svg_points){
        .name = "measured bandwidth", .count = 2, .x = x, .y = y, .bound = true};
    return true;
}

enum espl_status espl_bench_roofline_draw(const struct espl_bench_roofline *roofline,
                                          double bandwidth, const char *id, const char *title,
                                          bool standalone, struct espl_arena *arena,
                                          struct espl_buf *out, struct espl_error *err)
{
    struct espl_svg_points series[ESPL_SVG_MAX_XY_SERIES];
    size_t count = 0;
    bool complete = fill_bound(roofline, bandwidth, arena, &series[count++]);
    for (size_t i = 0; complete && i < roofline->count; ++i) {
        bool known = false;
        for (size_t s = 1; s < count; ++s) {
            known = known || strcmp(series[s].name, roofline->points[i].series) == 0;
        }
        if (!known && count < ESPL_SVG_MAX_XY_SERIES) {
            complete = fill_series(roofline, roofline->points[i].series, arena, &series[count++]);
        }
    }
    if (!complete) {
        return out_of_memory(err);
    }
    const struct espl_svg_xy chart = {
        .head = {.id = id,
                 .title = title,
                 .desc = "A point a product that was measured: operations a byte of weights, "
                         "activations and results against operations a second, both scales "
                         "logarithmic, zeros counted as operations. The dashed line is what the "
                         "measured bandwidth allows. The data table follows."},
        .x = {.label = "compute intensity (operations a byte)", .logarithmic = true},
        .y = {.label = "operations (TOPS)", .logarithmic = true},
        .series_count = count,
        .series = series,
        .standalone = standalone,
    };
    espl_svg_xy(out, &chart);
    return ESPL_OK;
}
