/* Small dense least squares in double: Householder QR, and singular values by one-sided Jacobi
 * rotations. For the tens of columns of a latency predictor; not for large matrices. */
#ifndef ESPL_SEARCH_LEAST_SQUARES_H
#define ESPL_SEARCH_LEAST_SQUARES_H

#include "core/error.h"

#include <stddef.h>

/** Householder QR in place: a (rows, cols), rows >= cols, COLUMN-major with stride `rows`, gets R
 * in its upper triangle and the reflectors below; y (rows) <- Q^T y. diagonal (cols): R's diagonal.
 * work (cols). Returns nothing to check: a dependent column shows as a small diagonal entry. */
void espl_qr_factor(size_t rows, size_t cols, double *a, double *y, double *diagonal);
/** Solves R z = y for the first `cols` entries of y after espl_qr_factor(). Every diagonal entry
 * must be non-zero. z (cols), may not overlap. */
void espl_qr_solve(size_t rows, size_t cols, const double *a, const double *diagonal,
                   const double *y, double *z);

/** Largest over smallest singular value of a (rows, cols) row-major, after every column was scaled
 * to unit length: what the data can tell apart, whatever the units of the columns. Infinity for a
 * zero column, for rows < cols and for a rank-deficient matrix. Errors: NOMEM. */
enum espl_status espl_condition_number(size_t rows, size_t cols, const double *a, double *condition,
                                       struct espl_error *err);

#endif
