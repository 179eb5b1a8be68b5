#include "report/report.h"

#include "report/report_data.h"
#include "report/report_page.h"
#include "report/report_plain.h"

#include <string.h>

bool espl_report_format_parse(const char *text, enum espl_report_format *out)
{
    static const char *const names[] = {"html", "md", "json", "csv"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        if (strcmp(names[i], text) == 0) {
            *out = (enum espl_report_format)i;
            return true;
        }
    }
    return false;
}

enum espl_status espl_report_render_runs(const struct espl_store *store, const char *const *run_ids,
                                         size_t count, enum espl_report_format format,
                                         const struct espl_report_device *device,
                                         struct espl_buf *out, struct espl_error *err)
{
    struct espl_report_data data;
    enum espl_status status = espl_report_data_load(store, run_ids, count, &data, err);
    data.device = device;
    if (status == ESPL_OK) {
        switch (format) {
        case ESPL_REPORT_HTML:
            status = espl_report_page(&data, out, err);
            break;
        case ESPL_REPORT_MARKDOWN:
            status = espl_report_markdown(&data, out, err);
            break;
        case ESPL_REPORT_JSON:
            status = espl_report_json(&data, out, err);
            break;
        case ESPL_REPORT_CSV:
            espl_report_csv(&data, out);
            break;
        }
    }
    if (status == ESPL_OK) {
        status = espl_buf_check(out, "the report", err);
    }
    espl_report_data_free(&data);
    return status;
}

enum espl_status espl_report_render(const struct espl_store *store, const char *run_id,
                                    const struct espl_report_device *device, struct espl_buf *html,
                                    struct espl_error *err)
{
    return espl_report_render_runs(store, &run_id, 1, ESPL_REPORT_HTML, device, html, err);
}
