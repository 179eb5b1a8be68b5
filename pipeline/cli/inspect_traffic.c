#include "cli/inspect_traffic.h"

#include "cli/bench.h"
#include "cli/print.h"

#include <math.h>
#include <stdint.h>

enum { SHOWN_LAYERS = 12, MOST_TOKENS = 1 << 20 };

enum espl_status espl_inspect_traffic_load(const struct espl_cli *cli, struct espl_model *model,
                                           struct espl_inspect_traffic *out, struct espl_error *err)
{
    uint64_t tokens = 0;
    const unsigned bits = (unsigned)(espl_args_value(cli->args, "bits", "4")[0] - '0');
    enum espl_status status = espl_bench_count(cli, "tokens", 1, MOST_TOKENS, &tokens, err);
    out->tokens = (double)tokens;
    if (status == ESPL_OK) {
        status = espl_roofline_device_choose(cli, &out->device, err);
    }
    return status == ESPL_OK ? espl_model_traffic_load(model, bits, &out->model, err) : status;
}

void espl_inspect_traffic_free(struct espl_inspect_traffic *traffic)
{
    espl_model_traffic_free(&traffic->model);
}

static double bytes_of(const struct espl_traffic *traffic)
{
    return traffic->payload_bytes + traffic->padding_bytes + traffic->metadata_bytes;
}

static double weights_of(const struct espl_layer_traffic *layer)
{
    return (double)layer->spec->shape[0] * (double)layer->spec->shape[1];
}

static void layer_row(const struct espl_inspect_traffic *traffic,
                      const struct espl_layer_traffic *layer, struct espl_table *table)
{
    const struct espl_traffic *stored = &layer->stored;
    const double pmr = espl_traffic_pmr(stored);
    const double seconds = espl_layer_seconds(layer, stored, traffic->tokens,
                                              traffic->device.bandwidth, traffic->device.rate);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", layer->spec->module);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", layer->stored_as);
    espl_table_number(table, 4, (bytes_of(stored) + layer->side_bytes) / weights_of(layer));
    espl_table_number(table, 4, layer->side_bytes / weights_of(layer));
    espl_table_number(table, 3, pmr);
    espl_table_number(table, 3, espl_traffic_pmr_effective(stored));
    espl_table_number(table, 2, espl_traffic_intensity(stored, traffic->tokens, pmr));
    espl_table_number(table, 2, seconds * 1e6);
}

static enum espl_status print_layers(const struct espl_cli *cli,
                                     const struct espl_inspect_traffic *traffic, bool all,
                                     struct espl_error *err)
{
    static const struct espl_column columns[] = {
        {.title = "layer"},
        {.title = "stored as"},
        {.title = "bytes/weight", .right = true},
        {.title = "of it scales", .right = true},
        {.title = "PMR", .right = true},
        {.title = "PMR eff.", .right = true},
        {.title = "op/B", .right = true},
        {.title = "time us", .right = true},
    };
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < traffic->model.count && (all || i < SHOWN_LAYERS); i++) {
        layer_row(traffic, &traffic->model.layers[i], table);
    }
    if (!all && traffic->model.count > SHOWN_LAYERS) {
        espl_table_line(table, "... %zu more (--all)", traffic->model.count - SHOWN_LAYERS);
    }
    status = espl_table_print(table, cli->out, 2, cli->colour_out, err);
    espl_table_destroy(table);
    return status;
}

static struct espl_model_total total_of(const struct espl_inspect_traffic *traffic, size_t format)
{
    return espl_model_traffic_total(&traffic->model, format, traffic->tokens,
                                    traffic->device.bandwidth, traffic->device.rate);
}

/* Of sums over layers, as espl_traffic_pmr() of one. */
static double total_pmr(const struct espl_model_total *total, bool effective)
{
    const double rest = total->metadata_bytes + (effective ? total->padding_bytes : 0.0);
    return rest > 0.0 ? total->payload_bytes / rest : (double)INFINITY;
}

static void total_row(const char *name, const struct espl_model_total *total,
                      const struct espl_model_total *stored, struct espl_table *table)
{
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", name);
    if (!total->complete) {
        espl_table_cell(table, ESPL_STYLE_DIM, "cannot");
        for (unsigned i = 0; i < 5; i++) {
            espl_table_cell(table, ESPL_STYLE_DIM, "-");
        }
        return;
    }
    espl_table_number(table, 4, total->bytes / total->weights);
    espl_table_number(table, 3, total_pmr(total, false));
    espl_table_number(table, 3, total_pmr(total, true));
    espl_table_number(table, 2, total->intensity);
    espl_table_number(table, 2, total->seconds * 1e6);
    espl_table_number(table, 2, stored->seconds / total->seconds);
}

