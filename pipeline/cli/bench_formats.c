/* espalier bench formats: bytes of every sparse format for random masks, counted by the encoders
 * and expected in closed form; what they mean for PMR, compute intensity and time. */
#include "cli/bench_formats.h"
#include "cli/bench.h"
#include "cli/bench_settings.h"
#include "cli/options.h"
#include "cli/print.h"
#include "core/checked.h"
#include "core/rng.h"
#include "espalier/formats.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIDE = 1 << 20, MOST_TOKENS = 1 << 20 };

static const struct espl_bench_size usual_shapes[] = {{4096, 4096}};
static const double usual_sparsities[] = {0.3, 0.4, 0.5, 0.6, 0.7};

struct bench {
    struct espl_cli *cli;
    struct espl_roofline_device device;
    struct espl_bench_size shapes[ESPL_BENCH_MOST_SETTINGS];
    size_t shape_count;
    double sparsities[ESPL_BENCH_MOST_SETTINGS];
    size_t sparsity_count;
    unsigned bits;
    double tokens;
};

/* One format on one matrix. */
struct figures {
    const struct espl_format *format;
    double sparsity;
    struct espl_traffic measured;
    struct espl_traffic expected;
    double seconds;
    double dense_seconds;
};

/* ---- what was asked for ---- */

static enum espl_status read_options(struct bench *bench, struct espl_error *err)
{
    uint64_t tokens = 0;
    bench->bits = espl_bench_bits(bench->cli);
    if (bench->bits == 3) {
        return espl_fail(err, ESPL_E_USAGE, "bench formats takes codes of 2, 4 or 8 bits, not 3");
    }
    enum espl_status status = espl_bench_count(bench->cli, "tokens", 8, MOST_TOKENS, &tokens, err);
    bench->tokens = (double)tokens;
    if (status == ESPL_OK) {
        status = espl_bench_shapes_of(bench->cli, usual_shapes,
                                      sizeof usual_shapes / sizeof usual_shapes[0], MOST_SIDE,
                                      bench->shapes, &bench->shape_count, err);
    }
    if (status == ESPL_OK) {
        status = espl_bench_shares_of(bench->cli, usual_sparsities,
                                      sizeof usual_sparsities / sizeof usual_sparsities[0],
                                      bench->sparsities, &bench->sparsity_count, err);
    }
    return status == ESPL_OK ? espl_roofline_device_choose(bench->cli, &bench->device, err)
                             : status;
}

/* ---- figures ---- */

/* Codes from 1 - 2^(bits-1) on, 0 with probability `sparsity`. */
static void draw_codes(const struct bench *bench, size_t setting, int8_t *codes, size_t count)
{
    struct espl_rng rng = espl_rng_stream(0, "bench-formats", setting);
    const int half = 1 << (bench->bits - 1u);
    const double kept = 1.0 - bench->sparsities[setting % bench->sparsity_count];
    for (size_t i = 0; i < count; i++) {
        codes[i] = 0;
        if (espl_rng_unit(&rng) < kept) {
            const int code = (int)espl_rng_below(&rng, 2 * (uint64_t)half - 2) + 1;
            codes[i] = (int8_t)(code < half ? code : code - 2 * half + 1);
        }
    }
}

static enum espl_status measure_format(const struct bench *bench, const int8_t *codes,
                                       const struct espl_bench_size *shape, struct figures *figures,
                                       struct espl_error *err)
{
    const enum espl_status status =
        espl_format_measure(figures->format, codes, shape->rows, shape->cols, bench->bits,
                            ESPL_IEBME_SCOPE_NONE, NULL, &figures->measured, err);
    figures->expected = espl_format_expected(figures->format, shape->rows, shape->cols, bench->bits,
                                             figures->sparsity);
    if (status == ESPL_OK) {
        figures->seconds = espl_traffic_roofline_seconds(
            &figures->measured, bench->tokens, ESPL_ROOFLINE_OUTPUT_BYTES, bench->device.bandwidth,
            bench->device.rate);
    }
    return status;
}

static void add_row(const struct bench *bench, const struct figures *figures,
                    struct espl_table *table)
{
    const struct espl_traffic *traffic = &figures->measured;
    const double bytes = espl_traffic_bytes_per_weight(traffic);
    const double expected = espl_traffic_bytes_per_weight(&figures->expected);
    const double pmr = espl_traffic_pmr(traffic);
    const double effective = espl_traffic_pmr_effective(traffic);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu x %zu", traffic->rows, traffic->cols);
    espl_table_number(table, 2, figures->sparsity);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", figures->format->name);
    espl_table_number(table, 4, bytes);
    espl_table_number(table, 4, expected);
    espl_table_number(table, 2, 100.0 * (bytes / expected - 1.0));
    espl_table_number(table, 3, pmr);
    espl_table_number(table, 3, effective);
    espl_table_number(table, 2, espl_traffic_intensity(traffic, bench->tokens, pmr));
    espl_table_number(table, 2, espl_traffic_intensity(traffic, bench->tokens, effective));
    espl_table_number(table, 2, figures->seconds * 1e6);
    espl_table_number(table, 2, figures->dense_seconds / figures->seconds);
}

