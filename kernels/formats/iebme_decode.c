/* Checking and decoding the canonical form. */
#include "kernels/formats/iebme_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---- checking ---- */

static enum espl_status check_count(const char *what, size_t found, size_t expected,
                                    struct espl_error *err)
{
    return found == expected
               ? ESPL_OK
               : espl_fail(err, ESPL_E_CORRUPT, "%zu %s found where the matrix has %zu", found,
                           what, expected);
}

static enum espl_status check_counts(const struct espl_iebme_matrix *matrix, size_t tiles,
                                     struct espl_error *err)
{
    const bool dense = matrix->layout.areas == ESPL_IEBME_DENSE;
    const bool mixed = matrix->layout.areas == ESPL_IEBME_MIXED;
    enum espl_status status = check_count("offsets", matrix->offset_count, dense ? 0 : tiles, err);
    if (status == ESPL_OK) {
        status = check_count("area codes", matrix->tag_count, mixed ? tiles : 0, err);
    }
    if (status == ESPL_OK) {
        status = check_count("row orders", matrix->order_count,
                             espl_iebme_order_count(&matrix->layout, tiles), err);
    }
    return status;
}

static enum espl_status check_orders(const struct espl_iebme_matrix *matrix, struct espl_error *err)
{
    for (size_t i = 0; i < matrix->order_count; i++) {
        if (!espl_iebme_order_valid(matrix->orders[i])) {
            return espl_fail(err, ESPL_E_CORRUPT, "row order %zu is not a permutation of 16 rows",
                             i);
        }
    }
    return ESPL_OK;
}

/* Every tile's code, offset and mask; *values = stored values, *words = mask words in all. */
static enum espl_status check_tiles(const struct espl_iebme_matrix *matrix, size_t tiles,
                                    uint64_t *values, struct espl_error *err)
{
    uint64_t total = 0;
    size_t at = 0;
    for (size_t t = 0; t < tiles; t++) {
        if (matrix->tag_count > 0 && matrix->tags[t] >= ESPL_IEBME_UNIFORM_CHOICES) {
            return espl_fail(err, ESPL_E_CORRUPT, "tile %zu has areas with unknown code %u", t,
                             (unsigned)matrix->tags[t]);
        }
        const enum espl_iebme_areas areas = espl_iebme_tile_areas(matrix, t);
        const struct espl_iebme_grid grid = espl_iebme_grids[areas];
        if (grid.words > matrix->mask_words - at) {
            return espl_fail(err, ESPL_E_CORRUPT, "masks end before tile %zu of %zu", t, tiles);
        }
        if (matrix->offset_count > 0 && matrix->offsets[t] != total) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "values of tile %zu start at %lu where %llu come before", t,
                             (unsigned long)matrix->offsets[t], (unsigned long long)total);
        }
        total += (uint64_t)grid.areas * espl_iebme_mask_ones(matrix->masks + at, areas);
        at += grid.words;
        if (matrix->offset_count > 0 && total > UINT32_MAX) {
            return espl_fail(err, ESPL_E_CORRUPT, "more values than 32-bit offsets can count");
        }
    }
    *values = total;
    return check_count("mask words", matrix->mask_words, at, err);
}

enum espl_status espl_iebme_check(const struct espl_iebme_matrix *matrix, struct espl_error *err)
{
    size_t tiles = 0;
    uint64_t values = 0;
    enum espl_status status = espl_iebme_layout_check(&matrix->layout, err);
    if (status == ESPL_OK) {
        status = espl_iebme_count_tiles(&matrix->layout, &tiles, err);
    }
    if (status == ESPL_OK) {
        status = check_counts(matrix, tiles, err);
    }
    if (status == ESPL_OK) {
        status = check_orders(matrix, err);
    }
    if (status == ESPL_OK) {
        status = check_tiles(matrix, tiles, &values, err);
    }
    if (status != ESPL_OK) {
        return status;
    }
    const uint64_t bits = values * matrix->layout.bits;
    status = check_count("value bytes", matrix->value_bytes, (size_t)((bits + 7) / 8), err);
    if (status == ESPL_OK && bits % 8 != 0 &&
        matrix->values[matrix->value_bytes - 1] >> (bits % 8) != 0) {
        status = espl_fail(err, ESPL_E_CORRUPT, "bits behind the last value are not 0");
    }
    return status;
}

/* ---- decoding ---- */

