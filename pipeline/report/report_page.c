#include "report/report_page.h"

#include "core/units.h"
#include "engine/run_record.h"
#include "report/figure_text.h"
#include "report/html.h"
#include "report/report_style.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void page_start(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_puts(out, "<!DOCTYPE html>\n"
                       "<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
                       "<meta charset=\"utf-8\"/>\n"
                       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                       "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>");
    if (data->run_count == 1) {
        espl_html_text(out, espl_report_text(data->runs[0].record, "job"));
        espl_buf_puts(out, ": run report");
    } else {
        espl_html_textf(out, "%zu runs compared", data->run_count);
    }
    espl_buf_puts(out, "</title>\n<style>\n");
    for (const char *const *piece = espl_svg_style; *piece != NULL; ++piece) {
        espl_buf_puts(out, *piece);
    }
    for (const char *const *piece = espl_report_style; *piece != NULL; ++piece) {
        espl_buf_puts(out, *piece);
    }
    espl_buf_puts(out, "</style>\n</head>\n<body>\n<main>\n");
}

struct verdict_words {
    const char *status;
    const char *word;
    const char *advice;
};

static const struct verdict_words verdicts[] = {
    {"ok", "\xE2\x9C\x93 ok", ""},
    {"failed", "\xE2\x9C\x97 failed", ""},
    {"expectation", "\xE2\x9C\x97 expectation failed", ""},
    {"interrupted", "\xE2\x97\xBC interrupted",
     "What was finished is kept: the same command continues."},
    {"running", "\xE2\x80\xA6 running", "This page shows the state at the time it was written."},
    {"died", "\xE2\x9C\x97 died",
     "The process ended without a word. What was finished is kept: the same command continues."},
};

static void verdict(const struct espl_report_run *run, bool name_it, struct espl_buf *out)
{
    const char *status = espl_run_status(run->record);
    const struct verdict_words *words = &verdicts[1];
    for (size_t i = 0; i < sizeof verdicts / sizeof verdicts[0]; ++i) {
        words = strcmp(verdicts[i].status, status) == 0 ? &verdicts[i] : words;
    }
    const bool good = espl_report_is_good(run->record);
    espl_buf_printf(out, "<div class=\"verdict%s\"><p class=\"word%s\">", good ? "" : " bad",
                    good ? " good" : "");
    if (name_it) {
        espl_html_textf(out, "%s: ", run->name);
    }
    espl_buf_puts(out, words->word);
    espl_buf_puts(out, "</p><p>");
    espl_report_verdict(run->record, out);
    espl_buf_printf(out, ".%s%s</p></div>\n", words->advice[0] != '\0' ? " " : "", words->advice);
}

static void fact(struct espl_buf *out, const char *name, const char *text)
{
    if (text[0] != '\0') {
        espl_buf_puts(out, "<div><dt>");
        espl_html_text(out, name);
        espl_buf_puts(out, "</dt><dd>");
        espl_html_text(out, text);
        espl_buf_puts(out, "</dd></div>\n");
    }
}

static void header_of_one(const struct espl_report_run *run, struct espl_buf *out)
{
    const json_t *record = run->record;
    char text[ESPL_FIGURE_TEXT];
    espl_buf_puts(out, "<header>\n<p class=\"over\">espalier run report</p>\n<h1>");
    espl_html_text(out, espl_report_text(record, "job"));
    espl_buf_puts(out, "</h1>\n");
    verdict(run, false, out);
    espl_buf_puts(out, "<dl class=\"facts\">\n");
    espl_figure_time(espl_report_text(record, "started_utc"), text);
    fact(out, "started", text);
    espl_figure_value("seconds", espl_report_number(record, "seconds"), text);
    fact(out, "took", text);
    fact(out, "device", espl_report_text(record, "device"));
    fact(out, "host", espl_report_text(record, "host"));
    const json_t *seed = json_object_get(record, "seed");
    espl_figure_param(seed, text, sizeof text);
    fact(out, "seed", text);
    fact(out, "job file", espl_report_text(record, "job_file"));
    fact(out, "run", run->run_id);
    fact(out, "command", espl_report_text(record, "command_line"));
    espl_buf_puts(out, "</dl>\n</header>\n");
}

