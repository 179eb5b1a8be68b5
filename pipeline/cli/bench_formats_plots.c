/* Plots of `espalier bench formats`: Fig. 4 and the analytic part of Fig. 5 of the UnionSparse
 * paper, with the formats added that the paper leaves out. */
#include "cli/bench_formats.h"
#include "cli/plot_file.h"
#include "core/fs.h"
#include "espalier/formats.h"
#include "report/svg.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_POINTS = 64, MOST_SERIES = 12, SVG_BYTES = 4 << 20, TIP_TEXT = 64, FILE_TEXT = 64 };

/* The paper's matrix, sparsity and batch sizes [UnionSparse, Fig. 5]. */
enum { FIG5_ROWS = 28672, FIG5_COLS = 8192, FIG5_BATCHES = 6 };
static const double fig5_sparsity = 0.4;
static const double fig4_sparsity = 0.5; /* of the left panel */

/* Curves over sparsity: from, by and to, in hundredths. */
enum { CURVE_FROM = 10, CURVE_STEP = 5, CURVE_TO = 90 };

/* A chart under construction, and the numbers behind it. */
struct drawing {
    struct espl_svg_xy chart;
    struct espl_svg_points series[MOST_SERIES];
    double x[MOST_SERIES][MOST_POINTS];
    double y[MOST_SERIES][MOST_POINTS];
    char tip_texts[MOST_SERIES][MOST_POINTS][TIP_TEXT];
    const char *tips[MOST_SERIES][MOST_POINTS];
};

static size_t add_series(struct drawing *drawing, const char *name)
{
    const size_t index = drawing->chart.series_count++;
    assert(index < MOST_SERIES);
    struct espl_svg_points *points = &drawing->series[index];
    points->name = name;
    points->x = drawing->x[index];
    points->y = drawing->y[index];
    points->line = true;
    return index;
}

static void add_point(struct drawing *drawing, size_t series, double x, double y)
{
    struct espl_svg_points *points = &drawing->series[series];
    assert(points->count < MOST_POINTS);
    drawing->x[series][points->count] = x;
    drawing->y[series][points->count++] = y;
}

/* ---- files ---- */

/* Long form: one line a point, full precision. A label may hold no comma. */
static void print_csv(const struct espl_svg_xy *chart, struct espl_buf *out)
{
    espl_buf_printf(out, "series,%s,%s\n", chart->x.label, chart->y.label);
    for (size_t s = 0; s < chart->series_count; s++) {
        const struct espl_svg_points *points = &chart->series[s];
        for (size_t i = 0; i < points->count; i++) {
            espl_buf_printf(out, "%s,%.9g,%.9g\n", points->name, points->x[i], points->y[i]);
        }
    }
}

/* NAME.svg and NAME.csv; NAME is the drawing's id. */
static enum espl_status write_drawing(struct drawing *drawing, const char *folder,
                                      struct espl_error *err)
{
    char file[FILE_TEXT];
    struct espl_buf content;
    drawing->chart.series = drawing->series;
    drawing->chart.standalone = true;
    const char *name = drawing->chart.head.id;
    espl_buf_init(&content, SVG_BYTES);
    espl_svg_xy(&content, &drawing->chart);
    (void)snprintf(file, sizeof file, "%s.svg", name);
    enum espl_status status = espl_plot_write(folder, file, &content, err);
    if (status == ESPL_OK) {
        print_csv(&drawing->chart, &content);
        (void)snprintf(file, sizeof file, "%s.csv", name);
        status = espl_plot_write(folder, file, &content, err);
    }
    espl_buf_free(&content);
    return status;
}

/* ---- the charts ---- */

/* A format as the paper names it, or as we do when it is our addition. */
struct shown {
    const char *format;
    const char *name;
    bool effective; /* PMR with stored zeros counted as metadata */
};

static struct espl_traffic expect(const struct shown *shown, unsigned bits, double sparsity)
{
    return espl_format_expected(espl_format_find(shown->format), FIG5_ROWS, FIG5_COLS, bits,
                                sparsity);
}

static double pmr_of(const struct shown *shown, unsigned bits, double sparsity)
{
    const struct espl_traffic traffic = expect(shown, bits, sparsity);
    return shown->effective ? espl_traffic_pmr_effective(&traffic) : espl_traffic_pmr(&traffic);
}

