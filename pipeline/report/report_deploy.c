/* Whole passes that deploy-bench measured [UnionSparse, Fig. 13, Fig. 14 and Table IV]: throughput
 * and energy of each runtime, and where a pass's time goes. */
#include "report/report_page.h"

#include "report/html.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Decoding has 64 sequences at most. */
enum { MAX_SHAPES = 64, MAX_BATCHES = 64, MAX_PARTS = 6, MAX_COLUMNS = 3, MAX_FIGURES = 16 };

/* One kind of pass. A point's series is the prefix and a name; its layer is the batch, its module
 * the runtime and, behind a space, the shape ("encoded 64/128") where passes have one. */
struct pass_kind {
    const char *prefix;
    const char *title; /* of a figure */
    struct {
        const char *series;
        const char *deviation; /* series of one standard deviation, or NULL */
        const char *title;
    } columns[MAX_COLUMNS]; /* of the bars */
    struct {
        const char *series;
        const char *title;
    } parts[MAX_PARTS]; /* of a pass, microseconds */
    struct {
        const char *series;
        const char *title;
        double scale;
    } figures[MAX_FIGURES]; /* columns of the table */
};

static const struct pass_kind kinds[] = {
    {.prefix = "decode_",
     .title = "Decoding",
     .columns = {{"tokens_per_second", NULL, "tokens a second"},
                 {"ms_per_token", NULL, "ms a step"},
                 {"j_per_token_net", "j_per_token_deviation", "J a token, net"}},
     .parts = {{"us_products", "products"},
               {"us_attention", "attention and cache"},
               {"us_norms", "norms and quantise"},
               {"us_head", "head"},
               {"us_gaps", "gaps"}},
     .figures = {{"tokens_per_second", "tokens/s", 1.0},
                 {"ms_per_token", "ms a step", 1.0},
                 {"ms_per_token_p95", "p95, ms", 1.0},
                 {"ms_first_token", "first token, ms", 1.0},
                 {"us_products", "products, us", 1.0},
                 {"us_attention", "attention, us", 1.0},
                 {"us_norms", "norms, us", 1.0},
                 {"us_head", "head, us", 1.0},
                 {"us_gaps", "gaps, us", 1.0},
                 {"device_bytes", "memory, GB", 1e-9},
                 {"watts", "W", 1.0},
                 {"j_per_token", "J/token", 1.0},
                 {"j_per_token_net", "J/token, net", 1.0},
                 {"j_per_token_deviation", "+-", 1.0}}},
    {.prefix = "encoder_",
     .title = "Passes of an image model",
     .columns = {{"images_per_second", NULL, "images a second"},
                 {"ms_per_batch", NULL, "ms a batch"},
                 {"j_per_image_net", "j_per_image_deviation", "J an image, net"}},
     .parts = {{"us_products", "products"},
               {"us_attention", "attention"},
               {"us_norms", "norms and quantise"},
               {"us_rest", "rest"}},
     .figures = {{"images_per_second", "images/s", 1.0},
                 {"ms_per_batch", "ms a batch", 1.0},
                 {"ms_per_batch_p95", "p95, ms", 1.0},
                 {"us_products", "products, us", 1.0},
                 {"us_attention", "attention, us", 1.0},
                 {"us_norms", "norms, us", 1.0},
                 {"us_rest", "rest, us", 1.0},
                 {"device_bytes", "GPU memory, GB", 1e-9},
                 {"watts", "W", 1.0},
                 {"j_per_image", "J/image", 1.0},
                 {"j_per_image_net", "J/image, net", 1.0},
                 {"j_per_image_deviation", "+-", 1.0}}},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

bool espl_report_is_deploy_series(const char *series)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (strncmp(series, kinds[i].prefix, strlen(kinds[i].prefix)) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- what was measured ---- */

/* The passes of one kind, stage, run and shape. */
struct passes {
    const struct pass_kind *kind;
    const json_t *points; /* of the stage */
    struct espl_arena *arena;
    const char *shape;  /* "" = none */
    const json_t **own; /* the points of this kind and shape */
    size_t own_count;
    size_t runtime_count, batch_count;
    const char *runtimes[ESPL_SVG_MAX_SERIES]; /* in the order in which they appear */
    unsigned batches[MAX_BATCHES];             /* ascending */
};

/* A point's name behind the prefix; NULL for other points and those without a batch. */
static const char *name_of(const struct pass_kind *kind, const json_t *point)
{
    const char *series = espl_report_text(point, "series");
    const double batch = espl_report_number(point, "layer");
    const bool mine = strncmp(series, kind->prefix, strlen(kind->prefix)) == 0;
    return mine && batch >= 1.0 && batch <= 1e6 ? series + strlen(kind->prefix) : NULL;
}

static const char *shape_of(const json_t *point)
{
    const char *space = strchr(espl_report_text(point, "module"), ' ');
    return space != NULL ? space + 1 : "";
}

static bool is_runtime(const json_t *point, const char *runtime)
{
    const char *module = espl_report_text(point, "module");
    const size_t len = strcspn(module, " ");
    return strlen(runtime) == len && strncmp(module, runtime, len) == 0;
}

/* NaN when it was not measured. */
static double value_at(const struct passes *passes, size_t batch, size_t runtime, const char *name)
{
    for (size_t i = 0; name != NULL && i < passes->own_count; i++) {
        const json_t *point = passes->own[i];
        const char *found = name_of(passes->kind, point);
        if (found != NULL && strcmp(found, name) == 0 &&
            espl_report_number(point, "layer") == (double)passes->batches[batch] &&
            is_runtime(point, passes->runtimes[runtime])) {
            return espl_report_number(point, "value");
        }
    }
    return NAN;
}

static int compare_batches(const void *a, const void *b)
{
    const unsigned left = *(const unsigned *)a;
    const unsigned right = *(const unsigned *)b;
    return (left > right) - (left < right);
}

static bool add_point(struct passes *passes, const json_t *point)
{
    const unsigned batch = (unsigned)espl_report_number(point, "layer");
    size_t at = 0;
    while (at < passes->batch_count && passes->batches[at] != batch) {
        at++;
    }
    if (at == passes->batch_count && at < MAX_BATCHES) {
        passes->batches[passes->batch_count++] = batch;
    }
    at = 0;
    while (at < passes->runtime_count && !is_runtime(point, passes->runtimes[at])) {
        at++;
    }
    if (at < passes->runtime_count || at == ESPL_SVG_MAX_SERIES) {
        return true;
    }
    const char *module = espl_report_text(point, "module");
    const char *runtime =
        espl_arena_printf(passes->arena, "%.*s", (int)strcspn(module, " "), module);
    passes->runtimes[passes->runtime_count++] = runtime;
    return runtime != NULL;
}

/* Points, runtimes and batches of a shape; runtime_count 0: nothing was measured. */
static enum espl_status collect(struct passes *passes, struct espl_error *err)
{
    size_t index;
    const json_t *point;
    passes->own =
        espl_arena_array(passes->arena, json_array_size(passes->points) + 1, sizeof(json_t *));
    bool made = passes->own != NULL;
    json_array_foreach(passes->points, index, point)
    {
        if (made && name_of(passes->kind, point) != NULL &&
            strcmp(shape_of(point), passes->shape) == 0) {
            passes->own[passes->own_count++] = point;
            made = add_point(passes, point);
        }
    }
    if (!made) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the passes of the report");
    }
    qsort(passes->batches, passes->batch_count, sizeof passes->batches[0], compare_batches);
    return ESPL_OK;
}

static size_t collect_shapes(const struct pass_kind *kind, const json_t *points,
                             const char *shapes[MAX_SHAPES])
{
    size_t index;
    size_t count = 0;
    const json_t *point;
    json_array_foreach(points, index, point)
    {
        size_t at = 0;
        while (at < count && strcmp(shapes[at], shape_of(point)) != 0) {
            at++;
        }
        if (name_of(kind, point) != NULL && at == count && count < MAX_SHAPES) {
            shapes[count++] = shape_of(point);
        }
    }
    return count;
}

/* ---- drawings ---- */

static const char *number_text(const struct passes *passes, double value, double deviation)
{
    if (!isfinite(value)) {
        return "-";
    }
    return isfinite(deviation)
               ? espl_arena_printf(passes->arena, "%.3g \xc2\xb1 %.1g", value, deviation)
               : espl_arena_printf(passes->arena, "%.4g", value);
}

/* The columns of which anything was measured. */
static size_t columns_of(const struct passes *passes, size_t columns[MAX_COLUMNS])
{
    size_t count = 0;
    for (size_t c = 0; c < MAX_COLUMNS && passes->kind->columns[c].series != NULL; c++) {
        bool any = false;
        for (size_t i = 0; !any && i < passes->batch_count * passes->runtime_count; i++) {
            any = isfinite(value_at(passes, i / passes->runtime_count, i % passes->runtime_count,
                                    passes->kind->columns[c].series));
        }
        if (any) {
            columns[count++] = c;
        }
    }
    return count;
}

static enum espl_status draw_bars(const struct passes *passes, const struct espl_svg_head *head,
                                  struct espl_buf *out, struct espl_error *err)
{
    size_t columns[MAX_COLUMNS];
    const char *titles[MAX_COLUMNS];
    const char *rows[MAX_BATCHES];
    const size_t column_count = columns_of(passes, columns);
    const size_t cells = passes->batch_count * passes->runtime_count;
    double *values = espl_arena_array(passes->arena, column_count * cells + 1, sizeof *values);
    double *deviations = espl_arena_array(passes->arena, column_count * cells + 1, sizeof *values);
    const char **texts = espl_arena_array(passes->arena, column_count * cells + 1, sizeof *texts);
    bool made = values != NULL && deviations != NULL && texts != NULL;
    for (size_t c = 0; made && c < column_count; c++) {
        titles[c] = passes->kind->columns[columns[c]].title;
        for (size_t i = 0; made && i < cells; i++) {
            const size_t batch = i / passes->runtime_count;
            const size_t runtime = i % passes->runtime_count;
            const size_t at = c * cells + i;
            values[at] = value_at(passes, batch, runtime, passes->kind->columns[columns[c]].series);
            deviations[at] =
                value_at(passes, batch, runtime, passes->kind->columns[columns[c]].deviation);
            texts[at] = number_text(passes, values[at], deviations[at]);
            made = texts[at] != NULL;
        }
    }
    for (size_t i = 0; made && i < passes->batch_count; i++) {
        rows[i] = espl_arena_printf(passes->arena, "batch %u", passes->batches[i]);
        made = rows[i] != NULL;
    }
    if (!made) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a drawing of passes");
    }
    const struct espl_svg_bars chart = {.head = *head,
                                        .row_count = passes->batch_count,
                                        .column_count = column_count,
                                        .series_count = passes->runtime_count,
                                        .rows = rows,
                                        .columns = titles,
                                        .values = values,
                                        .texts = texts,
                                        .deviations = deviations};
    if (column_count > 0) {
        espl_buf_puts(out, "<figure class=\"scroll\">\n");
        espl_svg_bars(out, &chart);
        espl_buf_puts(out, "</figure>\n");
        espl_svg_legend(out, head->id, passes->runtimes, passes->runtime_count);
    }
    return ESPL_OK;
}

