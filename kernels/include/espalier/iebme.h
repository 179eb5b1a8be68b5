/* IE-BME: union masks over low-bit weights [UnionSparse, section V]. The format, bit by bit, with a
 * worked example: docs/formats/ie-bme.md. Plain functions on plain arrays; the canonical form is
 * what artifacts store, the device layout is derived from it for GPU kernels.
 *
 * Order of use: espl_iebme_plan() counts bytes and chooses areas, espl_iebme_encode() writes. A
 * matrix from a file goes through espl_iebme_validate() (or at least _check()) before anything
 * else is done with it. Same subset of C11 and C++ as kernels.h. */
#ifndef ESPALIER_IEBME_H
#define ESPALIER_IEBME_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ESPL_IEBME_TILE_ROWS = 16,
    ESPL_IEBME_TILE_COLS = 64,
    ESPL_IEBME_TILE_VALUES = 1024,
    ESPL_IEBME_MASK_WORDS_MAX = 16 /* of a tile */
};

/** R_A x C_A. The first ten numbers are stored in artifacts and never change. */
enum espl_iebme_areas {
    ESPL_IEBME_1X1 = 0,
    ESPL_IEBME_1X2 = 1,
    ESPL_IEBME_1X4 = 2,
    ESPL_IEBME_2X1 = 3,
    ESPL_IEBME_2X2 = 4,
    ESPL_IEBME_2X4 = 5,
    ESPL_IEBME_4X1 = 6,
    ESPL_IEBME_4X2 = 7,
    ESPL_IEBME_4X4 = 8,
    ESPL_IEBME_DENSE = 9,
    ESPL_IEBME_MIXED = 10,       /* every tile has its own of the above */
    ESPL_IEBME_AUTO_MATRIX = 11, /* to the planner: the smallest uniform choice */
    ESPL_IEBME_AUTO = 12         /* to the planner: the smallest of uniform and mixed */
};
enum { ESPL_IEBME_UNIFORM_CHOICES = 10, ESPL_IEBME_CHOICES = 11 };

/** "1x1" ... "4x4", "dense", "mixed", "auto-matrix", "auto"; NULL for another number. */
const char *espl_iebme_areas_name(enum espl_iebme_areas areas);
/** false when no areas have this name. */
bool espl_iebme_areas_parse(const char *name, enum espl_iebme_areas *areas);
/** R_A and C_A of a uniform choice (dense: 16 and 64). */
void espl_iebme_areas_grid(enum espl_iebme_areas areas, unsigned *rows, unsigned *cols);
/** The uniform choice with this grid; false when there is none. */
bool espl_iebme_areas_from_grid(unsigned rows, unsigned cols, enum espl_iebme_areas *areas);

/** Row permutations: none, one for all tiles of a stripe, or one a tile. Stored in artifacts. */
enum espl_iebme_scope {
    ESPL_IEBME_SCOPE_NONE = 0,
    ESPL_IEBME_SCOPE_STRIPE = 1,
    ESPL_IEBME_SCOPE_TILE = 2
};

struct espl_iebme_layout {
    size_t rows;   /* >= 1 */
    size_t cols;   /* >= 1 */
    unsigned bits; /* of a code: 2, 4 or 8 */
    enum espl_iebme_areas areas;
    enum espl_iebme_scope scope;
};

/** What encoding will take, to the byte. */
struct espl_iebme_plan {
    struct espl_iebme_layout layout; /* areas: the choice made */
    size_t stripes;                  /* ceil(rows / 16) */
    size_t tile_cols;                /* ceil(cols / 64) */
    size_t tiles;
    size_t mask_words;
    size_t offset_count;
    size_t value_bytes;
    size_t tag_count;
    size_t order_count;
    uint64_t values;    /* stored, zeros included */
    uint64_t nonzeros;  /* codes that are not 0 */
    uint64_t mask_ones; /* active mask positions over all tiles (dense: 1 a tile) */
    uint64_t bytes;     /* of all arrays */
    /* Bytes of every uniform choice and, last, of mixed tiles. */
    uint64_t choice_bytes[ESPL_IEBME_CHOICES];
    /* For how many tiles a choice is the smallest. */
    uint64_t tile_choice[ESPL_IEBME_UNIFORM_CHOICES];
};

/** The canonical form. Arrays have exactly the counts given; those with count 0 may be NULL. */
struct espl_iebme_matrix {
    struct espl_iebme_layout layout;
    uint64_t *masks; /* mask_words */
    size_t mask_words;
    uint32_t *offsets; /* one a tile, in values; none when areas are dense */
    size_t offset_count;
    uint8_t *values; /* value_bytes */
    size_t value_bytes;
    uint8_t *tags; /* one a tile when areas are mixed */
    size_t tag_count;
    uint64_t *orders; /* one a stripe or tile; nibble r = row that stands at encoded row r */
    size_t order_count;
};

/** A permutation word from 16 row numbers, and back. */
uint64_t espl_iebme_order_pack(const uint8_t rows[ESPL_IEBME_TILE_ROWS]);
void espl_iebme_order_unpack(uint64_t order, uint8_t rows[ESPL_IEBME_TILE_ROWS]);
/** The order of rows as they are. */
#define ESPL_IEBME_ORDER_IDENTITY UINT64_C(0xFEDCBA9876543210)

/** Counts what codes (rows, cols) take. layout->areas may be mixed or one of the automatic ones.
 *  orders: NULL for scope none, else one word a stripe or tile. Errors: UNSUPPORTED for a layout
 *  that does not exist or more than 2^32-1 stored values, CORRUPT for a code that does not fit or
 *  a word that is no permutation. */
