/* The style sheet of report pages: system fonts, one measure, light and dark, A4 in print. */
#ifndef ESPL_REPORT_REPORT_STYLE_H
#define ESPL_REPORT_REPORT_STYLE_H

/** CSS in pieces, ends with NULL; without '<' and '&', so that it stands in a <style> element of
 * HTML and XML alike. */
extern const char *const espl_report_style[];

#endif
