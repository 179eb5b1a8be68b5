/* The report as Markdown, JSON and CSV. Private to pipeline/report. */
#ifndef ESPL_REPORT_REPORT_PLAIN_H
#define ESPL_REPORT_REPORT_PLAIN_H

#include "report/report_data.h"

/** Errors: NOMEM and CORRUPT as espl_report_each_layers(). */
enum espl_status espl_report_markdown(const struct espl_report_data *data, struct espl_buf *out,
                                      struct espl_error *err);
/** {"schema": "espalier.report/1", "runs": [run records]} */
enum espl_status espl_report_json(const struct espl_report_data *data, struct espl_buf *out,
                                  struct espl_error *err);
/** RFC 4180 with a head line; full precision. */
void espl_report_csv(const struct espl_report_data *data, struct espl_buf *out);

#endif