enum espl_status espl_iebme_plan(const int8_t *codes, const struct espl_iebme_layout *layout,
                                 const uint64_t *orders, struct espl_iebme_plan *plan,
                                 struct espl_error *err);
/** Allocates and writes *matrix, which espl_iebme_matrix_free() frees. codes and orders as planned.
 *  Errors: NOMEM; INTERNAL when the codes are not those of the plan. */
enum espl_status espl_iebme_encode(const int8_t *codes, const uint64_t *orders,
                                   const struct espl_iebme_plan *plan,
                                   struct espl_iebme_matrix *matrix, struct espl_error *err);
/** Frees the arrays and zeroes the counts. */
void espl_iebme_matrix_free(struct espl_iebme_matrix *matrix);

/** Everything a decoder relies on: sizes, area codes, offsets, popcounts, permutations. Reads each
 *  array once and nothing outside. Errors: UNSUPPORTED, CORRUPT. */
enum espl_status espl_iebme_check(const struct espl_iebme_matrix *matrix, struct espl_error *err);
/** espl_iebme_check(), and that values beyond the matrix are 0 and every mask bit has a nonzero
 *  value. Errors: as above. */
enum espl_status espl_iebme_validate(const struct espl_iebme_matrix *matrix,
                                     struct espl_error *err);
/** codes (rows, cols) in original row order. Runs espl_iebme_check() first; codes is not written
 *  when that fails. */
enum espl_status espl_iebme_decode(const struct espl_iebme_matrix *matrix, int8_t *codes,
                                   struct espl_error *err);

/** Of a matrix that was checked: starts (stripes) <- index of the first mask word of each stripe.
 */
void espl_iebme_stripe_starts(const struct espl_iebme_matrix *matrix, size_t *starts);
/** Of a matrix that was checked: panel (16, tile_cols * 64) <- the codes of a stripe in original
 * row order, padded with zeros. mask_start: its entry of espl_iebme_stripe_starts(). */
void espl_iebme_decode_stripe(const struct espl_iebme_matrix *matrix, size_t stripe,
                              size_t mask_start, int8_t *panel);

static inline size_t espl_iebme_tile_cols(const struct espl_iebme_layout *layout)
{
    return layout->cols / ESPL_IEBME_TILE_COLS + (layout->cols % ESPL_IEBME_TILE_COLS != 0 ? 1 : 0);
}

static inline size_t espl_iebme_stripes(const struct espl_iebme_layout *layout)
{
    return layout->rows / ESPL_IEBME_TILE_ROWS + (layout->rows % ESPL_IEBME_TILE_ROWS != 0 ? 1 : 0);
}

/* ---- device layout ---- */

enum {
    ESPL_IEBME_DEVICE_UNIT = 128, /* bytes that starts and lengths count; alignment of chunks */
    ESPL_IEBME_DEVICE_TAIL = 256, /* readable zero bytes after the last chunk */
    ESPL_IEBME_DEVICE_LANES = 32,
    ESPL_IEBME_DEVICE_LENGTH_BITS = 24 /* of the second word of an index entry */
};

/** Chunked, in the order in which a warp reads it; INT4. */
struct espl_iebme_device {
    size_t rows;
    size_t cols;
    enum espl_iebme_areas unit; /* 1x1, 1x2, 2x1, 2x2, dense, or mixed: each chunk one of them */
    size_t slice;               /* columns of a chunk: 512 or 256 */
    size_t chunks;              /* ceil(rows / 16) * ceil(cols / slice), stripe-major */
    /* (chunks, 2): start and length in 128-byte units; of a mixed layout, the bits of the length
     * from ESPL_IEBME_DEVICE_LENGTH_BITS on are the chunk's areas. */
    uint32_t *index;
    uint8_t *data;     /* data_bytes, 128-byte aligned */
    size_t data_bytes; /* chunks and the tail */
};

/** Units of a chunk from the second word of its index entry. */
static inline uint32_t espl_iebme_device_length(uint32_t word)
{
    return word & ((UINT32_C(1) << ESPL_IEBME_DEVICE_LENGTH_BITS) - 1);
}

/** unit mixed: every chunk in its smallest form. slice: 512, 256 or 0 (512 unless that adds padding
 * to cols). The matrix must hold 4-bit codes; its areas and permutation do not matter. Allocates
 * *device; espl_iebme_device_free() frees. Errors: UNSUPPORTED, NOMEM, and those of
 * espl_iebme_check(). */
enum espl_status espl_iebme_device_encode(const struct espl_iebme_matrix *matrix,
                                          enum espl_iebme_areas unit, size_t slice,
                                          struct espl_iebme_device *device, struct espl_error *err);
/** codes (rows, cols). Checks sizes, index and streams before use. Errors: UNSUPPORTED, CORRUPT. */
enum espl_status espl_iebme_device_decode(const struct espl_iebme_device *device, int8_t *codes,
                                          struct espl_error *err);
void espl_iebme_device_free(struct espl_iebme_device *device);

/* ---- product ---- */

/** A quantised linear whose 4-bit (2-, 8-bit) codes are encoded. codes was checked, and its layout
 *  is (out, in - outliers). The rest as in struct espl_quant_weights. */
struct espl_iebme_weights {
    const struct espl_iebme_matrix *codes;
    const float *scales;         /* (ceil(out / rows_per_scale), groups) */
    const int8_t *outlier_codes; /* (out, outliers) or NULL */
    const float *outlier_scales; /* (out) or NULL */
    const float *bias;           /* (out) or NULL */
};

#ifdef __cplusplus
}
#endif

#endif
