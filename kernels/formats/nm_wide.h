/* A second order of packed N:M weights, for the kernels of large products: what a matrix
 * instruction of four warps reads from shared memory. Derived from the first, never stored. */
#ifndef ESPL_FORMATS_NM_WIDE_H
#define ESPL_FORMATS_NM_WIDE_H

#include "espalier/nm_pack.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    ESPL_NM_WIDE_ROWS = 256, /* of a unit; a unit has 128 columns */
    ESPL_NM_STAY_ROWS = 192  /* of a unit whose weights stay in shared memory */
};

/** Whether there is such an order: M = 8, N = 2 or 4, V = 16, 32 or 64. */
bool espl_nm_wide_exists(const struct espl_nm_layout *layout);
/** Bytes of a unit of so many rows: their values, then the selectors of their groups; a multiple of
 *  16. rows: one of the above. */
size_t espl_nm_wide_unit(const struct espl_nm_layout *layout, size_t rows);
/** *units <- the units of a matrix that was checked, those of the first `rows` rows along the
 *  columns first; free() them. Groups of V rows follow each other, in these register pairs p, in
 * these groups of 8 rows, in these two matrices of 8 x 16 bytes: bytes 4 t to 4 t + 3 of row r of
 * matrix h are register 2 p + h of lane t of the stream of row 8 (r / 2) + 2 j + r % 2 of its 32
 * rows, j = number of the group of 8 there; with V = 16 of row 4 (r / 2) + 2 j + r % 2 of its 16
 * rows. Selectors are in the order of docs/formats/nm-pack.md, one group after the other. Errors:
 * UNSUPPORTED, NOMEM. */
enum espl_status espl_nm_wide_encode(const struct espl_nm_matrix *matrix, size_t rows,
                                     uint8_t **units, size_t *bytes, struct espl_error *err);

#ifdef __cplusplus
}
#endif

#endif
