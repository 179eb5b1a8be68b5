#include "report/svg_internal.h"

#include "report/html.h"

#include <math.h>

/* Layout in user units. */
static const double plot_left = 64.0;
static const double plot_right = 520.0;
static const double plot_top = 12.0;
static const double plot_bottom = 352.0;
static const double axis_height = 42.0; /* numbers and label below the plot */
static const double legend_left = 536.0;
static const double legend_pitch = 19.0;

enum { LEGEND_CHARS = 24, MOST_TICKS = 32 };

struct scale {
    bool logarithmic;
    double low, high; /* values, or their logarithms to base 10 */
    double from, to;  /* places of low and high */
};

static bool fits(const struct espl_svg_axis *axis, double value)
{
    return isfinite(value) && (!axis->logarithmic || value > 0.0);
}

static double on_scale(const struct scale *scale, double value)
{
    const double at = scale->logarithmic ? log10(value) : value;
    return scale->from + (at - scale->low) / (scale->high - scale->low) * (scale->to - scale->from);
}

/* Is the point inside the drawing? What lies outside is left out, not drawn at the edge. */
static bool is_drawn(const struct espl_svg_xy *chart, const struct scale *x, const struct scale *y,
                     double vx, double vy)
{
    if (!fits(&chart->x, vx) || !fits(&chart->y, vy)) {
        return false;
    }
    const double px = on_scale(x, vx);
    const double py = on_scale(y, vy);
    return px >= x->from - 0.5 && px <= x->to + 0.5 && py <= y->from + 0.5 && py >= y->to - 0.5;
}

static double tick_step(double span)
{
    return espl_svg_nice_top(span / 6.0);
}

/* Ends of a logarithmic scale at 1, 2 or 5 times a power of ten around the values. */
static double round_log(double value, bool up)
{
    static const double digits[] = {1.0, 2.0, 5.0, 10.0};
    const double power = pow(10.0, floor(log10(value) + 1e-9));
    double best = power;
    for (size_t i = 0; i < 4; ++i) {
        const double tick = digits[i] * power;
        if (up && tick >= value * (1.0 - 1e-9)) {
            return tick;
        }
        best = tick <= value * (1.0 + 1e-9) ? tick : best;
    }
    return best;
}

static struct scale make_scale(const struct espl_svg_xy *chart, const struct espl_svg_axis *axis,
                               bool horizontal)
{
    double low = axis->low;
    double high = axis->high;
    if (!(high > low)) {
        low = (double)INFINITY;
        high = -(double)INFINITY;
        for (size_t s = 0; s < chart->series_count; ++s) {
            const struct espl_svg_points *points = &chart->series[s];
            for (size_t i = 0; i < points->count; ++i) {
                const double value = horizontal ? points->x[i] : points->y[i];
                low = fits(axis, value) && value < low ? value : low;
                high = fits(axis, value) && value > high ? value : high;
            }
        }
        if (!isfinite(low)) {
            low = axis->logarithmic ? 1.0 : 0.0;
            high = low;
        }
        if (axis->logarithmic) {
            low = round_log(low, false);
            high = round_log(high > low ? high : 2.0 * low, true);
        } else {
            high = high > low ? high : low + 1.0;
            const double step = tick_step(high - low);
            low = step * floor(low / step + 1e-9);
            high = step * ceil(high / step - 1e-9);
        }
    }
    struct scale scale = {axis->logarithmic, low, high, plot_left, plot_right};
    if (axis->logarithmic) {
        scale.low = log10(low);
        scale.high = log10(high);
    }
    if (!horizontal) {
        scale.from = plot_bottom;
        scale.to = plot_top;
    }
    return scale;
}

/* Round numbers on the scale, or those that were asked for. Returns how many. */
static size_t make_ticks(const struct espl_svg_axis *axis, const struct scale *scale,
                         double ticks[MOST_TICKS])
{
    size_t count = 0;
    if (axis->ticks != NULL) {
        for (; count < axis->tick_count && count < MOST_TICKS; ++count) {
            ticks[count] = axis->ticks[count];
        }
        return count;
    }
    if (!scale->logarithmic) {
        const double step = tick_step(scale->high - scale->low);
        for (double n = ceil(scale->low / step - 1e-9); count < MOST_TICKS; n += 1.0) {
            if (n * step > scale->high + 1e-9 * step) {
                break;
            }
            ticks[count++] = n * step + 0.0; /* no "-0" */
        }
        return count;
    }
    /* The first ones of these for wide scales, all for one that is hardly a decade. */
    static const double digits[] = {1.0, 2.0, 5.0, 1.5, 3.0, 4.0, 7.0};
    const double span = scale->high - scale->low;
    const size_t used = span > 3.0 ? 1 : span > 1.1 ? 3 : 7;
    for (double decade = floor(scale->low); decade <= scale->high; decade += 1.0) {
        for (size_t i = 0; i < used && count < MOST_TICKS; ++i) {
            const double at = decade + log10(digits[i]);
            if (at >= scale->low - 1e-9 && at <= scale->high + 1e-9) {
                ticks[count++] = digits[i] * pow(10.0, decade);
            }
        }
    }
    return count;
}

