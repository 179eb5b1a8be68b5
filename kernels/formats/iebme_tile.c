/* One tile: loading, union masks, the smallest areas. */
#include "kernels/formats/iebme_internal.h"

#include <string.h>

void espl_iebme_load_tile(const int8_t *codes, const struct espl_iebme_layout *layout,
                          size_t stripe, size_t tile_col, uint64_t order,
                          int8_t tile[ESPL_IEBME_TILE_VALUES])
{
    const size_t first_col = tile_col * ESPL_IEBME_TILE_COLS;
    const size_t left = layout->cols - first_col;
    const size_t width = left < ESPL_IEBME_TILE_COLS ? left : ESPL_IEBME_TILE_COLS;
    for (size_t r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
        const size_t row = stripe * ESPL_IEBME_TILE_ROWS + (size_t)(order >> (4 * r) & 15u);
        int8_t *out = tile + r * ESPL_IEBME_TILE_COLS;
        if (row >= layout->rows) {
            memset(out, 0, ESPL_IEBME_TILE_COLS);
            continue;
        }
        memcpy(out, codes + row * layout->cols + first_col, width);
        memset(out + width, 0, ESPL_IEBME_TILE_COLS - width);
    }
}

void espl_iebme_row_masks(const int8_t tile[ESPL_IEBME_TILE_VALUES],
                          uint64_t rows[ESPL_IEBME_TILE_ROWS])
{
    for (size_t r = 0; r < ESPL_IEBME_TILE_ROWS; r++) {
        uint64_t mask = 0;
        for (size_t c = 0; c < ESPL_IEBME_TILE_COLS; c += 8) {
            mask |= (uint64_t)espl_iebme_nonzero_bits(tile + r * ESPL_IEBME_TILE_COLS + c) << c;
        }
        rows[r] = mask;
    }
}

/* Columns j, j + 64/C, ... of a row fall on one bit. */
static uint64_t fold_cols(uint64_t row, unsigned area_cols)
{
    if (area_cols == 1) {
        return row;
    }
    row |= row >> 32;
    if (area_cols == 2) {
        return row & UINT64_C(0xFFFFFFFF);
    }
    return (row | row >> 16) & UINT64_C(0xFFFF);
}

unsigned espl_iebme_union_mask(const uint64_t rows[ESPL_IEBME_TILE_ROWS],
                               enum espl_iebme_areas areas,
                               uint64_t words[ESPL_IEBME_MASK_WORDS_MAX])
{
    const struct espl_iebme_grid grid = espl_iebme_grids[areas];
    if (grid.words == 0) {
        return 1;
    }
    const unsigned mask_rows = ESPL_IEBME_TILE_ROWS / grid.area_rows;
    const unsigned mask_cols = ESPL_IEBME_TILE_COLS / grid.area_cols;
    unsigned ones = 0;
    memset(words, 0, grid.words * sizeof *words);
    for (unsigned i = 0; i < mask_rows; i++) {
        uint64_t row = 0;
        for (unsigned a = 0; a < grid.area_rows; a++) {
            row |= rows[a * mask_rows + i];
        }
        row = fold_cols(row, grid.area_cols);
        words[i * mask_cols / 64] |= row << (i * mask_cols % 64);
        ones += (unsigned)__builtin_popcountll(row);
    }
    return ones;
}

unsigned espl_iebme_mask_ones(const uint64_t *words, enum espl_iebme_areas areas)
{
    const unsigned count = espl_iebme_grids[areas].words;
    unsigned ones = count == 0 ? 1 : 0;
    for (unsigned w = 0; w < count; w++) {
        ones += (unsigned)__builtin_popcountll(words[w]);
    }
    return ones;
}

uint64_t espl_iebme_mask_row(const uint64_t *words, unsigned area_cols, unsigned row)
{
    const unsigned width = ESPL_IEBME_TILE_COLS / area_cols;
    const uint64_t word = words[row * width / 64] >> (row * width % 64);
    return width == 64 ? word : word & ((UINT64_C(1) << width) - 1);
}
