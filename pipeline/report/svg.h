/* Charts as inline SVG: bars, per-layer panels, a dependency drawing. Each has <title> and <desc>;
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

/** Horizontal bars: `column_count` panels side by side over common rows, `series_count` bars a row.
 *  values, texts: [column][row][series], row-major; a NaN value draws only its text. */
struct espl_svg_bars {
    struct espl_svg_head head;
    size_t row_count, column_count, series_count;
    const char *const *rows;
    const char *const *columns; /* panel headings with units */
    const double *values;       /* >= 0 */
    const char *const *texts;   /* beside the bars */
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

/** Legend of `count` series: sample of line, marker and fill with the name. */
void espl_svg_legend(struct espl_buf *out, const char *id, const char *const *names, size_t count);

#endif
