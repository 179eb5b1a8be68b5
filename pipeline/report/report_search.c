/* Searches: how the parent's score rose with the scores computed, and what no other configuration
 * beats in cost and score. Stages report both as layer series whose "layers" are generations and
 * points: "trajectory" (modules "evaluations", "score") and "front" (modules "cost", "score"). */
#include "report/report_page.h"

#include "report/html.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_POINTS = 100000 };

struct curve {
    const char *series, *x, *y; /* as stages report them */
    const char *x_label, *heading, *desc;
    bool line;
};

static const struct curve curves[] = {
    {"trajectory", "evaluations", "score", "scores computed", "Trajectory of the search",
     "Score of the best configuration so far over the number of scores computed, a point a "
     "generation.",
     true},
    {"front", "cost", "score", "predicted cost", "Pareto front of the search",
     "Configurations that no other scored one beats in predicted cost and score together, within "
     "the budget.",
     false},
};

bool espl_report_is_search_series(const char *series)
{
    return strcmp(series, curves[0].series) == 0 || strcmp(series, curves[1].series) == 0;
}

/* Points of a curve in a stage's layer metrics; values that are missing are NaN. */
static size_t count_points(const json_t *stage, const struct curve *curve)
{
    size_t count = 0;
    size_t index;
    const json_t *item;
    json_array_foreach(json_object_get(stage, "layer_metrics"), index, item)
    {
        const double point = espl_report_number(item, "layer");
        if (strcmp(espl_report_text(item, "series"), curve->series) == 0 && point >= 0.0 &&
            point < MOST_POINTS && (size_t)point + 1 > count) {
            count = (size_t)point + 1;
        }
    }
    return count;
}

static void read_points(const json_t *stage, const struct curve *curve, size_t count, double *x,
                        double *y)
{
    size_t index;
    const json_t *item;
    for (size_t i = 0; i < count; ++i) {
        x[i] = y[i] = (double)NAN;
    }
    json_array_foreach(json_object_get(stage, "layer_metrics"), index, item)
    {
        const double point = espl_report_number(item, "layer");
        const char *module = espl_report_text(item, "module");
        if (strcmp(espl_report_text(item, "series"), curve->series) != 0 || !(point >= 0.0) ||
            point >= (double)count) {
            continue;
        }
        if (strcmp(module, curve->x) == 0) {
            x[(size_t)point] = espl_report_number(item, "value");
        } else if (strcmp(module, curve->y) == 0) {
            y[(size_t)point] = espl_report_number(item, "value");
        }
    }
}

static void points_table(struct espl_buf *out, const struct curve *curve, size_t count,
                         const double *x, const double *y)
{
    espl_buf_printf(out,
                    "<details><summary>Data table</summary><div class=\"scroll\"><table "
                    "class=\"narrow\"><thead><tr><th scope=\"col\" class=\"number\">%s</th>"
                    "<th scope=\"col\" class=\"number\">%s</th></tr></thead><tbody>\n",
                    curve->x_label, curve->y);
    for (size_t i = 0; i < count; ++i) {
        espl_buf_printf(out,
                        "<tr><td class=\"number\">%.6g</td><td class=\"number\">%.6g</td></tr>\n",
                        x[i], y[i]);
    }
    espl_buf_puts(out, "</tbody></table></div></details>\n");
}

static enum espl_status draw(const struct espl_report_data *data, size_t run, const char *stage_id,
                             const struct curve *curve, struct espl_buf *out,
                             struct espl_error *err)
{
    const json_t *stage = espl_report_stage(&data->runs[run], stage_id);
    const size_t count = count_points(stage, curve);
    if (count == 0) {
        return ESPL_OK;
    }
    double *x = espl_arena_array(data->arena, count, sizeof *x);
    double *y = espl_arena_array(data->arena, count, sizeof *y);
    const char *id = espl_arena_printf(data->arena, "%s-%zu-%s", curve->series, run, stage_id);
    const char *title = espl_report_title(data, run, stage_id, curve->heading);
    if (x == NULL || y == NULL || id == NULL || title == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the drawings of the report");
    }
    read_points(stage, curve, count, x, y);
    const struct espl_svg_points points = {
        .name = stage_id, .count = count, .x = x, .y = y, .line = curve->line};
    const struct espl_svg_xy chart = {
        .head = {.id = id, .title = title, .desc = curve->desc},
        .x = {.label = curve->x_label},
        .y = {.label = curve->y},
        .series_count = 1,
        .series = &points,
    };
    espl_buf_puts(out, "<h3>");
    espl_html_text(out, title);
    espl_buf_puts(out, "</h3>\n<figure class=\"scroll\">\n");
    espl_svg_xy(out, &chart);
    espl_buf_puts(out, "</figure>\n");
    points_table(out, curve, count, x, y);
    return ESPL_OK;
}

enum espl_status espl_report_search(const struct espl_report_data *data, struct espl_buf *out,
                                    struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < data->stage_count; ++i) {
        for (size_t run = 0; run < data->run_count; ++run) {
            for (size_t c = 0; status == ESPL_OK && c < sizeof curves / sizeof curves[0]; ++c) {
                status = draw(data, run, data->stage_ids[i], &curves[c], out, err);
            }
        }
    }
    return status;
}