void espl_iebme_stripe_starts(const struct espl_iebme_matrix *matrix, size_t *starts)
{
    const size_t stripes = espl_iebme_stripes(&matrix->layout);
    const size_t tile_cols = espl_iebme_tile_cols(&matrix->layout);
    size_t at = 0;
    for (size_t s = 0; s < stripes; s++) {
        starts[s] = at;
        if (matrix->layout.areas != ESPL_IEBME_MIXED) {
            at += tile_cols * espl_iebme_grids[matrix->layout.areas].words;
            continue;
        }
        for (size_t t = s * tile_cols; t < (s + 1) * tile_cols; t++) {
            at += espl_iebme_grids[matrix->tags[t]].words;
        }
    }
}

/* rows[r]: where encoded row r of the tile goes. value: number of the tile's first value. */
static void decode_tile(const struct espl_iebme_stream *stream, uint64_t value,
                        const uint64_t *words, enum espl_iebme_areas areas,
                        espl_iebme_expand_fn *expand, int8_t *const rows[ESPL_IEBME_TILE_ROWS])
{
    const struct espl_iebme_grid grid = espl_iebme_grids[areas];
    if (grid.words == 0) {
        for (unsigned r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
            expand(stream, value, UINT64_MAX, ESPL_IEBME_TILE_COLS, rows[r]);
            value += ESPL_IEBME_TILE_COLS;
        }
        return;
    }
    const unsigned mask_rows = ESPL_IEBME_TILE_ROWS / grid.area_rows;
    const unsigned width = ESPL_IEBME_TILE_COLS / grid.area_cols;
    for (unsigned q = 0; q < grid.areas; q++) {
        const unsigned first_row = q / grid.area_cols * mask_rows;
        const unsigned first_col = q % grid.area_cols * width;
        for (unsigned i = 0; i < mask_rows; i++) {
            const uint64_t mask = espl_iebme_mask_row(words, grid.area_cols, i);
            expand(stream, value, mask, width, rows[first_row + i] + first_col);
            value += (unsigned)__builtin_popcountll(mask);
        }
    }
}

void espl_iebme_decode_stripe_with(const struct espl_iebme_matrix *matrix, size_t stripe,
                                   size_t mask_start, espl_iebme_expand_fn *expand, int8_t *panel)
{
    const size_t tile_cols = espl_iebme_tile_cols(&matrix->layout);
    const size_t stride = tile_cols * ESPL_IEBME_TILE_COLS;
    const struct espl_iebme_stream stream = {
        .bytes = matrix->values, .size = matrix->value_bytes, .bits = matrix->layout.bits};
    int8_t *rows[ESPL_IEBME_TILE_ROWS];
    size_t at = mask_start;
    for (size_t c = 0; c < tile_cols; c++) {
        const size_t t = stripe * tile_cols + c;
        const enum espl_iebme_areas areas = espl_iebme_tile_areas(matrix, t);
        const uint64_t order = espl_iebme_tile_order(&matrix->layout, matrix->orders, stripe, t);
        const uint64_t value =
            matrix->offset_count > 0 ? matrix->offsets[t] : (uint64_t)t * ESPL_IEBME_TILE_VALUES;
        for (size_t r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
            rows[r] = panel + (size_t)(order >> (4 * r) & 15u) * stride + c * ESPL_IEBME_TILE_COLS;
        }
        decode_tile(&stream, value, matrix->masks + at, areas, expand, rows);
        at += espl_iebme_grids[areas].words;
    }
}

void espl_iebme_decode_stripe(const struct espl_iebme_matrix *matrix, size_t stripe,
                              size_t mask_start, int8_t *panel)
{
    espl_iebme_decode_stripe_with(matrix, stripe, mask_start, espl_iebme_best_expander(), panel);
}

/* What one stripe needs to be decoded outside a kernel. */
struct stripe_reader {
    size_t *starts;
    int8_t *panel; /* (16, stride) */
    size_t stride;
};

static enum espl_status open_reader(const struct espl_iebme_matrix *matrix,
                                    struct stripe_reader *reader, struct espl_error *err)
{
    /* The panel is at most 16 times a row, and a row's masks or values are in memory already. */
    reader->stride = espl_iebme_tile_cols(&matrix->layout) * ESPL_IEBME_TILE_COLS;
    reader->starts = calloc(espl_iebme_stripes(&matrix->layout), sizeof *reader->starts);
    reader->panel = malloc(reader->stride * ESPL_IEBME_TILE_ROWS);
    if (reader->starts == NULL || reader->panel == NULL) {
        return espl_fail(err, ESPL_E_NOMEM, "out of memory while decoding a matrix of %zu x %zu",
                         matrix->layout.rows, matrix->layout.cols);
    }
    espl_iebme_stripe_starts(matrix, reader->starts);
    return ESPL_OK;
}

