/* Datasets of encoded linears. */
#include "model/iebme_linear.h"

#include "core/checked.h"
#include "model/model_internal.h"
#include "model/quantised_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool espl_iebme_is_stored(const struct espl_artifact *artifact,
                          const struct espl_tensor_spec *weight)
{
    char path[ESPL_TENSOR_PATH];
    espl_quant_part_path(weight, "areas", path);
    return !weight->is_bias && espl_artifact_find(artifact, path) != NULL;
}

/* ---- what the datasets look like ---- */

/* One element a stripe or a tile. */
static struct espl_tensor_info grid_info(const char *path, enum espl_dtype dtype,
                                         const struct espl_iebme_layout *layout, bool tiles)
{
    return espl_quant_plain_info(path, dtype, espl_iebme_stripes(layout),
                                 tiles ? espl_iebme_tile_cols(layout) : 0);
}

static struct espl_tensor_info values_info(const char *path, uint64_t values, unsigned bits)
{
    const uint64_t bytes = (values * bits + 7) / 8;
    struct espl_tensor_info info = espl_tensor_info_make(path, ESPL_DTYPE_U8, 1, &bytes);
    (void)snprintf(info.packing, sizeof info.packing, "int%u-lsb0", bits);
    info.logical_shape[0] = values;
    return info;
}

/* ---- writing ---- */

/* Stored values of a matrix that was encoded, from its masks: the last byte of the values may hold
 * fewer than it has room for. */
static uint64_t count_values(const struct espl_iebme_matrix *matrix)
{
    uint64_t values = 0;
    const uint64_t *mask = matrix->masks;
    const size_t tiles =
        espl_iebme_stripes(&matrix->layout) * espl_iebme_tile_cols(&matrix->layout);
    for (size_t t = 0; t < tiles; t++) {
        const enum espl_iebme_areas areas =
            matrix->tag_count > 0 ? (enum espl_iebme_areas)matrix->tags[t] : matrix->layout.areas;
        unsigned area_rows = 0;
        unsigned area_cols = 0;
        espl_iebme_areas_grid(areas, &area_rows, &area_cols);
        if (areas == ESPL_IEBME_DENSE) {
            values += ESPL_IEBME_TILE_VALUES;
            continue;
        }
        const unsigned groups = area_rows * area_cols;
        for (unsigned word = 0; word < ESPL_IEBME_MASK_WORDS_MAX / groups; word++) {
            values += (uint64_t)groups * (unsigned)__builtin_popcountll(*mask++);
        }
    }
    return values;
}

static enum espl_status write_part(struct espl_artifact *artifact,
                                   const struct espl_tensor_info *info, const void *data,
                                   struct espl_error *err)
{
    return info->bytes > 0 ? espl_artifact_write(artifact, info, data, err) : ESPL_OK;
}

static enum espl_status write_areas(struct espl_artifact *artifact,
                                    const struct espl_tensor_spec *weight,
                                    const struct espl_iebme_matrix *matrix, struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    const uint8_t one = (uint8_t)matrix->layout.areas;
    const bool mixed = matrix->layout.areas == ESPL_IEBME_MIXED;
    espl_quant_part_path(weight, "areas", path);
    const struct espl_tensor_info info = mixed
                                             ? grid_info(path, ESPL_DTYPE_U8, &matrix->layout, true)
                                             : espl_quant_plain_info(path, ESPL_DTYPE_U8, 1, 0);
    return espl_artifact_write(artifact, &info, mixed ? matrix->tags : &one, err);
}

enum espl_status espl_iebme_codes_write(struct espl_artifact *artifact,
                                        const struct espl_tensor_spec *weight,
                                        const struct espl_iebme_matrix *matrix,
                                        struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    espl_quant_part_path(weight, "masks", path);
    const struct espl_tensor_info masks =
        espl_quant_plain_info(path, ESPL_DTYPE_U64, matrix->mask_words, 0);
    espl_quant_part_path(weight, "offsets", path);
    const struct espl_tensor_info offsets =
        espl_quant_plain_info(path, ESPL_DTYPE_U32, matrix->offset_count, 0);
    espl_quant_part_path(weight, "values", path);
    const struct espl_tensor_info values =
        values_info(path, count_values(matrix), matrix->layout.bits);
    enum espl_status status = write_areas(artifact, weight, matrix, err);
    if (status == ESPL_OK) {
        status = write_part(artifact, &masks, matrix->masks, err);
    }
    if (status == ESPL_OK) {
        status = write_part(artifact, &offsets, matrix->offsets, err);
    }
    if (status == ESPL_OK) {
        status = write_part(artifact, &values, matrix->values, err);
    }
    if (status == ESPL_OK && matrix->order_count > 0) {
        status = espl_iebme_order_write(artifact, weight, &matrix->layout, matrix->orders, err);
    }
    return status;
}

