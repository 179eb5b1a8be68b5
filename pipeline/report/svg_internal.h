/* Shared by the drawings: head and tail of an <svg>, markers, fill patterns. */
#ifndef ESPL_REPORT_SVG_INTERNAL_H
#define ESPL_REPORT_SVG_INTERNAL_H

#include "report/svg.h"

/** Opens an <svg> of ESPL_SVG_WIDTH x height with title and desc. */
void espl_svg_open(struct espl_buf *out, const struct espl_svg_head *head, double height);
void espl_svg_close(struct espl_buf *out);
enum { ESPL_SVG_TITLE = 22 }; /* height of the title of a drawing that stands alone */
/** Style sheet, ground and title of a drawing in a file of its own: what a page would give. Opens a
 *  <g> for the rest, ESPL_SVG_TITLE below the top; the caller closes it. */
void espl_svg_start_standalone(struct espl_buf *out, const struct espl_svg_head *head,
                               double height, double left);
/** <defs> with the fill patterns of series 1..count-1; series 0 is filled plainly. */
void espl_svg_patterns(struct espl_buf *out, const char *id, size_t count);
/** A bar of series `series` in drawing `id`. */
void espl_svg_bar(struct espl_buf *out, const char *id, size_t series, double x, double y,
                  double width, double height);
/** The marker of series `series` at (x, y), with a tooltip when tip is not NULL. */
void espl_svg_marker(struct espl_buf *out, size_t series, double x, double y, const char *tip);

#endif
