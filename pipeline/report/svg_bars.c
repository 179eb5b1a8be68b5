#include "report/svg_internal.h"

#include "report/html.h"

#include <math.h>

/* Layout in user units. */
static const double label_width = 132.0; /* row names, right-aligned before this */
static const double text_width = 74.0;   /* room for the figure right of the longest bar */
static const double heading_height = 24.0;
static const double bar_pitch = 17.0; /* one bar with its air */
static const double row_gap = 7.0;

static size_t value_index(const struct espl_svg_bars *chart, size_t column, size_t row,
                          size_t series)
{
    return (column * chart->row_count + row) * chart->series_count + series;
}

static size_t bars_of_row(const struct espl_svg_bars *chart)
{
    return chart->stacked ? 1 : chart->series_count;
}

/* What has no bar is 0: negative values, too. */
static double value_at(const struct espl_svg_bars *chart, size_t at)
{
    const double value = chart->values[at];
    return isfinite(value) && value > 0.0 ? value : 0.0;
}

/* Only a bar has one, and both together have an end. */
static double deviation_at(const struct espl_svg_bars *chart, size_t at)
{
    const double value = value_at(chart, at);
    const double deviation = chart->deviations != NULL ? chart->deviations[at] : 0.0;
    return value > 0.0 && deviation > 0.0 && isfinite(value + deviation) ? deviation : 0.0;
}

/* The longest bar, error bars included. */
static double column_top(const struct espl_svg_bars *chart, size_t column)
{
    double top = 0.0;
    for (size_t row = 0; row < chart->row_count; ++row) {
        double sum = 0.0;
        for (size_t series = 0; series < chart->series_count; ++series) {
            const size_t at = value_index(chart, column, row, series);
            const double value = value_at(chart, at) + deviation_at(chart, at);
            sum = chart->stacked ? sum + value : value;
            top = sum > top ? sum : top;
        }
    }
    return top;
}

static void draw_deviation(struct espl_buf *out, double from, double to, double y)
{
    espl_buf_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fH%.1fM%.1f %.1fv6M%.1f %.1fv6\"/>\n",
                    from, y, to, from, y - 3.0, to, y - 3.0);
}

static void draw_text(struct espl_buf *out, const struct espl_svg_bars *chart, size_t at, double x,
                      double y)
{
    espl_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x + 6.0, y + 10.5,
                    isfinite(chart->values[at]) ? "value" : "soft");
    espl_html_text(out, chart->texts[at]);
    espl_buf_puts(out, "</text>\n");
}

/* longest: the value whose bar is `room` user units long, 0 when there is none. Divided first: a
 * factor for tiny values would overflow. */
static double length_of(double value, double longest, double room)
{
    return longest > 0.0 ? value / longest * room : 0.0;
}

static void draw_bars(struct espl_buf *out, const struct espl_svg_bars *chart, size_t first,
                      double left, double top, double longest, double room)
{
    for (size_t series = 0; series < chart->series_count; ++series) {
        const size_t at = first + series;
        const double y = top + bar_pitch * (double)series;
        const double length = length_of(value_at(chart, at), longest, room);
        const double deviation = length_of(deviation_at(chart, at), longest, room);
        if (length > 0.0) {
            /* A bar too short to see still shows that there is one. */
            espl_svg_bar(out, chart->head.id, series, left, y, length < 1.0 ? 1.0 : length, 13.0);
        }
        if (length > 0.0 && deviation > 0.0) {
            draw_deviation(out, left + fmax(length - deviation, 0.0), left + length + deviation,
                           y + 6.5);
        }
        draw_text(out, chart, at, left + length + deviation, y);
    }
}

static void draw_stack(struct espl_buf *out, const struct espl_svg_bars *chart, size_t first,
                       double left, double top, double longest, double room)
{
    double end = left;
    for (size_t series = 0; series < chart->series_count; ++series) {
        const double length = length_of(value_at(chart, first + series), longest, room);
        if (length > 0.0) {
            espl_svg_bar(out, chart->head.id, series, end, top, length, 13.0);
            end += length;
        }
    }
    draw_text(out, chart, first, end, top);
}

static void draw_column(struct espl_buf *out, const struct espl_svg_bars *chart, size_t column,
                        double left, double width)
{
    const double longest = column_top(chart, column);
    const double room = width - text_width;
    const double pitch = bar_pitch * (double)bars_of_row(chart) + row_gap;
    const double bottom = heading_height + pitch * (double)chart->row_count;
    espl_buf_printf(out, "<text x=\"%.1f\" y=\"13\" class=\"heading\">", left);
    espl_html_text(out, chart->columns[column]);
    espl_buf_printf(out, "</text>\n<path class=\"axis\" d=\"M%.1f %.1fV%.1f\"/>\n", left,
                    heading_height - 4.0, bottom);
    for (size_t row = 0; row < chart->row_count; ++row) {
        const size_t first = value_index(chart, column, row, 0);
        const double y = heading_height + pitch * (double)row;
        if (chart->stacked) {
            draw_stack(out, chart, first, left, y, longest, room);
        } else {
            draw_bars(out, chart, first, left, y, longest, room);
        }
    }
}

void espl_svg_bars(struct espl_buf *out, const struct espl_svg_bars *chart)
{
    const double pitch = bar_pitch * (double)bars_of_row(chart) + row_gap;
    const double gap = 14.0;
    const double width = (ESPL_SVG_WIDTH - label_width - gap * (double)(chart->column_count - 1)) /
                         (double)chart->column_count;
    const double height = heading_height + pitch * (double)chart->row_count + 2.0 +
                          (chart->standalone ? ESPL_SVG_TITLE : 0);
    espl_svg_open(out, &chart->head, height);
    if (chart->standalone) {
        espl_svg_start_standalone(out, &chart->head, height, 0.0);
    }
    espl_svg_patterns(out, chart->head.id, chart->series_count);
    for (size_t row = 0; row < chart->row_count; ++row) {
        const double y = heading_height + pitch * (double)row +
                         bar_pitch * (double)bars_of_row(chart) / 2.0 + 2.0;
        espl_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"label\">", label_width - 8.0, y);
        espl_html_text_cut(out, chart->rows[row], 18);
        espl_buf_puts(out, "</text>\n");
    }
    for (size_t column = 0; column < chart->column_count; ++column) {
        draw_column(out, chart, column, label_width + (width + gap) * (double)column, width);
    }
    espl_buf_puts(out, chart->standalone ? "</g>\n" : "");
    espl_svg_close(out);
}
