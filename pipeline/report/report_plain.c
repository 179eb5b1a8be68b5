#include "report/report_plain.h"

#include "core/units.h"
#include "engine/run_record.h"
#include "report/figure_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Markdown ---- */

/* Text of a table cell: what would end the cell, start markup or break the line is escaped. */
static void add_cell(struct espl_buf *out, const char *text)
{
    espl_buf_puts(out, " ");
    for (const char *c = text; *c != '\0'; ++c) {
        if (strchr("|\\`*_<>[]&", *c) != NULL) {
            espl_buf_puts(out, "\\");
        }
        espl_buf_add(out, *c == '\n' || *c == '\r' ? " " : c, 1);
    }
    espl_buf_puts(out, " |");
}

static void add_figure(struct espl_buf *out, const char *metric, double value)
{
    char text[ESPL_FIGURE_TEXT];
    espl_figure_value(metric, value, text);
    const char *unit = espl_figure_unit(metric);
    if (isfinite(value) && unit[0] != '\0') {
        const size_t len = strlen(text);
        (void)snprintf(text + len, sizeof text - len, " %s", unit);
    }
    add_cell(out, text);
}

static void add_heads(const struct espl_report_data *data, const char *lead, struct espl_buf *out)
{
    espl_buf_puts(out, lead);
    for (size_t i = 0; i < data->run_count; ++i) {
        add_cell(out, data->run_count == 1 ? "value" : data->runs[i].name);
    }
    espl_buf_puts(out, "\n|---|---|");
    for (size_t i = 0; i < data->run_count; ++i) {
        espl_buf_puts(out, "---:|");
    }
    espl_buf_puts(out, "\n");
}

static void markdown_runs(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_puts(out, "| run | job | verdict | stages and expectations | started | took | id |\n"
                       "|---|---|---|---|---|---:|---|\n");
    for (size_t i = 0; i < data->run_count; ++i) {
        const json_t *record = data->runs[i].record;
        struct espl_buf words;
        char text[ESPL_FIGURE_TEXT];
        espl_buf_init(&words, 4096);
        espl_report_verdict(record, &words);
        espl_buf_puts(out, "|");
        add_cell(out, data->run_count == 1 ? "1" : data->runs[i].name);
        add_cell(out, espl_report_text(record, "job"));
        add_cell(out, espl_run_status(record));
        add_cell(out, espl_buf_text(&words));
        espl_figure_time(espl_report_text(record, "started_utc"), text);
        add_cell(out, text);
        add_figure(out, "seconds", espl_report_number(record, "seconds"));
        add_cell(out, data->runs[i].run_id);
        espl_buf_puts(out, "\n");
        espl_buf_free(&words);
    }
}

static void markdown_expectations(const struct espl_report_data *data, struct espl_buf *out)
{
    bool open = false;
    for (size_t i = 0; i < data->run_count; ++i) {
        size_t index;
        const json_t *item;
        json_array_foreach(json_object_get(data->runs[i].record, "expectations"), index, item)
        {
            const char *metric = espl_report_text(item, "metric");
            espl_buf_puts(out, open ? ""
                                    : "\n## Expectations\n\n| run | stage | metric | at least | at "
                                      "most | measured | verdict |\n|---|---|---|---:|---:|---:|"
                                      "---|\n");
            open = true;
            espl_buf_puts(out, "|");
            add_cell(out, data->run_count == 1 ? "1" : data->runs[i].name);
            add_cell(out, espl_report_text(item, "stage"));
            add_cell(out, metric);
            add_figure(out, metric, espl_report_number(item, "min"));
            add_figure(out, metric, espl_report_number(item, "max"));
            add_figure(out, metric, espl_report_number(item, "value"));
            add_cell(out, json_is_true(json_object_get(item, "ok")) ? "held" : "failed");
            espl_buf_puts(out, "\n");
        }
    }
}

/* What running a stage took; NaN when it did not run, of which the record says 0. */
static double stage_figure(const json_t *stage, const char *name)
{
    const double value = espl_report_number(stage, name);
    return value > 0.0 ? value : (double)NAN;
}