static enum espl_status print_formats(const struct espl_cli *cli,
                                      const struct espl_inspect_traffic *traffic,
                                      struct espl_error *err)
{
    static const struct espl_column columns[] = {
        {.title = "all layers as"},           {.title = "bytes/weight", .right = true},
        {.title = "PMR", .right = true},      {.title = "PMR eff.", .right = true},
        {.title = "op/B", .right = true},     {.title = "time us", .right = true},
        {.title = "x stored", .right = true},
    };
    const struct espl_model_total stored = total_of(traffic, SIZE_MAX);
    struct espl_table *table = NULL;
    enum espl_status status =
        espl_table_create(columns, sizeof columns / sizeof columns[0], &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    total_row("stored", &stored, &stored, table);
    for (size_t f = 0; espl_formats[f].name != NULL; f++) {
        const struct espl_model_total total = total_of(traffic, f);
        total_row(espl_formats[f].name, &total, &stored, table);
    }
    status = espl_table_print(table, cli->out, 2, cli->colour_out, err);
    espl_table_destroy(table);
    return status;
}

enum espl_status espl_inspect_traffic_print(const struct espl_cli *cli,
                                            const struct espl_inspect_traffic *traffic, bool all,
                                            struct espl_error *err)
{
    fprintf(cli->out,
            "\ntraffic of the blocks' linears, %.0f column%s of activations, %.1f GB/s\ndevice    "
            "%s: %s\n\n",
            traffic->tokens, traffic->tokens > 1.0 ? "s" : "", traffic->device.bandwidth * 1e-9,
            traffic->device.name, traffic->device.source);
    enum espl_status status = print_layers(cli, traffic, all, err);
    if (status != ESPL_OK) {
        return status;
    }
    if (traffic->model.supposed) {
        fprintf(cli->out,
                "\nthe weights are floats: below, what their masks take with INT%u codes, scales "
                "left out\n",
                traffic->model.bits);
    }
    fputs("\n", cli->out);
    return print_formats(cli, traffic, err);
}

/* ---- JSON ---- */

static json_t *layer_json(const struct espl_inspect_traffic *traffic,
                          const struct espl_layer_traffic *layer)
{
    const struct espl_traffic *stored = &layer->stored;
    const double pmr = espl_traffic_pmr(stored);
    return json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:f}", "module",
                     layer->spec->module, "stored_as", layer->stored_as, "bytes",
                     bytes_of(stored) + layer->side_bytes, "scale_bytes", layer->side_bytes,
                     "payload_bytes", stored->payload_bytes, "padding_bytes", stored->padding_bytes,
                     "metadata_bytes", stored->metadata_bytes, "bytes_per_weight",
                     (bytes_of(stored) + layer->side_bytes) / weights_of(layer), "pmr",
                     espl_print_json_number(pmr), "pmr_effective",
                     espl_print_json_number(espl_traffic_pmr_effective(stored)), "intensity",
                     espl_traffic_intensity(stored, traffic->tokens, pmr), "roofline_seconds",
                     espl_layer_seconds(layer, stored, traffic->tokens, traffic->device.bandwidth,
                                        traffic->device.rate));
}

static json_t *total_json(const char *name, const struct espl_model_total *total)
{
    return json_pack("{s:s, s:f, s:f, s:o, s:o, s:f, s:f}", "format", name, "bytes", total->bytes,
                     "bytes_per_weight", total->bytes / total->weights, "pmr",
                     espl_print_json_number(total_pmr(total, false)), "pmr_effective",
                     espl_print_json_number(total_pmr(total, true)), "intensity", total->intensity,
                     "roofline_seconds", total->seconds);
}

json_t *espl_inspect_traffic_json(const struct espl_inspect_traffic *traffic)
{
    json_t *layers = json_array();
    json_t *formats = json_array();
    const struct espl_model_total stored = total_of(traffic, SIZE_MAX);
    for (size_t i = 0; i < traffic->model.count; i++) {
        (void)json_array_append_new(layers, layer_json(traffic, &traffic->model.layers[i]));
    }
    for (size_t f = 0; espl_formats[f].name != NULL; f++) {
        const struct espl_model_total total = total_of(traffic, f);
        if (total.complete) { /* a format that cannot hold the codes is left out */
            (void)json_array_append_new(formats, total_json(espl_formats[f].name, &total));
        }
    }
    return json_pack("{s:o, s:f, s:i, s:b, s:o, s:o, s:o}", "device",
                     espl_roofline_device_json(&traffic->device), "tokens", traffic->tokens, "bits",
                     (int)traffic->model.bits, "supposed", traffic->model.supposed, "stored",
                     total_json("stored", &stored), "layers", layers, "formats", formats);
}
