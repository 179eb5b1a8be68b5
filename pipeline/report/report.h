/* Reports of runs: one self-contained HTML page (inline SVG, no script, no network, light and dark,
 * prints on A4), or Markdown, CSV, JSON. Several runs stand side by side. Everything is read from
 * the run records; nothing is measured or computed anew here. */
#ifndef ESPL_REPORT_REPORT_H
#define ESPL_REPORT_REPORT_H

#include "artifact/store.h"
#include "core/buf.h"
#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

enum espl_report_format {
    ESPL_REPORT_HTML,
    ESPL_REPORT_MARKDOWN,
    ESPL_REPORT_JSON, /* schema "espalier.report/1": the run records in one object */
    ESPL_REPORT_CSV   /* one line a figure: run,stage,use,kind,name,layer,module,value */
};

enum {
    ESPL_REPORT_MAX_RUNS = 6, /* as many as can be told apart on one page */
    ESPL_REPORT_MAX_BYTES = 64 << 20
};

/** Whose memory turns bytes into predicted times. */
struct espl_report_device {
    const char *name;
    const char *source; /* of the bandwidth, in words */
    double bandwidth;   /* bytes a second */
};

/** "html", "md", "json", "csv". */
bool espl_report_format_parse(const char *text, enum espl_report_format *out);

/** Renders runs/<run_id>/ of each of the `count` runs (1..ESPL_REPORT_MAX_RUNS) into `out`
 *  (initialised by the caller; what it held stays before). device: for the page only, NULL = no
 *  predicted times. Errors: NOTFOUND for an unknown run,
 *  CORRUPT for a damaged record, VERSION for a newer one, USAGE for a bad count, NOMEM. */
enum espl_status espl_report_render_runs(const struct espl_store *store, const char *const *run_ids,
                                         size_t count, enum espl_report_format format,
                                         const struct espl_report_device *device,
                                         struct espl_buf *out, struct espl_error *err);

/** The HTML page of one run. */
enum espl_status espl_report_render(const struct espl_store *store, const char *run_id,
                                    const struct espl_report_device *device, struct espl_buf *html,
                                    struct espl_error *err);

#endif
