/* Quality against size: the models of a run that were evaluated and whose bits are known. */
#include "report/report_page.h"

#include "report/figure_text.h"
#include "report/html.h"
#include "report/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_POINTS = 3, MOST_HOPS = 64 };

/* A broken model would press all others onto the axis: those whose perplexity is more than this
 * many times the lowest stand in the table alone. The scale of the rest begins a little below. */
static const double drawn_span = 4.0;
static const double air = 0.96;

struct point {
    const char *model;    /* stage that says the bits */
    const char *evaluate; /* stage that says the perplexity */
    const char *run;      /* name of its run */
    const char *series;   /* model with every number in it written as '#' */
    double bits;
    double perplexity;
    bool best; /* no other takes fewer bits and is better */
};

struct tradeoff {
    struct point *points; /* by bits, then perplexity */
    size_t count;
};

/* The stage that a "model" input comes from; NULL when it comes from a file or there is none. */
static const json_t *model_source(const struct espl_report_run *run, const json_t *stage)
{
    size_t index;
    const json_t *input;
    json_array_foreach(json_object_get(stage, "inputs"), index, input)
    {
        if (strcmp(espl_report_text(input, "port"), "model") == 0) {
            return espl_report_stage(run, espl_report_text(input, "stage"));
        }
    }
    return NULL;
}

/* The nearest stage up the chain of models that reported its bits. */
static const json_t *sized_model(const struct espl_report_run *run, const json_t *stage)
{
    const json_t *source = model_source(run, stage);
    for (int hops = 0; source != NULL && hops < MOST_HOPS; ++hops) {
        const json_t *metrics = json_object_get(source, "metrics");
        if (isfinite(espl_report_number(metrics, "bits_per_weight"))) {
            return source;
        }
        source = model_source(run, source);
    }
    return NULL;
}

/* "wanda-gptq-50" -> "wanda-gptq-#": models that differ in numbers alone are one series. */
static const char *series_of(struct espl_arena *arena, const char *prefix, const char *id)
{
    char *name = espl_arena_printf(arena, "%s%s", prefix, id);
    size_t len = 0;
    for (const char *c = name; c != NULL && *c != '\0'; ++c) {
        const bool digit = *c >= '0' && *c <= '9';
        if (!digit || len == 0 || name[len - 1] != '#') {
            name[len++] = (char)(digit ? '#' : *c);
        }
    }
    if (name != NULL) {
        name[len] = '\0';
    }
    return name;
}

static bool add_point(const struct espl_report_data *data, const struct espl_report_run *run,
                      const json_t *stage, struct tradeoff *tradeoff)
{
    const double perplexity = espl_report_number(json_object_get(stage, "metrics"), "perplexity");
    const json_t *model = isfinite(perplexity) ? sized_model(run, stage) : NULL;
    if (model == NULL) {
        return true;
    }
    const char *id = espl_report_text(model, "id");
    const char *prefix =
        data->run_count > 1 ? espl_arena_printf(data->arena, "%s ", run->name) : "";
    struct point *point = &tradeoff->points[tradeoff->count++];
    *point = (struct point){
        .model = id,
        .evaluate = espl_report_text(stage, "id"),
        .run = run->name,
        .series = prefix != NULL ? series_of(data->arena, prefix, id) : NULL,
        .bits = espl_report_number(json_object_get(model, "metrics"), "bits_per_weight"),
        .perplexity = perplexity,
    };
    return point->series != NULL;
}

static int compare_points(const void *a, const void *b)
{
    const struct point *left = a;
    const struct point *right = b;
    if (left->bits != right->bits) {
        return left->bits < right->bits ? -1 : 1;
    }
    if (left->perplexity != right->perplexity) {
        return left->perplexity < right->perplexity ? -1 : 1;
    }
    const int order = strcmp(left->evaluate, right->evaluate);
    return order != 0 ? order : strcmp(left->run, right->run);
}

static enum espl_status collect(const struct espl_report_data *data, struct tradeoff *tradeoff,
                                struct espl_error *err)
{
    double best = (double)INFINITY;
    const size_t most = data->stage_count * data->run_count;
    tradeoff->count = 0;
    tradeoff->points = espl_arena_array(data->arena, most, sizeof *tradeoff->points);
    bool complete = tradeoff->points != NULL;
    for (size_t i = 0; complete && i < most; ++i) {
        const struct espl_report_run *run = &data->runs[i % data->run_count];
        const json_t *stage = espl_report_stage(run, data->stage_ids[i / data->run_count]);
        complete = add_point(data, run, stage, tradeoff);
    }
    if (!complete) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for quality against size");
    }
    qsort(tradeoff->points, tradeoff->count, sizeof *tradeoff->points, compare_points);
    for (size_t i = 0; i < tradeoff->count; ++i) {
        tradeoff->points[i].best = tradeoff->points[i].perplexity < best;
        best = tradeoff->points[i].best ? tradeoff->points[i].perplexity : best;
    }
    return ESPL_OK;
}

/* ---- drawing ---- */

