#include "report/report_page.h"

#include "report/figure_text.h"
#include "report/html.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void espl_report_run_heads(const struct espl_report_data *data, struct espl_buf *out)
{
    for (size_t i = 0; i < data->run_count; ++i) {
        espl_html_head(out, "col", "number", data->run_count == 1 ? "value" : data->runs[i].name);
    }
}

/* ---- expectations ---- */

static void expectation_row(const struct espl_report_data *data, size_t run, const json_t *item,
                            struct espl_buf *out)
{
    char text[ESPL_FIGURE_TEXT];
    char label[96];
    const char *metric = espl_report_text(item, "metric");
    const bool ok = json_is_true(json_object_get(item, "ok"));
    espl_buf_puts(out, "<tr>");
    if (data->run_count > 1) {
        espl_html_cell(out, NULL, data->runs[run].name);
    }
    espl_html_cell(out, NULL, espl_report_text(item, "stage"));
    espl_figure_label(metric, label, sizeof label);
    espl_html_cell(out, NULL, label);
    static const char *const figures[] = {"min", "max", "value"};
    const char *unit = espl_figure_unit(metric);
    for (size_t i = 0; i < 3; ++i) {
        const double figure = espl_report_number(item, figures[i]);
        espl_figure_value(metric, figure, text);
        espl_buf_puts(out, "<td class=\"number\">");
        if (isfinite(figure)) {
            espl_html_textf(out, "%s%s%s", text, unit[0] != '\0' ? " " : "", unit);
        }
        espl_buf_puts(out, "</td>");
    }
    const bool measured = isfinite(espl_report_number(item, "value"));
    espl_html_cell(out, ok ? "word good" : "word fail",
                   ok         ? "\xE2\x9C\x93 held"
                   : measured ? "\xE2\x9C\x97 failed"
                              : "\xE2\x9C\x97 not measured");
    espl_buf_puts(out, "</tr>\n");
}

void espl_report_expectations(const struct espl_report_data *data, struct espl_buf *out)
{
    size_t count = 0;
    for (size_t i = 0; i < data->run_count; ++i) {
        count += json_array_size(json_object_get(data->runs[i].record, "expectations"));
    }
    if (count == 0) {
        return;
    }
    espl_buf_printf(out,
                    "<h2 id=\"expectations\">Expectations</h2>\n<div class=\"scroll\"><table>"
                    "<thead><tr>%s<th scope=\"col\">stage</th><th scope=\"col\">metric</th>"
                    "<th scope=\"col\" class=\"number\">at least</th>"
                    "<th scope=\"col\" class=\"number\">at most</th>"
                    "<th scope=\"col\" class=\"number\">measured</th>"
                    "<th scope=\"col\">verdict</th></tr></thead><tbody>\n",
                    data->run_count > 1 ? "<th scope=\"col\">run</th>" : "");
    for (size_t i = 0; i < data->run_count; ++i) {
        size_t index;
        const json_t *item;
        json_array_foreach(json_object_get(data->runs[i].record, "expectations"), index, item)
        {
            expectation_row(data, i, item, out);
        }
    }
    espl_buf_puts(out, "</tbody></table></div>\n");
}

/* ---- dense beside compressed ---- */

static const json_t *quality_of(const struct espl_report_data *data, size_t run, const char *id)
{
    const json_t *stage = espl_report_stage(&data->runs[run], id);
    const json_t *metrics = json_object_get(stage, "metrics");
    const bool both = json_is_number(json_object_get(metrics, "perplexity")) &&
                      json_is_number(json_object_get(metrics, "perplexity_base"));
    return both ? metrics : NULL;
}