static size_t parts_of(const struct pass_kind *kind, const char *names[MAX_PARTS])
{
    size_t count = 0;
    while (count < MAX_PARTS && kind->parts[count].series != NULL) {
        names[count] = kind->parts[count].title;
        count++;
    }
    return count;
}

/* One stacked bar a batch and runtime of which parts are known. */
static enum espl_status draw_breakdown(const struct passes *passes,
                                       const struct espl_svg_head *head, struct espl_buf *out,
                                       struct espl_error *err)
{
    static const char *const heading[] = {"microseconds"};
    const char *names[MAX_PARTS];
    const char *rows[MAX_BATCHES * ESPL_SVG_MAX_SERIES];
    double values[MAX_BATCHES * ESPL_SVG_MAX_SERIES * MAX_PARTS];
    const char *texts[MAX_BATCHES * ESPL_SVG_MAX_SERIES * MAX_PARTS];
    const size_t parts = parts_of(passes->kind, names);
    size_t row = 0;
    for (size_t i = 0; i < passes->batch_count * passes->runtime_count; i++) {
        const size_t batch = i / passes->runtime_count;
        const size_t runtime = i % passes->runtime_count;
        double sum = 0.0;
        for (size_t p = 0; p < parts; p++) {
            const double value = value_at(passes, batch, runtime, passes->kind->parts[p].series);
            values[row * parts + p] = value;
            texts[row * parts + p] = "";
            sum += isfinite(value) && value > 0.0 ? value : 0.0;
        }
        if (sum <= 0.0 || !isfinite(sum)) {
            continue;
        }
        rows[row] = espl_arena_printf(passes->arena, "%u %s", passes->batches[batch],
                                      passes->runtimes[runtime]);
        texts[row * parts] = espl_arena_printf(passes->arena, "%.0f", sum);
        if (rows[row] == NULL || texts[row * parts] == NULL) {
            return espl_fail(err, ESPL_E_NOMEM, "out of memory for a drawing of passes");
        }
        row++;
    }
    const struct espl_svg_bars chart = {.head = *head,
                                        .row_count = row,
                                        .column_count = 1,
                                        .series_count = parts,
                                        .rows = rows,
                                        .columns = heading,
                                        .values = values,
                                        .texts = texts,
                                        .stacked = true};
    if (row > 0) {
        espl_buf_puts(out, "<p class=\"note\">Where the time goes:</p>\n"
                           "<figure class=\"scroll\">\n");
        espl_svg_bars(out, &chart);
        espl_buf_puts(out, "</figure>\n");
        espl_svg_legend(out, head->id, names, parts);
    }
    return ESPL_OK;
}

