#include "cli/inspect_layers.h"

#include "cli/print.h"

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

static enum espl_status count_kept(struct espl_model *model, bool stats,
                                   struct espl_inspect_layer *layer, struct espl_error *err)
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
                layer->kept += values[i] != 0.0f ? 1 : 0;
            }
        } else {
            status = espl_model_read_mask(model, layer->spec, row, rows, piece, err);
            layer->kept += status == ESPL_OK ? count_bits(piece, (size_t)rows * row_bytes) : 0;
        }
        row += rows;
    }
    layer->counted = status == ESPL_OK;
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
        if (stats || layer->masked) {
            status = count_kept(out->model, stats, layer, err);
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

enum espl_status espl_inspect_layers_print(const struct espl_cli *cli,
                                           const struct espl_inspect_layers *layers, bool all,
                                           struct espl_error *err)
{
    const struct espl_column columns[] = {
        {.title = "layer"},
        {.title = "shape", .right = true},
        {.title = "type"},
        {.title = "N:M", .right = true},
        {.title = layers->stats ? "nonzero" : "kept", .right = true}};
    struct espl_table *table = NULL;
    uint64_t kept = 0;
    uint64_t weights = 0;
    bool counted = true;
    enum espl_status status = espl_table_create(columns, 5, &table, err);
    if (status != ESPL_OK) {
        return status;
    }
    for (size_t i = 0; i < layers->count; ++i) {
        const struct espl_inspect_layer *layer = &layers->items[i];
        kept += layer->counted ? layer->kept : layer->weights;
        weights += layer->weights;
        counted = counted && (layer->counted || !layer->masked);
        if (!all && i >= SHOWN_LAYERS) {
            continue;
        }
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", layer->spec->module);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%" PRIu64 " x %" PRIu64, layer->spec->shape[0],
                        layer->spec->shape[1]);
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", espl_dtype_name(layer->dtype));
        espl_table_cell(table, ESPL_STYLE_PLAIN, "%s",
                        layer->masked && layers->pattern[0] != '\0' ? layers->pattern : "-");
        share_cell(table, layer->counted, layer->kept, layer->weights);
    }
    if (!all && layers->count > SHOWN_LAYERS) {
        espl_table_line(table, "... %zu more (--all)", layers->count - SHOWN_LAYERS);
    }
    espl_table_cell(table, ESPL_STYLE_BOLD, "total");
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%.4g M", (double)weights / 1e6);
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", "");
    espl_table_cell(table, ESPL_STYLE_PLAIN, "%s", "");
    share_cell(table, counted && (layers->stats || kept != weights), kept, weights);
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
                      layer->masked && layers->pattern[0] != '\0' ? layers->pattern : NULL);
        if (layer->counted) {
            (void)json_object_set_new(item, layers->stats ? "nonzero" : "kept",
                                      json_integer((json_int_t)layer->kept));
        }
        (void)json_array_append_new(list, item);
    }
    return list;
}
