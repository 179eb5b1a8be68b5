/* The style sheet of report pages: system fonts, one measure, light and dark, A4 in print. */
#ifndef ESPL_REPORT_REPORT_STYLE_H
#define ESPL_REPORT_REPORT_STYLE_H

/** CSS in pieces, end with NULL; without '<' and '&', so that they stand in a <style> element of
 * HTML and XML alike. A page has both; a drawing in a file of its own has the first. */
extern const char *const espl_svg_style[];
extern const char *const espl_report_style[];

#endif