static json_t *row_json(const struct bench *bench, const struct figures *figures)
{
    const struct espl_traffic *traffic = &figures->measured;
    const double pmr = espl_traffic_pmr(traffic);
    const double effective = espl_traffic_pmr_effective(traffic);
    return json_pack(
        "{s:I, s:I, s:f, s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:f, s:f}", "rows",
        (json_int_t)traffic->rows, "cols", (json_int_t)traffic->cols, "sparsity", figures->sparsity,
        "format", figures->format->name, "nonzeros", (json_int_t)traffic->nonzeros,
        "bytes_per_weight", espl_traffic_bytes_per_weight(traffic), "expected_bytes_per_weight",
        espl_traffic_bytes_per_weight(&figures->expected), "payload_bytes", traffic->payload_bytes,
        "padding_bytes", traffic->padding_bytes, "metadata_bytes", traffic->metadata_bytes, "pmr",
        espl_print_json_number(pmr), "pmr_effective", espl_print_json_number(effective),
        "intensity", espl_traffic_intensity(traffic, bench->tokens, pmr), "intensity_effective",
        espl_traffic_intensity(traffic, bench->tokens, effective), "roofline_seconds",
        figures->seconds);
}

/* All formats on one random matrix. */
static enum espl_status measure_setting(const struct bench *bench, size_t setting,
                                        struct espl_table *table, json_t *rows,
                                        struct espl_error *err)
{
    const struct espl_bench_size *shape = &bench->shapes[setting / bench->sparsity_count];
    struct figures figures = {.sparsity = bench->sparsities[setting % bench->sparsity_count]};
    enum espl_status status = ESPL_OK;
    size_t count = 0;
    int8_t *codes = espl_mul_size(shape->rows, shape->cols, &count) ? malloc(count) : NULL;
    if (codes == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for a matrix of %zu x %zu", shape->rows,
                         shape->cols);
    }
    draw_codes(bench, setting, codes, count);
    for (const struct espl_format *format = espl_formats; format->name != NULL && status == ESPL_OK;
         format++) {
        figures.format = format;
        status = measure_format(bench, codes, shape, &figures, err);
        if (status == ESPL_E_UNSUPPORTED) { /* more columns than the format's index holds */
            espl_print_warning(bench->cli, "left out: %s", err->message);
            espl_error_clear(err);
            status = ESPL_OK;
            continue;
        }
        if (status == ESPL_OK) {
            figures.dense_seconds =
                format == espl_formats ? figures.seconds : figures.dense_seconds;
            add_row(bench, &figures, table);
            (void)json_array_append_new(rows, row_json(bench, &figures));
        }
    }
    free(codes);
    return status;
}

static enum espl_status measure_all(const struct bench *bench, struct espl_table *table,
                                    json_t *rows, struct espl_error *err)
{
    enum espl_status status = ESPL_OK;
    const size_t count = bench->shape_count * bench->sparsity_count;
    for (size_t i = 0; status == ESPL_OK && i < count; i++) {
        status =
            *bench->cli->stop_signal != 0
                ? espl_fail(err, ESPL_E_CANCELLED, "stopped after %zu of %zu matrices", i, count)
                : measure_setting(bench, i, table, rows, err);
    }
    return status;
}

static enum espl_status print_table(const struct bench *bench, struct espl_table *table,
                                    struct espl_error *err)
{
    FILE *out = bench->cli->out;
    fprintf(out,
            "random masks, INT%u codes, %.0f columns of activations\n"
            "bytes    encoded bytes a weight, scales left out; form: the closed form\n"
            "PMR      payload to metadata as the paper defines it; eff.: stored zeros are metadata "
            "too\n"
            "op/B     compute intensity (eq. 2) with the one and the other\n"
            "time     bytes of weights, activations and half outputs at %.1f GB/s\n"
            "device   %s: %s\n\n",
            bench->bits, bench->tokens, bench->device.bandwidth * 1e-9, bench->device.name,
            bench->device.source);
    return espl_table_print(table, out, 0, bench->cli->colour_out, err);
}

enum espl_status espl_bench_formats(struct espl_cli *cli, struct espl_error *err)
{
    static const struct espl_column columns[] = {{.title = "shape", .right = true},
                                                 {.title = "sparsity", .right = true},
                                                 {.title = "format"},
                                                 {.title = "bytes", .right = true},
                                                 {.title = "form", .right = true},
                                                 {.title = "off %", .right = true},
                                                 {.title = "PMR", .right = true},
                                                 {.title = "PMR eff.", .right = true},
                                                 {.title = "op/B", .right = true},
                                                 {.title = "op/B eff.", .right = true},
                                                 {.title = "time us", .right = true},
                                                 {.title = "x dense", .right = true}};
    struct bench bench = {.cli = cli};
    struct espl_table *table = NULL;
    const char *folder = espl_args_value(cli->args, "svg", NULL);
    json_t *rows = json_array();
    enum espl_status status = read_options(&bench, err);
    if (status == ESPL_OK) {
        status = espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    }
    if (status == ESPL_OK) {
        status = measure_all(&bench, table, rows, err);
    }
    if (status == ESPL_OK && folder != NULL) {
        status = espl_bench_formats_draw(folder, &bench.device, err);
    }
    if (status == ESPL_OK && cli->json) {
        status = espl_print_json_take(
            cli,
            json_pack("{s:s, s:i, s:f, s:o, s:O}", "schema", "espalier.bench-formats/1", "bits",
                      (int)bench.bits, "tokens", bench.tokens, "device",
                      espl_roofline_device_json(&bench.device), "rows", rows),
            err);
    } else if (status == ESPL_OK) {
        status = print_table(&bench, table, err);
    }
    espl_table_destroy(table);
    json_decref(rows);
    return status;
}
