/* Bytes of quantised and encoded models, from what their stages reported. */
#include "report/report_page.h"

#include "report/figure_text.h"
#include "report/html.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Figures of a stage and of a layer, under the same names. Those that nobody reported are "-". The
 * last one of a model follows from its layers. */
static const char *const figures[] = {
    "bits_per_weight", "dense_bytes", "payload_bytes", "padding_bytes", "metadata_bytes",
    "scale_bytes",     "pmr",         "pmr_effective", "intensity"};
enum { FIGURES = sizeof figures / sizeof figures[0] };

bool espl_report_is_bytes_series(const char *series)
{
    static const char tail[] = "_bytes";
    const size_t len = strlen(series);
    const size_t tail_len = sizeof tail - 1;
    return strcmp(series, "pmr") == 0 || strcmp(series, "intensity") == 0 ||
           (len > tail_len && strcmp(series + len - tail_len, tail) == 0);
}

/* What a model takes in all: encoded, or as packed codes. NaN when the stage says neither. */
static double model_bytes(const json_t *metrics)
{
    const double encoded = espl_report_number(metrics, "encoded_bytes");
    return isfinite(encoded) ? encoded : espl_report_number(metrics, "quantised_bytes");
}

static void figure_cell(struct espl_buf *out, const char *name, double value)
{
    char text[ESPL_FIGURE_TEXT];
    espl_figure_value(name, value, text);
    espl_html_cell(out, "number", text);
}

/* Finer than durations elsewhere: layers differ by parts of a microsecond. */
static void time_cell(struct espl_buf *out, double seconds)
{
    char text[ESPL_FIGURE_TEXT] = "-";
    if (isfinite(seconds)) {
        (void)snprintf(text, sizeof text, seconds < 1e-3 ? "%.1f us" : "%.2f ms",
                       seconds * (seconds < 1e-3 ? 1e6 : 1e3));
    }
    espl_html_cell(out, "number", text);
}

/* Bytes and time, which both tables begin with. */
static void size_cells(const struct espl_report_data *data, double bytes, struct espl_buf *out)
{
    figure_cell(out, "encoded_bytes", bytes);
    if (data->device != NULL) {
        time_cell(out, bytes / data->device->bandwidth);
    }
}

static void heads(const struct espl_report_data *data, const char *first, bool name_run,
                  struct espl_buf *out)
{
    static const char *const titles[FIGURES] = {"bits",   "dense", "payload",  "zeros", "masks",
                                                "scales", "PMR",   "eff. PMR", "op/B"};
    espl_buf_puts(out, "<div class=\"scroll\"><table><thead><tr>");
    espl_html_head(out, "col", NULL, first);
    if (name_run) {
        espl_html_head(out, "col", NULL, "run");
    }
    espl_html_head(out, "col", "number", "bytes");
    if (data->device != NULL) {
        espl_html_head(out, "col", "number", "time");
    }
    for (size_t i = 0; i < FIGURES; ++i) {
        espl_html_head(out, "col", "number", titles[i]);
    }
    espl_buf_puts(out, "</tr></thead><tbody>\n");
}

static double layer_figure(const json_t *layer_metrics, const char *module, const char *series)
{
    size_t index;
    const json_t *item;
    json_array_foreach(layer_metrics, index, item)
    {
        if (strcmp(espl_report_text(item, "series"), series) == 0 &&
            strcmp(espl_report_text(item, "module"), module) == 0) {
            return espl_report_number(item, "value");
        }
    }
    return (double)NAN;
}

/* Operations of all layers over their bytes: payload stands for operations, of which a layer has as
 * many a byte of it as any other. NaN when a layer does not say. */
static double model_intensity(const json_t *layer_metrics)
{
    double operations = 0.0;
    double bytes = 0.0;
    size_t index;
    const json_t *item;
    json_array_foreach(layer_metrics, index, item)
    {
        if (strcmp(espl_report_text(item, "series"), "payload_bytes") == 0) {
            const double payload = espl_report_number(item, "value");
            operations += payload;
            bytes += payload /
                     layer_figure(layer_metrics, espl_report_text(item, "module"), "intensity");
        }
    }
    return bytes > 0.0 ? operations / bytes : (double)NAN;
}