/* Points of one series out of all, in order of bits; also the best ones when series is NULL. */
static bool fill_series(const struct espl_report_data *data, const struct tradeoff *tradeoff,
                        const char *series, struct espl_svg_points *out)
{
    double *x = espl_arena_array(data->arena, tradeoff->count, sizeof *x);
    double *y = espl_arena_array(data->arena, tradeoff->count, sizeof *y);
    const char **tips = espl_arena_array(data->arena, tradeoff->count, sizeof *tips);
    if (x == NULL || y == NULL || tips == NULL) {
        return false;
    }
    *out = (struct espl_svg_points){.name = series != NULL ? series : "best for its bits",
                                    .x = x,
                                    .y = y,
                                    .tips = tips,
                                    .line = series != NULL,
                                    .bound = series == NULL};
    for (size_t i = 0; i < tradeoff->count; ++i) {
        const struct point *point = &tradeoff->points[i];
        if (series == NULL ? !point->best : strcmp(point->series, series) != 0) {
            continue;
        }
        x[out->count] = point->bits;
        y[out->count] = point->perplexity;
        tips[out->count] = espl_arena_printf(data->arena, "%s: %.3f bits, perplexity %.4g",
                                             point->model, point->bits, point->perplexity);
        if (tips[out->count++] == NULL) {
            return false;
        }
    }
    return true;
}

/* The best line first, below the series in the order in which the stages stand. */
static bool make_series(const struct espl_report_data *data, const struct tradeoff *tradeoff,
                        struct espl_svg_points *series, size_t *count)
{
    *count = 0;
    if (!fill_series(data, tradeoff, NULL, &series[(*count)++])) {
        return false;
    }
    for (size_t stage = 0; stage < data->stage_count; ++stage) {
        for (size_t i = 0; i < tradeoff->count; ++i) {
            const char *name = tradeoff->points[i].series;
            bool known = strcmp(tradeoff->points[i].model, data->stage_ids[stage]) != 0;
            for (size_t s = 1; s < *count; ++s) {
                known = known || strcmp(series[s].name, name) == 0;
            }
            if (!known && *count < ESPL_SVG_MAX_XY_SERIES &&
                !fill_series(data, tradeoff, name, &series[(*count)++])) {
                return false;
            }
        }
    }
    return true;
}

static void draw(const struct tradeoff *tradeoff, const struct espl_svg_points *series,
                 size_t count, struct espl_buf *out)
{
    double low = (double)INFINITY;
    size_t above = 0;
    for (size_t i = 0; i < tradeoff->count; ++i) {
        low = fmin(low, tradeoff->points[i].perplexity);
    }
    for (size_t i = 0; i < tradeoff->count; ++i) {
        above += tradeoff->points[i].perplexity > drawn_span * low ? 1 : 0;
    }
    struct espl_svg_xy chart = {
        .head = {.id = "tradeoff",
                 .title = "Perplexity over bits a weight",
                 .desc =
                     "One point a model that was evaluated, lines join models whose names "
                     "differ in numbers alone. Lower and further left is better; the dashed "
                     "line joins those that no other beats. The table below holds the figures."},
        .x = {.label = "bits a weight, masks and scales included"},
        .y = {.label = "perplexity", .logarithmic = true},
        .series_count = count,
        .series = series,
    };
    if (above > 0) {
        chart.y.low = air * low;
        chart.y.high = drawn_span * low;
    }
    espl_buf_puts(out, "<figure class=\"scroll\">\n");
    espl_svg_xy(out, &chart);
    if (above > 0) {
        espl_buf_puts(out, "<figcaption>");
        espl_html_textf(
            out, "%zu of %zu models, whose perplexity is above %.3g, are in the table alone.",
            above, tradeoff->count, drawn_span * low);
        espl_buf_puts(out, "</figcaption>");
    }
    espl_buf_puts(out, "</figure>\n");
}

static void table(const struct espl_report_data *data, const struct tradeoff *tradeoff,
                  struct espl_buf *out)
{
    espl_buf_printf(out,
                    "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">model</th>%s"
                    "<th scope=\"col\">evaluated by</th>"
                    "<th scope=\"col\" class=\"number\">bits a weight</th>"
                    "<th scope=\"col\" class=\"number\">perplexity</th>"
                    "<th scope=\"col\">best for its bits</th></tr></thead><tbody>\n",
                    data->run_count > 1 ? "<th scope=\"col\">run</th>" : "");
    for (size_t i = 0; i < tradeoff->count; ++i) {
        const struct point *point = &tradeoff->points[i];
        char text[ESPL_FIGURE_TEXT];
        espl_buf_puts(out, "<tr>");
        espl_html_head(out, "row", NULL, point->model);
        if (data->run_count > 1) {
            espl_html_cell(out, NULL, point->run);
        }
        espl_html_cell(out, NULL, point->evaluate);
        espl_figure_value("bits_per_weight", point->bits, text);
        espl_html_cell(out, "number", text);
        espl_figure_value("perplexity", point->perplexity, text);
        espl_html_cell(out, "number", text);
        espl_html_cell(out, NULL, point->best ? "\xE2\x9C\x93 yes" : "");
        espl_buf_puts(out, "</tr>\n");
    }
    espl_buf_puts(out, "</tbody></table></div>\n");
}

enum espl_status espl_report_tradeoff(const struct espl_report_data *data, struct espl_buf *out,
                                      struct espl_error *err)
{
    struct tradeoff tradeoff;
    struct espl_svg_points series[ESPL_SVG_MAX_XY_SERIES];
    size_t count = 0;
    const enum espl_status status = collect(data, &tradeoff, err);
    if (status != ESPL_OK || tradeoff.count < LEAST_POINTS) {
        return status;
    }
    if (!make_series(data, &tradeoff, series, &count)) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for quality against size");
    }
    espl_buf_puts(out, "<h2 id=\"tradeoff\">Quality against size</h2>\n");
    draw(&tradeoff, series, count, out);
    table(data, &tradeoff, out);
    return ESPL_OK;
}