static void draw_axes(struct espl_buf *out, const struct espl_svg_xy *chart, const struct scale *x,
                      const struct scale *y)
{
    double ticks[MOST_TICKS];
    espl_buf_printf(out,
                    "<rect class=\"panel\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                    "height=\"%.1f\"/>\n",
                    plot_left, plot_top, plot_right - plot_left, plot_bottom - plot_top);
    size_t count = make_ticks(&chart->x, x, ticks);
    for (size_t i = 0; i < count; ++i) {
        const double at = on_scale(x, ticks[i]);
        espl_buf_printf(out,
                        "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/>"
                        "<text class=\"tick-middle\" x=\"%.1f\" y=\"%.1f\">%.4g</text>\n",
                        at, plot_top, plot_bottom, at, plot_bottom + 14.0, ticks[i]);
    }
    count = make_ticks(&chart->y, y, ticks);
    for (size_t i = 0; i < count; ++i) {
        const double at = on_scale(y, ticks[i]);
        espl_buf_printf(out,
                        "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>"
                        "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%.4g</text>\n",
                        plot_left, at, plot_right, plot_left - 6.0, at + 3.5, ticks[i]);
    }
    espl_buf_printf(out,
                    "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n"
                    "<text class=\"tick-middle\" x=\"%.1f\" y=\"%.1f\">",
                    plot_left, plot_top, plot_bottom, plot_right, (plot_left + plot_right) / 2.0,
                    plot_bottom + 32.0);
    espl_html_text(out, chart->x.label);
    espl_buf_printf(out,
                    "</text>\n<text class=\"tick-middle\" transform=\"translate(14 %.1f) "
                    "rotate(-90)\">",
                    (plot_top + plot_bottom) / 2.0);
    espl_html_text(out, chart->y.label);
    espl_buf_puts(out, "</text>\n");
}

static void draw_line(struct espl_buf *out, const struct espl_svg_xy *chart, size_t series,
                      size_t style, const struct scale *x, const struct scale *y)
{
    const struct espl_svg_points *points = &chart->series[series];
    bool in_line = false;
    if (points->bound) {
        espl_buf_puts(out, "<path class=\"bound\" d=\"");
    } else {
        espl_buf_printf(out, "<path class=\"line s%zu\" d=\"", style % ESPL_SVG_MAX_SERIES);
    }
    for (size_t i = 0; i < points->count; ++i) {
        const bool drawn = is_drawn(chart, x, y, points->x[i], points->y[i]);
        if (drawn) {
            espl_buf_printf(out, "%c%.1f %.1f", in_line ? 'L' : 'M', on_scale(x, points->x[i]),
                            on_scale(y, points->y[i]));
        }
        in_line = drawn;
    }
    espl_buf_puts(out, "\"/>\n");
}

static void draw_markers(struct espl_buf *out, const struct espl_svg_xy *chart, size_t series,
                         size_t style, const struct scale *x, const struct scale *y)
{
    const struct espl_svg_points *points = &chart->series[series];
    for (size_t i = 0; i < points->count; ++i) {
        if (is_drawn(chart, x, y, points->x[i], points->y[i])) {
            espl_svg_marker(out, style, on_scale(x, points->x[i]), on_scale(y, points->y[i]),
                            points->tips != NULL ? points->tips[i] : NULL);
            espl_buf_puts(out, "\n");
        }
    }
}

static void draw_legend_row(struct espl_buf *out, const struct espl_svg_points *points,
                            size_t style, double top)
{
    if (points->bound) {
        espl_buf_printf(out, "<path class=\"bound\" d=\"M%.1f %.1fh26\"/>", legend_left, top);
    } else {
        if (points->line) {
            espl_buf_printf(out, "<path class=\"line s%zu\" d=\"M%.1f %.1fh26\"/>",
                            style % ESPL_SVG_MAX_SERIES, legend_left, top);
        }
        espl_svg_marker(out, style, legend_left + 13.0, top, NULL);
    }
    espl_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\">", legend_left + 33.0, top + 4.0);
    espl_html_text_cut(out, points->name, LEGEND_CHARS);
    espl_buf_puts(out, "</text>\n");
}

static void draw_series(struct espl_buf *out, const struct espl_svg_xy *chart,
                        const struct scale *x, const struct scale *y)
{
    size_t style = 0;
    double legend_top = plot_top + 8.0;
    for (size_t i = 0; i < chart->series_count && i < ESPL_SVG_MAX_XY_SERIES; ++i) {
        const struct espl_svg_points *points = &chart->series[i];
        if (points->line || points->bound) {
            draw_line(out, chart, i, style, x, y);
        }
        if (!points->bound) {
            draw_markers(out, chart, i, style, x, y);
        }
        if (points->name != NULL) {
            draw_legend_row(out, points, style, legend_top);
            legend_top += legend_pitch;
        }
        style += points->bound ? 0 : 1;
    }
}

void espl_svg_xy(struct espl_buf *out, const struct espl_svg_xy *chart)
{
    const struct scale x = make_scale(chart, &chart->x, true);
    const struct scale y = make_scale(chart, &chart->y, false);
    const double plot_height = plot_bottom + axis_height;
    const double legend_height = 2.0 * plot_top + legend_pitch * (double)chart->series_count;
    const double height = (plot_height > legend_height ? plot_height : legend_height) +
                          (chart->standalone ? ESPL_SVG_TITLE : 0);
    espl_svg_open(out, &chart->head, height);
    if (chart->standalone) {
        espl_svg_start_standalone(out, &chart->head, height, plot_left);
    }
    draw_axes(out, chart, &x, &y);
    draw_series(out, chart, &x, &y);
    espl_buf_puts(out, chart->standalone ? "</g>\n" : "");
    espl_svg_close(out);
}