static void model_row(const struct espl_report_data *data, size_t run, const char *stage_id,
                      const json_t *metrics, struct espl_buf *out)
{
    const json_t *layers =
        json_object_get(espl_report_stage(&data->runs[run], stage_id), "layer_metrics");
    espl_buf_puts(out, "<tr>");
    espl_html_head(out, "row", "nowrap", stage_id);
    if (data->run_count > 1) {
        espl_html_cell(out, NULL, data->runs[run].name);
    }
    size_cells(data, model_bytes(metrics), out);
    for (size_t i = 0; i + 1 < FIGURES; ++i) {
        figure_cell(out, figures[i], espl_report_number(metrics, figures[i]));
    }
    figure_cell(out, figures[FIGURES - 1], model_intensity(layers));
    espl_buf_puts(out, "</tr>\n");
}

/* ---- layers ---- */

/* One row a module that has encoded bytes. */
static void layer_table(const struct espl_report_data *data, size_t run, const char *stage_id,
                        struct espl_buf *out)
{
    const json_t *metrics =
        json_object_get(espl_report_stage(&data->runs[run], stage_id), "layer_metrics");
    size_t index;
    const json_t *item;
    size_t rows = 0;
    json_array_foreach(metrics, index, item)
    {
        if (strcmp(espl_report_text(item, "series"), "encoded_bytes") != 0) {
            continue;
        }
        if (rows++ == 0) {
            espl_buf_puts(out, "<details><summary>Layers of ");
            espl_html_textf(out, "'%s'%s%s", stage_id, data->run_count > 1 ? ", run " : "",
                            data->run_count > 1 ? data->runs[run].name : "");
            espl_buf_puts(out, "</summary>");
            heads(data, "layer", false, out);
        }
        const char *module = espl_report_text(item, "module");
        espl_buf_puts(out, "<tr>");
        espl_html_head(out, "row", NULL, module);
        size_cells(data, espl_report_number(item, "value"), out);
        for (size_t i = 0; i < FIGURES; ++i) {
            figure_cell(out, figures[i], layer_figure(metrics, module, figures[i]));
        }
        espl_buf_puts(out, "</tr>\n");
    }
    espl_buf_puts(out, rows > 0 ? "</tbody></table></div></details>\n" : "");
}

static void notes(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_puts(
        out,
        "<p class=\"note\">Linears of the blocks. Bits: a weight, all counted. Dense: the same "
        "codes without masks, scales too. Payload: bits of weights that are not 0; zeros: "
        "those that are stored; masks: with offsets and orders; scales: with outliers. "
        "PMR: payload to masks; effective: to masks and stored zeros. op/B: operations a byte with "
        "one column of activations.");
    if (data->device != NULL) {
        espl_html_textf(out,
                        " Time: what reading the bytes once takes at %.1f GB/s (%s: %s); no "
                        "product of one token can be faster there.",
                        data->device->bandwidth * 1e-9, data->device->name, data->device->source);
    }
    espl_buf_puts(out, "</p>\n");
}

void espl_report_bytes(const struct espl_report_data *data, struct espl_buf *out)
{
    bool open = false;
    for (size_t i = 0; i < data->stage_count; ++i) {
        for (size_t run = 0; run < data->run_count; ++run) {
            const json_t *stage = espl_report_stage(&data->runs[run], data->stage_ids[i]);
            const json_t *metrics = json_object_get(stage, "metrics");
            if (!isfinite(model_bytes(metrics))) {
                continue;
            }
            if (!open) {
                espl_buf_puts(out, "<h2 id=\"bytes\">Bytes and predicted time</h2>\n");
                heads(data, "stage", data->run_count > 1, out);
                open = true;
            }
            model_row(data, run, data->stage_ids[i], metrics, out);
        }
    }
    if (!open) {
        return;
    }
    espl_buf_puts(out, "</tbody></table></div>\n");
    notes(data, out);
    for (size_t i = 0; i < data->stage_count; ++i) {
        for (size_t run = 0; run < data->run_count; ++run) {
            layer_table(data, run, data->stage_ids[i], out);
        }
    }
}
