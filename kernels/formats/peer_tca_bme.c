/* TCA-BME [SpInfer, EuroSys 2025] with codes for halves: sections values, bitmaps, global offsets,
 * median offsets. */
#include "core/checked.h"
#include "kernels/formats/peer_internal.h"

#include <string.h>

enum {
    GLOBAL_SIDE = 64, /* rows and columns of a global tile */
    MEDIAN_TILES = 4, /* of a global tile, 16 rows each */
    BLOCKS = 4,       /* of a median tile, 16 columns each */
    BITMAPS = 4,      /* of a block, 8 x 8 each */
    BITMAP_SIDE = 8,
    TILE_BITMAPS = MEDIAN_TILES * BLOCKS * BITMAPS,
    UNIT = 16 /* bytes to which a global tile's values are filled up */
};

/* Corner of a bitmap in its global tile. Inside a block: down first, then right. */
static void bitmap_corner(unsigned bitmap, size_t *row, size_t *col)
{
    const unsigned median = bitmap / (BLOCKS * BITMAPS);
    const unsigned block = bitmap / BITMAPS % BLOCKS;
    const unsigned inner = bitmap % BITMAPS;
    *row = median * 2u * BITMAP_SIDE + inner % 2u * BITMAP_SIDE;
    *col = block * 2u * BITMAP_SIDE + inner / 2u * BITMAP_SIDE;
}

static size_t tile_count(size_t rows, size_t cols)
{
    return espl_ceil_div(rows, GLOBAL_SIDE) * espl_ceil_div(cols, GLOBAL_SIDE);
}

static size_t tile_nonzeros(const struct espl_peer_source *source, size_t tile)
{
    const size_t across = espl_ceil_div(source->cols, GLOBAL_SIDE);
    size_t nonzeros = 0;
    for (size_t r = 0; r < GLOBAL_SIDE; r++) {
        for (size_t c = 0; c < GLOBAL_SIDE; c++) {
            nonzeros += espl_peer_code(source, tile / across * GLOBAL_SIDE + r,
                                       tile % across * GLOBAL_SIDE + c) != 0
                            ? 1
                            : 0;
        }
    }
    return nonzeros;
}

static size_t value_units(size_t values, unsigned bits)
{
    return espl_ceil_div(espl_peer_packed_bytes(values, bits), UNIT);
}

static enum espl_status plan(const struct espl_peer_source *source,
                             size_t bytes[ESPL_PEER_SECTIONS], struct espl_error *err)
{
    const size_t tiles = tile_count(source->rows, source->cols);
    size_t units = 0;
    for (size_t t = 0; t < tiles; t++) {
        units += value_units(tile_nonzeros(source, t), source->bits);
    }
    if (units > UINT32_MAX) {
        return espl_fail(err, ESPL_E_UNSUPPORTED, "TCA-BME cannot index a matrix of %zu x %zu",
                         source->rows, source->cols);
    }
    bytes[0] = units * UNIT;
    bytes[1] = tiles * TILE_BITMAPS * sizeof(uint64_t);
    bytes[2] = (tiles + 1) * sizeof(uint32_t);
    bytes[3] = tiles * MEDIAN_TILES * sizeof(uint32_t);
    return ESPL_OK;
}

/* Returns how many values the tile has. */
static size_t encode_tile(const struct espl_peer_source *source, size_t tile, uint8_t *values,
                          struct espl_peer_matrix *matrix)
{
    const size_t across = espl_ceil_div(source->cols, GLOBAL_SIDE);
    size_t count = 0;
    for (unsigned b = 0; b < TILE_BITMAPS; b++) {
        size_t row = 0;
        size_t col = 0;
        uint64_t bitmap = 0;
        bitmap_corner(b, &row, &col);
        if (b % (BLOCKS * BITMAPS) == 0) {
            espl_peer_set_u32(matrix->section[3], tile * MEDIAN_TILES + b / (BLOCKS * BITMAPS),
                              (uint32_t)count);
        }
        row += tile / across * GLOBAL_SIDE;
        col += tile % across * GLOBAL_SIDE;
        for (unsigned i = 0; i < BITMAP_SIDE * BITMAP_SIDE; i++) {
            const int8_t code =
                espl_peer_code(source, row + i / BITMAP_SIDE, col + i % BITMAP_SIDE);
            if (code != 0) {
                bitmap |= UINT64_C(1) << i;
                espl_peer_put(values, source->bits, count++, code);
            }
        }
        memcpy(matrix->section[1] + (tile * TILE_BITMAPS + b) * sizeof bitmap, &bitmap,
               sizeof bitmap);
    }
    return count;
}

