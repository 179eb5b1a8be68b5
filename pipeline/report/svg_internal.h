/* Shared by the drawings: head and tail of an <svg>, markers, fill patterns. */
#ifndef ESPL_REPORT_SVG_INTERNAL_H
#define ESPL_REPORT_SVG_INTERNAL_H

#include "report/svg.h"

/** Opens an <svg> of ESPL_SVG_WIDTH x height with title and desc. */
void espl_svg_open(struct espl_buf *out, const struct espl_svg_head *head, double height);
void espl_svg_close(struct espl_buf *out);
/** <defs> with the fill patterns of series 1..count-1; series 0 is filled plainly. */
void espl_svg_patterns(struct espl_buf *out, const char *id, size_t count);
/** A bar of series `series` in drawing `id`. */
void espl_svg_bar(struct espl_buf *out, const char *id, size_t series, double x, double y,
                  double width, double height);
/** The marker of series `series` at (x, y), with a tooltip when tip is not NULL. */
void espl_svg_marker(struct espl_buf *out, size_t series, double x, double y, const char *tip);

#endif