/* ---- table ---- */

/* Speed-ups are series of their own: "speedup_over_<runtime>". */
static void speedup_cell(const struct passes *passes, size_t batch, size_t runtime, size_t over,
                         struct espl_buf *out)
{
    char name[96];
    (void)snprintf(name, sizeof name, "speedup_over_%s", passes->runtimes[over]);
    const double value = value_at(passes, batch, runtime, name);
    espl_buf_puts(out, "<td class=\"number\">");
    espl_buf_printf(out, isfinite(value) ? "%.3f</td>" : "-</td>", value);
}

static void table_row(const struct passes *passes, size_t batch, size_t runtime,
                      struct espl_buf *out)
{
    espl_buf_printf(out, "<tr><th scope=\"row\" class=\"number\">%u</th>", passes->batches[batch]);
    espl_html_cell(out, NULL, passes->runtimes[runtime]);
    for (size_t f = 0; f < MAX_FIGURES && passes->kind->figures[f].series != NULL; f++) {
        const double value = value_at(passes, batch, runtime, passes->kind->figures[f].series);
        espl_buf_puts(out, "<td class=\"number\">");
        espl_buf_printf(out, isfinite(value) ? "%.4g</td>" : "-</td>",
                        value * passes->kind->figures[f].scale);
    }
    for (size_t over = 1; over < passes->runtime_count; over++) {
        speedup_cell(passes, batch, runtime, over, out);
    }
    espl_buf_puts(out, "</tr>\n");
}

