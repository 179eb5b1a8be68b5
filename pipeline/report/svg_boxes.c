#include "report/svg_internal.h"

#include "core/order.h"
#include "report/html.h"

#include <math.h>
#include <stdlib.h>

/* Layout in user units; the plot is as large as that of svg_xy.c. */
static const double plot_left = 64.0;
static const double plot_right = 520.0;
static const double plot_top = 12.0;
static const double plot_bottom = 352.0;
static const double axis_height = 42.0;
static const double legend_left = 536.0;
static const double legend_pitch = 19.0;
static const double group_air = 0.16;  /* of a group's width, at each side */
static const double widest_box = 28.0; /* few series make no walls */

enum { LEGEND_CHARS = 24 };

static double place(double value, double top)
{
    return plot_bottom - value / top * (plot_bottom - plot_top);
}

static double scale_top(const struct espl_svg_boxes *chart)
{
    double top = isfinite(chart->reference) ? chart->reference : 0.0;
    for (size_t i = 0; i < chart->group_count * chart->series_count; ++i) {
        top = chart->boxes[i].count > 0 ? fmax(top, chart->boxes[i].high) : top;
    }
    return top > 0.0 ? espl_svg_nice_top(top) : 1.0;
}

static void draw_scale(struct espl_buf *out, const struct espl_svg_boxes *chart, double top)
{
    enum { STEPS = 5 };
    espl_buf_printf(out,
                    "<rect class=\"panel\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                    "height=\"%.1f\"/>\n",
                    plot_left, plot_top, plot_right - plot_left, plot_bottom - plot_top);
    for (int i = 0; i <= STEPS; ++i) {
        const double value = top * i / STEPS;
        const double y = place(value, top);
        espl_buf_printf(out,
                        "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>"
                        "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%.4g</text>\n",
                        plot_left, y, plot_right, plot_left - 6.0, y + 3.5, value);
    }
    if (isfinite(chart->reference)) {
        espl_buf_printf(out, "<path class=\"bound\" d=\"M%.1f %.1fH%.1f\"/>\n", plot_left,
                        place(chart->reference, top), plot_right);
    }
    espl_buf_printf(out,
                    "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n"
                    "<text class=\"tick-middle\" x=\"%.1f\" y=\"%.1f\">",
                    plot_left, plot_top, plot_bottom, plot_right, (plot_left + plot_right) / 2.0,
                    plot_bottom + 32.0);
    espl_html_text(out, chart->x_label);
    espl_buf_printf(out,
                    "</text>\n<text class=\"tick-middle\" transform=\"translate(14 %.1f) "
                    "rotate(-90)\">",
                    (plot_top + plot_bottom) / 2.0);
    espl_html_text(out, chart->y_label);
    espl_buf_puts(out, "</text>\n");
}

/* Whiskers to the ends, the box between the quartiles, a line at the median. */
static void draw_box(struct espl_buf *out, const char *id, size_t series,
                     const struct espl_svg_box *box, double x, double width, double top)
{
    const double middle = x + width / 2.0;
    const double upper = place(box->q3, top);
    const double lower = place(box->q1, top);
    espl_buf_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fM%.1f %.1fV%.1f\"/>\n", middle,
                    place(box->high, top), upper, middle, lower, place(box->low, top));
    /* A box too flat to see still shows that there is one. */
    espl_svg_bar(out, id, series, x, upper, width, fmax(lower - upper, 1.0));
    espl_buf_printf(out, "<path class=\"edge\" d=\"M%.1f %.1fh%.1f\"><title>", x,
                    place(box->median, top), width);
    espl_html_textf(out, "median %.3g, quartiles %.3g and %.3g, from %.3g to %.3g, %zu cases",
                    box->median, box->q1, box->q3, box->low, box->high, box->count);
    espl_buf_puts(out, "</title></path>\n");
}

static void draw_group(struct espl_buf *out, const struct espl_svg_boxes *chart, size_t group,
                       double top)
{
    const double pitch = (plot_right - plot_left) / (double)chart->group_count;
    const double left = plot_left + pitch * (double)group;
    const double room = pitch * (1.0 - 2.0 * group_air) / (double)chart->series_count;
    const double width = fmin(room * 0.8, widest_box);
    const double start = left + pitch / 2.0 - room * (double)chart->series_count / 2.0;
    for (size_t s = 0; s < chart->series_count; ++s) {
        const struct espl_svg_box *box = &chart->boxes[group * chart->series_count + s];
        if (box->count > 0) {
            draw_box(out, chart->head.id, s % ESPL_SVG_MAX_SERIES, box,
                     start + room * (double)s + (room - width) / 2.0, width, top);
        }
    }
    espl_buf_printf(out, "<text class=\"tick-middle\" x=\"%.1f\" y=\"%.1f\">", left + pitch / 2.0,
                    plot_bottom + 14.0);
    espl_html_text(out, chart->groups[group]);
    espl_buf_puts(out, "</text>\n");
}

void espl_svg_boxes(struct espl_buf *out, const struct espl_svg_boxes *chart)
{
    const double top = scale_top(chart);
    const double height = plot_bottom + axis_height + (chart->standalone ? ESPL_SVG_TITLE : 0);
    espl_svg_open(out, &chart->head, height);
    if (chart->standalone) {
        espl_svg_start_standalone(out, &chart->head, height, plot_left);
    }
    espl_svg_patterns(out, chart->head.id, chart->series_count);
    draw_scale(out, chart, top);
    for (size_t group = 0; group < chart->group_count; ++group) {
        draw_group(out, chart, group, top);
    }
    for (size_t s = 0; s < chart->series_count; ++s) {
        const double y = plot_top + 8.0 + legend_pitch * (double)s;
        espl_svg_bar(out, chart->head.id, s % ESPL_SVG_MAX_SERIES, legend_left, y - 6.0, 18.0,
                     12.0);
        espl_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">", legend_left + 26.0, y + 4.0);
        espl_html_text_cut(out, chart->series[s], LEGEND_CHARS);
        espl_buf_puts(out, "</text>\n");
    }
    espl_buf_puts(out, chart->standalone ? "</g>\n" : "");
    espl_svg_close(out);
}

static double quantile(const double *sorted, size_t count, double share)
{
    const double at = share * (double)(count - 1);
    const size_t low = (size_t)at;
    const size_t high = low + 1 < count ? low + 1 : low;
    return sorted[low] + (at - (double)low) * (sorted[high] - sorted[low]);
}

struct espl_svg_box espl_svg_box_of(double *values, size_t count)
{
    if (count == 0) {
        return (struct espl_svg_box){.count = 0};
    }
    qsort(values, count, sizeof *values, espl_compare_doubles);
    return (struct espl_svg_box){.low = values[0],
                                 .q1 = quantile(values, count, 0.25),
                                 .median = quantile(values, count, 0.5),
                                 .q3 = quantile(values, count, 0.75),
                                 .high = values[count - 1],
                                 .count = count};
}