/* A table with a row for every (stage, member name): metrics, or times and sizes of the stages. */
static void markdown_metrics(const struct espl_report_data *data, struct espl_buf *out)
{
    static const char *const members[] = {"metrics", "volatile_metrics"};
    espl_buf_puts(out, "\n## Metrics\n\n");
    add_heads(data, "| stage | metric |", out);
    for (size_t i = 0; i < data->stage_count * 2; ++i) {
        const char *id = data->stage_ids[i / 2];
        size_t count;
        const char **names = espl_report_member_names(data, id, members[i % 2], &count);
        for (size_t k = 0; k < count; ++k) {
            espl_buf_puts(out, "|");
            add_cell(out, id);
            add_cell(out, names[k]);
            for (size_t run = 0; run < data->run_count; ++run) {
                const json_t *stage = espl_report_stage(&data->runs[run], id);
                add_figure(out, names[k],
                           espl_report_number(json_object_get(stage, members[i % 2]), names[k]));
            }
            espl_buf_puts(out, "\n");
        }
    }
    espl_buf_puts(out, "\n## Stages\n\n");
    add_heads(data, "| stage | figure |", out);
    static const char *const figures[] = {"seconds", "peak_rss_bytes", "output_bytes"};
    for (size_t i = 0; i < data->stage_count * 3; ++i) {
        const char *id = data->stage_ids[i / 3];
        espl_buf_puts(out, "|");
        add_cell(out, id);
        add_cell(out, figures[i % 3]);
        for (size_t run = 0; run < data->run_count; ++run) {
            add_figure(out, figures[i % 3],
                       stage_figure(espl_report_stage(&data->runs[run], id), figures[i % 3]));
        }
        espl_buf_puts(out, "\n");
    }
}

static void markdown_troubles(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_puts(out, "\n## Errors and warnings\n\n| run | stage | what | text |\n"
                       "|---|---|---|---|\n");
    for (size_t i = 0; i < data->run_count; ++i) {
        size_t index;
        const json_t *stage;
        json_array_foreach(json_object_get(data->runs[i].record, "stages"), index, stage)
        {
            const json_t *error = json_object_get(stage, "error");
            const json_t *warnings = json_object_get(stage, "warnings");
            const size_t count = json_array_size(warnings) + (json_is_object(error) ? 1 : 0);
            for (size_t j = 0; j < count; ++j) {
                const bool warning = j < json_array_size(warnings);
                const char *text = warning ? json_string_value(json_array_get(warnings, j))
                                           : espl_report_text(error, "message");
                espl_buf_puts(out, "|");
                add_cell(out, data->run_count == 1 ? "1" : data->runs[i].name);
                add_cell(out, espl_report_text(stage, "id"));
                add_cell(out, warning ? "warning" : "error");
                add_cell(out, text != NULL ? text : "");
                espl_buf_puts(out, "\n");
            }
        }
    }
}

struct markdown_layers {
    const struct espl_report_data *data;
    struct espl_buf *out;
};

static enum espl_status markdown_layers(void *user, const struct espl_report_layers *layers,
                                        struct espl_error *err)
{
    const struct markdown_layers *target = user;
    struct espl_buf *out = target->out;
    (void)err; /* the buffer remembers failures */
    espl_buf_printf(out, "\n## Layer by layer: %s, stage %s\n\n| layer |", layers->series,
                    layers->stage_id);
    for (size_t i = 0; i < layers->module_count * target->data->run_count; ++i) {
        const size_t run = i % target->data->run_count;
        espl_buf_printf(out, " %s%s%s |", layers->modules[i / target->data->run_count],
                        target->data->run_count > 1 ? " " : "",
                        target->data->run_count > 1 ? target->data->runs[run].name : "");
    }
    espl_buf_puts(out, "\n|---:|");
    for (size_t i = 0; i < layers->module_count * target->data->run_count; ++i) {
        espl_buf_puts(out, "---:|");
    }
    for (size_t layer = 0; layer < layers->layer_count; ++layer) {
        espl_buf_printf(out, "\n| %zu |", layer);
        for (size_t i = 0; i < layers->module_count * target->data->run_count; ++i) {
            add_figure(out, layers->series, layers->values[i * layers->layer_count + layer]);
        }
    }
    espl_buf_puts(out, "\n");
    return ESPL_OK;
}

static void markdown_environment(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_puts(out, "\n## Environment\n\n| run | fact | value |\n|---|---|---|\n");
    for (size_t i = 0; i < data->run_count; ++i) {
        const char *name;
        json_t *value;
        json_object_foreach(json_object_get(data->runs[i].record, "environment"), name, value)
        {
            char text[512];
            espl_figure_param(value, text, sizeof text);
            espl_buf_puts(out, "|");
            add_cell(out, data->run_count == 1 ? "1" : data->runs[i].name);
            add_cell(out, name);
            add_cell(out, text);
            espl_buf_puts(out, "\n");
        }
    }
}

