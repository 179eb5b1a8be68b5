/* Plots of `espalier bench spmm`: the drawings of the report page as files, with their figures. */
#include "cli/bench_spmm.h"
#include "cli/plot_file.h"

#include "core/fs.h"
#include "report/bench_figures.h"

enum { FILE_BYTES = 64 << 20, ARENA_BYTES = 256 << 20 };

static enum espl_status add_point(void *user, const char *series, size_t tokens,
                                  const char *subject, double value, struct espl_error *err)
{
    json_t *points = user;
    return json_array_append_new(points, json_pack("{s:s, s:I, s:s, s:f}", "series", series,
                                                   "layer", (json_int_t)tokens, "module", subject,
                                                   "value", value)) == 0
               ? ESPL_OK
               : espl_fail(err, ESPL_E_NOMEM, "out of memory for the plots");
}

static enum espl_status plot_speedups(const json_t *points, struct espl_arena *arena,
                                      const char *folder, struct espl_buf *content,
                                      struct espl_error *err)
{
    struct espl_bench_speedups speedups;
    enum espl_status status = espl_bench_speedups_read(points, arena, &speedups, err);
    if (status != ESPL_OK || speedups.group_count == 0) {
        return status;
    }
    espl_bench_speedups_draw(&speedups, "speedups", "Speed-ups by number of tokens", true, content);
    status = espl_plot_write(folder, "speedups.svg", content, err);
    espl_buf_puts(content, "tokens,over,cases,least,q1,median,q3,most,geometric_mean\n");
    for (size_t i = 0; i < speedups.group_count * speedups.baseline_count; i++) {
        const struct espl_svg_box *box = &speedups.boxes[i];
        if (box->count > 0) {
            espl_buf_printf(content, "%u,%s,%zu,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g\n",
                            speedups.tokens[i / speedups.baseline_count],
                            speedups.baselines[i % speedups.baseline_count], box->count, box->low,
                            box->q1, box->median, box->q3, box->high, speedups.means[i]);
        }
    }
    return status == ESPL_OK ? espl_plot_write(folder, "speedups.csv", content, err) : status;
}

static enum espl_status plot_roofline(const json_t *points, double bandwidth,
                                      struct espl_arena *arena, const char *folder,
                                      struct espl_buf *content, struct espl_error *err)
{
    struct espl_bench_roofline roofline;
    enum espl_status status = espl_bench_roofline_read(points, arena, &roofline, err);
    if (status == ESPL_OK && roofline.count > 0) {
        status =
            espl_bench_roofline_draw(&roofline, bandwidth, "roofline",
                                     "Roofline with measured products", true, arena, content, err);
    }
    if (status != ESPL_OK || roofline.count == 0) {
        return status;
    }
    status = espl_plot_write(folder, "roofline.svg", content, err);
    espl_buf_puts(content, "product,tokens,operations_a_byte,operations_a_second\n");
    for (size_t i = 0; i < roofline.count; i++) {
        const struct espl_bench_point *point = &roofline.points[i];
        espl_buf_printf(content, "%s,%u,%.9g,%.9g\n", point->what, point->tokens, point->intensity,
                        point->rate);
    }
    return status == ESPL_OK ? espl_plot_write(folder, "roofline.csv", content, err) : status;
}

enum espl_status espl_spmm_plot(const struct espl_bench_record *record, const char *folder,
                                struct espl_error *err)
{
    struct espl_buf content;
    json_t *points = json_array();
    struct espl_arena *arena = espl_arena_create(ARENA_BYTES);
    espl_buf_init(&content, FILE_BYTES);
    enum espl_status status = arena != NULL && points != NULL
                                  ? espl_fs_make_dirs(folder, err)
                                  : espl_fail(err, ESPL_E_NOMEM, "out of memory for the plots");
    if (status == ESPL_OK) {
        status = espl_bench_record_figures(record, add_point, points, err);
    }
    if (status == ESPL_OK) {
        status = plot_speedups(points, arena, folder, &content, err);
    }
    if (status == ESPL_OK) {
        status = plot_roofline(points, record->ceiling.copy_bytes_a_second, arena, folder, &content,
                               err);
    }
    espl_buf_free(&content);
    espl_arena_destroy(arena);
    json_decref(points);
    return status;
}
