#include "report/svg_internal.h"

#include "core/units.h"
#include "report/html.h"

#include <math.h>
#include <stdio.h>

/* Layout in user units. */
static const double plot_left = 168.0;
static const double plot_right = 594.0;
static const double panel_gap = 10.0;
static const double top_margin = 8.0;
static const double axis_height = 34.0;

enum { MAX_MARKERS = 48 /* a line; more would merge into a band */ };

double espl_svg_nice_top(double top)
{
    if (!(top > 0.0) || !isfinite(top)) {
        return 0.0;
    }
    const double power = pow(10.0, floor(log10(top)));
    static const double steps[] = {1.0, 2.0, 2.5, 5.0, 10.0};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; ++i) {
        /* The tolerance keeps 0.5 at 0.5 when log10 rounds the other way. */
        if (top <= steps[i] * power * (1.0 + 1e-9)) {
            return steps[i] * power;
        }
    }
    return 10.0 * power;
}

/* Many modules stand in narrow rows; one or two get the room to show detail. */
static double panel_height(const struct espl_svg_layers *chart)
{
    return chart->panel_count <= 2 ? 92.0 : 30.0;
}

static double panel_top(const struct espl_svg_layers *chart, size_t panel)
{
    return top_margin + (panel_height(chart) + panel_gap) * (double)panel;
}

struct scale {
    double low, high; /* values at the bottom and top of every panel */
};

static struct scale find_scale(const struct espl_svg_layers *chart)
{
    const size_t count = chart->panel_count * chart->series_count * chart->layer_count;
    double low = 0.0;
    double high = 0.0;
    for (size_t i = 0; i < count; ++i) {
        const double value = chart->values[i];
        if (isfinite(value)) {
            low = value < low ? value : low;
            high = value > high ? value : high;
        }
    }
    struct scale scale = {low < 0.0 ? -espl_svg_nice_top(-low) : 0.0, espl_svg_nice_top(high)};
    if (chart->shares && scale.high <= 1.0) {
        scale.high = 1.0;
    }
    if (scale.high <= scale.low) {
        scale.high = scale.low + 1.0;
    }
    return scale;
}

static double layer_x(const struct espl_svg_layers *chart, size_t layer)
{
    return plot_left +
           ((double)layer + 0.5) * (plot_right - plot_left) / (double)chart->layer_count;
}

static void draw_series(struct espl_buf *out, const struct espl_svg_layers *chart, size_t panel,
                        size_t series, const struct scale *scale)
{
    const double *values =
        chart->values + (panel * chart->series_count + series) * chart->layer_count;
    const double base = panel_top(chart, panel) + panel_height(chart);
    const double unit = panel_height(chart) / (scale->high - scale->low);
    bool in_line = false;
    espl_buf_printf(out, "<path class=\"line s%zu\" d=\"", series);
    for (size_t layer = 0; layer < chart->layer_count; ++layer) {
        if (isfinite(values[layer])) {
            espl_buf_printf(out, "%c%.1f %.1f", in_line ? 'L' : 'M', layer_x(chart, layer),
                            base - (values[layer] - scale->low) * unit);
        }
        in_line = isfinite(values[layer]);
    }
    espl_buf_puts(out, "\"/>\n");
    const size_t step = chart->layer_count / MAX_MARKERS + 1;
    for (size_t layer = 0; layer < chart->layer_count; layer += step) {
        if (!isfinite(values[layer])) {
            continue;
        }
        char tip[ESPL_UNIT_TEXT + 64];
        (void)snprintf(tip, sizeof tip, "layer %zu: %.4g%s", layer,
                       chart->shares ? values[layer] * 100.0 : values[layer],
                       chart->shares ? " %" : "");
        espl_svg_marker(out, series, layer_x(chart, layer),
                        base - (values[layer] - scale->low) * unit, tip);
    }
}

static void draw_tick(struct espl_buf *out, const struct espl_svg_layers *chart, double y,
                      double value)
{
    espl_buf_printf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">%.4g%s</text>\n",
                    plot_left - 4.0, y, chart->shares ? value * 100.0 : value,
                    chart->shares ? " %" : "");
}

static void draw_panel(struct espl_buf *out, const struct espl_svg_layers *chart, size_t panel,
                       const struct scale *scale)
{
    const double height = panel_height(chart);
    const double top = panel_top(chart, panel);
    const double zero = top + height * scale->high / (scale->high - scale->low);
    espl_buf_printf(out,
                    "<rect class=\"panel\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>"
                    "<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>\n"
                    "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">",
                    plot_left, top, plot_right - plot_left, height, plot_left, zero, plot_right,
                    plot_left - 42.0, top + height / 2.0 + 4.0);
    espl_html_text_cut(out, chart->panels[panel], 19);
    espl_buf_puts(out, "</text>\n");
    draw_tick(out, chart, top + 7.0, scale->high);
    draw_tick(out, chart, top + height, scale->low);
    espl_buf_printf(out, "<text class=\"value\" x=\"%.1f\" y=\"%.1f\">", plot_right + 8.0,
                    top + height / 2.0 + 4.0);
    espl_html_text(out, chart->remarks[panel]);
    espl_buf_puts(out, "</text>\n");
    for (size_t series = 0; series < chart->series_count; ++series) {
        draw_series(out, chart, panel, series, scale);
    }
}

static void draw_layer_axis(struct espl_buf *out, const struct espl_svg_layers *chart)
{
    const double y = panel_top(chart, chart->panel_count);
    static const size_t steps[] = {1, 2, 4, 5, 8, 10, 20, 50, 100, 200, 500, 1000};
    size_t step = steps[0];
    for (size_t i = 0; chart->layer_count / step > 16 && i < sizeof steps / sizeof steps[0]; ++i) {
        step = steps[i];
    }
    for (size_t layer = 0; layer < chart->layer_count; layer += step) {
        espl_buf_printf(out, "<text class=\"tick-middle\" x=\"%.1f\" y=\"%.1f\">%zu</text>",
                        layer_x(chart, layer), y + 4.0, layer);
    }
    espl_buf_printf(out, "\n<text class=\"tick-middle\" x=\"%.1f\" y=\"%.1f\">layer</text>\n",
                    (plot_left + plot_right) / 2.0, y + 19.0);
}

void espl_svg_layers(struct espl_buf *out, const struct espl_svg_layers *chart)
{
    const struct scale scale = find_scale(chart);
    espl_svg_open(out, &chart->head, panel_top(chart, chart->panel_count) + axis_height - 8.0);
    for (size_t panel = 0; panel < chart->panel_count; ++panel) {
        draw_panel(out, chart, panel, &scale);
    }
    draw_layer_axis(out, chart);
    espl_svg_close(out);
}
