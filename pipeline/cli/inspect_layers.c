#include "cli/inspect_layers.h"

#include "cli/print.h"
#include "espalier/nm_pack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHOWN_LAYERS = 12,
    PIECE_BYTES = 4 << 20 /* of a mask or of weights read at once */
};

static uint64_t count_bits(const uint8_t *mask, size_t bytes)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < bytes; ++i) {
        bits += (uint64_t)__builtin_popcount(mask[i]);
    }
    return bits;
}

/* *count += kept mask bits, or with `stats` values that are not 0. */
static enum espl_status count_kept(struct espl_model *model, bool stats,
                                   const struct espl_inspect_layer *layer, uint64_t *count,
                                   struct espl_error *err)
{
    const uint64_t cols = layer->spec->shape[1];
    const size_t row_bytes = stats ? (size_t)cols * sizeof(float) : (size_t)(cols + 7) / 8;
    const uint64_t rows_at_once = row_bytes < PIECE_BYTES ? PIECE_BYTES / row_bytes : 1;
    enum espl_status status = ESPL_OK;
    void *piece = malloc((size_t)rows_at_once * row_bytes);
    if (piece == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for rows of '%s'", layer->spec->module);
    }
    for (uint64_t row = 0; row < layer->spec->shape[0] && status == ESPL_OK;) {
        const uint64_t left = layer->spec->shape[0] - row;
        const uint64_t rows = left < rows_at_once ? left : rows_at_once;
        if (stats) {
            const float *values = piece;
            status = espl_model_read_f32(model, layer->spec, row, rows, piece, err);
            for (uint64_t i = 0; i < rows * cols && status == ESPL_OK; ++i) {
                *count += values[i] != 0.0f ? 1 : 0;
            }
        } else {
            status = espl_model_read_mask(model, layer->spec, row, rows, piece, err);
            *count += status == ESPL_OK ? count_bits(piece, (size_t)rows * row_bytes) : 0;
        }
        row += rows;
    }
    free(piece);
    return status;
}

static void read_pattern(struct espl_artifact *artifact, char *out, size_t out_size)
{
    json_t *description = json_loads(espl_artifact_description(artifact), 0, NULL);
    const char *pattern =
        json_string_value(json_object_get(json_object_get(description, "pruning"), "pattern"));
    if (pattern != NULL && strcmp(pattern, "none") != 0) {
        (void)snprintf(out, out_size, "%s", pattern);
    }
    json_decref(description);
}

/* "2:8 V=16" of a linear that is packed so. */
static enum espl_status read_packing(struct espl_model *model, struct espl_inspect_layer *layer,
                                     struct espl_error *err)
{
    struct espl_quant_linear linear = {0};
    const enum espl_status status =
        espl_quant_linear_read_stored(model, layer->spec->layer, layer->spec->role, &linear, err);
    if (status == ESPL_OK && linear.nm != NULL) {
        const struct espl_nm_layout *layout = &linear.nm->layout;
        const bool dense = layout->n == layout->m;
        (void)snprintf(layer->nm, sizeof layer->nm, dense ? "%u:%u" : "%u:%u V=%u", layout->n,
                       layout->m, layout->v);
    }
    espl_quant_linear_free(&linear);
    return status;
}

enum espl_status espl_inspect_layers_load(struct espl_artifact *artifact,
                                          const struct espl_store *store, bool stats,
                                          struct espl_inspect_layers *out, struct espl_error *err)
{
    memset(out, 0, sizeof *out);
    out->stats = stats;
    enum espl_status status = espl_model_open(artifact, store, &out->model, err);
    if (status != ESPL_OK) {
        return status;
    }
    read_pattern(artifact, out->pattern, sizeof out->pattern);
    out->scheme = espl_model_quant_scheme(out->model);
    const size_t tensors = espl_model_tensor_count(out->model);
    out->items = calloc(tensors + 1, sizeof *out->items);
    if (out->items == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu layers", tensors);
    }
    for (size_t i = 0; i < tensors && status == ESPL_OK; ++i) {
        const struct espl_tensor_spec *spec = espl_model_tensor(out->model, i);
        if (!espl_role_is_block_linear(spec->role) || spec->is_bias) {
            continue;
        }
        struct espl_inspect_layer *layer = &out->items[out->count++];
        layer->spec = spec;
        layer->dtype = espl_model_dtype(out->model, spec);
        layer->masked = espl_model_has_mask(out->model, spec);
        layer->weights = spec->shape[0] * spec->shape[1];
        if (layer->masked) {
            (void)snprintf(layer->nm, sizeof layer->nm, "%s", out->pattern);
        }
        if (espl_model_is_encoded(out->model) && espl_model_is_quantised(out->model, spec)) {
            status = read_packing(out->model, layer, err);
        }
        if (status == ESPL_OK && out->scheme != NULL && espl_model_is_quantised(out->model, spec)) {
            layer->quantised = espl_quant_scheme_width(out->scheme, (size_t)spec->shape[1]);
            status = count_kept(out->model, true, layer, &layer->nonzero, err);
        }
        if (status == ESPL_OK && (stats || layer->masked)) {
            status = count_kept(out->model, stats, layer, &layer->kept, err);
            layer->counted = status == ESPL_OK;
        }
    }
    return status;
}

void espl_inspect_layers_free(struct espl_inspect_layers *layers)
{
    espl_model_close(layers->model);
    free(layers->items);
    memset(layers, 0, sizeof *layers);
}

