/* Reads of the model view: rows from the artifact that holds them, masks of all levels on the way;
 * integer codes become float32 in the original order. */
#include "core/checked.h"
#include "model/element.h"
#include "model/model_internal.h"

#include <stdlib.h>
#include <string.h>

static size_t mask_stride(uint64_t cols)
{
    return espl_ceil_div((size_t)cols, 8);
}

static size_t row_bytes(const struct espl_model *model, const struct espl_tensor_spec *spec)
{
    return (size_t)spec->shape[1] * espl_dtype_size(espl_model_dtype(model, spec));
}

static enum espl_status check_rows(const struct espl_tensor_spec *spec, uint64_t row, uint64_t rows,
                                   struct espl_error *err)
{
    if (row > spec->shape[0] || rows > spec->shape[0] - row) {
        return espl_fail(err, ESPL_E_INTERNAL, "read outside tensor '%s'", spec->name);
    }
    return ESPL_OK;
}

/* Makes *block at least `bytes` large; its content is not kept. */
static enum espl_status reserve(void **block, size_t *size, size_t bytes, struct espl_error *err)
{
    if (*size >= bytes) {
        return ESPL_OK;
    }
    free(*block);
    *size = 0;
    *block = malloc(bytes);
    if (*block == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory for %zu bytes of weights", bytes);
    }
    *size = bytes;
    return ESPL_OK;
}

static void fill_ones(uint8_t *mask, uint64_t rows, uint64_t cols)
{
    const size_t stride = mask_stride(cols);
    memset(mask, 0xff, (size_t)rows * stride);
    if (cols % 8 != 0) {
        const uint8_t last = (uint8_t)((1u << (cols % 8)) - 1u);
        for (size_t r = 0; r < rows; r++) {
            mask[r * stride + stride - 1] = last;
        }
    }
}

static enum espl_status read_level(struct espl_model *model, size_t level,
                                   const struct espl_tensor_spec *spec, uint64_t row, uint64_t rows,
                                   uint8_t *mask, struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    espl_model_mask_path(spec, path);
    return espl_artifact_read_rows(model->chain[level], path, row, rows, mask,
                                   (size_t)rows * mask_stride(spec->shape[1]), err);
}

/* ---- quantised weights ---- */

/* Pieces of one matrix are read one after the other, so the last one read is kept. */
static enum espl_status cache_linear(struct espl_model *model, const struct espl_tensor_spec *spec,
                                     struct espl_error *err)
{
    if (model->cached_spec == spec) {
        return ESPL_OK;
    }
    espl_quant_linear_free(&model->cached);
    model->cached_spec = NULL;
    const enum espl_status status =
        espl_quant_linear_read(model, spec->layer, spec->role, true, &model->cached, err);
    if (status == ESPL_OK) {
        model->cached_spec = spec;
    }
    return status;
}

static enum espl_status read_quantised(struct espl_model *model,
                                       const struct espl_tensor_spec *spec, uint64_t row,
                                       uint64_t rows, float *dst, struct espl_error *err)
{
    const enum espl_status status = cache_linear(model, spec, err);
    return status == ESPL_OK
               ? espl_quant_linear_dequantise(&model->cached, (size_t)row, (size_t)rows, dst, err)
               : status;
}

static enum espl_status read_quantised_mask(struct espl_model *model,
                                            const struct espl_tensor_spec *spec, uint64_t row,
                                            uint64_t rows, uint8_t *mask, struct espl_error *err)
{
    const enum espl_status status = cache_linear(model, spec, err);
    if (status == ESPL_OK) {
        espl_quant_linear_original_mask(&model->cached, (size_t)row, (size_t)rows, mask);
    }
    return status;
}

/* ---- reading ---- */

/* A weight is kept when every level keeps it. */
enum espl_status espl_model_read_mask(struct espl_model *model, const struct espl_tensor_spec *spec,
                                      uint64_t row, uint64_t rows, uint8_t *mask,
                                      struct espl_error *err)
{
    const struct espl_model_slot *slot = &model->slots[spec - model->specs];
    const uint16_t levels = slot->masks;
    const size_t bytes = (size_t)rows * mask_stride(spec->shape[1]);
    uint8_t *other = NULL;
    bool have = false;
    enum espl_status status = check_rows(spec, row, rows, err);

