#include "report/report_page.h"

#include "core/units.h"
#include "report/bench_figures.h"
#include "report/figure_text.h"
#include "report/html.h"
#include "report/svg.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static enum espl_status out_of_memory(struct espl_error *err)
{
    return espl_fail(err, ESPL_E_NOMEM, "out of memory for the drawings of the report");
}

/* ---- stage times and memory ---- */

static void time_table_row(const struct espl_report_data *data, size_t run, const char *stage_id,
                           struct espl_buf *out)
{
    const json_t *stage = espl_report_stage(&data->runs[run], stage_id);
    char text[ESPL_FIGURE_TEXT];
    espl_buf_puts(out, "<tr>");
    espl_html_head(out, "row", NULL, stage_id);
    if (data->run_count > 1) {
        espl_html_cell(out, NULL, data->runs[run].name);
    }
    espl_html_cell(out, NULL, espl_report_text(stage, "use"));
    const char *state = espl_report_text(stage, "state");
    espl_html_cell(out, strcmp(state, "failed") == 0 ? "word fail" : NULL, state);
    static const char *const names[] = {"seconds", "peak_rss_bytes", "output_bytes"};
    for (size_t i = 0; i < 3; ++i) {
        const double value = espl_report_number(stage, names[i]);
        espl_figure_value(names[i], value > 0.0 ? value : (double)NAN, text);
        espl_html_cell(out, "number", text);
    }
    espl_html_cell(out, "wide", espl_report_text(stage, "why"));
    espl_buf_puts(out, "</tr>\n");
}

static void time_table(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_printf(out,
                    "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">stage</th>%s"
                    "<th scope=\"col\">use</th><th scope=\"col\">state</th>"
                    "<th scope=\"col\" class=\"number\">time</th>"
                    "<th scope=\"col\" class=\"number\">peak memory</th>"
                    "<th scope=\"col\" class=\"number\">result</th>"
                    "<th scope=\"col\">why</th></tr></thead><tbody>\n",
                    data->run_count > 1 ? "<th scope=\"col\">run</th>" : "");
    for (size_t i = 0; i < data->stage_count; ++i) {
        for (size_t run = 0; run < data->run_count; ++run) {
            if (espl_report_stage(&data->runs[run], data->stage_ids[i]) != NULL) {
                time_table_row(data, run, data->stage_ids[i], out);
            }
        }
    }
    espl_buf_puts(out, "</tbody></table></div>\n");
}

enum espl_status espl_report_times(const struct espl_report_data *data, struct espl_buf *out,
                                   struct espl_error *err)
{
    static const char *const members[] = {"seconds", "peak_rss_bytes"};
    static const char *const columns[] = {"time", "peak memory of the stage's process"};
    const size_t count = 2 * data->stage_count * data->run_count;
    double *values = espl_arena_array(data->arena, count, sizeof *values);
    const char **texts = espl_arena_array(data->arena, count, sizeof *texts);
    espl_buf_puts(out, "<h2 id=\"stages\">Stages: time and memory</h2>\n");
    if (values == NULL || texts == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < count; ++i) {
        const size_t column = i / (data->stage_count * data->run_count);
        const char *id = data->stage_ids[i / data->run_count % data->stage_count];
        const json_t *stage = espl_report_stage(&data->runs[i % data->run_count], id);
        const double value = espl_report_number(stage, members[column]);
        const char *state = stage == NULL ? "not in this run" : espl_report_text(stage, "state");
        const bool ran = value > 0.0 && strcmp(state, "cached") != 0;
        char text[ESPL_FIGURE_TEXT];
        espl_figure_value(members[column], value, text);
        values[i] = ran ? value : (double)NAN;
        texts[i] = ran ? espl_arena_strdup(data->arena, text) : column == 0 ? state : "";
        if (texts[i] == NULL) {
            return out_of_memory(err);
        }
    }
    const struct espl_svg_bars chart = {
        .head = {.id = "times",
                 .title = "Time and peak memory of each stage",
                 .desc = "Horizontal bars, one row a stage, time at the left and peak memory at "
                         "the right. The table below holds the same figures."},
        .row_count = data->stage_count,
        .column_count = 2,
        .series_count = data->run_count,
        .rows = data->stage_ids,
        .columns = columns,
        .values = values,
        .texts = texts,
    };
    espl_buf_puts(out, "<figure class=\"scroll\">\n");
    espl_svg_bars(out, &chart);
    espl_buf_puts(out, "</figure>\n");
    time_table(data, out);
    return ESPL_OK;
}

/* ---- layers ---- */

struct layer_figures {
    const struct espl_report_data *data;
    struct espl_buf *out;
    size_t count;
};