static void header_of_many(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_printf(out,
                    "<header>\n<p class=\"over\">espalier run report</p>\n"
                    "<h1>%zu runs compared</h1>\n",
                    data->run_count);
    const char *names[ESPL_SVG_MAX_SERIES];
    for (size_t i = 0; i < data->run_count; ++i) {
        verdict(&data->runs[i], true, out);
        names[i] =
            espl_arena_printf(data->arena, "%s, %s", data->runs[i].name, data->runs[i].run_id);
        names[i] = names[i] != NULL ? names[i] : data->runs[i].run_id;
    }
    espl_buf_puts(out, "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">run</th>"
                       "<th scope=\"col\">job</th><th scope=\"col\">started</th>"
                       "<th scope=\"col\" class=\"number\">took</th><th scope=\"col\">host</th>"
                       "<th scope=\"col\">run id</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < data->run_count; ++i) {
        const json_t *record = data->runs[i].record;
        char text[ESPL_FIGURE_TEXT];
        espl_buf_puts(out, "<tr>");
        espl_html_head(out, "row", NULL, data->runs[i].name);
        espl_html_cell(out, NULL, espl_report_text(record, "job"));
        espl_figure_time(espl_report_text(record, "started_utc"), text);
        espl_html_cell(out, NULL, text);
        espl_figure_value("seconds", espl_report_number(record, "seconds"), text);
        espl_html_cell(out, "number", text);
        espl_html_cell(out, NULL, espl_report_text(record, "host"));
        espl_html_cell(out, "wide", data->runs[i].run_id);
        espl_buf_puts(out, "</tr>\n");
    }
    espl_buf_puts(out, "</tbody></table></div>\n<p class=\"note\">In the drawings:</p>\n");
    espl_svg_legend(out, "runs", names, data->run_count);
    espl_buf_puts(out, "</header>\n");
}

static void trouble(struct espl_buf *out, const char *css_class, const char *what,
                    const char *message, const char *context, const char *hint)
{
    espl_buf_printf(out, "<div class=\"trouble%s\"><p><strong>", css_class);
    espl_html_text(out, what);
    espl_buf_puts(out, "</strong> ");
    espl_html_text(out, message);
    espl_buf_puts(out, "</p>");
    if (context[0] != '\0') {
        espl_buf_puts(out, "<p class=\"soft\">");
        espl_html_text(out, context);
        espl_buf_puts(out, "</p>");
    }
    if (hint[0] != '\0') {
        espl_buf_puts(out, "<p>Help: ");
        espl_html_text(out, hint);
        espl_buf_puts(out, "</p>");
    }
    espl_buf_puts(out, "</div>\n");
}

static size_t errors_of_run(const struct espl_report_run *run, const char *run_name,
                            struct espl_buf *out)
{
    size_t count = 0;
    size_t index;
    const json_t *stage;
    json_array_foreach(json_object_get(run->record, "stages"), index, stage)
    {
        const json_t *error = json_object_get(stage, "error");
        if (json_is_object(error)) {
            char what[160];
            (void)snprintf(what, sizeof what, "Error in '%s'%s:", espl_report_text(stage, "id"),
                           run_name);
            trouble(out, "", what, espl_report_text(error, "message"),
                    espl_report_text(error, "context"), espl_report_text(error, "hint"));
            ++count;
        }
    }
    return count;
}

static size_t warnings_of_run(const struct espl_report_run *run, const char *run_name,
                              struct espl_buf *out)
{
    size_t count = 0;
    size_t index;
    const json_t *stage;
    json_array_foreach(json_object_get(run->record, "stages"), index, stage)
    {
        size_t line;
        const json_t *warning;
        json_array_foreach(json_object_get(stage, "warnings"), line, warning)
        {
            char what[160];
            (void)snprintf(what, sizeof what, "Warning in '%s'%s:", espl_report_text(stage, "id"),
                           run_name);
            const char *text = json_string_value(warning);
            trouble(out, " warning", what, text != NULL ? text : "", "", "");
            ++count;
        }
    }
    return count;
}

static bool any_stage_failed(const struct espl_report_data *data)
{
    for (size_t i = 0; i < data->run_count; ++i) {
        size_t index;
        const json_t *stage;
        json_array_foreach(json_object_get(data->runs[i].record, "stages"), index, stage)
        {
            if (json_is_object(json_object_get(stage, "error"))) {
                return true;
            }
        }
    }
    return false;
}

