/* Plots of `espalier bench nm`: speed-ups over the libraries by number of tokens, a drawing for
 * each pair of times, a box for each N [realizable N:M, Fig. 6], and every case's figures beside
 * them. */
#include "cli/bench_nm.h"
#include "cli/plot_file.h"
#include "core/fs.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = 16 << 20, MOST_GROUPS = 32 };

struct plot {
    const struct espl_nm_bench_run *run;
    size_t tokens[MOST_GROUPS]; /* ascending */
    size_t group_count;
    char groups[MOST_GROUPS][24];
    char series[ESPL_NM_BENCH_KEPT + 1][ESPL_NM_BENCH_NAME];
    size_t series_count;
    struct espl_svg_box boxes[MOST_GROUPS * (ESPL_NM_BENCH_KEPT + 1)];
};

/* Numbers of tokens in ascending order; what has no room is not drawn, and stays in the CSV. */
static void find_groups(struct plot *plot)
{
    for (size_t i = 0; i < plot->run->report_count; i++) {
        const size_t tokens = plot->run->reports[i].item.tokens;
        size_t at = 0;
        while (at < plot->group_count && plot->tokens[at] < tokens) {
            at++;
        }
        const bool known = at < plot->group_count && plot->tokens[at] == tokens;
        if (known || plot->group_count == MOST_GROUPS) {
            continue;
        }
        memmove(&plot->tokens[at + 1], &plot->tokens[at],
                (plot->group_count - at) * sizeof plot->tokens[0]);
        plot->tokens[at] = tokens;
        plot->group_count++;
    }
    for (size_t g = 0; g < plot->group_count; g++) {
        (void)snprintf(plot->groups[g], sizeof plot->groups[g], "%zu", plot->tokens[g]);
    }
    plot->series_count = plot->run->options.kept_count + 1;
    for (size_t k = 0; k < plot->series_count; k++) {
        espl_nm_bench_kept_name(plot->run, k, plot->series[k]);
    }
}

/* The boxes of a ratio; returns how many values there are. values: room for one a case. */
static size_t fill_boxes(struct plot *plot, size_t ratio, double *values)
{
    size_t all = 0;
    for (size_t g = 0; g < plot->group_count; g++) {
        for (size_t k = 0; k < plot->series_count; k++) {
            size_t count = 0;
            for (size_t i = 0; i < plot->run->report_count; i++) {
                const struct espl_nm_bench_report *report = &plot->run->reports[i];
                const double value = espl_nm_bench_speedup(report, k, ratio);
                if (report->item.tokens == plot->tokens[g] && isfinite(value)) {
                    values[count++] = value;
                }
            }
            plot->boxes[g * plot->series_count + k] = espl_svg_box_of(values, count);
            all += count;
        }
    }
    return all;
}

/* "speedup-f16-over-lt-i32": letters, digits and '-' of the ratio's title. */
static void name_file(size_t ratio, char name[64])
{
    size_t len = (size_t)snprintf(name, 64, "speedup-");
    for (const char *c = espl_nm_bench_ratio_name(ratio); *c != '\0' && len < 50; c++) {
        if (*c == '/') {
            memcpy(name + len, "over", 4);
            len += 4;
        } else {
            name[len++] = *c == ' ' || *c == '+' ? '-' : *c;
        }
    }
    name[len] = '\0';
}

static enum espl_status draw_ratio(struct plot *plot, size_t ratio, const char *folder,
                                   struct espl_buf *content, struct espl_error *err)
{
    const char *groups[MOST_GROUPS];
    const char *series[ESPL_NM_BENCH_KEPT + 1];
    char file[80];
    char name[64];
    char title[128];
    for (size_t g = 0; g < plot->group_count; g++) {
        groups[g] = plot->groups[g];
    }
    for (size_t k = 0; k < plot->series_count; k++) {
        series[k] = plot->series[k];
    }
    name_file(ratio, name);
    (void)snprintf(title, sizeof title, "Speed-up, %s", espl_nm_bench_ratio_name(ratio));
    const struct espl_svg_boxes chart = {
        .head = {name, title, "box plots over the shapes, by number of tokens"},
        .x_label = "tokens",
        .y_label = "times faster",
        .group_count = plot->group_count,
        .series_count = plot->series_count,
        .groups = groups,
        .series = series,
        .boxes = plot->boxes,
        .reference = 1.0,
        .standalone = true};
    espl_svg_boxes(content, &chart);
    (void)snprintf(file, sizeof file, "%s.svg", name);
    return espl_plot_write(folder, file, content, err);
}

/* All cases, a line for each result: what the boxes are made of. */
static enum espl_status write_table(const struct plot *plot, const char *folder,
                                    struct espl_buf *content, struct espl_error *err)
{
    espl_buf_puts(content, "set,layer,tokens,rows,cols,kept");
    for (size_t r = 0; r < espl_nm_bench_ratios(); r++) {
        espl_buf_printf(content, ",%s", espl_nm_bench_ratio_name(r));
    }
    espl_buf_puts(content, "\n");
    for (size_t i = 0; i < plot->run->report_count; i++) {
        const struct espl_nm_bench_report *report = &plot->run->reports[i];
        for (size_t k = 0; k < report->result_count; k++) {
            const struct espl_nm_bench_case *item = &report->item;
            espl_buf_printf(content, "%s,%s,%zu,%zu,%zu,%s", item->set, item->layer, item->tokens,
                            item->rows, item->cols, plot->series[k]);
            for (size_t r = 0; r < espl_nm_bench_ratios(); r++) {
                const double value = espl_nm_bench_speedup(report, k, r);
                if (isfinite(value)) {
                    espl_buf_printf(content, ",%.6g", value);
                } else {
                    espl_buf_puts(content, ",");
                }
            }
            espl_buf_puts(content, "\n");
        }
    }
    return espl_plot_write(folder, "speedups.csv", content, err);
}

enum espl_status espl_nm_bench_plot(const struct espl_nm_bench_run *run, const char *folder,
                                    struct espl_error *err)
{
    struct espl_buf content;
    struct plot *plot = calloc(1, sizeof *plot);
    double *values = calloc(run->report_count + 1, sizeof *values);
    espl_buf_init(&content, FILE_BYTES);
    enum espl_status status = plot != NULL && values != NULL
                                  ? espl_fs_make_dirs(folder, err)
                                  : espl_fail(err, ESPL_E_NOMEM, "out of memory for the plots");
    if (status == ESPL_OK) {
        plot->run = run;
        find_groups(plot);
        status = write_table(plot, folder, &content, err);
    }
    for (size_t r = 0; status == ESPL_OK && r < espl_nm_bench_ratios(); r++) {
        if (fill_boxes(plot, r, values) > 0) {
            status = draw_ratio(plot, r, folder, &content, err);
        }
    }
    espl_buf_free(&content);
    free(values);
    free(plot);
    return status;
}