static void layer_table(const struct espl_report_data *data,
                        const struct espl_report_layers *layers, struct espl_buf *out)
{
    const char *unit = espl_figure_unit(layers->series);
    const bool narrow = layers->module_count * data->run_count < 5;
    espl_buf_printf(out,
                    "<details><summary>Data table%s%s</summary><div class=\"scroll\"><table%s>"
                    "<thead><tr><th scope=\"col\" class=\"number\">layer</th>",
                    unit[0] != '\0' ? ", in " : "", unit, narrow ? " class=\"narrow\"" : "");
    for (size_t module = 0; module < layers->module_count; ++module) {
        for (size_t run = 0; run < data->run_count; ++run) {
            char text[192];
            (void)snprintf(text, sizeof text, "%s%s%s", layers->modules[module],
                           data->run_count > 1 ? " " : "",
                           data->run_count > 1 ? data->runs[run].name : "");
            espl_html_head(out, "col", "number", text);
        }
    }
    espl_buf_puts(out, "</tr></thead><tbody>\n");
    for (size_t layer = 0; layer < layers->layer_count; ++layer) {
        espl_buf_printf(out, "<tr><th scope=\"row\" class=\"number\">%zu</th>", layer);
        for (size_t i = 0; i < layers->module_count * data->run_count; ++i) {
            char text[ESPL_FIGURE_TEXT];
            espl_figure_value(layers->series, layers->values[i * layers->layer_count + layer],
                              text);
            espl_html_cell(out, "number", text);
        }
        espl_buf_puts(out, "</tr>\n");
    }
    espl_buf_puts(out, "</tbody></table></div></details>\n");
}

/* "50.00 %", or "0.12 to 0.53" over all layers and runs of a module. */
static const char *range_text(const struct espl_report_data *data,
                              const struct espl_report_layers *layers, size_t module)
{
    double low = (double)NAN;
    double high = (double)NAN;
    const size_t count = data->run_count * layers->layer_count;
    for (size_t i = 0; i < count; ++i) {
        const double value = layers->values[module * count + i];
        low = isfinite(value) && !(low <= value) ? value : low;
        high = isfinite(value) && !(high >= value) ? value : high;
    }
    char low_text[ESPL_FIGURE_TEXT];
    char high_text[ESPL_FIGURE_TEXT];
    const char *unit = espl_figure_unit(layers->series);
    const char *space = unit[0] != '\0' ? " " : "";
    espl_figure_value(layers->series, low, low_text);
    espl_figure_value(layers->series, high, high_text);
    const char *text =
        strcmp(low_text, high_text) == 0
            ? espl_arena_printf(data->arena, "%s%s%s", low_text, space, unit)
            : espl_arena_printf(data->arena, "%s to %s%s%s", low_text, high_text, space, unit);
    return text != NULL ? text : "";
}

static enum espl_status layer_figure(void *user, const struct espl_report_layers *layers,
                                     struct espl_error *err)
{
    struct layer_figures *figures = user;
    const struct espl_report_data *data = figures->data;
    struct espl_buf *out = figures->out;
    const char **remarks = espl_arena_array(data->arena, layers->module_count, sizeof *remarks);
    char label[96];
    char id[32];
    char title[256];
    if (espl_report_is_bytes_series(layers->series) ||
        espl_report_is_search_series(layers->series) || espl_bench_is_series(layers->series) ||
        espl_report_is_deploy_series(layers->series) ||
        espl_report_is_predicted_series(layers->series)) {
        return ESPL_OK;
    }
    if (remarks == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < layers->module_count; ++i) {
        remarks[i] = range_text(data, layers, i);
    }
    espl_figure_label(layers->series, label, sizeof label);
    (void)snprintf(id, sizeof id, "layers-%zu", figures->count);
    (void)snprintf(title, sizeof title, "%s by layer, stage %s", label, layers->stage_id);
    if (figures->count++ == 0) {
        espl_buf_puts(out, "<h2 id=\"layers\">Layer by layer</h2>\n");
    }
    const struct espl_svg_layers chart = {
        .head = {.id = id,
                 .title = title,
                 .desc = "One panel a module, from the first layer at the left to the last at the "
                         "right, all panels on one vertical scale that starts at 0. The range of "
                         "each module stands at its right. The data table follows."},
        .panel_count = layers->module_count,
        .series_count = data->run_count,
        .layer_count = layers->layer_count,
        .shares = strcmp(espl_figure_unit(layers->series), "%") == 0,
        .panels = layers->modules,
        .remarks = remarks,
        .values = layers->values,
    };
    espl_buf_puts(out, "<h3>");
    espl_html_textf(out, "%s, stage '%s'", label, layers->stage_id);
    espl_buf_puts(out, "</h3>\n<figure class=\"scroll\">\n");
    espl_svg_layers(out, &chart);
    espl_buf_puts(out, "</figure>\n");
    layer_table(data, layers, out);
    return ESPL_OK;
}

enum espl_status espl_report_layer_figures(const struct espl_report_data *data,
                                           struct espl_buf *out, struct espl_error *err)
{
    struct layer_figures figures = {.data = data, .out = out, .count = 0};
    return espl_report_each_layers(data, layer_figure, &figures, err);
}

/* ---- provenance ---- */

static size_t find_stage(const json_t *stages, const char *id)
{
    size_t index;
    const json_t *stage;
    json_array_foreach(stages, index, stage)
    {
        if (strcmp(espl_report_text(stage, "id"), id) == 0) {
            return index;
        }
    }
    return SIZE_MAX;
}

