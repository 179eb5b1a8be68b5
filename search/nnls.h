/* Non-negative least squares [Lawson and Hanson 1974, algorithm NNLS]. */
#ifndef ESPL_SEARCH_NNLS_H
#define ESPL_SEARCH_NNLS_H

#include "core/error.h"

#include <stdbool.h>
#include <stddef.h>

struct espl_nnls_info {
    size_t iterations; /* columns that entered the passive set, with repetitions */
    size_t zeros;      /* entries of x that are 0 */
    double residual;   /* |A x - y| */
    bool converged;    /* false: the iteration cap was reached, x is the best so far */
};

/** x (cols) >= 0 that minimises |A x - y|. a (rows, cols) row-major, y (rows); rows, cols >= 1, any
 * relation between them, any rank. Columns are scaled to unit length inside and the passive set is
 * solved by Householder QR, so badly scaled columns do no harm. A column that (numerically) lies in
 * the span of the passive ones stays 0. info: may be NULL. Errors: NOMEM; NUMERIC for a value that
 * is not finite. */
enum espl_status espl_nnls_solve(size_t rows, size_t cols, const double *a, const double *y,
                                 double *x, struct espl_nnls_info *info, struct espl_error *err);

#endif