static void encode(const struct espl_peer_source *source, struct espl_peer_matrix *matrix)
{
    const size_t tiles = tile_count(source->rows, source->cols);
    size_t units = 0;
    for (size_t t = 0; t < tiles; t++) {
        espl_peer_set_u32(matrix->section[2], t, (uint32_t)units);
        units += value_units(encode_tile(source, t, matrix->section[0] + units * UNIT, matrix),
                             source->bits);
    }
    espl_peer_set_u32(matrix->section[2], tiles, (uint32_t)units);
}

static enum espl_status decode_tile(const struct espl_peer_matrix *matrix, size_t tile,
                                    const uint8_t *values, int8_t *codes, struct espl_error *err)
{
    const size_t across = espl_ceil_div(matrix->cols, GLOBAL_SIDE);
    size_t count = 0;
    for (unsigned b = 0; b < TILE_BITMAPS; b++) {
        size_t row = 0;
        size_t col = 0;
        uint64_t bitmap;
        bitmap_corner(b, &row, &col);
        memcpy(&bitmap, matrix->section[1] + (tile * TILE_BITMAPS + b) * sizeof bitmap,
               sizeof bitmap);
        if (b % (BLOCKS * BITMAPS) == 0 &&
            espl_peer_u32(matrix->section[3], tile * MEDIAN_TILES + b / (BLOCKS * BITMAPS)) !=
                count) {
            return espl_peer_fail(matrix, "has a median offset that its bitmaps deny", err);
        }
        row += tile / across * GLOBAL_SIDE;
        col += tile % across * GLOBAL_SIDE;
        for (; bitmap != 0; bitmap &= bitmap - 1) {
            const unsigned i = (unsigned)__builtin_ctzll(bitmap);
            const size_t r = row + i / BITMAP_SIDE;
            const size_t c = col + i % BITMAP_SIDE;
            if (r >= matrix->rows || c >= matrix->cols) {
                return espl_peer_fail(matrix, "has a value beyond the matrix", err);
            }
            codes[r * matrix->cols + c] = espl_peer_get(values, matrix->bits, count++);
        }
    }
    return ESPL_OK;
}

static enum espl_status decode(const struct espl_peer_matrix *matrix, int8_t *codes,
                               struct espl_error *err)
{
    const size_t tiles = tile_count(matrix->rows, matrix->cols);
    size_t units = 0;
    if (matrix->section_bytes[1] != tiles * TILE_BITMAPS * sizeof(uint64_t) ||
        matrix->section_bytes[2] != (tiles + 1) * sizeof(uint32_t) ||
        matrix->section_bytes[3] != tiles * MEDIAN_TILES * sizeof(uint32_t)) {
        return espl_peer_fail(matrix, "has bitmaps or offsets of the wrong size", err);
    }
    for (size_t t = 0; t < tiles; t++) {
        size_t ones = 0;
        for (size_t b = 0; b < TILE_BITMAPS; b++) {
            uint64_t bitmap;
            memcpy(&bitmap, matrix->section[1] + (t * TILE_BITMAPS + b) * sizeof bitmap,
                   sizeof bitmap);
            ones += (size_t)__builtin_popcountll(bitmap);
        }
        const size_t next = units + value_units(ones, matrix->bits);
        if (espl_peer_u32(matrix->section[2], t) != units ||
            espl_peer_u32(matrix->section[2], t + 1) != next ||
            next > matrix->section_bytes[0] / UNIT) {
            return espl_peer_fail(matrix, "has a global offset that its bitmaps deny", err);
        }
        const enum espl_status status =
            decode_tile(matrix, t, matrix->section[0] + units * UNIT, codes, err);
        if (status != ESPL_OK) {
            return status;
        }
        units = next;
    }
    return units * UNIT == matrix->section_bytes[0]
               ? ESPL_OK
               : espl_peer_fail(matrix, "has values of the wrong size", err);
}

const struct espl_peer_format_ops espl_peer_tca_bme_ops = {"tca-bme", plan, encode, decode};