static void close_reader(struct stripe_reader *reader)
{
    free(reader->starts);
    free(reader->panel);
}

enum espl_status espl_iebme_decode(const struct espl_iebme_matrix *matrix, int8_t *codes,
                                   struct espl_error *err)
{
    struct stripe_reader reader = {.starts = NULL};
    const struct espl_iebme_layout *layout = &matrix->layout;
    enum espl_status status = espl_iebme_check(matrix, err);
    if (status == ESPL_OK) {
        status = open_reader(matrix, &reader, err);
    }
    if (status != ESPL_OK) {
        goto cleanup;
    }
    for (size_t s = 0; s < espl_iebme_stripes(layout); s++) {
        espl_iebme_decode_stripe(matrix, s, reader.starts[s], reader.panel);
        for (size_t r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
            const size_t row = s * ESPL_IEBME_TILE_ROWS + r;
            if (row < layout->rows) {
                memcpy(codes + row * layout->cols, reader.panel + r * reader.stride, layout->cols);
            }
        }
    }

cleanup:
    close_reader(&reader);
    return status;
}

/* ---- what an encoder would not have written ---- */

static enum espl_status check_padding(const struct espl_iebme_layout *layout, size_t stripe,
                                      const struct stripe_reader *reader, struct espl_error *err)
{
    for (size_t r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
        const size_t row = stripe * ESPL_IEBME_TILE_ROWS + r;
        for (size_t c = row < layout->rows ? layout->cols : 0; c < reader->stride; c++) {
            if (reader->panel[r * reader->stride + c] != 0) {
                return espl_fail(err, ESPL_E_CORRUPT,
                                 "a value beyond the matrix, at row %zu, column %zu, is not 0", row,
                                 c);
            }
        }
    }
    return ESPL_OK;
}

static enum espl_status check_masks(const struct espl_iebme_matrix *matrix, size_t stripe,
                                    const struct stripe_reader *reader, struct espl_error *err)
{
    const size_t tile_cols = espl_iebme_tile_cols(&matrix->layout);
    /* The panel seen as a matrix of its own, so that tiles load as in the encoder. */
    const struct espl_iebme_layout panel = {.rows = ESPL_IEBME_TILE_ROWS, .cols = reader->stride};
    size_t at = reader->starts[stripe];
    for (size_t c = 0; c < tile_cols; c++) {
        const size_t t = stripe * tile_cols + c;
        const enum espl_iebme_areas areas = espl_iebme_tile_areas(matrix, t);
        const uint64_t order = espl_iebme_tile_order(&matrix->layout, matrix->orders, stripe, t);
        int8_t tile[ESPL_IEBME_TILE_VALUES];
        uint64_t rows[ESPL_IEBME_TILE_ROWS];
        uint64_t words[ESPL_IEBME_MASK_WORDS_MAX] = {0};
        espl_iebme_load_tile(reader->panel, &panel, 0, c, order, tile);
        espl_iebme_row_masks(tile, rows);
        (void)espl_iebme_union_mask(rows, areas, words);     /* the words alone are compared */
        const size_t stored = espl_iebme_grids[areas].words; /* 0: there may be no masks at all */
        if (stored > 0 && memcmp(words, matrix->masks + at, stored * sizeof *words) != 0) {
            return espl_fail(err, ESPL_E_CORRUPT,
                             "the mask of tile %zu marks a place where all values are 0", t);
        }
        at += stored;
    }
    return ESPL_OK;
}

enum espl_status espl_iebme_validate(const struct espl_iebme_matrix *matrix, struct espl_error *err)
{
    struct stripe_reader reader = {.starts = NULL};
    enum espl_status status = espl_iebme_check(matrix, err);
    if (status == ESPL_OK) {
        status = open_reader(matrix, &reader, err);
    }
    for (size_t s = 0; status == ESPL_OK && s < espl_iebme_stripes(&matrix->layout); s++) {
        espl_iebme_decode_stripe(matrix, s, reader.starts[s], reader.panel);
        status = check_padding(&matrix->layout, s, &reader, err);
        if (status == ESPL_OK) {
            status = check_masks(matrix, s, &reader, err);
        }
    }
    close_reader(&reader);
    return status;
}
