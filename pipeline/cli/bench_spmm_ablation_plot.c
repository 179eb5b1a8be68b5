/* The ablation drawn: a file for every shape and number of tokens, a panel for every sparsity. */
#include "cli/bench_spmm.h"
#include "cli/plot_file.h"

#include "core/fs.h"
#include "report/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FILE_BYTES = 4 << 20,
    ARENA_BYTES = 4 << 20,
    NAME_TEXT = 64,
    LABEL_TEXT = 48,
    STAGES_TEXT = 16
};

/* "2x1 in order, 3", "2x1 producer, 3": form, order, who fills the ring, stages. */
static void write_label(const struct espl_spmm_variant *variant, char label[LABEL_TEXT])
{
    char stages[STAGES_TEXT] = "";
    if (variant->stages > 0) {
        (void)snprintf(stages, sizeof stages, ", %u", variant->stages);
    }
    (void)snprintf(label, LABEL_TEXT, "%s%s%s%s", variant->form,
                   variant->reordered ? " in order" : "", variant->producer ? " producer" : "",
                   stages);
}

/* The arrays of a chart: rows are variants, columns sparsities. false: out of memory. */
static bool fill_chart(const struct espl_spmm_ablation *panels, size_t count,
                       struct espl_arena *arena, struct espl_svg_bars *chart)
{
    const size_t rows = panels[0].count;
    const char **labels = espl_arena_array(arena, rows, sizeof *labels);
    const char **headings = espl_arena_array(arena, count, sizeof *headings);
    const char **texts = espl_arena_array(arena, rows * count, sizeof *texts);
    double *values = espl_arena_array(arena, rows * count, sizeof *values);
    if (labels == NULL || headings == NULL || texts == NULL || values == NULL) {
        return false;
    }
    for (size_t r = 0; r < rows; r++) {
        char label[LABEL_TEXT];
        write_label(&panels[0].variants[r], label);
        labels[r] = espl_arena_printf(arena, "%s", label);
    }
    for (size_t c = 0; c < count; c++) {
        headings[c] = espl_arena_printf(arena, "%.0f %% zeros, us", 100.0 * panels[c].sparsity);
        for (size_t r = 0; r < rows; r++) {
            const struct espl_spmm_variant *v = &panels[c].variants[r];
            values[c * rows + r] = v->measured ? 1e6 * v->time.median : (double)NAN;
            texts[c * rows + r] = v->measured
                                      ? espl_arena_printf(arena, "%.2f", 1e6 * v->time.median)
                                      : "does not fit";
        }
    }
    chart->row_count = rows;
    chart->column_count = count;
    chart->series_count = 1;
    chart->rows = labels;
    chart->columns = headings;
    chart->texts = texts;
    chart->values = values;
    return true;
}

static void print_csv(const struct espl_spmm_ablation *panels, size_t count, struct espl_buf *out)
{
    espl_buf_puts(out,
                  "zeros,form,reordered,producer,stages,weight_bytes,median_seconds,p95_seconds\n");
    for (size_t c = 0; c < count; c++) {
        for (size_t r = 0; r < panels[c].count; r++) {
            const struct espl_spmm_variant *v = &panels[c].variants[r];
            if (v->measured) {
                espl_buf_printf(out, "%.9g,%s,%d,%d,%u,%llu,%.9g,%.9g\n", panels[c].sparsity,
                                v->form, v->reordered ? 1 : 0, v->producer ? 1 : 0, v->stages,
                                (unsigned long long)v->bytes, v->time.median, v->time.p95);
            }
        }
    }
}

enum espl_status espl_spmm_ablation_plot(const struct espl_spmm_ablation *panels, size_t count,
                                         const char *folder, struct espl_error *err)
{
    char name[NAME_TEXT];
    char file[NAME_TEXT + 8];
    char title[NAME_TEXT + 32];
    struct espl_buf content;
    struct espl_arena *arena = espl_arena_create(ARENA_BYTES);
    (void)snprintf(name, sizeof name, "ablation-%zux%zu-n%zu", panels[0].rows, panels[0].cols,
                   panels[0].tokens);
    (void)snprintf(title, sizeof title, "Ablation, %zu x %zu, %zu tokens", panels[0].rows,
                   panels[0].cols, panels[0].tokens);
    struct espl_svg_bars chart = {
        .head = {.id = name,
                 .title = title,
                 .desc = "A bar a variant of the kernel, a panel a sparsity: microseconds of a "
                         "product. Behind the form: the stages of a warp's ring; in order: rows of "
                         "every stripe in the order with the fewest mask bits; producer: one warp "
                         "of a block fills the rings of all others."},
        .standalone = true};
    espl_buf_init(&content, FILE_BYTES);
    enum espl_status status = arena != NULL && fill_chart(panels, count, arena, &chart)
                                  ? espl_fs_make_dirs(folder, err)
                                  : espl_fail(err, ESPL_E_NOMEM, "out of memory for the plots");
    if (status == ESPL_OK) {
        espl_svg_bars(&content, &chart);
        (void)snprintf(file, sizeof file, "%s.svg", name);
        status = espl_plot_write(folder, file, &content, err);
    }
    if (status == ESPL_OK) {
        print_csv(panels, count, &content);
        (void)snprintf(file, sizeof file, "%s.csv", name);
        status = espl_plot_write(folder, file, &content, err);
    }
    espl_buf_free(&content);
    espl_arena_destroy(arena);
    return status;
}