static void quality_row(const struct espl_report_data *data, size_t run, const char *stage_id,
                        const json_t *metrics, struct espl_buf *out)
{
    static const char *const names[] = {
        "perplexity_base", "perplexity", "perplexity_ratio", "kl", "windows", "sequence_length"};
    espl_buf_puts(out, "<tr>");
    espl_html_head(out, "row", NULL, stage_id);
    if (data->run_count > 1) {
        espl_html_cell(out, NULL, data->runs[run].name);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {
        char text[ESPL_FIGURE_TEXT];
        char grouped[ESPL_FIGURE_TEXT];
        espl_figure_value(names[i], espl_report_number(metrics, names[i]), text);
        espl_html_group_digits(text, grouped, sizeof grouped);
        espl_html_cell(out, "number", grouped);
    }
    espl_buf_puts(out, "</tr>\n");
}

void espl_report_quality(const struct espl_report_data *data, struct espl_buf *out)
{
    bool open = false;
    for (size_t i = 0; i < data->stage_count; ++i) {
        for (size_t run = 0; run < data->run_count; ++run) {
            const json_t *metrics = quality_of(data, run, data->stage_ids[i]);
            if (metrics == NULL) {
                continue;
            }
            if (!open) {
                espl_buf_printf(
                    out,
                    "<h2 id=\"quality\">Quality, compressed beside dense</h2>\n"
                    "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">stage</th>%s"
                    "<th scope=\"col\" class=\"number\">perplexity, dense</th>"
                    "<th scope=\"col\" class=\"number\">perplexity, compressed</th>"
                    "<th scope=\"col\" class=\"number\">ratio</th>"
                    "<th scope=\"col\" class=\"number\">KL divergence, nats per token</th>"
                    "<th scope=\"col\" class=\"number\">windows</th>"
                    "<th scope=\"col\" class=\"number\">tokens a window</th></tr></thead>"
                    "<tbody>\n",
                    data->run_count > 1 ? "<th scope=\"col\">run</th>" : "");
                open = true;
            }
            quality_row(data, run, data->stage_ids[i], metrics, out);
        }
    }
    if (open) {
        espl_buf_puts(out, "</tbody></table></div>\n<p class=\"note\">Perplexity: mean over whole "
                           "windows without overlap; what is left of the text after the last "
                           "window is not counted.</p>\n");
    }
}

/* ---- all metrics ---- */

static void metric_row(const struct espl_report_data *data, const char *stage_id,
                       const char *member, const char *metric, bool first, struct espl_buf *out)
{
    char text[96];
    espl_buf_puts(out, "<tr>");
    espl_html_head(out, "row", NULL, first ? stage_id : "");
    espl_figure_label(metric, text, sizeof text);
    espl_buf_puts(out, "<td>");
    espl_html_text(out, text);
    espl_buf_puts(out, strcmp(member, "volatile_metrics") == 0 ? " \xE2\x80\xA0</td>" : "</td>");
    for (size_t run = 0; run < data->run_count; ++run) {
        const json_t *stage = espl_report_stage(&data->runs[run], stage_id);
        char value[ESPL_FIGURE_TEXT];
        char grouped[ESPL_FIGURE_TEXT];
        espl_figure_value(metric, espl_report_number(json_object_get(stage, member), metric),
                          value);
        espl_html_group_digits(value, grouped, sizeof grouped);
        espl_html_cell(out, "number", grouped);
    }
    espl_html_cell(out, NULL, espl_figure_unit(metric));
    espl_buf_puts(out, "</tr>\n");
}

void espl_report_metrics(const struct espl_report_data *data, struct espl_buf *out)
{
    static const char *const members[] = {"metrics", "volatile_metrics"};
    bool any_volatile = false;
    bool any = false;
    espl_buf_puts(out, "<h2 id=\"metrics\">Metrics</h2>\n");
    for (size_t i = 0; i < data->stage_count; ++i) {
        bool first = true;
        for (size_t j = 0; j < 2; ++j) {
            size_t count;
            const char **names =
                espl_report_member_names(data, data->stage_ids[i], members[j], &count);
            for (size_t k = 0; k < count; ++k) {
                if (!any) {
                    espl_buf_puts(out,
                                  "<div class=\"scroll\"><table class=\"grouped\"><thead>"
                                  "<tr><th scope=\"col\">stage</th><th scope=\"col\">metric</th>");
                    espl_report_run_heads(data, out);
                    espl_buf_puts(out, "<th scope=\"col\">unit</th></tr></thead>\n");
                }
                espl_buf_puts(out, first ? "<tbody>" : "");
                metric_row(data, data->stage_ids[i], members[j], names[k], first, out);
                any = true;
                first = false;
                any_volatile = any_volatile || j == 1;
            }
        }
        espl_buf_puts(out, first ? "" : "</tbody>\n");
    }
    espl_buf_puts(out,
                  any ? "</table></div>\n" : "<p class=\"soft\">No stage reported metrics.</p>\n");
    if (any_volatile) {
        espl_buf_puts(out, "<p class=\"note\">\xE2\x80\xA0 measured on this machine: differs "
                           "between equal runs.</p>\n");
    }
}

/* ---- environment and differences ---- */

static void environment_text(const json_t *value, char *out, size_t out_size)
{
    if (json_is_object(value)) {
        char *dump = json_dumps(value, JSON_COMPACT | JSON_SORT_KEYS);
        (void)snprintf(out, out_size, "%s", dump != NULL ? dump : "");
        free(dump);
    } else {
        espl_figure_param(value, out, out_size);
    }
}

/* Rows of the environment; only those in which the runs differ when `differing`. Returns how many.
 */
static size_t environment_rows(const struct espl_report_data *data, bool differing,
                               struct espl_buf *out)
{
    size_t rows = 0;
    const char *name;
    json_t *first;
    json_object_foreach(json_object_get(data->runs[0].record, "environment"), name, first)
    {
        bool equal = true;
        for (size_t i = 1; i < data->run_count; ++i) {
            const json_t *other = json_object_get(data->runs[i].record, "environment");
            equal = equal && json_equal(first, json_object_get(other, name));
        }
        if (differing && equal) {
            continue;
        }
        char label[96];
        espl_figure_label(name, label, sizeof label);
        espl_buf_puts(out, "<tr>");
        espl_html_head(out, "row", NULL, label);
        for (size_t i = 0; i < data->run_count; ++i) {
            char text[512];
            const json_t *environment = json_object_get(data->runs[i].record, "environment");
            environment_text(json_object_get(environment, name), text, sizeof text);
            espl_html_cell(out, "wide", text);
        }
        espl_buf_puts(out, "</tr>\n");
        ++rows;
    }
    return rows;
}

static void table_of_runs(const struct espl_report_data *data, const char *what,
                          struct espl_buf *out)
{
    espl_buf_puts(out, "<div class=\"scroll\"><table><thead><tr>");
    espl_html_head(out, "col", NULL, what);
    for (size_t i = 0; i < data->run_count; ++i) {
        espl_html_head(out, "col", NULL, data->run_count == 1 ? "value" : data->runs[i].name);
    }
    espl_buf_puts(out, "</tr></thead><tbody>\n");
}

void espl_report_environment(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_puts(out, "<h2 id=\"environment\">Environment</h2>\n");
    table_of_runs(data, "fact", out);
    (void)environment_rows(data, false, out);
    espl_buf_puts(out, "</tbody></table></div>\n");
}

static size_t parameter_rows(const struct espl_report_data *data, const char *stage_id,
                             struct espl_buf *out)
{
    size_t rows = 0;
    size_t count;
    const char **names = espl_report_member_names(data, stage_id, "params", &count);
    for (size_t i = 0; i < count; ++i) {
        const json_t *first = json_object_get(
            json_object_get(espl_report_stage(&data->runs[0], stage_id), "params"), names[i]);
        bool equal = true;
        for (size_t run = 1; run < data->run_count; ++run) {
            const json_t *other = json_object_get(
                json_object_get(espl_report_stage(&data->runs[run], stage_id), "params"), names[i]);
            equal = equal && json_equal(first, other);
        }
        if (equal) {
            continue;
        }
        espl_buf_puts(out, "<tr><th scope=\"row\">");
        espl_html_textf(out, "%s.%s", stage_id, names[i]);
        espl_buf_puts(out, "</th>");
        for (size_t run = 0; run < data->run_count; ++run) {
            char text[512];
            const json_t *stage = espl_report_stage(&data->runs[run], stage_id);
            espl_figure_param(json_object_get(json_object_get(stage, "params"), names[i]), text,
                              sizeof text);
            espl_html_cell(out, "wide", text[0] != '\0' ? text : "-");
        }
        espl_buf_puts(out, "</tr>\n");
        ++rows;
    }
    return rows;
}

void espl_report_differences(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_puts(out, "<h2 id=\"differences\">What differs</h2>\n");
    table_of_runs(data, "parameter or fact", out);
    size_t rows = 0;
    for (size_t i = 0; i < data->stage_count; ++i) {
        rows += parameter_rows(data, data->stage_ids[i], out);
    }
    rows += environment_rows(data, true, out);
    if (rows == 0) {
        espl_buf_printf(out,
                        "<tr><td colspan=\"%zu\">Nothing: same parameters, same environment.</td>"
                        "</tr>\n",
                        data->run_count + 1);
    }
    espl_buf_puts(out, "</tbody></table></div>\n");
}