static void troubles(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_puts(out, "<h2 id=\"trouble\">Errors and warnings</h2>\n");
    size_t count = 0;
    for (size_t i = 0; i < data->run_count; ++i) {
        char run_name[32] = "";
        if (data->run_count > 1) {
            (void)snprintf(run_name, sizeof run_name, ", run %s", data->runs[i].name);
        }
        count += errors_of_run(&data->runs[i], run_name, out);
        count += warnings_of_run(&data->runs[i], run_name, out);
    }
    if (count == 0) {
        espl_buf_puts(out, "<p class=\"soft\">None.</p>\n");
    }
}

static void jobs(const struct espl_report_data *data, struct espl_buf *out)
{
    espl_buf_puts(out, "<h2 id=\"job\">Resolved job</h2>\n<p class=\"note\">As it ran: defaults "
                       "and overrides written out. It is a job file by itself.</p>\n");
    for (size_t i = 0; i < data->run_count; ++i) {
        const struct espl_report_run *run = &data->runs[i];
        if (data->run_count > 1) {
            espl_buf_puts(out, "<details><summary>");
            espl_html_textf(out, "%s, %s", run->name, run->run_id);
            espl_buf_puts(out, "</summary>");
        }
        if (run->job_yaml != NULL) {
            espl_buf_puts(out, "<pre>");
            espl_html_text(out, run->job_yaml);
            espl_buf_puts(out, "</pre>\n");
        } else {
            espl_buf_puts(out, "<p class=\"soft\">The run keeps no job.yaml.</p>\n");
        }
        if (data->run_count > 1) {
            espl_buf_puts(out, "</details>\n");
        }
    }
}

static void page_end(const struct espl_report_data *data, struct espl_buf *out)
{
    const json_t *environment = json_object_get(data->runs[0].record, "environment");
    espl_buf_puts(out, "<footer><p>Written by espalier ");
    espl_html_text(out, espl_report_text(environment, "tool_version"));
    espl_buf_puts(out, " from the run record. This page needs no network and no script.</p>"
                       "</footer>\n</main>\n</body>\n</html>\n");
}

const char *espl_report_title(const struct espl_report_data *data, size_t run, const char *stage_id,
                              const char *what)
{
    return espl_arena_printf(data->arena, "%s, stage %s%s%s", what, stage_id,
                             data->run_count > 1 ? ", run " : "",
                             data->run_count > 1 ? data->runs[run].name : "");
}

enum espl_status espl_report_each_stage(
    const struct espl_report_data *data,
    enum espl_status (*draw)(const struct espl_report_data *data, size_t run, const char *stage_id,
                             bool *open, struct espl_buf *out, struct espl_error *err),
    struct espl_buf *out, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    bool open = false;
    for (size_t i = 0; status == ESPL_OK && i < data->stage_count; ++i) {
        for (size_t run = 0; status == ESPL_OK && run < data->run_count; ++run) {
            status = draw(data, run, data->stage_ids[i], &open, out, err);
        }
    }
    return status;
}

enum espl_status espl_report_page(struct espl_report_data *data, struct espl_buf *out,
                                  struct espl_error *err)
{
    const bool many = data->run_count > 1;
    page_start(data, out);
    if (many) {
        header_of_many(data, out);
    } else {
        header_of_one(&data->runs[0], out);
    }
    espl_report_expectations(data, out);
    const bool failed = any_stage_failed(data);
    if (failed) {
        troubles(data, out); /* what went wrong is what the reader came for */
    }
    espl_report_quality(data, out);
    enum espl_status status = espl_report_tradeoff(data, out, err);
    if (status == ESPL_OK) {
        status = espl_report_search(data, out, err);
    }
    espl_report_bytes(data, out);
    if (status == ESPL_OK) {
        status = espl_report_bench(data, out, err);
    }
    if (status == ESPL_OK) {
        status = espl_report_deploy(data, out, err);
    }
    if (status == ESPL_OK) {
        status = espl_report_predicted(data, out, err);
    }
    espl_report_metrics(data, out);
    if (status == ESPL_OK) {
        status = espl_report_times(data, out, err);
    }
    if (status == ESPL_OK) {
        status = espl_report_layer_figures(data, out, err);
    }
    if (status == ESPL_OK && !failed) {
        troubles(data, out);
    }
    if (many) {
        espl_report_differences(data, out);
    }
    for (size_t i = 0; i < data->run_count && status == ESPL_OK; ++i) {
        status = espl_report_provenance(data, i, out, err);
    }
    espl_report_environment(data, out);
    jobs(data, out);
    page_end(data, out);
    return status;
}
