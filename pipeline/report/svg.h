/* Charts as SVG, inline or in files: bars, per-layer panels, points over two scales, a dependency
 * drawing. Each has <title> and <desc>;
 * series differ in colour, dash, marker and fill pattern, so that none of them is told by colour
 * alone. Colours come from the page's style sheet (report_style.c), so that light, dark and print
 * need no second drawing. Texts are escaped here; values that are NaN are left out. */
#ifndef ESPL_REPORT_SVG_H
#define ESPL_REPORT_SVG_H

#include "core/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum {
    ESPL_SVG_WIDTH = 720,   /* user units; the page scales it down, never up */
    ESPL_SVG_MAX_SERIES = 6 /* series styles there are */
};

/** What stands at the head of every drawing. id: unique on the page, letters, digits, '-'. */
struct espl_svg_head {
    const char *id;
    const char *title;
    const char *desc;
};

/** Horizontal bars: `column_count` panels side by side over common rows, `series_count` bars a row,
 *  or, stacked, one bar a row of `series_count` parts end to end. values, texts, deviations:
 *  [column][row][series], row-major; a NaN value draws only its text, of stacked bars the text of
 *  series 0 stands behind the last part. */
struct espl_svg_bars {
    struct espl_svg_head head;
    size_t row_count, column_count, series_count;
    const char *const *rows;
    const char *const *columns; /* panel headings with units */
    const double *values;       /* >= 0 */
    const char *const *texts;   /* beside the bars */
    const double *deviations;   /* NULL, or error bars: this far to both sides; NaN = none */
    bool stacked;
    bool standalone; /* for a file of its own: brings its title and style sheet */
};
void espl_svg_bars(struct espl_buf *out, const struct espl_svg_bars *chart);

/** One panel a module over a common layer axis, all on one vertical scale that includes 0.
 *  values: [panel][series][layer]. */
struct espl_svg_layers {
    struct espl_svg_head head;
    size_t panel_count, series_count, layer_count;
    bool shares;                /* values are shares of 1: shown in percent, scale up to 100 % */
    const char *const *panels;  /* module names */
    const char *const *remarks; /* right of each panel ("0.12 to 0.53") */
    const double *values;
};
void espl_svg_layers(struct espl_buf *out, const struct espl_svg_layers *chart);
/** The top of the common scale: the next of 1, 2, 2.5, 5, 10 times a power of ten. 0 for top 0. */
double espl_svg_nice_top(double top);

/** A dependency drawing: nodes from top to bottom in order of execution, edges in lanes at the
 *  left. inputs: indices of earlier nodes. */
struct espl_svg_node {
    const char *label;  /* stage id */
    const char *detail; /* "wanda-prune" */
    const char *remark; /* right-aligned: key, state */
    const size_t *inputs;
    size_t input_count;
};
struct espl_svg_graph {
    struct espl_svg_head head;
    size_t node_count; /* at most ESPL_SVG_MAX_NODES are drawn */
    const struct espl_svg_node *nodes;
};
enum { ESPL_SVG_MAX_NODES = 256 };
void espl_svg_graph(struct espl_buf *out, const struct espl_svg_graph *graph);

/** Points over two scales, with lines or without: a roofline, a curve over a parameter, quality
 *  against size. The legend is part of the drawing, at its right. More than ESPL_SVG_MAX_SERIES
 *  series share colours, but no two have both the same colour and the same marker. */
struct espl_svg_axis {
    const char *label; /* with its unit */
    bool logarithmic;
    double low, high;    /* ends of the scale; equal: from the values, on round numbers */
    const double *ticks; /* where the numbers stand; NULL: on round numbers */
    size_t tick_count;
};
struct espl_svg_points {
    const char *name; /* in the legend; NULL = not there */
    size_t count;
    const double *x, *y;     /* points that are not finite, or not positive on a logarithmic scale,
                              * are left out */
    const char *const *tips; /* a text a point, or NULL */
    bool line;               /* joined in the order given */
    bool bound;              /* a dashed grey line without markers: a limit, a frontier */
};
struct espl_svg_xy {
    struct espl_svg_head head;
    struct espl_svg_axis x, y;
    size_t series_count; /* at most ESPL_SVG_MAX_XY_SERIES */
    const struct espl_svg_points *series;
    bool standalone; /* for a file of its own: brings its title and style sheet */
};
enum { ESPL_SVG_MAX_XY_SERIES = 24 };
void espl_svg_xy(struct espl_buf *out, const struct espl_svg_xy *chart);

/** Box plots: groups along the horizontal scale, a box a series in each; the vertical scale is
 * linear from 0. More than ESPL_SVG_MAX_SERIES series repeat styles. */
struct espl_svg_box {
    double low, q1, median, q3, high; /* ends of the values, quartiles */
    size_t count;                     /* of values; 0 = nothing is drawn */
};
struct espl_svg_boxes {
    struct espl_svg_head head;
    const char *x_label, *y_label;
    size_t group_count, series_count;
    const char *const *groups;
    const char *const *series;
    const struct espl_svg_box *boxes; /* [group][series] */
    double reference;                 /* a dashed line at this height; NaN = none */
    bool standalone;
};
void espl_svg_boxes(struct espl_buf *out, const struct espl_svg_boxes *chart);
/** Sorts values; quartiles between two of them are interpolated linearly. */
struct espl_svg_box espl_svg_box_of(double *values, size_t count);

/** Legend of `count` series: sample of line, marker and fill with the name. */
void espl_svg_legend(struct espl_buf *out, const char *id, const char *const *names, size_t count);

#endif
