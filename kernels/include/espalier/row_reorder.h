/* Row reorder for IE-BME: which rows of a 16 x 64 tile share mask bits, chosen so that as few mask
 * bits as possible are 1 [UnionSparse, section V.B, algorithm 1]. Method, canonical result and
 * measurements: docs/kernels/reorder.md. Same subset of C11 and C++ as kernels.h.
 *
 * A tile is 16 row masks of 64 bits, bit j = column j is not 0. Columns j, j + 64/C_A, ... are
 * folded (OR). A partition of the 16 rows into groups of R_A costs the sum over the groups of the
 * set bits in the union of their folded masks; the result is a partition of least cost, always.
 * Among several, the canonical one: rows ascending inside a group, groups ascending, and of all
 * partitions of least cost written so the lexicographically first. Its permutation lists the first
 * members of all groups, then the second members, ...: group g's member p stands at row
 * p * 16/R_A + g of the encoded tile, where areas of 16/R_A rows put the members of a group on the
 * same mask bit. */
#ifndef ESPALIER_ROW_REORDER_H
#define ESPALIER_ROW_REORDER_H

#include "core/error.h"
#include "espalier/iebme.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct espl_reorder_options {
    unsigned row_areas;          /* R_A: 1, 2 or 4 */
    unsigned col_areas;          /* C_A: 1, 2 or 4 */
    enum espl_iebme_scope scope; /* STRIPE or TILE */
    unsigned threads;            /* at least 1; results do not depend on it */
    const char *path;            /* a name of espl_reorder_path_name(), or NULL: the best here */
};

struct espl_reorder;

/** Builds the transition program and the work space of all threads. Errors: UNSUPPORTED for areas,
 *  scope, threads or path that do not exist (here), NOMEM. */
enum espl_status espl_reorder_create(const struct espl_reorder_options *options,
                                     struct espl_reorder **out, struct espl_error *err);
void espl_reorder_destroy(struct espl_reorder *reorder);

/** Instruction sets with code in this build that this CPU runs, best first; NULL after the last.
 *  All give the same bits. "scalar" is always there. */
const char *espl_reorder_path_name(size_t index);

/** masks (stripes, tile_cols, 16) -> orders, one word a tile (stripes, tile_cols) or a stripe
 *  (stripes), in the form of espl_iebme_order_pack(). active: the mask bits that stay 1, summed
 *  over the order's tiles, same shape as orders, or NULL. One caller at a time per object. */
void espl_reorder_masks(struct espl_reorder *reorder, const uint64_t *masks, size_t stripes,
                        size_t tile_cols, uint64_t *orders, uint64_t *active);
/** The same from codes (rows, cols), row-major. The last stripe and the last tile of a stripe may
 * be short: what is missing counts as 0, and missing rows take part in the permutation. */
void espl_reorder_codes(struct espl_reorder *reorder, const int8_t *codes, size_t rows, size_t cols,
                        uint64_t *orders, uint64_t *active);

/** Mask bits of one tile (16 row masks) that are 1 when its rows are put into `order`. */
unsigned espl_reorder_active(const uint64_t *masks, uint64_t order, unsigned row_areas,
                             unsigned col_areas);

/** The oracle: a plain dynamic program over all subsets of `rows` rows, for one tile or for the
 *  stripe of `tiles` tiles. masks (tiles, rows); rows 1..16; row_areas divides rows; order (rows):
 *  row that stands at each place. Errors: UNSUPPORTED, NOMEM. */
enum espl_status espl_reorder_reference(const uint64_t *masks, size_t tiles, size_t rows,
                                        unsigned row_areas, unsigned col_areas, uint8_t *order,
                                        uint64_t *active, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