static const struct shown pmr_formats[] = {
    {"csr32", "CSR", false},
    {"tiled-csl", "Tiled-CSL", false},
    {"tca-bme", "TCA-BME", false},
    {"iebme-2x2", "IE-BME 2x2 as defined", false},
    {"iebme-2x2", "IE-BME 2x2 effective", true},
    {"iebme-2x1", "IE-BME 2x1 effective", true},
    {"iebme-1x1", "IE-BME 1x1", false},
};
enum { PMR_FORMATS = sizeof pmr_formats / sizeof pmr_formats[0] };

static enum espl_status draw_precision(struct drawing *drawing, const char *folder,
                                       struct espl_error *err)
{
    static const double widths[] = {2, 4, 8, 16};
    const size_t count = sizeof widths / sizeof widths[0];
    drawing->chart.head = (struct espl_svg_head){
        "pmr-precision", "PMR at 16, 8, 4 and 2 bits a value, sparsity 0.5",
        "Payload to metadata of sparse formats by bits of a value, both scales logarithmic: "
        "halving "
        "the bits halves the ratio of every format. Effective counts stored zeros as metadata."};
    drawing->chart.x = (struct espl_svg_axis){.label = "bits a value",
                                              .logarithmic = true,
                                              .low = widths[0],
                                              .high = widths[count - 1],
                                              .ticks = widths,
                                              .tick_count = count};
    drawing->chart.y = (struct espl_svg_axis){.label = "payload / metadata", .logarithmic = true};
    for (size_t f = 0; f < PMR_FORMATS; f++) {
        const size_t series = add_series(drawing, pmr_formats[f].name);
        for (size_t i = 0; i < count; i++) {
            add_point(drawing, series, widths[i],
                      pmr_of(&pmr_formats[f], (unsigned)widths[i], fig4_sparsity));
        }
    }
    return write_drawing(drawing, folder, err);
}

static enum espl_status draw_pmr(struct drawing *drawing, const char *folder,
                                 struct espl_error *err)
{
    drawing->chart.head = (struct espl_svg_head){
        "pmr-int4", "PMR of INT4 formats over sparsity",
        "Payload to metadata over sparsity at 4 bits a value. By the definition IE-BME 2x2 lies "
        "far "
        "above single-element bitmaps; with its stored zeros counted as metadata it lies below."};
    drawing->chart.x = (struct espl_svg_axis){.label = "sparsity", .low = 0.1, .high = 0.9};
    drawing->chart.y = (struct espl_svg_axis){.label = "payload / metadata", .logarithmic = true};
    for (size_t f = 0; f < PMR_FORMATS; f++) {
        const size_t series = add_series(drawing, pmr_formats[f].name);
        for (int s = CURVE_FROM; s <= CURVE_TO; s += CURVE_STEP) {
            add_point(drawing, series, s / 100.0, pmr_of(&pmr_formats[f], 4, s / 100.0));
        }
    }
    return write_drawing(drawing, folder, err);
}

static enum espl_status draw_bits(struct drawing *drawing, const char *folder,
                                  struct espl_error *err)
{
    static const struct shown formats[] = {
        {"dense", "dense INT4", false},
        {"iebme-1x1", "IE-BME 1x1", false},
        {"iebme-2x1", "IE-BME 2x1 or 1x2", false},
        {"iebme-2x2", "IE-BME 2x2", false},
        {"tca-bme", "TCA-BME", false},
        {"csr16", "CSR 16-bit columns", false},
    };
    drawing->chart.head = (struct espl_svg_head){
        "bits-int4", "Bits a weight of INT4 formats over sparsity",
        "Encoded bits a weight on random masks. Single-element bitmaps are the lowest from 0.25 to "
        "0.85 and close to the entropy bound; 2x2 goes below dense only from 0.5 on."};
    drawing->chart.x = (struct espl_svg_axis){.label = "sparsity", .low = 0.1, .high = 0.9};
    drawing->chart.y = (struct espl_svg_axis){.label = "bits a weight", .low = 0.0, .high = 8.0};
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        const size_t series = add_series(drawing, formats[f].name);
        for (int s = CURVE_FROM; s <= CURVE_TO; s += CURVE_STEP) {
            const struct espl_traffic traffic = expect(&formats[f], 4, s / 100.0);
            add_point(drawing, series, s / 100.0, 8.0 * espl_traffic_bytes_per_weight(&traffic));
        }
    }
    const size_t bound = add_series(drawing, "entropy bound");
    drawing->series[bound].bound = true;
    for (int s = CURVE_FROM; s <= CURVE_TO; s += CURVE_STEP) {
        add_point(drawing, bound, s / 100.0, espl_sparse_entropy_bits(4, s / 100.0));
    }
    return write_drawing(drawing, folder, err);
}