static void share_cell(struct espl_table *table, bool counted, uint64_t kept, uint64_t weights)
{
    if (counted && weights > 0) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%.2f %%", 100.0 * (double)kept / (double)weights);
    } else {
        espl_table_cell(table, ESPL_STYLE_DIM, "-");
    }
}

/* "bf16", or "int4" with its group and outliers. */
static void type_cells(struct espl_table *table, const struct espl_inspect_layers *layers,
                       const struct espl_inspect_layer *layer)
{
    if (layer->quantised == NULL || layers->scheme == NULL) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", espl_dtype_name(layer->dtype));
        if (layers->scheme != NULL) {
            espl_table_cell(table, ESPL_STYLE_DIM, "-");
            espl_table_cell(table, ESPL_STYLE_DIM, "-");
        }
        return;
    }
    espl_table_cell(table, ESPL_STYLE_PLAIN, "int%u", layers->scheme->weight_bits);
    if (layer->quantised->group_size != 0) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", layer->quantised->group_size);
    } else {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "row");
    }
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%zu", layer->quantised->outliers);
}

static void layer_row(struct espl_table *table, const struct espl_inspect_layers *layers,
                      const struct espl_inspect_layer *layer)
{
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", layer->spec->module);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%" PRIu64 " x %" PRIu64, layer->spec->shape[0],
                    layer->spec->shape[1]);
    type_cells(table, layers, layer);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", layer->nm[0] != '\0' ? layer->nm : "-");
    share_cell(table, layer->counted, layer->kept, layer->weights);
    if (layers->scheme != NULL) {
        share_cell(table, layer->quantised != NULL, layer->nonzero, layer->weights);
    }
}

static void total_row(struct espl_table *table, const struct espl_inspect_layers *layers)
{
    uint64_t kept = 0;
    uint64_t weights = 0;
    uint64_t nonzero = 0;
    uint64_t quantised = 0;
    bool counted = true;
    for (size_t i = 0; i < layers->count; ++i) {
        const struct espl_inspect_layer *layer = &layers->items[i];
        kept += layer->counted ? layer->kept : layer->weights;
        weights += layer->weights;
        counted = counted && (layer->counted || !layer->masked);
        nonzero += layer->nonzero;
        quantised += layer->quantised != NULL ? layer->weights : 0;
    }
    espl_table_cell(table, ESPL_STYLE_BOLD, "total");
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.4g M", (double)weights / 1e6);
    for (size_t i = 0; i < (layers->scheme != NULL ? 4u : 2u); ++i) {
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", "");
    }
    share_cell(table, counted && (layers->stats || kept != weights), kept, weights);
    if (layers->scheme != NULL) {
        share_cell(table, true, nonzero, quantised);
    }
}

enum espl_status espl_inspect_layers_print(const struct espl_cli *cli,
                                           const struct espl_inspect_layers *layers, bool all,
                                           struct espl_error *err)
{
    const char *kept = layers->stats ? "nonzero" : "kept";
    const struct espl_column plain[] = {{.title = "layer"},
                                        {.title = "shape", .right = true},
                                        {.title = "type"},
                                        {.title = "N:M", .right = true},
                                        {.title = kept, .right = true}};
    const struct espl_column quantised[] = {
        {.title = "layer"},
        {.title = "shape", .right = true},
        {.title = "type"},
        {.title = "group", .right = true},
        {.title = "outliers", .right = true},
        {.title = "N:M", .right = true},
        {.title = kept, .right = true},
        {.title = "codes not 0", .right = true},
    };
    struct espl_table *table = NULL;
    enum espl_status status =
        layers->scheme != NULL
            ? espl_table_create(quantised, sizeof quantised / sizeof quantised[0], &table, err)
            : espl_table_create(plain, sizeof plain / sizeof plain[0], &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < layers->count && (all || i < SHOWN_LAYERS); ++i) {
        layer_row(table, layers, &layers->items[i]);
    }
    if (!all && layers->count > SHOWN_LAYERS) {
        espl_table_line(table, "... %zu more (--all)", layers->count - SHOWN_LAYERS);
    }
    total_row(table, layers);
    status = espl_table_print(table, cli->out, 2, cli->colour_out, err);
    espl_table_destroy(table);
    return status;
}

json_t *espl_inspect_layers_json(const struct espl_inspect_layers *layers)
{
    json_t *list = json_array();
    for (size_t i = 0; i < layers->count; ++i) {
        const struct espl_inspect_layer *layer = &layers->items[i];
        json_t *item =
            json_pack("{s:s, s:[I, I], s:s, s:b, s:s*}", "module", layer->spec->module, "shape",
                      (json_int_t)layer->spec->shape[0], (json_int_t)layer->spec->shape[1], "dtype",
                      espl_dtype_name(layer->dtype), "masked", layer->masked, "nm",
                      layer->nm[0] != '\0' ? layer->nm : NULL);
        if (layer->counted) {
            (void)json_object_set_new(item, layers->stats ? "nonzero" : "kept",
                                      json_integer((json_int_t)layer->kept));
        }
        if (layer->quantised != NULL && layers->scheme != NULL) {
            (void)json_object_update_new(
                item,
                json_pack("{s:I, s:I, s:I, s:I}", "bits", (json_int_t)layers->scheme->weight_bits,
                          "group_size", (json_int_t)layer->quantised->group_size,
                          "outlier_channels", (json_int_t)layer->quantised->outliers,
                          "codes_not_zero", (json_int_t)layer->nonzero));
        }
        (void)json_array_append_new(list, item);
    }
    return list;
}