enum espl_status espl_iebme_order_write(struct espl_artifact *artifact,
                                        const struct espl_tensor_spec *weight,
                                        const struct espl_iebme_layout *layout,
                                        const uint64_t *orders, struct espl_error *err)
{
    char path[ESPL_TENSOR_PATH];
    espl_quant_part_path(weight, "permutation", path);
    const struct espl_tensor_info info =
        grid_info(path, ESPL_DTYPE_U64, layout, layout->scope == ESPL_IEBME_SCOPE_TILE);
    return espl_artifact_write(artifact, &info, orders, err);
}

/* ---- reading ---- */

/* Is the dataset there? Then *info is a copy of its description with the path. */
static bool find_part(const struct espl_artifact *artifact, const struct espl_tensor_spec *weight,
                      const char *part, struct espl_tensor_info *info)
{
    char path[ESPL_TENSOR_PATH];
    espl_quant_part_path(weight, part, path);
    const struct espl_tensor_info *found = espl_artifact_find(artifact, path);
    if (found != NULL) {
        *info = *found;
    }
    return found != NULL;
}

static enum espl_status fail_part(const struct espl_artifact *artifact, const char *path,
                                  struct espl_error *err)
{
    return espl_fail(err, ESPL_E_CORRUPT, "dataset '%s' of '%s' does not fit its layer", path,
                     espl_artifact_path(artifact));
}

static enum espl_status read_areas(struct espl_artifact *artifact,
                                   const struct espl_tensor_spec *weight,
                                   struct espl_iebme_matrix *matrix, struct espl_error *err)
{
    struct espl_tensor_info found = {0};
    void *data = NULL;
    (void)find_part(artifact, weight, "areas", &found); /* the caller has seen it */
    const bool mixed = found.rank == 2;
    const struct espl_tensor_info info =
        mixed ? grid_info(found.path, ESPL_DTYPE_U8, &matrix->layout, true)
              : espl_quant_plain_info(found.path, ESPL_DTYPE_U8, 1, 0);
    enum espl_status status = espl_quant_read_part(artifact, &info, &data, err);
    if (status == ESPL_OK && mixed) {
        matrix->layout.areas = ESPL_IEBME_MIXED;
        matrix->tag_count = (size_t)info.bytes;
        matrix->tags = data;
        return ESPL_OK;
    }
    if (status == ESPL_OK) {
        const uint8_t code = *(const uint8_t *)data;
        matrix->layout.areas = (enum espl_iebme_areas)code;
        if (code > ESPL_IEBME_DENSE) {
            status = espl_fail(err, ESPL_E_CORRUPT, "'%s' of '%s' has unknown code %u", found.path,
                               espl_artifact_path(artifact), code);
        }
    }
    free(data);
    return status;
}

/* An array whose length only the codec can check, but no longer than `most` elements. */
static enum espl_status read_array(struct espl_artifact *artifact,
                                   const struct espl_tensor_spec *weight, const char *part,
                                   enum espl_dtype dtype, uint64_t most, void **data, size_t *count,
                                   struct espl_error *err)
{
    struct espl_tensor_info found;
    if (!find_part(artifact, weight, part, &found)) {
        return ESPL_OK; /* empty */
    }
    if (found.rank != 1 || found.shape[0] > most) {
        return fail_part(artifact, found.path, err);
    }
    const struct espl_tensor_info info =
        espl_quant_plain_info(found.path, dtype, found.shape[0], 0);
    const enum espl_status status = espl_quant_read_part(artifact, &info, data, err);
    *count = status == ESPL_OK ? (size_t)info.shape[0] : 0;
    return status;
}

