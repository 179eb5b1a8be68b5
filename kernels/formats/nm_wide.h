/* A second order of packed N:M weights, for the kernel of large products: what a matrix instruction
 * of four warps reads from shared memory. Derived from the first, never stored. */
#ifndef ESPL_FORMATS_NM_WIDE_H
#define ESPL_FORMATS_NM_WIDE_H

#include "espalier/nm_pack.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ESPL_NM_WIDE_ROWS = 256 /* of a unit; a unit has 128 columns */
};

/** Whether there is such an order: M = 8, N = 2 or 4, V = 32 or 64. */
bool espl_nm_wide_exists(const struct espl_nm_layout *layout);
/** Bytes of a unit: 256 rows of values, then the selectors of their groups; a multiple of 16. */
size_t espl_nm_wide_unit(const struct espl_nm_layout *layout);
/** *units <- the units of a matrix that was checked, those of the first 256 rows along the columns
 *  first; free() them. Groups of V rows follow each other, in these register pairs p, in these
 * groups of 8 rows, in these two matrices of 8 x 16 bytes: bytes 4 t to 4 t + 3 of row r of matrix
 * h are register 2 p + h of lane t of the stream of row 8 (r / 2) + 2 j + r % 2 of its 32 rows, j =
 * number of the group of 8 there. Selectors are in the order of docs/formats/nm-pack.md, one group
 * after the other. Errors: UNSUPPORTED, NOMEM. */
enum espl_status espl_nm_wide_encode(const struct espl_nm_matrix *matrix, uint8_t **units,
                                     size_t *bytes, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