static void table(const struct passes *passes, struct espl_buf *out)
{
    espl_buf_puts(out, "<details><summary>Data table</summary><div class=\"scroll\"><table><thead>"
                       "<tr><th scope=\"col\" class=\"number\">batch</th>"
                       "<th scope=\"col\">runtime</th>");
    for (size_t f = 0; f < MAX_FIGURES && passes->kind->figures[f].series != NULL; f++) {
        espl_html_head(out, "col", "number", passes->kind->figures[f].title);
    }
    for (size_t over = 1; over < passes->runtime_count; over++) {
        espl_buf_puts(out, "<th scope=\"col\" class=\"number\">over ");
        espl_html_text(out, passes->runtimes[over]);
        espl_buf_puts(out, "</th>");
    }
    espl_buf_puts(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < passes->batch_count * passes->runtime_count; i++) {
        table_row(passes, i / passes->runtime_count, i % passes->runtime_count, out);
    }
    espl_buf_puts(out, "</tbody></table></div></details>\n");
}

/* ---- the section ---- */

static enum espl_status draw_shape(const struct espl_report_data *data, size_t run,
                                   const char *stage_id, const struct passes *passes,
                                   struct espl_buf *out, struct espl_error *err)
{
    const bool shaped = passes->shape[0] != '\0';
    const char *what = espl_arena_printf(data->arena, "%s%s%s", passes->kind->title,
                                         shaped ? ", prompt and output " : "", passes->shape);
    const char *title = what != NULL ? espl_report_title(data, run, stage_id, what) : NULL;
    const char *id = espl_arena_printf(data->arena, "passes-%zu", out->len);
    const char *parts_id = espl_arena_printf(data->arena, "parts-%zu", out->len);
    if (title == NULL || id == NULL || parts_id == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a drawing of passes");
    }
    const struct espl_svg_head heads[] = {
        {id, title, "Bars by batch; one series a runtime."},
        {parts_id, title, "Stacked bars: where a pass's time goes, by batch and runtime."}};
    espl_buf_puts(out, "<h3>");
    espl_html_text(out, title);
    espl_buf_puts(out, "</h3>\n");
    enum espl_status status = draw_bars(passes, &heads[0], out, err);
    if (status == ESPL_OK) {
        status = draw_breakdown(passes, &heads[1], out, err);
    }
    table(passes, out);
    return status;
}

static enum espl_status draw_stage(const struct espl_report_data *data, size_t run,
                                   const char *stage_id, bool *open, struct espl_buf *out,
                                   struct espl_error *err)
{
    const json_t *stage = espl_report_stage(&data->runs[run], stage_id);
    const json_t *points = json_object_get(stage, "layer_metrics");
    enum espl_status status = ESPL_OK;
    for (size_t k = 0; status == ESPL_OK && k < KINDS; k++) {
        const char *shapes[MAX_SHAPES];
        const size_t count = collect_shapes(&kinds[k], points, shapes);
        for (size_t s = 0; status == ESPL_OK && s < count; s++) {
            struct passes passes = {
                .kind = &kinds[k], .points = points, .arena = data->arena, .shape = shapes[s]};
            espl_buf_puts(out, *open ? "" : "<h2 id=\"passes\">Whole passes on the device</h2>\n");
            *open = true;
            status = collect(&passes, err);
            if (status == ESPL_OK) {
                status = draw_shape(data, run, stage_id, &passes, out, err);
            }
        }
    }
    return status;
}

enum espl_status espl_report_deploy(const struct espl_report_data *data, struct espl_buf *out,
                                    struct espl_error *err)
{
    return espl_report_each_stage(data, draw_stage, out, err);
}
