#include "cli/model_traffic.h"

#include "cli/roofline_device.h"
#include "core/checked.h"
#include "core/codes.h"
#include "espalier/nm_pack.h"
#include "model/quantised.h"
#include "stages/encode_common/coded_linear.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* 1 where a weight is kept, for models whose weights are floats. */
static enum espl_status codes_of_mask(struct espl_model *model, const struct espl_tensor_spec *spec,
                                      int8_t **codes, struct espl_error *err)
{
    const size_t rows = (size_t)spec->shape[0];
    const size_t cols = (size_t)spec->shape[1];
    const size_t stride = (cols + 7) / 8;
    size_t count = 0;
    uint8_t *mask = malloc(stride);
    *codes = espl_mul_size(rows, cols, &count) ? malloc(count) : NULL;
    enum espl_status status =
        mask == NULL || *codes == NULL
            ? espl_fail(err, ESPL_E_NOMEM, "out of memory for the mask of '%s'", spec->module)
            : ESPL_OK;
    for (size_t row = 0; row < rows && status == ESPL_OK; row++) {
        status = espl_model_read_mask(model, spec, row, 1, mask, err);
        for (size_t col = 0; col < cols && status == ESPL_OK; col++) {
            (*codes)[row * cols + col] = (int8_t)(mask[col / 8] >> (col % 8) & 1);
        }
    }
    free(mask);
    return status;
}

/* Every format on these codes. One that cannot hold them is marked, not an error. */
static enum espl_status measure_formats(struct espl_layer_traffic *layer, const int8_t *codes,
                                        size_t rows, size_t cols, unsigned bits,
                                        struct espl_error *err)
{
    for (size_t f = 0; espl_formats[f].name != NULL; f++) {
        const enum espl_status status =
            espl_format_measure(&espl_formats[f], codes, rows, cols, bits, ESPL_IEBME_SCOPE_NONE,
                                NULL, &layer->formats[f], err);
        layer->holds[f] = status == ESPL_OK;
        if (status == ESPL_E_UNSUPPORTED) {
            espl_error_clear(err);
        } else if (status != ESPL_OK) {
            return status;
        }
    }
    return ESPL_OK;
}

static void describe_packed(struct espl_layer_traffic *layer,
                            const struct espl_quant_linear *linear, uint64_t nonzeros)
{
    const double bytes =
        (double)linear->out * (double)espl_codes_stride(linear->normal, linear->weight_bits);
    (void)snprintf(layer->stored_as, sizeof layer->stored_as, "dense int%u", linear->weight_bits);
    layer->stored = espl_traffic_of_bytes(linear->out, linear->normal, linear->weight_bits,
                                          nonzeros, bytes, 0.0);
}

static void describe_encoded(struct espl_layer_traffic *layer,
                             const struct espl_iebme_matrix *matrix, uint64_t nonzeros)
{
    const double metadata = 8.0 * (double)matrix->mask_words + 4.0 * (double)matrix->offset_count +
                            (double)matrix->tag_count + 8.0 * (double)matrix->order_count;
    (void)snprintf(layer->stored_as, sizeof layer->stored_as, "iebme-%s%s",
                   espl_iebme_areas_name(matrix->layout.areas),
                   matrix->order_count > 0 ? " reordered" : "");
    layer->stored =
        espl_traffic_of_bytes(matrix->layout.rows, matrix->layout.cols, matrix->layout.bits,
                              nonzeros, metadata + (double)matrix->value_bytes, metadata);
}

static void describe_nm(struct espl_layer_traffic *layer, const struct espl_nm_matrix *matrix,
                        uint64_t nonzeros)
{
    const struct espl_nm_layout *layout = &matrix->layout;
    const double metadata = (double)matrix->pattern_bytes;
    if (layout->n == layout->m) {
        (void)snprintf(layer->stored_as, sizeof layer->stored_as, "nm-dense");
    } else {
        (void)snprintf(layer->stored_as, sizeof layer->stored_as, "nm-%u:%u V=%u", layout->n,
                       layout->m, layout->v);
    }
    layer->stored = espl_traffic_of_bytes(layout->rows, layout->cols, 8, nonzeros,
                                          metadata + (double)matrix->value_bytes, metadata);
}

static enum espl_status load_quantised(struct espl_model *model, struct espl_layer_traffic *layer,
                                       struct espl_error *err)
{
    const struct espl_tensor_spec *spec = layer->spec;
    struct espl_quant_linear linear = {0};
    struct espl_quant_linear stored = {0};
    int8_t *codes = NULL;
    enum espl_status status =
        espl_quant_linear_read(model, spec->layer, spec->role, false, &linear, err);
    if (status == ESPL_OK) {
        status = espl_coded_unpack(&linear, &codes, err);
    }
    if (status == ESPL_OK) {
        status = measure_formats(layer, codes, linear.out, linear.normal, linear.weight_bits, err);
    }
    if (status == ESPL_OK && espl_model_is_encoded(model)) {
        status = espl_quant_linear_read_stored(model, spec->layer, spec->role, &stored, err);
    }
    if (status == ESPL_OK) {
        const uint64_t nonzeros = espl_format_nonzeros(codes, linear.out * linear.normal);
        layer->side_bytes = (double)espl_quant_linear_side_bytes(&linear);
        if (stored.encoded != NULL) {
            describe_encoded(layer, stored.encoded, nonzeros);
        } else if (stored.nm != NULL) {
            describe_nm(layer, stored.nm, nonzeros);
        } else {
            describe_packed(layer, &linear, nonzeros);
        }
    }
    free(codes);
    espl_quant_linear_free(&stored);
    espl_quant_linear_free(&linear);
    return status;
}