/* Across: eq. 2 with the PMR as the paper defines it. Up: useful operations over the roofline time
 * of all bytes that move, stored zeros and outputs among them. */
static enum espl_status draw_roofline(struct drawing *drawing,
                                      const struct espl_roofline_device *device, const char *folder,
                                      struct espl_error *err)
{
    static const struct shown formats[] = {
        {"csr32", "CSR", false},
        {"tiled-csl", "Tiled-CSL", false},
        {"tca-bme", "TCA-BME", false},
        {"iebme-2x2", "IE-BME 2x2", false},
        {"iebme-1x1", "IE-BME 1x1", false},
        {"dense", "dense INT4", false},
    };
    static const double batches[FIG5_BATCHES] = {1, 2, 4, 8, 16, 32};
    const double tera = 1e-12;
    drawing->chart.head = (struct espl_svg_head){
        "roofline", "Compute intensity and attainable rate, INT4, 28672 x 8192, sparsity 0.4",
        "Each format at 1, 2, 4, 8, 16 and 32 columns, from the left. The dashed line is what the "
        "memory allows for the intensity; points below it move bytes that the intensity leaves "
        "out: stored zeros and results."};
    drawing->chart.x = (struct espl_svg_axis){
        .label = "compute intensity by eq. 2 (operations a byte)", .logarithmic = true};
    drawing->chart.y =
        (struct espl_svg_axis){.label = "useful operations (TOPS)", .logarithmic = true};
    for (size_t f = 0; f < sizeof formats / sizeof formats[0]; f++) {
        const size_t series = add_series(drawing, formats[f].name);
        /* A dense matrix has no zeros to leave out. */
        const double sparsity = strcmp(formats[f].format, "dense") == 0 ? 0.0 : fig5_sparsity;
        const struct espl_traffic traffic = expect(&formats[f], 4, sparsity);
        for (size_t i = 0; i < FIG5_BATCHES; i++) {
            const double seconds = espl_traffic_roofline_seconds(
                &traffic, batches[i], ESPL_ROOFLINE_OUTPUT_BYTES, device->bandwidth, device->rate);
            const double useful = 2.0 * (1.0 - fig5_sparsity) * FIG5_ROWS * FIG5_COLS * batches[i];
            const double pmr = espl_traffic_pmr(&traffic);
            (void)snprintf(drawing->tip_texts[series][i], TIP_TEXT, "%s, N = %.0f", formats[f].name,
                           batches[i]);
            drawing->tips[series][i] = drawing->tip_texts[series][i];
            add_point(drawing, series, espl_traffic_intensity(&traffic, batches[i], pmr),
                      useful / seconds * tera);
        }
        drawing->series[series].tips = drawing->tips[series];
    }
    const size_t bound = add_series(drawing, "memory bound");
    drawing->series[bound].bound = true;
    for (double intensity = 0.2; intensity < 200.0; intensity *= 2.0) {
        add_point(drawing, bound, intensity, intensity * device->bandwidth * tera);
    }
    return write_drawing(drawing, folder, err);
}

enum espl_status espl_bench_formats_draw(const char *folder,
                                         const struct espl_roofline_device *device,
                                         struct espl_error *err)
{
    struct drawing *drawings = calloc(4, sizeof *drawings);
    if (drawings == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for the plots");
    }
    enum espl_status status = espl_fs_make_dirs(folder, err);
    if (status == ESPL_OK) {
        status = draw_precision(&drawings[0], folder, err);
    }
    if (status == ESPL_OK) {
        status = draw_pmr(&drawings[1], folder, err);
    }
    if (status == ESPL_OK) {
        status = draw_bits(&drawings[2], folder, err);
    }
    if (status == ESPL_OK) {
        status = draw_roofline(&drawings[3], device, folder, err);
    }
    free(drawings);
    return status;
}