static bool make_node(const struct espl_report_data *data, const json_t *stages, size_t index,
                      struct espl_svg_node *node)
{
    const json_t *stage = json_array_get(stages, index);
    const json_t *inputs = json_object_get(stage, "inputs");
    size_t *sources = espl_arena_array(data->arena, json_array_size(inputs) + 1, sizeof *sources);
    size_t count = 0;
    for (size_t i = 0; sources != NULL && i < json_array_size(inputs); ++i) {
        const size_t source =
            find_stage(stages, espl_report_text(json_array_get(inputs, i), "stage"));
        if (source < index) {
            sources[count++] = source;
        }
    }
    node->label = espl_report_text(stage, "id");
    node->detail = espl_report_text(stage, "use");
    node->remark =
        espl_arena_printf(data->arena, "%s   %s", espl_report_text(stage, "state"),
                          espl_report_short_key(data->arena, espl_report_text(stage, "key")));
    node->inputs = sources;
    node->input_count = count;
    return sources != NULL && node->remark != NULL;
}

static void recipe_inputs(const struct espl_report_data *data, const json_t *stage,
                          struct espl_buf *out)
{
    size_t index;
    const json_t *input;
    espl_buf_puts(out, "<td class=\"nowrap\">");
    json_array_foreach(json_object_get(stage, "inputs"), index, input)
    {
        const char *from = espl_report_text(input, "stage");
        espl_buf_puts(out, index > 0 ? "<br/>" : "");
        espl_html_textf(out, "%s: %s ", espl_report_text(input, "port"),
                        from[0] != '\0' ? from : espl_report_text(input, "file"));
        espl_buf_puts(out, "<code class=\"soft\">");
        espl_html_text(out, espl_report_short_key(data->arena, espl_report_text(input, "key")));
        espl_buf_puts(out, "</code>");
    }
    espl_buf_puts(out, "</td>");
}

static void recipe_row(const struct espl_report_data *data, const json_t *stage,
                       struct espl_buf *out)
{
    espl_buf_puts(out, "<tr>");
    espl_html_head(out, "row", NULL, espl_report_text(stage, "id"));
    espl_html_cell(out, "nowrap", espl_report_text(stage, "use"));
    recipe_inputs(data, stage, out);
    espl_buf_puts(out, "<td class=\"wide\">");
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(stage, "params"), name, value)
    {
        char text[512];
        if (json_is_null(value)) {
            continue; /* an optional parameter that was left out */
        }
        espl_figure_param(value, text, sizeof text);
        espl_buf_puts(out, "<span class=\"pair\"><span class=\"soft\">");
        espl_html_text(out, name);
        espl_buf_puts(out, "</span> ");
        espl_html_text(out, text);
        espl_buf_puts(out, "</span> ");
    }
    espl_buf_puts(out, "</td><td><code>");
    espl_html_text(out, espl_report_short_key(data->arena, espl_report_text(stage, "key")));
    espl_buf_puts(out, "</code></td></tr>\n");
}

enum espl_status espl_report_provenance(const struct espl_report_data *data, size_t run,
                                        struct espl_buf *out, struct espl_error *err)
{
    const json_t *stages = json_object_get(data->runs[run].record, "stages");
    const size_t count = json_array_size(stages);
    struct espl_svg_node *nodes = espl_arena_array(data->arena, count + 1, sizeof *nodes);
    char id[32];
    if (nodes == NULL) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < count; ++i) {
        if (!make_node(data, stages, i, &nodes[i])) {
            return out_of_memory(err);
        }
    }
    if (run == 0) {
        espl_buf_puts(out, "<h2 id=\"provenance\">Provenance</h2>\n");
    }
    if (data->run_count > 1) {
        espl_buf_puts(out, "<h3>");
        espl_html_textf(out, "%s, %s", data->runs[run].name, data->runs[run].run_id);
        espl_buf_puts(out, "</h3>\n");
    }
    (void)snprintf(id, sizeof id, "graph-%zu", run);
    const struct espl_svg_graph graph = {
        .head = {.id = id,
                 .title = "What each stage was made from",
                 .desc = "Stages from top to bottom in order of execution; lines lead from each "
                         "result to the stages that read it. The table below names the inputs."},
        .node_count = count,
        .nodes = nodes,
    };
    espl_buf_puts(out, "<figure class=\"scroll\">\n");
    espl_svg_graph(out, &graph);
    espl_buf_puts(out, "<figcaption>Results flow downwards. The last column is the start of the "
                       "recipe key; <code>espalier inspect KEY</code> shows the "
                       "artifact.</figcaption></figure>\n"
                       "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">stage</th>"
                       "<th scope=\"col\">use</th><th scope=\"col\">inputs</th>"
                       "<th scope=\"col\">parameters</th><th scope=\"col\">key</th></tr></thead>"
                       "<tbody>\n");
    for (size_t i = 0; i < count; ++i) {
        recipe_row(data, json_array_get(stages, i), out);
    }
    espl_buf_puts(out, "</tbody></table></div>\n");
    return ESPL_OK;
}