static enum espl_status load_float(struct espl_model *model, unsigned bits,
                                   struct espl_layer_traffic *layer, struct espl_error *err)
{
    const size_t rows = (size_t)layer->spec->shape[0];
    const size_t cols = (size_t)layer->spec->shape[1];
    const enum espl_dtype dtype = espl_model_dtype(model, layer->spec);
    int8_t *codes = NULL;
    enum espl_status status = codes_of_mask(model, layer->spec, &codes, err);
    if (status == ESPL_OK) {
        status = measure_formats(layer, codes, rows, cols, bits, err);
    }
    if (status == ESPL_OK) {
        const size_t value_bytes = espl_dtype_size(dtype);
        (void)snprintf(layer->stored_as, sizeof layer->stored_as, "%s", espl_dtype_name(dtype));
        layer->stored = espl_traffic_of_bytes(
            rows, cols, 8 * (unsigned)value_bytes, espl_format_nonzeros(codes, rows * cols),
            (double)rows * (double)cols * (double)value_bytes, 0.0);
    }
    free(codes);
    return status;
}

enum espl_status espl_model_traffic_load(struct espl_model *model, unsigned bits,
                                         struct espl_model_traffic *traffic, struct espl_error *err)
{
    const struct espl_quant_scheme *scheme = espl_model_quant_scheme(model);
    const size_t tensors = espl_model_tensor_count(model);
    *traffic = (struct espl_model_traffic){.bits = scheme != NULL ? scheme->weight_bits : bits,
                                           .supposed = scheme == NULL};
    traffic->layers = calloc(tensors + 1, sizeof *traffic->layers);
    if (traffic->layers == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu layers", tensors);
    }
    enum espl_status status = ESPL_OK;
    for (size_t i = 0; i < tensors && status == ESPL_OK; i++) {
        const struct espl_tensor_spec *spec = espl_model_tensor(model, i);
        if (!espl_role_is_block_linear(spec->role) || spec->is_bias ||
            (scheme != NULL && !espl_model_is_quantised(model, spec))) {
            continue;
        }
        struct espl_layer_traffic *layer = &traffic->layers[traffic->count++];
        layer->spec = spec;
        status = scheme != NULL ? load_quantised(model, layer, err)
                                : load_float(model, bits, layer, err);
        if (status != ESPL_OK) {
            espl_context(err, "counting the bytes of '%s'", spec->module);
        }
    }
    return status;
}

void espl_model_traffic_free(struct espl_model_traffic *traffic)
{
    free(traffic->layers);
    memset(traffic, 0, sizeof *traffic);
}

double espl_layer_seconds(const struct espl_layer_traffic *layer,
                          const struct espl_traffic *traffic, double tokens, double bandwidth,
                          double rate)
{
    return espl_traffic_roofline_seconds(traffic, tokens, ESPL_ROOFLINE_OUTPUT_BYTES, bandwidth,
                                         rate) +
           layer->side_bytes / bandwidth;
}

struct espl_model_total espl_model_traffic_total(const struct espl_model_traffic *traffic,
                                                 size_t format, double tokens, double bandwidth,
                                                 double rate)
{
    struct espl_model_total total = {.complete = true};
    double operations = 0.0;
    double counted_bytes = 0.0;
    for (size_t i = 0; i < traffic->count; i++) {
        const struct espl_layer_traffic *layer = &traffic->layers[i];
        const struct espl_traffic *moved =
            format == SIZE_MAX ? &layer->stored : &layer->formats[format];
        if (format != SIZE_MAX && !layer->holds[format]) {
            total.complete = false;
            continue;
        }
        total.weights += (double)layer->spec->shape[0] * (double)layer->spec->shape[1];
        total.payload_bytes += moved->payload_bytes;
        total.padding_bytes += moved->padding_bytes;
        total.metadata_bytes += moved->metadata_bytes;
        total.bytes +=
            moved->payload_bytes + moved->padding_bytes + moved->metadata_bytes + layer->side_bytes;
        total.seconds += espl_layer_seconds(layer, moved, tokens, bandwidth, rate);
        operations += 2.0 * (double)moved->nonzeros * tokens;
        counted_bytes += moved->payload_bytes + moved->metadata_bytes +
                         moved->bytes_per_value * (double)moved->cols * tokens;
    }
    total.intensity = counted_bytes > 0.0 ? operations / counted_bytes : 0.0;
    return total;
}
