/* Products that deploy-bench measured: speed-ups by number of tokens, and the roofline. */
#include "report/report_page.h"

#include "report/bench_figures.h"
#include "report/html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void speedup_table(const struct espl_bench_speedups *speedups, struct espl_buf *out)
{
    static const char *const heads[] = {"cases",          "least", "lower quartile", "median",
                                        "upper quartile", "most",  "geometric mean"};
    espl_buf_puts(out, "<details><summary>Data table</summary><div class=\"scroll\"><table><thead>"
                       "<tr><th scope=\"col\" class=\"number\">tokens</th>"
                       "<th scope=\"col\">over</th>");
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; ++i) {
        espl_html_head(out, "col", "number", heads[i]);
    }
    espl_buf_puts(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < speedups->group_count * speedups->baseline_count; ++i) {
        const struct espl_svg_box *box = &speedups->boxes[i];
        if (box->count == 0) {
            continue;
        }
        espl_buf_printf(out, "<tr><th scope=\"row\" class=\"number\">%u</th>",
                        speedups->tokens[i / speedups->baseline_count]);
        espl_html_cell(out, NULL, speedups->baselines[i % speedups->baseline_count]);
        espl_buf_printf(out, "<td class=\"number\">%zu</td>", box->count);
        const double values[] = {box->low, box->q1,   box->median,
                                 box->q3,  box->high, speedups->means[i]};
        for (size_t v = 0; v < sizeof values / sizeof values[0]; ++v) {
            espl_buf_printf(out, "<td class=\"number\">%.3f</td>", values[v]);
        }
        espl_buf_puts(out, "</tr>\n");
    }
    espl_buf_puts(out, "</tbody></table></div></details>\n");
}

static void roofline_table(const struct espl_bench_roofline *roofline, double bandwidth,
                           struct espl_buf *out)
{
    espl_buf_puts(out, "<details><summary>Data table</summary><div class=\"scroll\"><table><thead>"
                       "<tr><th scope=\"col\">product</th>"
                       "<th scope=\"col\" class=\"number\">tokens</th>"
                       "<th scope=\"col\" class=\"number\">operations a byte</th>"
                       "<th scope=\"col\" class=\"number\">TOPS</th>"
                       "<th scope=\"col\" class=\"number\">% of the bound</th></tr></thead>"
                       "<tbody>\n");
    for (size_t i = 0; i < roofline->count; ++i) {
        const struct espl_bench_point *point = &roofline->points[i];
        espl_buf_puts(out, "<tr>");
        espl_html_head(out, "row", NULL, point->what);
        espl_buf_printf(out,
                        "<td class=\"number\">%u</td><td class=\"number\">%.3f</td>"
                        "<td class=\"number\">%.4g</td><td class=\"number\">%.1f</td></tr>\n",
                        point->tokens, point->intensity, point->rate * 1e-12,
                        100.0 * point->rate / (point->intensity * bandwidth));
    }
    espl_buf_puts(out, "</tbody></table></div></details>\n");
}

static void open_figure(const char *title, struct espl_buf *out)
{
    espl_buf_puts(out, "<h3>");
    espl_html_text(out, title);
    espl_buf_puts(out, "</h3>\n<figure class=\"scroll\">\n");
}

static enum espl_status draw(const struct espl_report_data *data, size_t run, const char *stage_id,
                             bool *open, struct espl_buf *out, struct espl_error *err)
{
    const json_t *stage = espl_report_stage(&data->runs[run], stage_id);
    const json_t *points = json_object_get(stage, "layer_metrics");
    const double bandwidth =
        espl_report_number(json_object_get(stage, "volatile_metrics"), "copy_bytes_per_second");
    struct espl_bench_speedups speedups;
    struct espl_bench_roofline roofline = {.count = 0};
    enum espl_status status = espl_bench_speedups_read(points, data->arena, &speedups, err);
    if (status == ESPL_OK && isfinite(bandwidth)) {
        status = espl_bench_roofline_read(points, data->arena, &roofline, err);
    }
    if (status != ESPL_OK || (speedups.group_count == 0 && roofline.count == 0)) {
        return status;
    }
    const char *titles[] = {
        espl_report_title(data, run, stage_id, "Speed-ups by number of tokens"),
        espl_report_title(data, run, stage_id, "Roofline with measured products")};
    const char *id = espl_arena_printf(data->arena, "%zu-%s", run, stage_id);
    const char *ids[] = {espl_arena_printf(data->arena, "speedups-%s", id),
                         espl_arena_printf(data->arena, "roofline-%s", id)};
    if (titles[0] == NULL || titles[1] == NULL || ids[0] == NULL || ids[1] == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the drawings of the report");
    }
    espl_buf_puts(out, *open ? "" : "<h2 id=\"products\">Products on the device</h2>\n");
    *open = true;
    if (speedups.group_count > 0) {
        open_figure(titles[0], out);
        espl_bench_speedups_draw(&speedups, ids[0], titles[0], false, out);
        espl_buf_puts(out, "</figure>\n");
        speedup_table(&speedups, out);
    }
    if (roofline.count > 0) {
        open_figure(titles[1], out);
        status = espl_bench_roofline_draw(&roofline, bandwidth, ids[1], titles[1], false,
                                          data->arena, out, err);
        espl_buf_puts(out, "</figure>\n");
        roofline_table(&roofline, bandwidth, out);
    }
    return status;
}

enum espl_status espl_report_bench(const struct espl_report_data *data, struct espl_buf *out,
                                   struct espl_error *err)
{
    return espl_report_each_stage(data, draw, out, err);
}
