#include "report/svg_internal.h"

#include "report/html.h"
#include "report/report_style.h"

#include <stdio.h>

void espl_svg_open(struct espl_buf *out, const struct espl_svg_head *head, double height)
{
    espl_buf_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                    "width=\"%d\" height=\"%.0f\" role=\"img\" "
                    "aria-labelledby=\"%s-title %s-desc\">\n<title id=\"%s-title\">",
                    ESPL_SVG_WIDTH, height, ESPL_SVG_WIDTH, height, head->id, head->id, head->id);
    espl_html_text(out, head->title);
    espl_buf_printf(out, "</title>\n<desc id=\"%s-desc\">", head->id);
    espl_html_text(out, head->desc);
    espl_buf_puts(out, "</desc>\n");
}

void espl_svg_close(struct espl_buf *out)
{
    espl_buf_puts(out, "</svg>\n");
}

void espl_svg_start_standalone(struct espl_buf *out, const struct espl_svg_head *head,
                               double height, double left)
{
    espl_buf_puts(out, "<style>\n");
    for (const char *const *piece = espl_svg_style; *piece != NULL; ++piece) {
        espl_buf_puts(out, *piece);
    }
    espl_buf_printf(out,
                    ":root{font-family:system-ui,'DejaVu Sans',sans-serif}\n</style>\n"
                    "<rect class=\"paper\" width=\"%d\" height=\"%.0f\"/>\n"
                    "<text class=\"name\" x=\"%.1f\" y=\"19\">",
                    ESPL_SVG_WIDTH, height, left);
    espl_html_text(out, head->title);
    espl_buf_printf(out, "</text>\n<g transform=\"translate(0 %.1f)\">\n", (double)ESPL_SVG_TITLE);
}

/* Fill patterns in an 8 x 8 cell; index = series. Series 0 is a plain fill, the last an outline. */
static const char *const pattern_shapes[ESPL_SVG_MAX_SERIES] = {
    NULL,
    "<path d=\"M-2 2L2 -2M0 8L8 0M6 10L10 6\"/>",   /* rising strokes */
    "<path d=\"M2 2h.01M6 6h.01\" class=\"dot\"/>", /* dots */
    "<path d=\"M0 2h8M0 6h8\"/>",                   /* level strokes */
    "<path d=\"M0 0L8 8M0 8L8 0\"/>",               /* crossed strokes */
    "",                                             /* outline only */
};

void espl_svg_patterns(struct espl_buf *out, const char *id, size_t count)
{
    if (count < 2) {
        return;
    }
    espl_buf_puts(out, "<defs>");
    for (size_t i = 1; i < count && i < ESPL_SVG_MAX_SERIES; ++i) {
        espl_buf_printf(out,
                        "<pattern id=\"%s-fill%zu\" width=\"8\" height=\"8\" "
                        "patternUnits=\"userSpaceOnUse\" class=\"pattern s%zu\">%s</pattern>",
                        id, i, i, pattern_shapes[i]);
    }
    espl_buf_puts(out, "</defs>\n");
}

void espl_svg_bar(struct espl_buf *out, const char *id, size_t series, double x, double y,
                  double width, double height)
{
    espl_buf_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" ", x, y, width,
                    height);
    if (series == 0) {
        espl_buf_puts(out, "class=\"bar s0\"/>");
    } else {
        espl_buf_printf(out, "class=\"hatched s%zu\" fill=\"url(#%s-fill%zu)\"/>", series, id,
                        series);
    }
}

/* Markers around (0, 0): circle, square, triangle, diamond, plus, cross. */
static const char *const marker_paths[ESPL_SVG_MAX_SERIES] = {
    "M-2.6 0a2.6 2.6 0 1 0 5.2 0a2.6 2.6 0 1 0 -5.2 0z",
    "M-2.4 -2.4h4.8v4.8h-4.8z",
    "M0 -3.2L3.2 2.6H-3.2z",
    "M0 -3.4L3.4 0L0 3.4L-3.4 0z",
    "M-3.2 0H3.2M0 -3.2V3.2",
    "M-2.6 -2.6L2.6 2.6M-2.6 2.6L2.6 -2.6",
};

void espl_svg_marker(struct espl_buf *out, size_t series, double x, double y, const char *tip)
{
    /* Past the last style the markers move on by one against the colours. */
    const size_t colour = series % ESPL_SVG_MAX_SERIES;
    const size_t shape = (series + series / ESPL_SVG_MAX_SERIES) % ESPL_SVG_MAX_SERIES;
    espl_buf_printf(out, "<path class=\"marker s%zu\" transform=\"translate(%.1f %.1f)\" d=\"%s\"",
                    colour, x, y, marker_paths[shape]);
    if (tip == NULL) {
        espl_buf_puts(out, "/>");
        return;
    }
    espl_buf_puts(out, "><title>");
    espl_html_text(out, tip);
    espl_buf_puts(out, "</title></path>");
}

void espl_svg_legend(struct espl_buf *out, const char *id, const char *const *names, size_t count)
{
    espl_buf_puts(out, "<ul class=\"legend\">");
    for (size_t i = 0; i < count; ++i) {
        espl_buf_puts(out, "<li><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 52 12\" "
                           "width=\"52\" height=\"12\" aria-hidden=\"true\">");
        char own_id[64];
        const int n = snprintf(own_id, sizeof own_id, "%s-legend%zu", id, i);
        if (n > 0 && (size_t)n < sizeof own_id) {
            espl_svg_patterns(out, own_id, i + 1);
            espl_svg_bar(out, own_id, i, 0.5, 0.5, 18.0, 11.0);
        }
        espl_buf_printf(out, "<path class=\"line s%zu\" d=\"M24 6H52\"/>", i);
        espl_svg_marker(out, i, 38.0, 6.0, NULL);
        espl_buf_puts(out, "</svg> ");
        espl_html_text(out, names[i]);
        espl_buf_puts(out, "</li>");
    }
    espl_buf_puts(out, "</ul>\n");
}
