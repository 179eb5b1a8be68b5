/* Ranks of weights within their windows: all N:M masks of a matrix in one array.
 *
 * The mask that keeps the N largest |w| of every M consecutive inputs is nested: what N keeps, N +
 * 1 keeps too. So one rank a weight (0 = largest) says it all: mask(N) = rank < N. Ties go to the
 * lower input. With `vector` = V, V neighbouring output channels share their pattern (the last
 * group may be smaller): the rank is by the sum of |w| over the group, and stands once a group. */
#ifndef ESPL_STAGES_NM_RANK_H
#define ESPL_STAGES_NM_RANK_H

#include "espalier/kernels.h"

#include <stddef.h>
#include <stdint.h>

/** Bits of a packed rank: 2, 3, 4 for M = 4, 8, 16; 0 for another M. */
unsigned espl_nm_rank_bits(unsigned m);
/** Groups of output channels with one pattern: ceil(rows / vector). */
static inline size_t espl_nm_groups(size_t rows, size_t vector)
{
    return (rows + vector - 1) / vector;
}

/** ranks (groups, cols) <- 0..m-1. weights (rows, cols) float32, finite; cols % m == 0; m <= 16;
 *  vector >= 1. */
void espl_nm_rank(const struct espl_matrix_shape *shape, unsigned m, size_t vector,
                  const float *weights, uint8_t *ranks);
/** masked (rows, cols) <- weights where rank < n, else 0. n: 1..m. */
void espl_nm_apply(const struct espl_matrix_shape *shape, size_t vector, const uint8_t *ranks,
                   unsigned n, const float *weights, float *masked);
/** Bit mask of rank < n: espl_mask_stride(cols) bytes a row. */
void espl_nm_mask(const struct espl_matrix_shape *shape, size_t vector, const uint8_t *ranks,
                  unsigned n, uint8_t *mask);

#endif
