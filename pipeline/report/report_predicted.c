/* Predicted against measured times of whole passes [realizable N:M, Fig. 5]. */
#include "report/report_page.h"

#include "report/html.h"
#include "report/svg.h"

#include <math.h>
#include <string.h>

static const char predicted_series[] = "pass_predicted_ms";
static const char measured_series[] = "pass_measured_ms";

enum { MAX_PASSES = 4096 };

struct pairs {
    size_t count;
    double *predicted, *measured; /* milliseconds */
    const char **names;
};

bool espl_report_is_predicted_series(const char *series)
{
    return strcmp(series, predicted_series) == 0 || strcmp(series, measured_series) == 0;
}

/* Is this the time of a pass? An axis would not show what is far outside. */
static bool is_time(double milliseconds)
{
    return milliseconds >= 1e-9 && milliseconds <= 1e12;
}

/* The measured time of the same configuration; NaN when there is none. */
static double measured_of(const json_t *points, const json_t *predicted)
{
    size_t index;
    const json_t *point;
    json_array_foreach(points, index, point)
    {
        if (strcmp(espl_report_text(point, "series"), measured_series) == 0 &&
            espl_report_number(point, "layer") == espl_report_number(predicted, "layer") &&
            strcmp(espl_report_text(point, "module"), espl_report_text(predicted, "module")) == 0) {
            return espl_report_number(point, "value");
        }
    }
    return NAN;
}

static const char *name_of(struct espl_arena *arena, const json_t *point)
{
    const char *module = espl_report_text(point, "module");
    return espl_arena_printf(arena, "%.0f%s%s", espl_report_number(point, "layer"),
                             module[0] != '\0' ? " " : "", module);
}

static enum espl_status collect(const json_t *points, struct espl_arena *arena, struct pairs *pairs,
                                struct espl_error *err)
{
    size_t index;
    const json_t *point;
    size_t most = json_array_size(points);
    most = most < MAX_PASSES ? most : MAX_PASSES;
    pairs->predicted = espl_arena_array(arena, most + 1, sizeof *pairs->predicted);
    pairs->measured = espl_arena_array(arena, most + 1, sizeof *pairs->measured);
    pairs->names = espl_arena_array(arena, most + 1, sizeof *pairs->names);
    bool made = pairs->predicted != NULL && pairs->measured != NULL && pairs->names != NULL;
    json_array_foreach(points, index, point)
    {
        if (!made || pairs->count == most) {
            break;
        }
        if (strcmp(espl_report_text(point, "series"), predicted_series) != 0) {
            continue;
        }
        const double predicted = espl_report_number(point, "value");
        const double measured = measured_of(points, point);
        if (is_time(predicted) && is_time(measured)) {
            pairs->predicted[pairs->count] = predicted;
            pairs->measured[pairs->count] = measured;
            pairs->names[pairs->count] = name_of(arena, point);
            made = pairs->names[pairs->count++] != NULL;
        }
    }
    return made ? ESPL_OK
                : espl_fail(err, ESPL_E_NOMEM, "out of memory for the predictions of the report");
}

static double error_of(const struct pairs *pairs, size_t i)
{
    return pairs->predicted[i] / pairs->measured[i] - 1.0;
}

static void summary(const struct pairs *pairs, struct espl_buf *out)
{
    double sum = 0.0;
    double worst = 0.0;
    for (size_t i = 0; i < pairs->count; i++) {
        sum += fabs(error_of(pairs, i));
        worst = fmax(worst, fabs(error_of(pairs, i)));
    }
    espl_buf_printf(out,
                    "<p>%zu configurations that the predictor was not fitted to; it misses them by "
                    "%.2f %% on average and by %.2f %% at most.</p>\n",
                    pairs->count, 100.0 * sum / (double)pairs->count, 100.0 * worst);
}

static void draw(const struct pairs *pairs, const char *id, const char *title, struct espl_buf *out)
{
    double low = INFINITY;
    double high = 0.0;
    for (size_t i = 0; i < pairs->count; i++) {
        low = fmin(low, fmin(pairs->predicted[i], pairs->measured[i]));
        high = fmax(high, fmax(pairs->predicted[i], pairs->measured[i]));
    }
    const double ends[] = {low, high};
    const struct espl_svg_points series[] = {
        {.name = "equal", .count = 2, .x = ends, .y = ends, .line = true, .bound = true},
        {.name = "configurations",
         .count = pairs->count,
         .x = pairs->measured,
         .y = pairs->predicted,
         .tips = pairs->names}};
    const struct espl_svg_xy chart = {
        .head = {id, title, "Predicted over measured time, a point a configuration."},
        .x = {.label = "measured, ms"},
        .y = {.label = "predicted, ms"},
        .series_count = 2,
        .series = series};
    espl_buf_puts(out, "<figure class=\"scroll\">\n");
    espl_svg_xy(out, &chart);
    espl_buf_puts(out, "</figure>\n");
}

static void table(const struct pairs *pairs, struct espl_buf *out)
{
    espl_buf_puts(out, "<details><summary>Data table</summary><div class=\"scroll\"><table><thead>"
                       "<tr><th scope=\"col\">configuration</th>"
                       "<th scope=\"col\" class=\"number\">predicted, ms</th>"
                       "<th scope=\"col\" class=\"number\">measured, ms</th>"
                       "<th scope=\"col\" class=\"number\">error, %</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < pairs->count; i++) {
        espl_buf_puts(out, "<tr>");
        espl_html_head(out, "row", NULL, pairs->names[i]);
        espl_buf_printf(out,
                        "<td class=\"number\">%.5g</td><td class=\"number\">%.5g</td>"
                        "<td class=\"number\">%+.2f</td></tr>\n",
                        pairs->predicted[i], pairs->measured[i], 100.0 * error_of(pairs, i));
    }
    espl_buf_puts(out, "</tbody></table></div></details>\n");
}

static enum espl_status draw_stage(const struct espl_report_data *data, size_t run,
                                   const char *stage_id, bool *open, struct espl_buf *out,
                                   struct espl_error *err)
{
    const json_t *stage = espl_report_stage(&data->runs[run], stage_id);
    struct pairs pairs = {.count = 0};
    const enum espl_status status =
        collect(json_object_get(stage, "layer_metrics"), data->arena, &pairs, err);
    if (status != ESPL_OK || pairs.count == 0) {
        return status;
    }
    const char *title = espl_report_title(data, run, stage_id, "Predicted against measured");
    const char *id = espl_arena_printf(data->arena, "predicted-%zu", out->len);
    if (title == NULL || id == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the predictions of the report");
    }
    espl_buf_puts(out, *open ? "" : "<h2 id=\"predicted\">Predicted passes</h2>\n");
    *open = true;
    espl_buf_puts(out, "<h3>");
    espl_html_text(out, title);
    espl_buf_puts(out, "</h3>\n");
    summary(&pairs, out);
    draw(&pairs, id, title, out);
    table(&pairs, out);
    return ESPL_OK;
}

enum espl_status espl_report_predicted(const struct espl_report_data *data, struct espl_buf *out,
                                       struct espl_error *err)
{
    return espl_report_each_stage(data, draw_stage, out, err);
}
