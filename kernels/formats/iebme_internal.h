/* What the files of the IE-BME codec share. */
#ifndef ESPL_FORMATS_IEBME_INTERNAL_H
#define ESPL_FORMATS_IEBME_INTERNAL_H

#include "espalier/iebme.h"

#include <string.h>

/** Grid and sizes of one choice of areas. */
struct espl_iebme_grid {
    unsigned area_rows; /* R_A */
    unsigned area_cols; /* C_A */
    unsigned areas;     /* Q */
    unsigned words;     /* of a tile's mask; 0 = all active and not stored */
};

extern const struct espl_iebme_grid espl_iebme_grids[ESPL_IEBME_UNIFORM_CHOICES];

/** Layout exists, with areas that a stored matrix can have. Errors: UNSUPPORTED. */
enum espl_status espl_iebme_layout_check(const struct espl_iebme_layout *layout,
                                         struct espl_error *err);
/** *tiles, and that the bits of so many dense tiles can be counted. Errors: UNSUPPORTED. */
enum espl_status espl_iebme_count_tiles(const struct espl_iebme_layout *layout, size_t *tiles,
                                        struct espl_error *err);
size_t espl_iebme_order_count(const struct espl_iebme_layout *layout, size_t tiles);
bool espl_iebme_order_valid(uint64_t order);
/** The order of the rows of a tile; identity when nothing is permuted. */
uint64_t espl_iebme_tile_order(const struct espl_iebme_layout *layout, const uint64_t *orders,
                               size_t stripe, size_t tile);

/** Bit i = bytes[i] is not 0: the top bit of every such byte, gathered by a multiplication. */
static inline unsigned espl_iebme_nonzero_bits(const int8_t bytes[8])
{
    uint64_t word;
    memcpy(&word, bytes, sizeof word);
    const uint64_t low = UINT64_C(0x7F7F7F7F7F7F7F7F);
    const uint64_t top = (((word & low) + low) | word) & ~low;
    return (unsigned)(((top >> 7) * UINT64_C(0x0102040810204080)) >> 56);
}

/** tile (16, 64) <- codes in encoded row order, zero-filled. */
void espl_iebme_load_tile(const int8_t *codes, const struct espl_iebme_layout *layout,
                          size_t stripe, size_t tile_col, uint64_t order,
                          int8_t tile[ESPL_IEBME_TILE_VALUES]);
/** rows[r] bit c = tile[r][c] is not 0. */
void espl_iebme_row_masks(const int8_t tile[ESPL_IEBME_TILE_VALUES],
                          uint64_t rows[ESPL_IEBME_TILE_ROWS]);
/** words <- union mask of the tile; returns its ones. Dense: no words, 1. */
unsigned espl_iebme_union_mask(const uint64_t rows[ESPL_IEBME_TILE_ROWS],
                               enum espl_iebme_areas areas,
                               uint64_t words[ESPL_IEBME_MASK_WORDS_MAX]);
/** The smallest choice for a tile; ties as for a matrix. */
enum espl_iebme_areas espl_iebme_best_areas(const uint64_t rows[ESPL_IEBME_TILE_ROWS],
                                            unsigned bits);
unsigned espl_iebme_mask_ones(const uint64_t *words, enum espl_iebme_areas areas);
/** Row i of a union mask, 64 / C_A bits. */
uint64_t espl_iebme_mask_row(const uint64_t *words, unsigned area_cols, unsigned row);
/** Areas of a tile of a stored matrix. */
enum espl_iebme_areas espl_iebme_tile_areas(const struct espl_iebme_matrix *matrix, size_t tile);

/** Packed codes and where they end. */
struct espl_iebme_stream {
    const uint8_t *bytes;
    size_t size;
    unsigned bits;
};

/** out[c] <- the next value for every bit c of mask that is 1, else 0, for c < width (a multiple of
 *  8, at most 64). first: number of the first value. Values behind the end of the stream read as
 *  0, so nothing is read out of bounds. */
typedef void espl_iebme_expand_fn(const struct espl_iebme_stream *stream, uint64_t first,
                                  uint64_t mask, unsigned width, int8_t *out);

/** Ways to expand a row; all give the same result. */
enum espl_iebme_path { ESPL_IEBME_PLAIN, ESPL_IEBME_BMI2, ESPL_IEBME_AVX512, ESPL_IEBME_NEON };
enum { ESPL_IEBME_PATHS = 4 };

/** NULL when this CPU or build lacks it. */
espl_iebme_expand_fn *espl_iebme_expander(enum espl_iebme_path path);
/** The fastest here. */
espl_iebme_expand_fn *espl_iebme_best_expander(void);
/** espl_iebme_decode_stripe() with a given way. */
void espl_iebme_decode_stripe_with(const struct espl_iebme_matrix *matrix, size_t stripe,
                                   size_t mask_start, espl_iebme_expand_fn *expand, int8_t *panel);

#endif