enum espl_status espl_report_markdown(const struct espl_report_data *data, struct espl_buf *out,
                                      struct espl_error *err)
{
    if (data->run_count == 1) {
        espl_buf_printf(out, "# Run report: %s\n\n", espl_report_text(data->runs[0].record, "job"));
    } else {
        espl_buf_printf(out, "# %zu runs compared\n\n", data->run_count);
    }
    markdown_runs(data, out);
    markdown_expectations(data, out);
    markdown_metrics(data, out);
    struct markdown_layers layers = {.data = data, .out = out};
    const enum espl_status status = espl_report_each_layers(data, markdown_layers, &layers, err);
    markdown_troubles(data, out);
    markdown_environment(data, out);
    for (size_t i = 0; i < data->run_count; ++i) {
        if (data->runs[i].job_yaml != NULL) {
            espl_buf_printf(out, "\n## Resolved job of %s\n\n````yaml\n%s````\n",
                            data->runs[i].run_id, data->runs[i].job_yaml);
        }
    }
    return status;
}

/* ---- JSON ---- */

enum espl_status espl_report_json(const struct espl_report_data *data, struct espl_buf *out,
                                  struct espl_error *err)
{
    json_t *report = json_pack("{s:s, s:[]}", "schema", "espalier.report/1", "runs");
    json_t *runs = json_object_get(report, "runs");
    bool ok = report != NULL;
    for (size_t i = 0; i < data->run_count && ok; ++i) {
        ok = json_array_append(runs, data->runs[i].record) == 0;
    }
    char *text = ok ? json_dumps(report, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(report);
    if (text == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the report as JSON");
    }
    espl_buf_puts(out, text);
    espl_buf_puts(out, "\n");
    free(text);
    return ESPL_OK;
}

/* ---- CSV ---- */

static void add_field(struct espl_buf *out, const char *text, const char *end)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        espl_buf_puts(out, text);
    } else {
        espl_buf_puts(out, "\"");
        for (const char *c = text; *c != '\0'; ++c) {
            espl_buf_puts(out, *c == '"' ? "\"" : "");
            espl_buf_add(out, c, 1);
        }
        espl_buf_puts(out, "\"");
    }
    espl_buf_puts(out, end);
}

static void csv_line(struct espl_buf *out, const struct espl_report_run *run, const json_t *stage,
                     const char *kind, const char *name, const json_t *layer, double value)
{
    char text[ESPL_UNIT_TEXT] = "";
    if (!isfinite(value)) {
        return;
    }
    add_field(out, run->run_id, ",");
    add_field(out, espl_report_text(stage, "id"), ",");
    add_field(out, espl_report_text(stage, "use"), ",");
    add_field(out, kind, ",");
    add_field(out, name, ",");
    if (layer != NULL) {
        espl_buf_printf(out, "%lld",
                        (long long)json_integer_value(json_object_get(layer, "layer")));
    }
    espl_buf_puts(out, ",");
    add_field(out, layer != NULL ? espl_report_text(layer, "module") : "", ",");
    espl_print_real(value, text);
    add_field(out, text, "\n");
}

void espl_report_csv(const struct espl_report_data *data, struct espl_buf *out)
{
    static const char *const members[][2] = {{"metrics", "metric"},
                                             {"volatile_metrics", "volatile"}};
    static const char *const figures[] = {"seconds", "peak_rss_bytes", "output_bytes"};
    espl_buf_puts(out, "run,stage,use,kind,name,layer,module,value\n");
    for (size_t i = 0; i < data->run_count; ++i) {
        const struct espl_report_run *run = &data->runs[i];
        size_t index;
        const json_t *stage;
        json_array_foreach(json_object_get(run->record, "stages"), index, stage)
        {
            for (size_t j = 0; j < sizeof figures / sizeof figures[0]; ++j) {
                csv_line(out, run, stage, "stage", figures[j], NULL,
                         stage_figure(stage, figures[j]));
            }
            for (size_t j = 0; j < 2; ++j) {
                const char *name;
                json_t *value;
                json_object_foreach(json_object_get(stage, members[j][0]), name, value)
                {
                    csv_line(out, run, stage, members[j][1], name, NULL,
                             json_is_number(value) ? json_number_value(value) : (double)NAN);
                }
            }
            size_t line;
            const json_t *layer;
            json_array_foreach(json_object_get(stage, "layer_metrics"), line, layer)
            {
                csv_line(out, run, stage, "layer", espl_report_text(layer, "series"), layer,
                         espl_report_number(layer, "value"));
            }
        }
    }
}