static enum espl_status read_values(struct espl_artifact *artifact,
                                    const struct espl_tensor_spec *weight, uint64_t most,
                                    struct espl_iebme_matrix *matrix, struct espl_error *err)
{
    struct espl_tensor_info found;
    void *data = NULL;
    if (!find_part(artifact, weight, "values", &found)) {
        return ESPL_OK;
    }
    if (found.rank != 1 || found.logical_shape[0] > most) {
        return fail_part(artifact, found.path, err);
    }
    const struct espl_tensor_info info =
        values_info(found.path, found.logical_shape[0], matrix->layout.bits);
    const enum espl_status status = espl_quant_read_part(artifact, &info, &data, err);
    matrix->values = data;
    matrix->value_bytes = status == ESPL_OK ? (size_t)info.bytes : 0;
    return status;
}

enum espl_status espl_iebme_codes_read(struct espl_artifact *artifact,
                                       const struct espl_tensor_spec *weight,
                                       const struct espl_iebme_layout *layout,
                                       struct espl_iebme_matrix *matrix, struct espl_error *err)
{
    const uint64_t tiles =
        (uint64_t)espl_iebme_stripes(layout) * (uint64_t)espl_iebme_tile_cols(layout);
    void *masks = NULL;
    void *offsets = NULL;
    *matrix = (struct espl_iebme_matrix){.layout = *layout};
    enum espl_status status = read_areas(artifact, weight, matrix, err);
    if (status == ESPL_OK) {
        status = read_array(artifact, weight, "masks", ESPL_DTYPE_U64,
                            tiles * ESPL_IEBME_MASK_WORDS_MAX, &masks, &matrix->mask_words, err);
        matrix->masks = masks;
    }
    if (status == ESPL_OK) {
        status = read_array(artifact, weight, "offsets", ESPL_DTYPE_U32, tiles, &offsets,
                            &matrix->offset_count, err);
        matrix->offsets = offsets;
    }
    if (status == ESPL_OK) {
        status = read_values(artifact, weight, tiles * ESPL_IEBME_TILE_VALUES, matrix, err);
    }
    if (status == ESPL_OK) {
        status = espl_iebme_order_read(artifact, weight, &matrix->layout, &matrix->orders,
                                       &matrix->order_count, err);
    }
    if (status == ESPL_OK) {
        status = espl_iebme_validate(matrix, err);
        if (status != ESPL_OK) {
            (void)espl_context(err, "in the encoded codes of '%s'", weight->module);
        }
    }
    return status;
}

static bool is_permutation(uint64_t order)
{
    uint8_t rows[ESPL_IEBME_TILE_ROWS];
    unsigned seen = 0;
    espl_iebme_order_unpack(order, rows);
    for (size_t r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
        seen |= 1u << rows[r];
    }
    return seen == 0xFFFFu;
}

enum espl_status espl_iebme_order_read(struct espl_artifact *artifact,
                                       const struct espl_tensor_spec *weight,
                                       struct espl_iebme_layout *layout, uint64_t **orders,
                                       size_t *count, struct espl_error *err)
{
    struct espl_tensor_info found;
    void *data = NULL;
    *orders = NULL;
    *count = 0;
    layout->scope = ESPL_IEBME_SCOPE_NONE;
    if (!find_part(artifact, weight, "permutation", &found)) {
        return ESPL_OK;
    }
    const struct espl_tensor_info info =
        grid_info(found.path, ESPL_DTYPE_U64, layout, found.rank == 2);
    enum espl_status status = espl_quant_read_part(artifact, &info, &data, err);
    const uint64_t *words = data;
    const size_t length = (size_t)info.bytes / sizeof *words;
    for (size_t i = 0; status == ESPL_OK && i < length; i++) {
        if (!is_permutation(words[i])) {
            status = espl_fail(err, ESPL_E_CORRUPT,
                               "word %zu of '%s' is not a permutation of 16 rows", i, found.path);
        }
    }
    if (status != ESPL_OK) {
        free(data);
        return status;
    }
    layout->scope = found.rank == 2 ? ESPL_IEBME_SCOPE_TILE : ESPL_IEBME_SCOPE_STRIPE;
    *orders = data;
    *count = length;
    return ESPL_OK;
}