    if (status != ESPL_OK || slot->quantised) {
        return status == ESPL_OK ? read_quantised_mask(model, spec, row, rows, mask, err) : status;
    }
    for (size_t level = 0; status == ESPL_OK && level + 1 < model->chain_count; level++) {
        if (((levels >> level) & 1u) == 0) {
            continue;
        }
        if (!have) {
            status = read_level(model, level, spec, row, rows, mask, err);
            have = true;
            continue;
        }
        if (other == NULL) {
            other = malloc(bytes == 0 ? 1 : bytes);
        }
        if (other == NULL) {
            status = espl_fail(err, ESPL_E_NOMEM, "out of memory for a mask");
            break;
        }
        status = read_level(model, level, spec, row, rows, other, err);
        for (size_t i = 0; status == ESPL_OK && i < bytes; i++) {
            mask[i] &= other[i];
        }
    }
    if (status == ESPL_OK && !have) {
        fill_ones(mask, rows, spec->shape[1]);
    }
    free(other);
    return status;
}

/* Zeroes what the masks remove in rows [row, row + rows) at `data`. */
static enum espl_status apply_masks(struct espl_model *model, const struct espl_tensor_spec *spec,
                                    uint64_t row, uint64_t rows, void *data, struct espl_error *err)
{
    const enum espl_dtype dtype = espl_model_dtype(model, spec);
    const size_t stride = mask_stride(spec->shape[1]);
    const size_t width = row_bytes(model, spec);
    void *block = model->mask;

    enum espl_status status = reserve(&block, &model->mask_bytes, (size_t)rows * stride, err);
    model->mask = block;
    if (status == ESPL_OK) {
        status = espl_model_read_mask(model, spec, row, rows, model->mask, err);
    }
    for (size_t r = 0; status == ESPL_OK && r < rows; r++) {
        espl_element_mask_row(dtype, (char *)data + r * width, (size_t)spec->shape[1],
                              model->mask + r * stride);
    }
    return status;
}

/* Rows that make a piece of at most ESPL_MODEL_PIECE_BYTES, at least one. */
static uint64_t piece_rows(const struct espl_model *model, const struct espl_tensor_spec *spec)
{
    const size_t width = row_bytes(model, spec);
    return width >= ESPL_MODEL_PIECE_BYTES ? 1 : ESPL_MODEL_PIECE_BYTES / width;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static enum espl_status read_piece(struct espl_model *model, const struct espl_tensor_spec *spec,
                                   uint64_t row, uint64_t rows, void *dst, struct espl_error *err)
{
    const size_t bytes = (size_t)rows * row_bytes(model, spec);
    const struct espl_model_slot *slot = &model->slots[spec - model->specs];
    if (slot->quantised) {
        return read_quantised(model, spec, row, rows, dst, err);
    }
    enum espl_status status =
        espl_artifact_read_rows(model->chain[slot->owner], spec->path, row, rows, dst, bytes, err);
    if (status == ESPL_OK && espl_model_has_mask(model, spec)) {
        status = apply_masks(model, spec, row, rows, dst, err);
    }
    return status;
}

enum espl_status espl_model_read_raw(struct espl_model *model, const struct espl_tensor_spec *spec,
                                     uint64_t row, uint64_t rows, void *dst, size_t dst_bytes,
                                     struct espl_error *err)
{
    const size_t width = row_bytes(model, spec);
    const uint64_t step = piece_rows(model, spec);
    enum espl_status status = check_rows(spec, row, rows, err);

    if (status == ESPL_OK && dst_bytes != (size_t)rows * width) {
        status = espl_fail(err, ESPL_E_INTERNAL, "%zu bytes for rows of tensor '%s' that need %zu",
                           dst_bytes, spec->name, (size_t)rows * width);
    }
    for (uint64_t done = 0; status == ESPL_OK && done < rows; done += step) {
        status = read_piece(model, spec, row + done, smaller(step, rows - done),
                            (char *)dst + (size_t)done * width, err);
    }
    return status;
}

enum espl_status espl_model_read_f32(struct espl_model *model, const struct espl_tensor_spec *spec,
                                     uint64_t row, uint64_t rows, float *dst,
                                     struct espl_error *err)
{
    const enum espl_dtype dtype = espl_model_dtype(model, spec);
    const size_t cols = (size_t)spec->shape[1];
    const uint64_t step = piece_rows(model, spec);
    enum espl_status status = check_rows(spec, row, rows, err);

    if (status == ESPL_OK && dtype == ESPL_DTYPE_F32) {
        return espl_model_read_raw(model, spec, row, rows, dst, (size_t)rows * cols * sizeof *dst,
                                   err);
    }
    if (status == ESPL_OK) {
        status = reserve(&model->raw, &model->raw_bytes,
                         (size_t)smaller(step, rows) * row_bytes(model, spec), err);
    }
    for (uint64_t done = 0; status == ESPL_OK && done < rows; done += step) {
        const uint64_t now = smaller(step, rows - done);
        status = read_piece(model, spec, row + done, now, model->raw, err);
        if (status == ESPL_OK) {
            espl_element_to_f32(dtype, model->raw, (size_t)now * cols, dst + (size_t)done * cols);
        }
    }
    return status;
}
